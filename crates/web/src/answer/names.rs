//! Writes names of files, which are any bytes, in fields, links and pages.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// All characters but the unreserved of RFC 3986.
pub(crate) const RESERVED: &AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters that RFC 8187 forbids in `filename*`.
const EXTENDED: &AsciiSet = RESERVED;

const QUOTED: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// A link to a name in the same directory. A colon is encoded: it would end a scheme.
pub(crate) fn link(name: &[u8]) -> String {
    percent_encode(name, RESERVED).to_string()
}

pub(crate) fn path_link(path: &[u8]) -> String {
    path.split(|byte| *byte == b'/').map(link).collect::<Vec<_>>().join("/")
}

/// The prefix of links on a page whose path had segments of dots: rclone asks for `/./a:b/`, and takes only names whose links
/// begin so. Encoded dots survive resolving.
pub(crate) fn dotted_link(path: &str) -> String {
    let component = |component: &str| match component {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        other => link(&percent_decode_str(other).collect::<Vec<u8>>()),
    };
    // Two slashes at the start would name another host.
    let components = path.split('/').filter(|component| !component.is_empty()).map(component);
    components.fold("/".to_owned(), |prefix, component| prefix + &component + "/")
}

pub(crate) fn html(name: &[u8]) -> String {
    escaped(&String::from_utf8_lossy(name), "")
}

/// [`html`] for a text of many lines.
pub(crate) fn html_lines(lines: &str) -> String {
    escaped(&lines.replace('\r', ""), "\n\t")
}

fn escaped(name: &str, kept: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            letter if kept.contains(letter) => text.push(letter),
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            // Control characters, and those that reverse the direction of text, could make names look alike.
            letter if letter.is_control() || is_direction(letter) => text.push('\u{fffd}'),
            letter => text.push(letter),
        }
    }
    text
}

fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Makes `Content-Disposition` (RFC 6266): in ASCII for old programs, exact for others.
pub(crate) fn disposition(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let plain: String = text.chars().map(|letter| if letter.is_ascii() { letter } else { '_' }).collect();
    let plain = percent_encode(plain.as_bytes(), QUOTED).to_string().replace('%', "_");
    let mut value = format!("attachment; filename=\"{plain}\"");
    if plain != text {
        value += &format!("; filename*=UTF-8''{}", percent_encode(text.as_bytes(), EXTENDED));
    }
    value
}

pub(crate) fn media_type(name: &[u8]) -> String {
    let extension = name.rsplit(|byte| *byte == b'.').next().filter(|extension| extension.len() < name.len());
    let extension = extension.and_then(|extension| std::str::from_utf8(extension).ok()).unwrap_or_default();
    match mime_guess::from_ext(extension).first_raw() {
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        Some(other) => other.to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}

/// Whether a browser might run a document of this type: others' scripts would have the rights of this site.
pub(crate) fn may_run(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_passive = match essence.split_once('/') {
        Some(("image", kind)) => !kind.ends_with("+xml"),
        Some(("audio" | "video" | "font", _)) => true,
        _ => PASSIVE_TYPES.contains(&essence.as_str()),
    };
    !is_passive
}

/// Types that browsers show or save. Browsers sandbox PDF themselves, and would not show it in ours.
const PASSIVE_TYPES: [&str; 6] = [
    "text/plain",
    "application/octet-stream",
    "application/pdf",
    "application/gzip",
    "application/zip",
    "application/json",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_safe_wherever_they_stand() {
        assert_eq!(link(b"a b:c/\xff?#%\"<"), "a%20b%3Ac%2F%FF%3F%23%25%22%3C");
        assert_eq!(html("<a&\"'\n\u{202e}ü>".as_bytes()), "&lt;a&amp;&quot;&#39;\u{fffd}\u{fffd}ü&gt;");
        assert_eq!(dotted_link("/./a:b/c%20d/"), "/%2E/a%3Ab/c%20d/");
        assert_eq!(dotted_link("//x//.."), "/x/%2E%2E/");
        assert_eq!(disposition(b"plain.txt"), "attachment; filename=\"plain.txt\"");
        assert_eq!(
            disposition("ü \"x\"\r\n%41.txt".as_bytes()),
            "attachment; filename=\"_ _22x_22_0D_0A_2541.txt\"; filename*=UTF-8''%C3%BC%20%22x%22%0D%0A%2541.txt"
        );
    }

    #[test]
    fn what_a_browser_may_run_is_known_by_its_type() {
        for name in ["a.html", "a.HTM", "a.xhtml", "a.svg", "a.svgz", "a.xml", "a.rss", "a.xsl", "a.js"] {
            assert!(may_run(&media_type(name.as_bytes())), "{name}");
        }
        for name in ["a.txt", "a", "a.png", "a.pdf", "a.mp4", "a.tar.gz", "a.json", "a.fits"] {
            assert!(!may_run(&media_type(name.as_bytes())), "{name}");
        }
        assert!(may_run("TEXT/HTML;charset=x") && may_run("application/atom+xml") && may_run(""));
    }

    #[test]
    fn types_come_from_names() {
        for (name, expected) in [
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.PNG", "image/png"),
            ("a.tar.gz", "application/gzip"),
            ("a.unknown-thing", "application/octet-stream"),
            ("png", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name.as_bytes()), expected, "{name}");
        }
    }
}

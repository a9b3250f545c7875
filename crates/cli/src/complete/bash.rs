//! bash hands over the line as typed and takes back text as it is, so quotes are read and written here.
//!
//! readline replaces what stands behind the last word's last unquoted `:`, `=`, `@` (`COMP_WORDBREAKS`) or open quote.
//! Only that end is offered.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::complete::offer::{Files, MAX_OFFERS, Offers};
use crate::text::printable::printable;

/// Returns the files that the shell adds, and readline's words. `words` are the line up to the cursor, and the end that
/// readline replaces.
pub fn lines(words: &[OsString], offers: &dyn Fn(&[OsString]) -> Offers) -> (Files, Vec<String>) {
    let [line, replaced] = words else { return (Files::None, Vec::new()) };
    // bash expands the variable, and completes files itself.
    let Some(line) = Words::split(line.as_bytes()) else { return (Files::Any, Vec::new()) };
    let Some(kept) = line.kept(replaced.as_bytes()) else { return (Files::None, Vec::new()) };
    let typed = line.words.last().map(|word| word.as_bytes().to_vec()).unwrap_or_default();
    let offers = offers(&line.words);
    let mut words: Vec<String> = offers.words.into_iter().map(|offer| offer.word).collect();
    if words.is_empty() {
        return (offers.files, words);
    }
    // readline looks for files only where nothing else is offered.
    if offers.files != Files::None && !typed.contains(&b'/') {
        words.extend(names_here(&typed, offers.files));
    }
    let shown = words.iter().filter_map(|word| line.quote.quoted(word.get(kept..)?)).collect();
    (Files::None, shown)
}

fn names_here(begun: &[u8], files: Files) -> Vec<String> {
    let Ok(entries) = fs::read_dir(".") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let fits = name.as_bytes().starts_with(begun) && (begun.starts_with(b".") || !name.starts_with('.'));
        if !fits || printable(&name) != name {
            return None;
        }
        let is_directory = entry.path().is_dir();
        (is_directory || files == Files::Any).then(|| if is_directory { name + "/" } else { name })
    });
    names.take(MAX_OFFERS).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

impl Quote {
    /// Writes the text between these quotes; `None` if that is impossible.
    fn quoted(self, text: &str) -> Option<String> {
        match self {
            Quote::Single => Some(text.replace('\'', "'\\''")),
            // Between double quotes a `!` recalls an earlier line, even behind a backslash.
            Quote::Double if text.contains('!') => None,
            Quote::Double => Some(with_backslashes(text, |c| matches!(c, '$' | '`' | '"' | '\\'))),
            Quote::None => Some(with_backslashes(text, |c| {
                c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-./:=@%+,".contains(c)
            })),
        }
    }
}

fn with_backslashes(text: &str, is_special: impl Fn(char) -> bool) -> String {
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[derive(Debug)]
struct Words {
    words: Vec<OsString>,
    quote: Quote,
    /// The last word as typed; for each byte, the bytes of the word it ends.
    raw: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    /// `None`: only the shell knows what the last word means.
    fn split(line: &[u8]) -> Option<Self> {
        let (mut words, mut word, mut quote) = (Vec::new(), Vec::new(), Quote::None);
        let (mut raw, mut ends, mut is_for_shell) = (Vec::new(), Vec::new(), false);
        let mut bytes = line.iter().copied();
        while let Some(byte) = bytes.next() {
            if quote == Quote::None && matches!(byte, b' ' | b'\t' | b'\n' | b'<' | b'>') {
                if !raw.is_empty() {
                    words.push(OsString::from_vec(std::mem::take(&mut word)));
                    is_for_shell = false;
                }
                (raw, ends) = (Vec::new(), Vec::new());
                is_for_shell |= matches!(byte, b'<' | b'>');
                continue;
            }
            raw.push(byte);
            match (quote, byte) {
                (Quote::None, b'\'') => quote = Quote::Single,
                (Quote::None, b'"') => quote = Quote::Double,
                (Quote::Single, b'\'') | (Quote::Double, b'"') => quote = Quote::None,
                (Quote::None | Quote::Double, b'\\') => {
                    ends.push(word.len());
                    let Some(next) = bytes.next() else { break };
                    raw.push(next);
                    if quote == Quote::Double && !matches!(next, b'$' | b'`' | b'"' | b'\\') {
                        word.push(b'\\');
                    }
                    word.push(next);
                }
                (_, byte) => {
                    is_for_shell |= quote != Quote::Single && matches!(byte, b'$' | b'`');
                    is_for_shell |= quote == Quote::None && byte == b'~' && word.is_empty();
                    word.push(byte);
                }
            }
            ends.push(word.len());
        }
        words.push(OsString::from_vec(word));
        (!is_for_shell).then_some(Self { words, quote, raw, ends })
    }

    /// Bytes of the last word that stay before the replaced end.
    fn kept(&self, replaced: &[u8]) -> Option<usize> {
        let stays = self.raw.strip_suffix(replaced)?;
        Some(stays.len().checked_sub(1).map_or(0, |last| self.ends[last]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complete::offer::Offer;

    fn put_in(line: &str, replaced: &str, offered: &str) -> String {
        let offers = |words: &[OsString]| {
            assert!(offered.as_bytes().starts_with(words.last().unwrap().as_bytes()), "{words:?}");
            Offers { files: Files::None, words: vec![Offer { word: offered.into(), about: String::new() }] }
        };
        match lines(&[line.into(), replaced.into()], &offers) {
            (Files::None, words) => words.join("|"),
            (files, _) => format!("{files:?}"),
        }
    }

    #[test]
    fn what_readline_replaces_is_offered_in_the_quotes_that_are_open() {
        let table = [
            ("haul cp dt", "dt", "dtn:", "dtn:"),
            ("haul cp h:r", "r", "h:run 1", r"run\ 1"),
            ("haul cp h:r", "h:r", "h:run 1", r"h:run\ 1"),
            (r"haul cp h:my\ d", r"my\ d", "h:my dir/", r"my\ dir/"),
            ("haul cp \"h:my d", "h:my d", "h:my dir/", "h:my dir/"),
            ("haul cp h:\"my d", "my d", "h:my d$x", r"my d\$x"),
            ("haul cp \"h:my d\"/s", "\"h:my d\"/s", "h:my d/sub", r"h:my\ d/sub"),
            ("haul cp 'h:a", "h:a", "h:a'b", r"h:a'\''b"),
            ("haul cp me@h", "@h", "me@host:", "@host:"),
            ("haul cp haul://h/a", "//h/a", "haul://h/a;b", r"//h/a\;b"),
            (r"haul cp h:a\:b", r"a\:b", "h:a:b!c", r"a:b\!c"),
            ("haul cp \"h:a", "h:a", "h:a!c", ""),
            ("haul cp --cipher=a", "a", "--cipher=aes", "aes"),
            ("haul cp h:ä", "ä", "h:äö", "äö"),
            ("haul cp $HOM", "$HOM", "", "Any"),
            ("haul cp \"h:$x", "h:$x", "", "Any"),
            ("haul cp ~/d", "~/d", "", "Any"),
            ("haul cp > f", "f", "", "Any"),
        ];
        for (line, replaced, offered, expected) in table {
            assert_eq!(put_in(line, replaced, offered), expected, "{line}");
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let odd = "a b'c\"d$(id)`id`\\e;f&g|h<i>j*k?l[m]n{o}p#q~r!s\u{e4}";
        let read = |text: String| Words::split(text.as_bytes()).map(|line| line.words.concat_lossy());
        let quoted = |quote: Quote| quote.quoted(odd).unwrap();
        assert_eq!(read(quoted(Quote::None)).as_deref(), Some(odd));
        assert_eq!(read(format!("'{}'", quoted(Quote::Single))).as_deref(), Some(odd));
        let without = odd.replace('!', "");
        let double = Quote::Double.quoted(&without).unwrap();
        assert_eq!(read(format!("\"{double}\"")).as_deref(), Some(without.as_str()));
    }

    trait Concat {
        fn concat_lossy(&self) -> String;
    }

    impl Concat for Vec<OsString> {
        fn concat_lossy(&self) -> String {
            assert_eq!(self.len(), 1, "{self:?}");
            self[0].to_string_lossy().into_owned()
        }
    }
}

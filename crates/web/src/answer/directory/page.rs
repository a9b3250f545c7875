//! A directory as HTML. The page loads nothing; its policy has the hash of its only script.

use std::fmt::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest;
use haul_store::{Kind, Time};

use super::listing::{Counts, Entry};
use crate::answer::digest::hex;
use crate::answer::names;
use crate::request::target::{Column, Order};

/// The value of `Content-Security-Policy`.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let script = haul_net::base64_text(digest::digest(&digest::SHA256, SCRIPT.as_bytes()).as_ref());
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'"
    )
});

pub(super) fn begin(path: &[u8], order: Order) -> String {
    let title = names::html(&[b"/", path].concat());
    let mut text = String::with_capacity(STYLE.len() + 2_048);
    let _ = write!(
        text,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style></head>\n\
         <body><h1>{}</h1>\n<input id=\"filter\" type=\"search\" placeholder=\"filter names\" aria-label=\"filter names\" hidden>\n\
         <form method=\"get\"><table><thead><tr>",
        breadcrumbs(path)
    );
    for (column, word, class) in [(Column::Name, "name", "n"), (Column::Size, "size", "s"), (Column::Time, "time", "t")]
    {
        // Buttons, because a program that follows links would fetch every order.
        let is_current = order.by == column;
        let minus = if is_current && !order.is_reverse { "-" } else { "" };
        let (mark, sort) = match (is_current, order.is_reverse) {
            (false, _) => ("", "none"),
            (true, false) => (" \u{2191}", "ascending"),
            (true, true) => (" \u{2193}", "descending"),
        };
        let _ = write!(
            text,
            "<th class=\"{class}\" aria-sort=\"{sort}\"><button name=\"sort\" value=\"{minus}{word}\">{word}{mark}</button></th>"
        );
    }
    text.push_str("</tr></thead><tbody>\n");
    if !path.is_empty() {
        text.push_str("<tr class=\"up\"><td class=\"n\"><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    text
}

fn breadcrumbs(path: &[u8]) -> String {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let Some((last, above)) = parts.split_last() else { return "/".to_owned() };
    let mut text = format!("<a href=\"{}\">/</a>", "../".repeat(parts.len()));
    for (at, part) in above.iter().enumerate() {
        let up = "../".repeat(above.len() - at);
        let _ = write!(text, "<a href=\"{up}\">{}</a>/", names::html(part));
    }
    text + &names::html(last)
}

pub(super) fn row(text: &mut String, prefix: &str, entry: &Entry) {
    let is_directory = entry.stat.kind == Kind::Directory;
    let (name, href) = (names::html(&entry.name), names::link(&entry.name));
    let slash = if is_directory { "/" } else { "" };
    let (size, exact) = match is_directory {
        true => (String::new(), String::new()),
        false => (bytes_text(entry.stat.size), entry.stat.size.to_string()),
    };
    let time = time_text(entry.stat.mtime);
    let digest =
        entry.digests.map(|digests| format!(" <code>sha256 {}</code>", hex(&digests.sha256))).unwrap_or_default();
    let _ = writeln!(
        text,
        "<tr><td class=\"n\"><a href=\"{prefix}{href}{slash}\">{name}{slash}</a>{digest}</td><td class=\"s\" title=\"{exact}\">{size}</td>\
         <td class=\"t\">{time}</td></tr>"
    );
}

pub(super) fn end(counts: &Counts, next: Option<&str>, readme: Option<(&[u8], &str)>) -> String {
    let Counts { files, directories, bytes } = *counts;
    let count = |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let mut text = String::from("</tbody></table>\n");
    let _ = writeln!(
        text,
        "<p class=\"c\"><span title=\"{bytes} bytes\">{}, {}, {}</span> <button name=\"tar\">all as a tar file</button></p></form>",
        count(files, "file", "files"),
        count(directories, "directory", "directories"),
        bytes_text(bytes),
    );
    if let Some(next) = next {
        let next = names::html(next.as_bytes());
        let _ = writeln!(text, "<p><a rel=\"next\" href=\"{next}\">next names</a></p>");
    }
    if let Some((name, content)) = readme {
        let _ = writeln!(text, "<h2>{}</h2>\n<pre>{}</pre>", names::html(name), names::html_lines(content));
    }
    let _ = writeln!(text, "<script>{SCRIPT}</script></body></html>");
    text
}

/// The filter of names. Without scripts its box stays hidden.
const SCRIPT: &str = "\
const box=document.getElementById('filter'),rows=[...document.querySelectorAll('tbody tr:not(.up)')];\
box.hidden=false;box.oninput=()=>{const part=box.value.toLowerCase();\
for(const row of rows)row.hidden=!row.firstChild.firstChild.textContent.toLowerCase().includes(part)};\
if(box.value)box.oninput()";

/// Follows the device's light or dark; on a phone the times go below the names.
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}\
h1{font-size:1.15rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
td,th{padding:.4rem .5rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
.n{overflow-wrap:anywhere;width:99%}.s,.t{white-space:nowrap;font-variant-numeric:tabular-nums}.s{text-align:right}\
tr[hidden]{display:none!important}.c{font-size:.9rem;display:flex;gap:1rem;justify-content:space-between;flex-wrap:wrap}\
input{font:inherit;width:100%;box-sizing:border-box;padding:.3rem .5rem}pre{white-space:pre-wrap;overflow-wrap:anywhere}h2{font-size:1rem}\
button{font:inherit;font-weight:600;border:0;background:none;padding:0;cursor:pointer;color:inherit}\
code{display:block;font-size:.75rem;opacity:.6}a{text-decoration:none}a:hover,button:hover{text-decoration:underline}\
@media(max-width:34rem){tbody tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--line)}\
tbody td{border:0;padding:.1rem .5rem}tbody .n{grid-column:1/3;width:auto;padding-top:.4rem}tbody .s{order:2}\
tbody .t{order:1;opacity:.7}thead tr{display:flex;justify-content:space-between}thead th{width:auto}}";

fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut rest = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        (rest, whole, unit) = (whole % 1024, whole / 1024, unit + 1);
    }
    match (unit, whole) {
        (1.., 0..10) => format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit]),
        _ => format!("{whole} {}", UNITS[unit]),
    }
}

/// Writes `2026-11-25 08:30` in UTC.
fn time_text(time: Time) -> String {
    let (days, second) = (time.s.div_euclid(86_400), time.s.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_are_links() {
        assert_eq!(breadcrumbs(b""), "/");
        assert_eq!(breadcrumbs(b"a"), "<a href=\"../\">/</a>a");
        assert_eq!(
            breadcrumbs(b"a/<b/c"),
            "<a href=\"../../../\">/</a><a href=\"../../\">a</a>/<a href=\"../\">&lt;b</a>/c"
        );
    }

    #[test]
    fn sizes_and_times_are_short() {
        for (bytes, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10_240, "10 KiB"), (u64::MAX, "15 EiB")]
        {
            assert_eq!(bytes_text(bytes), expected);
        }
        for (s, expected) in [
            (0, "1970-01-01 00:00"),
            (784_111_777, "1994-11-06 08:49"),
            (1_709_251_199, "2024-02-29 23:59"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(time_text(Time { s, ns: 0 }), expected);
        }
    }
}

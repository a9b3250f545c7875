//! The page of a directory: HTML without anything from elsewhere, or JSON.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use haul_store::{FoundName, Kind, OpenDirectory, Time};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;

use super::body::Body;
use super::digest::{Digests, Kept, hex};
use super::file::set;
use super::refusal::Refusal;
use super::{Asked, in_pool, names};
use crate::limits::MAX_NAMES_LISTED;
use crate::request::target::{Column, Order};

/// Answers with the page.
pub(crate) async fn answer(asked: &Asked, directory: OpenDirectory) -> Result<Response<Body>, Refusal> {
    let wants_json = asked.target.wishes.json || prefers_json(&asked.header);
    let (path, order) = (asked.target.path.clone(), asked.target.wishes.order);
    let kept = Arc::clone(&asked.shared.digests);
    let text = in_pool(move || page(&directory, &path, (order, wants_json), &kept)).await;
    let text = text.map_err(|error| Refusal::of(super::status_of(&error)))?;
    let length = text.len();
    let body = match asked.is_head {
        true => Body::empty(),
        false => Body::full(Bytes::from(text)).holding(asked.shared.memory(length).await?),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let header = response.headers_mut();
    header.insert(CONTENT_LENGTH, length.into());
    set(header, CONTENT_TYPE, if wants_json { "application/json" } else { "text/html; charset=utf-8" });
    set(header, CONTENT_SECURITY_POLICY, POLICY);
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    header.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    header.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    header.insert(VARY, HeaderValue::from_static("Accept, Authorization"));
    Ok(response)
}

/// The page loads nothing and runs nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// JSON is named, and HTML is not.
fn prefers_json(header: &HeaderMap) -> bool {
    let names = |wanted: &str| {
        let values = header.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|range| range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted))
    };
    names("application/json") && !names("text/html")
}

fn page(directory: &OpenDirectory, path: &[u8], (order, wants_json): (Order, bool), kept: &Kept) -> io::Result<String> {
    let (mut found, is_cut) = directory.names(MAX_NAMES_LISTED)?;
    found.sort_by(|a, b| compare(a, b, order));
    let entries: Vec<Entry> = found.into_iter().map(|found| (kept.known(&found.stat), found)).collect();
    Ok(if wants_json { as_json(&entries, path, is_cut) } else { as_html(&entries, path, order, is_cut) })
}

/// A name, and its digests where they are known.
type Entry = (Option<Digests>, FoundName);

/// Directories come first, in either direction.
fn compare(a: &FoundName, b: &FoundName, order: Order) -> Ordering {
    let is_directory = |found: &FoundName| found.stat.kind == Kind::Directory;
    let by_column = match order.by {
        Column::Name => a.name.cmp(&b.name),
        Column::Size => a.stat.size.cmp(&b.stat.size).then_with(|| a.name.cmp(&b.name)),
        Column::Time => a.stat.mtime.cmp(&b.stat.mtime).then_with(|| a.name.cmp(&b.name)),
    };
    let by_column = if order.is_reverse { by_column.reverse() } else { by_column };
    is_directory(b).cmp(&is_directory(a)).then(by_column)
}

fn as_json(entries: &[Entry], path: &[u8], is_cut: bool) -> String {
    let entries: Vec<_> = entries
        .iter()
        .map(|(digests, found)| {
            let kind = match found.stat.kind {
                Kind::File => "file",
                Kind::Directory => "directory",
                Kind::Symlink { .. } => "link",
                Kind::Special => "special",
            };
            json!({
                "name": String::from_utf8_lossy(&found.name),
                "href": href(found),
                "type": kind,
                "size": (found.stat.kind == Kind::File).then_some(found.stat.size),
                "mtime_s": found.stat.mtime.s,
                "mtime_ns": found.stat.mtime.ns,
                "sha256": digests.map(|digests| hex(&digests.sha256)),
                "blake3": digests.map(|digests| hex(&digests.blake3)),
            })
        })
        .collect();
    json!({ "path": String::from_utf8_lossy(path), "entries": entries, "cut": is_cut }).to_string() + "\n"
}

fn href(found: &FoundName) -> String {
    let slash = if found.stat.kind == Kind::Directory { "/" } else { "" };
    names::link(&found.name) + slash
}

fn as_html(entries: &[Entry], path: &[u8], order: Order, is_cut: bool) -> String {
    let mut text = String::with_capacity(STYLE.len() + 512 + entries.len() * 200);
    let title = names::html(&[b"/", path].concat());
    let _ = write!(
        text,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<form method=\"get\"><table><thead><tr>"
    );
    for (column, word, class) in [(Column::Name, "name", "n"), (Column::Size, "size", "s"), (Column::Time, "time", "t")]
    {
        // Buttons, not links: a program that follows links does not fetch the page in every order.
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
        text.push_str("<tr><td class=\"n\"><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for (digests, found) in entries {
        let (is_directory, is_file) = (found.stat.kind == Kind::Directory, found.stat.kind == Kind::File);
        if !is_directory && !is_file {
            // Links and devices cannot be fetched.
            continue;
        }
        let (name, href, slash) = (names::html(&found.name), href(found), if is_directory { "/" } else { "" });
        let size = if is_file { bytes_text(found.stat.size) } else { String::new() };
        let exact = if is_file { found.stat.size.to_string() } else { String::new() };
        let time = time_text(found.stat.mtime);
        let digest =
            digests.map(|digests| format!(" <code>sha256 {}</code>", hex(&digests.sha256))).unwrap_or_default();
        let _ = writeln!(
            text,
            "<tr><td class=\"n\"><a href=\"{href}\">{name}{slash}</a>{digest}</td><td class=\"s\" title=\"{exact}\">{size}</td>\
             <td class=\"t\">{time}</td></tr>"
        );
    }
    text.push_str("</tbody></table></form>\n");
    if is_cut {
        let _ = writeln!(text, "<p>There are more names. This page shows {MAX_NAMES_LISTED} of them.</p>");
    }
    text.push_str("</body></html>\n");
    text
}

/// Light or dark as the reader's device has it; on a phone the times go below the names.
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}\
h1{font-size:1.15rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
td,th{padding:.4rem .5rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
.n{overflow-wrap:anywhere;width:99%}.s,.t{white-space:nowrap;font-variant-numeric:tabular-nums}.s{text-align:right}\
button{font:inherit;font-weight:600;border:0;background:none;padding:0;cursor:pointer;color:inherit}\
code{display:block;font-size:.75rem;opacity:.6}a{text-decoration:none}a:hover,button:hover{text-decoration:underline}\
@media(max-width:34rem){tbody tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--line)}\
tbody td{border:0;padding:.1rem .5rem}tbody .n{grid-column:1/3;width:auto;padding-top:.4rem}tbody .s{order:2}\
tbody .t{order:1;opacity:.7}thead tr{display:flex;justify-content:space-between}thead th{width:auto}}";

/// At most four digits and a unit.
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

/// `2026-11-25 08:30` in UTC.
fn time_text(time: Time) -> String {
    let (days, second) = (time.s.div_euclid(86_400), time.s.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// The date of a day since 1970, by Howard Hinnant's algorithm `civil_from_days`.
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

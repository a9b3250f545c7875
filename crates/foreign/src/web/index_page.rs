//! A directory by its index page: HTML of any server that links each name, or JSON of nginx, Caddy and `haul serve`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use haul_store::Time;
use html5gum::{Token, Tokenizer};
use http::header::{CONTENT_TYPE, DATE};
use http::{Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::digest::Digest;
use crate::http_client::client::{Answer, Ask, Client, invalid, refusal};
use crate::http_client::connection::Body;
use crate::http_client::fields::text;
use crate::http_client::url::{Url, decoded};
use crate::web::limits::MAX_PAGE_BYTES;
use crate::web::version::{Version, seconds};

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    /// The directory's time, if told.
    pub(crate) mtime: Option<Time>,
    /// The server's clock at the first page, in seconds since 1970.
    pub(crate) answered: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file as its list tells it; its version needs a look.
    File(Url, Told),
    /// A file that needs no look, and its server's sums.
    Seen(Url, Version, Vec<Digest>),
    Directory(Url, Option<Time>),
    /// A name that no file can have.
    Bad(&'static str),
    /// Neither a file nor a directory.
    NoFile,
    /// A link that is left out, with its reason.
    Skipped(&'static str),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) size: Option<u64>,
    pub(crate) mtime: Option<Time>,
}

pub(crate) fn index_of(client: &Client, url: &Url) -> io::Result<Index> {
    let (mut index, mut next, mut read_bytes) = (Index::default(), Some(url.clone()), 0);
    let mut base = None;
    // All pages together have a bound.
    while let Some(page) = next.take() {
        let Page { found, is_json, answered, bytes } = page_of(client, &page, MAX_PAGE_BYTES - read_bytes)?;
        index.answered = index.answered.or(answered);
        read_bytes += bytes.len() + 1;
        if read_bytes >= MAX_PAGE_BYTES {
            return Err(too_long());
        }
        let base = &*base.get_or_insert(found);
        match is_json {
            true => next = take_json(&mut index, base, &bytes)?,
            false => take_html(&mut index, base, &bytes),
        }
    }
    Ok(index)
}

struct Page {
    /// The URL after redirects.
    found: Url,
    is_json: bool,
    answered: Option<i64>,
    bytes: Vec<u8>,
}

fn page_of(client: &Client, url: &Url, most: usize) -> io::Result<Page> {
    // Caddy and haul would give HTML if it were named beside.
    let ask = Ask { accept: "application/json, */*;q=0.5", ..Ask::new(Method::GET, url) };
    let Answer { head, mut body, url: found } = client.ask(&ask)?;
    if head.status != StatusCode::OK {
        return Err(refusal(&head));
    }
    let kind = text(&head.headers, &CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = match kind.to_ascii_lowercase().as_str() {
        "application/json" => true,
        "text/html" | "application/xhtml+xml" => false,
        _ => {
            return Err(invalid(format!(
                "it has no list of its names, but {}",
                if kind.is_empty() { "no type" } else { kind }
            )));
        }
    };
    let answered = text(&head.headers, &DATE).and_then(seconds);
    let bytes = read_all(&mut body, most)?;
    client.give_back(found.origin(), body);
    Ok(Page { found, is_json, answered, bytes })
}

fn read_all(body: &mut Body, most: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut block) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match body.read(&mut block)? {
            0 => return Ok(bytes),
            count if bytes.len() + count > most => return Err(too_long()),
            count => bytes.extend_from_slice(&block[..count]),
        }
    }
}

pub(crate) fn too_long() -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, "the list of its names is longer than 64 MiB")
}

fn take_html(index: &mut Index, base: &Url, page: &[u8]) {
    for token in Tokenizer::new(page) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        if *tag.name != *b"a" {
            continue;
        }
        if let Some(link) = tag.attributes.get(&b"href"[..])
            && let Some(url) = base.join(link)
        {
            index.take(base, url, Told::default());
        }
    }
}

impl Index {
    fn take(&mut self, base: &Url, url: Url, told: Told) {
        if url.origin() != base.origin() {
            return;
        }
        let Some(beneath) = url.path().strip_prefix(base.path()).filter(|beneath| !beneath.is_empty()) else {
            // The directory itself in another order, or one above.
            return;
        };
        let (name, is_directory, is_deeper) = match beneath.split_once('/') {
            None => (beneath, false, false),
            Some((name, rest)) => (name, true, !rest.is_empty()),
        };
        let name = decoded(name);
        let entry = match why_bad(&name) {
            Some(why) => Entry::Bad(why),
            None if is_deeper => Entry::Skipped("is linked from here and lies deeper"),
            None if url.has_query() => Entry::Skipped("is linked with a query: no file has its name alone"),
            None if is_directory => Entry::Directory(url, told.mtime),
            None => Entry::File(url, told),
        };
        self.insert(name, entry);
    }

    /// An icon and a name lead to the same; a directory's link may lack its slash.
    fn insert(&mut self, name: Vec<u8>, entry: Entry) {
        let rank = |entry: &Entry| match entry {
            Entry::Directory(..) => 3,
            Entry::File(..) | Entry::Seen(..) => 2,
            Entry::Bad(_) => 1,
            Entry::NoFile | Entry::Skipped(_) => 0,
        };
        match self.entries.get(&name) {
            Some(known) if rank(known) >= rank(&entry) => {}
            _ => drop(self.entries.insert(name, entry)),
        }
    }
}

pub(crate) fn why_bad(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" | b"." | b".." => Some("no file can have its name"),
        name if name.contains(&b'/') => Some("its name has a slash in it"),
        name if name.contains(&0) => Some("its name has a NUL in it"),
        name if name.len() > MAX_NAME_BYTES => Some("its name is longer than 255 bytes"),
        _ => None,
    }
}

/// Linux's longest name (NAME_MAX).
pub(crate) const MAX_NAME_BYTES: usize = 255;

#[derive(Deserialize)]
struct Listed {
    name: String,
    /// nginx and haul: `directory`, `file`, and nginx's `other`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Caddy.
    is_dir: Option<bool>,
    /// The link of Caddy and haul, also to names that are no UTF-8.
    #[serde(alias = "url")]
    href: Option<String>,
    mtime_s: Option<i64>,
    mtime_ns: Option<u32>,
    /// nginx: a date of HTTP.
    mtime: Option<String>,
    /// Caddy: RFC 3339.
    mod_time: Option<String>,
    /// Any number; others count as none.
    size: Option<Value>,
}

impl Listed {
    fn told(&self) -> Told {
        let of_haul = self.mtime_s.map(|s| Time { s, ns: self.mtime_ns.unwrap_or(0).min(999_999_999) });
        let of_nginx = || Some(Time { s: seconds(self.mtime.as_deref()?)?, ns: 0 });
        let of_caddy = || {
            let at: Timestamp = self.mod_time.as_deref()?.parse().ok()?;
            // Before 1970 the parts count downwards.
            let ns = u32::try_from(at.subsec_nanosecond()).ok()?;
            Some(Time { s: at.as_second(), ns })
        };
        Told { size: self.size.as_ref().and_then(Value::as_u64), mtime: of_haul.or_else(of_nginx).or_else(of_caddy) }
    }
}

#[derive(Deserialize)]
struct OfHaul {
    entries: Vec<Listed>,
    next: Option<String>,
}

/// Returns where the next entries are.
fn take_json(index: &mut Index, base: &Url, page: &[u8]) -> io::Result<Option<Url>> {
    let unknown = |error: serde_json::Error| invalid(format!("the list of its names is none that haul knows: {error}"));
    let (entries, next) = match page.trim_ascii_start().first() {
        Some(b'[') => (serde_json::from_slice(page).map_err(unknown)?, None),
        _ => {
            let OfHaul { entries, next } = serde_json::from_slice(page).map_err(unknown)?;
            (entries, next)
        }
    };
    for entry in entries {
        index.take_listed(base, entry);
    }
    Ok(next.and_then(|next| base.join(next.as_bytes())))
}

impl Index {
    fn take_listed(&mut self, base: &Url, listed: Listed) {
        let told = listed.told();
        let Listed { name, kind, is_dir, href, .. } = listed;
        let is_directory = is_dir == Some(true) || kind.as_deref() == Some("directory");
        let name = name.strip_suffix('/').unwrap_or(&name);
        let slash = if is_directory { "/" } else { "" };
        let href = href.unwrap_or_else(|| percent_encode(name.as_bytes(), NON_ALPHANUMERIC).to_string() + slash);
        if let Some(why) = why_bad(name.as_bytes()) {
            return self.insert(name.as_bytes().to_vec(), Entry::Bad(why));
        }
        match kind.as_deref() {
            Some("other") => self.insert(name.as_bytes().to_vec(), Entry::NoFile),
            _ => match base.join(href.as_bytes()) {
                Some(url) if is_directory => self.take(base, url.as_directory(), told),
                Some(url) => self.take(base, url, told),
                None => self.insert(name.as_bytes().to_vec(), Entry::Bad("its link is none")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::url::Origin;

    fn base() -> Url {
        Url::new(Origin { is_tls: false, host: "host".to_owned(), port: 80 }, b"/d/").unwrap()
    }

    fn shown(index: &Index) -> Vec<String> {
        let one = |(name, entry): (&Vec<u8>, &Entry)| {
            let name = haul_store::printable(name);
            match entry {
                Entry::File(url, _) | Entry::Seen(url, ..) => format!("{name} {}", url.target()),
                Entry::Directory(url, _) => format!("{name}/ {}", url.target()),
                Entry::NoFile => format!("{name}: is no file"),
                Entry::Bad(why) | Entry::Skipped(why) => format!("{name}: {why}"),
            }
        };
        index.entries.iter().map(one).collect()
    }

    fn of_html(page: &str) -> Vec<String> {
        let mut index = Index::default();
        take_html(&mut index, &base(), page.as_bytes());
        shown(&index)
    }

    fn of_json(page: &str) -> Vec<String> {
        let mut index = Index::default();
        take_json(&mut index, &base(), page.as_bytes()).unwrap();
        shown(&index)
    }

    #[test]
    fn pages_of_the_usual_servers_give_their_names() {
        let nginx = "<html><head><title>Index of /d/</title></head><body><h1>Index of /d/</h1><hr><pre><a href=\"../\">../</a>\n\
                     <a href=\"sub/\">sub/</a>  28-Nov-2026 03:00  -\n<a href=\"a%20b\">a b</a>  28-Nov-2026 03:00  5\n</pre>";
        assert_eq!(of_html(nginx), ["a b /d/a%20b", "sub/ /d/sub/"]);
        let apache = "<tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td></tr>\
                      <tr><td><a href=\"x.iso\"><img src=\"/icons/x.gif\"></a></td><td><A HREF='x.iso'>x.iso</A></td></tr>";
        assert_eq!(of_html(apache), ["x.iso /d/x.iso"]);
        let caddy = "<a href=\"./?sort=name&amp;order=desc\">Name</a><a href=\"..\">Up</a><a href=\"./x&amp;y%3B\">x&amp;y;</a>";
        assert_eq!(of_html(caddy), ["x&y; /d/x&y%3B"]);
        let python = "<ul>\n<li><a href=\"%C3%A4%23%3F%25\">..</a></li>\n<li><a href=\"link/\">link@</a></li></ul>";
        assert_eq!(of_html(python), ["link/ /d/link/", "\u{e4}#?% /d/%C3%A4%23%3F%25"]);
    }

    #[test]
    fn lists_in_json_give_their_names() {
        let nginx = "[\n{ \"name\":\"sub\", \"type\":\"directory\", \"mtime\":\"Sat, 28 Nov 2026 03:00:00 GMT\" },\n\
                     { \"name\":\"a b%\", \"type\":\"file\", \"mtime\":\"x\", \"size\":5 },{\"name\":\"s\",\"type\":\"other\"}\n]";
        assert_eq!(of_json(nginx), ["a b% /d/a%20b%25", "s: is no file", "sub/ /d/sub/"]);
        let caddy = "[{\"name\":\"sub/\",\"size\":0,\"url\":\"./sub/\",\"mod_time\":\"x\",\"mode\":1,\"is_dir\":true,\"is_symlink\":false}]";
        assert_eq!(of_json(caddy), ["sub/ /d/sub/"]);
        let haul = "{\"path\":\"d\",\"cut\":false,\"next\":null,\"entries\":[{\"name\":\"x\u{fffd}\",\"href\":\"x%FF\",\"type\":\"file\",\
                    \"size\":1,\"mtime_s\":5,\"mtime_ns\":7,\"sha256\":null}],\"files\":1}";
        assert_eq!(of_json(haul), ["x\\xff /d/x%FF"]);
        let mut index = Index::default();
        let next = take_json(&mut index, &base(), b"{\"next\":\"?json&after=x\",\"entries\":[]}").unwrap();
        assert_eq!(next.unwrap().target(), "/d/?json&after=x");
        assert!(take_json(&mut index, &base(), b"{\"error\":1}").is_err());
    }

    #[test]
    fn what_leads_elsewhere_is_left_and_what_no_file_can_be_called_is_named() {
        let page = "<a href=\"/other/x\">1</a><a href=\"//elsewhere/d/x\">2</a><a href=\"mailto:x\">3</a><a>4</a><a href=\"#top\">5</a>\
                    <a href=\"..%2Fpasswd\">6</a><a href=\"a%00b\">7</a><a href=\"%2e%2e\">8</a><a href=\"%2e%2e/\">9</a>\
                    <a href=\"deep/er\">10</a><a href=\"get?id=1\">11</a><a href=\"ok\">12</a><a href=\"ok?x\">13</a>";
        let found = of_html(page);
        let expected = [
            "..: no file can have its name",
            "../passwd: its name has a slash in it",
            "a\\x00b: its name has a NUL in it",
            "deep: is linked from here and lies deeper",
            "get: is linked with a query: no file has its name alone",
            "ok /d/ok",
        ];
        assert_eq!(found.iter().map(|line| line.replace("\\0", "\\x00")).collect::<Vec<_>>(), expected);
    }
}

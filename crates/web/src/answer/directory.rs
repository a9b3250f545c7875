//! A directory as HTML or JSON, sent block by block.

mod archive;
mod listing;
mod order;
mod page;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use haul_store::{Kind, OpenDirectory, Opened, Patience};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LINK,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use percent_encoding::percent_encode;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, channel};

use super::asked::{Asked, kib};
use super::body::Body;
use super::digest::hex;
use super::file::set;
use super::names;
use super::refusal::Refusal;
use super::status::status_of;
use crate::access::Shelf;
use crate::limits::{
    LISTING_BLOCK_BYTES, LISTING_BYTES, MAX_NAMES_AT_ONCE, MAX_README_BYTES, OPEN_DEADLINE, PAGE_DEADLINE,
};
use crate::pools::{FOREVER, Job};
use crate::request::target::{Order, Wishes};
use listing::{Entry, Listing, Place};
use order::Key;

/// `path` has no links.
pub(crate) async fn answer(
    asked: &Asked,
    shelf: Arc<Shelf>,
    path: Vec<u8>,
    directory: OpenDirectory,
) -> Result<Response<Body>, Refusal> {
    let wishes = &asked.target.wishes;
    let wants_json = wishes.json || prefers_json(&asked.header);
    let after = match &wishes.after {
        Some(marker) => Some(Key::parse(marker, wishes.order).ok_or(Refusal::of(StatusCode::BAD_REQUEST))?),
        None => None,
    };
    let mut response = Response::new(Body::empty());
    if !asked.is_head {
        // The memory comes before the work.
        let pools = &asked.shared.pools;
        let mut share = asked.share(&pools.pages, kib(LISTING_BYTES), PAGE_DEADLINE).await?;
        let place =
            Place { shelf, reach: asked.reach.clone(), directory, path, kept: Arc::clone(&asked.shared.digests) };
        // A program follows pages. A reader of HTML, such as rclone, may not know pages and gets all names.
        let limit = wishes.limit.or((wants_json || after.is_some()).then_some(MAX_NAMES_AT_ONCE));
        let listing = match limit {
            Some(limit) => Listing::page(place, wishes.order, limit.min(MAX_NAMES_AT_ONCE), after),
            None => Listing::of_all(place, wishes.order, MAX_NAMES_AT_ONCE),
        };
        let is_first = wishes.after.is_none();
        let prefix = asked.target.dotted.as_deref().map(names::dotted_link).unwrap_or_default();
        let telling = Telling {
            prefix,
            listing,
            shown: asked.target.path.clone(),
            wishes: wishes.clone(),
            wants_json,
            is_first,
            begun: false,
        };
        let told = pools.listings.run(&asked.client, PAGE_DEADLINE, move |job| telling.next(job)).await?;
        let told = told.map_err(|error| Refusal::of(status_of(&error)))?;
        let header = response.headers_mut();
        if let Some(next) = &told.next_page {
            set(header, LINK, &format!("<{next}>; rel=\"next\""));
        }
        match told.rest {
            None => {
                header.insert(CONTENT_LENGTH, told.text.len().into());
                share.shrink_to(kib(told.text.len()));
                *response.body_mut() = Body::full(Bytes::from(told.text));
            }
            Some(rest) => *response.body_mut() = Body::stream(follow(asked, told.text, rest), None),
        }
        response.body_mut().hold(share.with_reader());
    }
    let header = response.headers_mut();
    set(header, CONTENT_TYPE, if wants_json { "application/json" } else { "text/html; charset=utf-8" });
    set(header, CONTENT_SECURITY_POLICY, &page::POLICY);
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    header.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    header.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    header.insert(VARY, HeaderValue::from_static("Accept, Authorization"));
    Ok(response)
}

pub(crate) async fn packed(asked: &Asked, shelf: Arc<Shelf>, path: Vec<u8>) -> Result<Response<Body>, Refusal> {
    let name = match asked.target.name() {
        b"" => b"files.tar".to_vec(),
        name => [name, b".tar"].concat(),
    };
    let body = if asked.is_head {
        Body::empty()
    } else {
        let of_shelf = asked.share(&asked.client.threads.tars, 1, OPEN_DEADLINE).await?;
        let of_all = asked.share(&asked.shared.pools.tars, 1, OPEN_DEADLINE).await?;
        let packing = archive::Packing { shelf, reach: asked.reach.clone(), top: path };
        let blocks = archive::begin(packing, vec![of_shelf, of_all]);
        Body::stream(blocks.map_err(|error| Refusal::of(status_of(&error)))?, None)
    };
    let mut response = Response::new(body);
    let header = response.headers_mut();
    set(header, CONTENT_TYPE, "application/x-tar");
    set(header, CONTENT_DISPOSITION, &names::disposition(&name));
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    header.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    header.insert(VARY, HeaderValue::from_static("Authorization"));
    Ok(response)
}

fn prefers_json(header: &HeaderMap) -> bool {
    let names = |wanted: &str| {
        let values = header.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|range| range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted))
    };
    names("application/json") && !names("text/html")
}

struct Telling {
    listing: Listing,
    /// The path as asked for: resolved links do not show.
    shown: Vec<u8>,
    prefix: String,
    wishes: Wishes,
    wants_json: bool,
    is_first: bool,
    begun: bool,
}

struct Told {
    text: String,
    rest: Option<Telling>,
    next_page: Option<String>,
}

impl Telling {
    /// Makes the next block. It reads the directory, so it runs in the pool.
    fn next(mut self, job: &Job) -> io::Result<Told> {
        let mut text = String::new();
        loop {
            let entries = self.listing.next_entries(ENTRIES_AT_ONCE, &|| job.goes_on())?;
            let is_end = entries.is_empty();
            let next_page = self.next_page();
            if !self.begun {
                text.push_str(&match self.wants_json {
                    true => self.json_begin(next_page.as_deref()),
                    false => page::begin(&self.shown, self.listing.order),
                });
            }
            for (at, entry) in entries.iter().enumerate() {
                match self.wants_json {
                    true if self.begun || at > 0 => text += &format!(",{}", json_entry(entry)),
                    true => text += &json_entry(entry),
                    false => page::row(&mut text, &self.prefix, entry),
                }
            }
            self.begun = true;
            if is_end {
                text.push_str(&match self.wants_json {
                    true => self.json_end(),
                    false => self.page_end(next_page.as_deref()),
                });
                return Ok(Told { text, rest: None, next_page });
            }
            if text.len() >= LISTING_BLOCK_BYTES {
                return Ok(Told { text, rest: Some(self), next_page });
            }
        }
    }

    fn next_page(&self) -> Option<String> {
        let marker = self.listing.next_page()?;
        let json = if self.wants_json { "json&" } else { "" };
        let limit = self.wishes.limit.map(|limit| format!("limit={limit}&")).unwrap_or_default();
        let order = self.listing.order;
        let sort = if order == Order::default() { String::new() } else { format!("sort={}&", order.text()) };
        Some(format!("?{json}{sort}{limit}after={}", percent_encode(&marker, names::RESERVED)))
    }

    fn json_begin(&self, next: Option<&str>) -> String {
        let path = json!(String::from_utf8_lossy(&self.shown));
        format!("{{\"path\":{path},\"cut\":{},\"next\":{},\"entries\":[", next.is_some(), json!(next))
    }

    fn json_end(&self) -> String {
        let counts = &self.listing.counts;
        format!("],\"files\":{},\"directories\":{},\"bytes\":{}}}\n", counts.files, counts.directories, counts.bytes)
    }

    fn page_end(&self, next: Option<&str>) -> String {
        let readme = if self.is_first { readme(&self.listing.place) } else { None };
        page::end(&self.listing.counts, next, readme.as_ref().map(|(name, text)| (*name, text.as_str())))
    }
}

fn json_entry(Entry { name, stat, digests }: &Entry) -> String {
    let (kind, slash) = if stat.kind == Kind::Directory { ("directory", "/") } else { ("file", "") };
    json!({
        "name": String::from_utf8_lossy(name),
        "href": names::link(name) + slash,
        "type": kind,
        "size": (stat.kind == Kind::File).then_some(stat.size),
        "mtime_s": stat.mtime.s,
        "mtime_ns": stat.mtime.ns,
        "sha256": digests.map(|digests| hex(&digests.sha256)),
        "blake3": digests.map(|digests| hex(&digests.blake3)),
    })
    .to_string()
}

fn readme(place: &Place) -> Option<(&'static [u8], String)> {
    README_NAMES.iter().find_map(|name| {
        let path = if place.path.is_empty() { name.to_vec() } else { [&place.path, &b"/"[..], name].concat() };
        let Ok(Opened::File(file, _)) = place.shelf.directory.find(&path, Patience::ForDisk) else { return None };
        let mut bytes = vec![0; MAX_README_BYTES];
        let count = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(count);
        Some((*name, String::from_utf8_lossy(&bytes).into_owned()))
    })
}

const README_NAMES: [&[u8]; 4] = [b"README", b"README.md", b"README.txt", b"readme.txt"];

/// Entries read before the length of the text is checked.
const ENTRIES_AT_ONCE: usize = 256;

/// Sends the blocks. Between blocks no thread waits.
fn follow(asked: &Asked, first: String, rest: Telling) -> Receiver<io::Result<Bytes>> {
    let (blocks, reader) = channel(1);
    let (pools, client) = (Arc::clone(&asked.shared.pools), asked.client.clone());
    tokio::spawn(async move {
        let mut told = Told { text: first, rest: Some(rest), next_page: None };
        loop {
            let Told { text, rest, .. } = told;
            if blocks.send(Ok(Bytes::from(text))).await.is_err() {
                return;
            }
            let Some(rest) = rest else { return };
            let next = pools.listings.run(&client, FOREVER, move |job| rest.next(job)).await;
            match next.unwrap_or_else(|_| Err(io::ErrorKind::ResourceBusy.into())) {
                Ok(next) => told = next,
                Err(error) => return drop(blocks.send(Err(error)).await),
            }
        }
    });
    reader
}

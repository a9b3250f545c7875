//! A directory by PROPFIND: names with sizes, times and sums, so no file needs a look.

use std::io;

use http::response;

use crate::dav::href::{Names, escaped};
use crate::dav::multistatus::{Properties, Resource};
use crate::dav::propfind::{Depth, propfind};
use crate::http_client::client::{Client, invalid};
use crate::http_client::url::Url;
use crate::web::index_page::{Entry, Index, Told, too_long, why_bad};
use crate::web::limits::MAX_PAGE_BYTES;
use crate::web::look::Looked;
use crate::web::version::Version;

/// Memory of a name beside its bytes and those of its URL.
const ENTRY_BYTES: usize = 256;

pub(crate) fn index_of(client: &Client, url: &Url) -> io::Result<Index> {
    let mut listed: Vec<(Vec<u8>, Properties)> = Vec::new();
    let (mut index, mut kept_bytes) = (Index::default(), 0);
    let (head, found) = propfind(client, url, Depth::Children, &mut |found, Resource { at, properties }| {
        let directory = Names::of_path(found.path());
        match at.beneath(&directory) {
            Some([]) => index.mtime = properties.mtime(),
            Some([name]) => {
                kept_bytes += 4 * name.len() + ENTRY_BYTES;
                if kept_bytes >= MAX_PAGE_BYTES {
                    return Err(too_long());
                }
                let is_collection = properties.is_collection.unwrap_or(at.has_slash);
                listed.push((name.clone(), Properties { is_collection: Some(is_collection), ..properties }));
            }
            // Some servers list entries of other directories.
            Some(_) | None => {}
        }
        Ok(())
    })?;
    for (name, properties) in listed {
        let entry = entry(&found, &name, properties, &head);
        index.entries.insert(name, entry);
    }
    Ok(index)
}

fn entry(directory: &Url, name: &[u8], properties: Properties, head: &response::Parts) -> Entry {
    if let Some(why) = why_bad(name) {
        return Entry::Bad(why);
    }
    let is_directory = properties.is_collection == Some(true);
    let slash = if is_directory { "/" } else { "" };
    let Some(url) = directory.child(&format!("{}{slash}", escaped(name))) else {
        return Entry::Bad("its URL is longer than 16 KiB");
    };
    match properties.size {
        _ if is_directory => Entry::Directory(url, properties.mtime()),
        Some(size) => Entry::Seen(url, Version::listed(head, size, properties.modified), properties.digests),
        None => Entry::File(url, Told::default()),
    }
}

pub(crate) fn look(client: &Client, url: &Url) -> io::Result<Looked> {
    let mut first = None;
    let (head, found) = propfind(client, url, Depth::Itself, &mut |_, resource| {
        first.get_or_insert(resource);
        Ok(())
    })?;
    let Some(Resource { at, properties }) = first else {
        return Err(invalid("the server answers, and says nothing of it".to_owned()));
    };
    if properties.is_collection.unwrap_or(at.has_slash) {
        return Ok(Looked::Directory(found.as_directory()));
    }
    match properties.size {
        Some(size) => {
            Ok(Looked::File { version: Version::listed(&head, size, properties.modified), accepts_ranges: None })
        }
        None => crate::web::look::look(client, url),
    }
}

//! Lists a directory of a bucket, or all beneath it, page by page (ListObjectsV2).

use std::io;
use std::sync::Arc;

use http::Method;

use crate::http_client::client::invalid;
use crate::http_client::url::decoded;
use crate::s3::limits::{MAX_EMPTY_PAGES, MAX_PAGE_BYTES, PAGE_KEYS};
use crate::s3::store::{Request, Store};
use crate::s3::xml;

/// An entry with its whole key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Object {
        key: Vec<u8>,
        size: u64,
    },
    /// Keys that begin with this one, up to its slash.
    Prefix(Vec<u8>),
}

impl Listed {
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Listed::Object { key, .. } | Listed::Prefix(key) => key,
        }
    }
}

#[derive(Debug)]
pub(super) struct Listing {
    store: Arc<Store>,
    prefix: Vec<u8>,
    /// The first slash behind the prefix ends a name.
    is_directory: bool,
    next: Next,
    last: Vec<u8>,
    empty: u32,
}

#[derive(Debug)]
enum Next {
    First,
    Token(String),
    Nothing,
}

#[derive(Debug, Default)]
struct Page {
    entries: Vec<Listed>,
    token: Option<String>,
    is_truncated: bool,
}

impl Listing {
    pub(super) fn of_directory(store: &Arc<Store>, prefix: Vec<u8>) -> Listing {
        let store = Arc::clone(store);
        Listing { store, prefix, is_directory: true, next: Next::First, last: Vec::new(), empty: 0 }
    }

    pub(super) fn of_all(store: &Arc<Store>, prefix: Vec<u8>) -> Listing {
        Listing { is_directory: false, ..Listing::of_directory(store, prefix) }
    }

    /// Returns the next entries by key; none at the end.
    pub(super) fn next_page(&mut self) -> io::Result<Vec<Listed>> {
        loop {
            let token = match &self.next {
                Next::Nothing => return Ok(Vec::new()),
                Next::First => None,
                Next::Token(token) => Some(token.as_str()),
            };
            let delimiter = self.is_directory.then_some("/");
            let page = ask(&self.store, &self.prefix, delimiter, token, PAGE_KEYS)?;
            self.next = match page.token.filter(|_| page.is_truncated) {
                Some(token) => Next::Token(token),
                None if page.is_truncated => return Err(invalid("the store's listing stops in its middle".to_owned())),
                None => Next::Nothing,
            };
            let mut entries = page.entries;
            entries.sort_by(|one, other| one.key().cmp(other.key()));
            for entry in &entries {
                if !entry.key().starts_with(&self.prefix) {
                    return Err(invalid("the store lists keys that were not asked for".to_owned()));
                }
                let is_again = entry.key() == &self.last[..] && matches!(entry, Listed::Prefix(_));
                if entry.key() <= &self.last[..] && !self.last.is_empty() && !is_again {
                    return Err(invalid("the store does not list its keys in their order".to_owned()));
                }
                self.last = entry.key().to_vec();
            }
            if !entries.is_empty() {
                self.empty = 0;
                return Ok(entries);
            }
            self.empty += 1;
            if self.empty > MAX_EMPTY_PAGES {
                return Err(invalid("the store's listing goes on without any key".to_owned()));
            }
        }
    }
}

pub(super) fn has_any(store: &Store, prefix: &[u8]) -> io::Result<bool> {
    // A store may promise more and give nothing.
    ask(store, prefix, None, None, 1).map(|page| !page.entries.is_empty())
}

fn ask(store: &Store, prefix: &[u8], delimiter: Option<&str>, token: Option<&str>, most: usize) -> io::Result<Page> {
    let prefix_text =
        std::str::from_utf8(prefix).map_err(|_| io::Error::new(io::ErrorKind::InvalidFilename, NO_UTF8))?;
    let most = most.to_string();
    let mut query = vec![("list-type", "2"), ("encoding-type", "url"), ("max-keys", &most), ("prefix", prefix_text)];
    query.extend(delimiter.map(|delimiter| ("delimiter", delimiter)));
    query.extend(token.map(|token| ("continuation-token", token)));
    // Signatures and logs have them in this order.
    query.sort_unstable();
    let answer = store.need(&Request { query: &query, ..Request::new(Method::GET, b"") })?;
    page(&store.body_of(answer, MAX_PAGE_BYTES)?)
}

pub(super) const NO_UTF8: &str = "its name is no UTF-8, and keys of S3 are";

fn page(body: &[u8]) -> io::Result<Page> {
    let (mut page, mut is_listing, mut is_encoded) = (Page::default(), false, false);
    let (mut key, mut size) = (None, None);
    xml::read(body, |path, text| match path {
        ["ListBucketResult"] => is_listing = true,
        ["ListBucketResult", "EncodingType"] => is_encoded = text == "url",
        ["ListBucketResult", "IsTruncated"] => page.is_truncated = text == "true",
        ["ListBucketResult", "NextContinuationToken"] => page.token = Some(text.to_owned()),
        ["ListBucketResult", "Contents", "Key"] => key = Some(text.to_owned()),
        ["ListBucketResult", "Contents", "Size"] => size = text.trim().parse().ok(),
        ["ListBucketResult", "Contents"] => {
            if let (Some(key), Some(size)) = (key.take(), size.take()) {
                page.entries.push(Listed::Object { key: key.into_bytes(), size });
            }
        }
        ["ListBucketResult", "CommonPrefixes", "Prefix"] => page.entries.push(Listed::Prefix(text.as_bytes().to_vec())),
        _ => {}
    })?;
    if !is_listing {
        return Err(invalid("what answers is no store of S3".to_owned()));
    }
    if page.entries.len() > 2 * PAGE_KEYS {
        return Err(invalid("the store lists more keys than were asked for".to_owned()));
    }
    // The element comes anywhere in the page.
    if is_encoded {
        for entry in &mut page.entries {
            let (Listed::Object { key, .. } | Listed::Prefix(key)) = entry;
            let plus = String::from_utf8_lossy(key).replace('+', " ");
            *key = decoded(&plus);
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_keys_of_any_bytes() {
        let xml = "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><EncodingType>url</EncodingType>\
                   <IsTruncated>true</IsTruncated><NextContinuationToken>t=</NextContinuationToken>\
                   <Contents><Key>a%2F%0D%01+b%2B</Key><Size>7</Size></Contents><Contents><Key>no size</Key></Contents>\
                   <CommonPrefixes><Prefix>d%2F%2F</Prefix></CommonPrefixes></ListBucketResult>";
        let Page { entries, token, is_truncated } = page(xml.as_bytes()).unwrap();
        let object = Listed::Object { key: b"a/\r\x01 b+".to_vec(), size: 7 };
        assert_eq!(entries, [object, Listed::Prefix(b"d//".to_vec())]);
        assert_eq!((token.as_deref(), is_truncated), (Some("t="), true));
        assert!(page(b"<html></html>").is_err());
    }
}

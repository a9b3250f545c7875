//! Removes many objects by few requests (DeleteObjects).

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use haul_net::base64_text;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use md5::{Digest as _, Md5};

use crate::http_client::client::invalid;
use crate::http_client::outgoing::Content;
use crate::s3::at_once::at_once;
use crate::s3::limits::{LOOKS_AT_ONCE, MAX_PAGE_BYTES, PAGE_KEYS};
use crate::s3::store::{Refusal, Request, Store};
use crate::s3::xml;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Outcomes keep the keys' order. A missing key counts as removed: stores do not tell.
pub(super) fn remove(store: &Store, keys: &[Vec<u8>]) -> Vec<io::Result<()>> {
    keys.chunks(PAGE_KEYS).flat_map(|some| remove_some(store, some)).collect()
}

fn remove_some(store: &Store, keys: &[Vec<u8>]) -> Vec<io::Result<()>> {
    let texts: Vec<Option<&str>> = keys.iter().map(|key| as_xml(key)).collect();
    let together: Vec<&str> = texts.iter().flatten().copied().collect();
    let failed = match together.len() {
        0 | 1 => None,
        _ => match remove_together(store, &together) {
            Ok(Ok(failed)) => Some(failed),
            Ok(Err(refusal)) if is_unknown(&refusal) => None,
            Ok(Err(refusal)) => return keys.iter().map(|_| Err(refusal.as_io())).collect(),
            Err(error) => {
                return keys.iter().map(|_| Err(io::Error::new(error.kind(), error.to_string()))).collect();
            }
        },
    };
    let mut items: Vec<(&Vec<u8>, Option<&str>)> = keys.iter().zip(texts).collect();
    if failed.is_some() {
        items.retain(|(_, text)| text.is_none());
    }
    let mut alone = at_once(LOOKS_AT_ONCE, &items, |(key, _)| remove_one(store, key)).into_iter();
    let Some(mut failed) = failed else { return alone.collect() };
    keys.iter()
        .map(|key| match as_xml(key) {
            None => alone.next().unwrap_or_else(|| Err(invalid("nothing is known of it".to_owned()))),
            Some(text) => failed.remove(text).map_or(Ok(()), |refusal| Err(refusal.as_io())),
        })
        .collect()
}

/// `None`: XML cannot hold the key, or changes it.
fn as_xml(key: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(key).ok()?;
    let is_changed = |character: char| character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}');
    (!text.contains(is_changed)).then_some(text)
}

/// Whether the store lacks this request.
fn is_unknown(refusal: &Refusal) -> bool {
    matches!(refusal.status, StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED)
        || matches!(refusal.code.as_str(), "NotImplemented" | "MalformedXML" | "InvalidRequest")
}

fn remove_one(store: &Store, key: &[u8]) -> io::Result<()> {
    let answer = store.need(&Request::new(Method::DELETE, key))?;
    store.client.give_back(answer.url.origin(), answer.body);
    Ok(())
}

/// Returns the keys that stay, with the reason.
fn remove_together(store: &Store, keys: &[&str]) -> io::Result<Result<HashMap<String, Refusal>, Refusal>> {
    let mut body = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>");
    for key in keys {
        body.push_str("<Object><Key>");
        body.push_str(&xml::escaped(key));
        body.push_str("</Key></Object>");
    }
    body.push_str("</Delete>");
    let sum = base64_text(&Md5::digest(body.as_bytes()));
    let fields = vec![(CONTENT_MD5, HeaderValue::from_str(&sum).expect("base64 is a value"))];
    let content = Content::Whole(Bytes::from(body));
    // A repetition changes nothing.
    let request =
        Request { query: &[("delete", "")], fields, content, repeats: true, ..Request::new(Method::POST, b"") };
    let answer = match store.ask(&request)? {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let said = store.body_of(answer, MAX_PAGE_BYTES)?;
    let (mut failed, mut is_answer) = (HashMap::new(), false);
    let (mut key, mut refusal) = (None, Refusal::default());
    xml::read(&said, |path, text| match path {
        ["DeleteResult"] => is_answer = true,
        ["DeleteResult", "Error", "Key"] => key = Some(text.to_owned()),
        ["DeleteResult", "Error", "Code"] => refusal.say_code(text),
        ["DeleteResult", "Error", "Message"] => refusal.say_message(text),
        ["DeleteResult", "Error"] => {
            let refusal = std::mem::take(&mut refusal);
            if let Some(key) = key.take().filter(|_| refusal.code != "NoSuchKey") {
                failed.insert(key, refusal);
            }
        }
        _ => {}
    })?;
    match is_answer {
        true => Ok(Ok(failed)),
        false => Err(invalid("the store does not say what it removed".to_owned())),
    }
}

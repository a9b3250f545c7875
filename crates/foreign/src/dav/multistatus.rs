//! Reads the answer to PROPFIND and PROPPATCH as it comes: resources with their properties.
//!
//! ```text
//! multistatus -> response -> href
//!                         -> propstat -> status, prop -> properties     only those with status 200 count
//! ```

use std::io::{self, BufRead};

use haul_store::{SumKind, Time};
use quick_xml::events::Event;
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;

use crate::dav::href::Names;
use crate::dav::limits::{MAX_DEPTH, MAX_DIGESTS, MAX_EVENT_BYTES, MAX_TEXT_BYTES};
use crate::digest::Digest;
use crate::digest::fields::{of_hex, of_words};
use crate::http_client::client::invalid;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) at: Names,
    pub(crate) properties: Properties,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    /// `None`: the server does not tell.
    pub(crate) is_collection: Option<bool>,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<String>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) status: Option<u16>,
    pub(crate) was_refused: bool,
}

impl Properties {
    pub(crate) fn mtime(&self) -> Option<Time> {
        let time = httpdate::parse_http_date(self.modified.as_deref()?).ok()?;
        let s = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        Some(Time { s: i64::try_from(s).ok()?, ns: 0 })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Response,
    Href,
    Propstat,
    Status,
    Length,
    Modified,
    Type,
    Collection,
    /// Words with names of sums (ownCloud, dCache).
    Sums,
    /// An Adler-32 alone (StoRM).
    Adler32,
    Other,
}

impl Element {
    fn of(namespace: &ResolveResult<'_>, name: &str) -> Element {
        let ResolveResult::Bound(Namespace(namespace)) = namespace else { return Element::Other };
        match (*namespace, name) {
            (DAV, "response") => Element::Response,
            (DAV, "href") => Element::Href,
            (DAV, "propstat") => Element::Propstat,
            (DAV, "status") => Element::Status,
            (DAV, "getcontentlength") => Element::Length,
            (DAV, "getlastmodified") => Element::Modified,
            (DAV, "resourcetype") => Element::Type,
            (DAV, "collection") => Element::Collection,
            (OWNCLOUD, "checksum") | (DCACHE, "Checksums") => Element::Sums,
            (STORM, "Checksum") => Element::Adler32,
            _ => Element::Other,
        }
    }
}

const DAV: &str = "DAV:";
const OWNCLOUD: &str = "http://owncloud.org/ns";
const DCACHE: &str = "http://www.dcache.org/2013/webdav";
const STORM: &str = "http://storm.italiangrid.org/2014/webdav";

pub(crate) fn read(body: impl BufRead, each: &mut dyn FnMut(Resource) -> io::Result<()>) -> io::Result<()> {
    let mut reader = NsReader::from_reader(body);
    let mut reading = Reading::default();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = reader.read_resolved_event_into(&mut buffer);
        let (namespace, event) = event.map_err(|error| match error {
            quick_xml::Error::Io(error) => io::Error::new(error.kind(), error.to_string()),
            error => invalid(format!("its list is no XML: {error}")),
        })?;
        match event {
            Event::Start(tag) => reading.begin(Element::of(&namespace, tag.local_name().as_ref()))?,
            Event::Empty(tag) => {
                reading.begin(Element::of(&namespace, tag.local_name().as_ref()))?;
                reading.end(each)?;
            }
            Event::End(_) => reading.end(each)?,
            Event::Text(text) => reading.text(&text)?,
            Event::CData(text) => reading.text(&text)?,
            Event::GeneralRef(entity) => {
                let character = match entity.resolve_char_ref().map_err(no_xml)? {
                    Some(character) => character.to_string(),
                    // Only a document type, which is refused, brings others.
                    None => match &*entity {
                        "amp" => "&".to_owned(),
                        "lt" => "<".to_owned(),
                        "gt" => ">".to_owned(),
                        "quot" => "\"".to_owned(),
                        "apos" => "'".to_owned(),
                        _ => return Err(invalid("its list has an entity that is not defined".to_owned())),
                    },
                };
                reading.text(&character)?;
            }
            Event::DocType(_) => return Err(invalid("its list has a document type".to_owned())),
            Event::Eof if reading.was_begun && reading.open.is_empty() => return Ok(()),
            Event::Eof => return Err(invalid("its list ends before its end".to_owned())),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn no_xml(error: impl std::fmt::Display) -> io::Error {
    invalid(format!("its list is no XML: {error}"))
}

#[derive(Default)]
struct Reading {
    open: Vec<Element>,
    text: String,
    resource: Resource,
    /// Properties of the present propstat, before its status.
    found: Properties,
    found_status: Option<u16>,
    was_begun: bool,
}

impl Reading {
    fn begin(&mut self, element: Element) -> io::Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(invalid("its list has too many elements within each other".to_owned()));
        }
        self.was_begun = true;
        self.text.clear();
        match element {
            Element::Response => self.resource = Resource::default(),
            Element::Propstat => (self.found, self.found_status) = (Properties::default(), None),
            // An empty type means no collection.
            Element::Type => self.found.is_collection = Some(false),
            Element::Collection if self.open.last() == Some(&Element::Type) => self.found.is_collection = Some(true),
            _ => {}
        }
        self.open.push(element);
        Ok(())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        match self.open.last() {
            None | Some(Element::Other) => Ok(()),
            Some(_) if self.text.len() + text.len() > MAX_TEXT_BYTES => {
                Err(invalid("its list has a text of more than 16 KiB".to_owned()))
            }
            Some(_) => {
                self.text.push_str(text);
                Ok(())
            }
        }
    }

    fn end(&mut self, each: &mut dyn FnMut(Resource) -> io::Result<()>) -> io::Result<()> {
        let Some(element) = self.open.pop() else { return Err(invalid("its list is no XML".to_owned())) };
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match element {
            Element::Href if self.open.last() == Some(&Element::Response) => self.resource.at = Names::of_href(text),
            Element::Status => match self.open.last() {
                Some(Element::Propstat) => self.found_status = status(text),
                Some(Element::Response) => self.resource.properties.status = status(text),
                _ => {}
            },
            Element::Length => self.found.size = text.parse().ok(),
            // Other text would only take memory.
            Element::Modified => {
                self.found.modified = httpdate::parse_http_date(text).is_ok().then(|| text.to_owned());
            }
            Element::Sums => self.add_digests(of_words(text)),
            Element::Adler32 => self.add_digests(of_hex(SumKind::Adler32, text).into_iter()),
            Element::Propstat => self.take_found(),
            Element::Response => return each(std::mem::take(&mut self.resource)),
            Element::Href | Element::Type | Element::Collection | Element::Other => {}
        }
        Ok(())
    }

    fn add_digests(&mut self, digests: impl Iterator<Item = Digest>) {
        let room = MAX_DIGESTS.saturating_sub(self.found.digests.len());
        self.found.digests.extend(digests.take(room));
    }

    fn take_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        let known = &mut self.resource.properties;
        if !self.found_status.is_none_or(|status| (200..300).contains(&status)) {
            known.was_refused = true;
            return;
        }
        known.is_collection = found.is_collection.or(known.is_collection);
        known.size = found.size.or(known.size);
        known.modified = found.modified.or(known.modified.take());
        known.digests.extend(found.digests);
        known.digests.truncate(MAX_DIGESTS);
    }
}

fn status(text: &str) -> Option<u16> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Bounds each event, which quick-xml keeps in memory, and the answer.
pub(crate) struct Bounded<R> {
    pub(crate) body: R,
    pub(crate) left: u64,
    /// Bytes since the last mark (`<` or `>`).
    run: usize,
}

impl<R: BufRead> Bounded<R> {
    pub(crate) fn new(body: R, most: u64) -> Bounded<R> {
        Bounded { body, left: most, run: 0 }
    }
}

impl<R: BufRead> io::Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.run > MAX_EVENT_BYTES {
            return Err(invalid("its list has an element or a text of more than 64 KiB".to_owned()));
        }
        let block = self.body.fill_buf()?;
        if block.len() as u64 > self.left {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the list of its names is longer than 4 GiB"));
        }
        Ok(block)
    }

    fn consume(&mut self, count: usize) {
        if let Ok(block) = self.body.fill_buf() {
            let taken = &block[..count.min(block.len())];
            self.run = match taken.iter().rposition(|byte| matches!(byte, b'<' | b'>')) {
                Some(at) => taken.len() - at,
                None => self.run + taken.len(),
            };
        }
        self.left = self.left.saturating_sub(count as u64);
        self.body.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(xml: &str) -> io::Result<Vec<Resource>> {
        let mut resources = Vec::new();
        read(Bounded::new(xml.as_bytes(), 1 << 20), &mut |resource| {
            resources.push(resource);
            Ok(())
        })?;
        Ok(resources)
    }

    #[test]
    fn resources_are_read_whatever_prefixes_a_server_uses() {
        let xml = r#"<?xml version="1.0"?>
            <D:multistatus xmlns:D="DAV:" xmlns:oc="http://owncloud.org/ns" xmlns:other="urn:x">
            <D:response><D:href>/d/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>
              <D:status>HTTP/1.1 200 OK</D:status></D:propstat>
              <D:propstat><D:prop><D:getcontentlength>5</D:getcontentlength></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>
            <response xmlns="DAV:"><href>/d/a&amp;b%20&#x63;</href><propstat><prop><resourcetype/><getcontentlength> 10 </getcontentlength>
              <getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</getlastmodified><other:collection/>
              <oc:checksums><oc:checksum>SHA3:00 ADLER32:0aff020e</oc:checksum></oc:checksums></prop></propstat></response>
            </D:multistatus>"#;
        let found = all(xml).unwrap();
        assert_eq!(
            found[0].properties,
            Properties { is_collection: Some(true), was_refused: true, ..Default::default() }
        );
        assert_eq!(found[1].at.names, [b"d".to_vec(), b"a&b c".to_vec()]);
        let properties = &found[1].properties;
        assert_eq!((properties.is_collection, properties.size), (Some(false), Some(10)));
        assert_eq!(properties.mtime(), Some(Time { s: 784_111_777, ns: 0 }));
        assert_eq!(properties.digests, [of_hex(SumKind::Adler32, "aff020e").unwrap()]);
    }

    #[test]
    fn what_would_take_all_memory_or_is_no_list_is_refused() {
        let deep = format!("<a>{}", "<b>".repeat(100));
        let long = format!("<D:multistatus xmlns:D='DAV:'><D:response><D:href>{}", "x".repeat(200_000));
        let entity = "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>";
        let wide = format!("<a {}", "b".repeat(200_000));
        for (xml, why) in [
            (&*deep, "within each other"),
            (&long, "64 KiB"),
            (&wide, "64 KiB"),
            (entity, "document type"),
            ("<a>&b;</a>", "not defined"),
            ("<a>", "ends before"),
            ("", "ends before"),
            ("plain text", "ends before"),
            ("<a></b>", "no XML"),
        ] {
            let error = all(xml).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}

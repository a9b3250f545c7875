//! Asks a server for properties of a resource or a directory with its entries, never a whole tree.

use std::io::{self, BufReader, ErrorKind, Read};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, StatusCode, response};

use crate::dav::limits::MAX_ANSWER_BYTES;
use crate::dav::multistatus::{self, Bounded, Resource};
use crate::http_client::client::{Answer, Ask, Client, refusal};
use crate::http_client::connection::Body;
use crate::http_client::outgoing::Content;
use crate::http_client::url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Itself,
    Children,
}

/// The wanted properties; those of sums are of ownCloud, dCache and StoRM.
const WANTED: &str = concat!(
    r#"<?xml version="1.0" encoding="utf-8"?>"#,
    r#"<D:propfind xmlns:D="DAV:" xmlns:o="http://owncloud.org/ns" "#,
    r#"xmlns:c="http://www.dcache.org/2013/webdav" xmlns:s="http://storm.italiangrid.org/2014/webdav"><D:prop>"#,
    "<D:resourcetype/><D:getcontentlength/><D:getlastmodified/><o:checksums/><c:Checksums/><s:Checksum/>",
    "</D:prop></D:propfind>"
);

pub(crate) fn method(name: &str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a name of visible letters")
}

pub(crate) fn xml_type() -> (HeaderName, HeaderValue) {
    (CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"))
}

/// Returns the answer's head, and the URL after redirects.
pub(crate) fn propfind(
    client: &Client,
    url: &Url,
    depth: Depth,
    each: &mut dyn FnMut(&Url, Resource) -> io::Result<()>,
) -> io::Result<(response::Parts, Url)> {
    let depth = HeaderValue::from_static(if depth == Depth::Itself { "0" } else { "1" });
    let fields = vec![(HeaderName::from_static("depth"), depth), xml_type()];
    let content = Content::Whole(Bytes::from_static(WANTED.as_bytes()));
    let ask = Ask { fields, content, repeats: true, ..Ask::new(method("PROPFIND"), url) };
    let Answer { head, body, url: found } = client.ask(&ask)?;
    match head.status {
        StatusCode::MULTI_STATUS => {}
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::OK => {
            let why = format!("the server speaks no WebDAV there ({}): is it https://?", head.status);
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        _ => return Err(refusal(&head)),
    }
    let mut body = Bounded::new(BufReader::with_capacity(BLOCK_BYTES, Blocks(body)), MAX_ANSWER_BYTES);
    multistatus::read(&mut body, &mut |resource| each(&found, resource))?;
    let Blocks(body) = body.body.into_inner();
    client.give_back(found.origin(), body);
    Ok((head, found))
}

const BLOCK_BYTES: usize = 64 << 10;

/// Returns one resource with its URL after redirects; `None` if missing.
pub(crate) fn resource(client: &Client, url: &Url) -> io::Result<Option<(Resource, Url)>> {
    let mut first = None;
    let asked = propfind(client, url, Depth::Itself, &mut |_, resource| {
        first.get_or_insert(resource);
        Ok(())
    });
    match asked {
        Ok((_, found)) => Ok(first.map(|first| (first, found))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Blocks(Body);

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

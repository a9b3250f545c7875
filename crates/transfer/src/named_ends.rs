//! Errors name ends of other people's servers as the user typed them.

use std::sync::Arc;

use haul_copy::receiver::{OpenTarget, OpenedTarget, Target};
use haul_job::{Endpoint, Selection};
use haul_net::Outbound;
use haul_store::{SourceTree, StoreError};

/// The same error, with the typed name of the end that it is about. Below an end, names stay.
pub(crate) fn named(error: StoreError, ends: &[Endpoint]) -> StoreError {
    let is_of = |end: &&Endpoint| {
        error.path == end.path || address(&error.path).is_some_and(|at| Some(at) == address(&end.written()))
    };
    match ends.iter().find(is_of).map(Endpoint::written) {
        Some(path) => StoreError { path, ..error },
        None => error,
    }
}

/// What follows the scheme of a URL: WebDAV goes by http, too.
fn address(name: &[u8]) -> Option<Vec<u8>> {
    let at = name.windows(3).position(|three| three == b"://")?;
    Some(name[at + 3..].to_vec())
}

/// A target that errors name as it was typed.
pub(crate) fn named_target(end: &Endpoint, target: Target) -> Target {
    match target {
        Target::Other(inner) => {
            Target::Other(Box::new(NamedTarget { end: end.clone(), written: end.written(), inner }))
        }
        other => other,
    }
}

struct NamedTarget {
    end: Endpoint,
    written: Vec<u8>,
    inner: Box<dyn OpenTarget>,
}

impl OpenTarget for NamedTarget {
    fn open(&self, selection: &Selection, single_file: bool) -> Result<OpenedTarget, StoreError> {
        self.inner.open(selection, single_file).map_err(|error| named(error, std::slice::from_ref(&self.end)))
    }

    fn typed(&self) -> &[u8] {
        &self.written
    }

    fn outbound(&self) -> Option<Arc<Outbound>> {
        self.inner.outbound()
    }

    fn meets(&self, source: &Arc<dyn SourceTree>) {
        self.inner.meets(source);
    }

    fn lanes(&self) -> Option<u16> {
        self.inner.lanes()
    }
}

#[cfg(test)]
mod tests {
    use haul_job::{FtpServer, Here, WebServer};

    use super::*;

    fn shown(end: Endpoint, path: &str) -> String {
        let error = StoreError::new("open", path.as_bytes(), std::io::Error::other("why"));
        named(error, &[end]).to_string()
    }

    #[test]
    fn an_error_names_an_end_as_it_was_typed() {
        let host = "host".to_owned();
        let ftp = FtpServer { is_tls: false, is_grid: false, host: host.clone(), port: 2121, login: None };
        let dav = WebServer { is_tls: true, is_dav: true, host: host.clone(), port: 443, login: None };
        let end = |place: Here, path: &str| Endpoint { place: place.into(), path: path.into() };
        let cases = [
            (end(Here::Ftp(ftp.clone()), ""), "", "ftp://host:2121/"),
            (end(Here::Ftp(ftp.clone()), "a/b"), "a/b", "ftp://host:2121/a/b"),
            (end(Here::Ftp(ftp), "a"), "a/within", "a/within"),
            (end(Here::Web(dav), "/d/"), "https://host/d/", "davs://host/d/"),
            (end(Here::Sftp { user: None, host, port: None }, ""), "", "sftp://host/"),
            (end(Here::S3 { bucket: "b".to_owned() }, ""), "s3://b/", "s3://b/"),
        ];
        for (end, path, expected) in cases {
            assert_eq!(shown(end, path), format!("cannot open {expected}: why"));
        }
    }
}

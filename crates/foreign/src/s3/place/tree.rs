//! The bucket as a tree: what stands under a path.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haul_store::place::{EntryFacts, Lacks, NodeKind};
use haul_store::{SourceFile, StoreError, Time};

use crate::http_client::client::Settings;
use crate::s3::environment::Environment;
use crate::s3::limits::MAX_KEY_BYTES;
use crate::s3::listing::{NO_UTF8, has_any};
use crate::s3::source::file::SummedFile;
use crate::s3::source::now;
use crate::s3::source::opened::{Bucket, Object};
use crate::s3::source::walk::LINK_ENDING;
use crate::s3::store::Store;
use crate::web::file::RemoteFile;
use crate::web::place::Reachable;

/// How a bucket is looked at.
#[derive(Clone, Debug, Default)]
pub struct PlaceSettings {
    /// The directory of this host with the journals of uploads.
    pub journals: Option<PathBuf>,
    /// Age at which others' uploads count as abandoned. `None`: only this user's from here.
    pub others_after: Option<Duration>,
}

/// A bucket of a store. A path is a key.
#[derive(Debug)]
pub struct S3Place {
    pub(super) bucket: Bucket,
    pub(super) settings: PlaceSettings,
}

pub(super) enum Looked {
    File(Box<Object>),
    Link { key: Vec<u8>, object: Box<Object>, target: Vec<u8> },
    Directory,
}

impl S3Place {
    /// Reaches a bucket.
    ///
    /// # Errors
    /// The store cannot be reached, or has no such bucket.
    pub fn open(
        bucket: &str,
        place: PlaceSettings,
        environment: &Environment,
        settings: impl Fn() -> Settings,
    ) -> Result<S3Place, StoreError> {
        let store = Store::open(bucket, environment, settings)
            .map_err(|error| StoreError::new("open", format!("s3://{bucket}").as_bytes(), error))?;
        let connections = store.client.settings.connections;
        store.client.pool.spread_over(u16::try_from(connections).unwrap_or(u16::MAX));
        Ok(S3Place { bucket: Bucket::new(Arc::new(store), now(), true), settings: place })
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.bucket.store
    }

    /// `None`: nothing is there.
    pub(super) fn look(&self, path: &[u8]) -> io::Result<Option<Looked>> {
        if path.is_empty() {
            // The question shows whether the bucket exists.
            return has_any(self.store(), b"").map(|_| Some(Looked::Directory));
        }
        if !path.ends_with(b"/") {
            if let Some(object) = self.bucket.look(path)? {
                return self.of_object(path, object).map(Some);
            }
            let key = [path, LINK_ENDING].concat();
            if key.len() <= MAX_KEY_BYTES
                && let Some(object) = self.bucket.look(&key)?
            {
                let target = self.bucket.link(&object)?;
                return Ok(Some(Looked::Link { key, object: Box::new(object), target }));
            }
        }
        Ok(has_any(self.store(), &directory_key(path))?.then_some(Looked::Directory))
    }

    /// s3fs keeps a link as an object with a mode of its own.
    pub(super) fn of_object(&self, key: &[u8], object: Object) -> io::Result<Looked> {
        match object.kept.is_link() {
            false => Ok(Looked::File(Box::new(object))),
            true => {
                let target = self.bucket.link(&object)?;
                Ok(Looked::Link { key: key.to_vec(), object: Box::new(object), target })
            }
        }
    }

    pub(super) fn found(&self, path: &[u8]) -> io::Result<Looked> {
        let why = "the bucket has no such object, and no key begins so";
        self.look(path)?.ok_or_else(|| io::Error::new(ErrorKind::NotFound, why))
    }

    pub(super) fn file(&self, path: &[u8]) -> io::Result<SourceFile> {
        let object = match self.found(path)? {
            Looked::File(object) => object,
            Looked::Link { .. } => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is a symbolic link, and a store follows none"));
            }
            Looked::Directory => return Err(ErrorKind::IsADirectory.into()),
        };
        let (client, url) = (Arc::clone(&self.store().client), self.store().url(&object.key, &[])?);
        let file = RemoteFile::new(client, Arc::clone(&self.bucket.bodies), url, self.bucket.begun);
        // The count of uncompared files is not wanted here.
        let summed = SummedFile::new(file.of_version(object.version.clone()), *object, Arc::default());
        Ok(SourceFile::Other(Arc::new(Reachable(summed))))
    }
}

/// The key in front of a directory's content.
pub(super) fn directory_key(path: &[u8]) -> Vec<u8> {
    if path.is_empty() || path.ends_with(b"/") { path.to_vec() } else { [path, b"/"].concat() }
}

/// Shows a key as a path, without a mark's slash; impossible names of files are rewritten.
pub(super) fn shown_beneath(beneath: &[u8]) -> Vec<u8> {
    let path = beneath.strip_suffix(b"/").unwrap_or(beneath);
    let names = path.split(|byte| *byte == b'/').map(|name| match name {
        b"" => b"\\x2f".to_vec(),
        b"." => b"\\x2e".to_vec(),
        b".." => b"\\x2e\\x2e".to_vec(),
        name => name.split(|byte| *byte == 0).collect::<Vec<_>>().join(&b"\\x00"[..]),
    });
    names.collect::<Vec<_>>().join(&b'/')
}

pub(super) fn check_key(key: &[u8]) -> io::Result<()> {
    match (key.len() <= MAX_KEY_BYTES, std::str::from_utf8(key)) {
        (true, Ok(_)) => Ok(()),
        (false, _) => {
            let why = "its key is longer than the 1024 bytes that a store takes";
            Err(io::Error::new(ErrorKind::InvalidFilename, why))
        }
        (true, Err(_)) => Err(io::Error::new(ErrorKind::InvalidFilename, NO_UTF8)),
    }
}

pub(super) fn facts_of(looked: Looked) -> EntryFacts {
    let (kind, object, target) = match looked {
        Looked::File(object) => (NodeKind::File, object, Vec::new()),
        Looked::Link { object, target, .. } => (NodeKind::Symlink, object, target),
        Looked::Directory => return EntryFacts::of_kind(NodeKind::Directory),
    };
    let (kept, modified) = (object.kept, object.version.modified());
    let nothing = EntryFacts::of_kind(kind);
    EntryFacts {
        mode: (kept.permissions().unwrap_or(0) & 0o7777) as u16,
        uid: kept.uid.unwrap_or(0),
        gid: kept.gid.unwrap_or(0),
        size: if kind == NodeKind::Symlink { target.len() as u64 } else { object.version.size },
        modified: modified.unwrap_or(Time { s: 0, ns: 0 }),
        target,
        lacks: Lacks {
            mode: kept.permissions().is_none(),
            owner: kept.uid.is_none() || kept.gid.is_none(),
            size: false,
            modified: modified.is_none(),
            accessed: true,
            inode: true,
        },
        ..nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_no_path_is_told_as_one() {
        let shown = |key: &str| String::from_utf8(shown_beneath(key.as_bytes())).unwrap();
        for (key, expected) in [
            ("a/b", "a/b"),
            ("mark/", "mark"),
            ("a//b", "a/\\x2f/b"),
            ("../up", "\\x2e\\x2e/up"),
            ("/", "\\x2f"),
            ("nul\0/x", "nul\\x00/x"),
        ] {
            assert_eq!(shown(key), expected, "{key:?}");
        }
    }
}

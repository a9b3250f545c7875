//! Objects of a bucket as a source.

pub(super) mod content;
pub(super) mod file;
pub(super) mod names;
pub(super) mod opened;
pub(super) mod walk;

pub(super) use opened::link_text;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_store::{Access, Connections, ItemSource, SourceFile, SourceTree, StoreError, Time, WalkOptions};

use crate::http_client::client::Settings;
use crate::s3::environment::Environment;
use crate::s3::limits::MAX_KEY_BYTES;
use crate::s3::listing::has_any;
use crate::s3::source::file::SummedFile;
use crate::s3::source::opened::{Bucket, Object, Top};
use crate::s3::source::walk::Walk;
use crate::s3::store::Store;
use crate::web::connections::ServerConnections;
use crate::web::file::RemoteFile;
use crate::web::served::JUMP_BYTES_PER_US;

/// Objects opened as a source.
pub struct OpenedObjects {
    /// The tree.
    pub tree: Arc<dyn SourceTree>,
    /// The BLAKE3 that an earlier copy kept beside the only object.
    pub recorded: Option<[u8; 32]>,
    /// Counts objects read without a sum to compare.
    pub uncompared: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Objects {
    bucket: Arc<Bucket>,
    uncompared: Arc<AtomicU64>,
}

/// Finds what these keys lead to. A key that ends in a slash means the contents of a directory, as with paths; an empty key means
/// those of the bucket.
///
/// # Errors
/// The store cannot be reached, or has no such object; two keys have the same name; the contents of a directory were named beside
/// another source.
pub fn open_objects(
    bucket: &str,
    keys: &[Vec<u8>],
    links: bool,
    environment: &Environment,
    settings: impl Fn() -> Settings,
) -> Result<OpenedObjects, StoreError> {
    let shown = |key: &[u8]| [b"s3://", bucket.as_bytes(), b"/", key].concat();
    let fail = |key: &[u8], error: io::Error| StoreError::new("open", &shown(key), error);
    let first = keys.first().map_or(&b""[..], Vec::as_slice);
    let store = Store::open(bucket, environment, settings).map_err(|error| fail(first, error))?;
    if let [key] = keys
        && !key.is_empty()
        && !key.ends_with(b"/")
    {
        // Handshakes run while the store describes the object.
        store.client.pool.foresees(u64::MAX);
    }
    let mut bucket = Bucket::new(Arc::new(store), now(), links);
    for key in keys {
        let top = find(&bucket, key, keys.len() > 1).map_err(|error| fail(key, error))?;
        bucket.tops.push(top);
    }
    dial_for(&bucket);
    let recorded = match &bucket.tops[..] {
        [Top::File { object, .. }] => object.kept.blake3,
        _ => None,
    };
    let uncompared = Arc::new(AtomicU64::new(0));
    let tree = Arc::new(Objects { bucket: Arc::new(bucket), uncompared: Arc::clone(&uncompared) });
    Ok(OpenedObjects { tree, recorded, uncompared })
}

/// Dials what the objects are worth, if the first request did not: Amazon was asked for the bucket.
fn dial_for(bucket: &Bucket) {
    let sizes = bucket.tops.iter().map(|top| match top {
        Top::File { object, .. } => object.version.size,
        Top::Directory { .. } | Top::Contents(_) => 0,
    });
    bucket.store.client.dial_ahead(sizes.sum());
}

pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), ns: since.subsec_nanos() }
}

fn find(bucket: &Bucket, key: &[u8], is_one_of_several: bool) -> io::Result<Top> {
    let usage = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
    if key.len() > MAX_KEY_BYTES {
        return usage("a key has at most 1024 bytes");
    }
    if key.is_empty() || key.ends_with(b"/") {
        if is_one_of_several {
            return usage(
                "the contents of a directory are the only source: leave out the slash at its end, or copy it alone",
            );
        }
        // A bucket may be empty; a directory without a key is mistyped.
        return match has_any(&bucket.store, key)? || key.is_empty() {
            true => Ok(Top::Contents(key.to_vec())),
            false => Err(io::Error::new(ErrorKind::NotFound, "no key begins so")),
        };
    }
    let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    if name == b"." || name == b".." {
        return usage("no file can have its name");
    }
    if bucket.tops.iter().any(|top| top.name() == name) {
        return usage("another source has the same name: copy them one after the other");
    }
    if let Some(object) = bucket.look(key)? {
        return Ok(Top::File { name, object: Box::new(object) });
    }
    let prefix = [key, b"/"].concat();
    match has_any(&bucket.store, &prefix)? {
        true => Ok(Top::Directory { name, prefix }),
        false => Err(io::Error::new(ErrorKind::NotFound, "the bucket has no such object, and no key begins so")),
    }
}

impl Objects {
    fn object(&self, source: u32, key: &[u8]) -> Option<io::Result<Option<Object>>> {
        match self.bucket.tops.get(usize::try_from(source).ok()?)? {
            Top::File { object, .. } => (object.key == key).then(|| Ok(Some((**object).clone()))),
            Top::Directory { prefix, .. } | Top::Contents(prefix) => {
                let looked = || match self.bucket.walked(key) {
                    Some(object) => Ok(Some(object)),
                    None => self.bucket.look(key),
                };
                key.starts_with(prefix).then(looked)
            }
        }
    }
}

impl SourceTree for Objects {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(Walk::new(Arc::clone(&self.bucket), options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> haul_store::Result<SourceFile> {
        let fail = |error: io::Error| StoreError::new("open", source_path, error);
        let missing = || io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
        let object = self.object(source, source_path).ok_or_else(|| fail(missing()))?;
        let object = object.map_err(fail)?.ok_or_else(|| fail(missing()))?;
        let url = self.bucket.store.url(source_path, &[]).map_err(fail)?;
        let client = Arc::clone(&self.bucket.store.client);
        let file = RemoteFile::new(client, Arc::clone(&self.bucket.bodies), url, self.bucket.begun);
        let file = file.of_version(object.version.clone());
        let uncompared = Arc::clone(&self.uncompared);
        let summed = SummedFile::new(file, object, uncompared);
        Ok(SourceFile::Other(Arc::new(summed)))
    }

    fn is_single_file(&self) -> bool {
        matches!(&self.bucket.tops[..], [Top::File { .. }])
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.bucket.tops.first().map_or(b"", Top::name)
    }

    fn access(&self) -> Access {
        Access::Runs { jump_bytes: u64::from(self.bucket.store.client.pool.rtt_us()) * JUMP_BYTES_PER_US }
    }

    fn connections(&self) -> Option<Arc<dyn Connections>> {
        let sizes = self.bucket.tops.iter().map(|top| match top {
            Top::File { object, .. } => Some(object.version.size),
            _ => None,
        });
        let (client, bodies) = (Arc::clone(&self.bucket.store.client), Arc::clone(&self.bucket.bodies));
        Some(Arc::new(ServerConnections { client, bodies, foreseen_bytes: sizes.sum() }))
    }
}

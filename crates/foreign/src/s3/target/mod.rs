//! A bucket as a target.

mod connections;
mod deletion;
mod held;
pub(in crate::s3) mod journal;
mod multipart;
mod sent_part;
mod small;
mod standing;
mod tree;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use haul_store::{
    Abilities, Applied, Connections, Draft, DraftPlan, Kind, Metadata, Result, SourceFile, SourceNames, Stat,
    StoreError, TargetTree, Time, check_path,
};
use http::{HeaderName, HeaderValue, Method};

use crate::http_client::client::{Settings, invalid};
use crate::http_client::fields::content_length;
use crate::http_client::outgoing::Content;
use crate::s3::copying::{Original, copied};
use crate::s3::environment::Environment;
use crate::s3::kept::{self, BLAKE3, Kept};
use crate::s3::limits::{LEAST_PART_BYTES, MAX_COPIED_BYTES};
use crate::s3::listing::has_any;
use crate::s3::source::link_text;
use crate::s3::source::walk::{LINK_ENDING, directory_stat};
use crate::s3::store::{Refusal, Request, Store};
use crate::s3::target::connections::UploadConnections;
use crate::s3::target::deletion::Deletion;
use crate::s3::target::multipart::MultipartDraft;
use crate::s3::target::small::SmallDraft;
use crate::s3::target::standing::Seen;
pub use crate::s3::target::tree::{TargetSettings, Told};
use crate::s3::target::tree::{Tree, changed_meanwhile};
use crate::web::bodies::Bodies;
use crate::web::file::RemoteFile;
use crate::web::version::Version;

#[derive(Debug)]
struct S3Target {
    tree: Arc<Tree>,
    bodies: Arc<Bodies>,
    /// Whether the root had keys when it was opened, if that was asked.
    root_has_keys: Option<bool>,
    has_looked: AtomicBool,
    /// The new name of the single file, beneath which no key lay.
    name: Option<Vec<u8>>,
}

/// A tree, and the new name of the single file in it.
pub type OpenedBucket = (Arc<dyn TargetTree>, Option<Vec<u8>>);

/// A bucket whose store was reached.
#[derive(Debug)]
pub struct Bucket {
    store: Arc<Store>,
    rtt_us: u32,
    /// The user's environment lets sums be sent.
    sums: bool,
}

impl Bucket {
    /// Connects to the store.
    ///
    /// # Errors
    /// The store cannot be reached, or has no such bucket.
    pub fn reach(bucket: &str, environment: &Environment, settings: impl Fn() -> Settings) -> io::Result<Bucket> {
        let store = Store::open(bucket, environment, settings)?;
        let rtt_us = store.client.meet()?;
        let sums = environment.get("AWS_REQUEST_CHECKSUM_CALCULATION") != Some("when_required");
        Ok(Bucket { store: Arc::new(store), rtt_us, sums })
    }

    /// The round trip of the handshake.
    pub fn rtt_us(&self) -> u32 {
        self.rtt_us
    }

    /// Opens the target by cp's rule: a key is a directory if it ends in a slash, has keys beneath it, or gets more than one file.
    /// Else it is the new name of the single file: it is returned, and its beginning is the tree.
    ///
    /// # Errors
    /// The store has no such bucket, or does not let us look into it.
    pub fn open(self, key: &[u8], target: TargetSettings, told: Box<dyn Told>) -> Result<OpenedBucket> {
        let shown = [b"s3://", self.store.access.bucket.as_bytes(), b"/", key].concat();
        self.open_tree(key, target, told).map_err(|error| StoreError::new("use as target", &shown, error))
    }

    fn open_tree(self, key: &[u8], target: TargetSettings, told: Box<dyn Told>) -> io::Result<OpenedBucket> {
        let Bucket { store, sums, .. } = self;
        let target = TargetSettings { sums: target.sums && sums, ..target };
        let beneath = if key.is_empty() || key.ends_with(b"/") { key.to_vec() } else { [key, b"/"].concat() };
        // This also shows whether the bucket exists and may be read.
        let has_keys = has_any(&store, &beneath)?;
        let (prefix, name) = match beneath == key || has_keys || !target.single_file {
            true => (beneath, None),
            false => {
                let at = key.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                (key[..at].to_vec(), Some(key[at..].to_vec()))
            }
        };
        let bodies = Bodies::new(store.client.settings.connections);
        let tree = Tree::new(store, prefix, target, told);
        if !has_keys && name.is_none() {
            tree.enter_fresh(b"");
        }
        if let Some(name) = &name {
            tree.new_key(name)?;
        }
        let root_has_keys = name.is_none().then_some(has_keys);
        Ok((
            Arc::new(S3Target { tree, bodies, root_has_keys, has_looked: AtomicBool::new(false), name: name.clone() }),
            name,
        ))
    }
}

fn context<T>(op: &'static str, path: &[u8], act: impl FnOnce() -> io::Result<T>) -> Result<T> {
    act().map_err(|error| StoreError::new(op, path, error))
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error())
}

impl S3Target {
    fn link_key(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        check_path(path)?;
        self.tree.key(&[path, LINK_ENDING].concat())
    }

    /// Leaves out fields that the store does not know.
    fn put(&self, key: &[u8], data: &[u8], seen: &Seen, fields: Vec<(HeaderName, HeaderValue)>) -> io::Result<()> {
        let condition = seen.condition().filter(|_| self.tree.conditions());
        for condition in [condition.clone(), None] {
            let is_conditional = condition.is_some();
            let fields = fields.iter().cloned().chain(condition).collect();
            match self.put_as(key, data, fields)? {
                Ok(()) => return Ok(()),
                Err(refusal) if is_conditional && refusal.is_of_unknown_field() => self.tree.without_conditions(),
                Err(refusal) if is_conditional && refusal.is_of_condition() => return Err(changed_meanwhile()),
                Err(refusal) => return Err(refusal.as_io()),
            }
        }
        Ok(())
    }

    fn put_as(
        &self,
        key: &[u8],
        data: &[u8],
        mut fields: Vec<(HeaderName, HeaderValue)>,
    ) -> io::Result<std::result::Result<(), Refusal>> {
        let hash = blake3::hash(data).to_hex();
        fields.push((BLAKE3, HeaderValue::from_str(&hash).expect("hex is a value")));
        let content = Content::Whole(Bytes::copy_from_slice(data));
        let answer = match self.tree.store.ask(&Request { fields, content, ..Request::new(Method::PUT, key) })? {
            Ok(answer) => answer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.tree.store.client.give_back(answer.url.origin(), answer.body);
        Ok(Ok(()))
    }

    fn remove(&self, key: &[u8]) -> io::Result<()> {
        let answer = self.tree.store.need(&Request::new(Method::DELETE, key))?;
        self.tree.store.client.give_back(answer.url.origin(), answer.body);
        Ok(())
    }

    fn look(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        check_path(path)?;
        if path.is_empty() {
            return Ok(Some(directory_stat(Time::default())));
        }
        let key = self.tree.key(path)?;
        // The only file of a copy into a place without keys. What somebody else puts there meanwhile fails the condition of the write.
        let is_only = self.tree.settings.single_file && self.tree.conditions() && self.root_has_keys == Some(false);
        if is_only && !self.has_looked.swap(true, Ordering::Relaxed) {
            self.tree.standing.enter(path, Seen::Nothing);
            return Ok(None);
        }
        let found = self.tree.store.head(&key)?;
        self.tree.standing.enter(path, Seen::of(found.as_ref())?);
        if let Some(head) = found {
            let size = content_length(&head).ok_or_else(|| invalid("the store tells no length".to_owned()))?;
            let (mut stat, kept) = (Version::of(&head, size).stat(Time::default()), Kept::of(&head.headers));
            stat.mode = kept.permissions().unwrap_or(stat.mode);
            (stat.uid, stat.gid) = (kept.uid.unwrap_or(stat.uid), kept.gid.unwrap_or(stat.gid));
            return Ok(Some(stat));
        }
        if let Some(head) = self.tree.store.head(&self.link_key(path)?)? {
            self.tree.enter_link(path);
            let mut stat = Version::of(&head, 0).stat(Time::default());
            stat.kind = Kind::Symlink { target: link_text(&self.tree.store, &self.link_key(path)?, &head)? };
            return Ok(Some(stat));
        }
        let is_directory = self.name.as_deref() != Some(path) && has_any(&self.tree.store, &[&key[..], b"/"].concat())?;
        Ok(is_directory.then(|| directory_stat(Time::default())))
    }

    /// Rewrites an object's metadata by a copy onto itself.
    fn set(&self, path: &[u8], meta: &Metadata) -> io::Result<Applied> {
        let key = self.tree.key(path)?;
        let Some(head) = self.tree.store.head(&key)? else {
            return match self.look(path)?.is_some_and(|stat| stat.kind == Kind::Directory) {
                true => Ok(Applied::default()),
                false => Err(missing()),
            };
        };
        let size = content_length(&head).unwrap_or(u64::MAX);
        let (version, kept) = (Version::of(&head, size), Kept::of(&head.headers));
        let stat = version.stat(Time::default());
        let mtime = meta.mtime.unwrap_or(stat.mtime);
        let mode = meta.mode.filter(|_| self.tree.settings.modes).or(kept.permissions());
        let owner = |wanted: Option<u32>, is: Option<u32>| wanted.filter(|_| self.tree.settings.owners).or(is);
        let owners = [owner(meta.owner, kept.uid), owner(meta.group, kept.gid)];
        if mtime == stat.mtime && mode == kept.permissions() && owners == [kept.uid, kept.gid] {
            return Ok(Applied::default());
        }
        if size > MAX_COPIED_BYTES {
            self.tree.warn("metadata of objects of more than 5 GB stay as they are".to_owned());
            return Ok(Applied::default());
        }
        let mut fields = kept::fields(Some(mtime), mode, owners);
        if let Some(hash) = head.headers.get(BLAKE3) {
            fields.push((BLAKE3, hash.clone()));
        }
        if let Some(kind) = head.headers.get(http::header::CONTENT_TYPE) {
            fields.push((http::header::CONTENT_TYPE, kind.clone()));
        }
        fields.extend(Original { key: &key, head: &head }.fields(&self.tree.store)?);
        fields.push((HeaderName::from_static("x-amz-metadata-directive"), HeaderValue::from_static("REPLACE")));
        let request = Request { fields, ..Request::new(Method::PUT, &key) };
        copied(&self.tree.store, &request, "CopyObjectResult")?.map_err(|refusal| refusal.as_io())?;
        Ok(Applied { changed: true, ..Applied::default() })
    }

    fn deletion<'a>(
        &'a self,
        spare: &'a dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    ) -> Deletion<'a> {
        Deletion { tree: &self.tree, spare, dry_run, deleted, errors: Vec::new() }
    }
}

impl TargetTree for S3Target {
    fn abilities(&self) -> Abilities {
        Abilities {
            least_part_bytes: LEAST_PART_BYTES,
            tells_files: false,
            hard_links: false,
            holes: false,
            directories: false,
            flushes_names: false,
            ..Abilities::ALL
        }
    }

    fn connections(&self) -> Option<Arc<dyn Connections>> {
        Some(Arc::new(UploadConnections::new(&self.tree)))
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        context("look at", path, || self.look(path))
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        context("open", path, || {
            check_path(path)?;
            let key = self.tree.key(path)?;
            self.tree.store.head(&key)?.ok_or_else(missing)?;
            let (client, url) = (Arc::clone(&self.tree.store.client), self.tree.store.url(&key, &[])?);
            let file = RemoteFile::new(client, Arc::clone(&self.bodies), url, Time::default());
            Ok(SourceFile::Other(Arc::new(file)))
        })
    }

    /// Directories are beginnings of keys. Returns whether it is empty.
    fn make_dir(&self, path: &[u8]) -> Result<bool> {
        context("make directory", path, || {
            check_path(path)?;
            if self.tree.is_in_fresh(path) {
                return Ok(true);
            }
            if let Some(has_keys) = self.root_has_keys.filter(|_| path.is_empty()) {
                return Ok(!has_keys);
            }
            let prefix = match path.is_empty() {
                true => self.tree.prefix.clone(),
                false => [&self.tree.key(path)?[..], b"/"].concat(),
            };
            let is_new = !has_any(&self.tree.store, &prefix)?;
            if is_new {
                self.tree.enter_fresh(path);
            }
            Ok(is_new)
        })
    }

    fn mark_directory(&self, path: &[u8], meta: &Metadata) -> Result<()> {
        context("mark the empty directory", path, || {
            let key = [&self.tree.key(path)?[..], b"/"].concat();
            match self.put(&key, b"", &Seen::Nothing, kept::fields(meta.mtime, None, [None, None])) {
                // Another client has marked it.
                Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => Ok(()),
                put => put,
            }
        })
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        context("make symbolic link", path, || {
            let (key, hash) = (self.link_key(path)?, *blake3::hash(target).as_bytes());
            let standing = self.tree.store.head(&key)?;
            if standing.as_ref().is_some_and(|head| Kept::of(&head.headers).blake3 == Some(hash)) {
                return Ok(false);
            }
            self.put(&key, target, &Seen::of(standing.as_ref())?, kept::fields(meta.mtime, None, [None, None]))?;
            // A file of this name was replaced by the link.
            let file = self.tree.key(path)?;
            if self.tree.store.head(&file)?.is_some() {
                self.remove(&file)?;
            }
            Ok(true)
        })
    }

    fn make_hard_link(&self, path: &[u8], _first: &[u8]) -> Result<bool> {
        let why = "an object has one name";
        context("make hard link", path, || Err(io::Error::new(ErrorKind::Unsupported, why)))
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        context("set metadata of", path, || {
            check_path(path)?;
            match path.is_empty() {
                true => Ok(Applied::default()),
                false => self.set(path, meta),
            }
        })
    }

    /// Flushes nothing: confirmed parts are safe.
    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        context("flush directory", path, || match self.look(path)? {
            Some(_) => Ok(()),
            None => Err(missing()),
        })
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        self.open_file(path).map(drop)
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft> {
        self.new_draft_of(path, &DraftPlan { inplace, chunk_bytes: u64::MAX, ..DraftPlan::default() })
    }

    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> Result<Draft> {
        context("write", path, || {
            if plan.inplace {
                return Err(io::Error::new(ErrorKind::Unsupported, "nothing is written in place in a store"));
            }
            Ok(Draft::Other(match plan.size <= plan.chunk_bytes {
                true => Box::new(SmallDraft::new(&self.tree, path, *plan)?),
                false => Box::new(MultipartDraft::begin(&self.tree, path, plan)?),
            }))
        })
    }

    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        if inplace {
            return Ok(None);
        }
        context("resume", path, || {
            let resumed = MultipartDraft::resume(&self.tree, path)?;
            Ok(resumed.map(|(draft, journal)| (Draft::Other(Box::new(draft)), journal)))
        })
    }

    /// An earlier copy's upload of a complete object is not continued.
    fn remove_left_journal(&self, path: &[u8]) {
        if let Err(error) = multipart::end_left_upload(&self.tree, path) {
            self.tree.warn(format!("an upload that an earlier copy left stays in the store: {error}"));
        }
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let mut deletion = self.deletion(spare, dry_run, deleted);
        deletion.extraneous(path, has);
        deletion.errors
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let mut deletion = self.deletion(spare, dry_run, deleted);
        deletion.entry(path);
        deletion.errors
    }
}

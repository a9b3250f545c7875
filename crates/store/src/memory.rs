//! A tree in memory: the smallest end, and an example, without hard links, holes, or writing in place (its [`Abilities`]).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::ends::abilities::Abilities;
use crate::ends::journal::Journal;
use crate::ends::reading::{FileToRead, ItemSource, SourceFile, SourceTree};
use crate::ends::writing::{Draft, FileToWrite, TargetTree, no_writing_in_place};
use crate::error::{Context, Result, StoreError, refusal};
use crate::found::{EntryKind, Found, FoundEntry};
use crate::meta::{Applied, FileId, Kind, Metadata, STAT_BLOCK_BYTES, Stat, Time, Version};
use crate::name::{check_new_path, check_path, join};
use crate::source_names::SourceNames;
use crate::walk_options::WalkOptions;

/// A tree in memory, which clones share.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// All entries, and the root under the empty key.
    entries: BTreeMap<Key, Node>,
    drafts: BTreeMap<Key, Arc<MemoryFile>>,
    count: u64,
}

/// The names on the way to an entry: a directory sorts before its content.
type Key = Vec<Vec<u8>>;

#[derive(Clone, Debug)]
struct Node {
    what: What,
    number: u64,
    changed: u64,
    meta: Metadata,
}

#[derive(Clone, Debug)]
enum What {
    File(Arc<MemoryFile>),
    Directory,
    Symlink(Vec<u8>),
}

#[derive(Debug)]
struct MemoryFile {
    number: u64,
    data: Mutex<Vec<u8>>,
    journal: MemoryJournal,
}

#[derive(Debug, Default)]
struct MemoryJournal(Mutex<Journaled>);

#[derive(Debug, Default)]
enum Journaled {
    #[default]
    Nothing,
    Bytes(Vec<u8>),
    Ended,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(path: &[u8]) -> io::Result<Key> {
    check_path(path)?;
    Ok(path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

fn path(key: &Key) -> Vec<u8> {
    key.iter().fold(Vec::new(), |path, name| join(&path, name))
}

impl Default for State {
    fn default() -> Self {
        let root = Node { what: What::Directory, number: 0, changed: 0, meta: Metadata::default() };
        State { entries: BTreeMap::from([(Key::new(), root)]), drafts: BTreeMap::new(), count: 0 }
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn find(&self, key: &Key) -> io::Result<&Node> {
        self.entries.get(key).ok_or_else(|| Errno::NOENT.into())
    }

    fn file(&self, key: &Key) -> io::Result<(&Node, &Arc<MemoryFile>)> {
        match self.find(key)? {
            node @ Node { what: What::File(file), .. } => Ok((node, file)),
            _ => Err(refusal(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    fn check_parent(&self, key: &Key) -> io::Result<()> {
        match key.split_last() {
            None => Err(Errno::ISDIR.into()),
            Some((_, parent)) => match self.find(&parent.to_vec())?.what {
                What::Directory => Ok(()),
                What::File(_) | What::Symlink(_) => Err(Errno::NOTDIR.into()),
            },
        }
    }

    fn put(&mut self, key: Key, number: u64, what: What, meta: Metadata) -> io::Result<()> {
        self.check_parent(&key)?;
        if matches!(self.entries.get(&key), Some(Node { what: What::Directory, .. })) {
            return Err(Errno::ISDIR.into());
        }
        let changed = self.next();
        self.entries.insert(key, Node { what, number, changed, meta });
        Ok(())
    }
}

impl Node {
    fn stat(&self) -> Stat {
        let (kind, mode, size) = match &self.what {
            What::File(file) => (Kind::File, 0o644, lock(&file.data).len() as u64),
            What::Directory => (Kind::Directory, 0o755, 0),
            What::Symlink(target) => (Kind::Symlink { target: target.clone() }, 0o777, target.len() as u64),
        };
        let meta = &self.meta;
        Stat {
            kind,
            mode: meta.mode.unwrap_or(mode),
            size,
            blocks: size.div_ceil(STAT_BLOCK_BYTES),
            mtime: meta.mtime.unwrap_or_default(),
            id: FileId { dev: 0, ino: self.number },
            version: Version::new(Time { s: i64::try_from(self.changed).unwrap_or(i64::MAX), ns: 0 }, self.number),
            nlink: 1,
            uid: meta.owner.unwrap_or_default(),
            gid: meta.group.unwrap_or_default(),
        }
    }
}

fn merge(old: &Metadata, new: &Metadata) -> Metadata {
    Metadata {
        mode: new.mode.or(old.mode),
        mode_if_new: new.mode_if_new,
        special_bits: new.special_bits,
        mtime: new.mtime.or(old.mtime),
        owner: new.owner.or(old.owner),
        group: new.group.or(old.group),
        xattrs: new.xattrs.clone().or_else(|| old.xattrs.clone()),
        may_stay: new.may_stay,
    }
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    fn draft(&self, path: &[u8], key: Key, file: Arc<MemoryFile>) -> Draft {
        let (tree, path, meta) = (self.clone(), path.to_vec(), Mutex::default());
        Draft::Other(Box::new(MemoryDraft { tree, path, key, file, meta }))
    }

    fn remove(
        &self,
        key: &Key,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> bool {
        let beneath = |(key_of, node): (&Key, &Node)| (key_of.clone(), matches!(node.what, What::Directory));
        let state = self.state();
        let tree: Vec<(Key, bool)> =
            state.entries.range(key.clone()..).take_while(|(other, _)| other.starts_with(key)).map(beneath).collect();
        drop(state);
        let mut stays: Vec<Key> = Vec::new();
        for (entry, is_dir) in tree.into_iter().rev() {
            let holds_some = stays.iter().any(|other| other.starts_with(&entry));
            let is_spared = entry != *key && spare(&path(&entry), is_dir);
            if holds_some || is_spared {
                stays.push(entry);
                continue;
            }
            if !dry_run {
                self.state().entries.remove(&entry);
            }
            deleted(path(&entry), is_dir);
        }
        stays.is_empty()
    }
}

impl SourceTree for Memory {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        if options.files_from.is_some() {
            return Box::new(vec![Found::list_of_no_directory(Vec::new())].into_iter());
        }
        let state = self.state();
        let (mut items, mut open, mut left_out) = (Vec::new(), Vec::<Key>::new(), None::<Key>);
        let end = |key: Key| Found::DirEnd { path: path(&key), complete: true };
        for (key, node) in &state.entries {
            while let Some(directory) = open.pop_if(|directory| !key.starts_with(directory)) {
                items.push(end(directory));
            }
            if left_out.as_ref().is_some_and(|directory| key.starts_with(directory)) {
                continue;
            }
            let kind = match &node.what {
                What::File(_) => EntryKind::File { further_names: 0 },
                What::Directory => EntryKind::Directory,
                What::Symlink(target) => EntryKind::Symlink { target: target.clone() },
            };
            let (path, is_dir) = (path(key), kind == EntryKind::Directory);
            if !options.filter.selects(&path, is_dir) {
                left_out = Some(key.clone());
                continue;
            }
            if is_dir {
                open.push(key.clone());
            }
            let (source_path, stat) = (path.clone(), node.stat());
            let entry =
                FoundEntry { source: 0, path, source_path, stat, tells_changes: true, kind, xattrs: Vec::new() };
            items.push(Found::Entry(entry));
        }
        items.extend(open.into_iter().rev().map(end));
        Box::new(items.into_iter())
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        match source {
            0 => self.open_file(source_path),
            _ => Err(StoreError::new("open", source_path, Errno::NOENT)),
        }
    }
}

#[derive(Debug)]
struct Opened {
    tree: Memory,
    key: Key,
    file: Arc<MemoryFile>,
}

impl FileToRead for Opened {
    fn stat(&self) -> io::Result<Stat> {
        self.tree.state().file(&self.key).map(|(node, _)| node.stat())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.read_at(buffer, offset))
    }
}

impl MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let data = lock(&self.data);
        let rest = usize::try_from(offset).ok().and_then(|offset| data.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        len
    }
}

impl TargetTree for Memory {
    fn abilities(&self) -> Abilities {
        Abilities { hard_links: false, holes: false, ..Abilities::ALL }
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        let key = key(path).context("look at", path)?;
        Ok(self.state().entries.get(&key).map(Node::stat))
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        let opened = key(path).and_then(|key| {
            let file = Arc::clone(self.state().file(&key)?.1);
            Ok(SourceFile::Other(Arc::new(Opened { tree: self.clone(), key, file })))
        });
        opened.context("open", path)
    }

    fn make_dir(&self, path: &[u8]) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| key(path)).and_then(|key| {
            let mut state = self.state();
            match state.entries.get(&key) {
                Some(Node { what: What::Directory, .. }) => return Ok(false),
                Some(_) => return Err(refusal(io::ErrorKind::NotADirectory, crate::NO_DIRECTORY)),
                None => state.check_parent(&key)?,
            }
            let number = state.next();
            let node = Node { what: What::Directory, number, changed: number, meta: Metadata::default() };
            state.entries.insert(key, node);
            Ok(true)
        });
        made.context("make directory", path)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| key(path)).and_then(|key| {
            let mut state = self.state();
            if let Some(Node { what: What::Symlink(now), .. }) = state.entries.get(&key)
                && now == target
            {
                return Ok(false);
            }
            let number = state.next();
            state.put(key, number, What::Symlink(target.to_vec()), meta.clone()).map(|()| true)
        });
        made.context("make symbolic link", path)
    }

    fn make_hard_link(&self, path: &[u8], _first: &[u8]) -> Result<bool> {
        let why = refusal(io::ErrorKind::Unsupported, "this target has no hard links");
        Err(StoreError::new("make hard link", path, why))
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        let set = key(path).and_then(|key| {
            let mut state = self.state();
            let changed = state.next();
            let node = state.entries.get_mut(&key).ok_or(Errno::NOENT)?;
            (node.meta, node.changed) = (merge(&node.meta, meta), changed);
            Ok(Applied { changed: true, ..Applied::default() })
        });
        set.context("set metadata of", path)
    }

    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        key(path).and_then(|key| self.state().find(&key).map(drop)).context("flush directory", path)
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        key(path).and_then(|key| self.state().file(&key).map(drop)).context("flush", path)
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft> {
        let made = check_new_path(path).and_then(|()| key(path)).and_then(|key| {
            if inplace {
                return Err(no_writing_in_place());
            }
            let mut state = self.state();
            state.check_parent(&key)?;
            let number = state.next();
            let file = Arc::new(MemoryFile { number, data: Mutex::default(), journal: MemoryJournal::default() });
            state.drafts.insert(key.clone(), Arc::clone(&file));
            Ok((key, file))
        });
        let (key, file) = made.context("write", path)?;
        Ok(self.draft(path, key, file))
    }

    fn resume_draft(&self, path: &[u8], _inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        let key = key(path).context("resume", path)?;
        let Some(file) = self.state().drafts.get(&key).cloned() else { return Ok(None) };
        let Journaled::Bytes(journal) = &*lock(&file.journal.0) else { return Ok(None) };
        let journal = journal.clone();
        Ok(Some((self.draft(path, key, Arc::clone(&file)), journal)))
    }

    fn delete_extraneous(
        &self,
        path_of: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let Ok(directory) = key(path_of) else { return Vec::new() };
        let is_in = |(entry, _): &(&Key, &Node)| entry.len() == directory.len() + 1 && entry.starts_with(&directory);
        let is_dir = |(entry, node): (&Key, &Node)| (entry.clone(), matches!(node.what, What::Directory));
        let names: Vec<(Key, bool)> = self.state().entries.iter().filter(is_in).map(is_dir).collect();
        for (entry, is_dir) in names {
            if !entry.last().is_some_and(|name| has.has(name)) && !spare(&path(&entry), is_dir) {
                self.remove(&entry, spare, dry_run, deleted);
            }
        }
        Vec::new()
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let Ok(key) = key(path) else { return Vec::new() };
        let is_dir = self.state().find(&key).is_ok_and(|node| matches!(node.what, What::Directory));
        if !spare(path, is_dir) {
            self.remove(&key, spare, dry_run, deleted);
        }
        Vec::new()
    }

    fn sweep_drafts(&self, path: &[u8]) -> bool {
        let Ok(directory) = key(path) else { return false };
        let mut state = self.state();
        let before = state.drafts.len();
        state.drafts.retain(|key, file| {
            let is_here = key.len() == directory.len() + 1 && key.starts_with(&directory);
            // A writer of a draft holds a reference.
            !is_here || Arc::strong_count(file) > 1 || matches!(*lock(&file.journal.0), Journaled::Bytes(_))
        });
        state.drafts.len() < before
    }
}

#[derive(Debug)]
struct MemoryDraft {
    tree: Memory,
    path: Vec<u8>,
    key: Key,
    file: Arc<MemoryFile>,
    meta: Mutex<Metadata>,
}

impl MemoryDraft {
    fn leave(&self, state: &mut State) -> io::Result<()> {
        if !state.drafts.get(&self.key).is_some_and(|file| Arc::ptr_eq(file, &self.file)) {
            return Err(refusal(io::ErrorKind::NotFound, "it was given up meanwhile"));
        }
        state.drafts.remove(&self.key);
        self.file.journal.remove()
    }
}

impl FileToWrite for MemoryDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        (0, self.file.number)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let end = usize::try_from(offset).ok().and_then(|offset| Some((offset, offset.checked_add(data.len())?)));
        let (start, end) = end.ok_or_else(|| StoreError::new("write", &self.path, Errno::FBIG))?;
        let mut content = lock(&self.file.data);
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(data);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.file.read_at(buffer, offset))
    }

    fn size(&self) -> Result<u64> {
        Ok(lock(&self.file.data).len() as u64)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let size = usize::try_from(size).map_err(|_| StoreError::new("set the size of", &self.path, Errno::FBIG))?;
        lock(&self.file.data).resize(size, 0);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_metadata(&self, meta: &Metadata, _flush: bool) -> Result<()> {
        *lock(&self.meta) = meta.clone();
        Ok(())
    }

    fn give_name(&self) -> Result<()> {
        let mut state = self.tree.state();
        let (what, meta) = (What::File(Arc::clone(&self.file)), lock(&self.meta).clone());
        let named = self.leave(&mut state).and_then(|()| state.put(self.key.clone(), self.file.number, what, meta));
        named.context("rename to", &self.path)
    }

    fn discard(&self) -> Result<()> {
        let _ = self.leave(&mut self.tree.state());
        Ok(())
    }

    fn journal(&self) -> &dyn Journal {
        &self.file.journal
    }
}

impl MemoryJournal {
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        match &mut *lock(&self.0) {
            Journaled::Bytes(bytes) => change(bytes),
            Journaled::Nothing | Journaled::Ended => return Err(refusal(io::ErrorKind::NotFound, "it has no journal")),
        }
        Ok(())
    }
}

impl Journal for MemoryJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let mut journal = lock(&self.0);
        if matches!(*journal, Journaled::Ended) {
            return Err(refusal(io::ErrorKind::NotFound, "its draft was given up meanwhile"));
        }
        *journal = Journaled::Bytes(header.to_vec());
        begun();
        Ok(())
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        self.change(|bytes| bytes.extend_from_slice(record))
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX)))
    }

    fn remove(&self) -> io::Result<()> {
        *lock(&self.0) = Journaled::Ended;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Bench, Reading, source_conforms, target_conforms};

    fn bench() -> Bench {
        let memory = Memory::default();
        let target = Arc::new(memory.clone());
        Bench { target, source: Box::new(move || Arc::new(memory.clone())), _held: Box::new(()) }
    }

    target_conforms! { bench }

    fn reading() -> Reading {
        let tree = Memory::default();
        tree.make_dir(b"directory").unwrap();
        for (path, data) in [(&b"directory/file"[..], &[7; 200_000][..]), (b"empty", b""), (b"small", b"data")] {
            let draft = tree.new_draft(path, false).unwrap();
            draft.write_at(data, 0).unwrap();
            draft.commit(&Metadata::default(), false).unwrap();
        }
        Reading { tree: Arc::new(tree), _held: Box::new(()) }
    }

    source_conforms! { reading }
}

//! A tree at a server that is looked at and changed by hand, one path at a time.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use haul_store::place::{EntryFacts, Lacks, NodeKind};
use haul_store::{EachLeft, EachListed, Listed, PlaceTree, SourceFile, Time, has_wildcard};
use haul_sys::file_system::Space;
use rustix::io::Errno;

use crate::codec::Attributes;
use crate::entry;
use crate::leftovers::leftovers;
use crate::paths::{expand, join};
use crate::pool::Pool;
use crate::source::{SftpFile, expand_wildcards};
use crate::target::{Tell, Tree, lock};

/// A tree at a server, for `haul ls`, `cat`, `rm` and their like. Paths are as typed: they begin where the server starts, mostly at the
/// home.
#[derive(Debug)]
pub struct SftpPlace {
    /// The tree of all typed paths.
    all: Arc<Tree>,
    /// The directory beneath which files were opened last.
    last: Mutex<Option<(Vec<u8>, Arc<Tree>)>>,
}

impl SftpPlace {
    /// Acts on the trees of this server. `tell` gets what a person should know of it.
    pub fn new(pool: Arc<Pool>, tell: Tell) -> Self {
        Self { all: Tree::new(pool, Some(b".".to_vec()), tell), last: Mutex::default() }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.all.pool()
    }

    fn look(&self, path: &[u8], follow: bool) -> io::Result<Attributes> {
        let server = self.all.server();
        if follow { server.stat(path) } else { server.lstat(path) }
    }

    fn facts_of(&self, path: &[u8], attributes: &Attributes) -> io::Result<EntryFacts> {
        let mut facts = facts(attributes);
        if facts.kind == NodeKind::Symlink {
            facts.target = self.all.server().readlink(path)?;
        }
        Ok(facts)
    }

    /// The tree beneath a directory, which remembers the directories that are no links.
    fn beneath(&self, directory: &[u8]) -> Arc<Tree> {
        let mut last = lock(&self.last);
        match &*last {
            Some((of, tree)) if of == directory => Arc::clone(tree),
            _ => {
                let tree = Tree::new(Arc::clone(self.pool()), Some(expand(directory)), Box::new(drop));
                *last = Some((directory.to_vec(), Arc::clone(&tree)));
                tree
            }
        }
    }
}

/// What a server tells of an entry. Version 3 has neither inodes nor times of changes.
fn facts(attributes: &Attributes) -> EntryFacts {
    let kind = attributes.mode.map_or(NodeKind::Unknown, entry::node_kind);
    let time = |seconds: u32| Time { s: seconds.into(), ns: 0 };
    let (uid, gid) = attributes.owners.unwrap_or_default();
    let (accessed, modified) = attributes.times.unwrap_or_default();
    EntryFacts {
        mode: (attributes.mode.unwrap_or(0) & 0o7777) as u16,
        size: attributes.size.unwrap_or(0),
        uid,
        gid,
        accessed: time(accessed),
        modified: time(modified),
        lacks: Lacks {
            mode: attributes.mode.is_none(),
            owner: attributes.owners.is_none(),
            size: attributes.size.is_none(),
            modified: attributes.times.is_none(),
            accessed: attributes.times.is_none(),
            inode: true,
        },
        ..EntryFacts::of_kind(kind)
    }
}

impl PlaceTree for SftpPlace {
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        join(&expand(directory), name)
    }

    fn matches(&self, typed: &[u8]) -> Option<io::Result<Vec<Vec<u8>>>> {
        has_wildcard(typed).then(|| expand_wildcards(self.pool(), &expand(typed)))
    }

    fn facts(&self, path: &[u8], follow: bool) -> io::Result<EntryFacts> {
        let path = expand(path);
        self.facts_of(&path, &self.look(&path, follow)?)
    }

    fn list(&self, path: &[u8], follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        let path = expand(path);
        if !follow && entry::is_dir(&self.look(&path, false)?) == Some(false) {
            return Err(Errno::NOTDIR.into());
        }
        let mut flow = ControlFlow::Continue(());
        let read = self.all.server().opendir(&path)?.each_name(&mut |found| {
            if matches!(&found.name[..], b"." | b"..") {
                return Ok(());
            }
            let mut attributes = Ok(found.attributes);
            // Some servers tell names alone.
            if facts && found.attributes.mode.is_none() {
                attributes = self.look(&join(&path, &found.name), false);
            }
            let listed = attributes.and_then(|attributes| match facts {
                true => Ok(Listed::Facts(Box::new(self.facts_of(&join(&path, &found.name), &attributes)?))),
                false => Ok(Listed::Kind(attributes.mode.map_or(NodeKind::Unknown, entry::node_kind))),
            });
            flow = each(&found.name, listed);
            // No server has this error.
            if flow.is_break() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        match read {
            Err(_) if flow.is_break() => Ok(flow),
            read => read.map(|()| flow),
        }
    }

    fn open(&self, path: &[u8]) -> io::Result<SourceFile> {
        let path = expand(path);
        // A FIFO would hold the server.
        check_file(&self.look(&path, true)?)?;
        Ok(SourceFile::Other(Arc::new(SftpFile::open(self.pool(), path)?)))
    }

    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile> {
        let place = self.beneath(directory).place(path)?;
        check_file(&self.look(&place, false)?)?;
        Ok(SourceFile::Other(Arc::new(SftpFile::open(self.pool(), place)?)))
    }

    fn space(&self, path: &[u8]) -> io::Result<Space> {
        let path = expand(path);
        self.look(&path, false)?;
        self.all.server().space(&path)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "this server does not tell its space (statvfs@openssh.com)")
        })
    }

    fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        let path = expand(path);
        let made = self.all.server().mkdir(&path, NEW_DIRECTORY_MODE);
        made.map_err(|error| if self.look(&path, false).is_ok() { Errno::EXIST.into() } else { error })
    }

    fn rename(&self, from: &[u8], to: &[u8], keep: bool) -> io::Result<()> {
        let (from, to) = (expand(from), expand(to));
        if !keep {
            return self.all.rename_over(&from, &to);
        }
        // RENAME fails where something stands at the new name (draft, 6.5).
        let renamed = self.all.server().rename(&from, &to);
        renamed.map_err(|error| match self.look(&to, false) {
            Ok(_) if self.look(&from, false).is_ok() => Errno::EXIST.into(),
            _ => error,
        })
    }

    fn remove_files(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        self.all.server().remove_all(paths.iter().map(|path| expand(path)))
    }

    fn remove_directory(&self, path: &[u8]) -> io::Result<()> {
        self.all.server().rmdir(&expand(path))
    }

    fn leftovers(&self, directory: &[u8], remove: bool, each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        leftovers(&self.all, &expand(directory), remove, each)
    }
}

fn check_file(attributes: &Attributes) -> io::Result<()> {
    match attributes.mode.map(entry::node_kind) {
        Some(NodeKind::File) | None => Ok(()),
        Some(NodeKind::Directory) => Err(Errno::ISDIR.into()),
        Some(NodeKind::Symlink) => Err(Errno::LOOP.into()),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// The server's umask limits these rights.
const NEW_DIRECTORY_MODE: u32 = 0o777;

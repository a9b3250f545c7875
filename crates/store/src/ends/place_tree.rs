//! The trait of an end that is looked at and changed by hand: one path at a time.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use haul_sys::file_system::Space;

use super::reading::SourceFile;
use crate::error::refusal;
use crate::place::{EntryFacts, NodeKind};

/// A tree at an end where no haul runs, for `haul ls`, `cat`, `rm` and their like. The commands themselves are built on top, in
/// [`crate::place`], so that they do the same at each end.
///
/// A path is one as it is typed for this end, or one that [`PlaceTree::join`] made of it. A connection that is lost is an error for
/// which [`crate::StoreError::is_lost`] holds: then nothing else is asked.
pub trait PlaceTree: Debug + Send + Sync {
    /// The path of a name in a directory. The name is one that a file can have.
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8>;

    /// The path as messages and answers show it.
    fn shown(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// The existing paths that the wildcards of a typed path match, sorted. `None`: this end has no wildcards, and the path is
    /// taken as it is.
    fn matches(&self, _typed: &[u8]) -> Option<io::Result<Vec<Vec<u8>>>> {
        None
    }

    /// The facts of an entry; with `follow`, of what a link leads to.
    fn facts(&self, path: &[u8], follow: bool) -> io::Result<EntryFacts>;

    /// Gives each name of a directory to `each`, in the order of the end, and what is known of it. With `facts` that are its facts.
    /// A link at `path` itself is followed only with `follow`.
    fn list(&self, path: &[u8], follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>>;

    /// [`PlaceTree::list`] for somebody who wants the sizes of files, and nothing else that costs more. Links are not followed.
    fn list_sizes(&self, path: &[u8], each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        self.list(path, true, true, each)
    }

    /// Whether a listing gives names in the order of their bytes. Then none is held until the others are there.
    fn lists_in_order(&self) -> bool {
        false
    }

    /// Opens a regular file. Links are followed.
    fn open(&self, path: &[u8]) -> io::Result<SourceFile>;

    /// Opens a regular file beneath a directory, by a path that [`crate::check_path`] accepts. No link beneath the directory is
    /// followed.
    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile>;

    /// The space of the file system at a path.
    fn space(&self, _path: &[u8]) -> io::Result<Space> {
        Err(refusal(ErrorKind::Unsupported, "this server does not tell its space"))
    }

    /// Makes a directory. It is an error if something stands there.
    fn make_directory(&self, _path: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    /// Renames an entry. A file or link at the new name is replaced, unless `keep`; then that is an error.
    fn rename(&self, _from: &[u8], _to: &[u8], _keep: bool) -> io::Result<()> {
        Err(read_only())
    }

    /// Removes files and links, several at once. The outcomes come in the order of the paths.
    fn remove_files(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        paths.iter().map(|_| Err(read_only())).collect()
    }

    /// Removes an empty directory.
    fn remove_directory(&self, _path: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    /// Removes a directory with all that lies in it, and gives each path beneath it to `each`; `dry_run` removes nothing. `None`: this
    /// end removes one entry after the other.
    fn remove_tree(&self, _path: &[u8], _dry_run: bool, _each: EachRemoved<'_>) -> Option<io::Result<ControlFlow<()>>> {
        None
    }

    /// Gives what dead copies of this user left beneath a directory to `each`, removed if `remove`. Nothing that a living copy may
    /// still need is given.
    fn leftovers(&self, _directory: &[u8], _remove: bool, _each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        Err(refusal(ErrorKind::Unsupported, "copies leave nothing on this server"))
    }
}

/// Gets the path beneath the directory of something that a dead copy left, and its size; or why it, or its directory, stays.
pub type EachLeft<'a> = &'a mut dyn FnMut(&[u8], io::Result<u64>) -> ControlFlow<()>;

/// Gets a path beneath a directory that is removed, and whether it is gone.
pub type EachRemoved<'a> = &'a mut dyn FnMut(&[u8], io::Result<()>) -> ControlFlow<()>;

/// Gets a name of a directory, and what is known of it, or why nothing is known.
pub type EachListed<'a> = &'a mut dyn FnMut(&[u8], io::Result<Listed>) -> ControlFlow<()>;

/// A name in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// Its kind; [`NodeKind::Unknown`] if the end tells only names.
    Kind(NodeKind),
    /// All that the end knows.
    Facts(Box<EntryFacts>),
}

impl Listed {
    /// The kind.
    pub fn kind(&self) -> NodeKind {
        match self {
            Listed::Kind(kind) => *kind,
            Listed::Facts(facts) => facts.kind,
        }
    }
}

fn read_only() -> io::Error {
    refusal(ErrorKind::ReadOnlyFilesystem, "this server is only read")
}

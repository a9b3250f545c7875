//! The trait of an end that is looked at and changed one path at a time.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use haul_sys::file_system::Space;

use super::reading::SourceFile;
use crate::error::refusal;
use crate::place::{EntryFacts, NodeKind};

/// A tree at an end where no haul runs, for the commands of [`crate::place`].
///
/// Paths were typed for this end, or made by [`PlaceTree::join`]. After an error with [`crate::StoreError::is_lost`] nothing
/// else is asked.
pub trait PlaceTree: Debug + Send + Sync {
    /// The path of a valid name in a directory.
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8>;

    /// The path for messages and answers.
    fn shown(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// The sorted matches of a typed path's wildcards. `None`: this end has none.
    fn matches(&self, _typed: &[u8]) -> Option<io::Result<Vec<Vec<u8>>>> {
        None
    }

    /// The facts of an entry, or with `follow` of its target.
    fn facts(&self, path: &[u8], follow: bool) -> io::Result<EntryFacts>;

    /// Gives each name of a directory to `each`, unsorted, with what is known, or with `facts` its facts. `follow` is for a
    /// link at `path`.
    fn list(&self, path: &[u8], follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>>;

    /// [`PlaceTree::list`] for the sizes of files, if cheap, without following.
    fn list_sizes(&self, path: &[u8], each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        self.list(path, true, true, each)
    }

    /// Whether names are listed in byte order.
    fn lists_in_order(&self) -> bool {
        false
    }

    /// Opens a regular file, following links.
    fn open(&self, path: &[u8]) -> io::Result<SourceFile>;

    /// Opens a regular file beneath a directory, by a checked path ([`crate::check_path`]), following no link there.
    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile>;

    /// The space of a path's file system.
    fn space(&self, _path: &[u8]) -> io::Result<Space> {
        Err(refusal(ErrorKind::Unsupported, "this server does not tell its space"))
    }

    /// Makes a directory where nothing stands.
    fn make_directory(&self, _path: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    /// Renames an entry. Replaces a file or link, or fails with `keep`.
    fn rename(&self, _from: &[u8], _to: &[u8], _keep: bool) -> io::Result<()> {
        Err(read_only())
    }

    /// Removes files and links at once, with outcomes in order.
    fn remove_files(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        paths.iter().map(|_| Err(read_only())).collect()
    }

    /// Removes an empty directory.
    fn remove_directory(&self, _path: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    /// Removes a directory with all in it (`dry_run`: nothing), and tells `each` path beneath. `None`: impossible at once.
    fn remove_tree(&self, _path: &[u8], _dry_run: bool, _each: EachRemoved<'_>) -> Option<io::Result<ControlFlow<()>>> {
        None
    }

    /// Gives what dead copies of this user left beneath a directory, and no living copy may need, to `each`, removed if
    /// `remove`.
    fn leftovers(&self, _directory: &[u8], _remove: bool, _each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        Err(refusal(ErrorKind::Unsupported, "copies leave nothing on this server"))
    }
}

/// Gets a left path and its size; or why it, or its directory, stays.
pub type EachLeft<'a> = &'a mut dyn FnMut(&[u8], io::Result<u64>) -> ControlFlow<()>;

/// Gets a path beneath a removed directory, and whether it is gone.
pub type EachRemoved<'a> = &'a mut dyn FnMut(&[u8], io::Result<()>) -> ControlFlow<()>;

/// Gets a name of a directory, with what is known, or an error.
pub type EachListed<'a> = &'a mut dyn FnMut(&[u8], io::Result<Listed>) -> ControlFlow<()>;

/// A name in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// The kind; [`NodeKind::Unknown`] if the end tells only names.
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

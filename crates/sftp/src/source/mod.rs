//! Trees at a server, as a source.

mod ahead;
mod file;
mod glob;
mod roots;
mod walk;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use haul_store::{AsCopied, ItemSource, SourceFile, SourceTree, StoreError, WalkOptions, check_path};
use rustix::io::Errno;

pub(crate) use file::SftpFile;
pub(crate) use glob::expand as expand_wildcards;

use crate::entry;
use crate::paths::join;
use crate::pool::Pool;
use roots::Root;
use walk::Walk;

/// The sources of a job at one server.
#[derive(Debug)]
pub struct SftpSource {
    pool: Arc<Pool>,
    roots: Arc<[Root]>,
    typed_alone: bool,
}

impl SftpSource {
    /// Finds the typed paths, and reports those that are not there.
    ///
    /// # Errors
    /// None of them is there.
    pub fn find(pool: Arc<Pool>, typed: &[Vec<u8>]) -> Result<(Self, Vec<StoreError>), StoreError> {
        let (roots, mut errors) = roots::resolve(&pool, typed);
        if roots.is_empty() && !errors.is_empty() {
            return Err(errors.remove(0));
        }
        let typed_alone = typed.len() == 1;
        Ok((Self { pool, roots: roots.into(), typed_alone }, errors))
    }

    fn path_of(&self, source: u32, source_path: &[u8]) -> io::Result<Vec<u8>> {
        check_path(source_path)?;
        let root = self.roots.get(source as usize).ok_or(Errno::INVAL)?;
        if root.name.is_empty() {
            return Ok(join(&root.path, source_path));
        }
        // A single file gives no right to its neighbours.
        match source_path.strip_prefix(&root.name[..]) {
            Some(b"") => Ok(root.path.clone()),
            Some([b'/', beneath @ ..]) if root.is_dir => Ok(join(&root.path, beneath)),
            _ => Err(Errno::NOENT.into()),
        }
    }
}

impl SourceTree for SftpSource {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(Walk::new(Arc::clone(&self.pool), Arc::clone(&self.roots), options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile, StoreError> {
        let opened = self.path_of(source, source_path).and_then(|path| SftpFile::open(&self.pool, path));
        let opened = opened.map_err(|error| StoreError::new("open", source_path, error))?;
        Ok(SourceFile::Other(Arc::new(opened)))
    }

    fn is_single_file(&self) -> bool {
        self.typed_alone && self.roots.len() == 1 && !self.roots[0].is_dir
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.roots.first().map_or(b"", |root| &root.name)
    }

    fn remove(&self, source: u32, source_path: &[u8], copied: &AsCopied) -> Result<bool, StoreError> {
        let removed = (|| {
            let (path, server) = (self.path_of(source, source_path)?, self.pool.server());
            let now = match server.lstat(&path) {
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(false),
                now => entry::stat(&path, &now?)?,
            };
            if AsCopied::of(&now) != *copied {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it has changed since it was copied"));
            }
            server.remove(&path).map(|()| true)
        })();
        removed.map_err(|error| StoreError::new("remove the source", source_path, error))
    }
}

//! `null:`: discards what is written.

use rustix::io::Errno;

use super::abilities::Abilities;
use super::reading::SourceFile;
use super::writing::{Draft, TargetTree};
use crate::error::{Result, StoreError};
use crate::meta::{Applied, Metadata, Stat};
use crate::source_names::SourceNames;

/// A tree that takes everything and keeps nothing: a session only verifies what arrives.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl TargetTree for Nowhere {
    fn abilities(&self) -> Abilities {
        Abilities { keeps: false, ..Abilities::ALL }
    }

    fn stat(&self, _path: &[u8]) -> Result<Option<Stat>> {
        Ok(None)
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        Err(StoreError::new("open", path, Errno::NOENT))
    }

    fn make_dir(&self, _path: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn make_symlink(&self, _path: &[u8], _target: &[u8], _meta: &Metadata) -> Result<bool> {
        Ok(false)
    }

    fn make_hard_link(&self, _path: &[u8], _first: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn set_metadata(&self, _path: &[u8], _meta: &Metadata) -> Result<Applied> {
        Ok(Applied::default())
    }

    fn flush_dir(&self, _path: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush_file(&self, _path: &[u8]) -> Result<()> {
        Ok(())
    }

    fn new_draft(&self, path: &[u8], _inplace: bool) -> Result<Draft> {
        Err(StoreError::new("write", path, std::io::ErrorKind::Unsupported))
    }

    fn resume_draft(&self, _path: &[u8], _inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        Ok(None)
    }

    fn delete_extraneous(
        &self,
        _path: &[u8],
        _has: &SourceNames,
        _spare: &dyn Fn(&[u8], bool) -> bool,
        _dry_run: bool,
        _deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        Vec::new()
    }

    fn delete_entry(
        &self,
        _path: &[u8],
        _spare: &dyn Fn(&[u8], bool) -> bool,
        _dry_run: bool,
        _deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        Vec::new()
    }
}

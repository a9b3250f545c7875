//! The disk of this host, and what is mounted there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::abilities::Abilities;
use super::journal::Journal;
use super::reading::{ItemSource, SourceFile, SourceTree};
use super::writing::{Draft, FileToWrite, TargetTree};
use crate::as_copied::AsCopied;
use crate::duplicates::Duplicates;
use crate::error::{Result, StoreError};
use crate::local_tree::LocalTree;
use crate::meta::{Applied, Metadata, Stat};
use crate::part::Part;
use crate::source::SourceSet;
use crate::source_names::SourceNames;
use crate::walk::Walk;
use crate::walk_options::WalkOptions;

impl SourceTree for SourceSet {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(self.walk(options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        self.open(source, source_path)
    }

    fn remove(&self, source: u32, source_path: &[u8], copied: &AsCopied) -> Result<bool> {
        self.remove(source, source_path, copied)
    }

    fn is_single_file(&self) -> bool {
        self.is_single_file()
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.name_of_single_file()
    }

    fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.roots()
    }

    fn seen_at(&self, draft: &[u8]) -> Option<Vec<u8>> {
        self.seen_at(draft)
    }
}

impl ItemSource for Walk {
    fn duplicates(&self) -> Duplicates {
        self.duplicates().clone()
    }

    fn share(&self) -> Option<f64> {
        self.share()
    }
}

impl TargetTree for LocalTree {
    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn local(&self) -> Option<&LocalTree> {
        Some(self)
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        self.stat(path)
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        self.open_file(path)
    }

    fn make_dir(&self, path: &[u8]) -> Result<bool> {
        self.make_dir(path)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        self.make_symlink(path, target, meta)
    }

    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool> {
        self.make_hard_link(path, first)
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        self.set_metadata(path, meta)
    }

    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        self.flush_dir(path)
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        self.flush_file(path)
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft> {
        self.new_part(path, inplace).map(Draft::Local)
    }

    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        let resumed = self.resume_part(path, inplace)?;
        Ok(resumed.map(|(part, journal)| (Draft::Local(part), journal)))
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.delete_extraneous(path, has, spare, dry_run, deleted)
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.delete_entry(path, spare, dry_run, deleted)
    }

    fn mark_unfinished(&self, path: &[u8], header: &dyn Fn(Option<(u64, u64)>) -> Vec<u8>, flush: bool) -> Result<()> {
        self.mark_unfinished(path, header, flush)
    }

    fn journal_of_file(&self, path: &[u8], most_bytes: usize) -> Option<Vec<u8>> {
        self.journal_beside(path, most_bytes)
    }

    fn remove_left_journal(&self, path: &[u8]) {
        self.remove_left_journal(path);
    }

    fn sweep_drafts(&self, path: &[u8]) -> bool {
        self.sweep_parts(path)
    }

    fn sweep_draft_of(&self, path: &[u8]) -> bool {
        self.sweep_part_of(path)
    }
}

impl FileToWrite for Part {
    fn path(&self) -> &[u8] {
        self.path()
    }

    fn id(&self) -> (u64, u64) {
        self.id()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_at(data, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }

    fn size(&self) -> Result<u64> {
        self.size()
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.set_size(size)
    }

    fn flush(&self) -> Result<()> {
        self.flush()
    }

    fn set_metadata(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.set_metadata(meta, flush)
    }

    fn give_name(&self) -> Result<()> {
        self.give_name()
    }

    fn discard(&self) -> Result<()> {
        self.discard()
    }

    fn journal(&self) -> &dyn Journal {
        self.journal()
    }

    fn journal_start(&self, header: &[u8]) -> Result<()> {
        self.journal_start(header)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.punch(offset, len)
    }

    fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        self.next_data(offset, end)
    }

    fn data_bytes(&self, offset: u64, end: u64) -> Result<u64> {
        self.data_bytes(offset, end)
    }

    fn reserve(&self, size: u64) -> Result<()> {
        self.reserve(size)
    }

    fn extend(&self, size: u64) -> Result<()> {
        self.extend(size)
    }

    fn hole_bytes(&self) -> usize {
        self.hole_bytes()
    }

    fn finish_flush(&self, flush: bool) -> Result<()> {
        self.finish_flush(flush)
    }
}

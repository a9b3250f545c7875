//! A source of one file outside any directory.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::ends::reading::{ItemSource, SourceFile, SourceTree};
use crate::error::{Result, StoreError};
use crate::found::{EntryKind, Found, FoundEntry};
use crate::meta::Stat;
use crate::walk_options::WalkOptions;

#[derive(Debug)]
pub(crate) struct OneFile<F> {
    pub name: Vec<u8>,
    /// The source as it was typed, for messages.
    pub typed: Vec<u8>,
    pub stat: Stat,
    pub content: F,
}

pub(crate) trait Content: std::fmt::Debug + Send + Sync + 'static {
    fn open(&self) -> io::Result<SourceFile>;
}

impl<F: Content> SourceTree for OneFile<F> {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        let found = match options.files_from {
            Some(_) => Some(Found::list_of_no_directory(self.typed.clone())),
            None => options.filter.selects(&self.name, false).then(|| self.entry()),
        };
        Box::new(Vec::from_iter(found).into_iter())
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        let opened = match (source, source_path == self.name) {
            (0, true) => self.content.open(),
            _ => Err(Errno::NOENT.into()),
        };
        opened.map_err(|error| StoreError::new("open", source_path, error))
    }

    fn is_single_file(&self) -> bool {
        true
    }

    fn name_of_single_file(&self) -> &[u8] {
        &self.name
    }
}

impl<F> OneFile<F> {
    fn entry(&self) -> Found {
        Found::Entry(FoundEntry {
            source: 0,
            path: self.name.clone(),
            source_path: self.name.clone(),
            stat: self.stat.clone(),
            tells_changes: true,
            kind: EntryKind::File { further_names: 0 },
            xattrs: Vec::new(),
        })
    }
}

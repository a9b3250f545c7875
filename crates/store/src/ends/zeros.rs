//! `zero:`: one file of zeros.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::one_file::{Content, OneFile};
use super::reading::{SourceFile, SourceTree};
use crate::error::{Context, Result};
use crate::local_file::LocalFile;
use crate::meta::{STAT_BLOCK_BYTES, Stat};
use crate::scratch;

/// One file `zero` of zeros, in no directory: a hole in memory that counts as data.
pub fn zeros(bytes: u64) -> Result<Arc<dyn SourceTree>> {
    let typed = format!("zero:{bytes}").into_bytes();
    let made = scratch::in_memory(bytes).and_then(|file| Ok((Stat::of_fd(&file)?, file)));
    let (stat, file) = made.context("make", &typed)?;
    let stat = Stat { blocks: bytes.div_ceil(STAT_BLOCK_BYTES), mode: 0o644, ..stat };
    Ok(Arc::new(OneFile { name: b"zero".to_vec(), typed, stat, content: Zeros(file) }))
}

#[derive(Debug)]
struct Zeros(File);

impl Content for Zeros {
    fn open(&self) -> io::Result<SourceFile> {
        let file = LocalFile::new(self.0.try_clone()?.into())?;
        Ok(SourceFile::Local(file.full()))
    }
}

//! A manifest of a directory: every file beneath it with its digest, as `haul verify` reads it.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use haul_store::{Kind, Opened, Patience, Time};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::digest::{Kept, Which};
use crate::access::Shelf;
use crate::budget::Share;
use crate::limits::{MANIFEST_BLOCK_BYTES, MANIFEST_BLOCKS, MAX_MANIFEST_DEPTH, MAX_MANIFEST_NAMES};
use crate::pools::{Job, Pool};

/// A file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// The path beneath the directory.
    pub path: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// The time of the last change.
    pub mtime: Time,
    /// The hash of the content.
    pub blake3: [u8; 32],
}

/// The program's own format of manifests.
pub trait ManifestFormat: Send + Sync + 'static {
    /// Writes a manifest of the files that `next` gives.
    fn write(&self, next: &mut dyn FnMut() -> io::Result<Option<ManifestFile>>, out: &mut dyn Write) -> io::Result<()>;
}

pub(super) struct Making {
    pub(super) shelf: Arc<Shelf>,
    pub(super) top: Vec<u8>,
    pub(super) kept: Arc<Kept>,
    pub(super) format: Arc<dyn ManifestFormat>,
}

/// Makes a manifest in turns of one file, until its reader leaves. An unreadable file ends it without its last line.
pub(super) fn begin(making: Making, pool: &Arc<Pool>, job: Arc<Job>, mut out: Out) {
    drop(pool.begin(job, None, move |job| {
        let mut walk = Walk { making: &making, job, waiting: vec![(Vec::new(), Kind::Directory)] };
        let written = making.format.write(&mut || walk.next(), &mut out).and_then(|()| out.flush());
        if let Err(error) = written {
            // The reader may have left.
            let _ = out.blocks.blocking_send(Err(error));
        }
        Ok(())
    }));
}

/// The job gives its place back while a slow reader takes a block.
pub(super) struct Out {
    text: Vec<u8>,
    blocks: Sender<io::Result<Bytes>>,
    /// The shares held. While a block waits, they wait for the reader.
    shares: Vec<Share>,
    job: Option<Arc<Job>>,
}

impl Out {
    pub(super) fn to_reader(shares: Vec<Share>, job: Option<Arc<Job>>) -> (Out, Receiver<io::Result<Bytes>>) {
        let (blocks, reader) = channel(MANIFEST_BLOCKS);
        (Out { text: Vec::with_capacity(MANIFEST_BLOCK_BYTES), blocks, shares, job }, reader)
    }

    pub(super) fn errors(&self) -> Sender<io::Result<Bytes>> {
        self.blocks.clone()
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.flush()
    }

    fn send(&mut self, block: Bytes) -> io::Result<()> {
        let left = || io::Error::from(io::ErrorKind::BrokenPipe);
        match self.blocks.try_send(Ok(block)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(left()),
            Err(TrySendError::Full(block)) => {
                if let Some(job) = &self.job {
                    job.rests();
                }
                self.shares.iter_mut().for_each(|share| share.waits_for_reader(true));
                let sent = self.blocks.blocking_send(block).map_err(|_| left());
                self.shares.iter_mut().for_each(|share| share.waits_for_reader(false));
                sent
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        if self.text.len() >= MANIFEST_BLOCK_BYTES {
            self.flush()?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.text, Vec::with_capacity(MANIFEST_BLOCK_BYTES));
        self.send(Bytes::from(block))
    }
}

struct Walk<'a> {
    making: &'a Making,
    job: &'a Job,
    /// The last is the next.
    waiting: Vec<(Vec<u8>, Kind)>,
}

impl Walk<'_> {
    fn next(&mut self) -> io::Result<Option<ManifestFile>> {
        while let Some((path, kind)) = self.waiting.pop() {
            if !matches!(kind, Kind::File | Kind::Directory) {
                continue;
            }
            self.job.takes_turns()?;
            let whole = joined(&self.making.top, &path);
            match self.making.shelf.directory.find(&whole, Patience::ForDisk) {
                Ok(Opened::File(file, stat)) => {
                    let blake3 = self.making.kept.of(&file, &stat, Which::AllButMd5, self.job)?.blake3;
                    return Ok(Some(ManifestFile { path, size: stat.size, mtime: stat.mtime, blake3 }));
                }
                Ok(Opened::Directory(directory)) => {
                    if path.split(|byte| *byte == b'/').count() > MAX_MANIFEST_DEPTH {
                        return Err(io::Error::other("the directory is too deep for a manifest"));
                    }
                    let (mut names, is_cut) = directory.names(MAX_MANIFEST_NAMES, &mut || self.job.goes_on())?;
                    if is_cut {
                        return Err(io::Error::other("a directory has too many names for a manifest"));
                    }
                    names.sort_by(|a, b| b.name.cmp(&a.name));
                    let paths = names.into_iter().map(|found| (joined(&path, &found.name), found.stat.kind));
                    self.waiting.extend(paths);
                }
                // The reader could not fetch it either.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (b"", name) => name.to_vec(),
        (directory, b"") => directory.to_vec(),
        (directory, name) => [directory, b"/", name].concat(),
    }
}

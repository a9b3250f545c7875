//! A manifest of a directory: every file beneath it with its digest, as `haul verify` reads it.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use haul_store::{Kind, Opened, Patience, Time};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::digest::Kept;
use crate::access::Shelf;
use crate::limits::{MANIFEST_BLOCK_BYTES, MANIFEST_BLOCKS, MAX_MANIFEST_DEPTH, MAX_MANIFEST_NAMES};

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Its path beneath the directory.
    pub path: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// When it last changed.
    pub mtime: Time,
    /// Its hash.
    pub blake3: [u8; 32],
}

/// The program's own format of manifests.
pub trait ManifestFormat: Send + Sync + 'static {
    /// Writes a whole manifest of the files that `next` gives, one after the other.
    fn write(&self, next: &mut dyn FnMut() -> io::Result<Option<ManifestFile>>, out: &mut dyn Write) -> io::Result<()>;
}

/// What a manifest is made of.
pub(super) struct Making {
    pub(super) shelf: Arc<Shelf>,
    pub(super) top: Vec<u8>,
    pub(super) kept: Arc<Kept>,
    pub(super) format: Arc<dyn ManifestFormat>,
}

/// Begins a manifest in a thread of the pool. A file that cannot be read ends it without its last line.
pub(super) fn begin(making: Making, place: OwnedSemaphorePermit) -> Receiver<io::Result<Bytes>> {
    let (mut out, reader) = Out::to_reader();
    tokio::task::spawn_blocking(move || {
        let mut walk = Walk { making: &making, waiting: vec![(Vec::new(), Kind::Directory)] };
        let written = making.format.write(&mut || walk.next(), &mut out).and_then(|()| out.flush());
        if let Err(error) = written {
            // A reader that has left hears nothing.
            let _ = out.blocks.blocking_send(Err(error));
        }
        drop(place);
    });
    reader
}

/// Blocks on their way to the reader. A slow reader holds up the walk.
pub(super) struct Out {
    text: Vec<u8>,
    blocks: Sender<io::Result<Bytes>>,
}

impl Out {
    pub(super) fn to_reader() -> (Out, Receiver<io::Result<Bytes>>) {
        let (blocks, reader) = channel(MANIFEST_BLOCKS);
        (Out { text: Vec::with_capacity(MANIFEST_BLOCK_BYTES), blocks }, reader)
    }

    /// Where the reader hears of an error, which ends the answer early.
    pub(super) fn errors(&self) -> Sender<io::Result<Bytes>> {
        self.blocks.clone()
    }

    /// Sends what is left.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.flush()
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
        self.blocks.blocking_send(Ok(Bytes::from(block))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Walk<'a> {
    making: &'a Making,
    /// Paths beneath the top that are still to be looked at, the next one last.
    waiting: Vec<(Vec<u8>, Kind)>,
}

impl Walk<'_> {
    fn next(&mut self) -> io::Result<Option<ManifestFile>> {
        while let Some((path, kind)) = self.waiting.pop() {
            if !matches!(kind, Kind::File | Kind::Directory) {
                continue;
            }
            let whole = joined(&self.making.top, &path);
            match self.making.shelf.directory.find(&whole, Patience::ForDisk) {
                Ok(Opened::File(file, stat)) => {
                    let blake3 = self.making.kept.of(&file, &stat)?.blake3;
                    return Ok(Some(ManifestFile { path, size: stat.size, mtime: stat.mtime, blake3 }));
                }
                Ok(Opened::Directory(directory)) => {
                    if path.split(|byte| *byte == b'/').count() > MAX_MANIFEST_DEPTH {
                        return Err(io::Error::other("the directory is too deep for a manifest"));
                    }
                    let (mut names, is_cut) = directory.names(MAX_MANIFEST_NAMES)?;
                    if is_cut {
                        return Err(io::Error::other("a directory has too many names for a manifest"));
                    }
                    names.sort_by(|a, b| b.name.cmp(&a.name));
                    let paths = names.into_iter().map(|found| (joined(&path, &found.name), found.stat.kind));
                    self.waiting.extend(paths);
                }
                // It vanished or became a link, or it is not for this reader, who could not fetch it either.
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

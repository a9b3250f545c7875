//! A directory and all beneath it as a tar file, made while it is sent.
//!
//! Long names, and sizes from 8 GiB on, are written as GNU tar does. Files that this reader may not read are left out. A file
//! that becomes shorter ends the answer early.

use std::ffi::OsStr;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use haul_store::{Kind, LocalFile, Opened, Patience, Stat};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc::Receiver;

use super::order::by_value;
use crate::access::Shelf;
use crate::answer::manifest::Out;
use crate::answer::status::has_links;
use crate::budget::Share;
use crate::limits::{BLOCK_BYTES, MAX_MANIFEST_DEPTH, MAX_MANIFEST_NAMES};
use crate::token::Reach;

pub(super) struct Packing {
    pub(super) shelf: Arc<Shelf>,
    /// The paths to which links may lead the reader.
    pub(super) reach: Reach,
    /// The directory's path without links.
    pub(super) top: Vec<u8>,
}

/// Packs in a thread of its own, because it waits for a slow reader.
pub(super) fn begin(packing: Packing, shares: Vec<Share>) -> io::Result<Receiver<io::Result<Bytes>>> {
    let (out, reader) = Out::to_reader(shares, None);
    thread::Builder::new().name("tar".to_owned()).spawn(move || {
        let errors = out.errors();
        if let Err(error) = packing.write(out) {
            // The reader may have left.
            let _ = errors.blocking_send(Err(error));
        }
    })?;
    Ok(reader)
}

impl Packing {
    fn write(&self, out: Out) -> io::Result<()> {
        let mut tar = Builder::new(out);
        // The last is the next.
        let mut waiting = vec![(Vec::new(), Kind::Directory)];
        while let Some((path, kind)) = waiting.pop() {
            let whole = joined(&self.top, &path);
            if let Kind::Symlink { .. } = kind {
                self.add_link(&mut tar, &path, &whole)?;
                continue;
            }
            match self.shelf.directory.find(&whole, Patience::ForDisk) {
                Ok(Opened::File(file, stat)) => add_file(&mut tar, &path, file, &stat)?,
                Ok(Opened::Directory(directory)) => {
                    if path.split(|byte| *byte == b'/').count() > MAX_MANIFEST_DEPTH {
                        return Err(io::Error::other("the directory is too deep for a tar file"));
                    }
                    if !path.is_empty() {
                        let name = [path.as_slice(), b"/"].concat();
                        tar.append_data(&mut header(directory.stat(), EntryType::Directory), of(&name), io::empty())?;
                    }
                    let (mut names, is_cut) = directory.names(MAX_MANIFEST_NAMES, &mut || Ok(()))?;
                    if is_cut {
                        return Err(io::Error::other("a directory has too many names for a tar file"));
                    }
                    names.retain(|found| found.stat.kind != Kind::Special);
                    names.sort_by(|a, b| by_value(&b.name, &a.name));
                    waiting.extend(names.into_iter().map(|found| (joined(&path, &found.name), found.stat.kind)));
                }
                Err(error) if is_left_out(&error) => {}
                Err(error) => return Err(error),
            }
        }
        tar.into_inner()?.end()
    }

    /// Adds a link, or the file behind it if that lies outside the top and this reader may read it.
    fn add_link(&self, tar: &mut Builder<Out>, path: &[u8], whole: &[u8]) -> io::Result<()> {
        let Ok(real) = self.shelf.directory.without_links(whole) else { return Ok(()) };
        if !self.reach.includes(&real) {
            return Ok(());
        }
        let opened = match self.shelf.directory.find(&real, Patience::ForDisk) {
            Ok(opened) => opened,
            Err(error) if is_left_out(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let stat = match &opened {
            Opened::File(_, stat) => stat.clone(),
            Opened::Directory(directory) => directory.stat().clone(),
        };
        match (beneath(&real, &self.top), opened) {
            (Some(real), _) => {
                let up = path.iter().filter(|byte| **byte == b'/').count();
                let target = [&b"../".repeat(up), real].concat();
                let target = if target.is_empty() { b".".to_vec() } else { target };
                let mut header = header(&Stat { size: 0, ..stat }, EntryType::Symlink);
                tar.append_link(&mut header, of(path), of(&target))
            }
            (None, Opened::File(file, stat)) => add_file(tar, path, file, &stat),
            // A directory elsewhere may hold this one.
            (None, Opened::Directory(_)) => Ok(()),
        }
    }
}

fn add_file(tar: &mut Builder<Out>, path: &[u8], file: LocalFile, stat: &Stat) -> io::Result<()> {
    let content = BufReader::with_capacity(BLOCK_BYTES, Content { file, at: 0, size: stat.size });
    tar.append_data(&mut header(stat, EntryType::Regular), of(path), content)
}

fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.mode & 0o777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(u64::try_from(stat.mtime.s).unwrap_or(0));
    header.set_size(if kind == EntryType::Regular { stat.size } else { 0 });
    header
}

/// Reads exactly as many bytes as the header says.
struct Content {
    file: LocalFile,
    at: u64,
    size: u64,
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.at)?;
        if count < wanted {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was packed"));
        }
        self.at += count as u64;
        Ok(count)
    }
}

fn is_left_out(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory) || has_links(error)
}

fn beneath<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(top)? {
        rest if top.is_empty() || rest.is_empty() => Some(rest),
        rest => rest.strip_prefix(b"/"),
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (b"", name) => name.to_vec(),
        (directory, b"") => directory.to_vec(),
        (directory, name) => [directory, b"/", name].concat(),
    }
}

fn of(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}

//! `--delay-updates`: a complete file waits in a directory beside its place, and all get their names at the end.
//!
//! ```text
//!   part -> verified, flushed -> DIR/.~tmp~/name -> ... -> all of the copy has arrived -> DIR/name
//! ```
//! The paths that wait stand in a file without a name, so memory does not grow with them. A run that dies leaves the files
//! where they wait; the next one takes those that are the source's as far as size and time tell.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_OMIT};

use crate::error::{Context, Result, StoreError, refusal};
use crate::meta::{self, Kind, Stat};
use crate::name::split;
use crate::scratch;

use super::drafts::open_own_directory;
use super::{LocalTree, Settings, take_name};

/// What waits for its name.
#[derive(Debug)]
pub(crate) struct Delayed {
    directory: Vec<u8>,
    waiting: Mutex<BufWriter<File>>,
}

/// Files that did not get their names are remembered, because no further name may be made of them. After so many no further
/// name is made at all: about 16 MiB.
const MAX_FAILED: usize = 1 << 16;

/// Longest path in the list; the wire allows no longer ones.
const MAX_PATH_BYTES: u32 = 1 << 16;

impl Delayed {
    /// The name of the directories in which files wait.
    pub(crate) fn directory(&self) -> &[u8] {
        &self.directory
    }

    /// Notes that a file waits; with `first`, that a further name of that path is to be made.
    fn note(&self, path: &[u8], first: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for text in [path, first] {
            waiting.write_all(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes())?;
            waiting.write_all(text)?;
        }
        Ok(())
    }

    /// Has a complete file wait: `put` gives it its place in an open directory. Only what stands there then is noted: an earlier
    /// run may have left another version, which nobody asked for.
    pub(crate) fn stage(
        &self,
        settings: &Settings,
        parent: &OwnedFd,
        path: &[u8],
        put: impl FnOnce(&Arc<OwnedFd>) -> io::Result<()>,
    ) -> io::Result<Arc<OwnedFd>> {
        let staged = open_own_directory(parent, &self.directory, true).map(Arc::new)?;
        // A file that changed while it was read comes twice.
        let standing = Stat::of_name(staged.as_fd(), split(path).1).ok();
        let is_listed = standing.is_some_and(|standing| settings.placed().is_noted(&standing, path));
        put(&staged)?;
        if !is_listed {
            self.note(path, b"")?;
        }
        Ok(staged)
    }
}

fn next_text(list: &mut impl io::Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match list.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_PATH_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    list.read_exact(&mut text).map(|()| Some(text))
}

impl LocalTree {
    /// From now on complete files wait in directories of this name, beside their places.
    pub fn delay_names(&self, directory: &[u8]) -> Result<()> {
        let list = || match &self.root_directory() {
            Some(root) => {
                // By its descriptor: the path may lead elsewhere by now.
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(root));
                scratch::in_directory(std::path::Path::new(&path)).or_else(|_| scratch::in_memory(0))
            }
            None => scratch::in_memory(0),
        };
        let waiting = Mutex::new(BufWriter::new(list().context("make the list of delayed files in", b".")?));
        let _ = self.settings.delayed.set(Delayed { directory: directory.to_vec(), waiting });
        Ok(())
    }

    /// Whether files wait for their names.
    pub fn delays_names(&self) -> bool {
        self.settings.delayed.get().is_some()
    }

    /// Has a file of an earlier run, which waits already, get its name with the others.
    pub fn delay_again(&self, path: &[u8], waiting: &Stat) -> Result<()> {
        self.settings.placed().note(waiting, path);
        self.settings.delayed.get().map_or(Ok(()), |delayed| delayed.note(path, b"")).context("delay", path)
    }

    /// Has a further name be made with the others: what it leads to may not have its name yet.
    pub fn delay_hard_link(&self, path: &[u8], first: &[u8]) -> Result<()> {
        self.settings.delayed.get().map_or(Ok(()), |delayed| delayed.note(path, first)).context("delay", path)
    }

    /// Gives all that waits its names. `named` hears of each, `failed` why one has none.
    pub fn give_delayed_names(
        &self,
        named: &mut dyn FnMut(&[u8]),
        failed: &mut dyn FnMut(&[u8], &StoreError),
    ) -> Result<()> {
        let Some(delayed) = self.settings.delayed.get() else { return Ok(()) };
        let context = "read the list of delayed files in";
        let mut waiting = delayed.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let rewound = waiting.flush().and_then(|()| waiting.get_mut().seek(SeekFrom::Start(0)));
        rewound.context(context, b".")?;
        let mut list = BufReader::new(waiting.get_ref().try_clone().context(context, b".")?);
        let mut without_name: HashSet<Vec<u8>> = HashSet::new();
        while let Some(path) = next_text(&mut list).context(context, b".")? {
            let first = next_text(&mut list).context(context, b".")?.unwrap_or_default();
            let given = match &first[..] {
                b"" => self.give_delayed_name(delayed, &path).context("rename to", &path),
                _ if without_name.len() >= MAX_FAILED || without_name.contains(&first) => {
                    Err(refusal(io::ErrorKind::NotFound, "the first name of its file could not be given"))
                        .context("make hard link", &path)
                }
                _ => self.make_hard_link(&path, &first).map(drop),
            };
            match given {
                Ok(()) => named(&path),
                Err(error) => {
                    failed(&path, &error);
                    if without_name.len() < MAX_FAILED {
                        without_name.insert(path);
                    }
                }
            }
        }
        // A file that changed at the last moment may come once more.
        let emptied = waiting.get_mut().set_len(0).and_then(|()| waiting.get_mut().seek(SeekFrom::Start(0)));
        emptied.map(drop).context(context, b".")
    }

    fn give_delayed_name(&self, delayed: &Delayed, path: &[u8]) -> io::Result<()> {
        self.within_parent(path, |parent, name| {
            let before = Stat::of_name(parent.as_fd(), b".")?;
            // The directory has its mode already, which may keep its owner out.
            let opened_up = meta::open_up(parent.as_fd(), b".")?;
            let staged = open_own_directory(parent, &delayed.directory, false).map(Arc::new)?;
            let file = Stat::of_name(staged.as_fd(), name)?;
            if file.kind != Kind::File || file.uid != self.settings.user && !haul_sys::process::is_root() {
                return Err(refusal(io::ErrorKind::InvalidData, "somebody else has put another entry in its place"));
            }
            take_name(&self.settings, (&staged, split(path).1), &file, (parent, name), path, true)?;
            let _ = rustix::fs::unlinkat(parent, &delayed.directory[..], AtFlags::REMOVEDIR);
            // Its directory has its time already. A time that cannot be set does no harm to the data.
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: before.mtime.s, tv_nsec: before.mtime.ns.into() },
            };
            let _ = rustix::fs::utimensat(parent, ".", &times, AtFlags::empty());
            if opened_up {
                haul_sys::file::set_mode(parent, before.mode)?;
            }
            Ok(())
        })
    }
}

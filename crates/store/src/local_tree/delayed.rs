//! `--delay-updates`: complete files wait in a directory beside their places, and get their names at the end.
//!
//! ```text
//!   part -> verified, flushed -> DIR/.~tmp~/name -> ... -> all of the copy has arrived -> DIR/name
//! ```
//! The next run takes waiting files of the source's size and time.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::AtFlags;

use crate::error::{Context, Result, StoreError, refusal};
use crate::meta::{Kind, Stat};
use crate::name::split;
use crate::path_list::PathList;

use super::LocalTree;
use super::draft_place::open_own_directory;
use super::final_name::take_name;
use super::finished_directory::FinishedDirectory;
use super::waiting::Waiting;

impl LocalTree {
    /// Makes files wait in directories of this name beside their places.
    pub fn delay_names(&self, directory: &[u8]) -> Result<()> {
        let list = PathList::new(self.root_directory());
        let waiting = Mutex::new(list.context("make the list of delayed files in", b".")?);
        let _ = self.settings.delayed.set(Waiting { directory: directory.to_vec(), waiting });
        Ok(())
    }

    /// Whether files wait for their names.
    pub fn delays_names(&self) -> bool {
        self.settings.delayed.get().is_some()
    }

    /// Notes an earlier run's waiting file.
    pub fn delay_again(&self, path: &[u8], waiting: &Stat) -> Result<()> {
        self.settings.placed().note(waiting, path);
        self.settings.delayed.get().map_or(Ok(()), |delayed| delayed.note(path, b"")).context("delay", path)
    }

    /// Notes a hard link for later: its first name may be waiting.
    pub fn delay_hard_link(&self, path: &[u8], first: &[u8]) -> Result<()> {
        self.settings.delayed.get().map_or(Ok(()), |delayed| delayed.note(path, first)).context("delay", path)
    }

    /// Names all waiting files. `named` gets each path, `failed` each error.
    pub fn give_delayed_names(
        &self,
        named: &mut dyn FnMut(&[u8]),
        failed: &mut dyn FnMut(&[u8], &StoreError),
    ) -> Result<()> {
        let Some(delayed) = self.settings.delayed.get() else { return Ok(()) };
        let context = "read the list of delayed files in";
        let mut waiting = delayed.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = waiting.read().context(context, b".")?;
        let mut without_name: HashSet<Vec<u8>> = HashSet::new();
        while let Some(path) = list.next().transpose().context(context, b".")? {
            let first = list.next().transpose().context(context, b".")?.unwrap_or_default();
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
        waiting.clear().context(context, b".")
    }

    fn give_delayed_name(&self, delayed: &Waiting, path: &[u8]) -> io::Result<()> {
        self.within_parent(path, |parent, name| {
            // The directory's final mode may keep its owner out.
            let finished = FinishedDirectory::open_up(parent.as_fd())?;
            let staged = open_own_directory(parent, &delayed.directory, false).map(Arc::new)?;
            let file = Stat::of_name(staged.as_fd(), name)?;
            if file.kind != Kind::File || file.uid != self.settings.user && !haul_sys::process::is_root() {
                return Err(refusal(io::ErrorKind::InvalidData, "somebody else has put another entry in its place"));
            }
            take_name(&self.settings, (&staged, split(path).1), &file, (parent, name), path, true)?;
            let _ = rustix::fs::unlinkat(parent, &delayed.directory[..], AtFlags::REMOVEDIR);
            finished.give_back_time(parent.as_fd());
            finished.give_back_mode(parent.as_fd())
        })
    }
}

/// Remembered failed files, to which no hard link may be made. Beyond (about 16 MiB) none is made.
const MAX_FAILED: usize = 1 << 16;

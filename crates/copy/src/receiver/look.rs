//! Reads differing files at the target, and tells the sender their pieces: it sends only the rest.
//!
//! ```text
//!   decide -> look: read, cut -> Standing -> answer -> Standing ... -> Standing (last)        a thread of its own, beside the lanes
//!   lane: a run -> read it from the standing file -> hash, write -> verified as if it had come
//! ```
//! The answer comes with the first pieces, so what a look finds at once is never sent.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_engine::compare::Existing;
use haul_store::{DIRECT_FROM_BYTES, Kind, Stat};
use haul_wire::control::{Answer, Control, Piece, Standing, Wanted};
use haul_wire::standing::MAX_PIECES;

use super::incoming::Incoming;
use super::looks::Look;
use super::standing_file::StandingFile;
use super::state::Shared;
use crate::pieces::{self, Cutter};

/// Below this, pieces would cost as much as a part of the file.
const LOOK_FROM_BYTES: u64 = 64 << 10;

/// One thread hashes while another reads.
const THREADS: usize = 2;

/// With 1 MiB, calls cost little beside the hashing.
const READ_BYTES: usize = 1 << 20;

/// Pieces leave at the latest after this, so a slow disk holds up little.
const LEAVES_EVERY: Duration = Duration::from_millis(50);

/// On a quicker path the disks are the limit, and reading costs more than it saves.
const QUICK_PATH_BYTES_PER_S: u64 = 400_000_000;

pub(super) fn standing(shared: &Shared, path: &[u8], stat: Option<&Stat>, existing: Existing) -> Option<StandingFile> {
    let selection = &shared.job.selection;
    let stat = stat.filter(|stat| stat.kind == Kind::File && stat.size >= LOOK_FROM_BYTES)?;
    // Other hosts of an end do not know what stands there.
    let is_alone = shared.job.movers.count() == 0 && shared.other_hosts.token.get().is_none();
    let known = shared.job.carriage.path.as_ref();
    let is_quick = known.is_some_and(|path| path.capacity_bytes_per_s >= QUICK_PATH_BYTES_PER_S);
    if selection.whole_file || is_quick || !is_alone || existing == Existing::Missing {
        return None;
    }
    let cutter = Cutter::of(stat.size)?;
    let file = shared.disk.storage.during(|| shared.to.tree().open_file(path)).ok()?;
    Some(StandingFile::new(file, stat.size, cutter))
}

pub(super) fn ask(shared: &Arc<Shared>, incoming: &Arc<Incoming>, wanted: Wanted) {
    ask_by(shared, incoming, wanted, |_| {
        let for_thread = Arc::clone(shared);
        std::thread::Builder::new().name("look".into()).spawn(move || run(&for_thread))
    });
}

/// Most jobs have nothing to look at, so the first look starts the threads.
fn ask_by(
    shared: &Shared,
    incoming: &Arc<Incoming>,
    wanted: Wanted,
    spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>,
) {
    let is_worth = incoming.standing.is_some() && incoming.identity.size >= LOOK_FROM_BYTES;
    match is_worth && shared.looks.start_once(THREADS, spawn) {
        true => shared.looks.push(Look { incoming: Arc::clone(incoming), wanted }),
        false => answer(shared, incoming.index, wanted),
    }
}

fn answer(shared: &Shared, index: u64, wanted: Wanted) {
    shared.watch.on_answer(index, &wanted);
    shared.outbox.answer(Answer { index, wanted });
}

fn run(shared: &Shared) {
    while let Some(Look { incoming, wanted }) = shared.looks.next() {
        let Some(standing) = &incoming.standing else { continue };
        let mut teller = Teller { shared, incoming: &incoming, standing, wanted: Some(wanted), left: Instant::now() };
        teller.tell();
    }
}

struct Teller<'a> {
    shared: &'a Shared,
    incoming: &'a Incoming,
    standing: &'a StandingFile,
    /// The sender has no answer yet.
    wanted: Option<Wanted>,
    left: Instant,
}

impl Teller<'_> {
    fn tell(&mut self) {
        let longest = self.standing.cutter.longest_bytes();
        let mut buffer = vec![0; READ_BYTES.max(longest) + longest];
        let (mut start, mut filled, mut offset) = (0, 0, 0);
        let mut pieces = Vec::new();
        while offset < self.standing.size && !self.shared.is_over() {
            if filled - start < longest {
                buffer.copy_within(start..filled, 0);
                (start, filled) = (0, filled - start);
                let at = offset + filled as u64;
                match self.fill(&mut buffer[filled..], at) {
                    Ok(read) => filled += read,
                    // What was read until then is of use.
                    Err(_) => break,
                }
            }
            if filled == start {
                break;
            }
            let bytes = self.standing.cutter.first(&buffer[start..filled.min(start + longest)]);
            pieces.push(pieces::piece(&buffer[start..start + bytes]));
            start += bytes;
            offset += bytes as u64;
            if pieces.len() == MAX_PIECES || self.left.elapsed() >= LEAVES_EVERY {
                self.leave(std::mem::take(&mut pieces), false);
                if self.shared.incoming(self.incoming.index).is_none() {
                    return;
                }
                if self.standing.is_of_no_use(offset) {
                    break;
                }
            }
        }
        self.leave(pieces, true);
        if let Some(cold) = self.standing.file.cold().filter(|_| self.standing.size >= DIRECT_FROM_BYTES) {
            cold.passed(0, self.standing.size);
        }
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = usize::try_from(self.standing.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let mut filled = 0;
        while filled < most {
            let at = offset + filled as u64;
            let read = self.shared.disk.storage.during(|| self.standing.file.read_at(&mut buffer[filled..most], at))?;
            if read == 0 {
                break;
            }
            filled += read;
            self.shared.looks.add_read(read as u64);
        }
        Ok(filled)
    }

    fn leave(&mut self, pieces: Vec<Piece>, is_last: bool) {
        self.left = Instant::now();
        let index = self.incoming.index;
        self.shared.looks.add_told(self.standing, pieces.len());
        // A sender that does not read must not make the queue long.
        self.shared.await_listener();
        self.shared.outbox.send(Control::Standing(Standing {
            index,
            mean_bytes: self.standing.cutter.mean_bytes(),
            in_place: self.incoming.inplace,
            pieces,
            is_last,
        }));
        if let Some(wanted) = self.wanted.take() {
            answer(self.shared, index, wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::super::state::tests::over;
    use super::*;

    fn standing_file(shared: &Shared, index: u64) -> Arc<Incoming> {
        let identity =
            Identity { size: LOOK_FROM_BYTES, mtime: Default::default(), ctime: Default::default(), inode: 1 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let path = RelPath::new(b"file".to_vec()).unwrap();
        let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
        let mut incoming = Incoming::new(index, item, b"file".to_vec(), identity, false);
        let stat = shared.to.tree().stat(b"file").unwrap();
        incoming.standing = standing(shared, b"file", stat.as_ref(), Existing::Unfinished);
        assert!(incoming.standing.is_some());
        Arc::new(incoming)
    }

    #[test]
    fn each_file_is_answered_where_no_thread_can_look() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![7; LOOK_FROM_BYTES as usize]).unwrap();
        let shared = over(dir.path());
        for index in 0..3 {
            let incoming = standing_file(&shared, index);
            ask_by(&shared, &incoming, Wanted::All, |_| Err(io::ErrorKind::WouldBlock.into()));
        }
        let answers = shared.outbox.take_all().into_iter().filter_map(|message| match message {
            Control::Answers(answers) => Some(answers.len()),
            _ => None,
        });
        assert_eq!(answers.sum::<usize>(), 3);
    }
}

//! The connections over which one file goes up, each with a range of it, where the server writes at the byte that it is asked for.
//!
//! ```text
//! the first byte goes alone: STOR empties the file, and only this one does
//! a block -> the connection that stands there | a new one: REST, STOR | the end of one whose range is over, and a new one | a wait
//! all connections ended -> their 226 -> the beginnings of ranges read back     a cut one: what arrived of its range is looked up
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::block_journal::BlockJournal;
use super::read_back::{at_once, lost};
use crate::limits::{MAX_CUTS, MAX_SEAMS, READING_RESTS, SEAM_BYTES};
use crate::refusal::invalid;
use crate::server::Server;
use crate::transfer::Upload;

#[derive(Debug)]
pub(super) struct Ranges {
    size: u64,
    chunk_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The transfer that has made the file, until the first byte goes over it.
    first: Option<Upload>,
    /// Connections that nobody writes to at the moment.
    idle: Vec<Range>,
    /// Connections over which all of a range was sent. Their 226 is still to come.
    ended: Vec<Range>,
    /// Where ranges begin, also those that wait for a connection, and their first bytes.
    begins: BTreeMap<u64, Vec<u8>>,
    /// Bytes that were sent over connections that were cut.
    unconfirmed: Vec<(u64, u64)>,
    /// Chunks that have to come again.
    lost: BTreeSet<u64>,
    cuts: u32,
}

/// A connection that writes a range.
#[derive(Debug)]
struct Range {
    upload: Upload,
    begin: u64,
    at: u64,
    since: Instant,
}

/// The file that goes up, and its server.
#[derive(Clone, Copy)]
pub(super) struct Draft<'a> {
    pub(super) server: &'a Server,
    pub(super) place: &'a [u8],
    pub(super) journal: &'a BlockJournal,
}

impl Ranges {
    /// Makes the file. From then on only ranges behind its first byte are begun, and nothing empties it.
    pub(super) fn begin(size: u64, chunk_bytes: u64, server: &Server, place: &[u8]) -> io::Result<Ranges> {
        let mut tries = 0;
        loop {
            let mut first = server.upload(place, 0)?;
            match first.await_begin() {
                // A connection that has rested may be closed by now.
                Err(_) if first.line.is_broken() && first.line.has_rested && tries < MAX_CUTS => tries += 1,
                begun => return begun.map(|()| Ranges::with(size, chunk_bytes, Some(first))),
            }
        }
    }

    /// Goes on with a file that has its first byte.
    pub(super) fn go_on(size: u64, chunk_bytes: u64) -> Ranges {
        Ranges::with(size, chunk_bytes, None)
    }

    fn with(size: u64, chunk_bytes: u64, first: Option<Upload>) -> Ranges {
        let state = State {
            first,
            idle: Vec::new(),
            ended: Vec::new(),
            begins: BTreeMap::new(),
            unconfirmed: Vec::new(),
            lost: BTreeSet::new(),
            cuts: 0,
        };
        Ranges { size, chunk_bytes: chunk_bytes.max(1), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, draft: Draft<'_>, data: &[u8], offset: u64) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if offset.is_multiple_of(self.chunk_bytes) {
            self.lock().lost.remove(&(offset / self.chunk_bytes));
        }
        // The first byte goes once: to write it again would empty the file.
        let (data, offset) = match offset {
            0 => {
                self.write_first(&data[..1])?;
                (&data[1..], 1)
            }
            _ => (data, offset),
        };
        while !data.is_empty() {
            let mut range = self.take(draft, data, offset)?;
            match range.upload.write(data) {
                Ok(()) => {
                    self.give_back(range, offset + data.len() as u64);
                    draft.server.pool.moved();
                    return Ok(());
                }
                Err(error) => self.cut((range.begin, range.at), error)?,
            }
        }
        Ok(())
    }

    fn write_first(&self, byte: &[u8]) -> io::Result<()> {
        let Some(mut upload) = self.lock().first.take() else { return Ok(()) };
        upload.write(byte)?;
        upload.end()?;
        self.lock().ended.push(Range { upload, begin: 0, at: 1, since: Instant::now() });
        Ok(())
    }

    /// Ends the transfer that has made the file, before anything was written. A server may remove what a broken one leaves, also later.
    pub(super) fn end_first(&self) {
        if let Some(mut first) = self.lock().first.take() {
            let _ = first.end();
        }
    }

    /// The connection that stands at this byte, or a new one that begins there.
    fn take(&self, draft: Draft<'_>, data: &[u8], offset: u64) -> io::Result<Range> {
        loop {
            {
                let mut state = self.lock();
                if let Some(at) = state.idle.iter().position(|range| range.at == offset) {
                    return Ok(state.idle.swap_remove(at));
                }
                // A connection that comes here ends here.
                let first = || data[..data.len().min(SEAM_BYTES)].to_vec();
                state.begins.entry(offset).or_insert_with(first);
            }
            // To log in takes longer than to wait for 226.
            if (!draft.server.pool.has_spare() && self.end_one(false)?) || self.has_come(offset) {
                continue;
            }
            if let Some(prepared) = draft.server.try_range()? {
                draft.journal.begin_range(offset);
                match prepared.begin(draft.server.range_command(draft.place)?, offset) {
                    Ok(upload) => return Ok(Range { upload, begin: offset, at: offset, since: Instant::now() }),
                    Err(error) => self.cut((offset, offset), error)?,
                }
                continue;
            }
            if self.end_one(true)? {
                continue;
            }
            if draft.server.pool.stands_still() {
                let why = "the server allows no further connection, and the others stand still";
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            drop(self.changed.wait_timeout(self.lock(), LOOKS_EVERY));
        }
    }

    fn has_come(&self, offset: u64) -> bool {
        self.lock().idle.iter().any(|range| range.at == offset)
    }

    /// Ends a connection whose range is over, or, if it `must` be, one that nobody has gone on with for a while.
    fn end_one(&self, must: bool) -> io::Result<bool> {
        let mut range = {
            let mut state = self.lock();
            if !state.ended.is_empty() {
                state.ended.remove(0)
            } else if let Some(at) = state.idle.iter().position(|range| range.since.elapsed() >= READING_RESTS)
                && must
            {
                let mut range = state.idle.swap_remove(at);
                drop(state);
                if let Err(error) = range.upload.end() {
                    self.cut((range.begin, range.at), error)?;
                    return Ok(true);
                }
                range
            } else {
                return Ok(false);
            }
        };
        if let Err(error) = range.upload.confirm() {
            self.cut((range.begin, range.at), error)?;
        }
        Ok(true)
    }

    fn give_back(&self, mut range: Range, at: u64) {
        (range.at, range.since) = (at, Instant::now());
        let is_over = at == self.size || self.lock().begins.contains_key(&at);
        // The server confirms it while others go on.
        if is_over && range.upload.end().is_ok() {
            self.lock().ended.push(range);
        } else {
            self.lock().idle.push(range);
        }
        self.changed.notify_all();
    }

    /// A connection has failed. What it sent is looked up at the end, if another one may take over.
    fn cut(&self, (begin, at): (u64, u64), error: io::Error) -> io::Result<()> {
        let mut state = self.lock();
        state.cuts += 1;
        let is_first_byte = begin == 0 && at > 0;
        if !is_cut(&error) || state.cuts > MAX_CUTS || is_first_byte {
            return Err(error);
        }
        if begin < at {
            state.unconfirmed.push((begin, at));
        }
        Ok(())
    }

    /// Ends all connections, and finds out what has to come again. Nobody writes meanwhile.
    pub(super) fn confirm(&self, draft: Draft<'_>) -> io::Result<()> {
        let (mut ended, idle) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.ended), std::mem::take(&mut state.idle))
        };
        for mut range in idle {
            match range.upload.end() {
                Ok(()) => ended.push(range),
                Err(error) => self.cut((range.begin, range.at), error)?,
            }
        }
        let mut is_silent = false;
        for mut range in ended {
            let Err(error) = range.upload.confirm() else { continue };
            // Others had the same time to answer.
            if error.kind() == ErrorKind::TimedOut && std::mem::replace(&mut is_silent, true) {
                return Err(error);
            }
            self.cut((range.begin, range.at), error)?;
        }
        let unconfirmed = std::mem::take(&mut self.lock().unconfirmed);
        if unconfirmed.is_empty() {
            return Ok(());
        }
        let proofs = draft.journal.proofs();
        let find = |bytes| lost(draft.server, draft.place, self.chunk_bytes, proofs.as_ref(), bytes);
        let lost = at_once(unconfirmed, find)?;
        self.lock().lost.extend(lost.into_iter().flatten().map(u64::from));
        Ok(())
    }

    /// All that was written has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.lock().lost.is_empty()
    }

    /// The next bytes that need not come again.
    pub(super) fn next_data(&self, mut offset: u64, end: u64) -> Option<(u64, u64)> {
        let state = self.lock();
        while offset < end && state.lost.contains(&(offset / self.chunk_bytes)) {
            offset = (offset / self.chunk_bytes + 1).saturating_mul(self.chunk_bytes);
        }
        let next_lost = state.lost.range(offset / self.chunk_bytes..).next();
        let until = next_lost.map_or(end, |chunk| chunk.saturating_mul(self.chunk_bytes).min(end));
        (offset < end).then_some((offset, until))
    }

    /// Reads the beginnings of ranges back: each must stand where it belongs.
    pub(super) fn compare_begins(&self, draft: Draft<'_>) -> io::Result<()> {
        let begins: Vec<(u64, Vec<u8>)> = std::mem::take(&mut self.lock().begins).into_iter().collect();
        let step = begins.len().div_ceil(MAX_SEAMS).max(1);
        let compare = |(at, sent): (u64, Vec<u8>)| match draft.server.read_part(draft.place, at, sent.len())? == sent {
            true => Ok(()),
            false => Err(invalid(format!("the server has other bytes than were sent, from byte {at} on"))),
        };
        at_once(begins.into_iter().step_by(step).collect(), compare).map(drop)
    }

    /// Breaks all connections off.
    pub(super) fn drop_all(&self) {
        let mut state = self.lock();
        let all = (state.first.take(), std::mem::take(&mut state.idle), std::mem::take(&mut state.ended));
        drop(state);
        drop(all);
    }
}

/// The connection broke, or the server ended it. Another one may do.
fn is_cut(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, ResourceBusy, TimedOut, UnexpectedEof,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | ResourceBusy | TimedOut | UnexpectedEof
    )
}

/// A waiting lane looks so often for a connection that nobody goes on with.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

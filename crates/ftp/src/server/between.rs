//! Files that go from one server to another at this host's word ("third party"), and the sums of both.
//!
//! ```text
//! a part: where the target waits (PASV) -> the source connects there (PORT, ERET) -> 226 of both
//! a file: its parts -> sums of 16 MiB each at both servers -> what differs goes again
//! ```

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_foreign::Digest;

use super::Server;
use super::blocks::{End, Finished};
use crate::codec::listing::Facts;
use crate::control::between::{Watcher, until_end};
use crate::limits::{COMPARED_BYTES, MAX_GAPS, PROVED_AT_ONCE_BYTES, PROVING_CONNECTIONS, STREAM_BYTES, STREAMS_MAX};
use crate::pool::Purpose;

/// A server that sends, and one that takes.
#[derive(Debug)]
pub(crate) struct Between {
    from: Arc<Server>,
    to: Arc<Server>,
    /// A file went from server to server.
    has_worked: AtomicBool,
    is_given_up: AtomicBool,
}

/// The same file at both servers.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) source: &'a [u8],
    pub(crate) draft: &'a [u8],
    pub(crate) size: u64,
}

/// Bytes of a file: the first one, and how many.
pub(crate) type Gap = (u64, u64);

/// A short file, as both servers show it.
pub(crate) struct Shown {
    pub(crate) source: Option<Facts>,
    /// The target's word. `None`: it has something else.
    pub(crate) finished: Option<Finished>,
}

impl Server {
    pub(crate) fn tell_way(&self, why: &str) {
        (self.account().settings.tell)(format!("the data passes through this host: {why}"));
    }
}

impl Between {
    pub(crate) fn new(from: &Arc<Server>, to: &Arc<Server>) -> Between {
        let [has_worked, is_given_up] = [false; 2].map(AtomicBool::new);
        Between { from: Arc::clone(from), to: Arc::clone(to), has_worked, is_given_up }
    }

    pub(crate) fn has_worked(&self) -> bool {
        self.has_worked.load(Ordering::Relaxed)
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// All further files go through this host.
    pub(crate) fn give_up(&self, why: &str) {
        if !self.is_given_up.swap(true, Ordering::Relaxed) {
            self.to.tell_way(why);
        }
    }

    /// Sends a part. One that `begins` the draft is all of the file.
    pub(crate) fn send(&self, pair: Pair<'_>, (at, bytes): Gap, begins: bool, watcher: Watcher<'_>) -> io::Result<()> {
        let get = match pair.size {
            0 => self.from.on("RETR", pair.source)?,
            _ => self.from.on_part("ERET", &format!("P {at} {bytes}"), pair.source)?,
        };
        let put = match begins {
            true => self.to.on("STOR", pair.draft)?,
            false => self.to.on_part("ESTO", &format!("A {at}"), pair.draft)?,
        };
        let most = u16::try_from(self.to.account().settings.connections).unwrap_or(STREAMS_MAX).clamp(1, STREAMS_MAX);
        let streams = u16::try_from(bytes / STREAM_BYTES).unwrap_or(most).clamp(1, most);
        let mut source = self.from.pool.take(Purpose::Transfer)?;
        let mut target = self.to.pool.take(Purpose::Transfer)?;
        let address = target.waits_for(source.host())?;
        target.takes(put)?;
        source.sends_to(address, streams, get).inspect_err(|_| target.break_off())?;
        let moves = |now: u64| {
            self.from.pool.moved();
            self.to.pool.moved();
            (watcher.moves)(at + now.min(bytes));
        };
        until_end(&mut source, &mut target, Watcher { moves: &moves, ..watcher })?;
        self.has_worked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What of a file differs, of which the draft has so many bytes.
    pub(crate) fn gaps(&self, pair: Pair<'_>, has: u64, watcher: Watcher<'_>) -> io::Result<Vec<Gap>> {
        let batches = has.min(pair.size).div_ceil(PROVED_AT_ONCE_BYTES);
        let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let work = || -> io::Result<()> {
            loop {
                let batch = next.fetch_add(1, Ordering::Relaxed);
                if batch >= batches {
                    return Ok(());
                }
                if (watcher.is_over)() {
                    return Err(ErrorKind::Interrupted.into());
                }
                let gaps = self.gaps_of(pair, batch * PROVED_AT_ONCE_BYTES, has)?;
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.extend(gaps);
                if found.len() > 2 * MAX_GAPS {
                    *found = joined(std::mem::take(&mut *found));
                }
                drop(found);
                (watcher.moves)(0);
            }
        };
        std::thread::scope(|scope| {
            let workers = batches.min(PROVING_CONNECTIONS as u64);
            let spawn = |_| std::thread::Builder::new().name("compare".into()).spawn_scoped(scope, work);
            let threads = (0..workers).map(spawn).collect::<io::Result<Vec<_>>>()?;
            threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
        })?;
        let mut gaps = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        if has < pair.size {
            gaps.push((has, pair.size - has));
        }
        Ok(joined(gaps))
    }

    fn gaps_of(&self, pair: Pair<'_>, begin: u64, has: u64) -> io::Result<Vec<Gap>> {
        let end = has.min(pair.size).min(begin + PROVED_AT_ONCE_BYTES);
        let starts = (begin..end).step_by(COMPARED_BYTES as usize);
        let parts: Vec<Gap> = starts.map(|at| (at, COMPARED_BYTES.min(end - at))).collect();
        let of_source = || self.from.sums_of_parts(pair.source, &parts);
        let (source, draft) = at_both(of_source, || self.to.sums_of_parts(pair.draft, &parts))?;
        let mut gaps = Vec::new();
        for ((part, source), draft) in parts.into_iter().zip(source).zip(draft) {
            if !same(source, draft)? {
                gaps.push(part);
            }
        }
        Ok(gaps)
    }

    /// Finishes a short file, and compares it: a round trip.
    pub(crate) fn finish_short(&self, pair: Pair<'_>, end: &End) -> io::Result<Shown> {
        let part = [(0, pair.size)];
        let of_source = || -> io::Result<(Option<Digest>, Option<Facts>)> {
            let sum = if pair.size == 0 { None } else { self.from.sums_of_parts(pair.source, &part)?.pop().flatten() };
            let facts = self.from.look_at_files(&[pair.source.to_vec()])?.pop().flatten();
            Ok((sum, facts))
        };
        let ((sum, source), mut finished) = at_both(of_source, || self.to.finish(pair.draft, end))?;
        let has_all = finished.facts.as_ref().is_some_and(|facts| facts.size == Some(pair.size));
        let is_same = has_all && (pair.size == 0 || same(sum, finished.sum.take())?);
        Ok(Shown { source, finished: is_same.then_some(finished) })
    }

    /// The facts of the source, and the size of the draft.
    pub(crate) fn look(&self, pair: Pair<'_>) -> io::Result<(Option<Facts>, Option<u64>)> {
        let of = |server: &Server, path: &[u8]| -> io::Result<Option<Facts>> {
            Ok(server.look_at_files(&[path.to_vec()])?.pop().flatten())
        };
        let (source, draft) = at_both(|| of(&self.from, pair.source), || of(&self.to, pair.draft))?;
        Ok((source, draft.and_then(|facts| facts.size)))
    }
}

/// Asks both servers at the same time: each reads its file.
fn at_both<A: Send, B>(
    source: impl FnOnce() -> io::Result<A> + Send,
    target: impl FnOnce() -> io::Result<B>,
) -> io::Result<(A, B)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("compare".into()).spawn_scoped(scope, source)?;
        let of_target = target();
        Ok((thread.join().expect("it does not panic")?, of_target?))
    })
}

fn same(source: Option<Digest>, target: Option<Digest>) -> io::Result<bool> {
    let Some((source, target)) = source.zip(target) else {
        let why = "a server tells no Adler-32 of a file that went from server to server";
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    };
    Ok(source.value == target.value)
}

/// Joins neighbours. Behind the most that are kept apart, one holds all further ones.
fn joined(mut gaps: Vec<Gap>) -> Vec<Gap> {
    gaps.sort_unstable();
    let mut joined: Vec<Gap> = Vec::new();
    for (at, bytes) in gaps {
        let is_full = joined.len() >= MAX_GAPS;
        match joined.last_mut() {
            Some((start, length)) if is_full || *start + *length >= at => *length = (*length).max(at + bytes - *start),
            _ => joined.push((at, bytes)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_gaps_are_one_and_their_number_is_bounded() {
        assert_eq!(joined(vec![(20, 5), (0, 10), (10, 5)]), [(0, 15), (20, 5)]);
        let many: Vec<Gap> = (0..3 * MAX_GAPS as u64).map(|number| (number * 10, 5)).collect();
        let joined = joined(many.clone());
        assert_eq!(joined.len(), MAX_GAPS);
        let last = many.last().copied().unwrap();
        assert_eq!(joined.last().map(|(at, bytes)| at + bytes), Some(last.0 + last.1));
    }
}

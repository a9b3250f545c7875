//! Ranges of one file that go up at the same time, each over a connection of its own (REST, STOR).
//!
//! ```text
//! a trial, with two files of its own at once:   STOR, 8 KiB, stays open | meanwhile REST, STOR, a byte behind the end, or inside | SIZE
//! ```
//! A file waits for the second transfers a little longer than they are due: a server that locks its files does not answer. Then it goes up in
//! one stream.
//!
//! Most servers get one stream. vsftpd locks a file that goes up, unless `lock_upload_files=NO`. proftpd and pyftpdlib refuse to begin behind
//! the end, and pure-ftpd cuts the file off there. Also after a good trial, each file's content is looked at (`target/ranges.rs`).

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_store::{SumKind, part_name};

use super::Server;
use crate::codec::command::Command;
use crate::control::Data;
use crate::limits::{
    JUMP_BYTES_PER_US, RANGE_TRIAL_GRACE, TRIED_BEHIND, TRIED_BYTES, TRIED_WITHIN, WORTH_MICROSECOND_BYTES,
    WORTH_PARTS_BYTES, WORTH_RANGES_BYTES, WORTH_ROUND_TRIP_BYTES,
};
use crate::paths::join;
use crate::refusal::invalid;
use crate::transfer::{Line, Upload};

impl Server {
    /// Whether a file of this size is worth the trial. The server's sum must join from sums of parts, or it would be compared no longer.
    pub(crate) fn may_take_ranges(&self, size: u64) -> bool {
        let settings = &self.account().settings;
        let Some(ranges) = settings.ranges.filter(|_| settings.grid.is_none() && settings.connections > 1) else {
            return false;
        };
        let may_work = !self.ranges.has_failed() && self.ranges.found().is_none_or(|found| found);
        self.features().restarts
            && self.sum_kind().is_none_or(|kind| kind == SumKind::Adler32)
            && self.rtt_us() >= ranges.from_us
            && size / WORTH_PARTS_BYTES + SHARED_FROM_CHUNKS >= self.range_bytes() / WORTH_PARTS_BYTES * 2
            && may_work
    }

    /// The bytes that are worth a connection of their own: as many as one could send while another is begun. Lanes share files from twice as
    /// many on, and each of these has to go up in ranges. So the figure stays, although the round trip is known better later.
    pub(crate) fn range_bytes(&self) -> u64 {
        let bytes = u64::from(self.rtt_us()) * JUMP_BYTES_PER_US;
        *self.ranges.worth_bytes.get_or_init(|| bytes.max(WORTH_RANGES_BYTES))
    }

    /// Files go up in ranges: it was found out.
    pub(crate) fn sends_ranges(&self) -> bool {
        self.ranges.found() == Some(true)
    }

    /// No further file goes up in ranges.
    pub(crate) fn give_up_ranges(&self) {
        self.ranges.give_up();
    }

    /// Dials ahead, and finds out about ranges, where a file is foreseen that is worth it.
    pub(crate) fn foresee_ranges(self: &Arc<Self>) {
        let foreseen = self.account().settings.ranges.map_or(0, |ranges| ranges.foreseen_bytes);
        if self.may_take_ranges(foreseen) {
            self.pool.foresees(foreseen);
            self.pool.dial_ahead();
        }
    }

    /// Tries it in this directory before the first file asks.
    pub(crate) fn try_ranges_ahead(self: &Arc<Self>, directory: &[u8]) {
        let foreseen = self.account().settings.ranges.map_or(0, |ranges| ranges.foreseen_bytes);
        if self.may_take_ranges(foreseen) {
            self.begin_trial(directory);
        }
    }

    /// Begins the trial, if nobody has yet.
    pub(crate) fn begin_trial(self: &Arc<Self>, directory: &[u8]) {
        if !self.ranges.begin() {
            return;
        }
        let (server, directory) = (Arc::clone(self), directory.to_vec());
        let trial = move || server.ranges.enter(server.try_ranges(&directory).unwrap_or(false));
        // Without a thread, another file tries it.
        if std::thread::Builder::new().name("ftp-ranges".into()).spawn(trial).is_err() {
            self.ranges.leave();
        }
    }

    /// Whether the server writes several ranges of a file at once, each at its byte. The first to ask finds it out, and others wait.
    pub(crate) fn takes_ranges(&self, directory: &[u8]) -> bool {
        if self.ranges.begin() {
            // A trial that was cut tells nothing good of further connections.
            self.ranges.enter(self.try_ranges(directory).unwrap_or(false));
        }
        self.ranges.wait()
    }

    /// The same for a file of this size, which goes up in one stream unless the answer is near.
    pub(crate) fn takes_ranges_by_now(&self, size: u64) -> bool {
        let rtt = Duration::from_micros(self.rtt_us().into());
        let grace = self.account().settings.ranges.map_or(Duration::ZERO, |ranges| ranges.grace);
        // A packet of the trial that is lost comes within a large file's share of the time that it takes.
        let share = u32::try_from(size / WORTH_ROUND_TRIP_BYTES).unwrap_or(u32::MAX);
        let busy = Duration::from_micros(size / WORTH_MICROSECOND_BYTES);
        let allowance = (rtt / 4 + rtt.saturating_mul(share) + busy).min(self.trial_patience()) + grace;
        self.ranges.wait_in_time(Instant::now() + rtt, allowance)
    }

    fn try_ranges(&self, directory: &[u8]) -> io::Result<bool> {
        let both = [TRIED_BEHIND, TRIED_WITHIN];
        let tries = |at| move || self.try_range_at(directory, at);
        let at_once = std::thread::scope(|scope| {
            let spawn = |at| std::thread::Builder::new().name("ftp-ranges".into()).spawn_scoped(scope, tries(at));
            let threads = both.map(spawn);
            threads.map(|thread| thread?.join().expect("it does not panic"))
        });
        for (at, tried) in both.into_iter().zip(at_once) {
            // The other trial had the connections.
            let takes = tried?.map_or_else(|| self.try_range_at(directory, at), |takes| Ok(Some(takes)))?;
            if takes != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tries it with a file of its own. `None`: the server allows no two connections for it now.
    fn try_range_at(&self, directory: &[u8], at: u64) -> io::Result<Option<bool>> {
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        // Named as a draft: what a dead copy leaves is found by `clean`.
        let place = join(directory, &part_name(&number));
        let found = self.try_range_of(&place, at);
        let gone = self.on("DELE", &place)?;
        let _ = self.ask(|line| line.say(gone.clone()));
        found
    }

    /// Writes one byte at a place of a file, while another transfer to it is open. A server that locks the file would wait for that one.
    fn try_range_of(&self, place: &[u8], at: u64) -> io::Result<Option<bool>> {
        let command = self.on("STOR", place)?;
        std::thread::scope(|scope| {
            let mut first = self.upload(place, 0)?;
            // It is made ready while the first one begins. Before the first one has its connection, it could hold the last one that the
            // server allows.
            let second = std::thread::Builder::new().spawn_scoped(scope, || self.try_range());
            first.write(&[b'.'; TRIED_BYTES])?;
            let asked = Instant::now();
            first.await_begin()?;
            let took = asked.elapsed();
            let Some(second) = second?.join().expect("it does not panic")? else { return Ok(None) };
            let mut second = second.begin(command, at)?;
            self.ranges.is_due(Instant::now() + took);
            second.be_patient(self.trial_patience())?;
            let begun = second.write(b".").and_then(|()| second.end()).and_then(|()| second.await_begin());
            second.line.be_as_patient_as_usual()?;
            begun?;
            self.ranges.has_begun();
            first.end()?;
            let size = (TRIED_BYTES as u64).max(at + 1);
            let has = || -> io::Result<bool> {
                let shown = self.look_at_files(&[place.to_vec()])?.pop().flatten();
                Ok(shown.and_then(|facts| facts.size) == Some(size))
            };
            // Mostly all is written by now. A busy server may not have come to it.
            if has()? {
                return Ok(Some(true));
            }
            second.confirm()?;
            first.confirm()?;
            has().map(Some)
        })
    }

    fn trial_patience(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us()) * TRIAL_ROUND_TRIPS) + RANGE_TRIAL_GRACE
    }

    /// A connection for a range, with its data connection. `None`: all that the server allows are in use.
    pub(crate) fn try_range(&self) -> io::Result<Option<Prepared>> {
        for _ in 0..super::MAX_RESTED_TRIES {
            let Some(mut line) = self.pool.try_take()? else { return Ok(None) };
            match line.connect_data() {
                Ok(data) => return Ok(Some(Prepared { data, line })),
                Err(_) if line.is_broken() && line.has_rested => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::ConnectionAborted.into())
    }

    /// The command that begins a range, once the server was found to write it where it belongs.
    pub(crate) fn range_command(&self, path: &[u8]) -> io::Result<Command> {
        self.on("STOR", path)
    }

    /// Reads some bytes of a file back. Fewer: the file ends there.
    pub(crate) fn read_part(&self, path: &[u8], at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut download = self.download_end(path, at)?;
        if download.at != at {
            return Err(invalid("the server does not begin where it is asked to"));
        }
        let mut part = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match download.read(&mut part[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        part.truncate(filled);
        Ok(part)
    }
}

/// A data connection that waits for its command.
#[derive(Debug)]
pub(crate) struct Prepared {
    data: Data,
    line: Line,
}

impl Prepared {
    /// Begins a range at a byte behind the first one.
    pub(crate) fn begin(self, command: Command, at: u64) -> io::Result<Upload> {
        let Prepared { data, mut line } = self;
        let owes_rest = line.begin_range(command, at)?;
        Ok(Upload::of_range(data, line, owes_rest))
    }
}

/// The command, and TLS of the data connection.
const TRIAL_ROUND_TRIPS: u64 = 3;

/// A file whose lanes might just share it goes up in ranges, too.
const SHARED_FROM_CHUNKS: u64 = 2;

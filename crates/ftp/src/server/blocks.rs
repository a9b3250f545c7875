//! What is done with a server of GridFTP alone: parts of files in blocks, and the end of an upload in one step.

use std::io::{self, ErrorKind};
use std::time::Duration;

use haul_foreign::Digest;
use haul_store::{SumKind, Time};

use super::{Matter, Server, Times, WHOLE_FILE, digest_of, facts_of_file};
use crate::codec::command::Command;
use crate::codec::features::CKSM;
use crate::codec::listing::Facts;
use crate::codec::reply::Reply;
use crate::limits::{STREAM_BYTES, STREAMS_MAX, SUM_PATIENCE, WORTH_STRIPES_BYTES};
use crate::pool::Purpose;
use crate::refusal::{invalid, is_lasting};
use crate::transfer::{BlockUpload, Download};

impl Server {
    /// Connections for the files of a target are dialled as soon as the path is known.
    pub(crate) fn dial_ahead(&self) {
        if let Some(grid) = &self.account().settings.grid {
            self.pool.foresees(grid.foreseen_bytes);
        }
    }

    /// Files are asked for in blocks, as far as the server sends them.
    pub(crate) fn sends_blocks(&self) -> bool {
        self.account().habits.blocks.asks_for_them() && self.features().sends_parts
    }

    /// No further file is asked for in blocks.
    pub(crate) fn give_up_blocks(&self) {
        if self.account().habits.blocks.give_up() {
            self.tell(Matter::Blocks);
        }
    }

    /// Files of the server lie behind several data nodes, and long ones come from all of them at once, from front to back.
    pub(crate) fn is_striped(&self) -> bool {
        self.account().habits.blocks.is_striped()
    }

    /// From now on each transfer goes over one data node.
    pub(crate) fn give_up_stripes(&self, why: &io::Error) {
        self.account().habits.blocks.give_up_stripes(why);
        self.tell_of_stripes();
    }

    /// A transfer may have found that the data nodes cannot be used.
    fn tell_of_stripes(&self) {
        if let Some(why) = self.account().habits.blocks.take_why_no_stripes() {
            (self.account().settings.tell)(format!("each transfer goes over one data node of the server: {why}"));
        }
    }

    /// Begins to read all of a file of this size from all data nodes. `None`: it comes from one.
    pub(crate) fn fetch_from_all(&self, path: &[u8], size: u64) -> io::Result<Option<Download>> {
        let nodes = self.account().habits.blocks.data_nodes().len() as u64;
        if !self.is_striped() || size < WORTH_STRIPES_BYTES {
            return Ok(None);
        }
        let most = (self.account().settings.connections as u64 / nodes).clamp(1, STREAMS_MAX.into());
        let streams = (size / STREAM_BYTES / nodes).clamp(1, most) as u16;
        let begun = self.with(Purpose::Transfer, |mut line| {
            match self.on("RETR", path).and_then(|command| line.fetch_from_all(command, streams)) {
                Ok(stripes) => (Ok(Download::in_stripes(stripes, line)), None),
                Err(error) => (Err(error), Some(line)),
            }
        });
        match begun {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.give_up_stripes(&error);
                Ok(None)
            }
            begun => begun.map(Some),
        }
    }

    /// Begins to read a part of a file in blocks: all of it, if there is no `end`.
    pub(crate) fn fetch(&self, path: &[u8], at: u64, end: Option<u64>) -> io::Result<Download> {
        self.with(Purpose::Transfer, |mut line| {
            let command = match end {
                Some(end) => self.on_part("ERET", &format!("P {at} {}", end.saturating_sub(at)), path),
                None => self.on("RETR", path),
            };
            let begun = command.and_then(|command| {
                // Only new connections begin with bursts.
                let turn = if line.has_kept() { Duration::ZERO } else { self.pool.turn() };
                self.pool.pause(turn);
                line.fetch(command)
            });
            if self.account().habits.blocks.has_barred() {
                self.tell(Matter::Addresses);
            }
            match begun {
                Ok(data) => (Ok(Download::in_blocks(data, line, at, end)), None),
                Err(error) => (Err(error), Some(line)),
            }
        })
    }

    /// The server takes parts of files, each at its place.
    pub(crate) fn takes_parts(&self) -> bool {
        self.account().settings.grid.is_some() && self.features().takes_parts
    }

    pub(crate) fn is_grid(&self) -> bool {
        self.account().settings.grid.is_some()
    }

    /// Begins to write a file in blocks. `None`: all connections that the server allows are in use.
    pub(crate) fn try_store(&self, path: &[u8]) -> io::Result<Option<BlockUpload>> {
        let command = self.on_part("ESTO", "A 0", path)?;
        let Some(mut line) = self.pool.try_take()? else { return Ok(None) };
        let stored = line.store(command);
        self.tell_of_stripes();
        match stored {
            Ok(data) => Ok(Some(BlockUpload::new(data, line))),
            // The next one is dialled anew.
            Err(_) if line.is_broken() && line.has_rested => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes all of a short file in blocks, and finishes it in the same round trip where the server takes commands behind a transfer. `None`:
    /// it is yet to be finished.
    pub(crate) fn put(&self, path: &[u8], content: &[u8], end: &End) -> io::Result<Option<Finished>> {
        let takes_more = self.account().habits.blocks.takes_more();
        match self.put_once(path, content, end, takes_more) {
            // The server may refuse, or drop, what comes during a transfer.
            Err(error) if takes_more && !is_lasting(&error) => {
                self.account().habits.blocks.takes_no_more();
                self.put_once(path, content, end, false)
            }
            put => put,
        }
    }

    fn put_once(&self, path: &[u8], content: &[u8], end: &End, takes_more: bool) -> io::Result<Option<Finished>> {
        let (command, questions) = (self.on("STOR", path)?, self.questions(path, end)?);
        self.with(Purpose::Transfer, |mut line| {
            let mut upload = match line.store(command.clone()) {
                Ok(data) => BlockUpload::new(data, line),
                Err(error) => return (Err(error), Some(line)),
            };
            let sent = upload.write(content, 0).and_then(|()| upload.end());
            let put = sent.and_then(|()| match takes_more {
                true => upload.confirm_and_ask(&questions.commands).map(Some),
                false => upload.confirm().map(|()| None),
            });
            let finished = put.map(|replies| replies.and_then(|replies| questions.read(&replies)));
            (finished, Some(upload.into_line()))
        })
    }

    /// Sets the time of a file by the command that is known to do so, and looks at the file and its sum: a round trip for all.
    pub(crate) fn finish(&self, path: &[u8], end: &End) -> io::Result<Finished> {
        let questions = self.questions(path, end)?;
        self.ask(|line| {
            line.be_patient(SUM_PATIENCE)?;
            let replies = line.ask_all(&questions.commands)?;
            line.be_as_patient_as_usual()?;
            questions.read(&replies).ok_or_else(|| invalid("an answer is missing"))
        })
    }

    /// Finds out whether a file of this size stays as it is when a transfer to it begins: one without a block is made.
    pub(crate) fn keeps_what_stands(&self, path: &[u8], size: u64) -> io::Result<bool> {
        let command = self.on_part("ESTO", "A 0", path)?;
        let made = self.with(Purpose::Transfer, |mut line| {
            let mut upload = match line.store(command.clone()) {
                Ok(data) => BlockUpload::new(data, line),
                Err(error) => return (Err(error), Some(line)),
            };
            let made = upload.end().and_then(|()| upload.confirm());
            (made, Some(upload.into_line()))
        });
        self.has_kept(path, size, made)
    }

    /// The Adler-32 of parts of a file (begin, bytes), as the server reads them now. `None`: it tells none.
    pub(crate) fn sums_of_parts(&self, path: &[u8], parts: &[(u64, u64)]) -> io::Result<Vec<Option<Digest>>> {
        let on_part = |(at, bytes): &(u64, u64)| self.on_part(CKSM, &format!("ADLER32 {at} {bytes}"), path);
        let commands = parts.iter().map(on_part).collect::<io::Result<Vec<_>>>()?;
        self.ask(|line| {
            line.be_patient(SUM_PATIENCE)?;
            let replies = line.ask_all(&commands)?;
            line.be_as_patient_as_usual()?;
            let told = |reply: &Reply| reply.is_success().then(|| digest_of(SumKind::Adler32, reply)).flatten();
            Ok(replies.iter().map(told).collect())
        })
    }

    fn questions(&self, path: &[u8], end: &End) -> io::Result<Questions> {
        let time = end.mtime.map(|mtime| self.time_command(path, mtime)).transpose()?.flatten();
        let (sets_time_by, time) = time.unzip();
        let mut commands: Vec<Command> = time.into_iter().collect();
        let before = commands.len();
        commands.extend([self.on("SIZE", path)?, self.on("MDTM", path)?]);
        if end.sums {
            commands.push(self.on_part(CKSM, WHOLE_FILE, path)?);
        }
        Ok(Questions { commands, before, sets_time_by })
    }
}

/// How a written file is finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) mtime: Option<Time>,
    /// The server is asked for its Adler-32.
    pub(crate) sums: bool,
}

/// The questions that finish a file.
struct Questions {
    commands: Vec<Command>,
    /// The look begins behind so many.
    before: usize,
    sets_time_by: Option<Times>,
}

impl Questions {
    fn read(&self, replies: &[Reply]) -> Option<Finished> {
        let (looked, sum) = replies.get(self.before..)?.split_at_checked(2)?;
        let sum = sum.first().filter(|reply| reply.is_success());
        Some(Finished {
            facts: facts_of_file(looked),
            sum: sum.and_then(|reply| digest_of(SumKind::Adler32, reply)),
            sets_time_by: self.sets_time_by,
        })
    }
}

/// The server's word on a file that was written.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) facts: Option<Facts>,
    /// Its sum, where the server tells one.
    pub(crate) sum: Option<Digest>,
    pub(crate) sets_time_by: Option<Times>,
}

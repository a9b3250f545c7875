//! Writes a stream of unknown length into a file: `haul cp - host:file`.
//!
//! ```text
//!   read -> block -> Data (with its hash) ===>  compare -> draft
//!   end  -> Whole (length, hash)          --->  compare -> flush -> final name
//!                                         <---  Whole, End
//! ```
//! A stream that breaks earlier removes its draft.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use haul_job::{Error, Far, Fault, Here, Observer, Place};
use haul_store::{LocalTree, Metadata, Part, TargetOptions};
use haul_wire::control::Control;
use haul_wire::place::{PAGE_BYTES, PAGES_AHEAD, PlaceWord, Question, Told, Verb, Whole};

use super::arriving::Arriving;
use super::asking::{TAKEN_AT_ONCE, begin, interrupted};
use super::request::Request;
use haul_channel::channel::{self, Channel, Events, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::failure::Failure;
use haul_channel::reporter::Watch;
use haul_channel::{convert, farewell};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_reach::remote::Remote;

const READ_AHEAD: usize = 8;

/// Writes `input` into the file of the request ([`Verb::Write`]).
///
/// # Errors
/// `input` or the file failed, or the place cannot be reached or broke off. Then the name shows no new file.
pub fn write(
    request: &Request,
    input: impl Read + Send + 'static,
    surroundings: &Surroundings,
    observer: Arc<dyn Observer>,
) -> Result<Whole, Error> {
    let watch = Arc::new(Watch::new(observer));
    let blocks = read_ahead(input)?;
    let result = match &request.place {
        Place::Here(Here::Disk) => write_here(&request.question, &blocks, &watch),
        Place::Far(far) => write_there(request, far, &blocks, surroundings, &watch),
        Place::Here(
            made_up @ (Here::Zero { .. }
            | Here::Stripes { .. }
            | Here::Sftp { .. }
            | Here::Web(_)
            | Here::Ftp(_)
            | Here::SshFtp { .. }
            | Here::S3 { .. }
            | Here::Null),
        ) => Err(Error::new(Fault::Usage, format!("a stream cannot be written to {made_up}"))),
    };
    result.map_err(|error| if watch.interrupted() { interrupted() } else { error })
}

type Blocks = Receiver<io::Result<Vec<u8>>>;

/// A thread reads, because a read cannot be interrupted.
fn read_ahead(mut input: impl Read + Send + 'static) -> Result<Blocks, Error> {
    let (sender, blocks) = sync_channel(READ_AHEAD);
    let read = move || loop {
        let mut block = vec![0; PAGE_BYTES];
        let read = fill(&mut input, &mut block);
        if let Ok(length) = read {
            block.truncate(length);
        }
        let is_last = !matches!(read, Ok(length) if length > 0);
        if sender.send(read.map(|_| block)).is_err() || is_last {
            return;
        }
    };
    let started = std::thread::Builder::new().name("stream".into()).spawn(read);
    started.map(|_| blocks).map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))
}

/// Pipes give small pieces.
fn fill(input: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match input.read(&mut block[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn unreadable(error: &io::Error) -> Error {
    Error::new(Fault::FileIo, "cannot read the stream").because(error)
}

fn write_here(question: &Question, blocks: &Blocks, watch: &Watch) -> Result<Whole, Error> {
    let mut draft = Draft::open(question, &TargetOptions::default())?;
    loop {
        if watch.interrupted() {
            return Err(interrupted());
        }
        match blocks.recv_timeout(TICK) {
            Ok(Ok(block)) if block.is_empty() => return draft.finish(None),
            Ok(Ok(block)) => draft.block(&block, blake3::hash(&block).as_bytes())?,
            Ok(Err(error)) => return Err(unreadable(&error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(unreadable(&io::ErrorKind::BrokenPipe.into())),
        }
    }
}

fn write_there(
    request: &Request,
    far: &Far,
    blocks: &Blocks,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Whole, Error> {
    let mut remote = begin(request, far, surroundings, watch)?;
    let child = remote.take_child();
    let clock = Clock::new(u32::try_from(request.carriage.timeout.as_millis()).unwrap_or(u32::MAX));
    let channel = remote.channel.clone();
    let mut sending =
        Sending { remote: &remote, watch, clock, room: PAGES_AHEAD, sent: Arriving::default(), taken: None };
    let result = sending.all(blocks);
    farewell::close(&channel, &result);
    if let Some(child) = child {
        child.end();
    }
    result.map_err(|error| error.at(far))
}

struct Sending<'a> {
    remote: &'a Remote,
    watch: &'a Watch,
    clock: Clock,
    room: u16,
    sent: Arriving,
    taken: Option<Whole>,
}

impl Sending<'_> {
    fn all(&mut self, blocks: &Blocks) -> Result<Whole, Error> {
        let outbox = self.remote.channel.outbox();
        loop {
            while self.room == 0 {
                self.hear(TICK)?;
            }
            match blocks.recv_timeout(TICK) {
                Ok(Ok(block)) if block.is_empty() => break,
                Ok(Ok(bytes)) => {
                    let blake3 = *blake3::hash(&bytes).as_bytes();
                    self.sent.block(&bytes, &blake3)?;
                    self.room -= 1;
                    outbox.send(Control::Place(PlaceWord::Data { bytes, blake3 }));
                }
                Ok(Err(error)) => return Err(unreadable(&error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(unreadable(&io::ErrorKind::BrokenPipe.into())),
            }
            self.hear(Duration::ZERO)?;
        }
        let whole = self.sent.whole();
        outbox.send(Control::Place(PlaceWord::Whole(whole)));
        while !self.hear(TICK)? {}
        match self.taken {
            Some(taken) if taken == whole => Ok(whole),
            _ => Err(Error::new(Fault::Verification, "the far side has not all that was sent")),
        }
    }

    /// Returns true after the last message.
    fn hear(&mut self, limit: Duration) -> Result<bool, Error> {
        self.clock.turn(self.watch, &self.remote.channel, &Failure::default())?;
        let mut limit = limit;
        while let Some(event) = self.remote.events.next(limit) {
            limit = Duration::ZERO;
            match event {
                SessionEvent::Control(Control::Place(PlaceWord::More { pages })) => {
                    let room = self.room.checked_add(pages).filter(|room| *room <= PAGES_AHEAD);
                    self.room = room.ok_or_else(|| Error::broke_the_protocol("it takes more than was sent"))?;
                }
                SessionEvent::Control(Control::Place(PlaceWord::Told(lines))) => {
                    for line in lines {
                        if let Told::Whole(whole) = line {
                            self.taken = Some(whole);
                        }
                    }
                }
                SessionEvent::Control(Control::Place(PlaceWord::End)) => return Ok(true),
                SessionEvent::Control(Control::AgentHello(hello)) => self.remote.far_end.on_hello(hello)?,
                SessionEvent::Control(Control::Abort(abort)) => return Err(convert::error_of(abort)),
                SessionEvent::Control(other) => return Err(faults::unexpected(&other)),
                SessionEvent::ControlEnded(why) => return Err(self.remote.far_end.explain(channel::ended(why))),
                _ => {}
            }
        }
        Ok(false)
    }
}

pub fn take(
    question: &Question,
    options: &TargetOptions,
    (events, channel, watch): (&Events, &Channel, &Watch),
    timeout_ms: u32,
) -> Result<Whole, Error> {
    let mut draft = Draft::open(question, options)?;
    let (mut clock, mut untold) = (Clock::new(timeout_ms), 0);
    loop {
        clock.turn(watch, channel, &Failure::default())?;
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Place(PlaceWord::Data { bytes, blake3 }))) => {
                watch.spend(bytes.len() as u64)?;
                draft.block(&bytes, &blake3)?;
                untold += 1;
            }
            Some(SessionEvent::Control(Control::Place(PlaceWord::Whole(whole)))) => return draft.finish(Some(&whole)),
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(_) | None => {}
        }
        if untold >= TAKEN_AT_ONCE {
            channel.outbox().send(Control::Place(PlaceWord::More { pages: std::mem::take(&mut untold) }));
        }
    }
}

struct Draft {
    tree: LocalTree,
    part: Part,
    arriving: Arriving,
    is_named: bool,
}

impl Draft {
    fn open(question: &Question, options: &TargetOptions) -> Result<Self, Error> {
        debug_assert_eq!(question.verb, Verb::Write);
        let path = question.paths.first().map(Vec::as_slice).unwrap_or_default();
        let options = TargetOptions { single_file: true, ..options.clone() };
        let (tree, name) = LocalTree::open(path, &options).map_err(|error| faults::store_error(&error))?;
        let Some(name) = name else {
            let shown = haul_store::printable(path);
            let what = format!("a stream has no name of its own, and {shown} is a directory");
            return Err(Error::new(Fault::Usage, what).try_this(format!("name the file: {shown}/NAME")));
        };
        let part = tree.new_part(&name, false).map_err(|error| faults::store_error(&error))?;
        Ok(Self { tree, part, arriving: Arriving::default(), is_named: false })
    }

    fn block(&mut self, bytes: &[u8], blake3: &[u8; 32]) -> Result<(), Error> {
        let offset = self.arriving.whole_bytes();
        self.arriving.block(bytes, blake3)?;
        self.part.write_at(bytes, offset).map_err(|error| faults::store_error(&error))
    }

    /// Names the draft, if its hash is `claimed`.
    fn finish(mut self, claimed: Option<&Whole>) -> Result<Whole, Error> {
        let whole = self.arriving.whole();
        if claimed.is_some_and(|claimed| *claimed != whole) {
            return Err(Error::new(Fault::Verification, "what arrived is not all that was sent"));
        }
        self.part.commit(&Metadata::default(), true).map_err(|error| faults::store_error(&error))?;
        self.is_named = true;
        self.tree.flush_dir(b"").map_err(|error| faults::store_error(&error))?;
        Ok(whole)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_named {
            // Its name does not look like a file; `haul clean` shows it.
            let _ = self.part.discard();
        }
    }
}

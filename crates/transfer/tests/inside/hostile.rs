//! Tests peers that break the protocol, in one process and in milliseconds: the test chooses each message and byte of one end.

#[cfg(test)]
mod hosts;
#[cfg(test)]
mod initiators;
#[cfg(test)]
mod leaders;
#[cfg(test)]
mod receivers;
#[cfg(test)]
mod senders;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_engine::integrity::UnitHasher;
use haul_engine::plan::ChunkLayout;
use haul_job::{Error, Event, Fault, Observer};
use haul_net::{ReadHalf, Stream, WriteHalf};
use haul_wire::control::{self as wire, Control, OutcomeKind};
use haul_wire::lane::{BlockHeader, Encoding, Trailer, UnitHeader, UnitKind};
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Packer};
use haul_wire::{RelPath, codec};

use haul_channel::channel::{Channel, Events, LaneEvent, PING_EVERY, SessionEvent, read_message};
use haul_channel::reporter::Watch;
use haul_kept::faults;

/// Asks only for names and data: not even for a flush.
fn bare() -> wire::Selection {
    wire::Selection { sparse: false, flush: false, make_target: false, ..wire::Selection::default() }
}

const PATIENCE: Duration = Duration::from_secs(30);

const SHORT_MS: u32 = 300;

struct Deaf;

impl Observer for Deaf {
    fn on_event(&self, _: &Event) {}

    fn interrupted(&self) -> bool {
        false
    }
}

struct Peer {
    control: WriteHalf,
    heard: Receiver<Option<Control>>,
    lane: Stream,
    end: JoinHandle<Result<(), Error>>,
    asked_for: RefCell<BTreeSet<u64>>,
    outcomes: RefCell<BTreeMap<u64, OutcomeKind>>,
}

impl Peer {
    fn facing(
        number: u16,
        real: impl FnOnce(Events, &Channel, &Arc<Watch>) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let (ours, theirs) = Stream::plain_pair().unwrap();
        let (lane, their_lane) = Stream::plain_pair().unwrap();
        let end = std::thread::spawn(move || {
            let events = Events::new();
            let channel = Channel::open(theirs, events.sender(), PING_EVERY).unwrap();
            assert!(events.sender().try_send(SessionEvent::Lane(LaneEvent::Up(their_lane, number))).is_ok());
            real(events, &channel, &Arc::new(Watch::new(Arc::new(Deaf))))
        });
        let (input, control) = ours.split();
        Self::new(control, heard(input), lane, end)
    }

    fn new(
        control: WriteHalf,
        heard: Receiver<Option<Control>>,
        lane: Stream,
        end: JoinHandle<Result<(), Error>>,
    ) -> Self {
        Self { control, heard, lane, end, asked_for: RefCell::default(), outcomes: RefCell::default() }
    }

    /// A missing receiver shows in its own result.
    fn says(&mut self, message: &Control) {
        self.says_bytes(&frame(message));
    }

    fn says_bytes(&mut self, bytes: &[u8]) {
        let _ = self.control.write_all(bytes).and_then(|()| self.control.flush());
    }

    fn hears<T>(&self, mut wanted: impl FnMut(Control) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Some(message)) => {
                    self.note(&message);
                    if let Some(found) = wanted(message) {
                        return found;
                    }
                }
                Ok(None) | Err(RecvTimeoutError::Disconnected) => panic!("the other end went away"),
                Err(RecvTimeoutError::Timeout) => panic!("it never came"),
            }
        }
    }

    fn note(&self, message: &Control) {
        match message {
            Control::Answers(answers) => self.asked_for.borrow_mut().extend(answers.iter().map(|answer| answer.index)),
            Control::Outcomes(outcomes) => {
                let outcomes = outcomes.iter().map(|outcome| (outcome.index, outcome.result.clone()));
                self.outcomes.borrow_mut().extend(outcomes);
            }
            _ => {}
        }
    }

    fn loses_its_lane(&self) {
        self.hears(|message| matches!(message, Control::LaneLost { lane: 0 }).then_some(()));
    }

    fn leaves(self) {
        drop(self.control);
        self.lane.shutdown_handle().shutdown();
    }

    fn is_asked_for(&self, index: u64) {
        while !self.asked_for.borrow().contains(&index) {
            self.hears(|message| matches!(message, Control::Answers(_)).then_some(()));
        }
    }

    fn outcome_of(&self, index: u64) -> OutcomeKind {
        loop {
            if let Some(result) = self.outcomes.borrow().get(&index) {
                return result.clone();
            }
            self.hears(|message| matches!(message, Control::Outcomes(_)).then_some(()));
        }
    }

    fn sends(&mut self, bytes: &[u8]) {
        let _ = self.lane.write_all(bytes).and_then(|()| self.lane.flush());
    }

    /// Sends only pings until the other end has enough.
    fn only_lives(mut self, mut besides: impl FnMut(&mut Self)) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while !self.end.is_finished() && Instant::now() < end {
            self.says(&Control::Ping { received: 0, turn: 1, sent_us: 0 });
            besides(&mut self);
            let _ = self.heard.recv_timeout(Duration::from_millis(20));
        }
        assert!(self.end.is_finished(), "it waits for ever");
        self.end.join().unwrap()
    }

    fn ended(self) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while !self.end.is_finished() && Instant::now() < end {
            let _ = self.heard.recv_timeout(Duration::from_millis(20));
        }
        assert!(self.end.is_finished(), "it goes on");
        self.end.join().unwrap()
    }

    #[track_caller]
    fn broke_the_protocol(self, why: &str) {
        let error = self.ended().unwrap_err();
        assert_eq!(error.fault, Fault::Protocol, "{error:?}");
        assert!(error.cause.as_deref().unwrap_or_default().contains(why), "{error:?}");
    }
}

fn heard(mut input: ReadHalf) -> Receiver<Option<Control>> {
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Ok(Some(message)) = read_message(&mut input, &mut buffer) {
            let _ = sender.send(Some(message));
        }
        let _ = sender.send(None);
    });
    heard
}

fn frame(message: &Control) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).unwrap();
    bytes
}

fn on_other_message(message: Control) -> Result<(), Error> {
    Err(faults::unexpected(&message))
}

fn carriage(timeout_ms: u32) -> wire::Carriage {
    wire::Carriage { timeout_ms, ..wire::Carriage::default() }
}

fn item(path: &str, kind: ItemKind) -> Item {
    let attributes = Attributes { mode: 0o644, ..Attributes::default() };
    Item { path: RelPath::new(path.as_bytes().to_vec()).unwrap(), kind, attributes }
}

fn file(path: &str, size: u64) -> Item {
    let identity = Identity { size, mtime: Default::default(), ctime: Default::default(), inode: 1 };
    item(path, ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 })
}

fn sparse(path: &str, size: u64) -> Item {
    let mut item = file(path, size);
    if let ItemKind::File { hole_bytes, .. } = &mut item.kind {
        *hole_bytes = size;
    }
    item
}

fn unit(kind: UnitKind, index: u64, chunk: u32, size: u64, data: &[u8]) -> Vec<u8> {
    let mut hasher = UnitHasher::new(&ChunkLayout::of(size), chunk);
    hasher.update(data);
    let blocks: Vec<(Encoding, &[u8])> =
        data.chunks(haul_wire::limits::BLOCK_BYTES).map(|block| (Encoding::Plain, block)).collect();
    unit_of(UnitHeader { kind, index, chunk }, &blocks, Trailer::Complete(hasher.finish()))
}

fn unit_of(header: UnitHeader, blocks: &[(Encoding, &[u8])], trailer: Trailer) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    for (encoding, block) in blocks {
        let header = BlockHeader { bytes: u32::try_from(block.len()).unwrap(), encoding: *encoding };
        bytes.extend(header.encode());
        bytes.extend_from_slice(block);
    }
    bytes.extend(BlockHeader::LAST.encode());
    bytes.extend(trailer.encode());
    bytes
}

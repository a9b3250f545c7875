//! Sends an answer page by page, as fast as the peer takes it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::Error;
use haul_wire::control::Control;
use haul_wire::place::{MAX_PAGE_LINES, PAGE_BYTES, PAGES_AHEAD, PlaceWord, Told};

use super::hearer::Hearer;
use haul_channel::channel::{self, Channel, Events, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::convert;
use haul_channel::failure::Failure;
use haul_channel::reporter::Watch;
use haul_kept::faults;

/// A person may read along.
const PAGE_EVERY: Duration = Duration::from_millis(100);

const LISTEN_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Paged<'a> {
    events: &'a Events,
    channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    page: Vec<Told>,
    page_bytes: usize,
    room: u16,
    left_at: Instant,
    listened_at: Instant,
    pub data_bytes: u64,
    pub lines: u64,
    failed: Option<Error>,
}

impl<'a> Paged<'a> {
    pub fn new(events: &'a Events, channel: &'a Channel, watch: &'a Arc<Watch>, timeout_ms: u32) -> Self {
        Self {
            events,
            channel,
            watch,
            clock: Clock::new(timeout_ms),
            page: Vec::new(),
            page_bytes: 0,
            room: PAGES_AHEAD,
            left_at: Instant::now(),
            listened_at: Instant::now(),
            data_bytes: 0,
            lines: 0,
            failed: None,
        }
    }

    pub fn end(&mut self) -> Result<(), Error> {
        if self.flush().is_continue() {
            self.channel.outbox().send(Control::Place(PlaceWord::End));
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> ControlFlow<()> {
        if self.page.is_empty() {
            return self.go_on();
        }
        self.page_bytes = 0;
        let page = std::mem::take(&mut self.page);
        self.send(PlaceWord::Told(page))
    }

    fn send(&mut self, word: PlaceWord) -> ControlFlow<()> {
        while self.room == 0 {
            self.listen(TICK)?;
        }
        self.room -= 1;
        self.left_at = Instant::now();
        self.channel.outbox().send(Control::Place(word));
        self.go_on()
    }

    fn go_on(&mut self) -> ControlFlow<()> {
        if self.failed.is_none() && self.listened_at.elapsed() < LISTEN_EVERY {
            return ControlFlow::Continue(());
        }
        self.listen(Duration::ZERO)
    }

    fn listen(&mut self, limit: Duration) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        self.listened_at = Instant::now();
        match self.hear(limit) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn hear(&mut self, limit: Duration) -> Result<(), Error> {
        self.clock.turn(self.watch, self.channel, &Failure::default())?;
        let mut limit = limit;
        while let Some(event) = self.events.next(limit) {
            limit = Duration::ZERO;
            match event {
                SessionEvent::Control(Control::Place(PlaceWord::More { pages })) => {
                    let room = self.room.checked_add(pages).filter(|room| *room <= PAGES_AHEAD);
                    self.room = room.ok_or_else(|| Error::broke_the_protocol("it takes more than was sent"))?;
                }
                SessionEvent::Control(Control::Abort(abort)) => return Err(convert::error_of(abort)),
                SessionEvent::Control(other) => return Err(faults::unexpected(&other)),
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Hearer for Paged<'_> {
    fn line(&mut self, line: Told) -> ControlFlow<()> {
        self.page_bytes += line.weight_bytes();
        self.page.push(line);
        self.lines += 1;
        let is_full = self.page.len() >= MAX_PAGE_LINES || self.page_bytes >= PAGE_BYTES;
        if is_full || self.left_at.elapsed() >= PAGE_EVERY { self.flush() } else { self.go_on() }
    }

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.flush()?;
        if let Err(error) = self.watch.spend(bytes.len() as u64) {
            self.failed.get_or_insert(error);
            return ControlFlow::Break(());
        }
        self.data_bytes += bytes.len() as u64;
        let blake3 = *blake3::hash(bytes).as_bytes();
        self.send(PlaceWord::Data { bytes: bytes.to_vec(), blake3 })
    }

    fn busy(&mut self) -> ControlFlow<()> {
        if self.left_at.elapsed() >= PAGE_EVERY { self.flush() } else { self.go_on() }
    }
}

//! The sending side: the engine's [`Sending`], [`Packer`] and [`Tally`], and around them what `transfer` does on threads.

use std::collections::VecDeque;
use std::rc::Rc;

use haul_engine::integrity::UnitHasher;
use haul_engine::plan::ChunkLayout;
use haul_engine::schedule::{Retry, Unit};
use haul_engine::sending::{Offered, Sending};
use haul_engine::tally::Tally;
use haul_wire::control::{Control, FailureKind, OutcomeKind, Void, Withdraw};
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Packer};

use super::run::{Around, Event, Frame};
use super::source::{self, SourceFile};

/// Frames that sockets hold.
const FRAMES_UNDER_WAY: usize = 8;

/// As in `transfer`.
const UNITS_AT_ONCE: usize = 16;

#[derive(Debug)]
pub struct Offer {
    index: u64,
    identity: Identity,
    layout: ChunkLayout,
    file: usize,
    is_retry: bool,
}

/// `Rc` is foreign to the engine.
#[derive(Clone, Debug)]
pub struct Offering(Rc<Offer>);

impl Offered for Offering {
    fn layout(&self) -> ChunkLayout {
        self.0.layout
    }
}

#[derive(Debug, Default)]
pub struct SenderLane {
    pub serial: usize,
    pub alive: bool,
    units: VecDeque<(Unit, Offering)>,
    carried: Option<Carried>,
    under_way: usize,
    /// The lane does not look by itself.
    waits: bool,
}

#[derive(Debug)]
struct Carried {
    unit: Unit,
    offer: Offering,
    next: u64,
    end: u64,
    hasher: Hasher,
}

struct Hasher(UnitHasher);

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hasher")
    }
}

#[derive(Debug, Default)]
pub struct Sender {
    items: Sending<Offering>,
    packer: Packer,
    pub tally: Tally,
    /// The directory comes first, its end last.
    walked: usize,
    pub lanes: Vec<SenderLane>,
    pub done: bool,
}

impl Sender {
    pub fn new(lanes: usize) -> Self {
        let lane = |serial| SenderLane { serial, alive: true, waits: true, ..SenderLane::default() };
        Self { lanes: (0..lanes).map(lane).collect(), ..Self::default() }
    }

    /// True: there is more.
    pub fn walk(&mut self, sources: &[SourceFile], around: &mut Around) -> bool {
        let at = self.walked;
        let item = match at.checked_sub(1).map(|file| sources.get(file)) {
            None => Item { path: source::path("d"), kind: ItemKind::Directory, attributes: Attributes::default() },
            Some(Some(file)) if file.deleted => {
                self.walked += 1;
                return true;
            }
            Some(Some(file)) => file.item(),
            Some(None) if at == sources.len() + 1 => {
                let kind = ItemKind::DirectoryEnd { complete: true };
                Item { path: source::path("d"), kind, attributes: Attributes::default() }
            }
            Some(None) => {
                self.items.walk_done();
                self.tally.on_end_of_manifest();
                around.say_to_receiver(Control::EndOfManifest);
                return false;
            }
        };
        if !self.items.has_room(item.weight_bytes()) {
            return true;
        }
        self.walked += 1;
        let packed = self.offer(item, at.wrapping_sub(1), false);
        around.say_to_receiver(Control::Items(vec![packed]));
        true
    }

    fn offer(&mut self, item: Item, file: usize, is_retry: bool) -> haul_wire::manifest::PackedItem {
        self.tally.on_item(&item).expect("no more is open than agreed");
        let index = self.items.next_index();
        let offer = match &item.kind {
            ItemKind::File { identity, .. } => {
                let layout = ChunkLayout::of(identity.size);
                Some(Offering(Rc::new(Offer { index, identity: *identity, layout, file, is_retry })))
            }
            _ => None,
        };
        let push = if is_retry { Sending::push_retry } else { Sending::push };
        assert_eq!(push(&mut self.items, offer, item.weight_bytes()), index);
        self.packer.pack(&item)
    }

    pub fn hear(&mut self, message: Control, around: &mut Around) {
        match message {
            Control::Answers(answers) => {
                for answer in answers {
                    self.items.want(answer.index, &answer.wanted).expect("an honest receiver");
                }
            }
            Control::Receipts(receipts) => {
                for receipt in receipts {
                    self.tally.on_receipt(&receipt).expect("a receipt before its outcome");
                    self.items.on_receipt(Unit { index: receipt.index, chunk: receipt.chunk });
                }
            }
            Control::Outcomes(outcomes) => {
                for outcome in outcomes {
                    let counted = self.tally.on_outcome(&outcome, &mut |_| ());
                    counted.expect("one outcome for each item");
                    let failed = matches!(outcome.result, OutcomeKind::Failed { .. });
                    self.items.settle(outcome.index, failed).expect("an item that is open");
                }
            }
            Control::Again { index, chunk } => {
                if self.items.again(Unit { index, chunk }) == Retry::GiveUp {
                    let (why, kind) = ("it did not verify".into(), FailureKind::Unverified);
                    around.say_to_receiver(Control::Withdraw(Withdraw { index, why, kind, retry: None }));
                }
            }
            Control::Void(Void { index, chunk, lane }) => {
                let unit = Unit { index, chunk };
                if self.items.lane_of(unit) == Some(lane) {
                    self.items.repair(unit);
                }
            }
            Control::LaneLost { lane } => self.lane_died(usize::from(lane), around),
            Control::Summary(_) => {
                self.done = self.items.on_summary().expect("the receiver ends with items open");
                assert!(!self.done || self.items.flying() == 0, "units are awaited of items that are settled");
            }
            other => panic!("the receiver says {other:?}"),
        }
        self.wake(around);
    }

    fn wake(&mut self, around: &mut Around) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.alive
                && lane.waits
                && (!self.items.is_drained() || lane.carried.is_some() || !lane.units.is_empty())
            {
                lane.waits = false;
                around.at(0, Event::SenderLane(number, lane.serial));
            }
        }
    }

    pub fn lane_died(&mut self, number: usize, around: &mut Around) {
        self.items.lane_died(number as u16);
        let lane = &mut self.lanes[number];
        if std::mem::replace(&mut lane.alive, false) {
            let delay_us = around.chance.between(1_000, 500_000);
            around.at(delay_us, Event::Redial(number, lane.serial));
        }
        self.wake(around);
    }

    pub fn lane_up(&mut self, number: usize, serial: usize, around: &mut Around) {
        self.lanes[number] = SenderLane { serial, alive: true, waits: true, ..SenderLane::default() };
        self.wake(around);
    }

    pub fn room(&mut self, number: usize, serial: usize, around: &mut Around) {
        let lane = &mut self.lanes[number];
        if lane.serial == serial && lane.alive {
            lane.under_way -= 1;
            self.wake(around);
        }
    }

    pub fn step(&mut self, number: usize, serial: usize, sources: &[SourceFile], around: &mut Around) {
        let lane = &mut self.lanes[number];
        if !lane.alive || lane.serial != serial {
            return;
        }
        if lane.under_way >= FRAMES_UNDER_WAY {
            lane.waits = true;
            return;
        }
        let frame = match &mut lane.carried {
            None => {
                if lane.units.is_empty() {
                    lane.units =
                        self.items.take(number as u16, haul_engine::schedule::To::Leader, UNITS_AT_ONCE).into();
                }
                let Some((unit, offer)) = lane.units.pop_front() else {
                    lane.waits = true;
                    return;
                };
                if sources[offer.0.file].deleted {
                    self.withdraw(&offer, FailureKind::Vanished, sources, around);
                    around.at(0, Event::SenderLane(number, serial));
                    return;
                }
                let places = source::places(&offer.0.layout, unit.chunk);
                let hasher = Hasher(UnitHasher::new(&offer.0.layout, unit.chunk));
                around.trace(|| format!("lane {number} begins {unit:?}"));
                lane.carried = Some(Carried { unit, offer, next: places.start, end: places.end, hasher });
                Frame::Header(unit)
            }
            Some(carried) if carried.next < carried.end => {
                let now = sources[carried.offer.0.file].now();
                if carried.next < now.blocks() {
                    let block = now.block(carried.next);
                    carried.hasher.0.update(&block.to_le_bytes());
                    carried.next += 1;
                    Frame::Block(block)
                } else {
                    self.end_unit(number, false, sources, around)
                }
            }
            Some(carried) => {
                let file = &sources[carried.offer.0.file];
                let unchanged = !file.deleted && file.now().identity == carried.offer.0.identity;
                self.end_unit(number, unchanged, sources, around)
            }
        };
        self.lanes[number].under_way += 1;
        around.send(number, serial, frame);
    }

    fn end_unit(&mut self, number: usize, unchanged: bool, sources: &[SourceFile], around: &mut Around) -> Frame {
        let carried = self.lanes[number].carried.take().expect("a unit under way");
        if unchanged {
            return Frame::Trailer(Some(carried.hasher.0.finish()));
        }
        around.trace(|| format!("lane {number}: {:?} changed while it was read", carried.unit));
        self.withdraw(&carried.offer, FailureKind::Changed, sources, around);
        Frame::Trailer(None)
    }

    fn withdraw(&mut self, offer: &Offering, kind: FailureKind, sources: &[SourceFile], around: &mut Around) {
        let file = &sources[offer.0.file];
        let fresh = (kind == FailureKind::Changed && !offer.0.is_retry && !file.deleted).then(|| file.item());
        if !self.items.withdraw(offer.0.index) {
            return;
        }
        around.count.withdrawn += 1;
        let retry = fresh.map(|item| self.offer(item, offer.0.file, true));
        let why = "it changed, or is gone".into();
        around.say_to_receiver(Control::Withdraw(Withdraw { index: offer.0.index, why, kind, retry }));
    }

    pub fn open_items(&self) -> usize {
        self.items.open_items()
    }
}

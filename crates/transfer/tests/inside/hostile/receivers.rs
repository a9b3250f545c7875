//! Tests a real sender against hostile receivers.

use std::io::Read as _;

use haul_engine::schedule::MAX_REPAIRS;
use haul_wire::control::{
    Answer, Brought, ChunkRange, FailureKind, Outcome, Receipt, ReceiverSummary, SenderSummary, Void, Wanted,
};
use haul_wire::lane::{BLOCK_HEADER_BYTES, TRAILER_BYTES, UNIT_HEADER_BYTES};
use haul_wire::limits::{BLOCK_BYTES, MIN_CHUNK_BYTES};

use haul_channel::channel::EventSender;
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::role_context::RoleContext;
use haul_copy::sender::{self, SenderJob};
use haul_kept::class_policy::Permits;
use haul_kept::hook_words::Outlet;

use super::*;

#[cfg(test)]
mod findings;
#[cfg(test)]
mod lending;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod standing;

const DIRECTORY: u64 = 0;
const LARGE: u64 = 1;
const SMALL: u64 = 2;
const SECRET: u64 = 3;

const CHUNKS: u32 = 3;

struct Source {
    dir: tempfile::TempDir,
    peer: Peer,
}

impl Source {
    fn open() -> Self {
        Self::with_limit(20_000)
    }

    fn with_limit(timeout_ms: u32) -> Self {
        Self::of(carriage(timeout_ms))
    }

    fn of(carriage: wire::Carriage) -> Self {
        Self::asked(carriage, bare())
    }

    fn asked(carriage: wire::Carriage, selection: wire::Selection) -> Self {
        Self::with_spare(carriage, selection, None)
    }

    fn with_spare(carriage: wire::Carriage, selection: wire::Selection, spare: Option<Stream>) -> Self {
        Self::with_secret(carriage, selection, spare, None)
    }

    fn with_secret(
        carriage: wire::Carriage,
        selection: wire::Selection,
        spare: Option<Stream>,
        secret: Option<&[u8]>,
    ) -> Self {
        Self::planted(carriage, selection, spare, secret, 0, |_, _| ())
    }

    fn on_lane(number: u16, change: impl FnOnce(&mut SenderJob, EventSender) + Send + 'static) -> Self {
        Self::planted(carriage(20_000), bare(), None, None, number, change)
    }

    fn planted(
        carriage: wire::Carriage,
        selection: wire::Selection,
        spare: Option<Stream>,
        secret: Option<&[u8]>,
        number: u16,
        change: impl FnOnce(&mut SenderJob, EventSender) + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if let Some(secret) = secret {
            std::fs::write(dir.path().join("the-secret"), secret).unwrap();
        }
        let size = usize::try_from(MIN_CHUNK_BYTES).unwrap() * CHUNKS as usize;
        std::fs::write(dir.path().join("large"), vec![5; size]).unwrap();
        std::fs::write(dir.path().join("small"), "small").unwrap();
        let mut path = dir.path().to_owned().into_os_string().into_encoded_bytes();
        path.push(b'/');
        let mut job = SenderJob {
            hand_over: None,
            outbound: None,
            movers: Default::default(),
            is_mover: false,
            far: false,
            remembers: None,
            home: None,
            direct_from_bytes: haul_store::DIRECT_FROM_BYTES,
            early: None,
            sources: sender::Sources::Paths(vec![path]),
            listed: None,
            confine: None,
            expand_globs: false,
            selection,
            carriage,
            permits: Permits::default(),
            hooks: None,
        };
        let peer = Peer::facing(number, move |events, channel, watch| {
            change(&mut job, events.sender());
            let mut keeper = Spare { lane: spare, events: events.sender() };
            sender::run(
                job,
                RoleContext { events, channel, watch, keeper: &mut keeper, on_other_message: &mut on_other_message },
            )
            .map(drop)
        });
        peer.hears(|message| matches!(message, Control::EndOfManifest).then_some(()));
        Self { dir, peer }
    }

    fn answers(&mut self, index: u64, wanted: Wanted) {
        self.peer.says(&Control::Answers(vec![Answer { index, wanted }]));
    }

    fn settles(&mut self, index: u64, result: OutcomeKind) {
        self.peer.says(&Control::Outcomes(vec![Outcome::of(index, result)]));
    }
}

struct Spare {
    lane: Option<Stream>,
    events: EventSender,
}

impl LaneKeeper for Spare {
    fn lane_lost(&mut self, lane: u16) {
        if let Some(stream) = self.lane.take() {
            assert!(self.events.try_send(SessionEvent::Lane(LaneEvent::Up(stream, lane))).is_ok());
        }
    }

    fn want(&mut self, _path: u16, _lanes: u16) -> bool {
        false
    }

    fn shrink(&mut self, _path: u16, _segment_bytes: u16) -> bool {
        false
    }

    fn leave_from(&mut self, _path: u16, _outlet: Outlet, _lanes: &[u16]) -> bool {
        false
    }
}

#[test]
fn what_was_not_offered_is_not_sent() {
    let check = |index, wanted, why| {
        let mut source = Source::open();
        source.answers(index, wanted);
        source.peer.broke_the_protocol(why);
    };
    for index in [4, 99, u64::MAX] {
        check(index, Wanted::All, "not open");
        check(index, Wanted::Hash, "not open");
        check(index, Wanted::Chunks(vec![ChunkRange { first: 0, count: 1 }]), "not open");
    }
    check(DIRECTORY, Wanted::All, "no data");
}

#[test]
fn no_other_host_says_that_a_server_sent_it_a_file() {
    let mut source = Source::open();
    source.settles(SMALL, OutcomeKind::Brought { how: Brought::ByServer, blake3: None });
    source.peer.broke_the_protocol("a server sent it a file");
}

#[test]
fn chunks_that_do_not_exist_are_not_sent() {
    let range = |first, count| ChunkRange { first, count };
    let cases = [
        vec![range(0, CHUNKS + 1)],
        vec![range(CHUNKS, 1)],
        vec![range(u32::MAX, 1)],
        vec![range(u32::MAX, u32::MAX)],
        vec![range(0, 0)],
        vec![range(0, 2), range(1, 1)],
        vec![range(1, 1), range(0, 1)],
    ];
    for ranges in cases {
        let mut source = Source::open();
        source.answers(LARGE, Wanted::Chunks(ranges));
        source.peer.broke_the_protocol("chunks that do not exist");
    }
}

#[test]
fn what_does_not_stand_at_the_target_is_sent_again_and_not_without_end() {
    let repair = |index, chunk| Control::Repair { index, chunk };
    for (index, chunk, why) in [
        (99, 0, "not open"),
        (LARGE, CHUNKS, "do not exist"),
        (LARGE, u32::MAX, "do not exist"),
        (SMALL, 1, "do not exist"),
    ] {
        let mut source = Source::open();
        source.peer.says(&repair(index, chunk));
        source.peer.broke_the_protocol(why);
    }
    let mut source = Source::open();
    source.settles(SMALL, OutcomeKind::Kept { blake3: None });
    source.peer.says(&repair(SMALL, 0));
    source.peer.broke_the_protocol("not open");
    // Each chunk may be wanted once, because an earlier run may have left it.
    let mut source = Source::open();
    (0..=CHUNKS * 4).for_each(|_| source.peer.says(&repair(LARGE, 1)));
    source.peer.broke_the_protocol("without end");
}

#[test]
fn a_target_cannot_have_read_more_than_it_was_offered() {
    let mut source = Source::open();
    source.peer.says(&Control::ReadAgain { bytes: 1 });
    source.peer.says(&Control::ReadAgain { bytes: u64::MAX });
    source.peer.broke_the_protocol("reads more");
}

#[test]
fn an_item_is_asked_for_once() {
    for (first, second) in [(Wanted::All, Wanted::All), (Wanted::Hash, Wanted::All), (Wanted::All, Wanted::Hash)] {
        let mut source = Source::open();
        source.answers(LARGE, first);
        source.answers(LARGE, second);
        source.peer.broke_the_protocol("asks for an item twice");
    }
    let mut source = Source::open();
    source.settles(SMALL, OutcomeKind::Kept { blake3: None });
    source.answers(SMALL, Wanted::All);
    source.peer.broke_the_protocol("not open");
}

#[test]
fn outcomes_and_receipts_are_for_open_items_and_outcomes_come_once() {
    let mut source = Source::open();
    source.settles(77, OutcomeKind::Made);
    source.peer.broke_the_protocol("not open");

    let mut source = Source::open();
    source.settles(SMALL, OutcomeKind::Made);
    source.settles(SMALL, OutcomeKind::Made);
    source.peer.broke_the_protocol("twice");

    let mut source = Source::open();
    source.peer.says(&Control::Receipts(vec![Receipt { index: 77, chunk: 0, data_bytes: 1, matched_bytes: 0 }]));
    source.peer.broke_the_protocol("not open");
}

#[test]
fn receipts_beyond_measure_are_no_reason_to_panic() {
    let mut source = Source::open();
    let receipt = Receipt { index: LARGE, chunk: u32::MAX, data_bytes: u64::MAX, matched_bytes: 0 };
    source.peer.says(&Control::Receipts(vec![receipt; 3]));
    source.settles(LARGE, OutcomeKind::Kept { blake3: None });
    source.peer.says(&Control::Summary(ReceiverSummary::default()));
    let error = source.peer.ended().unwrap_err();
    assert_eq!((error.fault, error.what.as_str()), (Fault::Protocol, "the far side ended with items open"));
}

#[test]
fn a_chunk_that_is_wanted_again_and_again_is_given_up() {
    let mut source = Source::open();
    source.answers(LARGE, Wanted::Chunks(vec![ChunkRange { first: 1, count: 1 }]));
    let mut tries = 0;
    let withdrawn = loop {
        source.peer.says(&Control::Again { index: LARGE, chunk: 1 });
        tries += 1;
        assert!(tries < 1_000, "it is sent for ever");
        let heard = source.peer.heard.recv_timeout(Duration::from_millis(20));
        if let Ok(Some(Control::Withdraw(withdrawn))) = heard {
            break withdrawn;
        }
    };
    assert_eq!((withdrawn.index, withdrawn.kind), (LARGE, FailureKind::Unverified));
    assert!(withdrawn.retry.is_none());
}

/// A header has promised a block that the file no longer has. Bytes of another file must not fill the gap.
#[test]
fn a_file_that_is_cut_while_it_is_handed_on_is_withdrawn_and_the_lane_goes_on() {
    let secret = vec![0xa5; BLOCK_BYTES];
    // sendfile, mmap, and the copy that reads whole blocks.
    for route in [Some(2), Some(4), None] {
        let carriage = wire::Carriage { route, ..carriage(20_000) };
        let mut source = Source::with_secret(carriage, bare(), None, Some(&secret));
        source.answers(SECRET, Wanted::All);
        let (header, _, data) = next_unit(&mut source.peer.lane);
        assert!(header.index == SECRET && data == secret, "{route:?}: {header:?}");
        let left = usize::try_from(MIN_CHUNK_BYTES).unwrap() + 100_000;
        std::fs::File::options()
            .write(true)
            .open(source.dir.path().join("large"))
            .unwrap()
            .set_len(left as u64)
            .unwrap();
        source.answers(LARGE, Wanted::Chunks(vec![ChunkRange { first: 1, count: 1 }]));
        let withdrawn = source.peer.hears(|message| match message {
            Control::Withdraw(withdrawn) => Some(withdrawn),
            _ => None,
        });
        assert_eq!((withdrawn.index, withdrawn.kind), (LARGE, FailureKind::Changed), "{route:?}");
        source.answers(SMALL, Wanted::All);
        let (header, trailer, data) = next_unit(&mut source.peer.lane);
        assert_eq!((header.index, header.chunk, trailer), (LARGE, 1, Trailer::Void), "{route:?}");
        let (own, rest) = data.split_at(data.len().min(100_000));
        assert!(own.iter().all(|byte| *byte == 5) && rest.iter().all(|byte| *byte == 0), "{route:?}: whose bytes?");
        let (header, trailer, data) = next_unit(&mut source.peer.lane);
        assert_eq!((header.index, data.as_slice()), (SMALL, &b"small"[..]), "{route:?}");
        assert_eq!(trailer, Trailer::Complete(*blake3::hash(b"small").as_bytes()));
    }
}

#[test]
fn a_lane_that_the_far_side_leaves_without_a_word_is_replaced_and_what_it_carried_goes_again() {
    let (mut second, spare) = Stream::plain_pair().unwrap();
    let mut source = Source::with_spare(carriage(20_000), bare(), Some(spare));
    source.answers(SMALL, Wanted::All);
    let (header, ..) = next_unit(&mut source.peer.lane);
    assert_eq!(header.index, SMALL);
    drop(std::mem::replace(&mut source.peer.lane, Stream::plain_pair().unwrap().0));
    let (header, _, data) = next_unit(&mut second);
    assert_eq!((header.index, data.as_slice()), (SMALL, &b"small"[..]));
}

#[test]
fn a_chunk_whose_lanes_are_lost_again_and_again_is_not_taken_for_wrong_data() {
    let mut source = Source::open();
    source.answers(LARGE, Wanted::Chunks(vec![ChunkRange { first: 1, count: 1 }]));
    for _ in 0..10 {
        let (header, ..) = next_unit(&mut source.peer.lane);
        assert_eq!((header.index, header.chunk), (LARGE, 1));
        source.peer.says(&Control::Void(Void { index: LARGE, chunk: 1, lane: 7 }));
        source.peer.says(&Control::Void(Void { index: LARGE, chunk: 1, lane: 0 }));
    }
    let (header, ..) = next_unit(&mut source.peer.lane);
    assert_eq!((header.index, header.chunk), (LARGE, 1));
    source.peer.says(&Control::Receipts(vec![Receipt {
        index: LARGE,
        chunk: 1,
        data_bytes: MIN_CHUNK_BYTES,
        matched_bytes: 0,
    }]));
    for index in 0..4 {
        source.settles(index, OutcomeKind::Nothing);
    }
    source.peer.says(&Control::Summary(ReceiverSummary::default()));
    source.peer.hears(|message| match message {
        Control::Withdraw(withdrawn) => panic!("{withdrawn:?}"),
        message => matches!(message, Control::Bye(_)).then_some(()),
    });
    source.peer.ended().unwrap();
}

#[test]
fn lanes_that_lose_a_chunk_without_end_end_the_session() {
    let mut source = Source::open();
    source.answers(LARGE, Wanted::Chunks(vec![ChunkRange { first: 1, count: 1 }]));
    for _ in 0..=MAX_REPAIRS + CHUNKS {
        next_unit(&mut source.peer.lane);
        source.peer.says(&Control::Void(Void { index: LARGE, chunk: 1, lane: 0 }));
    }
    source.peer.broke_the_protocol("without end");
}

fn next_unit(lane: &mut Stream) -> (UnitHeader, Trailer, Vec<u8>) {
    let mut header = [0; UNIT_HEADER_BYTES];
    lane.read_exact(&mut header).unwrap();
    let mut data = Vec::new();
    loop {
        let mut word = [0; BLOCK_HEADER_BYTES];
        lane.read_exact(&mut word).unwrap();
        let block = BlockHeader::decode(word).unwrap();
        if block == BlockHeader::LAST {
            break;
        }
        let start = data.len();
        data.resize(start + block.bytes as usize, 0);
        lane.read_exact(&mut data[start..]).unwrap();
    }
    let mut trailer = [0; TRAILER_BYTES];
    lane.read_exact(&mut trailer).unwrap();
    (UnitHeader::decode(&header).unwrap(), Trailer::decode(&trailer).unwrap(), data)
}

#[test]
fn an_end_with_items_open_is_no_success() {
    let mut source = Source::open();
    source.peer.says(&Control::Summary(ReceiverSummary::default()));
    let error = source.peer.ended().unwrap_err();
    assert_eq!((error.fault, error.what.as_str()), (Fault::Protocol, "the far side ended with items open"));
}

#[test]
fn a_flood_about_lanes_that_do_not_exist_changes_nothing() {
    let mut source = Source::open();
    for lane in 1..2_000 {
        source.peer.says(&Control::LaneLost { lane });
        source.peer.says(&Control::Again { index: u64::from(lane), chunk: u32::from(lane) });
        source.peer.says(&Control::Void(Void { index: u64::from(lane), chunk: u32::from(lane), lane }));
    }
    for index in 0..4 {
        source.settles(index, OutcomeKind::Nothing);
    }
    source.peer.says(&Control::Summary(ReceiverSummary::default()));
    source.peer.hears(|message| matches!(message, Control::Bye(_)).then_some(()));
    source.peer.ended().unwrap();
}

#[test]
fn a_receiver_that_only_lives_is_not_waited_for() {
    let mut source = Source::with_limit(SHORT_MS);
    source.answers(LARGE, Wanted::All);
    let error = source.peer.only_lives(|_| ()).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    assert!(error.hint.unwrap().contains("run the same command again"));
}

#[test]
fn a_receiver_that_decides_about_nothing_is_not_waited_for() {
    let source = Source::with_limit(SHORT_MS);
    let start = Instant::now();
    let error = source.peer.only_lives(|_| ()).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    assert!(error.what.contains("decided nothing"), "{error:?}");
    // Each MiB that it may be comparing allows a second.
    assert!(start.elapsed() >= Duration::from_secs(CHUNKS.into()), "{:?}", start.elapsed());

    // All is decided, but the receiver never says that it is done.
    let mut source = Source::with_limit(SHORT_MS);
    for index in 0..4 {
        source.settles(index, OutcomeKind::Nothing);
    }
    let error = source.peer.only_lives(|_| ()).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
}

/// The receiver's loop may be reading, and let in no lane meanwhile.
#[test]
fn a_receiver_that_may_be_reading_a_large_file_is_given_the_time_to_bring_what_it_wants_of_another() {
    let by_reading: [fn(&mut wire::Selection); 3] = [
        |selection| selection.inplace = true,
        |selection| selection.update = true,
        |selection| selection.checksum = true,
    ];
    for change in by_reading {
        let mut selection = bare();
        change(&mut selection);
        let mut source = Source::asked(carriage(SHORT_MS), selection);
        let start = Instant::now();
        source.answers(SMALL, Wanted::All);
        let error = source.peer.only_lives(|_| ()).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
        assert!(start.elapsed() >= Duration::from_secs(CHUNKS.into()), "{:?}", start.elapsed());
    }
}

#[test]
fn words_that_are_not_a_receivers_break_the_protocol() {
    let words = [
        Control::Begin { single_file: true },
        Control::Items(Vec::new()),
        Control::EndOfManifest,
        Control::Bye(SenderSummary::default()),
        Control::Admit { key: [0; 32] },
        Control::Rate { bytes_per_s: None },
        Control::Named(RelPath::new(b"name".to_vec()).unwrap()),
    ];
    for word in words {
        let mut source = Source::open();
        source.peer.says(&word);
        source.peer.broke_the_protocol("unexpected message");
    }
}

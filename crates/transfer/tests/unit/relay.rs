//! Tests how the machine in between handles the messages of both hosts.

use haul_job::{Event, ManifestLine, Observer};
use haul_wire::RelPath;
use haul_wire::control::{Outcome, OutcomeKind, Receipt};
use haul_wire::limits::MAX_BATCH_ITEMS;
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Time};

use asked_for::asked_for;
use haul_channel::{channel, farewell};

use super::*;

#[path = "../shared/asked_for.rs"]
mod asked_for;

#[derive(Default)]
struct Lister(Mutex<Vec<ManifestLine>>);

impl Observer for Lister {
    fn on_event(&self, event: &Event) {
        if let Event::Manifest(line) = event {
            self.0.lock().unwrap().push(line.clone());
        }
    }

    fn wants_manifest(&self) -> bool {
        true
    }
}

fn check(act: impl FnOnce(&mut Relay<'_>, Stream, Stream)) {
    check_told(Watch::silent(), act);
}

fn check_told(watch: Watch, act: impl FnOnce(&mut Relay<'_>, Stream, Stream)) {
    let host = |name: &str| Far::Ssh { user: None, host: name.into(), port: None };
    let (source, target) = (host("there"), host("elsewhere"));
    let (sender, at_sender) = Stream::plain_pair().unwrap();
    let (receiver, at_receiver) = Stream::plain_pair().unwrap();
    let events = Events::new();
    let open = |stream| Channel::open(stream, events.sender(), channel::PING_EVERY).unwrap();
    let mut relay = Relay {
        packer: Packer::default(),
        asked_for: asked_for("data", |_| ()),
        watch: &Arc::new(watch),
        source: &source,
        target: &target,
        sender: open(sender),
        receiver: open(receiver),
        to_lanes: sync_channel(1).0,
        ends: Ends::default(),
        said_bye: false,
        told_of_deletion: None,
        rate: RateLimit::of(None),
    };
    act(&mut relay, at_sender, at_receiver);
}

fn directory(path: &str) -> Item {
    let path = RelPath::new(path.into()).unwrap();
    Item { path, kind: ItemKind::Directory, attributes: Attributes::default() }
}

#[test]
fn what_the_sending_host_brings_unasked_is_not_passed_on() {
    check(|relay, _at_sender, at_receiver| {
        let mut packer = Packer::default();
        let (asked, unasked) = (packer.pack(&directory("data")), packer.pack(&directory(".ssh")));
        relay.pass_on(From::Sender, Control::Items(vec![asked.clone()])).unwrap();
        let error = relay.pass_on(From::Sender, Control::Items(vec![unasked])).unwrap_err();
        assert_eq!((error.fault, error.what.as_str()), (Fault::Protocol, "there: the far side broke the protocol"));
        assert_eq!(error.cause.unwrap(), "it sends .ssh, which was not asked for");
        relay.receiver.close(farewell::FAREWELL);
        let (mut at_receiver, _) = at_receiver.split();
        let heard = std::iter::from_fn(|| channel::read_message(&mut at_receiver, &mut Vec::new()).unwrap());
        let passed: Vec<_> = heard.filter(|message| matches!(message, Control::Items(_))).collect();
        assert_eq!(passed, [Control::Items(vec![asked])]);
    });
}

#[test]
fn a_manifest_lists_what_the_target_calls_a_file_and_each_of_its_names() {
    let path = |path: &str| RelPath::new(path.into()).unwrap();
    let file = |name: &str| {
        let identity = Identity { size: 1, mtime: Time::default(), ctime: Time::default(), inode: 0 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 1 };
        Item { kind, ..directory(name) }
    };
    let link = Item { kind: ItemKind::HardLink { first: path("data/a") }, ..directory("data/b") };
    let named = vec![Control::Named(path("b"))];
    for (items, words, listed) in [
        (vec![directory("data"), file("data/a"), link], vec![], vec!["data/a", "data/b"]),
        (vec![file("data")], named, vec!["b"]),
    ] {
        let lister = Arc::<Lister>::default();
        let watch = Watch::new(Arc::clone(&lister) as Arc<dyn Observer>);
        check_told(watch, |relay, _at_sender, _at_receiver| {
            relay.asked_for = asked_for("data", |job| job.selection.hard_links = true);
            let result = |item: &Item| match item.kind {
                ItemKind::File { .. } => OutcomeKind::Copied { blake3: [7; 32] },
                _ => OutcomeKind::Made,
            };
            let outcomes = (0..).zip(&items).map(|(index, item)| Outcome::of(index, result(item))).collect();
            let mut packer = Packer::default();
            let packed = items.iter().map(|item| packer.pack(item)).collect();
            for word in words {
                relay.pass_on(From::Receiver, word).unwrap();
            }
            relay.pass_on(From::Sender, Control::Items(packed)).unwrap();
            relay.pass_on(From::Receiver, Control::Outcomes(outcomes)).unwrap();
        });
        let lines = lister.0.lock().unwrap();
        let found: Vec<_> = lines.iter().map(|line| (&line.path[..], line.blake3)).collect();
        assert_eq!(found, listed.iter().map(|path| (path.as_bytes(), [7; 32])).collect::<Vec<_>>());
    }
}

#[test]
fn the_sending_host_hears_that_something_is_deleted_and_not_what() {
    check(|relay, at_sender, _at_receiver| {
        for path in ["data/one", "data/two"] {
            let deleted = Notice::Deleted { path: path.into(), is_directory: false };
            relay.pass_on(From::Receiver, Control::Notice(deleted)).unwrap();
        }
        relay.sender.close(farewell::FAREWELL);
        let (mut at_sender, _) = at_sender.split();
        let heard = std::iter::from_fn(|| channel::read_message(&mut at_sender, &mut Vec::new()).unwrap());
        let passed: Vec<_> = heard.filter(|message| matches!(message, Control::Notice(_))).collect();
        assert_eq!(passed.first(), Some(&Control::Notice(Notice::Deleted { path: Vec::new(), is_directory: false })));
        assert!(passed.iter().all(|notice| *notice == passed[0]), "{passed:?}");
    });
}

#[test]
fn lanes_that_nobody_asked_for_do_not_wait_at_the_machine_in_between() {
    let mut waiting = Waiting { lanes: 2, halves: Vec::new() };
    let stream = || Stream::plain_pair().unwrap().0;
    assert!((2..300).all(|lane| !waiting.place(lane, true, stream())));
    assert!(waiting.halves.is_empty());
    for _ in 0..3 {
        assert!(waiting.place(1, true, stream()) && waiting.place(0, false, stream()));
    }
    assert!(waiting.halves.len() == 2 && waiting.pair().is_none());
    assert!(waiting.place(1, false, stream()));
    assert_eq!(waiting.pair().map(|(lane, ..)| lane), Some(1));
    assert!(waiting.halves.len() == 1 && waiting.pair().is_none());
}

/// Small messages in large batches take many bytes in memory for a byte or two on the wire.
#[test]
fn a_host_that_does_not_listen_is_not_kept_words_for_without_end() {
    let receipts = || {
        let receipt = Receipt { index: 0, chunk: 0, data_bytes: 0, matched_bytes: 0 };
        Control::Receipts(vec![receipt; MAX_BATCH_ITEMS])
    };
    let mut packer = Packer::default();
    let items = move || {
        let items = (0..MAX_BATCH_ITEMS).map(|_| packer.pack(&directory("data")));
        Control::Items(items.collect())
    };
    let flood = |from: From, mut words: Box<dyn FnMut() -> Control + Send>, deaf: &str| {
        check(|relay, _at_sender, _at_receiver| {
            let (merged, events) = sync_channel(1);
            let says = std::thread::spawn(move || {
                (0..100).all(|_| merged.send((from, SessionEvent::Control(words()))).is_ok())
            });
            let error = relay.until_bye(&events, Clock::new(60_000)).unwrap_err();
            assert_eq!(error.cause.as_deref(), Some("it does not listen"), "{error:?}");
            assert!(error.what.starts_with(deaf), "{error:?}");
            drop(events);
            assert!(!says.join().unwrap(), "all of it was taken");
        });
    };
    flood(From::Receiver, Box::new(receipts), "there");
    flood(From::Sender, Box::new(items), "elsewhere");
}

#[test]
fn a_time_limit_that_is_shorter_than_a_few_pings_ends_nothing() {
    check(|relay, at_sender, at_receiver| {
        let others = Events::new();
        // Both hosts ping every second.
        let _hosts =
            [at_sender, at_receiver].map(|stream| Channel::open(stream, others.sender(), channel::PING_EVERY).unwrap());
        let (merged, events) = sync_channel(1);
        let says_bye = std::thread::spawn(move || {
            // The pause is longer than the limit, and shorter than between two pings.
            std::thread::sleep(Duration::from_millis(300));
            let bye = Control::Bye(SenderSummary::default());
            merged.send((From::Sender, SessionEvent::Control(bye))).is_ok()
        });
        relay.until_bye(&events, Clock::new(1)).unwrap();
        assert!(says_bye.join().unwrap());
    });
}

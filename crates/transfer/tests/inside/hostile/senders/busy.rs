//! Tests a receiver whose own loop is busy for long, against its peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use haul_net::ShutdownHandle;
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, Watcher, watch_this_thread};
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::summary::PathNow;

use haul_channel::role_context::RoleContext;
use haul_kept::surroundings::Surroundings;

use super::*;

/// A receiver with [`SHORT_MS`] waits less for a silent peer: three pings.
const BUSY: Duration = Duration::from_secs(4);

struct Person(Arc<AtomicBool>);

impl Observer for Person {
    fn on_event(&self, _: &Event) {}

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Reading {
    peer: Peer,
    watcher: Watcher,
    interrupt: Arc<AtomicBool>,
    cable: ShutdownHandle,
}

impl Reading {
    fn into(target: PathBuf, selection: wire::Selection) -> Option<Self> {
        let (ours, theirs) = Stream::plain_pair().unwrap();
        let (lane, their_lane) = Stream::plain_pair().unwrap();
        let (sender, watcher) = sync_channel(1);
        let interrupt = Arc::new(AtomicBool::new(false));
        let person = Person(Arc::clone(&interrupt));
        let end = std::thread::spawn(move || {
            let events = Events::new();
            let channel = Channel::open(theirs, events.sender(), PING_EVERY).unwrap();
            events.sender().try_send(SessionEvent::Lane(LaneEvent::Up(their_lane, 0))).unwrap();
            sender.send(watch_this_thread(&[Call::Read])).unwrap();
            let job = ReceiverJob {
                hand_over: None,
                sums: None,
                far: false,
                target: receiver::Target::Path(target.into_os_string().into_encoded_bytes()),
                confine: None,
                asked_for: None,
                selection,
                listed: Default::default(),
                hash_kept: false,
                carriage: carriage(SHORT_MS),
                bounds: receiver::Bounds::default(),
                movers: Default::default(),
                surroundings: Surroundings::default(),
            };
            let watch = Arc::new(Watch::new(Arc::new(person)));
            receiver::run(
                job,
                RoleContext {
                    events,
                    channel: &channel,
                    watch: &watch,
                    keeper: &mut NoKeeper,
                    on_other_message: &mut on_other_message,
                },
            )
            .map(drop)
        });
        let watcher = match watcher.recv().unwrap() {
            Ok(watcher) => watcher,
            Err(error) => {
                unmet(format_args!("this host does not let us watch system calls: {error}"));
                return None;
            }
        };
        let cable = ours.shutdown_handle();
        let (input, control) = ours.split();
        let mut peer = Peer::new(control, heard(input), lane, end);
        peer.says(&Control::Begin { single_file: false });
        Some(Self { peer, watcher, interrupt, cable })
    }

    fn reads(&mut self, name: &str) -> Stopped {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end && !self.peer.end.is_finished(), "it never reads {name}");
            self.peer.says(&Control::Ping { received: 0, turn: 1, sent_us: 0 });
            let Some(stopped) = self.watcher.next(Duration::from_millis(20)).unwrap() else { continue };
            if stopped.file().ends_with(name) {
                return stopped;
            }
            self.watcher.answer(stopped, Verdict::Proceed).unwrap();
        }
    }

    fn goes_on(mut self, read: Stopped) -> (Result<(), Error>, usize) {
        self.watcher.answer(read, Verdict::Proceed).unwrap();
        let (end, mut more) = (Instant::now() + PATIENCE, 0);
        while !self.peer.end.is_finished() {
            assert!(Instant::now() < end, "it waits for ever");
            self.peer.says(&Control::Ping { received: 0, turn: 1, sent_us: 0 });
            if let Some(stopped) = self.watcher.next(Duration::from_millis(20)).unwrap() {
                more += 1;
                self.watcher.answer(stopped, Verdict::Proceed).unwrap();
            }
        }
        (self.peer.end.join().unwrap(), more)
    }
}

fn comparing() -> wire::Selection {
    wire::Selection { checksum: true, make_target: true, ..bare() }
}

fn hashed(path: &str, data: &[u8]) -> Item {
    let mut item = file(path, data.len() as u64);
    if let ItemKind::File { blake3, .. } = &mut item.kind {
        *blake3 = Some(*blake3::hash(data).as_bytes());
    }
    item
}

#[test]
fn a_peer_is_not_taken_for_silent_while_a_file_is_compared_for_longer_than_the_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![7; 2 * BLOCK_BYTES];
    std::fs::write(dir.path().join("standing"), &data).unwrap();
    let Some(mut reading) = Reading::into(dir.path().to_owned(), comparing()) else { return };
    let mut packer = Packer::default();
    reading.peer.says(&Control::Items(vec![packer.pack(&hashed("standing", &data))]));
    reading.peer.says(&Control::EndOfManifest);
    let read = reading.reads("standing");
    // More comes than may wait here (64 KiB in tests), and our own messages must fit into the socket.
    (0..400).for_each(|_| reading.peer.says(&Control::PathNow(PathNow::default())));
    let begun = Instant::now();
    while begun.elapsed() < BUSY {
        reading.peer.says(&Control::Ping { received: 0, turn: 1, sent_us: 0 });
        std::thread::sleep(Duration::from_millis(20));
    }
    let (result, _) = reading.goes_on(read);
    result.unwrap();
}

#[test]
fn who_interrupts_while_a_file_is_compared_does_not_wait_for_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![7; 20 * BLOCK_BYTES];
    std::fs::write(dir.path().join("standing"), &data).unwrap();
    std::fs::write(dir.path().join("standing2"), &data).unwrap();
    let Some(mut reading) = Reading::into(dir.path().to_owned(), comparing()) else { return };
    let mut packer = Packer::default();
    let items = ["standing", "standing2"].map(|name| packer.pack(&hashed(name, &data)));
    reading.peer.says(&Control::Items(items.to_vec()));
    let read = reading.reads("standing");
    reading.interrupt.store(true, Ordering::Relaxed);
    let (result, more) = reading.goes_on(read);
    assert_eq!((result.unwrap_err().fault, more), (Fault::Interrupted, 0));
}

#[test]
fn of_a_sender_that_died_while_a_file_was_compared_nothing_is_made_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![7; 2 * BLOCK_BYTES];
    std::fs::write(dir.path().join("f-standing"), &data).unwrap();
    let Some(mut reading) = Reading::into(dir.path().to_owned(), comparing()) else { return };
    let mut packer = Packer::default();
    let mut pack = |item: &Item| packer.pack(item);
    let link = |name| item(name, ItemKind::Symlink { target: b"nowhere".to_vec() });
    // A name is packed as its difference from the one before.
    let first = [hashed("f-standing", &data), link("g-link-x"), link("g-link-y")].iter().map(&mut pack).collect();
    let then = [link("g-link-z"), link("g-link-zz")].iter().map(pack).collect::<Vec<_>>();
    reading.peer.says(&Control::Items(first));
    let read = reading.reads("f-standing");
    for item in then {
        reading.peer.says(&Control::Items(vec![item]));
    }
    reading.peer.says(&Control::EndOfManifest);
    reading.cable.shutdown();
    // The receiver's own pings do not get through any more.
    std::thread::sleep(2 * PING_EVERY);
    let (result, _) = reading.goes_on(read);
    assert_eq!(result.unwrap_err().fault, Fault::Network);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f-standing"]);
}

#[test]
fn who_interrupts_while_what_is_in_place_is_read_again_loses_nothing_of_what_was_claimed() {
    let mut target = Target::of(|job| job.selection.inplace = true);
    let large = file("large", 3 * MIN_CHUNK_BYTES);
    target.announces(std::slice::from_ref(&large));
    target.peer.is_asked_for(0);
    let data = vec![7; 3 * MIN_CHUNK_BYTES as usize];
    target.peer.sends(&unit(UnitKind::Chunk, 0, 0, large_size(&large), &data[..MIN_CHUNK_BYTES as usize]));
    target.peer.hears(|message| matches!(message, Control::Receipts(_)).then_some(()));
    target.peer.says(&Control::Bye(SenderSummary::default()));
    let Target { dir, peer, .. } = target;
    peer.ended().unwrap_err();
    let to = dir.path().join("to");
    let standing = || -> BTreeMap<_, _> {
        let entries = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    };
    let before = standing();
    assert_eq!(before.len(), 2, "the file and its journal");
    let selection = wire::Selection { inplace: true, ..bare() };
    let Some(mut reading) = Reading::into(to.clone(), selection) else { return };
    reading.peer.says(&Control::Items(vec![Packer::default().pack(&large)]));
    let read = reading.reads("large");
    reading.interrupt.store(true, Ordering::Relaxed);
    let (result, more) = reading.goes_on(read);
    assert_eq!((result.unwrap_err().fault, more), (Fault::Interrupted, 0));
    assert!(standing() == before, "the journal claims something else than before");
}

fn large_size(item: &Item) -> u64 {
    let ItemKind::File { identity, .. } = &item.kind else { unreachable!() };
    identity.size
}

#[test]
fn a_sender_that_never_listens_does_not_hold_a_receiver_that_makes_way() {
    let (mut control, theirs) = Stream::plain_pair().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // 6000 long names make 21 MB of notices: more than a socket (4 MiB at most), a batch and a queue (4 MiB each) hold.
    let deep = dir.path().join(vec!["n".repeat(250); 14].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    (0..6000).for_each(|number| drop(std::fs::File::create(deep.join(number.to_string())).unwrap()));
    let target = dir.path().to_owned().into_os_string().into_encoded_bytes();
    let end = std::thread::spawn(move || {
        let job = ReceiverJob {
            hand_over: None,
            sums: None,
            far: false,
            target: receiver::Target::Path(target),
            confine: None,
            asked_for: None,
            selection: wire::Selection { delete: true, ..bare() },
            listed: Default::default(),
            hash_kept: false,
            carriage: carriage(SHORT_MS),
            bounds: receiver::Bounds::default(),
            movers: Default::default(),
            surroundings: Surroundings::default(),
        };
        let events = Events::new();
        let channel = Channel::open(theirs, events.sender(), PING_EVERY).unwrap();
        receiver::run(
            job,
            RoleContext {
                events,
                channel: &channel,
                watch: &Arc::new(Watch::silent()),
                keeper: &mut NoKeeper,
                on_other_message: &mut on_other_message,
            },
        )
        .map(drop)
    });
    let replaced = Packer::default().pack(&file(&"n".repeat(250), 1));
    let say = |control: &mut Stream, message: &Control| {
        let _ = control.write_all(&frame(message)).and_then(|()| control.flush());
    };
    say(&mut control, &Control::Begin { single_file: false });
    say(&mut control, &Control::Items(vec![replaced]));
    let begun = Instant::now();
    while !end.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "it waits for ever");
        say(&mut control, &Control::Ping { received: 0, turn: 1, sent_us: 0 });
        std::thread::sleep(Duration::from_millis(20));
    }
    let error = end.join().unwrap().unwrap_err();
    assert!(error.fault == Fault::Timeout && error.what.contains("has read nothing"), "{error:?}");
}

#[test]
fn a_sender_that_may_be_reading_what_is_there_already_is_given_the_time() {
    const SECONDS: u64 = 4;
    let mut target = Target::of(|job| {
        job.carriage.timeout_ms = SHORT_MS;
        job.hash_kept = true;
    });
    let standing = std::fs::File::create(target.to("file")).unwrap();
    standing.set_len(SECONDS << 20).unwrap();
    standing.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let start = Instant::now();
    target.announces(&[file("file", SECONDS << 20)]);
    target.peer.is_asked_for(0);
    let error = target.peer.only_lives(|_| ()).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    assert!(start.elapsed() >= Duration::from_secs(SECONDS), "{:?}", start.elapsed());
}

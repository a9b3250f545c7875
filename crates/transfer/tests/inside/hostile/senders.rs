//! Tests a real receiver against hostile senders.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use haul_job::filter_rules::to_wire;
use haul_job::{FilterRule, Job};
use haul_store::FileList;
use haul_wire::control::{Answer, FailureKind, Notice, ReceiverSummary, SenderSummary, Void, Wanted};
use haul_wire::lane::UNIT_HEADER_BYTES;
use haul_wire::limits::{BLOCK_BYTES, MAX_BATCH_ITEMS, MAX_OPEN_ITEMS, MAX_XATTR_BYTES, MIN_CHUNK_BYTES};
use haul_wire::manifest::Xattr;

use crate::asked_for::asked_for;
use haul_channel::lane_threads::NoKeeper;
use haul_channel::role_context::RoleContext;
use haul_copy::receiver::{self, ReceiverJob};
use haul_kept::surroundings::Surroundings;

use super::*;

#[cfg(test)]
mod busy;
#[cfg(test)]
mod findings;
#[cfg(test)]
mod links;
#[cfg(test)]
mod movers;
#[cfg(test)]
mod silent;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod withdrawals;

struct Target {
    dir: tempfile::TempDir,
    peer: Peer,
    packer: Packer,
}

impl Target {
    fn open() -> Self {
        Self::of(|_| ())
    }

    fn of(change: impl FnOnce(&mut ReceiverJob)) -> Self {
        let mut target = Self::before_the_beginning(change);
        target.peer.says(&Control::Begin { single_file: false });
        target
    }

    fn before_the_beginning(change: impl FnOnce(&mut ReceiverJob)) -> Self {
        Self::with_lane(0, change)
    }

    fn with_lane(number: u16, change: impl FnOnce(&mut ReceiverJob)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["to", "outside"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("outside/secret"), "precious").unwrap();
        let mut job = ReceiverJob {
            hand_over: None,
            sums: None,
            far: false,
            target: receiver::Target::Path(dir.path().join("to").into_os_string().into_encoded_bytes()),
            confine: None,
            asked_for: None,
            selection: wire::Selection { flush: true, make_target: true, ..bare() },
            listed: Default::default(),
            hash_kept: false,
            carriage: carriage(20_000),
            bounds: receiver::Bounds::default(),
            movers: Default::default(),
            surroundings: Surroundings::default(),
        };
        change(&mut job);
        let peer = Peer::facing(number, move |events, channel, watch| {
            receiver::run(
                job,
                RoleContext { events, channel, watch, keeper: &mut NoKeeper, on_other_message: &mut on_other_message },
            )
            .map(drop)
        });
        Self { dir, peer, packer: Packer::default() }
    }

    fn announces(&mut self, items: &[Item]) {
        let packed = items.iter().map(|item| self.packer.pack(item)).collect();
        self.peer.says(&Control::Items(packed));
    }

    fn to(&self, name: &str) -> PathBuf {
        self.dir.path().join("to").join(name)
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.to(name)).ok()
    }

    fn closes_in_peace(mut self) {
        self.peer.says(&Control::EndOfManifest);
        self.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
        self.peer.sends(&UnitHeader { kind: UnitKind::End, index: 0, chunk: 0 }.encode());
        self.peer.says(&Control::Bye(SenderSummary::default()));
        self.peer.ended().unwrap();
    }

    #[track_caller]
    fn assert_outside_is_untouched(&self) {
        let names = |path: PathBuf| {
            let mut names: Vec<_> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(self.dir.path().to_owned()), ["outside", "to"]);
        let outside = self.dir.path().join("outside");
        assert_eq!(names(outside.clone()), ["secret"]);
        assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"precious");
        assert_eq!(std::fs::metadata(outside.join("secret")).unwrap().nlink(), 1);
    }
}

#[test]
fn a_path_that_leaves_the_tree_ends_the_session() {
    for evil in [
        "../outside/x",
        "/outside/xxx",
        "a/../../xxxx",
        "a//xxxxxxxxx",
        "./xxxxxxxxxx",
        "a\0xxxxxxxxxx",
        "xxxxxxxxxxx/",
    ] {
        let mut target = Target::open();
        let honest = "q".repeat(evil.len());
        let mut bytes = frame(&Control::Items(vec![target.packer.pack(&file(&honest, 1))]));
        let at = bytes.windows(honest.len()).position(|window| window == honest.as_bytes()).unwrap();
        bytes[at..at + evil.len()].copy_from_slice(evil.as_bytes());
        target.peer.says_bytes(&bytes);
        let error = target.peer.end.join().unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Protocol, "{evil:?}: {error:?}");
        assert_eq!(std::fs::read_dir(target.dir.path().join("to")).unwrap().count(), 0, "{evil:?}");
        assert_eq!(std::fs::read_dir(target.dir.path().join("outside")).unwrap().count(), 1, "{evil:?}");
    }
}

#[test]
fn absurd_lengths_and_batches_end_the_session() {
    let too_many = {
        let mut packer = Packer::default();
        Control::Items((0..=MAX_BATCH_ITEMS).map(|_| packer.pack(&item("x", ItemKind::Directory))).collect())
    };
    let bytes: [Vec<u8>; 4] =
        [vec![0; 4], u32::MAX.to_be_bytes().to_vec(), (1_u32 << 20 | 1).to_be_bytes().to_vec(), frame(&too_many)];
    for bytes in bytes {
        let mut target = Target::open();
        target.peer.says_bytes(&bytes);
        let error = target.peer.ended().unwrap_err();
        assert!(matches!(error.fault, Fault::Network | Fault::Protocol), "{error:?}");
    }
}

#[test]
fn huge_extended_attributes_end_the_session() {
    let mut target = Target::of(|job| job.selection.xattrs = true);
    let mut bomb = file("x", 1);
    bomb.attributes.xattrs = vec![Xattr { name: b"user.x".to_vec(), value: vec![0; MAX_XATTR_BYTES] }];
    target.announces(&[bomb]);
    target.peer.broke_the_protocol("extended attributes");
}

fn hard_link(path: &str, first: &str) -> Item {
    item(path, ItemKind::HardLink { first: RelPath::new(first.as_bytes().to_vec()).unwrap() })
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let refused = |source: &str, change: fn(&mut Job), honest: &[Item], evil: Item| {
        let mut target = Target::of(|job| job.asked_for = Some(asked_for(source, change)));
        let to = target.to("");
        std::fs::write(to.join(".profile"), "precious").unwrap();
        let path = evil.path.clone();
        target.announces(honest);
        target.announces(&[evil]);
        let error = target.peer.end.join().unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Protocol);
        let path = std::str::from_utf8(path.as_bytes()).unwrap();
        assert_eq!(error.cause.unwrap(), format!("it sends {path}, which was not asked for"));
        let made: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let expected = honest.iter().map(|item| std::str::from_utf8(item.path.as_bytes()).unwrap());
        assert!(made.iter().all(|name| *name == *".profile" || expected.clone().any(|it| *name == *it)), "{made:?}");
        assert_eq!(std::fs::metadata(to.join(".profile")).unwrap().nlink(), 1);
    };
    let link = |path: &str| item(path, ItemKind::Symlink { target: b"/etc/passwd".to_vec() });
    let directory = |path: &str| [item(path, ItemKind::Directory)];
    let exclude = |job: &mut Job| {
        job.selection.rules = vec![to_wire(&FilterRule::pattern(false, b".ssh/"))];
    };
    let keep_links: fn(&mut Job) = |job| job.selection.hard_links = true;
    let list: fn(&mut Job) = |job| {
        job.files_from = Some(Arc::new(FileList::of(["run/a.fits"]).unwrap()));
    };
    refused("data", |_| (), &directory("data"), file(".bashrc", 4));
    refused("data", |_| (), &[], item("", ItemKind::Directory));
    refused("data/*.fits", |_| (), &[], file(".bashrc", 4));
    refused("data/*", |_| (), &[], file(".bashrc", 4));
    refused("home/", exclude, &[], item(".ssh", ItemKind::Directory));
    refused("home/", exclude, &[], file(".ssh/authorized_keys", 4));
    refused("data/", list, &directory("run"), file("run/b.fits", 4));
    refused("data/", list, &directory("run"), file(".bashrc", 4));
    refused("data/", list, &[], file("run", 4));
    let all_of_it = item("run", ItemKind::DirectoryEnd { complete: true });
    refused("data/", list, &directory("run"), all_of_it);
    // A listed directory stands for itself alone, and the target is not named.
    let alone: fn(&mut Job) = |job| {
        job.files_from = Some(Arc::new(FileList::of(["run"]).unwrap()));
    };
    refused("data/", alone, &directory("run"), file("run/a.fits", 4));
    refused("data/", alone, &[], item("", ItemKind::Directory));
    let entries: fn(&mut Job) = |job| {
        job.files_from = Some(Arc::new(FileList::of(["run/"]).unwrap()));
    };
    let with_entries = [item("run", ItemKind::Directory), item("run/d", ItemKind::Directory)];
    refused("data/", entries, &with_entries, file("run/d/a.fits", 4));
    refused("data", |_| (), &directory("data"), hard_link("data/x", "data/y"));
    refused("data", keep_links, &directory("data"), hard_link("data/x", ".profile"));
    refused("data", |job| job.selection.follow_links = true, &directory("data"), link("data/x"));
}

#[test]
fn a_single_file_that_gets_another_name_has_no_second_one() {
    let mut target = Target::before_the_beginning(|job| {
        let receiver::Target::Path(path) = &mut job.target else { unreachable!() };
        path.extend_from_slice(b"/new-name");
        job.asked_for = Some(asked_for("profile", |job| job.selection.hard_links = true));
    });
    std::fs::write(target.to("profile"), "precious").unwrap();
    target.peer.says(&Control::Begin { single_file: true });
    target.announces(&[hard_link("profile", "profile/x")]);
    target.peer.broke_the_protocol("a second name of a single file");
}

#[test]
fn data_of_files_that_were_never_announced_goes_nowhere() {
    let mut target = Target::open();
    target.announces(&[file("honest", 6)]);
    target.peer.is_asked_for(0);
    for index in [1, 99, u64::MAX] {
        target.peer.sends(&unit(UnitKind::Whole, index, 0, 4, b"evil"));
        target.peer.sends(&unit(UnitKind::Hash, index, 0, 0, b""));
    }
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 6, b"honest"));
    assert!(matches!(target.peer.outcome_of(0), OutcomeKind::Copied { .. }));
    assert_eq!(target.read("honest").unwrap(), b"honest");
    target.assert_outside_is_untouched();
    target.closes_in_peace();
}

#[test]
fn units_that_do_not_fit_their_file_cost_the_lane_and_publish_nothing() {
    const LARGE: u64 = MIN_CHUNK_BYTES + 10;
    let whole = |chunk| UnitHeader { kind: UnitKind::Whole, index: 0, chunk };
    let chunk = |chunk| UnitHeader { kind: UnitKind::Chunk, index: 1, chunk };
    let complete = Trailer::Complete([7; 32]);
    let zeros = vec![0; BLOCK_BYTES];
    let mut no_header = vec![0; UNIT_HEADER_BYTES];
    no_header[0] = 9;
    let too_long_a_block = [whole(0).encode().to_vec(), (BLOCK_BYTES as u32 + 1).to_le_bytes().to_vec()].concat();
    let packed = |bytes: usize| zstd::bulk::compress(&vec![0; bytes], 1).unwrap();
    let bomb = packed(64 << 20);
    assert!(bomb.len() < BLOCK_BYTES);
    let true_hash = |chunk: u32, bytes: usize| {
        let mut hasher = UnitHasher::new(&ChunkLayout::of(LARGE), chunk);
        hasher.update(&vec![0; bytes]);
        Trailer::Complete(hasher.finish())
    };
    let small_bomb = packed(BLOCK_BYTES + 1);
    let mut blocks = vec![(Encoding::Zstd, &small_bomb[..])];
    let left = vec![0; MIN_CHUNK_BYTES as usize - BLOCK_BYTES - 1];
    blocks.extend(left.chunks(BLOCK_BYTES).map(|block| (Encoding::Plain, block)));
    let more_than_a_block = unit_of(chunk(0), &blocks, true_hash(0, MIN_CHUNK_BYTES as usize));
    let nothing = packed(0);
    let of_nothing =
        |encoding, block| unit_of(chunk(1), &[(encoding, block), (Encoding::Plain, &[0; 10])], true_hash(1, 10));
    let hole = |index, blocks| unit_of(UnitHeader { kind: UnitKind::Hole, index, chunk: 0 }, blocks, complete);
    let cases = [
        ("a header of no kind", no_header),
        ("a hole that is a whole file", hole(0, &[])),
        ("a hole whose hash nobody knows", hole(1, &[])),
        ("a hole with data", hole(2, &[(Encoding::Plain, &zeros)])),
        ("a chunk of a whole file", unit_of(UnitHeader { kind: UnitKind::Chunk, index: 0, chunk: 0 }, &[], complete)),
        (
            "the whole of a file in chunks",
            unit_of(UnitHeader { kind: UnitKind::Whole, index: 1, chunk: 0 }, &[], complete),
        ),
        ("a second chunk of a whole file", unit_of(whole(1), &[], complete)),
        ("a chunk beyond the end", unit_of(chunk(2), &[], complete)),
        ("the last of all chunks", unit_of(chunk(u32::MAX), &[], complete)),
        ("more data than the file has", unit_of(whole(0), &[(Encoding::Plain, &zeros)], complete)),
        ("more data than the last chunk has", unit_of(chunk(1), &[(Encoding::Plain, &zeros)], complete)),
        ("less data than the chunk has", unit_of(chunk(0), &[(Encoding::Plain, &zeros)], complete)),
        ("no data at all", unit_of(whole(0), &[], complete)),
        ("a block beyond the limit", too_long_a_block),
        ("a compression bomb", unit_of(chunk(0), &[(Encoding::Zstd, &bomb)], complete)),
        ("more than a block out of one, and less than the chunk", more_than_a_block),
        ("a frame that holds nothing", of_nothing(Encoding::Zstd, &nothing)),
        ("no frame", of_nothing(Encoding::Zstd, b"")),
        ("a hole of no bytes", of_nothing(Encoding::Zeros, b"")),
        ("no compression at all", unit_of(chunk(0), &[(Encoding::Zstd, b"what?")], complete)),
        (
            "a hash with data",
            unit_of(UnitHeader { kind: UnitKind::Hash, index: 0, chunk: 0 }, &[(Encoding::Plain, b"x")], complete),
        ),
    ];
    for (what, bytes) in cases {
        let mut target = Target::open();
        target.announces(&[file("small", 100), file("large", LARGE), sparse("sparse", 64 << 20)]);
        target.peer.is_asked_for(2);
        target.peer.sends(&bytes);
        target.peer.loses_its_lane();
        let published = ["small", "large", "sparse"].into_iter().find(|name| target.read(name).is_some());
        assert_eq!(published, None, "{what}");
        target.assert_outside_is_untouched();
        target.peer.leaves();
    }
}

#[test]
fn what_a_faulty_compressor_made_of_the_data_is_asked_for_again() {
    let mut target = Target::open();
    target.announces(&[file("file", 5000)]);
    target.peer.is_asked_for(0);
    let (data, others) = (vec![7; 5000], vec![8; 5000]);
    let header = UnitHeader { kind: UnitKind::Whole, index: 0, chunk: 0 };
    let true_hash = Trailer::Complete(*blake3::hash(&data).as_bytes());
    for (sent, counts) in [(&others, false), (&data, true)] {
        let packed = zstd::bulk::compress(sent, 1).unwrap();
        target.peer.sends(&unit_of(header, &[(Encoding::Zstd, &packed)], true_hash));
        if !counts {
            target.peer.hears(|message| matches!(message, Control::Again { index: 0, chunk: 0 }).then_some(()));
            assert_eq!(target.read("file"), None);
        }
    }
    assert!(matches!(target.peer.outcome_of(0), OutcomeKind::Copied { .. }));
    assert_eq!(target.read("file"), Some(data));
    target.closes_in_peace();
}

#[test]
fn the_first_verified_bytes_of_a_chunk_stay() {
    const SIZE: u64 = MIN_CHUNK_BYTES + 10;
    let mut target = Target::open();
    let (first, other, last) = (vec![1; MIN_CHUNK_BYTES as usize], vec![2; MIN_CHUNK_BYTES as usize], vec![3; 10]);
    target.announces(&[file("large", SIZE)]);
    target.peer.is_asked_for(0);
    for (chunk, data) in [(0, &first), (0, &other), (1, &last)] {
        target.peer.sends(&unit(UnitKind::Chunk, 0, chunk, SIZE, data));
    }
    let expected = [first, last].concat();
    let OutcomeKind::Copied { blake3 } = target.peer.outcome_of(0) else { panic!("not copied") };
    assert_eq!(blake3, *blake3::hash(&expected).as_bytes());
    assert_eq!(target.read("large").unwrap(), expected);
    target.closes_in_peace();
}

#[test]
fn data_that_never_verifies_is_given_up_by_the_receiver_too() {
    for (size, kind) in [(4, UnitKind::Whole), (MIN_CHUNK_BYTES + 4, UnitKind::Chunk)] {
        let mut target = Target::open();
        target.announces(&[file("file", size)]);
        target.peer.is_asked_for(0);
        let last = u32::from(kind == UnitKind::Chunk);
        let wrong = unit_of(
            UnitHeader { kind, index: 0, chunk: last },
            &[(Encoding::Plain, b"evil")],
            Trailer::Complete([0; 32]),
        );
        let mut asked_again = 0;
        let kind = loop {
            target.peer.sends(&wrong);
            let settled = target.peer.hears(|message| match message {
                Control::Again { index: 0, .. } => Some(None),
                Control::Outcomes(outcomes) => outcomes.into_iter().find_map(|outcome| match outcome.result {
                    OutcomeKind::Failed { kind, .. } => Some(Some(kind)),
                    _ => None,
                }),
                _ => None,
            });
            match settled {
                Some(kind) => break kind,
                None => asked_again += 1,
            }
            assert!(asked_again < 20, "it asks for ever");
        };
        assert_eq!(kind, FailureKind::Unverified);
        assert!(asked_again >= 3, "an honest sender gives up first: it was asked {asked_again} times");
        assert!(target.read("file").is_none());
        target.closes_in_peace();
    }
}

#[test]
fn directories_without_end_end_the_session() {
    let mut target = Target::open();
    target.announces(&[item("one", ItemKind::Directory), item("two", ItemKind::Directory)]);
    target.peer.broke_the_protocol("leaves a directory without its end");

    let mut target = Target::open();
    target.announces(&[item("", ItemKind::Directory), item("", ItemKind::Directory)]);
    target.peer.broke_the_protocol("leaves a directory without its end");

    let mut target = Target::of(|job| job.selection.dry_run = true);
    let mut path = String::new();
    for depth in 0..1000 {
        path.push_str(if depth == 0 { "d" } else { "/d" });
        let mut heavy = item(&path, ItemKind::Directory);
        heavy.attributes.xattrs = vec![Xattr { name: b"user.x".to_vec(), value: vec![0; MAX_XATTR_BYTES - 6] }];
        target.announces(&[heavy]);
        if target.peer.end.is_finished() {
            break;
        }
    }
    target.peer.broke_the_protocol("opens more directories than agreed");
}

#[test]
fn more_open_items_than_agreed_end_the_session() {
    let mut target = Target::of(|job| job.selection.no_resume = true);
    for batch in 0..5 {
        let items: Vec<Item> = (0..MAX_OPEN_ITEMS / 2).map(|number| file(&format!("{batch}-{number}"), 1)).collect();
        target.announces(&items);
    }
    target.peer.broke_the_protocol("more items open than agreed");
}

#[test]
fn a_sender_that_never_listens_is_not_written_for_without_end() {
    let (control, end) = {
        let (ours, theirs) = Stream::plain_pair().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let end = std::thread::spawn(move || {
            let job = ReceiverJob {
                hand_over: None,
                sums: None,
                far: false,
                target: receiver::Target::Path(dir.path().to_owned().into_os_string().into_encoded_bytes()),
                confine: None,
                asked_for: None,
                selection: wire::Selection { make_target: true, ..bare() },
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
        (ours, end)
    };
    let mut control = control;
    let mut packer = Packer::default();
    // Each link fails and is settled by that: the window of open items stays empty.
    let path = vec!["n".repeat(250); 15].join("/");
    let links: Vec<Item> = vec![item(&path, ItemKind::Symlink { target: b"x".to_vec() }); 1000];
    control.write_all(&frame(&Control::Begin { single_file: false })).unwrap();
    let mut batches = 0;
    while !end.is_finished() {
        assert!(batches < 200, "it gathers for ever");
        let packed = links.iter().map(|link| packer.pack(link)).collect();
        if control.write_all(&frame(&Control::Items(packed))).is_err() {
            break;
        }
        batches += 1;
    }
    let error = end.join().unwrap().unwrap_err();
    assert!(error.fault == Fault::Timeout && error.what.contains("has read nothing"), "{error:?}");
}

#[test]
fn names_that_pose_as_unfinished_files_are_refused() {
    let mut target = Target::open();
    let name = String::from_utf8(haul_store::part_name(b"victim")).unwrap();
    target.announces(&[file(&name, 4), item(&name, ItemKind::Directory)]);
    target.peer.is_asked_for(0);
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 4, b"evil"));
    assert!(matches!(target.peer.outcome_of(0), OutcomeKind::Failed { .. }));
    assert!(target.read(&name).is_none());
    drop(target.peer.control);
}

#[test]
fn one_name_twice_is_never_a_mixture() {
    let mut target = Target::open();
    target.announces(&[file("name", 4), file("name", 5)]);
    target.peer.is_asked_for(1);
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 4, b"aaaa"));
    target.peer.sends(&unit(UnitKind::Whole, 1, 0, 5, b"bbbbb"));
    let (_, second) = (target.peer.outcome_of(0), target.peer.outcome_of(1));
    let found = target.read("name").unwrap();
    assert!(found == b"aaaa" || (found == b"bbbbb" && matches!(second, OutcomeKind::Copied { .. })), "{found:?}");
    target.closes_in_peace();
}

#[test]
fn what_would_stand_beneath_a_file_or_be_the_target_itself_is_refused() {
    let link = |path: &str| item(path, ItemKind::Symlink { target: b"x".to_vec() });
    let beneath = [
        file("x/y", 4),
        item("x/y", ItemKind::Directory),
        item("x/y", ItemKind::DirectoryEnd { complete: true }),
        link("x/y"),
        hard_link("x/y", "other"),
    ];
    for evil in beneath {
        let mut target = Target::open();
        target.announces(&[file("other", 4), file("x", 4)]);
        for index in 0..2 {
            target.peer.is_asked_for(index);
            target.peer.sends(&unit(UnitKind::Whole, index, 0, 4, b"good"));
            assert!(matches!(target.peer.outcome_of(index), OutcomeKind::Copied { .. }));
        }
        let carries = matches!(evil.kind, ItemKind::File { .. });
        target.announces(std::slice::from_ref(&evil));
        if carries {
            target.peer.sends(&unit(UnitKind::Whole, 2, 0, 4, b"evil"));
        }
        let outcome = target.peer.outcome_of(2);
        let leaves_nothing = matches!(evil.kind, ItemKind::DirectoryEnd { .. }) && outcome == OutcomeKind::Nothing;
        assert!(leaves_nothing || matches!(outcome, OutcomeKind::Failed { .. }), "{evil:?}: {outcome:?}");
        assert_eq!((target.read("x").unwrap(), target.read("other").unwrap()), (b"good".to_vec(), b"good".to_vec()));
        let names = |path| std::fs::read_dir(path).unwrap().count();
        assert_eq!(names(target.to("")), 2, "{evil:?}");
        target.assert_outside_is_untouched();
    }
    for evil in [file("", 4), link(""), hard_link("", "other")] {
        let mut target = Target::open();
        target.announces(std::slice::from_ref(&evil));
        let error = target.peer.ended().unwrap_err();
        assert_eq!(error.fault, Fault::Protocol, "{evil:?}: {error:?}");
    }
    let mut target = Target::open();
    target.announces(&[item("d", ItemKind::Directory), file("d/x", 4), file("d/x/y", 4)]);
    target.peer.broke_the_protocol("without its end");
}

#[test]
fn the_end_of_a_directory_that_never_began_deletes_nothing() {
    let mut target = Target::of(|job| job.selection.delete = true);
    std::fs::create_dir(target.to("kept")).unwrap();
    std::fs::write(target.to("kept/file"), "precious").unwrap();
    target.announces(&[
        item("kept", ItemKind::DirectoryEnd { complete: true }),
        item("", ItemKind::DirectoryEnd { complete: true }),
    ]);
    assert_eq!(target.peer.outcome_of(1), OutcomeKind::Nothing);
    assert_eq!(target.read("kept/file").unwrap(), b"precious");
    target.closes_in_peace();
}

#[test]
fn a_sender_that_lists_next_to_nothing_deletes_no_more_than_allowed() {
    let mut target = Target::of(|job| {
        job.selection.delete = true;
        job.selection.max_delete = Some(3);
    });
    for name in ["a/1", "a/2", "b/3", "b/4", "c"] {
        std::fs::create_dir_all(target.to(name).parent().unwrap()).unwrap();
        std::fs::write(target.to(name), "precious").unwrap();
    }
    target.announces(&[item("", ItemKind::Directory), item("", ItemKind::DirectoryEnd { complete: true })]);
    let why = target.peer.hears(|message| match message {
        Control::Notice(Notice::Failed { why, .. }) => Some(why),
        _ => None,
    });
    assert_eq!(why, "2 more entries are to be deleted here than --max-delete 3 allows; they stay");
    let there = |names: &[&str]| names.iter().all(|name| target.to(name).exists());
    assert!(!target.to("a").exists() && there(&["b/3", "b/4", "c"]), "a directory and what stood in it");
    target.closes_in_peace();
}

#[test]
fn a_listing_that_repeats_itself_ends_the_session() {
    let link = |path: &str| item(path, ItemKind::Symlink { target: b"x".to_vec() });
    let directory = |path: &str| item(path, ItemKind::Directory);
    let cases = [
        (vec![directory("d"), link("d/b"), link("d/b")], "out of order, or a name twice"),
        (vec![directory("d"), link("d/b"), link("d/a")], "out of order, or a name twice"),
        (vec![directory("d"), link("e")], "without its end"),
        (vec![directory("d"), directory("d/e"), link("d/f")], "without its end"),
    ];
    for (items, why) in cases {
        let mut target = Target::open();
        target.announces(&items);
        target.peer.broke_the_protocol(why);
    }
    // Items that leave nothing on the disk are bounded by number.
    let end = || item("d", ItemKind::DirectoryEnd { complete: true });
    for endless in [item("f", ItemKind::Skipped { why: String::new() }), link("l"), end()] {
        let mut target = Target::of(|job| job.bounds.idle_items = 1 << 16);
        for _ in 0..34 {
            target.announces(&vec![endless.clone(); 2_000]);
        }
        target.peer.broke_the_protocol("more that is not to be copied than agreed");
    }
    let mut target = Target::open();
    target.announces(&[directory("d"), link("d/b"), end(), directory("d"), link("d/a"), link("d/b"), end()]);
    assert_eq!(target.peer.outcome_of(6), OutcomeKind::Nothing);
    target.closes_in_peace();
}

#[test]
fn sizes_without_measure_are_no_reason_to_panic() {
    let mut target = Target::open();
    let sizes: Vec<Item> = (0..4).map(|number| file(&format!("f{number}"), i64::MAX as u64)).collect();
    target.announces(&sizes);
    target.peer.is_asked_for(3);
    target.peer.sends(&unit_of(
        UnitHeader { kind: UnitKind::Chunk, index: 0, chunk: 0 },
        &[(Encoding::Plain, b"x")],
        Trailer::Complete([0; 32]),
    ));
    let error = target.peer.ended().unwrap_err();
    assert_eq!(error.fault, Fault::Space, "{error:?}");
}

#[test]
fn words_that_are_not_a_senders_break_the_protocol() {
    let words = [
        Control::Begin { single_file: true },
        Control::Answers(vec![Answer { index: 0, wanted: Wanted::All }]),
        Control::Receipts(Vec::new()),
        Control::Outcomes(Vec::new()),
        Control::Again { index: 0, chunk: 0 },
        Control::Void(Void { index: 0, chunk: 0, lane: 0 }),
        Control::LaneLost { lane: 0 },
        Control::Summary(ReceiverSummary::default()),
        Control::Bye(SenderSummary::default()),
        Control::Admit { key: [0; 32] },
        Control::Dialled { lanes: 1, rtt_us: 1 },
    ];
    for word in words {
        let mut target = Target::open();
        target.peer.says(&word);
        target.peer.broke_the_protocol("unexpected message");
    }
    let mut target = Target::before_the_beginning(|_| ());
    target.announces(&[file("early", 1)]);
    target.peer.broke_the_protocol("unexpected message Items");
}

//! Large files that go up over several connections, to servers that write at the byte they are asked for, and to those that do not.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use haul_ftp::{FtpServer, FtpTarget, OpenOptions, RangeUploads, Settings};
use haul_store::{Access, Draft, DraftPlan, Metadata, StoreError, TargetTree as _, Time};

use crate::server::{Faults, Server};

const MIB: usize = 1 << 20;
const LONG: usize = 17 * MIB + 5;
const CHUNKS: usize = LONG.div_ceil(MIB);

static DATA: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LONG).map(|at| (at * 7 % 251) as u8 ^ (at >> 20) as u8).collect());

fn plan() -> DraftPlan {
    let mtime = Time { s: 784_111_777, ns: 5 };
    DraftPlan { size: LONG as u64, chunk_bytes: MIB as u64, mtime, ..DraftPlan::default() }
}

fn server(faults: Faults) -> Server {
    Server::start(&[("/f", b"old")], Faults { promises_rest: true, ..faults })
}

fn settings(server: &Server) -> Settings {
    let ranges = Some(RangeUploads { from_us: 0, foreseen_bytes: LONG as u64, grace: Duration::from_secs(10) });
    Settings { ranges, connections: 8, ..server.settings() }
}

fn target(server: &Server) -> FtpTarget {
    opened(settings(server))
}

fn opened(settings: Settings) -> FtpTarget {
    let server = FtpServer::new(settings);
    server.reach().unwrap();
    server.open(b"", OpenOptions::default()).unwrap().0
}

fn send(draft: &Draft, content: &[u8], chunks: impl IntoIterator<Item = usize>) -> Result<(), StoreError> {
    for chunk in chunks {
        let (start, end) = (chunk * MIB, LONG.min((chunk + 1) * MIB));
        for (at, block) in content[start..end].chunks(MIB / 4).enumerate() {
            draft.write_at(block, (start + at * MIB / 4) as u64)?;
        }
    }
    Ok(())
}

/// Four lanes take ranges of the file.
fn send_all(draft: &Draft, content: &[u8]) -> Result<(), StoreError> {
    std::thread::scope(|scope| {
        let lane = |lane: usize| scope.spawn(move || send(draft, content, lane * 5..CHUNKS.min((lane + 1) * 5)));
        let lanes: Vec<_> = (0..4).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap())
    })
}

/// The chunks that a receiver would read, because the draft has holes there.
fn holes(draft: &Draft) -> Vec<usize> {
    let is_hole = |chunk: &usize| {
        let (start, end) = ((chunk * MIB) as u64, LONG.min((chunk + 1) * MIB) as u64);
        draft.data_bytes(start, end).unwrap() < end - start
    };
    (0..CHUNKS).filter(is_hole).collect()
}

fn commit(draft: &Draft) -> Result<(), StoreError> {
    draft.commit(&Metadata::default(), true)
}

/// The file stands, and nothing else. A word that nobody waits for may be on its way.
fn stands_alone(server: &Server) -> bool {
    let begin = Instant::now();
    while server.paths() != ["/", "/f"] && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.paths() == ["/", "/f"] && server.content("/f") == Some(DATA.to_vec())
}

/// The transfers of a draft that go on inside it.
fn ranges(server: &Server) -> usize {
    server.commands("REST").iter().filter(|rest| !["REST 4096", "REST 12288"].contains(&&rest[..])).count()
}

#[test]
fn a_large_file_goes_up_in_ranges_at_once() {
    for faults in [Faults::default(), Faults { drops_what_came_early: true, ..Faults::default() }] {
        let server = server(faults);
        let target = target(&server);
        let draft = target.new_draft_of(b"f", &plan()).unwrap();
        assert!(matches!(target.access(), Access::Runs { .. }), "it was found out");
        for begin in [0, 5, 10, 15] {
            send(&draft, &DATA, begin..begin + 1).unwrap();
        }
        std::thread::scope(|scope| {
            for rest in [1..5, 6..10, 11..15, 16..CHUNKS] {
                scope.spawn(|| send(&draft, &DATA, rest).unwrap());
            }
        });
        assert_eq!(holes(&draft), [0; 0]);
        assert!(server.content("/f").unwrap() == b"old");
        commit(&draft).unwrap();
        assert!(stands_alone(&server));
        for rest in ["REST 1", "REST 5242880", "REST 10485760", "REST 15728640"] {
            assert!(server.commands("REST").contains(&rest.to_owned()), "{rest}: {:?}", server.commands("REST"));
        }
        assert_eq!(target.stat(b"f").unwrap().unwrap().mtime.s, 784_111_777);
    }
}

#[test]
fn a_server_that_does_not_write_ranges_gets_one_stream() {
    for faults in [
        Faults { ignores_rest: true, ..Faults::default() },
        Faults { empties_after_rest: true, ..Faults::default() },
        Faults { refuses_to_go_on: true, ..Faults::default() },
        Faults { refuses_holes: true, ..Faults::default() },
        Faults { cuts_off_there: true, ..Faults::default() },
        Faults { appends: true, ..Faults::default() },
        Faults { locks_uploads: true, ..Faults::default() },
        Faults { has_no_rest: true, ..Faults::default() },
        Faults { most_connections: 2, ..Faults::default() },
    ] {
        let server = server(faults.clone());
        let target = target(&server);
        let draft = target.new_draft_of(b"f", &plan()).unwrap();
        assert_eq!(target.access(), Access::Sequential, "{faults:?}");
        send_all(&draft, &DATA).unwrap();
        commit(&draft).unwrap();
        assert!(stands_alone(&server), "{faults:?}");
        assert_eq!(ranges(&server), 0, "{faults:?}");
    }
}

#[test]
fn a_short_file_and_one_behind_another_sum_go_up_in_one_stream() {
    let server = server(Faults { sum: Some("00".repeat(32)), ..Faults::default() });
    let target = target(&server);
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    send(&draft, &DATA, 0..CHUNKS).unwrap();
    let error = commit(&draft).unwrap_err();
    assert!(error.to_string().contains("SHA-256") && server.commands("REST").is_empty(), "{error}");
}

#[test]
fn a_connection_that_is_cut_is_followed_by_another_and_what_it_lost_comes_again() {
    for faults in [
        Faults { upload_cuts: 1, upload_cuts_after: 3 * MIB + 7, ..Faults::default() },
        Faults { upload_cuts: 3, upload_cuts_after: MIB / 2, ..Faults::default() },
        Faults { forgets_226: 1, ..Faults::default() },
    ] {
        let (server, journals) = (server(Faults::default()), tempfile::tempdir().unwrap());
        let target = opened(Settings { journals: Some(journals.path().to_owned()), ..settings(&server) });
        let draft = target.new_draft_of(b"f", &plan()).unwrap();
        send(&draft, &DATA, 0..1).unwrap();
        assert_eq!(draft.data_bytes(0, 1).unwrap(), 1, "the first byte is confirmed");
        server.misbehave(Faults { promises_rest: true, ..faults.clone() });
        std::thread::scope(|scope| {
            for lane in [1..6, 6..11, 11..16, 16..CHUNKS] {
                scope.spawn(|| send(&draft, &DATA, lane).unwrap());
            }
        });
        let lost = holes(&draft);
        // Where the cut is noticed at once, the other connection begins right there.
        assert!((!lost.is_empty() || faults.forgets_226 == 0) && lost.len() < CHUNKS - 1, "{lost:?} {faults:?}");
        if !lost.is_empty() {
            assert!(commit(&draft).is_err() && server.content("/f").unwrap() == b"old", "it is not whole");
        }
        send(&draft, &DATA, lost).unwrap();
        assert!(holes(&draft).is_empty());
        commit(&draft).unwrap();
        assert!(stands_alone(&server), "{faults:?}");
    }
}

#[test]
fn a_server_that_allows_four_connections_writes_over_those() {
    let server = server(Faults { most_connections: 4, ..Faults::default() });
    let target = target(&server);
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    send_all(&draft, &DATA).unwrap();
    commit(&draft).unwrap();
    assert!(stands_alone(&server) && ranges(&server) >= 3, "{:?}", server.commands("REST"));
}

#[test]
fn a_range_that_begins_otherwise_than_it_was_sent_gives_no_file_and_no_further_ranges() {
    let server = server(Faults::default());
    let target = target(&server);
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    send(&draft, &DATA, 0..1).unwrap();
    server.misbehave(Faults { promises_rest: true, garbles_from: Some(1), ..Faults::default() });
    send(&draft, &DATA, 6..CHUNKS).unwrap();
    send(&draft, &DATA, 1..6).unwrap();
    let error = commit(&draft).unwrap_err();
    assert!(error.to_string().contains("other bytes") && server.content("/f").unwrap() == b"old", "{error}");
    draft.discard().unwrap();
    server.misbehave(Faults { promises_rest: true, ..Faults::default() });
    assert_eq!(target.access(), Access::Sequential);
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    let before = ranges(&server);
    send(&draft, &DATA, 0..CHUNKS).unwrap();
    commit(&draft).unwrap();
    assert!(stands_alone(&server) && ranges(&server) == before);
}

fn keeping(server: &Server, journals: &Path) -> FtpTarget {
    opened(Settings { journals: Some(journals.to_owned()), ..settings(server) })
}

/// Three lanes have sent some of their ranges, and the run dies. Returns the path of the draft.
fn broken_off(server: &Server, journals: &Path) -> String {
    let target = keeping(server, journals);
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    send(&draft, &DATA, 0..3).unwrap();
    draft.journal_start(b"header").unwrap();
    send(&draft, &DATA, 6..9).unwrap();
    send(&draft, &DATA, 12..14).unwrap();
    draft.write_at(&DATA[14 * MIB..14 * MIB + 100], 14 * MIB as u64).unwrap();
    draft.journal_append(b" record").unwrap();
    drop((draft, target));
    let begin = Instant::now();
    loop {
        let left = server.paths().into_iter().find(|path| path.starts_with("/.haul-"));
        let arrived = |path: &String| {
            let content = server.content(path).unwrap();
            let has = |at: usize| content.get(at) == Some(&DATA[at]);
            content.len() == 14 * MIB + 100 && has(3 * MIB - 1) && has(9 * MIB - 1)
        };
        if let Some(left) = left.filter(arrived) {
            return left;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the server takes in what was sent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn standing(draft: &Draft) -> Vec<usize> {
    let stands = |chunk: &usize| draft.proves((chunk * MIB) as u64, MIB as u64) == Some(true);
    (0..CHUNKS).filter(stands).collect()
}

#[test]
fn an_upload_that_died_is_gone_on_with_inside_its_ranges() {
    let (server, journals) = (server(Faults::default()), tempfile::tempdir().unwrap());
    let left = broken_off(&server, journals.path());
    // The end of a range was on its way.
    server.nodes.lock().unwrap().get_mut(&left).unwrap().content.as_mut().unwrap()[9 * MIB - 1] ^= 1;
    let before = server.commands("STOR").len();
    let target = keeping(&server, journals.path());
    let (draft, journal) = target.resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!(&journal[..], b"header record");
    assert_eq!(standing(&draft), [0, 1, 2, 6, 7, 12, 13]);
    draft.journal_keep(journal.len() as u64).unwrap();
    for missing in [3..6, 8..12, 14..CHUNKS] {
        send(&draft, &DATA, missing).unwrap();
    }
    draft.journal_append(b" more").unwrap();
    assert!(holes(&draft).is_empty());
    commit(&draft).unwrap();
    assert!(stands_alone(&server));
    assert_eq!(std::fs::read_dir(journals.path()).unwrap().count(), 0);
    assert_eq!(server.commands("STOR").len() - before, 4 + 3, "a trial, and the ranges that are missing");
}

#[test]
fn ranges_of_other_data_are_not_gone_on_with_and_a_server_that_has_changed_gets_all_anew() {
    let (server, journals) = (server(Faults::default()), tempfile::tempdir().unwrap());
    let left = broken_off(&server, journals.path());
    let other = vec![7; 14 * MIB + 100];
    server.nodes.lock().unwrap().get_mut(&left).unwrap().content = Some(other);
    assert!(keeping(&server, journals.path()).resume_draft(b"f", false).unwrap().is_none());
    broken_off(&server, journals.path());
    server.misbehave(Faults { promises_rest: true, locks_uploads: true, ..Faults::default() });
    let target = keeping(&server, journals.path());
    assert!(target.resume_draft(b"f", false).unwrap().is_none());
    let draft = target.new_draft_of(b"f", &plan()).unwrap();
    send(&draft, &DATA, 0..CHUNKS).unwrap();
    commit(&draft).unwrap();
    assert!(stands_alone(&server));
}

//! Text for people, with names that try to drive the terminal or imitate our lines.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use haul_e2e::{Facets, Lab, assert_same, at, code, contents_of, eventually, needs, plant};

use crate::daemon::Daemon;

/// Each name sets a title, clears by a C1 control character, turns the writing, overwrites its line, or begins a new one.
fn driving(word: &str) -> OsString {
    let name = format!("{word}\x1b]0;x\x07\u{9b}2J\u{202e}\u{2066}\u{200f}\u{7f}\rSPOOF\nSPOOF: {word}");
    OsString::from(name)
}

/// All is UTF-8 that a terminal shows, and all lines are ours.
#[track_caller]
fn drives_nothing(what: &str, said: &[u8]) {
    let text = str::from_utf8(said).unwrap_or_else(|error| panic!("{what}: {error}: {}", said.escape_ascii()));
    let turns =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let driving = text.chars().find(|&c| c != '\n' && (c.is_control() || turns(c)));
    assert_eq!(driving, None, "{what}: {}", said.escape_ascii());
    // Second lines of names, here and in `plant::odd_names`.
    let forged = text.lines().find(|line| ["SPOOF", "line", "\\xff $(id)"].iter().any(|words| line.starts_with(words)));
    assert_eq!(forged, None, "{what}: {text}");
}

#[test]
fn names_that_drive_terminals_do_not_drive_those_of_either_side() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (source, back) = (daemon.lab.data("home").join("tree"), daemon.lab.data("home").join("back"));
    let target = daemon.offered.join(driving("target"));
    plant::odd_names(&source, 1);
    for word in ["copied", "failed", "excluded"] {
        plant::text(&source.join(driving(word)), "words\n");
    }
    plant::text(&source.join(driving("folder")).join(driving("inside")), "words\n");
    std::os::unix::fs::symlink(driving("pointed at"), source.join(driving("link"))).expect("own directory");
    // A socket is left out with a warning, a directory stands where a file belongs. Socket names are short.
    let _socket = UnixListener::bind(source.join("sock\x1b[2J\nSPOOF")).expect("own directory");
    plant::text(&target.join(driving("failed")).join("in the way"), "words\n");
    let mut url = OsString::from(daemon.url(""));
    url.push(driving("target"));

    let cp = || daemon.haul_in_words("cp").args(["-v", "--progress"]);
    let pushed = cp().arg("--exclude").arg("excluded*").arg(contents_of(&source)).arg(&url).run().expect(code::PARTIAL);
    for words in ["copied copied\\x1b", "failed: failed\\x1b", "skipped: sock\\x1b"] {
        let said = pushed.stdout_text() + &pushed.stderr_text();
        assert!(said.contains(words), "nothing is said of {words}\n{pushed}");
    }
    eventually("the daemon logs it", Duration::from_secs(10), || daemon.log().contains("writes to 'target\\u{1b}"));
    fs::remove_dir_all(target.join(driving("failed"))).expect("own directory");

    let pulled = cp().arg(&url).arg(&back).run().expect(code::OK);
    assert_same(&target, &back.join(driving("target")), Facets::PLAIN);
    let mut missing = url.clone();
    missing.push(OsStr::from_bytes(b"/missing\xff\x1b\nSPOOF"));
    let refused = cp().arg(&missing).arg(&back).run();
    assert_ne!(refused.code(), code::OK, "{refused}");
    eventually("the daemon logs it", Duration::from_secs(10), || daemon.log().contains("missing"));
    let shown = ["1", "2", "3"].map(|nth| daemon.lab.haul().args(["why", nth]).run().expect(code::OK));
    let listed = daemon.lab.haul().args(["why", "--list"]).run().expect(code::OK);
    assert!(listed.stdout_text().contains("SPOOF"), "{listed}");

    for run in [&pushed, &pulled, &refused, &listed].into_iter().chain(&shown) {
        drives_nothing(&format!("standard output of {}", run.line.escape_debug()), &run.stdout);
        drives_nothing(&format!("standard error of {}", run.line.escape_debug()), &run.stderr);
    }
    drives_nothing("the daemon's log", daemon.log().as_bytes());
}

/// A pager or paused terminal holds names for longer than the far side waits for data.
#[test]
fn a_copy_goes_on_while_nobody_reads_the_names_it_writes() {
    needs!(Namespaces, Haul);
    // One line each: more than a pipe holds (64 KiB).
    const FILES: u64 = 4000;
    const FOLDER: &str = "a-name-that-makes-lines-longer";
    let files_in = |tree: &Path| {
        let folders =
            (0..FILES / 1000).flat_map(|folder| fs::read_dir(tree.join(FOLDER).join(format!("d{folder:04}"))));
        let names = folders.flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| !name.as_bytes().starts_with(b".haul-")).count() as u64
    };
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    let back = lab.data("home").join("back");
    plant::many(&source.join(FOLDER), FILES, 10, 1);
    plant::date(&source, 2);
    for pull in [false, true] {
        let cp = lab.haul().args(["cp", "-v", "--timeout", "10", "-F"]).arg(lab.ssh_config());
        let (cp, to) = match pull {
            false => (cp.arg(contents_of(&source)).arg(at("alpha", &there)), &there),
            true => (cp.arg(at("alpha", there.join(""))).arg(&back), &back),
        };
        let mut running = cp.unread().start();
        running.when("all of it arrives", |_| files_in(to) == FILES);
        running.read_on();
        let ended = running.wait().expect(code::OK);
        assert_same(&source, to, Facets::PLAIN);
        let named = ended.stdout_text().lines().filter(|line| line.starts_with("copied a-name")).count();
        assert_eq!(named as u64, FILES, "{ended}");
    }
}

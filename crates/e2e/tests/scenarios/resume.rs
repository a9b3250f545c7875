//! Copies killed or cut off at any moment; then the same command again.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::firewall::Manner;
use haul_e2e::{
    Facets, Host, Lab, Outcome, Running, assert_same, at, code, contents_of, eventually, needs, plant, settle,
};
use rustix::process::Signal;

/// A run that starts over must send more than one checkpoint interval.
const SIZE: u64 = 640 << 20;

const CUT_AT: u64 = 420 << 20;

/// Slow enough for a cut, fast enough for a test.
const RATE: &str = "160MB";

/// MiB: at most a checkpoint interval and the bytes under way go again.
fn again_at_most() -> u64 {
    const CHECKPOINT_MIB: u64 = 256;
    let asked = std::env::var("HAUL_E2E_CHECKPOINT_MIB").ok().and_then(|mib| mib.parse().ok());
    (asked.unwrap_or(CHECKPOINT_MIB)) << 20
}

/// A side has noticed by then that its peer is gone.
const NOTICE_LIMIT: Duration = Duration::from_secs(20);

struct Copy {
    lab: Lab,
    source: PathBuf,
    target: PathBuf,
    pull: bool,
}

impl Copy {
    fn push() -> Self {
        Self::of(false, SIZE)
    }

    fn pull() -> Self {
        Self::of(true, SIZE)
    }

    fn of(pull: bool, bytes: u64) -> Self {
        let lab = Lab::pair();
        let (from, to) = if pull { ("alpha", "home") } else { ("home", "alpha") };
        let (source, target) = (lab.data(from).join("large"), lab.data(to).join("to/large"));
        plant::file(&source, bytes, 1);
        Self { lab, source, target, pull }
    }

    fn command(&self, flags: &[&str]) -> haul_e2e::Run {
        let (from, to) = if self.pull {
            (at("alpha", &self.source), self.target.clone().into_os_string())
        } else {
            (self.source.clone().into_os_string(), at("alpha", &self.target))
        };
        self.lab.cp().args(flags).arg(from).arg(to)
    }

    #[track_caller]
    fn start_and_move(&self, flags: &[&str]) -> Running {
        let mut running = self.command(&[&["--rate", RATE], flags].concat()).start();
        running.when_moved(CUT_AT);
        assert!(!self.target.exists(), "a file has no name before it is complete");
        running
    }

    /// The same command continues.
    #[track_caller]
    fn finishes_from_where_it_was(&self) -> Outcome {
        let parent = self.target.parent().expect("it has one");
        assert!(!self.target.exists(), "a file has no name before it is complete");
        let run = self.command(&[]).run().expect(code::OK);
        assert_same(&self.source, &self.target, Facets::PLAIN);
        let moved = run.count("bytes_moved");
        let allowed = SIZE - CUT_AT + again_at_most();
        assert!(moved <= allowed, "moved {moved} bytes where at most {allowed} were left\n{run}");
        assert_eq!(names_below(parent), [b"large"], "nothing is left behind");
        let third = self.command(&[]).run().expect(code::OK);
        assert_eq!((third.count("bytes_moved"), third.count("files_moved")), (0, 0), "{third}");
        run
    }
}

#[test]
fn goes_on_after_the_client_was_killed() {
    needs!(Namespaces, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        copy.start_and_move(&[]).kill();
        copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn goes_on_after_the_far_side_was_killed() {
    needs!(Namespaces, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        let running = copy.start_and_move(&[]);
        copy.lab.alpha().kill_haul();
        running.wait().expect_one_of(&[code::NETWORK, code::PROTOCOL, code::SSH]);
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn both_sides_end_when_ssh_dies_and_nothing_else_leads_to_the_far_side_and_the_next_run_goes_on() {
    needs!(Nftables, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        let (home, alpha) = (copy.lab.home(), copy.lab.alpha());
        let running = copy.start_and_move(&[]);
        let lane_ports = |host: &Host| host.listening_ports().into_iter().filter(|&port| port != host.ssh_port).count();
        assert!(lane_ports(alpha) > 0, "lanes come in at {:?}", alpha.listening_ports());
        let [ssh] = home.processes_named("ssh")[..] else { panic!("one session has the control channel") };
        // The lanes stand, and nothing new comes in.
        alpha.close_ports_but(&[alpha.ssh_port], Manner::Reject);
        let killed = std::time::Instant::now();
        home.kill(ssh);
        // Lanes alone are no session: nobody could send receipts.
        let ended = running.wait().expect(code::NETWORK);
        assert!(killed.elapsed() < NOTICE_LIMIT, "{ended}");
        ended
            .says_one_of(&["ended the session early", "the control channel failed"])
            .says(&["run the same command again"]);
        alpha.expect_no_haul_left(NOTICE_LIMIT);
        assert_eq!((lane_ports(alpha), lane_ports(home)), (0, 0), "nobody listens for lanes any more");
        alpha.open_firewall();
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn goes_on_at_once_though_the_killed_far_side_may_not_have_noticed() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    copy.start_and_move(&[]).kill();
    // The new run does not wait for the old agent.
    copy.finishes_from_where_it_was();
}

#[test]
fn both_sides_end_when_the_cable_is_out_and_go_on_when_it_is_back() {
    needs!(Namespaces, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        let running = copy.start_and_move(&["--timeout", "4"]);
        copy.lab.alpha().unplug();
        // Silence is noticed before the connection breaks, half a minute later.
        running.wait().expect(code::TIMEOUT).says(&["run the same command again"]);
        copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
        copy.lab.alpha().plug();
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn a_far_side_that_says_nothing_any_more_is_given_up() {
    needs!(Namespaces, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        let running = copy.start_and_move(&["--timeout", "4"]);
        // The kernel still answers for the stopped process.
        copy.lab.alpha().signal_haul(Signal::STOP);
        let ended = running.wait().expect(code::TIMEOUT).says(&["run the same command again"]);
        assert!(ended.elapsed < Duration::from_secs(30), "{ended}");
        copy.lab.alpha().kill_haul();
        copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn killed_again_and_again_it_still_arrives() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::mixed(&source, 1);
    plant::many(&source.join("many"), 4000, 5000, 2);
    plant::file(&source.join("large"), 200 << 20, 3);
    plant::file(&source.join("many/large-too"), 50 << 20, 4);
    plant::hard_links(&source.join("hard"), 5);
    plant::date(&source, 6);
    let command = || lab.cp().args(["-aH", "--rate", "100MB"]).arg(contents_of(&source)).arg(at("alpha", &there));
    let mut seed = plant::Seed::new(7);
    for round in 0..24 {
        let mut running = command().start();
        let life = Duration::from_millis(250 + seed.draw() % 500);
        // The condition is time itself: a kill at any moment.
        if settle(life, || running.has_ended()) {
            break;
        }
        match round % 3 {
            0 => lab.alpha().kill_haul(),
            1 => running.signal(Signal::KILL),
            _ => running.signal(Signal::TERM),
        }
        running.wait();
        complete_files(&source, &there);
    }
    command().run().expect(code::OK);
    assert_same(&source, &there, Facets { hard_links: true, ..Facets::PLAIN });
}

#[test]
fn what_a_killed_run_left_goes_with_delete() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::file(&source.join("gone/large"), 100 << 20, 1);
    plant::text(&source.join("stays"), "words\n");
    let command = || lab.cp().arg(contents_of(&source)).arg(at("alpha", &there));
    let mut running = command().args(["--rate", "40MB"]).start();
    running.when_moved(20 << 20);
    running.kill();
    lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
    fs::remove_file(source.join("gone/large")).expect("it is there");
    command().arg("--delete").run().expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
}

#[test]
fn a_short_cut_of_the_cable_is_survived_in_the_same_run() {
    needs!(Namespaces, Haul);
    for copy in [Copy::push(), Copy::pull()] {
        let running = copy.start_and_move(&["--timeout", "30"]);
        copy.lab.alpha().unplug();
        // The condition is time itself: a cut of one second.
        assert!(!settle(Duration::from_secs(1), || false));
        copy.lab.alpha().plug();
        running.wait().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
    }
}

#[test]
fn half_a_minute_without_the_network_is_survived_in_the_same_run() {
    needs!(Namespaces, Haul);
    let is_survived = |copy: &Copy| {
        let running = copy.start_and_move(&[]);
        copy.lab.alpha().unplug();
        assert!(!settle(Duration::from_secs(30), || false));
        copy.lab.alpha().plug();
        running.wait().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
    };
    let copies = [Copy::push(), Copy::pull()];
    std::thread::scope(|scope| {
        for copy in &copies {
            scope.spawn(move || is_survived(copy));
        }
    });
}

#[test]
fn an_interrupt_ends_both_sides_in_order() {
    needs!(Namespaces, Haul);
    for (signal, copy) in [(Signal::INT, Copy::push()), (Signal::TERM, Copy::pull())] {
        let running = copy.start_and_move(&[]);
        running.signal(signal);
        let begun = std::time::Instant::now();
        let ended = running.wait().expect(code::INTERRUPTED);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?} to end\n{ended}", begun.elapsed());
        copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
        eventually("no ssh is left behind", NOTICE_LIMIT, || copy.lab.home().processes().is_empty());
        copy.finishes_from_where_it_was();
    }
}

#[test]
fn a_changed_source_is_never_mixed_with_old_chunks() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    copy.start_and_move(&[]).kill();
    plant::file(&copy.source, SIZE, 99);
    copy.command(&[]).run().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

#[test]
fn a_source_that_changes_while_it_is_read_is_not_taken_for_whole() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    let running = copy.start_and_move(&[]);
    // Both ends change, long after the beginning was sent.
    for offset in [0, SIZE - 10] {
        let file = fs::File::options().write(true).open(&copy.source).expect("own file");
        std::os::unix::fs::FileExt::write_all_at(&file, b"new", offset).expect("space");
    }
    let run = running.wait().expect_one_of(&[code::OK, code::PARTIAL]);
    if run.code() == code::OK {
        assert_same(&copy.source, &copy.target, Facets::CONTENTS);
    } else {
        assert!(!copy.target.exists(), "versions must not be mixed\n{run}");
    }
    copy.command(&[]).run().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

#[test]
fn a_damaged_journal_costs_time_but_never_truth() {
    needs!(Namespaces, Haul);
    const HEADER_BYTES: usize = 76;
    /// The new content; `None` removes the file.
    type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;
    let damages: [Damage; 6] = [
        |bytes| Some(bytes[..bytes.len() / 2].to_vec()),
        |bytes| Some([&bytes[..], &[0xaa; 100]].concat()),
        |mut bytes| {
            bytes[HEADER_BYTES / 2] ^= 4;
            Some(bytes)
        },
        |mut bytes| {
            let records = bytes.len() - HEADER_BYTES;
            bytes[HEADER_BYTES + records / 2] ^= 4;
            Some(bytes)
        },
        |_| Some(Vec::new()),
        |_| None,
    ];
    let copy = Copy::push();
    for damage in damages {
        let mut running = copy.command(&["--rate", RATE]).start();
        let journals = || with_extension(copy.target.parent().expect("it has one"), "journal");
        let claims = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > HEADER_BYTES as u64);
        running.when_moved(100 << 20);
        eventually("the journal claims a chunk", NOTICE_LIMIT, || journals().iter().any(claims));
        running.kill();
        copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
        let [journal] = &journals()[..] else { panic!("one journal") };
        match damage(fs::read(journal).expect("readable")) {
            Some(bytes) => fs::write(journal, bytes).expect("space"),
            None => fs::remove_file(journal).expect("it is there"),
        }
        copy.command(&[]).run().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
        assert_eq!(names_below(copy.target.parent().expect("it has one")), [b"large"]);
        fs::remove_file(&copy.target).expect("it is there");
    }
}

#[test]
fn what_is_written_into_a_part_between_two_runs_is_found_and_comes_again() {
    needs!(Namespaces, Haul);
    const MIB: u64 = 1 << 20;
    const BYTES: u64 = 160 * MIB;
    for pull in [false, true] {
        let copy = Copy::of(pull, BYTES);
        let parent = copy.target.parent().expect("it has one");
        let half_done_and_changed = || {
            let mut running = copy.command(&["--rate", "60MB"]).start();
            // More than a second's worth: there was a checkpoint.
            running.when_moved(100 * MIB);
            running.kill();
            copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
            let [part] = &with_extension(parent, "part")[..] else { panic!("one part") };
            let part = fs::File::options().read(true).write(true).open(part).expect("own file");
            let mut bytes = [0; 8];
            part.read_exact_at(&mut bytes, 5 * MIB).expect("it was written");
            part.write_all_at(&bytes.map(|byte| !byte), 5 * MIB).expect("space");
        };
        half_done_and_changed();
        let run = copy.command(&[]).run().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
        assert_eq!(run.count("chunks_repaired"), 1, "{run}");
        assert!(run.count("bytes_read_again") >= 20 * MIB && run.count("bytes_trusted") == 0, "{run}");
        fs::remove_file(&copy.target).expect("it is there");
        if pull {
            continue;
        }
        half_done_and_changed();
        let cp = copy.lab.haul().args(["cp", "--trust-journal", "-F"]).arg(copy.lab.ssh_config());
        let run = cp.arg(&copy.source).arg(at("alpha", &copy.target)).run().expect(code::OK);
        run.says(&["of an earlier run not read again (--trust-journal)"]);
    }
}

#[test]
fn a_target_that_is_moved_during_the_copy_is_no_success() {
    needs!(Namespaces, Haul);
    for pull in [false, true] {
        let copy = Copy::of(pull, 60 << 20);
        let mut running = copy.command(&["--rate", "40MB"]).start();
        running.when_moved(10 << 20);
        let parent = copy.target.parent().expect("it has one");
        fs::rename(parent, parent.with_extension("elsewhere")).expect("it is there");
        running.wait().expect(code::FILE_IO).says(&["unmounted during the copy"]);
        assert!(!copy.target.exists());
    }
}

#[test]
fn lost_data_behind_the_journal_is_noticed() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    copy.start_and_move(&[]).kill();
    copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
    // After a power cut, a disk that lied about its flush has less than the journal says.
    let parent = copy.target.parent().expect("it has one");
    let mut cut = 0;
    for name in names_below(parent) {
        let path = parent.join(path_of(&name));
        if fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() > 1 << 20) {
            fs::File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 20)).expect("own file");
            cut += 1;
        }
    }
    assert_eq!(cut, 1, "what had arrived lies there");
    copy.command(&[]).run().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

#[test]
fn many_small_files_go_on_where_they_stopped() {
    needs!(Namespaces, Haul);
    const FILES: u64 = 6_000;
    const FILE_BYTES: usize = 16 << 10;
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::many(&source, FILES, FILE_BYTES, 1);
    let command = || lab.cp().arg(contents_of(&source)).arg(at("alpha", &there));
    let mut running = command().args(["--rate", "20MB"]).start();
    let half = FILES * FILE_BYTES as u64 / 2;
    running.when_moved(half);
    running.kill();
    lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
    let finished = complete_files(&source, &there);
    let run = command().run().expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    let moved = run.count("files_moved");
    assert!(moved <= FILES - finished, "{moved} files moved though {finished} of {FILES} were there\n{run}");
    assert!(finished > FILES / 4, "only {finished} of {FILES} files were under their names when half had moved");
}

#[test]
fn a_finished_copy_again_moves_nothing() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 30 << 20, 2);
    plant::hard_links(&source.join("hard"), 3);
    for flags in [&[][..], &["-aHAX"]] {
        let run = || lab.cp().args(flags).arg(contents_of(&source)).arg(at("alpha", &there)).run().expect(code::OK);
        run();
        let again = run();
        for field in ["bytes_moved", "files_moved", "others_made", "failed"] {
            assert_eq!(again.count(field), 0, "{field}\n{again}");
        }
        assert_eq!(again.events_named("copied").len(), 0, "{again}");
    }
}

#[test]
fn a_second_copy_to_the_same_target_is_refused_while_the_first_runs() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    let first = copy.start_and_move(&[]);
    let holder = holder_of_the_part(copy.target.parent().expect("it has one"));
    // It takes longer than a copy about to end may.
    first.signal(Signal::STOP);
    let second = copy.command(&[]).run().expect(code::PARTIAL);
    first.signal(Signal::CONT);
    let [failed] = &second.events_named("failed")[..] else { panic!("one entry fails\n{second}") };
    let why = failed["why"].as_str().unwrap_or_default();
    let process = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    assert!(why.contains(&format!("another haul{process} is writing this file")), "{why}");
    first.wait().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

/// The process that locked the unfinished file (proc_locks(5)). `None` on file systems with another device number there than
/// in stat(2) (overlay, btrfs).
fn holder_of_the_part(directory: &Path) -> Option<String> {
    let [part] = &with_extension(directory, "part")[..] else { panic!("one part") };
    let part = fs::metadata(part).expect("it is there");
    let (major, minor) = (rustix::fs::major(part.dev()), rustix::fs::minor(part.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", part.ino());
    let locks = fs::read_to_string("/proc/locks").expect("proc is mounted");
    let line = locks.lines().find(|line| line.split_whitespace().any(|word| word == place))?;
    line.split_whitespace().nth(4).map(str::to_owned)
}

#[test]
fn starting_over_is_possible() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    copy.start_and_move(&[]).kill();
    copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
    let run = copy.command(&["--no-resume"]).run().expect(code::OK);
    assert_eq!(run.count("bytes_moved"), SIZE, "{run}");
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

#[test]
fn writing_in_place_goes_on_too() {
    needs!(Namespaces, Haul);
    let copy = Copy::push();
    let mut running = copy.command(&["--inplace", "--rate", RATE]).start();
    running.when_moved(CUT_AT);
    running.kill();
    copy.lab.alpha().expect_no_haul_left(NOTICE_LIMIT);
    let run = copy.command(&["--inplace"]).run().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
    assert!(run.count("bytes_moved") <= SIZE - CUT_AT + again_at_most(), "{run}");
    assert_eq!(names_below(copy.target.parent().expect("it has one")), [b"large"], "nothing is left behind");
}

fn with_extension(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("it is there").flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// Counts final names; each must be whole.
fn complete_files(source: &Path, target: &Path) -> u64 {
    let mut count = 0;
    for name in names_below(source) {
        let name = path_of(&name);
        if source.join(name).is_file() && target.join(name).exists() {
            assert_same(&source.join(name), &target.join(name), Facets::CONTENTS);
            count += 1;
        }
    }
    count
}

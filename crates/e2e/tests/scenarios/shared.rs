//! Directories that a group writes into. What only an entry's owner may set, unasked, stays with one warning. rsync, cp and
//! haul run on equal trees.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Facets, Outcome, Run, code, contents_of, differences, needs, plant, scratch};

/// The copying user, two others, and their group; no host knows them.
const WE: u32 = 12_011;
const THEY: u32 = 12_012;
const THIRD: u32 = 12_013;
const GROUP: u32 = 12_010;

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    /// `theirs` at the target is another user's: one file equals the source's, three differ in permissions, time or contents,
    /// a link in time.
    fn new() -> Self {
        let dir = scratch();
        plant::set_mode(dir.path(), 0o755);
        fs::copy(haul_e2e::binary::find().expect("asked for with needs!"), dir.path().join("haul")).expect("space");
        fs::create_dir(dir.path().join("home")).expect("own directory");
        let stage = Self { dir };
        stage.give(&stage.dir.path().join("home"), WE);
        let (from, to) = (stage.source(), stage.target());
        plant::text(&from.join("ours/new"), "new\n");
        fs::create_dir_all(to.join("ours")).expect("own directory");
        for (name, at_source, at_target) in [
            ("same", "words", "words"),
            ("mode", "words", "words"),
            ("time", "words", "words"),
            ("bytes", "new!", "old"),
        ] {
            plant::text(&from.join("theirs").join(name), at_source);
            plant::text(&to.join("theirs").join(name), at_target);
        }
        for tree in [&from, &to] {
            symlink("same", tree.join("theirs/link")).expect("own directory");
            let time = if *tree == to { "@1100000000" } else { "@1200000000" };
            Run::new("touch").args(["-h", "-d", time]).arg(tree.join("theirs/link")).run().expect(code::OK);
            for name in names_below(tree) {
                let path = tree.join(path_of(&name));
                if !path.is_symlink() && path.is_file() {
                    plant::set_mode(&path, if path.ends_with("mode") && *tree == to { 0o664 } else { 0o644 });
                    let is_older = *tree == to && (path.ends_with("time") || path.ends_with("bytes"));
                    plant::set_mtime(&path, if is_older { 1_100_000_000 } else { 1_200_000_000 }, 0);
                }
            }
        }
        for (directory, owner) in [(to.clone(), THEY), (to.join("theirs"), THEY), (to.join("ours"), WE)] {
            for name in names_below(&directory) {
                stage.give(&directory.join(path_of(&name)), owner);
            }
            stage.give(&directory, owner);
        }
        for directory in [to.join("theirs"), to.join("ours"), to.clone()] {
            plant::set_mode(&directory, 0o2775);
            plant::set_mtime(&directory, 1_100_000_000, 0);
        }
        for directory in [from.join("theirs"), from.join("ours"), from.clone()] {
            plant::set_mode(&directory, 0o755);
            plant::set_mtime(&directory, 1_200_000_000, 0);
        }
        stage
    }

    fn give(&self, path: &Path, user: u32) {
        std::os::unix::fs::lchown(path, Some(user), Some(GROUP)).expect("root may");
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("from")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    fn program_of(&self, member: u32, program: &str) -> Run {
        let who =
            [&format!("--reuid={member}"), &format!("--regid={GROUP}"), "--clear-groups", "--inh-caps=-all", "--"];
        Run::new("setpriv").args(who).arg(program).env("HOME", self.dir.path().join("home")).current_dir("/")
    }

    fn run(&self, program: &str, flags: &[&str]) -> Outcome {
        self.program_of(WE, program).args(flags).arg(contents_of(&self.source())).arg(self.target()).run()
    }

    fn haul(&self, flags: &[&str]) -> Outcome {
        self.run(&self.dir.path().join("haul").to_string_lossy(), flags)
    }

    fn cp(&self, flags: &[&str]) -> Outcome {
        self.haul(&[&["cp", "--no-config", "--no-progress", "--itemize-changes"], flags].concat())
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.target().join(path)).expect("it stands there").mode() & 0o7777
    }
}

fn warnings(run: &Outcome) -> Vec<String> {
    run.stderr_text().lines().filter(|line| line.starts_with("warning:")).map(str::to_owned).collect()
}

const LEFT: &str = "they belong to other users, who alone may set them";

#[test]
fn a_plain_copy_leaves_with_one_warning_what_only_others_may_set_where_rsync_rlt_fails_for_ever() {
    needs!(Root, Haul, Tool("setpriv"), Tool("rsync"));
    Stage::new().run("rsync", &["-rlt"]).expect(code::PARTIAL).says(&["failed to set times on"]);
    let stage = Stage::new();
    let run = stage.cp(&["-r"]).expect(code::OK);
    let told = warnings(&run);
    assert_eq!(told.len(), 1, "{run}");
    // The file `mode`, both directories, the link.
    assert!(told[0].contains("permissions of 3 entries and times of 3 entries") && told[0].contains(LEFT), "{run}");
    for name in ["theirs/bytes", "theirs/time", "ours/new"] {
        let metadata = fs::metadata(stage.target().join(name)).expect("it was copied");
        assert_eq!((metadata.uid(), metadata.mtime()), (WE, 1_200_000_000), "{name}");
        assert_eq!(fs::read(stage.target().join(name)).ok(), fs::read(stage.source().join(name)).ok());
    }
    assert_eq!((stage.mode("theirs/mode"), stage.mode("theirs"), stage.mode("")), (0o664, 0o2775, 0o2775));
    // The next has nothing to do, and says the same; so do `-n` and `diff`.
    let again = stage.cp(&["--json"]).expect(code::OK);
    assert_eq!((again.count("files_moved"), again.count("failed")), (0, 0), "{again}");
    stage.cp(&["-n", "--json"]).expect(code::OK);
    stage.haul(&["diff"]).expect(code::OK);
}

#[test]
fn a_dry_run_says_of_a_shared_directory_what_the_copy_says() {
    needs!(Root, Haul, Tool("setpriv"));
    for flags in [
        &[][..],
        &["-c"],
        &["-t"],
        &["-p"],
        &["-a"],
        &["-tO"],
        &["-tcO", "--omit-link-times"],
        &["--chmod=g-w"],
        &["--no-perms", "--no-times", "-c"],
        &["-a", "--no-perms", "-O", "--omit-link-times"],
    ] {
        let stage = Stage::new();
        let [foreseen, done] = [&["-n"][..], &[]].map(|more| stage.cp(&[flags, more].concat()));
        assert_eq!(foreseen.code(), done.code(), "{flags:?}\n{foreseen}{done}");
        let said = |run: &Outcome| {
            let is_told = |line: &&str| !line.starts_with("copied ") && !line.starts_with("would copy ");
            let mut told: Vec<String> = run.stderr_text().lines().map(str::to_owned).collect();
            told.extend(run.stdout_text().lines().filter(is_told).map(str::to_owned));
            told.sort();
            told
        };
        assert_eq!(said(&foreseen), said(&done), "{flags:?}");
        // The target has all contents: no difference.
        stage.haul(&["diff", "-c"]).expect(code::OK);
    }
}

#[test]
fn what_is_asked_for_in_words_fails_as_with_rsync() {
    needs!(Root, Haul, Tool("setpriv"), Tool("rsync"));
    for (ours, theirs) in [("-a", "-a"), ("-rp", "-rlpt"), ("-rt", "-rlt"), ("-rg", "-rltg"), ("-rtOc", "-rltOc")] {
        Stage::new().run("rsync", &[theirs]).expect(code::PARTIAL);
        let stage = Stage::new();
        let [first, second] = [stage.cp(&[ours]), stage.cp(&[ours])];
        for run in [first, second] {
            if ours == "-rg" {
                run.expect(code::OK);
            } else {
                run.expect(code::PARTIAL).says(&["failed:", "Operation not permitted"]);
            }
        }
    }
}

/// rsync -rltO fails at the link alone: its -J (`--omit-link-times`) leaves links, too.
#[test]
fn without_times_of_directories_and_links_a_shared_directory_is_copied_as_rsync_does() {
    needs!(Root, Haul, Tool("setpriv"), Tool("rsync"));
    Stage::new().run("rsync", &["-rltO"]).expect(code::PARTIAL).says(&["theirs/link"]);
    let theirs = Stage::new();
    theirs.run("rsync", &["-rltO", "--omit-link-times"]).expect(code::OK);
    let ours = Stage::new();
    ours.cp(&["-rtO"]).expect(code::PARTIAL).says(&["theirs/link"]);
    let ours = Stage::new();
    let run = ours.cp(&["-rtO", "--omit-link-times", "--no-perms"]).expect(code::OK);
    assert_eq!(warnings(&run), Vec::<String>::new(), "nothing was to be set: {run}");
    for name in names_below(&theirs.target()) {
        let facts = |stage: &Stage| {
            let metadata = fs::symlink_metadata(stage.target().join(path_of(&name))).expect("both have it");
            let time = metadata.is_file().then_some(metadata.mtime());
            (metadata.mode(), metadata.uid(), metadata.gid(), time)
        };
        assert_eq!(facts(&ours), facts(&theirs), "{}", path_of(&name).display());
    }
    ours.cp(&["-rtO", "--omit-link-times", "--no-perms"]).expect(code::OK);
}

#[derive(Clone, Copy)]
enum Program {
    Rsync,
    Scp,
    Haul,
}

impl Stage {
    fn of_group() -> Self {
        let stage = Self::new();
        fs::remove_dir_all(stage.target()).expect("own directory");
        fs::create_dir(stage.target()).expect("own directory");
        stage.give(&stage.target(), THEY);
        plant::set_mode(&stage.target(), 0o2775);
        stage
    }

    /// A member brings what is new, with a group's umask.
    fn takes_its_turn(&self, turn: u32, program: Program) -> Outcome {
        let (day, to) = (self.source(), self.target());
        plant::text(&day.join("ours/log"), &"a line\n".repeat(turn as usize));
        plant::text(&day.join(format!("ours/of turn {turn}")), "words\n");
        for name in names_below(&day) {
            let path = day.join(path_of(&name));
            if !path.is_symlink() {
                plant::set_mode(&path, if path.is_dir() { 0o775 } else { 0o664 });
                plant::set_mtime(&path, 1_200_000_000 + i64::from(turn), 0);
            }
        }
        let member = [WE, THEY, THIRD][turn as usize % 3];
        let home = self.dir.path().join("home");
        self.give(&home, member);
        let shell = self.program_of(member, "sh").args(["-c", "umask 002; exec \"$@\"", "sh"]);
        let contents = contents_of(&day);
        let run = match program {
            Program::Rsync => shell.args(["rsync", "-rltO", "--omit-link-times"]).arg(contents).arg(to),
            // scp itself does so locally; its own name wants a user whom the host knows.
            Program::Scp => shell.args(["cp", "-r"]).arg(day.join("ours")).arg(to),
            Program::Haul => shell.arg(self.dir.path().join("haul")).args(["cp", "--no-config"]).arg(contents).arg(to),
        };
        run.run()
    }
}

#[test]
fn three_members_of_a_group_take_turns_with_rsync_scp_and_haul() {
    needs!(Root, Haul, Tool("setpriv"), Tool("rsync"));
    let orders = [
        [Program::Rsync, Program::Scp, Program::Haul],
        [Program::Scp, Program::Haul, Program::Rsync],
        [Program::Haul, Program::Rsync, Program::Scp],
    ];
    let others = |program| if matches!(program, Program::Haul) { Program::Rsync } else { program };
    for order in orders {
        let (ours, theirs) = (Stage::of_group(), Stage::of_group());
        for turn in 1..=6 {
            let program = order[turn as usize % 3];
            ours.takes_its_turn(turn, program).expect(code::OK);
            theirs.takes_its_turn(turn, others(program)).expect(code::OK);
        }
        let facets = Facets { modes: true, owners: true, ..Facets::CONTENTS };
        let differ = differences(&theirs.target(), &ours.target(), facets);
        assert!(differ.is_empty(), "{differ:#?}");
    }
}

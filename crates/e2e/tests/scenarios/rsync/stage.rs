//! Two equal pairs of source and target: one for rsync, one for haul.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Run, binary, contents_of, differences, plant, scratch};

pub const FACETS: Facets = Facets { root: true, hard_links: true, owners: true, ..Facets::PLAIN };

pub struct Stage {
    dir: tempfile::TempDir,
}

pub struct Pair {
    pub source: PathBuf,
    pub target: PathBuf,
}

pub struct Compared {
    pub target: Vec<String>,
    /// Files of the reference tree that are the target's.
    pub reference: Vec<String>,
    pub source: Vec<String>,
    /// Lines of one that the other lacks.
    pub letters: Vec<String>,
}

impl Compared {
    pub fn trees(&self) -> Vec<String> {
        [&self.target[..], &self.reference, &self.source].concat()
    }

    pub fn all(&self) -> Vec<String> {
        [self.trees(), self.letters.clone()].concat()
    }
}

impl Stage {
    pub fn new() -> Self {
        let stage = Self { dir: scratch() };
        for pair in [stage.ours(), stage.theirs()] {
            plant::text(&pair.source.with_file_name("rules"), "# of all\n- empty\n");
            plant::set_mtime(&pair.source.with_file_name("rules"), 1_234_567_890, 0);
            plant_source(&pair.source);
            plant_reference(&pair.source.with_file_name("reference"), &pair.source);
            plant_target(&pair.target);
            plant::set_mtime(&pair.source, 1_700_000_000, 0);
            plant::set_mtime(&pair.target, 1_600_000_000, 0);
        }
        stage
    }

    fn pair(&self, name: &str) -> Pair {
        let dir = self.dir.path().join(name);
        Pair { source: dir.join("src"), target: dir.join("to") }
    }

    pub fn ours(&self) -> Pair {
        self.pair("ours")
    }

    pub fn theirs(&self) -> Pair {
        self.pair("theirs")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// haul, with its own home.
    pub fn haul(&self) -> Run {
        let run = Run::new(binary::find().expect("asked for with needs!")).env("HOME", self.dir.path().join("home"));
        run.env("XDG_CACHE_HOME", self.dir.path().join("cache")).env("TZ", "UTC")
    }

    /// Copies the source's contents with both, and compares. `DIR` in a flag is the pair's directory.
    pub fn compare(&self, ours: &[&str], theirs: &[&str]) -> Compared {
        self.run_both(None, ours, theirs, FACETS)
    }

    /// Without times and letters of directories.
    pub fn compare_files(&self, ours: &[&str], theirs: &[&str]) -> Compared {
        let mut compared = self.run_both(None, ours, theirs, Facets { root: false, directory_times: false, ..FACETS });
        compared.letters.retain(|line| !line.contains("says: .d"));
        compared
    }

    /// Copies these paths, in the source's directory. The target's root has no source.
    pub fn compare_paths(&self, paths: &[&str], ours: &[&str], theirs: &[&str]) -> Compared {
        self.run_both(Some(paths), ours, theirs, Facets { root: false, ..FACETS })
    }

    fn shared_files(&self, theirs: &Pair, ours: &Pair) -> Vec<String> {
        let links = Facets { hard_links: true, ..Facets::CONTENTS };
        let both = |pair: &Pair| pair.source.parent().expect("a pair").to_path_buf();
        differences(&both(theirs), &both(ours), links)
    }

    fn run_both(&self, paths: Option<&[&str]>, ours: &[&str], theirs: &[&str], facets: Facets) -> Compared {
        let (here, there) = (self.ours(), self.theirs());
        let with = |flags: &[&str], pair: &Pair| -> Vec<String> {
            let dir = pair.source.parent().expect("a pair").to_str().expect("a plain name").to_owned();
            flags.iter().map(|flag| flag.replace("DIR", &dir)).collect()
        };
        let ends = |run: Run, pair: &Pair| {
            let run = run.current_dir(&pair.source);
            let run = match paths {
                Some(paths) => run.args(paths),
                None => run.arg(contents_of(&pair.source)),
            };
            run.arg(&pair.target).run().expect(0)
        };
        let theirs = Run::new("rsync").env("TZ", "UTC").args(["-rltp", "-i"]).args(with(theirs, &there));
        let theirs = ends(theirs, &there);
        let ours = ends(self.haul().args(["cp", "--itemize-changes"]).args(with(ours, &here)), &here);
        let (said, expected) = (lines(&ours.stdout), lines(&theirs.stdout));
        let more = said.difference(&expected).map(|line| format!("only haul says: {line}"));
        let less = expected.difference(&said).map(|line| format!("only rsync says: {line}"));
        Compared {
            target: differences(&there.target, &here.target, facets),
            reference: self.shared_files(&there, &here),
            // Removals change a directory's time.
            source: differences(&there.source, &here.source, Facets { file_times: true, ..Facets::CONTENTS }),
            letters: more.chain(less).collect(),
        }
    }
}

/// Lines with letters. Only rsync ends a deleted directory in a slash.
pub fn lines(output: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(output);
    let is_line = |line: &&str| line.len() > 11 && line.starts_with(['<', '>', 'c', 'h', '.', '*']);
    let has_letters = |line: &&str| line.starts_with("*deleting") || matches!(line.as_bytes()[1], b'f' | b'd' | b'L');
    let lines = text.lines().filter(is_line).filter(has_letters).filter(|line| line.as_bytes()[11] == b' ');
    lines.map(|line| if line.starts_with('*') { line.trim_end_matches('/') } else { line }.to_owned()).collect()
}

fn odd(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(name))
}

/// Sizes, times, modes, links and odd names; `plant_target` has them with differences.
fn plant_source(dir: &Path) {
    plant::text(&dir.join("equal"), "as it is there\n");
    plant::text(&dir.join("same-size"), "here\n");
    plant::text(&dir.join("older"), "older than there\n");
    plant::text(&dir.join("newer"), "newer than there, and longer\n");
    plant::text(&dir.join("touched"), "only its time differs\n");
    plant::text(&dir.join("mode"), "only its mode differs\n");
    plant::set_mode(&dir.join("mode"), 0o640);
    plant::text(&dir.join("run.sh"), "#!/bin/sh\n");
    plant::set_mode(&dir.join("run.sh"), 0o755);
    plant::file(&dir.join("empty"), 0, 1);
    plant::file(&dir.join("large"), 300_000, 2);
    plant::file(&dir.join("dir/new"), 1_500, 3);
    plant::file(&dir.join("dir/deep/new"), 1_024, 4);
    plant::text(&dir.join("dir/there"), "changed\n");
    plant::text(&dir.join("cache/kept.o"), "an object\n");
    plant::text(&dir.join("dir/.rules"), "- new\nP *.keep\n");
    plant::text(&odd(dir, b"with space"), "odd\n");
    plant::text(&odd(dir, b"new\nline"), "odd\n");
    plant::text(&odd(dir, b"not utf-8 \xff"), "odd\n");
    fs::create_dir_all(dir.join("void")).expect("own directory");
    for (name, leads) in [("link", "equal"), ("other-link", "newer"), ("dangling", "nowhere"), ("away", "../rules")] {
        symlink(leads, dir.join(name)).expect("own directory");
    }
    plant::text(&dir.join("first"), "two names\n");
    fs::hard_link(dir.join("first"), dir.join("second")).expect("one file system");
    plant::date(dir, 7);
    plant::set_mtime(&dir.join("older"), 1_000_000_000, 0);
    plant::set_mtime(&dir.join("newer"), 1_500_000_000, 0);
}

/// Files as at the source, one with another mode, one with other data.
fn plant_reference(dir: &Path, source: &Path) {
    for name in ["large", "empty", "newer", "touched", "dir/new", "dir/deep/new"] {
        let (from, to) = (source.join(name), dir.join(name));
        fs::create_dir_all(to.parent().expect("it has one")).expect("own directory");
        fs::copy(&from, &to).expect("planted");
        let of_source = fs::metadata(&from).expect("planted");
        plant::set_mtime(&to, of_source.mtime(), u32::try_from(of_source.mtime_nsec()).expect("less than a second"));
    }
    plant::set_mode(&dir.join("dir/new"), 0o600);
    plant::text(&dir.join("dir/deep/new"), "other data\n");
}

fn plant_target(dir: &Path) {
    plant_source(dir);
    for name in ["large", "empty", "dir/new", "dir/deep/new", "with space", "new\nline", "first", "second", "dangling"]
    {
        fs::remove_file(dir.join(name)).expect("planted");
    }
    for name in ["void", "dir/deep"] {
        fs::remove_dir(dir.join(name)).expect("planted");
    }
    plant::text(&dir.join("same-size"), "else\n");
    plant::text(&dir.join("older"), "of today\n");
    plant::text(&dir.join("newer"), "short\n");
    plant::text(&dir.join("dir/there"), "was\n");
    plant::set_mode(&dir.join("mode"), 0o600);
    fs::remove_file(dir.join("other-link")).expect("planted");
    symlink("elsewhere", dir.join("other-link")).expect("own directory");
    plant::text(&dir.join("dir/deep.keep"), "not at the source\n");
    plant::text(&dir.join("extra"), "not at the source\n");
    plant::text(&dir.join("extra-dir/inside"), "not at the source\n");
    for (name, at) in [("same-size", 3), ("older", 1_900_000_000), ("newer", 5), ("touched", 6), ("dir/there", 7)] {
        plant::set_mtime(&dir.join(name), at, 0);
    }
    for name in ["extra", "dir/deep.keep", "extra-dir/inside", "dir", "other-link", "extra-dir"] {
        plant::set_mtime(&dir.join(name), 9, 0);
    }
    // Other directories are as at the source.
    plant::set_mtime(&dir.join("cache"), 1_111_111_111, 0);
}

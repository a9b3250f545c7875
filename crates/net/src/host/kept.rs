//! Changes settings together, keeps them for the next start, and puts them back.
//!
//! Apply: save the earlier values -> write each setting, read it back -> write the file that the next start reads.
//! Revert: write each earlier value -> remove that file -> remove the saved values.
//!
//! After a refusal the steps are undone in reverse. Repeating changes nothing: the first saved value counts. Other people's
//! files of these names stay. A lock keeps other processes out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use haul_sys::file;
use haul_sys::own::{self, Weight};
use haul_sys::whole_file::{self, Mode};

use super::{Roots, settings};
use crate::limits;

/// A setting and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `net.ipv4.tcp_rmem`
    pub name: String,
    /// The words of the setting.
    pub value: String,
}

/// A finished step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A setting has another value.
    Set {
        /// The setting.
        name: String,
        /// The earlier value.
        from: String,
        /// The value as read back.
        to: String,
    },
    /// A setting stays: this kernel lacks it, or its value.
    Lacking {
        /// The setting.
        name: String,
        /// The requested value.
        value: String,
    },
    /// A file was written.
    Wrote(PathBuf),
    /// A file was removed.
    Removed(PathBuf),
    /// Somebody else's file of our name stays.
    NotOurs(PathBuf),
}

/// Why no setting was changed in the end.
#[derive(Debug)]
pub struct Refused {
    /// The setting or file.
    pub what: String,
    /// The kernel's error.
    pub error: io::Error,
    /// Changes that could not be undone. Normally empty.
    pub left: Vec<String>,
}

/// The file that is read at each start (sysctl.d(5)).
pub fn start_file(roots: &Roots) -> PathBuf {
    roots.etc.join("sysctl.d/90-haul.conf")
}

/// The modules for [`start_file`] (modules-load.d(5)): the kernel refuses a congestion control that is not loaded.
pub fn modules_file(roots: &Roots) -> PathBuf {
    roots.etc.join("modules-load.d/90-haul.conf")
}

/// The file with the earlier values.
pub fn saved_file(roots: &Roots) -> PathBuf {
    roots.var_lib.join("haul/tune-before.toml")
}

/// Makes these changes, now and for each start.
pub fn apply(roots: &Roots, changes: &[Change]) -> Result<Vec<Step>, Refused> {
    all_or_nothing(roots, |done| {
        let (start_file, modules_file) = (start_file(roots), modules_file(roots));
        let saved = read_saved(roots)?;
        for path in [&start_file, &modules_file] {
            if is_ours(path)? == Some(false) {
                let error = io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and haul has not written it");
                return Err((path.display().to_string(), error));
            }
        }
        if saved.is_none() && start_file.exists() {
            let error =
                io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and no earlier values were saved for it");
            return Err((start_file.display().to_string(), error));
        }
        let mut steps = Vec::new();
        let mut wanted = Vec::new();
        for Change { name, value } in changes {
            match settings::read(roots, name) {
                None => steps.push(Step::Lacking { name: name.clone(), value: value.clone() }),
                Some(now) if now.value != *value => {
                    if !is_name(name) || !is_value(&now.value) {
                        let error = io::Error::new(io::ErrorKind::InvalidData, "it could not be put back later");
                        return Err((name.clone(), error));
                    }
                    wanted.push((name, now.value, value));
                }
                Some(_) => {}
            }
        }
        let complete = saved.is_none() || start_file.exists();
        if wanted.is_empty() && complete {
            return Ok(steps);
        }
        let mut before = saved.unwrap_or_default();
        let first_saved = before.clone();
        for (name, now, _) in &wanted {
            before.entry((*name).clone()).or_insert_with(|| now.clone());
        }
        // First, to survive a power cut.
        done.write(&saved_file(roots), &saved_text(&before))?;
        for (name, now, value) in wanted {
            match done.set(name, &now, value) {
                Ok(to) => steps.push(Step::Set { name: name.clone(), from: now, to }),
                Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {
                    if !first_saved.contains_key(name) {
                        before.remove(name);
                    }
                    steps.push(Step::Lacking { name: name.clone(), value: value.clone() });
                }
                Err(refused) => return Err(refused),
            }
        }
        if before.is_empty() {
            done.undo();
            return Ok(steps);
        }
        done.write(&saved_file(roots), &saved_text(&before))?;
        let kept = before.keys().filter_map(|name| Some((name, settings::read(roots, name)?.value)));
        let lines: String = kept.map(|(name, value)| format!("{name} = {value}\n")).collect();
        done.write(&start_file, &format!("{START_HEADING}{lines}"))?;
        if let Some(modules) = before.contains_key(ALLOWED).then(|| settings::read(roots, ALLOWED)).flatten() {
            let names = modules.value.split(' ').filter(|name| *name != ALWAYS_THERE);
            let lines: String = names.map(|name| format!("tcp_{name}\n")).collect();
            done.write(&modules_file, &format!("{START_HEADING}{lines}"))?;
            steps.push(Step::Wrote(modules_file));
        }
        steps.extend([Step::Wrote(start_file), Step::Wrote(saved_file(roots))]);
        Ok(steps)
    })
}

/// Puts back the values from before the first [`apply`].
pub fn revert(roots: &Roots) -> Result<Vec<Step>, Refused> {
    all_or_nothing(roots, |done| {
        let Some(before) = read_saved(roots)? else { return Ok(Vec::new()) };
        let mut steps = Vec::new();
        for (name, value) in before {
            let Some(now) = settings::read(roots, &name) else {
                steps.push(Step::Lacking { name, value });
                continue;
            };
            if now.value != value {
                let to = done.set(&name, &now.value, &value)?;
                steps.push(Step::Set { name, from: now.value, to });
            }
        }
        for path in [start_file(roots), modules_file(roots)] {
            match is_ours(&path)? {
                None => {}
                Some(true) => {
                    done.remove(&path)?;
                    steps.push(Step::Removed(path));
                }
                Some(false) => steps.push(Step::NotOurs(path)),
            }
        }
        done.remove(&saved_file(roots))?;
        steps.push(Step::Removed(saved_file(roots)));
        // Others may keep files there: the directory stays.
        let _ = saved_file(roots).parent().map(fs::remove_dir);
        Ok(steps)
    })
}

type Fallible<T> = Result<T, (String, io::Error)>;

/// Runs `work`, or undoes it. The lock ends with the process (flock(2)).
fn all_or_nothing<T>(roots: &Roots, work: impl FnOnce(&mut Done) -> Fallible<T>) -> Result<T, Refused> {
    let refused = |error| Refused { what: roots.var_lib.display().to_string(), error, left: Vec::new() };
    let lock = File::open(&roots.var_lib).map_err(refused)?;
    if !file::try_lock(lock.as_fd()).map_err(refused)? {
        let why = "another process is changing the settings of this host";
        return Err(refused(io::Error::new(io::ErrorKind::WouldBlock, why)));
    }
    let mut done = Done { roots, acts: Vec::new() };
    work(&mut done).map_err(|(what, error)| Refused { what, error, left: done.undo() })
}

struct Done<'a> {
    roots: &'a Roots,
    acts: Vec<Act>,
}

enum Act {
    Set { name: String, before: String },
    File { path: PathBuf, before: Option<Vec<u8>> },
    Directory(PathBuf),
}

impl Done<'_> {
    fn set(&mut self, name: &str, now: &str, value: &str) -> Fallible<String> {
        // Recorded also on failure: the kernel may have taken a part.
        self.acts.push(Act::Set { name: name.to_owned(), before: now.to_owned() });
        settings::write(self.roots, name, value).map_err(|error| (name.to_owned(), error))
    }

    fn write(&mut self, path: &Path, text: &str) -> Fallible<()> {
        let failed = |error| (path.display().to_string(), error);
        let directory = path.parent().unwrap_or(Path::new("/"));
        if !directory.exists() {
            fs::create_dir_all(directory).map_err(failed)?;
            self.acts.push(Act::Directory(directory.to_owned()));
        }
        let before = existing(path).map_err(failed)?;
        // Recorded also on failure: perhaps only the flush has failed.
        self.acts.push(Act::File { path: path.to_owned(), before });
        whole_file::write(path, text.as_bytes(), Mode::AsBefore).map_err(failed)
    }

    fn remove(&mut self, path: &Path) -> Fallible<()> {
        let failed = |error| (path.display().to_string(), error);
        let before = existing(path).map_err(failed)?;
        self.acts.push(Act::File { path: path.to_owned(), before });
        fs::remove_file(path).map_err(failed)
    }

    fn undo(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        while let Some(act) = self.acts.pop() {
            match act {
                Act::Set { name, before } => {
                    let is_back = |now: &settings::Setting| now.value == before;
                    if !settings::read(self.roots, &name).as_ref().is_some_and(is_back)
                        && settings::write(self.roots, &name, &before).is_err()
                    {
                        left.push(name);
                    }
                }
                Act::File { path, before } => {
                    let undone = match (&before, existing(&path)) {
                        (before, Ok(now)) if *before == now => Ok(()),
                        (Some(bytes), _) => whole_file::write(&path, bytes, Mode::AsBefore),
                        (None, _) => fs::remove_file(&path),
                    };
                    if undone.is_err() {
                        left.push(path.display().to_string());
                    }
                }
                Act::Directory(path) => drop(fs::remove_dir(path)),
            }
        }
        left
    }
}

fn existing(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_ours(path: &Path) -> Fallible<Option<bool>> {
    let bytes = existing(path).map_err(|error| (path.display().to_string(), error))?;
    Ok(bytes.map(|bytes| bytes.starts_with(START_HEADING.as_bytes())))
}

fn saved_text(before: &BTreeMap<String, String>) -> String {
    let lines: String = before.iter().map(|(name, value)| format!("\"{name}\" = \"{value}\"\n")).collect();
    format!("{SAVED_HEADING}{lines}")
}

fn read_saved(roots: &Roots) -> Fallible<Option<BTreeMap<String, String>>> {
    let path = saved_file(roots);
    let failed = |error| (path.display().to_string(), error);
    let damaged = |why: &str| failed(io::Error::new(io::ErrorKind::InvalidData, why.to_owned()));
    let mut text = String::new();
    match own::open(&path, Weight::Obeyed) {
        Ok(file) => drop(file.take(limits::MAX_KEPT_BYTES + 1).read_to_string(&mut text).map_err(failed)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    if text.len() as u64 > limits::MAX_KEPT_BYTES {
        return Err(damaged("it is too long"));
    }
    parse_saved(&text).map(Some).map_err(damaged)
}

fn parse_saved(text: &str) -> Result<BTreeMap<String, String>, &'static str> {
    let lines = text.strip_prefix(SAVED_HEADING).ok_or("it is no list of saved settings")?;
    let pairs = lines.lines().map(|line| {
        let (name, value) = line.strip_prefix('"')?.strip_suffix('"')?.split_once("\" = \"")?;
        (is_name(name) && is_value(value)).then(|| (name.to_owned(), value.to_owned()))
    });
    pairs.collect::<Option<_>>().ok_or("a line of it is no setting with its value")
}

#[cfg(feature = "fuzzing")]
pub(crate) fn survives_the_disk(text: &str) {
    for text in [text.to_owned(), format!("{SAVED_HEADING}{text}")] {
        if let Ok(saved) = parse_saved(&text) {
            assert_eq!(parse_saved(&saved_text(&saved)), Ok(saved));
        }
    }
}

fn is_name(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    text.starts_with("net.") && text.split('.').all(word)
}

fn is_value(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'_' | b'-'))
}

/// Each member of this list must be loaded.
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

const ALWAYS_THERE: &str = "reno";

const START_HEADING: &str =
    "# Written by 'haul tune --apply'; 'haul tune --revert' puts back what was before and removes this file.\n";

const SAVED_HEADING: &str = "# Settings before 'haul tune --apply'; 'haul tune --revert' puts them back and removes this file.\nformat = 1\n\n[before]\n";

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        dir: tempfile::TempDir,
        roots: Roots,
    }

    const RMEM: &str = "net.ipv4.tcp_rmem";
    const QUEUE: &str = "net.core.default_qdisc";

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let roots = Roots { proc: at("proc"), sys: at("sys"), etc: at("etc"), var_lib: at("lib") };
            for path in ["proc/sys/net/ipv4", "proc/sys/net/core", "etc/sysctl.d", "lib"] {
                fs::create_dir_all(at(path)).unwrap();
            }
            fs::write(at("proc/sys/net/ipv4/tcp_rmem"), "4096\t131072\t6291456\n").unwrap();
            fs::write(at("proc/sys/net/core/default_qdisc"), "fq_codel\n").unwrap();
            Self { dir, roots }
        }

        fn value(&self, name: &str) -> String {
            settings::read(&self.roots, name).unwrap().value
        }

        fn expect_untouched(&self) {
            assert_eq!((self.value(RMEM), self.value(QUEUE)), ("4096 131072 6291456".into(), "fq_codel".into()));
            assert!(!start_file(&self.roots).exists() && !saved_file(&self.roots).exists());
            assert!(!self.roots.var_lib.join("haul").exists());
        }
    }

    fn changes(most: u64) -> [Change; 2] {
        [
            Change { name: QUEUE.into(), value: "fq".into() },
            Change { name: RMEM.into(), value: format!("4096 131072 {most}") },
        ]
    }

    #[test]
    fn applied_twice_and_reverted_twice() {
        let scene = Scene::new();
        let steps = apply(&scene.roots, &changes(1 << 26)).unwrap();
        assert_eq!(steps.len(), 4, "{steps:?}");
        assert_eq!(scene.value(RMEM), "4096 131072 67108864");
        let kept = fs::read_to_string(start_file(&scene.roots)).unwrap();
        assert!(kept.ends_with("net.core.default_qdisc = fq\nnet.ipv4.tcp_rmem = 4096 131072 67108864\n"), "{kept}");
        assert_eq!(apply(&scene.roots, &changes(1 << 26)).unwrap(), []);
        assert_eq!(revert(&scene.roots).unwrap().len(), 4);
        scene.expect_untouched();
        assert_eq!(revert(&scene.roots).unwrap(), []);
    }

    #[test]
    fn of_a_setting_that_is_changed_twice_the_first_value_comes_back() {
        let scene = Scene::new();
        apply(&scene.roots, &changes(1 << 26)[1..]).unwrap();
        let steps = apply(&scene.roots, &changes(1 << 28)).unwrap();
        assert!(steps.contains(&Step::Set {
            name: RMEM.into(),
            from: "4096 131072 67108864".into(),
            to: "4096 131072 268435456".into()
        }));
        let kept = fs::read_to_string(start_file(&scene.roots)).unwrap();
        assert!(kept.ends_with("net.core.default_qdisc = fq\nnet.ipv4.tcp_rmem = 4096 131072 268435456\n"), "{kept}");
        revert(&scene.roots).unwrap();
        scene.expect_untouched();
    }

    #[test]
    fn when_a_setting_is_refused_those_before_it_are_put_back() {
        let scene = Scene::new();
        let refusing = scene.roots.proc.join("sys/net/ipv4/tcp_wmem");
        std::os::unix::fs::symlink("/proc/version", refusing).unwrap();
        let mut three = changes(1 << 26).to_vec();
        three.push(Change { name: "net.ipv4.tcp_wmem".into(), value: "1 2 3".into() });
        let refused = apply(&scene.roots, &three).unwrap_err();
        assert_eq!((refused.what.as_str(), refused.left.len()), ("net.ipv4.tcp_wmem", 0), "{refused:?}");
        scene.expect_untouched();
    }

    #[test]
    fn when_the_start_file_cannot_be_written_everything_is_put_back() {
        let scene = Scene::new();
        fs::remove_dir(scene.roots.etc.join("sysctl.d")).unwrap();
        fs::write(scene.roots.etc.join("sysctl.d"), "in the way").unwrap();
        let refused = apply(&scene.roots, &changes(1 << 26)).unwrap_err();
        assert!(refused.what.ends_with("90-haul.conf") && refused.left.is_empty(), "{refused:?}");
        scene.expect_untouched();
    }

    #[test]
    fn when_putting_back_is_refused_the_host_stays_tuned() {
        let scene = Scene::new();
        apply(&scene.roots, &changes(1 << 26)).unwrap();
        let file = scene.roots.proc.join("sys/net/ipv4/tcp_rmem");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/version", file).unwrap();
        let refused = revert(&scene.roots).unwrap_err();
        assert_eq!((refused.what.as_str(), refused.left.len()), (RMEM, 0), "{refused:?}");
        assert_eq!(scene.value(QUEUE), "fq");
        assert!(start_file(&scene.roots).exists() && saved_file(&scene.roots).exists());
    }

    #[test]
    fn what_this_kernel_does_not_have_is_told_and_the_rest_is_done() {
        let scene = Scene::new();
        let absent = Change { name: "net.ipv4.no_such".into(), value: "1".into() };
        let steps = apply(&scene.roots, &[absent.clone(), changes(1 << 26)[1].clone()]).unwrap();
        assert_eq!(steps[0], Step::Lacking { name: absent.name, value: absent.value });
        assert_eq!(scene.value(RMEM), "4096 131072 67108864");
        revert(&scene.roots).unwrap();
        scene.expect_untouched();
    }

    #[test]
    fn a_start_file_that_somebody_else_put_in_place_of_ours_is_neither_overwritten_nor_removed() {
        let scene = Scene::new();
        apply(&scene.roots, &changes(1 << 26)).unwrap();
        let theirs = "# the site's own\nnet.ipv4.tcp_sack = 1\n";
        fs::write(start_file(&scene.roots), theirs).unwrap();
        let refused = apply(&scene.roots, &changes(1 << 28)).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(scene.value(RMEM), "4096 131072 67108864");
        let steps = revert(&scene.roots).unwrap();
        assert!(steps.contains(&Step::NotOurs(start_file(&scene.roots))), "{steps:?}");
        assert_eq!(fs::read_to_string(start_file(&scene.roots)).unwrap(), theirs);
        fs::remove_file(start_file(&scene.roots)).unwrap();
        scene.expect_untouched();
    }

    #[test]
    fn congestion_controls_that_are_allowed_are_loaded_at_each_start_before_they_are_named() {
        let scene = Scene::new();
        fs::write(scene.roots.proc.join("sys/net/ipv4/tcp_allowed_congestion_control"), "reno\n").unwrap();
        let allowed = Change { name: ALLOWED.into(), value: "reno cubic bbr".into() };
        let steps = apply(&scene.roots, &[allowed]).unwrap();
        assert!(steps.contains(&Step::Wrote(modules_file(&scene.roots))), "{steps:?}");
        let modules = fs::read_to_string(modules_file(&scene.roots)).unwrap();
        assert_eq!(modules, format!("{START_HEADING}tcp_cubic\ntcp_bbr\n"));
        revert(&scene.roots).unwrap();
        assert!(!modules_file(&scene.roots).exists());
        scene.expect_untouched();
    }

    #[test]
    fn two_never_change_a_host_at_once() {
        let scene = Scene::new();
        let other = File::open(&scene.roots.var_lib).unwrap();
        assert!(file::try_lock(other.as_fd()).unwrap());
        for refused in [apply(&scene.roots, &changes(1 << 26)).unwrap_err(), revert(&scene.roots).unwrap_err()] {
            assert_eq!(refused.error.kind(), io::ErrorKind::WouldBlock, "{refused:?}");
        }
        scene.expect_untouched();
        drop(other);
        assert!(apply(&scene.roots, &changes(1 << 26)).is_ok());
    }

    #[test]
    fn a_value_that_could_not_be_put_back_is_not_changed() {
        let scene = Scene::new();
        fs::write(scene.roots.proc.join("sys/net/core/default_qdisc"), "a;b\n").unwrap();
        let refused = apply(&scene.roots, &changes(1 << 26)).unwrap_err();
        assert_eq!((refused.what.as_str(), scene.value(QUEUE).as_str()), (QUEUE, "a;b"));
        assert!(!saved_file(&scene.roots).exists());
    }

    #[test]
    fn a_start_file_of_somebody_else_and_damaged_saved_values_are_left_alone() {
        let scene = Scene::new();
        fs::write(start_file(&scene.roots), "net.ipv4.tcp_sack = 1\n").unwrap();
        assert_eq!(apply(&scene.roots, &changes(1 << 26)).unwrap_err().error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(revert(&scene.roots).unwrap(), []);
        assert!(start_file(&scene.roots).exists());
        fs::create_dir(scene.roots.var_lib.join("haul")).unwrap();
        for text in [
            "".to_owned(),
            format!("{SAVED_HEADING}\"net.ipv4.../../x\" = \"1\"\n"),
            format!("{SAVED_HEADING}\"kernel.core_pattern\" = \"x\"\n"),
            format!("{SAVED_HEADING}\"net.ipv4.tcp_sack\" = \"1"),
        ] {
            fs::write(saved_file(&scene.roots), &text).unwrap();
            assert_eq!(revert(&scene.roots).unwrap_err().error.kind(), io::ErrorKind::InvalidData, "{text}");
        }
        drop(scene.dir);
    }
}

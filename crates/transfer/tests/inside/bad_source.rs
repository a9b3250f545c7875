//! Tests sources whose directories cannot be read to their end, or whose names have become something else.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use haul_job::filter_rules::to_wire;
use haul_job::{FilterRule, Report};
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};

use crate::bad_disk::EIO;
use crate::scenarios::{Bench, Witness, files, run_here, run_watched, warnings};
use haul_copy::receiver::CHECKPOINT_BYTES;

const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();

fn place_of(stopped: &Stopped) -> PathBuf {
    let path = stopped.path();
    let path = Path::new(OsStr::from_bytes(&path));
    match (path.parent(), path.file_name()) {
        // Attributes are read through /proc, and the name itself may be a link.
        (Some(parent), Some(name)) if path.starts_with("/proc") => {
            std::fs::canonicalize(parent).unwrap_or_default().join(name)
        }
        _ if path.as_os_str().is_empty() => stopped.file(),
        _ => stopped.file().join(path),
    }
}

const NAMES: usize = 400;

/// Makes a tree that was copied before. `d`, with more names than one listing, and `other` each have an extra file at the
/// target.
fn copied_before() -> Bench {
    let bench = Bench::new();
    for number in 0..NAMES {
        bench.write(&format!("d/{number:0200}"), 10);
    }
    for name in ["d/one", "d/sub/file", "d/newer", "other/file"] {
        bench.write(name, 1000);
    }
    assert_eq!(run_here(&bench.job(), 1, CHECKPOINT_BYTES).unwrap().failed, 0);
    bench.write("d/newer", 2000);
    for name in EXTRA {
        std::fs::write(bench.to().join(name), "not at the source").unwrap();
    }
    bench
}

const EXTRA: [&str; 3] = ["d/extra", "d/sub/extra", "other/extra"];

/// Copies with `--delete`. Calls of this kind about `place` fail after so many others, all or only the first.
fn deleting(
    bench: &Bench,
    call: Call,
    place: &Path,
    after: usize,
    (code, recovers): (i32, bool),
) -> Option<(Report, Vec<String>)> {
    let mut job = bench.job();
    job.selection.delete = true;
    let witness = Arc::<Witness>::default();
    let run = {
        let witness = Arc::clone(&witness);
        move || run_watched(&job, 1, CHECKPOINT_BYTES, &witness).unwrap()
    };
    let mut seen = 0;
    let decide = |_, stopped: &Stopped| {
        if place_of(stopped) != place {
            return Verdict::Proceed;
        }
        seen += 1;
        if seen == after + 1 || (seen > after && !recovers) { Verdict::Fail(code) } else { Verdict::Proceed }
    };
    let (report, _) = under(&[call], decide, run)?;
    assert!(seen > after, "{call:?} of {} was not asked for", place.display());
    let events = witness.events();
    Some((report, warnings(&events).into_iter().map(str::to_owned).collect()))
}

fn extra(bench: &Bench) -> [bool; 3] {
    EXTRA.map(|name| bench.to().join(name).exists())
}

#[test]
fn nothing_is_deleted_anywhere_when_a_listing_broke_off_in_its_middle() {
    for (after, code) in [(0, EIO), (1, EIO), (1, EACCES), (1, ENOENT)] {
        let bench = copied_before();
        let Some((report, warnings)) = deleting(&bench, Call::List, &bench.from().join("d"), after, (code, false))
        else {
            return;
        };
        let lost = u64::from(code == ENOENT);
        assert_eq!((report.failed, report.vanished), (1, lost), "{:?}", report.failures);
        let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
        assert!(path == b"d" && why.contains("cannot read directory d: "), "{why}");
        assert_eq!(extra(&bench), [true, true, code != ENOENT]);
        assert_eq!(files(&bench.to().join("d")).len(), NAMES + 5);
        let told = warnings.iter().filter(|text| text.starts_with("nothing is deleted: cannot read directory d: "));
        assert_eq!((told.count(), warnings.len()), if code == ENOENT { (0, 0) } else { (1, 1) }, "{warnings:?}");
    }
}

#[test]
fn a_listing_that_broke_off_once_has_cost_the_deletions_and_the_exit_status() {
    let bench = copied_before();
    let Some((report, warnings)) = deleting(&bench, Call::List, &bench.from().join("d"), 1, (EIO, true)) else {
        return;
    };
    assert_eq!((report.failed, report.deleted, extra(&bench)), (1, 0, [true; 3]));
    let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
    assert!(path.is_empty() && why.starts_with("nothing was deleted: cannot read directory d: "), "{why}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(bench.to().join("d/newer").metadata().unwrap().len(), 2000, "all is copied");
}

#[test]
fn nothing_is_deleted_from_where_on_a_name_cannot_be_looked_at() {
    for (name, code) in [("one", EIO), ("one", EACCES), ("one", ENOENT), ("sub", EIO)] {
        let bench = copied_before();
        let place = bench.from().join("d").join(name);
        let Some((report, warnings)) = deleting(&bench, Call::Look, &place, 0, (code, false)) else { return };
        let lost = u64::from(code == ENOENT);
        assert_eq!((report.failed, report.vanished), (1, lost), "{:?}", report.failures);
        let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
        assert!(*path == format!("d/{name}").into_bytes() && why.contains("cannot look at d/"), "{why}");
        let stays = code != ENOENT;
        assert_eq!(extra(&bench), [true, stays, stays]);
        assert_eq!(files(&bench.to().join("d")).len(), NAMES + 4 + usize::from(stays));
        assert_eq!(bench.to().join("d/newer").metadata().unwrap().len(), 2000, "the others are copied");
        let expected = match (name, code) {
            (_, ENOENT) => "nothing is deleted in d: it changed while it was listed",
            ("sub", _) => "nothing is deleted: cannot look at d/sub: ",
            _ => "from here on nothing is deleted: cannot look at d/one: ",
        };
        assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_read_closes_none_at_the_target() {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for stands in [false, true] {
        let bench = Bench::new();
        bench.write("closed/file", 10);
        bench.write("other", 10);
        let (closed, there) = (bench.from().join("closed"), bench.to().join("closed"));
        if stands {
            std::fs::create_dir_all(&there).unwrap();
            std::fs::write(there.join("before"), "").unwrap();
            std::fs::set_permissions(&there, Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(&closed, Permissions::from_mode(0o020)).unwrap();
        let job = bench.job();
        let run = move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
        let decide = |_, stopped: &Stopped| match place_of(stopped) == closed {
            true => Verdict::Fail(EACCES),
            false => Verdict::Proceed,
        };
        let Some((report, _)) = under(&[Call::Open], decide, run) else { return };
        assert_eq!((report.failed, report.files_moved), (1, 1), "{:?}", report.failures);
        assert_eq!(mode(&there), if stands { 0o755 } else { 0o720 }, "what stands keeps its mode, a new one is of use");
    }
}

fn with_every_change_of_kind() -> Bench {
    let bench = Bench::new();
    let make = |root: PathBuf, name: &str, kind: char| {
        let path = root.join(name);
        match kind {
            'f' => std::fs::write(path, name).unwrap(),
            'd' => {
                std::fs::create_dir(&path).unwrap();
                std::fs::write(path.join("within"), name).unwrap();
            }
            'l' => std::os::unix::fs::symlink("../outside", path).unwrap(),
            _ => {}
        }
    };
    std::fs::create_dir_all(bench.root().join("outside")).unwrap();
    std::fs::write(bench.root().join("outside/precious"), "precious").unwrap();
    std::fs::create_dir(bench.to()).unwrap();
    for here in ['f', 'd', 'l', '-'] {
        for there in ['f', 'd', 'l', '-'] {
            for excluded in ["", "-excluded"] {
                let name = format!("{here}{there}{excluded}");
                make(bench.from(), &name, here);
                make(bench.to(), &name, there);
                for path in [bench.from().join(&name), bench.from().join(&name).join("within")] {
                    let file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
                    file.then(|| std::fs::File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap());
                }
            }
        }
    }
    bench
}

fn all_beneath(root: &Path) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            let what = match (kind.is_symlink(), kind.is_dir()) {
                (true, _) => format!("-> {}", std::fs::read_link(&path).unwrap().display()),
                (_, true) => "a directory".to_owned(),
                _ => std::fs::read_to_string(&path).unwrap(),
            };
            found.push(format!("{}: {what}", path.strip_prefix(root).unwrap().display()));
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn directories_that_do_not_tell_what_their_names_are_are_copied_and_deleted_from_all_the_same() {
    for (pattern, follow_links) in [("*-excluded", false), ("*-excluded/", false), ("*-excluded/", true)] {
        let outcome = |verdict: Verdict| {
            let bench = with_every_change_of_kind();
            let mut job = bench.job();
            (job.selection.delete, job.selection.follow_links) = (true, follow_links);
            job.selection.rules = vec![to_wire(&FilterRule::pattern(false, pattern.as_ref()))];
            let mut listed = 0;
            let decide = |_, _: &Stopped| {
                listed += 1;
                verdict
            };
            let run = move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
            let (report, _) = under(&[Call::List], decide, run)?;
            assert!(listed > 20, "only {listed} listings");
            assert_eq!(std::fs::read(bench.root().join("outside/precious")).unwrap(), b"precious");
            let mut failures: Vec<_> = report.failures.into_iter().map(|(path, _)| path).collect();
            failures.sort();
            Some((all_beneath(&bench.to()), failures, report.files_moved, report.deleted))
        };
        let (Some(typed), Some(untyped)) = (outcome(Verdict::Proceed), outcome(Verdict::Untyped)) else { return };
        assert_eq!(untyped, typed, "{pattern}, {follow_links}");
        assert!(typed.0.iter().any(|line| line == "df: a directory") && typed.3 > 5, "{typed:?}");
    }
}

const SECRET: &str = "a secret from outside";
const SECRET_NAME: &str = "name-of-outside";
const SECRET_ATTRIBUTE: &str = "user.of-outside";

fn secret_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890)
}

const PAIRS: [(&str, &str, &str); 2] = [("d", "link-d", "../outside/d"), ("file", "link-file", "../outside/file")];

/// Makes a source, and beside it `outside` with the same names but other contents, attributes and times.
fn beside_an_outside() -> Option<Bench> {
    let bench = Bench::new();
    let outside = bench.root().join("outside");
    std::fs::create_dir_all(outside.join("d/deep").join(SECRET_NAME)).unwrap();
    let also = ["d", "d/deep"].map(|directory| format!("{directory}/{SECRET_NAME}-file"));
    for name in ["file", "d/file", "d/deep/file"].into_iter().chain(also.iter().map(String::as_str)) {
        std::fs::write(outside.join(name), SECRET).unwrap();
    }
    std::os::unix::fs::symlink(SECRET_NAME, outside.join("d").join(format!("{SECRET_NAME}-link"))).unwrap();
    for name in ["file", "d/file", "d/deep/file"] {
        bench.write(name, SECRET.len());
    }
    for name in ["file", "d", "d/file", "d/deep", "d/deep/file"] {
        if let Err(error) =
            rustix::fs::setxattr(outside.join(name), SECRET_ATTRIBUTE, SECRET.as_bytes(), XattrFlags::empty())
        {
            unmet(format_args!("a file here takes no attributes: {error}"));
            return None;
        }
    }
    for name in ["file", "d/file", "d/deep/file", "d/deep", "d"] {
        std::fs::File::open(outside.join(name)).unwrap().set_modified(secret_time()).unwrap();
    }
    for (_, link, target) in PAIRS {
        std::os::unix::fs::symlink(target, bench.root().join(link)).unwrap();
    }
    Some(bench)
}

fn exchange(bench: &Bench) {
    for (name, link, _) in PAIRS {
        let (name, link) = (bench.from().join(name), bench.root().join(link));
        rustix::fs::renameat_with(CWD, name, CWD, link, RenameFlags::EXCHANGE).unwrap();
    }
}

fn copy(bench: &Bench) -> impl FnOnce() -> Report + Send + 'static {
    let mut job = bench.job();
    job.selection.xattrs = true;
    move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap()
}

#[track_caller]
fn assert_nothing_from_outside(bench: &Bench) {
    let mut open = vec![bench.to()];
    while let Some(path) = open.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        let name = path.file_name().unwrap().to_string_lossy();
        assert!(!name.contains(SECRET_NAME), "{}", path.display());
        if metadata.is_symlink() {
            continue;
        }
        assert_ne!(metadata.modified().unwrap(), secret_time(), "{}", path.display());
        assert!(rustix::fs::getxattr(&path, SECRET_ATTRIBUTE, &mut [0_u8; 100][..]).is_err(), "{}", path.display());
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_ne!(std::fs::read(&path).unwrap(), SECRET.as_bytes(), "{}", path.display());
        }
    }
}

const LOOKS: [Call; 6] =
    [Call::Open, Call::List, Call::Look, Call::ListAttributes, Call::ListAttributesOfPath, Call::GetAttributeOfPath];

/// Even rounds leave the link, odd ones take it back. At least two run.
const ROUNDS_OF_LOOKS: u32 = 10;

#[test]
fn what_becomes_a_link_between_any_two_looks_at_it_leads_nowhere() {
    let is_source = |bench: &Bench, stopped: &Stopped| {
        let place = place_of(stopped);
        place.starts_with(bench.root()) && !place.starts_with(bench.to())
    };
    let Some(bench) = beside_an_outside() else { return };
    let mut count = 0;
    let decide = |_, stopped: &Stopped| {
        count += usize::from(is_source(&bench, stopped));
        Verdict::Proceed
    };
    let Some((report, _)) = under(&LOOKS, decide, copy(&bench)) else { return };
    assert_eq!(report.failed, 0, "{:?}", report.failures);
    bench.assert_equal();
    assert!(count > 20, "only {count} looks");

    // Threads look side by side, so a round may miss the look that counts.
    let (mut directory_failed, mut file_failed) = (false, false);
    for round in 0..ROUNDS_OF_LOOKS {
        if round >= 2 && directory_failed && file_failed {
            break;
        }
        let is_taken_back = round % 2 == 1;
        for at in 0..count {
            let Some(bench) = beside_an_outside() else { return };
            let mut number = 0;
            let decide = |_, stopped: &Stopped| {
                if is_source(&bench, stopped) {
                    if number == at || (is_taken_back && number == at + 1) {
                        exchange(&bench);
                    }
                    number += 1;
                }
                Verdict::Proceed
            };
            let Some((report, _)) = under(&LOOKS, decide, copy(&bench)) else { return };
            assert_nothing_from_outside(&bench);
            directory_failed |= report.failures.iter().any(|(path, why)| path == b"d" && why.contains("directory d"));
            file_failed |= report.failures.iter().any(|(path, why)| path == b"file" && why.contains("open file"));
        }
    }
    assert!(directory_failed && file_failed, "{directory_failed}, {file_failed}");
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_source_whose_directories_and_files_become_links_sends_nothing_from_outside() {
    let Some(bench) = beside_an_outside() else { return };
    let is_over = AtomicBool::new(false);
    let (mut as_links, mut as_files) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange(&bench);
            }
        });
        let _over = Over(&is_over);
        for _ in 0..150 {
            let _ = copy(&bench)();
            assert_nothing_from_outside(&bench);
            for (name, ..) in PAIRS {
                match std::fs::symlink_metadata(bench.to().join(name)) {
                    Ok(metadata) if metadata.is_symlink() => as_links += 1,
                    Ok(_) => as_files += 1,
                    Err(_) => {}
                }
            }
            let _ = std::fs::remove_dir_all(bench.to());
        }
    });
    assert!(as_links > 0 && as_files > 0, "the race was none: {as_links} links, {as_files} others");
}

#[test]
fn a_file_that_became_a_fifo_since_it_was_listed_fails_and_holds_up_nobody() {
    for (checksum, follow_links) in [(false, false), (true, false), (false, true)] {
        let bench = Bench::new();
        bench.write("file", 1000);
        bench.write("other", 1000);
        let file = bench.from().join("file");
        let mut job = bench.job();
        (job.selection.checksum, job.selection.follow_links) = (checksum, follow_links);
        let mut became = false;
        let decide = |_, stopped: &Stopped| {
            if place_of(stopped) == file && !std::mem::replace(&mut became, true) {
                std::fs::remove_file(&file).unwrap();
                rustix::fs::mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            }
            Verdict::Proceed
        };
        let run = move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
        let Some((report, _)) = under(&[Call::Open], decide, run) else { return };
        assert!(became, "it is opened");
        let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
        assert!(path == b"file" && why.contains("it is not a regular file"), "{why}");
        assert_eq!((report.failed, report.files_moved), (1, 1));
        assert_eq!(files(&bench.to()).len(), 1);
    }
}

#[test]
fn what_is_called_like_an_unfinished_file_is_no_success_unless_a_rule_leaves_it_out() {
    let bench = Bench::new();
    bench.write("file", 100);
    let part = String::from_utf8(haul_store::part_name(b"file")).unwrap();
    let journal = String::from_utf8(haul_store::journal_name(b"other")).unwrap();
    bench.write(&part, 10);
    std::fs::create_dir(bench.from().join(&journal)).unwrap();
    let mut job = bench.job();
    let report = crate::scenarios::run_here(&job, 1, haul_copy::receiver::CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved), (2, 1), "{report:?}");
    assert!(report.failures.iter().all(|(_, why)| why.contains("like an unfinished file") && why.contains("rename")));
    job.selection.rules = vec![to_wire(&FilterRule::pattern(false, b".haul-*"))];
    let report = crate::scenarios::run_here(&job, 1, haul_copy::receiver::CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_kept), (0, 1), "{report:?}");
}

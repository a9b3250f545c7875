//! An attacker swaps a directory of the target for a link that leads out, again and again.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use haul_store::{LocalTree, Metadata, SourceNames, StoreError, TargetOptions, Time};
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Verdict, watch_this_thread};
use rustix::io::Errno;

/// Each operation is tried so often, and until it met both directory and link.
const ROUNDS: u32 = 300;

/// Both are met within a second, on a stalled machine later.
const MEET_LIMIT: Duration = Duration::from_secs(120);

const OLD: Time = Time { s: 1_000_000_000, ns: 123_456_789 };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Met {
    Directory,
    Link,
    /// The attacker was between two steps.
    Nothing,
}

fn met<T>(result: &Result<T, StoreError>) -> Met {
    match result {
        Ok(_) => Met::Directory,
        Err(error) => met_error(error),
    }
}

fn met_error(error: &StoreError) -> Met {
    // ENOTDIR on kernels without openat2.
    let link = [Errno::LOOP, Errno::NOTDIR].map(|errno| Some(errno.raw_os_error()));
    if link.contains(&error.source.raw_os_error()) { Met::Link } else { Met::Nothing }
}

fn full() -> Metadata {
    let xattrs = Some(vec![(ACL.to_vec(), acl()), (b"user.haul-test".to_vec(), b"planted".to_vec())]);
    Metadata {
        mode: Some(0o777),
        special_bits: true,
        mtime: Some(OLD),
        owner: Some(65_534),
        group: Some(65_534),
        xattrs,
        ..Metadata::default()
    }
}

const ACL: &[u8] = b"system.posix_acl_access";

/// An ACL in the kernel's form (`linux/posix_acl_xattr.h`): version, then tag, rights and id of each entry. User 65534 may
/// do all.
fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u32); 5] = [(0x01, NOBODY), (0x02, 65_534), (0x04, NOBODY), (0x10, NOBODY), (0x20, NOBODY)];
    let entry = |(tag, id): (u16, u32)| [&tag.to_le_bytes()[..], &7u16.to_le_bytes(), &id.to_le_bytes()].concat();
    [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
}

type Operation = (&'static str, fn(&LocalTree) -> Met);

/// The directory and the link's target have `a/stays` and `a/sub`; the root has `own`.
const OPERATIONS: [Operation; 16] = [
    ("make_dir", |tree| met(&tree.make_dir(b"a/made"))),
    ("make_dir further down", |tree| met(&tree.make_dir(b"a/sub/made"))),
    ("make_symlink", |tree| met(&tree.make_symlink(b"a/link", b"x", &full()))),
    ("make_symlink over a file", |tree| met(&tree.make_symlink(b"a/goes", b"x", &full()))),
    ("make_hard_link into it", |tree| met(&tree.make_hard_link(b"a/again", b"own"))),
    ("make_hard_link out of it", |tree| met(&tree.make_hard_link(b"taken", b"a/stays"))),
    ("set_metadata of a file", |tree| met(&tree.set_metadata(b"a/stays", &full()))),
    ("set_metadata of a directory", |tree| met(&tree.set_metadata(b"a/sub", &full()))),
    ("stat", |tree| match tree.stat(b"a/stays") {
        Ok(Some(stat)) => {
            assert_ne!(stat.size, PRECIOUS.len() as u64, "it looked outside");
            Met::Directory
        }
        Ok(None) => Met::Nothing,
        Err(error) => met_error(&error),
    }),
    ("open_file", |tree| met(&tree.open_file(b"a/stays"))),
    ("new_part", |tree| write(tree, b"a/goes", false)),
    ("new_part in place", |tree| write(tree, b"a/stays", true)),
    ("resume_part", |tree| met(&tree.resume_part(b"a/stays", true))),
    ("mark_unfinished", |tree| met(&tree.mark_unfinished(b"a/stays", |_| b"journal".to_vec(), false))),
    ("open_up", |tree| met(&tree.open_up(b"a/sub"))),
    ("delete_extraneous", |tree| {
        let has = SourceNames::from_iter([&b"stays"[..], b"sub"]);
        let errors = tree.delete_extraneous(b"a", &has, &|_, _| false, false, &mut |_, _| ());
        errors.first().map_or(Met::Directory, met_error)
    }),
];

const PRECIOUS: &[u8] = b"precious";

fn write(tree: &LocalTree, path: &[u8], inplace: bool) -> Met {
    let part = tree.new_part(path, inplace);
    if let Ok(part) = &part {
        // The part is written where it was opened, whatever its name leads to by now.
        let _ = part.write_at(b"x", 0).and_then(|()| part.commit(&full(), false));
    }
    met(&part)
}

/// All that could change there, even undone (ctime).
fn state(outside: &Path) -> Vec<String> {
    let mut paths = vec![outside.to_owned()];
    for dir in [outside.to_owned(), outside.join("sub")] {
        paths.extend(fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    }
    paths.sort();
    let of = |path: &std::path::PathBuf| {
        let meta = fs::symlink_metadata(path).unwrap();
        let content = if meta.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        format!(
            "{} {:o} {}:{} {}.{} {}.{} {} names {content:?}",
            path.display(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
            meta.nlink(),
        )
    };
    paths.iter().map(of).collect()
}

#[test]
fn a_racing_attacker_gets_nothing_outside() {
    race(|operations| Some(operations()));
}

/// Kernels before 5.6 and filters of containers lack openat2.
#[test]
fn a_racing_attacker_gets_nothing_outside_where_paths_are_walked_name_by_name() {
    race(|operations| {
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let worker = scope.spawn(move || {
                let watcher = watch_this_thread(&[Call::OpenBeneath]);
                let is_watched = watcher.is_ok();
                sender.send(watcher).unwrap();
                is_watched.then(operations)
            });
            let watcher = match receiver.recv().unwrap() {
                Ok(watcher) => watcher,
                Err(error) => {
                    unmet(format_args!("this host does not let us watch system calls: {error}"));
                    return None;
                }
            };
            let mut refused = 0;
            while !worker.is_finished() {
                let Some(stopped) = watcher.next(Duration::from_millis(10)).unwrap() else { continue };
                watcher.answer(stopped, Verdict::Fail(Errno::PERM.raw_os_error())).unwrap();
                refused += 1;
            }
            assert!(refused > ROUNDS, "it was asked for {refused} times");
            worker.join().unwrap()
        })
    });
}

type Seen = BTreeMap<(&'static str, Met), u32>;

fn race(run: impl FnOnce(&(dyn Fn() -> Seen + Sync)) -> Option<Seen>) {
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    for parent in [&outside, &root.join("a")] {
        fs::create_dir_all(parent.join("sub")).unwrap();
        fs::write(parent.join("stays"), b"own").unwrap();
    }
    fs::write(root.join("own"), b"own").unwrap();
    for name in ["stays", "goes", "sub/victim"] {
        fs::write(outside.join(name), PRECIOUS).unwrap();
        fs::set_permissions(outside.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        let file = fs::File::options().write(true).open(outside.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890)).unwrap();
    }
    symlink("../outside", root.join("evil")).unwrap();
    let before = state(&outside);

    let path = root.as_os_str().as_bytes();
    let options = TargetOptions { xattrs: true, acls: true, ..TargetOptions::default() };
    let operations = || {
        let mut seen = BTreeMap::new();
        let start = Instant::now();
        let both = |seen: &Seen| {
            let has = |name, met| seen.contains_key(&(name, met));
            OPERATIONS.iter().all(|(name, _)| has(*name, Met::Directory) && has(*name, Met::Link))
        };
        for round in 0.. {
            if (round >= ROUNDS && both(&seen)) || start.elapsed() > MEET_LIMIT {
                break;
            }
            for (name, operation) in OPERATIONS {
                let tree = LocalTree::open(path, &options).unwrap().0;
                *seen.entry((name, operation(&tree))).or_insert(0) += 1;
            }
        }
        seen
    };
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| root.join(name);
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::rename(at("a"), at("hidden"));
                let _ = fs::rename(at("evil"), at("a"));
                let _ = fs::rename(at("a"), at("evil"));
                let _ = fs::rename(at("hidden"), at("a"));
            }
        });
        let _stop = StopAtEnd(&stop);
        run(&operations)
    });
    let Some(seen) = seen else { return };
    assert_eq!(state(&outside), before);
    let mut value = [0; 100];
    let found = rustix::fs::getxattr(root.join("a/stays"), OsStr::from_bytes(ACL), &mut value[..]);
    assert_eq!(found.map(|bytes| &value[..bytes]), Ok(&acl()[..]), "inside the ACL is set");
    for (name, _) in OPERATIONS {
        for what in [Met::Directory, Met::Link] {
            assert!(seen.contains_key(&(name, what)), "{name} never met the {what:?} in {MEET_LIMIT:?}: {seen:?}");
        }
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

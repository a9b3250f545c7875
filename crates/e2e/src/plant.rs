//! Trees to copy, equal for equal seeds.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};

/// Random bytes of BLAKE3, which is optimised in builds for tests, too.
#[derive(Clone, Debug)]
pub struct Seed(blake3::OutputReader);

impl Seed {
    /// Equal numbers give equal bytes.
    pub fn new(seed: u64) -> Self {
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

/// A file of `size` random bytes.
#[track_caller]
pub fn file(path: &Path, size: u64, seed: u64) {
    let mut seed = Seed::new(seed);
    let mut file = create(path);
    let mut buffer = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        seed.fill(&mut buffer[..part]);
        file.write_all(&buffer[..part]).expect("space for the tree of a test");
        left -= part as u64;
    }
}

/// A text file.
#[track_caller]
pub fn text(path: &Path, words: &str) {
    create(path).write_all(words.as_bytes()).expect("space for the tree of a test");
}

/// A hole of `size` bytes with these (offset, length) extents.
#[track_caller]
pub fn sparse(path: &Path, size: u64, extents: &[(u64, usize)], seed: u64) {
    let mut seed = Seed::new(seed);
    let mut file = create(path);
    file.set_len(size).expect("a sparse file takes no space");
    for &(offset, length) in extents {
        let mut data = vec![0; length];
        seed.fill(&mut data);
        file.seek(SeekFrom::Start(offset)).expect("seekable");
        file.write_all(&data).expect("space for the tree of a test");
    }
}

/// `count` files of `size` bytes, a thousand a directory.
#[track_caller]
pub fn many(dir: &Path, count: u64, size: usize, seed: u64) {
    let mut seed = Seed::new(seed);
    let mut data = vec![0; size];
    for number in 0..count {
        let folder = dir.join(format!("d{:04}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir_all(&folder).expect("space for the tree of a test");
        }
        seed.fill(&mut data);
        fs::write(folder.join(format!("f{number:07}")), &data).expect("space for the tree of a test");
    }
}

/// All that a plain `cp -r` must carry: sizes around powers of two, odd names, empty files and directories, links, modes,
/// times.
#[track_caller]
pub fn mixed(dir: &Path, seed: u64) {
    const SIZES: [u64; 12] = [0, 1, 511, 512, 4095, 4096, 4097, 65_535, 65_537, 1 << 20, (1 << 20) + 1, (5 << 20) + 13];
    fs::create_dir_all(dir).expect("space for the tree of a test");
    for (number, size) in (0..).zip(SIZES) {
        file(&dir.join(format!("sizes/{size}")), size, seed.wrapping_add(number));
    }
    fs::create_dir_all(dir.join("empty/inner")).expect("space for the tree of a test");
    odd_names(&dir.join("names"), seed);

    let links = dir.join("links");
    text(&links.join("real"), "the file itself\n");
    fs::create_dir_all(links.join("folder")).expect("space for the tree of a test");
    for (name, target) in [
        ("to-file", &b"real"[..]),
        ("to-folder", b"folder"),
        ("to-folder-slash", b"folder/"),
        ("dangling", b"no/such/thing"),
        ("absolute", b"/etc/hostname"),
        ("escaping", b"../../../../../etc/passwd"),
        ("itself", b"itself"),
        ("odd\nname", b"tar\xffget\nof link"),
    ] {
        symlink(OsStr::from_bytes(target), links.join(name)).expect("space for the tree of a test");
    }

    let modes = dir.join("modes");
    for mode in [0o400, 0o444, 0o600, 0o640, 0o644, 0o755, 0o777] {
        let path = modes.join(format!("{mode:o}"));
        text(&path, "mode\n");
        set_mode(&path, mode);
    }
    for mode in [0o500, 0o700, 0o750, 0o775] {
        let path = modes.join(format!("dir-{mode:o}"));
        text(&path.join("inside"), "in a directory\n");
        set_mode(&path, mode);
    }
    date(dir, seed);
}

/// Names of any bytes.
#[track_caller]
pub fn odd_names(dir: &Path, seed: u64) {
    let long = vec![b'n'; 255];
    let long_two_byte = "é".repeat(127);
    let names: [&[u8]; 26] = [
        b"with space",
        b" leading and trailing ",
        b"new\nline",
        b"carriage\rreturn",
        b"tab\there",
        b"escape\x1b[31mred",
        b"bell\x07",
        b"not utf-8 \xff\xfe\x80",
        b"\xc3\xa9 precomposed",
        b"e\xcc\x81 combining",
        b"-rf",
        b"--delete",
        b"'single' \"double\" `tick`",
        b"$(touch pwned) ${HOME} $HOME",
        b"; touch pwned; #",
        b"& | < > !",
        b"*",
        b"?[a-z]*",
        b"{a,b}",
        b"back\\slash",
        b"host:path",
        b"~",
        b"...",
        b".hidden",
        &long,
        long_two_byte.as_bytes(),
    ];
    for (number, name) in (0..).zip(names) {
        let name = OsStr::from_bytes(name);
        file(&dir.join(name), 10 + number, seed.wrapping_add(number));
    }
    let folder = dir.join(OsStr::from_bytes(b"folder\n\xff $(id)"));
    file(&folder.join("inside"), 10, seed);
}

/// Dates `dir` and all below, with nanoseconds.
#[track_caller]
pub fn date(dir: &Path, seed: u64) {
    let mut seed = Seed::new(seed);
    date_below(dir, &mut seed);
}

/// Making children changes the directory's time.
fn date_below(path: &Path, seed: &mut Seed) {
    let kind = fs::symlink_metadata(path).expect("the entry stands here");
    if kind.is_dir() {
        let mut children: Vec<_> = fs::read_dir(path).expect("own directory").map(|e| e.expect("own").path()).collect();
        children.sort();
        for child in children {
            date_below(&child, seed);
        }
    }
    // 2001 to 2033.
    set_mtime(path, 1_000_000_000 + (seed.draw() % 1_000_000_000).cast_signed(), (seed.draw() % 1_000_000_000) as u32);
}

/// Sets the entry's own time, also a link's.
#[track_caller]
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: u32) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("own entry");
}

/// Sets the mode.
#[track_caller]
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own entry");
}

/// Two groups of hard links, across directories.
#[track_caller]
pub fn hard_links(dir: &Path, seed: u64) {
    file(&dir.join("a/first"), 100_000, seed);
    file(&dir.join("b/second"), 200_000, seed.wrapping_add(1));
    fs::create_dir_all(dir.join("c")).expect("space for the tree of a test");
    for (old, new) in [("a/first", "a/again"), ("a/first", "c/far"), ("b/second", "a/other"), ("b/second", "c/other")] {
        fs::hard_link(dir.join(old), dir.join(new)).expect("one file system");
    }
}

/// `user.` attributes on a file and a directory.
#[track_caller]
pub fn extended_attributes(dir: &Path) {
    text(&dir.join("file"), "has attributes\n");
    for (path, name, value) in [
        (dir.join("file"), "user.comment", &b"plain words"[..]),
        (dir.join("file"), "user.binary", b"\x00\xff\n\x1b"),
        (dir.join("file"), "user.empty", b""),
        (dir.to_owned(), "user.on-directory", b"yes"),
    ] {
        rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty())
            .unwrap_or_else(|error| panic!("{name} on {}: {error}", path.display()));
    }
}

/// POSIX ACLs on a file and, by default, a directory, in the kernel's form.
#[track_caller]
pub fn access_lists(dir: &Path) {
    text(&dir.join("file"), "has a list\n");
    let list =
        acl(&[(USER_OBJ, 6, NOBODY), (USER, 4, 12345), (GROUP_OBJ, 4, NOBODY), (MASK, 6, NOBODY), (OTHER, 0, NOBODY)]);
    for (path, name) in [(dir.join("file"), "system.posix_acl_access"), (dir.to_owned(), "system.posix_acl_default")] {
        rustix::fs::lsetxattr(&path, name, &list, XattrFlags::empty())
            .unwrap_or_else(|error| panic!("{name} on {}: {error}", path.display()));
    }
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;

/// Version 2 of `struct posix_acl_xattr_header` and its entries (tag, permissions, id), little-endian.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[track_caller]
fn create(path: &Path) -> File {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).expect("space for the tree of a test");
    }
    File::create(path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()))
}

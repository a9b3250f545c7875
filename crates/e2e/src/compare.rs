//! Compares two trees exactly, and lists readable differences.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Facets besides names, kinds, contents and link targets.
#[derive(Clone, Copy, Debug)]
pub struct Facets {
    /// Permissions of files and directories below the root.
    pub modes: bool,
    /// Times of files, in nanoseconds.
    pub file_times: bool,
    /// Times of directories below the root, in nanoseconds.
    pub directory_times: bool,
    /// Times of symbolic links.
    pub link_times: bool,
    /// The root's own mode and time.
    pub root: bool,
    /// Which names belong to one file.
    pub hard_links: bool,
    /// At most a tenth and 1 MiB more on disk than at the source.
    pub allocation: bool,
    /// Extended attributes and ACLs.
    pub attributes: bool,
    /// Owner and group.
    pub owners: bool,
}

impl Facets {
    /// Names, kinds, contents, link targets.
    pub const CONTENTS: Self = Self {
        modes: false,
        file_times: false,
        directory_times: false,
        link_times: false,
        root: false,
        hard_links: false,
        allocation: false,
        attributes: false,
        owners: false,
    };
    /// Facets of each copy without a flag.
    pub const PLAIN: Self = Self { modes: true, file_times: true, directory_times: true, ..Self::CONTENTS };
    /// Facets of `-aHAX`.
    pub const ALL: Self = Self {
        link_times: true,
        root: true,
        hard_links: true,
        allocation: true,
        attributes: true,
        owners: true,
        ..Self::PLAIN
    };
}

/// Fails with the differences unless both trees are equal.
#[track_caller]
pub fn assert_same(source: &Path, target: &Path, facets: Facets) {
    let found = differences(source, target, facets);
    assert!(
        found.is_empty(),
        "{} differs from {} in {} places:\n  {}",
        target.display(),
        source.display(),
        found.len(),
        found.iter().take(30).cloned().collect::<Vec<_>>().join("\n  "),
    );
}

/// Differences between trees or files, one a line.
pub fn differences(source: &Path, target: &Path, facets: Facets) -> Vec<String> {
    let (left, right) = (Tree::read(source, facets), Tree::read(target, facets));
    let mut found = Vec::new();
    for (path, entry) in &left.entries {
        let shown = shown(path);
        match right.entries.get(path) {
            None => found.push(format!("{shown}: missing at the target")),
            Some(other) => entry.differ(other, facets, path.is_empty(), |what| found.push(format!("{shown}: {what}"))),
        }
    }
    for path in right.entries.keys().filter(|path| !left.entries.contains_key(*path)) {
        found.push(format!("{}: not at the source", shown(path)));
    }
    if facets.hard_links && left.link_groups() != right.link_groups() {
        let describe = |groups: Vec<Vec<String>>| format!("{groups:?}");
        found.push(format!("hard links: {} became {}", describe(left.link_groups()), describe(right.link_groups())));
    }
    found
}

/// All names below a directory, relative and sorted.
pub fn names_below(dir: &Path) -> Vec<Vec<u8>> {
    let tree = Tree::read(dir, Facets::CONTENTS);
    tree.entries.into_keys().filter(|path| !path.is_empty()).collect()
}

/// Any bytes as a path.
pub fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A path for messages, with all but plain characters escaped.
pub fn shown(path: &[u8]) -> String {
    if path.is_empty() { "(the root)".to_owned() } else { path.escape_ascii().to_string() }
}

struct Tree {
    entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Debug)]
struct Entry {
    kind: &'static str,
    size: u64,
    contents: Vec<u8>,
    mode: u32,
    mtime: (i64, i64),
    owner: (u32, u32),
    inode: (u64, u64),
    links: u64,
    allocated: u64,
    attributes: BTreeMap<String, Vec<u8>>,
}

impl Tree {
    fn read(root: &Path, facets: Facets) -> Self {
        let mut tree = Self { entries: BTreeMap::new() };
        tree.add(root, Vec::new(), facets);
        tree
    }

    fn add(&mut self, path: &Path, name: Vec<u8>, facets: Facets) {
        let entry = Entry::read(path, facets);
        if entry.kind == "directory" {
            for child in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
                let child = child.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let mut child_name = name.clone();
                if !child_name.is_empty() {
                    child_name.push(b'/');
                }
                child_name.extend(child.file_name().into_vec());
                self.add(&child.path(), child_name, facets);
            }
        }
        self.entries.insert(name, entry);
    }

    fn link_groups(&self) -> Vec<Vec<String>> {
        let mut groups: BTreeMap<(u64, u64), Vec<String>> = BTreeMap::new();
        for (path, entry) in self.entries.iter().filter(|(_, entry)| entry.kind == "file" && entry.links > 1) {
            groups.entry(entry.inode).or_default().push(shown(path));
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort();
        groups
    }
}

impl Entry {
    fn read(path: &Path, facets: Facets) -> Self {
        let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kind = meta.file_type();
        let (kind, contents) = if kind.is_dir() {
            ("directory", Vec::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            ("symbolic link", target.as_os_str().as_bytes().to_vec())
        } else if kind.is_file() {
            ("file", hash(path))
        } else {
            ("special file", Vec::new())
        };
        let attributes = if facets.attributes && kind != "symbolic link" { attributes(path) } else { BTreeMap::new() };
        Self {
            kind,
            size: meta.size(),
            contents,
            mode: meta.mode() & 0o7777,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            owner: (meta.uid(), meta.gid()),
            inode: (meta.dev(), meta.ino()),
            links: meta.nlink(),
            allocated: meta.blocks() * 512,
            attributes,
        }
    }

    fn differ(&self, other: &Self, facets: Facets, is_root: bool, mut tell: impl FnMut(String)) {
        if self.kind != other.kind {
            return tell(format!("{} became {}", self.kind, other.kind));
        }
        let is_link = self.kind == "symbolic link";
        if self.kind == "file" && self.size != other.size {
            tell(format!("size {} became {}", self.size, other.size));
        } else if self.contents != other.contents {
            let what = if is_link { "link target" } else { "contents" };
            tell(format!("{what}: {} became {}", briefly(&self.contents), briefly(&other.contents)));
        }
        if is_root && self.kind == "directory" && !facets.root {
            return;
        }
        if facets.modes && !is_link && self.mode != other.mode {
            tell(format!("mode {:o} became {:o}", self.mode, other.mode));
        }
        let compare_time = match self.kind {
            "directory" => facets.directory_times,
            "symbolic link" => facets.link_times,
            _ => facets.file_times,
        };
        if compare_time && self.mtime != other.mtime {
            tell(format!("mtime {}.{:09} became {}.{:09}", self.mtime.0, self.mtime.1, other.mtime.0, other.mtime.1));
        }
        if facets.owners && self.owner != other.owner {
            tell(format!("owner {:?} became {:?}", self.owner, other.owner));
        }
        let allowed = self.allocated + self.allocated / 10 + (1 << 20);
        if facets.allocation && self.kind == "file" && other.allocated > allowed {
            tell(format!("{} bytes on disk became {}", self.allocated, other.allocated));
        }
        if facets.attributes && self.attributes != other.attributes {
            let mut text = String::new();
            for (name, value) in &self.attributes {
                if other.attributes.get(name) != Some(value) {
                    let now = other.attributes.get(name).map(|value| briefly(value));
                    let _ = write!(text, " {name}={} became {now:?}", briefly(value));
                }
            }
            for name in other.attributes.keys().filter(|name| !self.attributes.contains_key(*name)) {
                let _ = write!(text, " {name} appeared");
            }
            tell(format!("attributes:{text}"));
        }
    }
}

fn briefly(bytes: &[u8]) -> String {
    bytes.iter().take(40).copied().flat_map(std::ascii::escape_default).map(char::from).collect()
}

/// BLAKE3 of the contents. Of a sparse file, data with its offset, so holes take no time.
fn hash(path: &Path) -> Vec<u8> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let size = file.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).size();
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    if size < SPARSE_FROM {
        let mut file = file;
        loop {
            let count = file.read(&mut buffer).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if count == 0 {
                return hasher.finalize().as_bytes().to_vec();
            }
            hasher.update(&buffer[..count]);
        }
    }
    let mut at = 0;
    while at < size {
        let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) else { break };
        // Whole blocks of zeros count as holes, allocated or not.
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).unwrap_or(size);
        at = data - data % buffer.len() as u64;
        while at < end {
            let part = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
            file.read_exact_at(&mut buffer[..part], at).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if buffer[..part].iter().any(|&byte| byte != 0) {
                hasher.update(&at.to_le_bytes());
                hasher.update(&buffer[..part]);
            }
            at += part as u64;
        }
    }
    hasher.finalize().as_bytes().to_vec()
}

const SPARSE_FROM: u64 = 64 << 20;

/// `user.` attributes and ACLs; others are the machine's.
fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 * 1024];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        if !(name.starts_with("user.") || name.starts_with("system.posix_acl")) {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]).unwrap_or(0);
        value.truncate(length);
        found.insert(name, value);
    }
    found
}

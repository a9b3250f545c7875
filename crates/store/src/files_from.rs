//! A list of paths to copy, sorted: paths beneath a directory are neighbours.
//!
//! As in rsync, a listed directory comes alone, and with a slash behind it its entries, too; in a recursive list all
//! beneath.

use std::cmp::Ordering;
use std::fmt;

use crate::limits::MAX_LISTED_PATH_BYTES;

/// Normalised paths: no empty or `.` components, sorted by component, unique. Each costs eight bytes and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileList {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    recursive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    /// The path's length, and [`WITH_ENTRIES`].
    bytes: u32,
}

/// Set in a length if a slash stood behind the path; lengths are far below ([`MAX_LISTED_PATH_BYTES`]).
const WITH_ENTRIES: u32 = 1 << 31;

/// A list that still grows.
#[derive(Debug, Default)]
pub struct FileListBuilder {
    list: FileList,
    /// Whether some path begins with `./`: as in rsync, the source directory comes, too.
    begins_at_root: bool,
}

/// Why a path is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// The path has a component `..`.
    Upwards,
    /// The path has a NUL, or exceeds [`MAX_LISTED_PATH_BYTES`].
    NoPath,
    /// All paths together exceed 4 GiB.
    Full,
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListFault::Upwards => "a path with .. could leave the source directory",
            ListFault::NoPath => "no file can have that name",
            ListFault::Full => "all paths of the list together are longer than 4 GiB",
        })
    }
}

impl std::error::Error for ListFault {}

impl FileListBuilder {
    /// Adds a typed path. As in rsync, a leading slash has no meaning. The empty path is the source directory alone.
    pub fn add(&mut self, typed: &[u8]) -> Result<(), ListFault> {
        if typed.len() > MAX_LISTED_PATH_BYTES || typed.contains(&0) {
            return Err(ListFault::NoPath);
        }
        if typed.split(|byte| *byte == b'/').any(|name| name == b"..") {
            return Err(ListFault::Upwards);
        }
        self.begins_at_root |= typed.is_empty() || typed.starts_with(b"./");
        let FileList { bytes, spans, .. } = &mut self.list;
        let start = bytes.len();
        for name in typed.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if bytes.len() > start {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
        }
        let path_bytes = bytes.len() - start;
        if typed.is_empty() {
            return Ok(());
        }
        let names_entries = path_bytes == 0 || typed.ends_with(b"/") || typed.ends_with(b"/.");
        match (u32::try_from(start), u32::try_from(path_bytes)) {
            (Ok(start), Ok(bytes)) => {
                spans.push(Span { start, bytes: if names_entries { bytes | WITH_ENTRIES } else { bytes } });
            }
            _ => return Err(ListFault::Full),
        }
        Ok(())
    }

    /// The approximate memory of the list.
    pub fn weight_bytes(&self) -> usize {
        self.list.weight_bytes()
    }

    /// Ends the list, recursive or not.
    pub fn finish(self, recursive: bool) -> FileList {
        let FileList { bytes, mut spans, .. } = self.list;
        spans.extend(self.begins_at_root.then_some(Span { start: 0, bytes: 0 }));
        spans.sort_unstable_by(|a, b| {
            compare(a.of(&bytes), b.of(&bytes)).then_with(|| b.has_entries().cmp(&a.has_entries()))
        });
        // Of two equal paths, the first has the larger extent, and stays.
        spans.dedup_by(|a, b| a.of(&bytes) == b.of(&bytes));
        FileList { bytes, spans, recursive }
    }
}

/// The paths from `low` to before `high`: all beneath a directory whose path and slash take `prefix_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub low: usize,
    pub high: usize,
    pub prefix_bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub name: Vec<u8>,
    pub extent: Extent,
    pub beneath: Option<Range>,
    pub next: usize,
}

/// How much of an entry is wanted, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// No entry.
    Nothing,
    /// A directory, as the way to something beneath.
    OnTheWay,
    /// The entry alone.
    Itself,
    /// The entry and its entries, directories without content.
    Entries,
    /// The entry and all beneath it.
    All,
}

impl Extent {
    pub(crate) fn of_entry(self) -> Extent {
        match self {
            Extent::All => Extent::All,
            Extent::Entries => Extent::Itself,
            Extent::Itself | Extent::OnTheWay | Extent::Nothing => Extent::Nothing,
        }
    }
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..(self.bytes & !WITH_ENTRIES) as usize]
    }

    fn has_entries(self) -> bool {
        self.bytes & WITH_ENTRIES != 0
    }
}

impl FileList {
    /// Lists these paths, each directory alone.
    pub fn of<P: AsRef<[u8]>>(typed: impl IntoIterator<Item = P>) -> Result<Self, ListFault> {
        let mut list = FileListBuilder::default();
        typed.into_iter().try_for_each(|path| list.add(path.as_ref()))?;
        Ok(list.finish(false))
    }

    /// Makes each directory come with all beneath it.
    pub fn recursive(self) -> Self {
        Self { recursive: true, ..self }
    }

    /// Whether each directory comes with all beneath it.
    pub fn is_recursive(&self) -> bool {
        self.recursive
    }

    /// The paths in order, as [`FileListBuilder::add`] takes them.
    pub fn paths(&self) -> impl Iterator<Item = Vec<u8>> {
        self.spans.iter().map(|span| match (span.of(&self.bytes), span.has_entries()) {
            (b"", true) => b"./".to_vec(),
            (path, true) => [path, b"/"].concat(),
            (path, false) => path.to_vec(),
        })
    }

    pub(crate) fn extent_of(&self, path: &[u8]) -> (Extent, bool) {
        let at = self.spans.partition_point(|span| compare(span.of(&self.bytes), path).is_lt());
        let itself = self.path(at).is_some_and(|listed| listed == path);
        let extent = if itself { self.extent(at) } else { Extent::Nothing };
        let beneath = self
            .path(at + usize::from(itself))
            .is_some_and(|next| path.is_empty() || next.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/")));
        (extent, beneath)
    }

    /// Whether the list takes what comes into this directory: all beneath it or above it, or its entries (`directory/`).
    pub fn selects_what_comes_into(&self, path: &[u8]) -> bool {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/').chain([0, path.len()]);
        let mut extents = ends.map(|end| self.extent_of(&path[..end]).0);
        extents.any(|extent| extent == Extent::All) || self.extent_of(path).0 == Extent::Entries
    }

    fn extent(&self, index: usize) -> Extent {
        match self.spans.get(index) {
            None => Extent::Nothing,
            Some(span) if span.has_entries() && !self.recursive => Extent::Entries,
            Some(span) if self.recursive && *span != Span { start: 0, bytes: 0 } => Extent::All,
            Some(_) => Extent::Itself,
        }
    }

    /// The approximate memory of the list.
    pub fn weight_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.spans.as_slice())
    }

    fn path(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|span| span.of(&self.bytes))
    }

    pub(crate) fn root(&self) -> (Extent, Option<Range>) {
        let (extent, _) = self.extent_of(b"");
        let low = usize::from(extent != Extent::Nothing);
        (extent.max(Extent::OnTheWay), self.range(low, self.spans.len(), 0))
    }

    fn range(&self, low: usize, high: usize, prefix_bytes: usize) -> Option<Range> {
        (low < high).then_some(Range { low, high, prefix_bytes })
    }

    pub(crate) fn child(&self, range: Range) -> Option<Child> {
        let spans = &self.spans[range.low..range.high];
        let first = spans.first()?.of(&self.bytes);
        let name = component(&first[range.prefix_bytes..]);
        let count = spans.partition_point(|span| component(&span.of(&self.bytes)[range.prefix_bytes..]) == name);
        let end_bytes = range.prefix_bytes + name.len();
        let next = range.low + count;
        let (extent, low) = match first.len() == end_bytes {
            true => (self.extent(range.low), range.low + 1),
            false => (Extent::OnTheWay, range.low),
        };
        Some(Child { name: name.to_vec(), extent, beneath: self.range(low, next, end_bytes + 1), next })
    }
}

fn component(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Sorts a slash first: a directory's paths stay together.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(list: &FileList, beneath: Option<Range>) -> Vec<(String, Extent, Option<Range>)> {
        let mut seen = Vec::new();
        let mut rest = beneath;
        while let Some(child) = rest.and_then(|range| list.child(range)) {
            rest = rest.map(|range| Range { low: child.next, ..range });
            seen.push((String::from_utf8(child.name).unwrap(), child.extent, child.beneath));
        }
        seen
    }

    #[test]
    fn children_come_in_order_each_with_what_is_asked_for_of_it() {
        let list = FileList::of(["a-b", "/a/y", "a//x/", "b", "b/inner", "a/y", "a/x"]).unwrap();
        let (root, beneath) = list.root();
        let beneath_a = Some(Range { low: 0, high: 2, prefix_bytes: 2 });
        let beneath_b = Some(Range { low: 4, high: 5, prefix_bytes: 2 });
        assert_eq!(root, Extent::OnTheWay);
        assert_eq!(
            children(&list, beneath),
            [
                ("a".into(), Extent::OnTheWay, beneath_a),
                ("a-b".into(), Extent::Itself, None),
                ("b".into(), Extent::Itself, beneath_b)
            ]
        );
        let of_a = [("x".into(), Extent::Entries, None), ("y".into(), Extent::Itself, None)];
        assert_eq!(children(&list, beneath_a), of_a);
        assert_eq!(list.extent_of(b"b"), (Extent::Itself, true));
        assert_eq!(list.extent_of(b"a"), (Extent::Nothing, true));
        assert_eq!(list.extent_of(b"a/x"), (Extent::Entries, false));
        assert_eq!(list.recursive().extent_of(b"b"), (Extent::All, true));
    }

    #[test]
    fn a_dot_in_front_brings_the_source_directory_alone() {
        let list = FileList::of(["./a/b"]).unwrap();
        assert_eq!(list.root().0, Extent::Itself);
        assert_eq!(list.clone().recursive().root().0, Extent::Itself);
        assert_eq!(FileList::of(list.paths()).unwrap(), list);
        assert_eq!(FileList::of(["./a/b", "./"]).unwrap().root().0, Extent::Entries);
        assert_eq!(FileList::of(["./a/b", "./"]).unwrap().recursive().root().0, Extent::All);
    }

    #[test]
    fn the_source_itself_is_listed_with_its_entries() {
        for root in ["./", ".", "/", "a/.", "a/"] {
            let list = FileList::of(["a", root]).unwrap();
            let path: &[u8] = if root.starts_with('a') { b"a" } else { b"" };
            assert_eq!(list.extent_of(path).0, Extent::Entries, "{root}");
            let again = FileList::of(list.paths()).unwrap();
            assert_eq!(again.paths().collect::<Vec<_>>(), list.paths().collect::<Vec<_>>());
            assert_eq!(again.extent_of(path), list.extent_of(path));
        }
    }

    #[test]
    fn a_directory_is_listed_whole_with_itself_or_one_above_it() {
        let list = FileList::of(["a/b", "c/"]).unwrap().recursive();
        let whole = |path: &[u8]| list.selects_what_comes_into(path);
        assert!(whole(b"a/b") && whole(b"a/b/x/y") && whole(b"c/d"));
        assert!(!whole(b"a") && !whole(b"a/bb") && !whole(b"x") && !whole(b""));
        let entries = FileList::of(["a/b", "c/"]).unwrap();
        assert!(entries.selects_what_comes_into(b"c") && !entries.selects_what_comes_into(b"c/d"), "its entries alone");
        assert!(FileList::of(["./"]).unwrap().recursive().selects_what_comes_into(b"x"));
    }

    #[test]
    fn what_is_no_path_beneath_the_source_is_refused() {
        for (path, fault) in
            [("../up", ListFault::Upwards), ("a/../../b", ListFault::Upwards), ("a\0b", ListFault::NoPath)]
        {
            assert_eq!(FileList::of(["x", path]), Err(fault));
        }
        assert_eq!(FileList::of(["a".repeat(MAX_LISTED_PATH_BYTES + 1)]), Err(ListFault::NoPath));
    }
}

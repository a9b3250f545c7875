//! An explicit list of paths to copy, kept sorted so that the paths beneath any directory are neighbours.

use std::cmp::Ordering;
use std::fmt;

use crate::limits::MAX_LISTED_PATH_BYTES;

/// Normalised paths: no empty and no `.` component, sorted component by component, none twice. Millions of them take what their names take, and
/// eight bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileList {
    /// All paths, one behind the other.
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Where a path stands in the bytes of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    bytes: u32,
}

/// A list to which paths are still added.
#[derive(Debug, Default)]
pub struct FileListBuilder(FileList);

/// Why a path is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// It has a component `..`.
    Upwards,
    /// It holds a NUL byte, or is longer than [`MAX_LISTED_PATH_BYTES`].
    NoPath,
    /// All paths together take more than 4 GiB.
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
    /// Adds a path as it was typed. As in rsync, a slash in front has no meaning.
    pub fn add(&mut self, typed: &[u8]) -> Result<(), ListFault> {
        if typed.len() > MAX_LISTED_PATH_BYTES || typed.contains(&0) {
            return Err(ListFault::NoPath);
        }
        if typed.split(|byte| *byte == b'/').any(|name| name == b"..") {
            return Err(ListFault::Upwards);
        }
        let FileList { bytes, spans } = &mut self.0;
        let start = bytes.len();
        for name in typed.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if bytes.len() > start {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
        }
        match (u32::try_from(start), u32::try_from(bytes.len() - start)) {
            (Ok(start), Ok(bytes)) => spans.push(Span { start, bytes }),
            _ => return Err(ListFault::Full),
        }
        Ok(())
    }

    /// About what the list takes in memory.
    pub fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }

    /// The whole list.
    pub fn finish(self) -> FileList {
        let FileList { bytes, mut spans } = self.0;
        spans.sort_unstable_by(|a, b| compare(a.of(&bytes), b.of(&bytes)));
        spans.dedup_by(|a, b| a.of(&bytes) == b.of(&bytes));
        FileList { bytes, spans }
    }
}

/// Paths of the list from `low` to before `high`: all that lie beneath a directory whose path, with its slash, takes
/// `prefix_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub low: usize,
    pub high: usize,
    pub prefix_bytes: usize,
}

/// The next name in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub name: Vec<u8>,
    /// `None`: listed itself, so all of it is wanted. Else only these paths beneath it are.
    pub only: Option<Range>,
    /// Where the next child begins.
    pub next: usize,
}

/// What a list says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Listed,
    /// It is none of the list, but something beneath it is.
    OnTheWay,
    Apart,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.bytes as usize]
    }
}

impl FileList {
    /// Lists these paths.
    pub fn of<P: AsRef<[u8]>>(typed: impl IntoIterator<Item = P>) -> Result<Self, ListFault> {
        let mut list = FileListBuilder::default();
        typed.into_iter().try_for_each(|path| list.add(path.as_ref()))?;
        Ok(list.finish())
    }

    /// The paths in their order. An empty one is the source directory itself.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| span.of(&self.bytes))
    }

    /// Where a path without empty components stands that lies beneath none of the list.
    pub(crate) fn place_of(&self, path: &[u8]) -> Place {
        let next = self.spans.partition_point(|span| compare(span.of(&self.bytes), path).is_lt());
        match self.path(next).and_then(|listed| listed.strip_prefix(path)) {
            Some(b"") => Place::Listed,
            Some([b'/', ..]) => Place::OnTheWay,
            Some(_) | None => Place::Apart,
        }
    }

    /// About what it takes in memory.
    pub fn weight_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.spans.as_slice())
    }

    fn path(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|span| span.of(&self.bytes))
    }

    /// `None` when the root itself is listed, so everything is wanted.
    pub(crate) fn whole(&self) -> Option<Range> {
        let all = Range { low: 0, high: self.spans.len(), prefix_bytes: 0 };
        if self.path(0).is_some_and(<[u8]>::is_empty) { None } else { Some(all) }
    }

    /// The first child of a directory from `range.low` on.
    pub(crate) fn child(&self, range: Range) -> Option<Child> {
        let spans = &self.spans[range.low..range.high];
        let first = spans.first()?.of(&self.bytes);
        let name = component(&first[range.prefix_bytes..]);
        let count = spans.partition_point(|span| component(&span.of(&self.bytes)[range.prefix_bytes..]) == name);
        let end_bytes = range.prefix_bytes + name.len();
        let next = range.low + count;
        let only =
            (first.len() > end_bytes).then_some(Range { low: range.low, high: next, prefix_bytes: end_bytes + 1 });
        Some(Child { name: name.to_vec(), only, next })
    }
}

fn component(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// A slash sorts before every byte a name can have, so a directory's paths stay together.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_come_in_order_and_a_listed_directory_takes_all() {
        let list = FileList::of(["a-b", "/a/y", "./a//x", "b", "b/inner", "a/y"]).unwrap();
        let mut range = list.whole().unwrap();
        let mut seen = Vec::new();
        while let Some(child) = list.child(range) {
            range.low = child.next;
            seen.push((String::from_utf8(child.name).unwrap(), child.only));
        }
        let beneath_a = Range { low: 0, high: 2, prefix_bytes: 2 };
        assert_eq!(seen, [("a".into(), Some(beneath_a)), ("a-b".into(), None), ("b".into(), None)]);
        assert_eq!(list.child(beneath_a).unwrap().name, b"x");
    }

    #[test]
    fn the_source_itself_is_all_of_it() {
        for root in ["./", ".", "/"] {
            let list = FileList::of(["a", root]).unwrap();
            assert_eq!(list.whole(), None);
        }
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

//! An explicit list of paths to copy, kept sorted so that the paths beneath any directory are neighbours.

use std::cmp::Ordering;

/// Normalised paths: no empty and no `.` component, sorted component by component, none twice.
#[derive(Debug, Default)]
pub(crate) struct FileList {
    paths: Vec<Vec<u8>>,
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

impl FileList {
    /// Sorts the typed paths. Those that lead upwards are returned instead.
    pub(crate) fn new(typed: Vec<Vec<u8>>) -> (FileList, Vec<Vec<u8>>) {
        let mut paths = Vec::with_capacity(typed.len());
        let mut refused = Vec::new();
        for path in typed {
            let parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
            if path.is_empty() || path.contains(&0) || parts.contains(&b"..".as_slice()) {
                refused.push(path);
            } else {
                paths.push(parts.join(b"/".as_slice()));
            }
        }
        paths.sort_unstable_by(|a, b| compare(a, b));
        paths.dedup();
        (FileList { paths }, refused)
    }

    /// `None` when the root itself is listed, so everything is wanted.
    pub(crate) fn whole(&self) -> Option<Range> {
        let all = Range { low: 0, high: self.paths.len(), prefix_bytes: 0 };
        if self.paths.first().is_some_and(|path| path.is_empty()) { None } else { Some(all) }
    }

    /// The first child of a directory from `range.low` on.
    pub(crate) fn child(&self, range: Range) -> Option<Child> {
        let paths = &self.paths[range.low..range.high];
        let name = component(&paths.first()?[range.prefix_bytes..]);
        let count = paths.partition_point(|path| component(&path[range.prefix_bytes..]) == name);
        let end_bytes = range.prefix_bytes + name.len();
        let next = range.low + count;
        let only =
            (paths[0].len() > end_bytes).then_some(Range { low: range.low, high: next, prefix_bytes: end_bytes + 1 });
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
        let typed = ["a-b", "a/y", "./a//x", "b", "b/inner", "../up", "", "a/y"];
        let (list, refused) = FileList::new(typed.iter().map(|path| path.as_bytes().to_vec()).collect());
        assert_eq!(refused, [b"../up".to_vec(), b"".to_vec()]);
        let mut range = list.whole().unwrap();
        let mut seen = Vec::new();
        while let Some(child) = list.child(range) {
            range.low = child.next;
            seen.push((String::from_utf8(child.name).unwrap(), child.only));
        }
        let beneath_a = Range { low: 0, high: 2, prefix_bytes: 2 };
        assert_eq!(seen, [("a".into(), Some(beneath_a)), ("a-b".into(), None), ("b".into(), None)]);
        assert_eq!(list.child(beneath_a).unwrap().name, b"x");
        assert_eq!(FileList::new(vec![b"./".to_vec()]).0.whole(), None);
    }
}

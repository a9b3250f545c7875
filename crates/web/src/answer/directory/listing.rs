//! Lists a directory in order, however long.
//!
//! Each pass over the directory keeps the smallest names behind the pass before, so memory is that of one pass. A directory of a
//! million names is read fifty times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::vec;

use haul_store::{Kind, NameKind, OpenDirectory, Stat};

use super::order::{Key, number};
use crate::access::Shelf;
use crate::answer::digest::{Digests, Kept};
use crate::request::target::{Column, Order};
use crate::token::Reach;

pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    pub(super) digests: Option<Digests>,
}

pub(super) struct Place {
    pub(super) shelf: Arc<Shelf>,
    pub(super) reach: Reach,
    pub(super) directory: OpenDirectory,
    pub(super) path: Vec<u8>,
    pub(super) kept: Arc<Kept>,
}

pub(super) type GoesOn<'a> = dyn Fn() -> io::Result<()> + 'a;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) bytes: u64,
}

pub(super) struct Listing {
    pub(super) place: Place,
    pub(super) order: Order,
    /// The names up to this one are listed.
    after: Option<Key<Vec<u8>>>,
    ready: vec::IntoIter<Ranked>,
    most: usize,
    has_more: bool,
    is_done: bool,
    is_page: bool,
    pub(super) counts: Counts,
}

impl Listing {
    pub(super) fn of_all(place: Place, order: Order, most: usize) -> Listing {
        Listing {
            place,
            order,
            after: None,
            ready: Vec::new().into_iter(),
            most,
            has_more: false,
            is_done: false,
            is_page: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn page(place: Place, order: Order, most: usize, after: Option<Key<Vec<u8>>>) -> Listing {
        Listing { after, is_page: true, ..Listing::of_all(place, order, most) }
    }

    /// The marker is known after the first entries.
    pub(super) fn next_page(&self) -> Option<Vec<u8>> {
        let last = self.after.as_ref().filter(|_| self.is_page && self.has_more)?;
        Some(last.marker(self.order))
    }

    /// Returns the next entries; none is the end.
    pub(super) fn next_entries(&mut self, most: usize, goes_on: &GoesOn<'_>) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        while entries.len() < most {
            let Some(Ranked { key, .. }) = self.ready.next() else {
                if self.is_done {
                    break;
                }
                self.pass(goes_on)?;
                continue;
            };
            goes_on()?;
            if let Some(stat) = self.place.shown(&key.name)? {
                match stat.kind {
                    Kind::Directory => self.counts.directories += 1,
                    _ => {
                        self.counts.files += 1;
                        self.counts.bytes += stat.size;
                    }
                }
                entries.push(Entry { digests: self.place.kept.known(&stat), name: key.name, stat });
            }
        }
        Ok(entries)
    }

    fn pass(&mut self, goes_on: &GoesOn<'_>) -> io::Result<()> {
        let mut kept: BinaryHeap<Ranked> = BinaryHeap::new();
        let (place, order, after, most) = (&self.place, self.order, self.after.as_ref(), self.most);
        let mut has_more = false;
        place.directory.each_name(&mut |name, kind| {
            goes_on()?;
            // Where the directory itself gives the kind, metadata of unlisted names stays unread.
            let (is_directory, number) = match (kind, order.by) {
                (Some(NameKind::Special), _) => return Ok(true),
                (Some(NameKind::Directory), Column::Name) => (true, 0),
                (Some(NameKind::File), Column::Name) => (false, 0),
                _ => match place.shown(name)? {
                    None => return Ok(true),
                    Some(stat) => (stat.kind == Kind::Directory, number(&stat, order.by)),
                },
            };
            let key = Key { is_directory, number, name };
            if after.is_some_and(|after| key.compare(after, order) != Ordering::Greater) {
                return Ok(true);
            }
            if kept.len() == most {
                has_more = true;
                if kept.peek().is_none_or(|last| key.compare(&last.key, order) == Ordering::Greater) {
                    return Ok(true);
                }
                kept.pop();
            }
            kept.push(Ranked { key: Key { is_directory, number, name: name.to_vec() }, order });
            Ok(true)
        })?;
        let ready = kept.into_sorted_vec();
        if let Some(last) = ready.last() {
            self.after = Some(last.key.clone());
        }
        self.has_more = has_more;
        self.is_done = !has_more || self.is_page;
        self.ready = ready.into_iter();
        Ok(())
    }
}

impl Place {
    fn shown(&self, name: &[u8]) -> io::Result<Option<Stat>> {
        self.shelf.directory.shown(&self.directory, &self.path, name, &|path| self.reach.includes(path))
    }
}

struct Ranked {
    key: Key<Vec<u8>>,
    order: Order,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.compare(&other.key, self.order)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

#[cfg(test)]
mod tests {
    use std::fs;

    use haul_store::{Opened, Patience, Published};

    use super::*;

    fn place(top: &std::path::Path) -> Place {
        let shelf = Arc::new(Shelf::new(Published::open(top).unwrap(), "test".to_owned()));
        let Ok(Opened::Directory(directory)) = shelf.directory.find(b"", Patience::ForDisk) else { panic!() };
        Place { shelf, reach: Reach::default(), directory, path: Vec::new(), kept: Arc::default() }
    }

    fn names(entries: Vec<Entry>) -> Vec<String> {
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    }

    #[test]
    fn many_names_come_in_their_order_in_passes_and_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let mut expected = Vec::new();
        for number in 0..30 {
            expected.push(format!("d{number}"));
            fs::create_dir(top.join(format!("d{number}"))).unwrap();
        }
        for number in 0..200_usize {
            expected.push(format!("f{number}"));
            fs::write(top.join(format!("f{number}")), vec![0; 300 - number]).unwrap();
        }
        for most in [1, 7, 230, 1000] {
            let mut all = Listing::of_all(place(&top), Order::default(), most);
            let mut found = Vec::new();
            loop {
                let entries = all.next_entries(11, &|| Ok(())).unwrap();
                if entries.is_empty() {
                    break;
                }
                found.extend(names(entries));
            }
            assert_eq!(found, expected, "{most}");
            assert_eq!((all.counts.files, all.counts.directories, all.next_page()), (200, 30, None));
        }
        let by_size = Order { by: Column::Size, is_reverse: false };
        let (mut marker, mut found) = (None::<Vec<u8>>, Vec::new());
        loop {
            let after = marker.as_deref().map(|marker| Key::parse(marker, by_size).unwrap());
            let mut page = Listing::page(place(&top), by_size, 50, after);
            found.extend(names(page.next_entries(1000, &|| Ok(())).unwrap()));
            marker = page.next_page();
            if marker.is_none() {
                break;
            }
        }
        let files = expected.drain(30..).rev().collect::<Vec<_>>();
        assert_eq!(found, [expected, files].concat());
    }
}

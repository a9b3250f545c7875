//! The names of one directory in their order, in bounded memory: a server tells them in any order, and a directory may have millions.
//!
//! ```text
//! names -> gathered, up to 8 MiB -> sorted -> a run in a file without a name
//!                                             runs -> the least of their first names -> ...
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use haul_store::{Time, scratch};

use super::names::Refused;
use crate::codec::listing::{Entry, EntryType, Facts, Modified};
use crate::limits::{MAX_LISTING_BYTES, RUN_READ_BYTES};
use crate::paths::is_name;
use crate::server::Server;

/// The names that are still to come, each once.
pub(super) struct SortedNames {
    held: std::vec::IntoIter<Entry>,
    runs: Vec<Run>,
    /// The first entry of each run that is not at its end.
    first: BinaryHeap<Reverse<First>>,
    last: Option<Vec<u8>>,
    /// Names that no file can have.
    pub(super) refused: Refused,
}

impl Default for SortedNames {
    fn default() -> Self {
        let (held, refused) = (Vec::new().into_iter(), Refused::default());
        SortedNames { held, runs: Vec::new(), first: BinaryHeap::new(), last: None, refused }
    }
}

impl SortedNames {
    /// Lists a directory.
    pub(super) fn read(server: &Server, path: &[u8], run_bytes: usize) -> io::Result<SortedNames> {
        let mut spill = Spill::default();
        let (mut held, mut held_bytes, mut bytes) = (Vec::new(), 0, 0);
        let mut refused = Refused::default();
        server.list(path, &mut |entry| {
            if !is_name(&entry.name) {
                refused.add(entry.name);
                return Ok(());
            }
            let entry_bytes = bytes_of(&entry);
            bytes += entry_bytes;
            held_bytes += entry_bytes;
            if bytes > MAX_LISTING_BYTES {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "it has more names than fit into 1 GiB"));
            }
            held.push(entry);
            if held_bytes >= run_bytes && spill.takes(&mut held)? {
                held_bytes = 0;
            }
            Ok(())
        })?;
        sort(&mut held);
        let mut names = SortedNames { held: held.into_iter(), runs: spill.runs(), refused, ..SortedNames::default() };
        for run in 0..names.runs.len() {
            names.advance(run)?;
        }
        Ok(names)
    }

    /// The first entry of a run takes part in the choice of the next name.
    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some(entry) = self.runs[run].next()? {
            self.first.push(Reverse(First { entry, run }));
        }
        Ok(())
    }

    /// The next name.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let is_held = match (self.held.as_slice().first(), self.first.peek()) {
                (Some(held), Some(Reverse(first))) => held.name <= first.entry.name,
                (held, _) => held.is_some(),
            };
            let next = match is_held {
                true => self.held.next(),
                false => match self.first.pop() {
                    Some(Reverse(First { entry, run })) => {
                        self.advance(run)?;
                        Some(entry)
                    }
                    None => None,
                },
            };
            let Some(entry) = next else { return Ok(None) };
            // A server may tell a name twice.
            if self.last.as_ref() != Some(&entry.name) {
                self.last = Some(entry.name.clone());
                return Ok(Some(entry));
            }
        }
    }
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| one.name.cmp(&other.name));
}

/// The memory that an entry takes.
fn bytes_of(entry: &Entry) -> usize {
    let target = match &entry.facts.kind {
        EntryType::Link(Some(target)) => target.len(),
        _ => 0,
    };
    entry.name.len() + size_of::<Entry>() + target
}

/// An entry that stands at the beginning of its run. Of two with one name that of the earlier run comes first.
struct First {
    entry: Entry,
    run: usize,
}

impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for First {}

impl PartialOrd for First {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for First {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.entry.name, self.run).cmp(&(&other.entry.name, other.run))
    }
}

/// Runs that are being written.
#[derive(Default)]
struct Spill {
    file: Option<Arc<File>>,
    /// Where each run ends.
    ends: Vec<u64>,
    is_refused: bool,
}

impl Spill {
    /// Writes the entries as a run. False: this host has no room for files, and they stay in memory.
    fn takes(&mut self, entries: &mut Vec<Entry>) -> io::Result<bool> {
        if self.file.is_none() && !self.is_refused {
            self.file = scratch::in_directory(&std::env::temp_dir()).map(Arc::new).ok();
            self.is_refused = self.file.is_none();
        }
        let Some(file) = &self.file else { return Ok(false) };
        sort(entries);
        let mut out = io::BufWriter::new(&**file);
        let begin = self.ends.last().copied().unwrap_or(0);
        let (mut bytes, mut length) = (Vec::new(), 0);
        for entry in entries.drain(..) {
            bytes.clear();
            encode(&entry, &mut bytes);
            length += bytes.len() as u64;
            out.write_all(&bytes)?;
        }
        out.flush()?;
        self.ends.push(begin + length);
        Ok(true)
    }

    fn runs(self) -> Vec<Run> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let Some(file) = self.file else { return Vec::new() };
        let of = |(begin, end): (u64, &u64)| Run {
            file: Arc::clone(&file),
            at: begin,
            end: *end,
            block: Vec::new(),
            read: 0,
        };
        begins.zip(&self.ends).map(of).collect()
    }
}

/// A run that is read.
struct Run {
    file: Arc<File>,
    /// What the block holds ends here.
    at: u64,
    end: u64,
    block: Vec<u8>,
    /// Bytes of the block that were taken.
    read: usize,
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let mut rest = &self.block[self.read..];
            let before = rest.len();
            if let Some(entry) = decode(&mut rest) {
                self.read += before - rest.len();
                return Ok(Some(entry));
            }
            if self.at == self.end {
                return if before == 0 { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
            self.block.drain(..self.read);
            self.read = 0;
            let held = self.block.len();
            let more = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(RUN_READ_BYTES);
            self.block.resize(held + more, 0);
            self.file.read_exact_at(&mut self.block[held..], self.at)?;
            self.at += more as u64;
        }
    }
}

/// Name and link with their lengths, and in between what is known.
fn encode(Entry { name, facts }: &Entry, out: &mut Vec<u8>) {
    let target = match &facts.kind {
        EntryType::Link(Some(target)) => &target[..],
        _ => b"",
    };
    for text in [name, target] {
        out.extend(u32::try_from(text.len()).expect("a line is shorter").to_le_bytes());
        out.extend_from_slice(text);
    }
    let kind = match facts.kind {
        EntryType::File => 0,
        EntryType::Directory => 1,
        EntryType::Itself => 2,
        EntryType::Link(None) => 3,
        EntryType::Link(Some(_)) => 4,
        EntryType::Special => 5,
        EntryType::Unknown => 6,
    };
    let is_exact = facts.modified.is_some_and(|modified| modified.is_exact);
    let told = [facts.size.is_some(), facts.modified.is_some(), is_exact, facts.mode.is_some()];
    out.extend([kind, told.iter().rev().fold(0, |bits, told| bits << 1 | u8::from(*told))]);
    let time = facts.modified.map_or_else(Time::default, |modified| modified.time);
    out.extend(facts.size.unwrap_or(0).to_le_bytes());
    out.extend(time.s.to_le_bytes());
    out.extend(time.ns.to_le_bytes());
    out.extend(facts.mode.unwrap_or(0).to_le_bytes());
}

/// `None`: the rest of it is still to be read.
fn decode(rest: &mut &[u8]) -> Option<Entry> {
    let mut bytes = *rest;
    let mut text = || {
        let (length, tail) = bytes.split_first_chunk::<4>()?;
        let (text, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = tail;
        Some(text.to_vec())
    };
    let (name, target) = (text()?, text()?);
    let ([kind, told], tail) = bytes.split_first_chunk::<2>()?;
    let (size, tail) = tail.split_first_chunk::<8>()?;
    let (s, tail) = tail.split_first_chunk::<8>()?;
    let (ns, tail) = tail.split_first_chunk::<4>()?;
    let (mode, tail) = tail.split_first_chunk::<4>()?;
    *rest = tail;
    let kind = match kind {
        0 => EntryType::File,
        1 => EntryType::Directory,
        2 => EntryType::Itself,
        3 => EntryType::Link(None),
        4 => EntryType::Link(Some(target)),
        5 => EntryType::Special,
        _ => EntryType::Unknown,
    };
    let is_told = |bit: u8| told >> bit & 1 == 1;
    let time = Time { s: i64::from_le_bytes(*s), ns: u32::from_le_bytes(*ns) };
    let facts = Facts {
        kind,
        size: is_told(0).then_some(u64::from_le_bytes(*size)),
        modified: is_told(1).then_some(Modified { time, is_exact: is_told(2) }),
        mode: is_told(3).then_some(u32::from_le_bytes(*mode)),
    };
    Some(Entry { name, facts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryType, size: Option<u64>) -> Entry {
        let modified = size.map(|size| Modified { time: Time { s: size as i64, ns: 7 }, is_exact: size % 2 == 0 });
        Entry { name: name.into(), facts: Facts { kind, size, modified, mode: size.map(|size| size as u32) } }
    }

    #[test]
    fn what_is_known_of_a_name_comes_back_from_its_run() {
        let mut entries: Vec<Entry> = (0..2000)
            .map(|at| match at % 4 {
                0 => entry(&format!("{:04}", at * 7 % 2000), EntryType::File, Some(at)),
                1 => entry(&format!("{:04}", at * 7 % 2000), EntryType::Link(Some(b"to".to_vec())), None),
                2 => entry(&format!("{:04}", at * 7 % 2000), EntryType::Directory, None),
                _ => entry(&format!("{:04}", at * 7 % 2000), EntryType::Link(None), Some(at)),
            })
            .collect();
        let mut expected = entries.clone();
        sort(&mut expected);
        let mut spill = Spill::default();
        let rest = entries.split_off(1500);
        assert!(spill.takes(&mut entries.split_off(800)).unwrap() && spill.takes(&mut entries).unwrap());
        let mut held = rest;
        // One name twice.
        held.push(expected[5].clone());
        sort(&mut held);
        let mut names = SortedNames { held: held.into_iter(), runs: spill.runs(), ..SortedNames::default() };
        (0..names.runs.len()).for_each(|run| names.advance(run).unwrap());
        let found: Vec<Entry> = std::iter::from_fn(|| names.next().unwrap()).collect();
        assert!(found == expected);
    }
}

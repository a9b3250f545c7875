//! What a server without sums has of ranges: their ends are read back and compared with the sums of what was sent.
//!
//! A connection writes its range from front to back. So what has arrived of a range is its beginning, and a few chunks of it tell where that
//! ends.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use haul_foreign::Adler32Parts;

use super::block_journal::{About, Begins, Sums};
use crate::limits::{PROVING_PATIENCE, READ_BACK_AT_ONCE};
use crate::server::Server;

/// The chunks of a draft with `has` bytes that the server has as they were sent. What it does not give back in time counts as missing.
pub(super) fn proved(
    server: &Server,
    draft: &[u8],
    (about, sums): (&About, &Sums),
    begins: &Begins,
    has: u64,
) -> io::Result<Sums> {
    let until = Instant::now() + PROVING_PATIENCE;
    let find = |chunks: Range<u32>| {
        let wrong = first_wrong(chunks.clone(), |chunk| is_right(server, draft, (about, sums), chunk, until))?;
        Ok(chunks.start..wrong)
    };
    let right = at_once(ranges(about, sums, begins, has), find)?;
    Ok(right.into_iter().flatten().filter_map(|chunk| Some((chunk, *sums.get(&chunk)?))).collect())
}

/// The chunks of these bytes that the server lacks, where one connection wrote the bytes and was cut.
pub(super) fn lost(
    server: &Server,
    draft: &[u8],
    chunk_bytes: u64,
    proofs: Option<&(About, Sums)>,
    (start, end): (u64, u64),
) -> io::Result<Range<u32>> {
    let chunk = |at: u64| u32::try_from(at / chunk_bytes).unwrap_or(u32::MAX);
    let chunks = chunk(start)..chunk(end.max(1) - 1).saturating_add(1);
    let Some((about, sums)) = proofs else { return Ok(chunks) };
    let until = Instant::now() + PROVING_PATIENCE;
    let wrong = first_wrong(chunks.clone(), |chunk| is_right(server, draft, (about, sums), chunk, until))?;
    Ok(wrong..chunks.end)
}

fn is_right(
    server: &Server,
    draft: &[u8],
    (about, sums): (&About, &Sums),
    chunk: u32,
    until: Instant,
) -> io::Result<bool> {
    let Some((sum, (start, bytes))) = sums.get(&chunk).zip(about.range(chunk)) else { return Ok(false) };
    let Ok(bytes) = usize::try_from(bytes) else { return Ok(false) };
    if Instant::now() >= until {
        return Ok(false);
    }
    let part = server.read_part(draft, start, bytes)?;
    Ok(part.len() == bytes && Adler32Parts::sum_of(&part) == *sum)
}

/// Bisects: right chunks come first, and mostly all are right.
fn first_wrong(chunks: Range<u32>, mut is_right: impl FnMut(u32) -> io::Result<bool>) -> io::Result<u32> {
    let (mut right, mut wrong) = (chunks.start, chunks.end);
    let mut look_at = chunks.end.saturating_sub(1);
    while right < wrong {
        match is_right(look_at)? {
            true => right = look_at + 1,
            false => wrong = look_at,
        }
        look_at = right + (wrong - right) / 2;
    }
    Ok(right)
}

/// Chunks that one connection wrote one after the other. A chunk in which another connection went on is looked at alone.
fn ranges(about: &About, sums: &Sums, begins: &Begins, has: u64) -> Vec<Range<u32>> {
    let mut cuts = std::collections::BTreeSet::new();
    for begin in begins {
        let Ok(chunk) = u32::try_from(begin / about.chunk_bytes) else { continue };
        cuts.insert(chunk);
        if begin % about.chunk_bytes > 1 {
            cuts.insert(chunk.saturating_add(1));
        }
    }
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for chunk in sums.keys() {
        let Some((start, bytes)) = about.range(*chunk) else { continue };
        if start + bytes > has || cuts.range(..=chunk).next().is_none() {
            continue;
        }
        match ranges.last_mut() {
            Some(range) if range.end == *chunk && !cuts.contains(chunk) => range.end += 1,
            _ => ranges.push(*chunk..chunk.saturating_add(1)),
        }
    }
    ranges
}

/// Works on several at once.
pub(super) fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> io::Result<R> + Sync) -> io::Result<Vec<R>> {
    let workers = items.len().min(READ_BACK_AT_ONCE);
    let open = Mutex::new(items.into_iter());
    let next = || open.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> io::Result<Vec<R>> { std::iter::from_fn(next).map(&work).collect() };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("read-back".into()).spawn_scoped(scope, work);
        let threads = (0..workers).map(spawn).collect::<io::Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for thread in threads {
            all.append(&mut thread.join().expect("it does not panic")?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_arrived_is_found_in_few_looks() {
        for end in 0..=1000 {
            let mut looks = 0;
            let found = first_wrong(0..1000, |chunk| {
                looks += 1;
                Ok(chunk < end)
            });
            assert_eq!(found.unwrap(), end);
            assert!(looks <= 12 && (end < 1000 || looks == 1), "{looks} for {end}");
        }
        assert_eq!(first_wrong(7..7, |_| unreachable!()).unwrap(), 7);
    }

    #[test]
    fn chunks_of_one_connection_stand_together_and_those_of_none_prove_nothing() {
        let about = About { place: Vec::new(), number: (0, 0), size: 95, chunk_bytes: 10 };
        let sums: Sums = [0, 1, 2, 4, 5, 6, 7, 9].map(|chunk| (chunk, 1)).into();
        let of = |begins: &[u64], has| ranges(&about, &sums, &begins.iter().copied().collect(), has);
        assert_eq!(of(&[1, 50], 95), [0..3, 4..5, 5..8, 9..10], "the first byte goes before");
        assert_eq!(of(&[1, 55], 95), [0..3, 4..5, 5..6, 6..8, 9..10], "another connection went on inside a chunk");
        let cut_off = of(&[50], 79);
        assert_eq!((cut_off.len(), &cut_off[0]), (1, &(5..7)), "what no connection was noted for, and what is cut off");
        assert!(of(&[], 95).is_empty());
    }
}

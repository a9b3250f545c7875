//! What an earlier run sent, as far as the server still has it: it is asked for the sums of neighbouring chunks together, and where these
//! differ, for the sum of each chunk.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use haul_foreign::Adler32Parts;

use super::block_journal::{About, Sums};
use crate::limits::{
    MAX_PROVED_BYTES, MAX_PROVED_CHUNKS, MAX_SUMMED_BYTES, PROVED_AT_ONCE_BYTES, PROVING_CONNECTIONS, PROVING_PATIENCE,
};
use crate::server::Server;

/// Neighbouring chunks whose sum is asked for in one question.
#[derive(Debug)]
struct Run {
    chunks: Sums,
    start: u64,
    bytes: u64,
}

impl Run {
    fn sum(&self, about: &About) -> Option<u32> {
        let mut parts = Adler32Parts::default();
        for (chunk, sum) in &self.chunks {
            let (start, bytes) = about.range(*chunk)?;
            parts.add(start - self.start, bytes, *sum);
        }
        parts.of_first(self.bytes)
    }
}

/// The chunks of a draft with `has` bytes that the server has as they were sent. What it does not sum in time counts as missing.
pub(super) fn proved(server: &Server, draft: &[u8], (about, sums): (&About, &Sums), has: u64) -> io::Result<Sums> {
    let until = Instant::now() + PROVING_PATIENCE;
    let (mut proved, differs) = ask(server, draft, about, runs(about, sums, has, MAX_PROVED_CHUNKS), until)?;
    // The last chunks of each connection were on their way.
    let alone = differs.iter().filter(|run| run.chunks.len() > 1).flat_map(|run| runs(about, &run.chunks, has, 1));
    proved.append(&mut ask(server, draft, about, alone.collect(), until)?.0);
    Ok(proved)
}

fn runs(about: &About, sums: &Sums, has: u64, most_chunks: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (chunk, sum) in sums {
        let Some((start, bytes)) = about.range(*chunk) else { continue };
        if start + bytes > has || bytes > MAX_SUMMED_BYTES {
            continue;
        }
        match runs.last_mut() {
            Some(run)
                if run.start + run.bytes == start
                    && run.bytes + bytes <= MAX_PROVED_BYTES
                    && run.chunks.len() < most_chunks =>
            {
                run.chunks.insert(*chunk, *sum);
                run.bytes += bytes;
            }
            _ => runs.push(Run { chunks: Sums::from([(*chunk, *sum)]), start, bytes }),
        }
    }
    runs
}

/// Returns the chunks that are right, and the runs that are not.
fn ask(server: &Server, draft: &[u8], about: &About, runs: Vec<Run>, until: Instant) -> io::Result<(Sums, Vec<Run>)> {
    let workers = runs.len().min(PROVING_CONNECTIONS);
    let open = Mutex::new(runs.into_iter());
    let work = || -> io::Result<(Sums, Vec<Run>)> {
        let (mut right, mut differs) = (Sums::new(), Vec::new());
        while Instant::now() < until {
            let batch = next_batch(&mut *open.lock().unwrap_or_else(PoisonError::into_inner));
            if batch.is_empty() {
                break;
            }
            let parts: Vec<(u64, u64)> = batch.iter().map(|run| (run.start, run.bytes)).collect();
            for (mut run, told) in batch.into_iter().zip(server.sums_of_parts(draft, &parts)?) {
                let sum = run.sum(about).map(|sum| sum.to_be_bytes().to_vec());
                match told.is_some_and(|told| Some(told.value) == sum) {
                    true => right.append(&mut run.chunks),
                    false => differs.push(run),
                }
            }
        }
        Ok((right, differs))
    };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("prove".into()).spawn_scoped(scope, work);
        let threads = (0..workers).map(spawn).collect::<io::Result<Vec<_>>>()?;
        let (mut right, mut differs) = (Sums::new(), Vec::new());
        for thread in threads {
            let (mut more_right, mut more_differ) = thread.join().expect("it does not panic")?;
            right.append(&mut more_right);
            differs.append(&mut more_differ);
        }
        Ok((right, differs))
    })
}

/// Questions that one connection asks in one round trip.
fn next_batch(open: &mut impl Iterator<Item = Run>) -> Vec<Run> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < PROVED_AT_ONCE_BYTES
        && let Some(run) = open.next()
    {
        bytes += run.bytes;
        batch.push(run);
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_asked_for_together_within_bounds() {
        const MIB: u64 = 1 << 20;
        let about = About { place: Vec::new(), number: (0, 0), size: 300 * MIB + 5, chunk_bytes: MIB };
        let sums: Sums = (0..301).filter(|chunk| *chunk != 10).map(|chunk| (chunk, 1)).collect();
        let shape = |runs: Vec<Run>| -> Vec<(u64, u64)> { runs.iter().map(|run| (run.start, run.bytes)).collect() };
        let of = |has, most| shape(runs(&about, &sums, has, most));
        assert_eq!(
            of(300 * MIB + 5, 200),
            [(0, 10 * MIB), (11 * MIB, 200 * MIB), (211 * MIB, 89 * MIB + 5)],
            "a gap, and a bound"
        );
        assert_eq!(of(2 * MIB + 7, 200), [(0, 2 * MIB)], "the draft is shorter");
        assert_eq!(of(2 * MIB, 1), [(0, MIB), (MIB, MIB)]);
        let mut open = runs(&about, &sums, about.size, 64).into_iter();
        assert!(std::iter::from_fn(|| Some(next_batch(&mut open)).filter(|batch| !batch.is_empty())).count() <= 2);
    }
}

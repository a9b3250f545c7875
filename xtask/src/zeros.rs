//! Computes the table of `haul-engine::zeros`: the chaining value, in a file's BLAKE3 tree, of each aligned block of zeros in its
//! first TiB.
//!
//! `cargo xtask zeros [TiB]` adds what the committed table lacks, up to 16 TiB without a number: three minutes of one processor
//! for each TiB, divided by their number. Entries never change; a test of `haul-engine` computes some again.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use blake3::hazmat::HasherExt as _;

use crate::tidy::root;

const PATH: &str = "crates/engine/src/zeros.bin";

/// `haul-engine::zeros` expects blocks of 64 MiB for the first TiB.
const BLOCK_BYTES: usize = 64 << 20;
const BLOCKS: usize = 16_384;
/// The size of blocks behind the first TiB.
const LARGE_BLOCK_BYTES: usize = 1 << 30;
/// Large blocks of a TiB.
const LARGE_BLOCKS: usize = 1024;

/// ext4 has no longer files.
const USUAL_TIB: usize = 16;

const HASH_BYTES: usize = 32;

pub fn run(tib: Option<&str>) -> ExitCode {
    let tib = tib.and_then(|tib| tib.parse().ok()).unwrap_or(USUAL_TIB).max(1);
    let mut known = std::fs::read(root().join(PATH)).unwrap_or_default();
    let new = table(known.len() / HASH_BYTES..BLOCKS + (tib - 1) * LARGE_BLOCKS);
    known.extend(new);
    match std::fs::write(root().join(PATH), known) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PATH}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table(blocks: Range<usize>) -> Vec<u8> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(blocks.start);
    let mut table = vec![0; blocks.len() * HASH_BYTES];
    let done: Vec<(usize, [u8; HASH_BYTES])> = thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= blocks.end {
                    return done;
                }
                done.push((number, chaining_value(number)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("hashing does not panic")).collect()
    });
    for (number, value) in done {
        table[(number - blocks.start) * HASH_BYTES..][..HASH_BYTES].copy_from_slice(&value);
    }
    table
}

fn chaining_value(number: usize) -> [u8; HASH_BYTES] {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    let (offset, length) = match number.checked_sub(BLOCKS) {
        None => (number * BLOCK_BYTES, BLOCK_BYTES),
        Some(large) => (BLOCKS * BLOCK_BYTES + large * LARGE_BLOCK_BYTES, LARGE_BLOCK_BYTES),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset as u64);
    for _ in 0..length / ZEROS.len() {
        hasher.update(&ZEROS);
    }
    hasher.finalize_non_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_begins_with_what_is_computed() {
        let committed = std::fs::read(root().join(PATH)).expect("it is part of the repository");
        assert!(committed.len().is_multiple_of(HASH_BYTES) && committed.len() >= BLOCKS * HASH_BYTES);
        assert!(committed.starts_with(&table(0..3)));
    }
}

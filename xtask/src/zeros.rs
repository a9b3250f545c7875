//! Computes the table of `haul-engine::zeros`: of each aligned block of zeros of a file's first TiB the chaining value in the file's BLAKE3 tree.
//!
//! `cargo xtask zeros` hashes a TiB: about three minutes of one processor, divided by their number. The table is committed, because what it
//! holds never changes; `haul-engine` has a test that computes some of it again.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use blake3::hazmat::HasherExt as _;

use crate::tidy::root;

const PATH: &str = "crates/engine/src/zeros.bin";

/// What `haul-engine::zeros` expects: 64 MiB, and 1 TiB of them.
const BLOCK_BYTES: usize = 64 << 20;
const BLOCKS: usize = 16_384;

const HASH_BYTES: usize = 32;

/// Computes and writes the table.
pub fn run() -> ExitCode {
    let table = table(BLOCKS);
    match std::fs::write(root().join(PATH), table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PATH}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table(blocks: usize) -> Vec<u8> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut table = vec![0; blocks * HASH_BYTES];
    let done: Vec<(usize, [u8; HASH_BYTES])> = thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= blocks {
                    return done;
                }
                done.push((number, chaining_value(number)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("hashing does not panic")).collect()
    });
    for (number, value) in done {
        table[number * HASH_BYTES..][..HASH_BYTES].copy_from_slice(&value);
    }
    table
}

fn chaining_value(number: usize) -> [u8; HASH_BYTES] {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset((number * BLOCK_BYTES) as u64);
    for _ in 0..BLOCK_BYTES / ZEROS.len() {
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
        assert_eq!(committed.len(), BLOCKS * HASH_BYTES);
        assert!(committed.starts_with(&table(3)));
    }
}

//! Functions of bytes from a peer or from a disk, for the fuzz targets. Only with the feature `fuzzing`.

use std::io::Read as _;
use std::path::Path;

use haul_store::recording::Index;
use haul_wire::limits::BLOCK_BYTES;

use crate::kept::{known_paths, known_routes, trusted_keys};
use crate::session::{channel, receiver};

/// A control channel, message after message, and a further link of one.
pub fn control_channel(mut bytes: &[u8]) {
    let mut buffer = Vec::new();
    channel::read_link(bytes, &mut buffer);
    while let Ok(Some(_)) = channel::read_message(&mut bytes, &mut buffer) {}
    assert!(buffer.len() <= haul_wire::limits::MAX_CONTROL_FRAME_BYTES);
}

/// A compressed block of a lane: all that it holds comes out, and no more than a block.
pub fn block(packed: &[u8]) {
    let Some(block) = receiver::decompress(packed) else { return };
    assert!(block.len() <= BLOCK_BYTES);
    // A decoder that goes on as long as there is something. What it refuses (a window of more than 128 MiB) it says nothing of.
    let mut all = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed).expect("it has memory");
    if decoder.take(BLOCK_BYTES as u64 + 1).read_to_end(&mut all).is_ok() {
        assert!(all == block, "{} bytes came out of {}", block.len(), all.len());
    }
}

/// The index of a striped recording.
pub fn stripes_index(text: &[u8]) {
    if let Ok(index) = Index::parse(text) {
        for name in index.stripe_names() {
            assert!(name.len() <= haul_wire::limits::MAX_NAME_BYTES && !name.contains(['/', '\0']));
        }
        let again = serde_json::to_vec(&index).expect("what was read can be written");
        assert_eq!(Index::parse(&again), Ok(index));
    }
}

/// A list of known daemons.
pub fn known_hosts(text: &str) {
    if let Ok(entries) = trusted_keys::parse(text) {
        let again: String = entries.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
        assert_eq!(trusted_keys::parse(&again), Ok(entries));
    }
}

/// What earlier jobs found of paths and file systems.
pub fn known_paths(text: &str) {
    known_paths::survive_the_disk(text);
    known_routes::survive_the_disk(text);
}

/// A receiver whose peer keeps no rules, in an empty directory; see `receiver/fuzzing.rs` for what the input means.
pub fn receiver(input: &[u8], directory: &Path) {
    receiver::fuzzing::run(input, directory);
}

//! Gives fuzz targets the functions of bytes from a peer or from a disk. They exist only with the feature `fuzzing`.

use std::io::Read as _;
use std::path::Path;

use haul_net::Networks;
use haul_net::policy::{Fits, OwnNetworks, Peer, Prefix};
use haul_store::recording::Index;
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::channel;
use haul_copy::receiver;
use haul_kept::{known_paths, known_routes, network_classes, networks_observed, trusted_keys};

/// Reads a control channel, and a further link.
pub fn control_channel(mut bytes: &[u8]) {
    let mut buffer = Vec::new();
    channel::read_link(bytes, &mut buffer);
    while let Ok(Some(_)) = channel::read_message(&mut bytes, &mut buffer) {}
    assert!(buffer.len() <= haul_wire::limits::MAX_CONTROL_FRAME_BYTES);
}

/// Decompresses a lane's block: all of it, and no more than a block.
pub fn block(packed: &[u8]) {
    let Some(block) = receiver::decompress(packed) else { return };
    assert!(block.len() <= BLOCK_BYTES);
    // A refused stream (a window of more than 128 MiB) proves nothing.
    let mut all = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed).expect("it has memory");
    if decoder.take(BLOCK_BYTES as u64 + 1).read_to_end(&mut all).is_ok() {
        assert!(all == block, "{} bytes came out of {}", block.len(), all.len());
    }
}

/// Reads a striped recording's index.
pub fn stripes_index(text: &[u8]) {
    if let Ok(index) = Index::parse(text) {
        for name in index.stripe_names() {
            assert!(name.len() <= haul_wire::limits::MAX_NAME_BYTES && !name.contains(['/', '\0']));
        }
        let again = serde_json::to_vec(&index).expect("what was read can be written");
        assert_eq!(Index::parse(&again), Ok(index));
    }
}

/// Reads known daemons.
pub fn known_hosts(text: &str) {
    if let Ok(entries) = trusted_keys::parse(text) {
        let again: String = entries.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
        assert_eq!(trusted_keys::parse(&again), Ok(entries));
    }
}

/// Reads known paths and routes.
pub fn known_paths(text: &str) {
    known_paths::survive_the_disk(text);
    known_routes::survive_the_disk(text);
}

/// Reads network classes. Each network has its class and floor, unless a smaller one inside has another.
pub fn networks(text: &str) {
    let Ok(list) = network_classes::parse(text, Path::new("networks.toml")) else { return };
    let mut named: Vec<(Prefix, &str)> = Vec::new();
    for class in list.classes() {
        let members = list.members_of(&class.name);
        named.extend(members.iter().filter_map(|member| Some((member.parse().ok()?, class.name.as_str()))));
    }
    let networks = Networks::of(vec![list.clone()], OwnNetworks::default());
    for ip in named.iter().map(|(prefix, _)| prefix.first()) {
        let longest = named.iter().filter(|(prefix, _)| prefix.contains(ip)).max_by_key(|(prefix, _)| prefix.length());
        let found = networks.find(&Peer { ip, interface: None, rtt_us: None });
        let found = found.first().map(|found| (found.fits.clone(), found.class.name.clone()));
        assert_eq!(found, longest.map(|(prefix, name)| (Fits::Prefix(*prefix), (*name).to_owned())));
    }
    let rows = networks.floors(named.len() + ROWS_OF_ALL);
    for ip in named.iter().map(|(prefix, _)| prefix.first()) {
        let of_row = rows.iter().find(|(prefix, _)| prefix.contains(ip)).and_then(|(_, floor)| *floor);
        let found = networks.find(&Peer { ip, interface: None, rtt_us: None });
        let of_class = found.classes().iter().find_map(|found| found.class.policy.rto_min.map(|floor| floor.0));
        assert!(of_row == of_class || networks.asks_for_distance(), "{ip}: {of_row:?} and {of_class:?}");
    }
}

/// Each file has rows for loopback and for everybody, of both families.
const ROWS_OF_ALL: usize = 4;

/// Reads observed classes.
pub fn networks_observed(bytes: &[u8]) {
    networks_observed::survive_the_disk(bytes);
}

/// Runs a receiver whose peer keeps no rules, in an empty directory; `receiver/fuzzing.rs` explains the input.
pub fn receiver(input: &[u8], directory: &Path) {
    receiver::fuzzing::run(input, directory);
}

//! Every decoder of bytes from a peer or from a disk, as a plain function over any bytes: it must neither panic nor keep
//! what breaks a limit, and what it accepts must survive the way out and back.
//!
//! `cargo +nightly fuzz run --features libfuzzer control` searches for hours; the tests here run each briefly.

#![forbid(unsafe_code)]

use std::io::BufReader;

use haul_engine::journal;
use haul_transfer::manifest_file;
use haul_wire::banner::BannerScanner;
use haul_wire::codec;
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Hello, LANE_HELLO_BYTES, TRAILER_BYTES, Trailer, UNIT_HEADER_BYTES, UnitHeader,
};
use haul_wire::limits::{BLOCK_BYTES, MAX_LANES, MAX_PATH_BYTES};
use haul_wire::manifest::{PackedItem, Packer};

/// A control frame.
pub fn control(bytes: &[u8]) {
    if let Some((length, _)) = bytes.split_first_chunk() {
        let _ = codec::decode_length(*length);
    }
    if let Ok(message) = codec::decode(bytes) {
        let mut again = Vec::new();
        codec::encode(&message, &mut again).expect("what was accepted can be sent");
        assert_eq!(codec::decode(&again[codec::LENGTH_BYTES..]), Ok(message));
    }
}

/// A sequence of manifest items.
pub fn items(bytes: &[u8]) {
    let (mut unpacker, mut packer, mut again) = (Packer::default(), Packer::default(), Packer::default());
    let mut rest = bytes;
    while let Ok((packed, left)) = postcard::take_from_bytes::<PackedItem>(rest) {
        rest = left;
        if let Ok(item) = unpacker.unpack(packed) {
            let path = item.path.as_bytes();
            assert!(path.len() <= MAX_PATH_BYTES && !path.starts_with(b"/") && !path.contains(&0));
            assert!(path.split(|byte| *byte == b'/').all(|name| name != b".."));
            assert_eq!(again.unpack(packer.pack(&item)), Ok(item));
        }
    }
}

/// Whatever stands on a lane: hellos, headers, trailers.
pub fn lane(bytes: &[u8]) {
    if let Some((hello, _)) = bytes.split_first_chunk::<LANE_HELLO_BYTES>()
        && let Some(decoded) = Hello::decode(hello)
    {
        // What another version has behind its greeting is not ours.
        let ours = if matches!(decoded, Hello::OtherVersion(_)) { 8 } else { LANE_HELLO_BYTES };
        assert_eq!(decoded.encode()[..ours], hello[..ours]);
        assert!(!matches!(decoded, Hello::Lane(lane) if lane.lane >= MAX_LANES));
    }
    if let Some((header, _)) = bytes.split_first_chunk::<UNIT_HEADER_BYTES>()
        && let Some(decoded) = UnitHeader::decode(header)
    {
        assert_eq!(decoded.encode(), *header);
    }
    if let Some((header, _)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>()
        && let Some(decoded) = BlockHeader::decode(*header)
    {
        assert!(decoded.bytes as usize <= BLOCK_BYTES);
        assert_eq!(decoded.encode(), *header);
    }
    if let Some((trailer, _)) = bytes.split_first_chunk::<TRAILER_BYTES>() {
        let _ = Trailer::decode(trailer);
    }
}

/// What a login shell prints before the agent speaks.
pub fn banner(bytes: &[u8]) {
    let mut scanner = BannerScanner::default();
    for byte in bytes {
        if !matches!(scanner.push(*byte), Ok(None)) {
            return;
        }
    }
}

/// A journal on disk.
pub fn journal(bytes: &[u8]) {
    if let Some((header, records)) = journal::decode(bytes) {
        let again = [header.encode(), journal::encode_records(&header, &records)].concat();
        assert!(bytes.starts_with(&again), "a journal is read as it was written");
    }
}

/// A manifest of `--manifest-out`.
pub fn manifest(bytes: &[u8]) {
    let Ok(mut reader) = manifest_file::Reader::start(BufReader::new(bytes)) else { return };
    while let Ok(Some(line)) = reader.next_file() {
        let again = manifest_file::parse_line(manifest_file::format_line(&line).as_bytes());
        assert_eq!(again.ok(), Some(line));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use haul_wire::control::{Control, Outcome, OutcomeKind, Receipt};
    use haul_wire::manifest::{Identity, Time};

    use super::*;

    /// Bytes that begin like something real, so that more than the first check is reached.
    fn plausible() -> impl Strategy<Value = Vec<u8>> {
        let noise = proptest::collection::vec(any::<u8>(), 0..300);
        (prop::sample::select(seeds()), noise, any::<prop::sample::Index>(), any::<u8>()).prop_map(
            |(mut seed, noise, at, flip)| {
                if !seed.is_empty() {
                    let at = at.index(seed.len());
                    seed[at] ^= flip;
                }
                seed.extend(noise);
                seed
            },
        )
    }

    fn seeds() -> Vec<Vec<u8>> {
        let receipts = Control::Receipts(vec![Receipt { index: 300, chunk: 7, data_bytes: 1 << 22 }; 3]);
        let outcomes = Control::Outcomes(vec![Outcome { index: 9, result: OutcomeKind::Copied { blake3: [3; 32] } }]);
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for message in [receipts, outcomes, Control::EndOfManifest] {
            let mut frame = Vec::new();
            codec::encode(&message, &mut frame).unwrap();
            frames.push(frame[codec::LENGTH_BYTES..].to_vec());
        }
        let time = Time { s: 1, ns: 2 };
        let header = journal::Header {
            identity: Identity { size: 1 << 30, mtime: time, ctime: time, inode: 5 },
            chunk_bytes: 4 << 20,
            part: (1, 2),
        };
        frames.push([header.encode(), journal::encode_records(&header, &[(0, [1; 32]), (1, [2; 32])])].concat());
        frames.push(b"# haul-manifest 1\n".to_vec());
        frames.push(b"Welcome\nHAUL-AGENT 1".to_vec());
        frames.push(Hello::Control.encode().to_vec());
        frames.push(Vec::new());
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_decoder_panics_or_breaks_a_limit(bytes in plausible()) {
            control(&bytes);
            items(&bytes);
            lane(&bytes);
            banner(&bytes);
            journal(&bytes);
            manifest(&bytes);
        }
    }
}

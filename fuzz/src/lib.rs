//! Every decoder of bytes from a peer or a disk, as a plain function. It must neither panic nor break a limit, and what it
//! accepts must survive the way out and back.
//!
//! ```text
//! cargo run -p haul-fuzz --example corpus -- unpack fuzz/corpus            what earlier searches found
//! cargo +nightly fuzz run -s none --features libfuzzer control             searches for hours
//! cargo +nightly fuzz cmin -s none --features libfuzzer control            leaves out what adds nothing
//! cargo run -p haul-fuzz --example corpus -- pack fuzz/corpus 40000        keeps it
//! ```
//! Tests run what is kept; `make fuzz-brief` runs changes of it.

#![forbid(unsafe_code)]

pub mod changes;
pub mod corpus;
pub mod seeds;

use std::io::BufReader;

use haul_daemon::authorized::{Authorized, List};
use haul_engine::journal;
use haul_store::Filter;
use haul_transfer::place::Algorithm;
use haul_transfer::{bag, hash_list, manifest_file};
use haul_wire::banner::BannerScanner;
use haul_wire::codec;
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Hello, LANE_HELLO_BYTES, TRAILER_BYTES, Trailer, UNIT_HEADER_BYTES, UnitHeader,
    path_of,
};
use haul_wire::limits::{BLOCK_BYTES, MAX_PATH_BYTES, MAX_PATHS};
use haul_wire::manifest::{PackedItem, Packer};

/// A control frame, alone and behind its length.
pub fn control(bytes: &[u8]) {
    if let Some((length, _)) = bytes.split_first_chunk() {
        let _ = codec::decode_length(*length);
    }
    if let Ok(message) = codec::decode(bytes) {
        let mut again = Vec::new();
        codec::encode(&message, &mut again).expect("what was accepted can be sent");
        assert_eq!(codec::decode(&again[codec::LENGTH_BYTES..]), Ok(message));
    }
    haul_transfer::fuzzing::control_channel(bytes);
}

/// Manifest items.
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

/// A lane's hellos, headers, trailers.
pub fn lane(bytes: &[u8]) {
    if let Some((hello, _)) = bytes.split_first_chunk::<LANE_HELLO_BYTES>()
        && let Some(decoded) = Hello::decode(hello)
    {
        // Bytes behind another version's greeting are not ours.
        let ours = if matches!(decoded, Hello::OtherVersion(_)) { 8 } else { LANE_HELLO_BYTES };
        assert_eq!(decoded.encode()[..ours], hello[..ours]);
        assert!(!matches!(decoded, Hello::Lane(lane) if path_of(lane.lane) >= MAX_PATHS));
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

/// A login shell's words before the agent's.
pub fn banner(bytes: &[u8]) {
    let mut scanner = BannerScanner::default();
    for byte in bytes {
        if !matches!(scanner.push(*byte), Ok(None)) {
            return;
        }
    }
}

/// A journal, also with right check sums.
pub fn journal(bytes: &[u8]) {
    if let Some((header, records)) = journal::decode(bytes) {
        let again = [header.encode(), journal::encode_records(&header, &records)].concat();
        assert!(bytes.starts_with(&again), "a journal is read as it was written");
    }
    let mut repaired = bytes.to_vec();
    let Some((header, rest)) = repaired.split_at_mut_checked(journal::HEADER_BYTES) else { return };
    let (body, crc) = header.split_at_mut(journal::HEADER_BYTES - 4);
    crc.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let seed: [u8; 4] = crc.try_into().expect("four bytes");
    for record in rest.chunks_exact_mut(journal::RECORD_BYTES) {
        let (body, crc) = record.split_at_mut(journal::RECORD_BYTES - 4);
        crc.copy_from_slice(&crc32fast::hash(&[&seed, &*body].concat()).to_le_bytes());
    }
    let whole = rest.len() / journal::RECORD_BYTES;
    if let Some((header, records)) = journal::decode(&repaired) {
        assert_eq!(records.len(), whole);
        let again = [header.encode(), journal::encode_records(&header, &records)].concat();
        assert!(repaired.starts_with(&again), "a journal is read as it was written");
    }
}

/// A manifest, whole and without first and last line.
pub fn manifest(bytes: &[u8]) {
    read_manifest(bytes);
    let mut whole = Vec::new();
    let Ok(mut writer) = manifest_file::Writer::start(&mut whole) else { return };
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(line) = manifest_file::parse_line(line) {
            let again = manifest_file::format_line(&line);
            assert_eq!(manifest_file::parse_line(again.as_bytes()).as_ref(), Ok(&line));
            writer.add(&line).expect("memory takes all");
        }
    }
    writer.finish().expect("memory takes all");
    assert!(read_manifest(&whole), "what was written is read");
}

fn read_manifest(bytes: &[u8]) -> bool {
    let Ok(mut reader) = manifest_file::Reader::start(BufReader::new(bytes)) else { return false };
    loop {
        match reader.next_file() {
            Ok(Some(line)) => assert!(!line.path.starts_with(b"/") && !line.path.contains(&0)),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// A list of hashes, a bag's manifest, and each line.
pub fn hash_list(bytes: &[u8]) {
    use hash_list::{Reader, Style};
    let styles = [
        Style::Program { algorithm: None, takes_absolute: false },
        Style::Program { algorithm: Some(Algorithm::Blake3), takes_absolute: true },
        Style::Bag { algorithm: Algorithm::Md5, escapes_percent: true },
        Style::Bag { algorithm: Algorithm::Sha512, escapes_percent: false },
    ];
    for style in styles {
        let mut reader = Reader::new(bytes, style);
        while let Ok(Some(_)) = reader.next_file() {}
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(Some(listed)) = hash_list::parse_line(line, style) else { continue };
            let path = listed.path.as_bytes();
            assert!(!path.is_empty() && !path.starts_with(b"/") && !path.contains(&0));
            assert!(path.split(|byte| *byte == b'/').all(|name| name != b".."));
            assert_eq!(listed.hash.len(), listed.algorithm.bytes());
            let again = hash_list::format_line(&listed.hash, path, Some(listed.algorithm));
            let again = hash_list::parse_line(&again, styles[0]).expect("what was written is read");
            assert_eq!(again.map(|again| (again.path, again.hash)), Some((listed.path, listed.hash)));
        }
    }
}

/// A bag's declaration, facts, name of a manifest.
pub fn bag(bytes: &[u8]) {
    let _ = bag::escapes_percent(bytes);
    let _ = bag::payload(bytes);
    for name in bytes.split(|byte| *byte == b'\n') {
        if let Some(found) = bag::manifest(name) {
            assert!(found.name.as_bytes() == name && !found.name.contains('/'));
        }
    }
}

/// TLS records from a peer with keys.
pub fn records(bytes: &[u8]) {
    haul_net::fuzzing::records(bytes);
}

/// A TLS handshake; the first byte chooses the end.
pub fn handshake(bytes: &[u8]) {
    if let Some((end, heard)) = bytes.split_first() {
        haul_net::fuzzing::handshake(end % 2 == 0, heard);
    }
}

/// A lane's compressed block.
pub fn block(bytes: &[u8]) {
    haul_transfer::fuzzing::block(bytes);
}

/// A reader's targets, ranges, conditions, tokens.
pub fn web(bytes: &[u8]) {
    haul_web::fuzzing::request(bytes);
}

/// Digests kept by the web service.
pub fn web_digests(bytes: &[u8]) {
    haul_web::fuzzing::digests(bytes);
}

/// A name and a job's rules, between zeros.
pub fn filter(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let path = parts.next().unwrap_or_default();
    let rules: Vec<(bool, Vec<u8>)> = parts
        .filter_map(|rule| rule.split_first().map(|(include, pattern)| (include % 2 == 0, pattern.to_vec())))
        .collect();
    let Ok(filter) = Filter::new(&rules) else { return };
    for is_dir in [false, true] {
        // Repeated rules decide the same.
        let selected = filter.selects(path, is_dir);
        if let Ok(twice) = Filter::new(&[rules.clone(), rules.clone()].concat()) {
            assert_eq!(twice.selects(path, is_dir), selected);
        }
        assert!(rules.iter().any(|(include, _)| *include == selected) || selected, "no rule says so");
    }
}

/// An FTP server's replies and lists, in any pieces.
pub fn ftp(bytes: &[u8]) {
    use haul_ftp::codec::{listing, reply::Replies};
    let Some((step, bytes)) = bytes.split_first() else { return };
    let (mut replies, mut kept) = (Replies::default(), 0);
    'reads: for piece in bytes.chunks(usize::from(*step).max(1)) {
        replies.push(piece);
        loop {
            match replies.take() {
                Ok(Some(reply)) => {
                    assert!((100..600).contains(&reply.code) && !reply.lines.is_empty());
                    kept += reply.lines.iter().map(Vec::len).sum::<usize>();
                }
                Ok(None) => break,
                Err(_) => break 'reads,
            }
        }
    }
    assert!(kept <= bytes.len(), "nothing is kept that did not come");
    let now = haul_store::Time { s: 1_795_867_200, ns: 0 };
    for line in bytes.split(|byte| *byte == b'\n') {
        for entry in [listing::facts(line), listing::line(line, now)].into_iter().flatten() {
            assert!(
                !entry.name.is_empty() && line.ends_with(&entry.name) || line.windows(4).any(|part| part == b" -> ")
            );
        }
    }
}

/// A GridFTP server's blocks, in any pieces.
pub fn grid(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let (mut from, mut incoming) = (bytes, haul_grid::Incoming::default());
    let (mut buffer, mut count) = (vec![0; usize::from(*step).max(1)], 0);
    while let Ok(read @ 1..) = incoming.read(&mut from, &mut buffer) {
        count += read;
    }
    assert!(count <= bytes.len(), "nothing is made up");
    if incoming.is_over() {
        assert!(count + haul_grid::HEADER_BYTES <= bytes.len(), "an end was said");
    }
}

/// What comes to one port of a striped transfer: the most connections, then for each header the connection that says it. One that has not
/// been heard of connects.
pub fn grid_stripe(bytes: &[u8]) {
    use haul_grid::{HEADER_BYTES, Header, StripeAccount};
    let Some((most, bytes)) = bytes.split_first() else { return };
    let mut account = StripeAccount::new(u16::from(*most));
    let (mut over, mut told) = (Vec::new(), None);
    for said in bytes.as_chunks::<{ 1 + HEADER_BYTES }>().0 {
        let (number, said) = said.split_first_chunk::<1>().expect("its length is known");
        let (number, header) = (usize::from(number[0]), Header::decode(said.try_into().expect("the rest")));
        if number >= over.len() {
            if account.open().is_err() {
                return;
            }
            over.push(false);
        }
        let number = number.min(over.len() - 1);
        if over[number] {
            continue;
        }
        let Ok(entered) = account.enter(header) else { return };
        assert!(
            header.offset.checked_add(entered.bytes).is_some_and(|end| end <= i64::MAX as u64 || entered.bytes == 0)
        );
        over[number] = entered.ends;
        if header.flags & Header::END_OF_FILE != 0 {
            assert_eq!(told.replace(header.offset), None, "it is said once");
        }
        let ended = over.iter().filter(|over| **over).count();
        assert!(over.len() <= usize::from(*most), "no more come than were asked for");
        assert_eq!(account.is_complete(), told == Some(ended as u64) && ended == over.len());
    }
}

/// An SFTP server's packets behind two-byte lengths: a greeting, then answers.
pub fn sftp(bytes: &[u8]) {
    use haul_sftp::codec::{Reply, decode, decode_greeting};
    let mut rest = bytes;
    let mut is_first = true;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let packet = &behind[..length];
        rest = &behind[length..];
        if std::mem::take(&mut is_first) {
            if let Ok(greeting) = decode_greeting(packet) {
                let bytes: usize = greeting.extensions.iter().map(|(name, value)| name.len() + value.len()).sum();
                assert!(bytes <= length, "nothing is kept that did not come");
            }
            continue;
        }
        match decode(packet.to_vec()) {
            Ok((_, Reply::Handle(handle))) => assert!(handle.len() <= 256),
            Ok((_, Reply::Data(data))) => assert!(packet.ends_with(data.bytes())),
            Ok((_, Reply::Names(names))) => {
                assert!(names.iter().map(|name| name.name.len() + 12).sum::<usize>() <= length, "nor here");
            }
            Ok((_, Reply::Status(status))) => {
                assert!(!status.text.chars().any(haul_store::drives_terminal), "it may be shown");
                drop(status.ok());
            }
            Ok((_, Reply::Attributes(_) | Reply::Extended(_))) | Err(_) => {}
        }
    }
}

/// A striped recording's index.
pub fn stripes(bytes: &[u8]) {
    haul_transfer::fuzzing::stripes_index(bytes);
}

/// A daemon's list of keys.
pub fn authorized_keys(bytes: &[u8]) {
    let (list, bad) = List::parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(list.len() + bad.len() <= lines, "a line grants once, or is bad");
    for Authorized { grant, .. } in list.grants() {
        assert!(grant.root.as_ref().is_some_and(|root| root.is_absolute()), "every key is bound to a directory");
        assert!(grant.user.as_ref().is_none_or(|user| !user.is_empty() && !user.contains('\0')));
    }
    // A cut-off list grants nothing more.
    let (shorter, _) = List::parse(&bytes[..bytes.len() / 2]);
    assert!(shorter.len() <= list.len() + bad.len());
}

/// A client's known daemons.
pub fn known_hosts(bytes: &[u8]) {
    haul_transfer::fuzzing::known_hosts(&String::from_utf8_lossy(bytes));
}

/// Earlier findings about paths.
pub fn known_paths(bytes: &[u8]) {
    haul_transfer::fuzzing::known_paths(&String::from_utf8_lossy(bytes));
}

/// A private key's file, and a public key.
pub fn key(bytes: &[u8]) {
    haul_net::fuzzing::key(&String::from_utf8_lossy(bytes));
}

/// A host's settings before tuning.
pub fn saved_settings(bytes: &[u8]) {
    haul_net::fuzzing::saved_settings(&String::from_utf8_lossy(bytes));
}

/// Network classes, and their observations.
pub fn networks(bytes: &[u8]) {
    haul_transfer::fuzzing::networks(&String::from_utf8_lossy(bytes));
    haul_transfer::fuzzing::networks_observed(bytes);
}

/// A receiver; see `haul_transfer::fuzzing::receiver`.
pub fn receiver(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory for the moment");
    haul_transfer::fuzzing::receiver(bytes, directory.path());
}

/// A decoder and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets by name.
pub const TARGETS: [Target; 26] = [
    ("authorized_keys", authorized_keys),
    ("bag", bag),
    ("banner", banner),
    ("block", block),
    ("control", control),
    ("filter", filter),
    ("handshake", handshake),
    ("hash_list", hash_list),
    ("items", items),
    ("journal", journal),
    ("key", key),
    ("known_hosts", known_hosts),
    ("known_paths", known_paths),
    ("lane", lane),
    ("manifest", manifest),
    ("networks", networks),
    ("receiver", receiver),
    ("records", records),
    ("saved_settings", saved_settings),
    ("ftp", ftp),
    ("grid", grid),
    ("grid_stripe", grid_stripe),
    ("sftp", sftp),
    ("stripes", stripes),
    ("web", web),
    ("web_digests", web_digests),
];

/// Kept and honest inputs.
pub fn begins_with(target: &str) -> Vec<Vec<u8>> {
    let kept = corpus::kept(target).expect("it is part of the repository");
    kept.into_iter().chain(seeds::of(target)).chain([Vec::new()]).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::test_runner::{Config, TestRunner};

    use super::*;

    #[test]
    fn no_decoder_panics_or_breaks_a_limit() {
        for (name, target) in TARGETS {
            let begins = begins_with(name);
            begins.iter().for_each(|bytes| target(bytes));
            let tried = TestRunner::new(Config::with_cases(100)).run(&changes::changed(begins), |bytes| {
                target(&bytes);
                Ok(())
            });
            tried.unwrap_or_else(|found| panic!("{name}: {found}"));
        }
    }

    #[test]
    fn every_target_begins_with_something_and_can_be_run_for_hours() {
        for (name, _) in TARGETS {
            assert!(!seeds::of(name).is_empty(), "{name} has no seed");
            let main = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz_targets/{name}.rs"));
            assert!(main.exists(), "{name} has no program");
        }
    }

    #[test]
    fn what_honest_programs_write_is_read() {
        for frame in seeds::of("control") {
            assert!(codec::decode(&frame).is_ok() || frame.len() > 1000, "{frame:?}");
        }
        let [journal] = &seeds::of("journal")[..] else { panic!("one journal") };
        assert_eq!(journal::decode(journal).map(|(_, records)| records.len()), Some(2));
        let [manifest] = &seeds::of("manifest")[..] else { panic!("one manifest") };
        assert!(read_manifest(manifest));
        let (list, bad) = List::parse(&seeds::of("authorized_keys")[0]);
        assert_eq!((list.len(), bad), (2, Vec::new()));
    }
}

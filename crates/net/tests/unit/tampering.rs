//! A carrier that knows what TLS records are, and repeats, drops, moves, cuts and edits them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use crate::cipher::Cipher;
use crate::identity::Identity;
use crate::kernel_scenarios::kernel_seals;
use crate::scenarios::{bench, tcp_pair, tls_pair};
use crate::stream::Stream;
use crate::tls;

#[derive(Clone, Debug)]
enum Tampering {
    Nothing,
    Repeated,
    Dropped,
    Moved,
    Cut,
    /// A record of another connection takes its place.
    Replaced(Vec<u8>),
    /// The first bytes, where they first stand, become the second.
    Edited(&'static [u8], &'static [u8]),
}

/// Well past the handshake, and before the last record.
const AT: usize = 10;

/// Two dozen records of at most 16 KiB.
const BYTES: usize = 400_000;

/// Type, version, length (RFC 8446, section 5.1).
const HEADER_BYTES: usize = 5;

fn next_record(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut record = vec![0; HEADER_BYTES];
    from.read_exact(&mut record).ok()?;
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(HEADER_BYTES + length, 0);
    from.read_exact(&mut record[HEADER_BYTES..]).ok()?;
    Some(record)
}

fn carry(mut from: TcpStream, mut to: TcpStream, at: usize, tampering: Tampering) -> Vec<u8> {
    let mut seen = Vec::new();
    for number in 0.. {
        let Some(record) = next_record(&mut from) else { break };
        let out = match (&tampering, number == at) {
            (Tampering::Cut, true) => break,
            (Tampering::Repeated, true) => [record.clone(), record.clone()].concat(),
            (Tampering::Dropped, true) => Vec::new(),
            (Tampering::Moved, true) => match next_record(&mut from) {
                Some(next) => [next, record.clone()].concat(),
                None => record.clone(),
            },
            (Tampering::Replaced(other), true) => other.clone(),
            (Tampering::Edited(what, by), true) => edited(&record, what, by),
            _ => record.clone(),
        };
        if number == at {
            seen = record;
        }
        if to.write_all(&out).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
    seen
}

fn edited(record: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let at = record.windows(what.len()).position(|window| window == what).expect("it stands in the record");
    [&record[..at], by, &record[at + by.len()..]].concat()
}

fn tampered(at: usize, tampering: Tampering) -> (TcpStream, TcpStream, thread::JoinHandle<Vec<u8>>) {
    let (near, carrier_in) = tcp_pair();
    let (carrier_out, far) = tcp_pair();
    let (back_in, back_out) = (carrier_out.try_clone().unwrap(), carrier_in.try_clone().unwrap());
    let carrier = thread::spawn(move || carry(carrier_in, carrier_out, at, tampering));
    thread::spawn(move || carry(back_in, back_out, usize::MAX, Tampering::Nothing));
    (near, far, carrier)
}

fn content() -> Vec<u8> {
    (0..BYTES).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum SealedBy {
    Us,
    Kernel,
}

fn arrives_despite(tampering: Tampering, sealed_by: SealedBy) -> (io::Result<()>, Vec<u8>, Vec<u8>) {
    let (near, far, carrier) = tampered(AT, tampering);
    let (mut near, mut far): (Stream, Stream) = tls_pair(near, far, Cipher::Aes128Gcm);
    if sealed_by == SealedBy::Kernel {
        near.seal_in_kernel().unwrap();
    }
    let writer = thread::spawn(move || near.write_all(&content()).and_then(|()| near.finish_write()));
    let mut received = Vec::new();
    let end = far.read_to_end(&mut received).map(drop);
    drop(far);
    drop(writer.join());
    (end, received, carrier.join().unwrap())
}

#[test]
fn a_record_that_is_repeated_dropped_or_moved_ends_the_connection() {
    tampering_ends_the_connection(SealedBy::Us);
}

#[test]
fn in_kernel_tls_a_record_that_is_repeated_dropped_or_moved_ends_the_connection() {
    if kernel_seals() {
        tampering_ends_the_connection(SealedBy::Kernel);
    }
}

fn tampering_ends_the_connection(sealed_by: SealedBy) {
    let (end, received, of_another) = arrives_despite(Tampering::Nothing, sealed_by);
    assert!(end.is_ok() && received == content(), "an honest carrier: {end:?}");
    let replaced = Tampering::Replaced(of_another);
    for tampering in [Tampering::Repeated, Tampering::Dropped, Tampering::Moved, replaced] {
        let what = format!("{tampering:?}");
        let (end, received, _) = arrives_despite(tampering, sealed_by);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidData, "{what:.20}");
        assert!(received.len() < BYTES && content().starts_with(&received), "{what:.20}");
    }
}

#[test]
fn a_connection_that_is_cut_is_not_taken_for_its_end() {
    let (end, received, _) = arrives_despite(Tampering::Cut, SealedBy::Us);
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(!received.is_empty() && received.len() < BYTES && content().starts_with(&received));
}

#[test]
fn offers_that_are_edited_on_the_way_end_the_handshake() {
    // The first edit swaps the offered ciphers. The second offers an older version (RFC 8446, sections 4.1.2 and 4.2.1:
    // extension 43, its length, the list's length, TLS 1.3).
    let ciphers = Tampering::Edited(&[0x13, 0x01, 0x13, 0x02], &[0x13, 0x02, 0x13, 0x01]);
    let version = Tampering::Edited(&[0, 43, 0, 3, 2, 3, 4], &[0, 43, 0, 3, 2, 3, 3]);
    for tampering in [ciphers, version] {
        let what = format!("{tampering:?}");
        let (near, far, _carrier) = tampered(0, tampering);
        let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let both = [Cipher::Aes128Gcm, Cipher::Aes256Gcm];
        let server_end = thread::spawn(move || tls::server(far, &server, |_| true, &both).map(drop));
        assert!(tls::client(near, &client, |_| true, &both).is_err(), "{what}: the client goes on");
        assert!(server_end.join().unwrap().is_err(), "{what}: the server goes on");
    }
}

/// Only a new key's record has five bytes of content, one of type and a tag of 16.
#[test]
fn a_key_seals_no_more_records_than_it_may() {
    const UPDATE_BYTES: usize = HEADER_BYTES + 5 + 1 + 16;
    const PER_KEY: usize = 5;
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
        let (near, mut from_near) = tcp_pair();
        let (mut to_far, far) = tcp_pair();
        let (back_in, back_out) = (to_far.try_clone().unwrap(), from_near.try_clone().unwrap());
        thread::spawn(move || carry(back_in, back_out, usize::MAX, Tampering::Nothing));
        let carrier = thread::spawn(move || {
            let mut lengths = Vec::new();
            while let Some(record) = next_record(&mut from_near) {
                to_far.write_all(&record).unwrap();
                lengths.push(record.len());
            }
            drop(to_far.shutdown(Shutdown::Write));
            lengths
        });
        let (mut near, mut far) = tls_pair(near, far, cipher);
        near.change_keys_after_records(PER_KEY as u64);
        let writer = thread::spawn(move || {
            near.write_all(&content()).and_then(|()| near.finish_write()).unwrap();
            near
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert!(received == content());
        drop(writer.join().unwrap());
        let lengths = carrier.join().unwrap();
        let under_each_key: Vec<usize> = lengths.split(|&length| length == UPDATE_BYTES).map(<[usize]>::len).collect();
        let [_, whole @ .., last] = &under_each_key[..] else { panic!("one key: {lengths:?}") };
        assert_eq!(under_each_key.len(), BYTES.div_ceil(16_384) / PER_KEY, "{lengths:?}");
        assert!(whole.iter().all(|&records| records == PER_KEY) && *last <= PER_KEY + 1, "{under_each_key:?}");
    }
}

#[test]
fn a_client_of_another_application_protocol_is_refused() {
    for protocols in [&[][..], &["http/1.1"], &["h2", "ftp"], &["haul/2"]] {
        let (mut near, far) = tcp_pair();
        let offered = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let client = thread::spawn(move || {
            let mut connection = bench::rustls_client_speaking(Cipher::Aes128Gcm, offered);
            while connection.is_handshaking() && connection.complete_io(&mut near).is_ok() {}
        });
        let me = Identity::generate().unwrap();
        let error = tls::server(far, &me, |_| true, &[Cipher::Aes128Gcm]).unwrap_err().to_string();
        client.join().unwrap();
        let of_the_protocol = error.contains("haul/1") || error.contains("application protocol");
        assert!(of_the_protocol, "{protocols:?}: {error}");
    }
}

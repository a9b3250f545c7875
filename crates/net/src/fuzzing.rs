//! The decoders of this crate, for the fuzz targets.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::Duration;

use aws_lc_rs::aead;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv};

use crate::control::{KeySchedule, NextSecrets};
use crate::identity::Identity;
use crate::limits;
use crate::record::{Opener, RecordKey};
use crate::tls;
use crate::transport::Link;

/// Feeds an end of TLS these bytes. Without a key it must fail.
pub fn handshake(as_server: bool, heard: &[u8]) {
    static US: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("the kernel has random numbers"));
    let ciphers = crate::preferred_ciphers(None);
    let (peer, ours) = fed(heard);
    let outcome = match as_server {
        true => tls::server(ours, &US, |_| true, &ciphers),
        false => tls::client(ours, &US, |_| true, &ciphers),
    };
    assert!(outcome.is_err(), "who proves no key does not get in");
    drop(peer);
}

/// The receiving end of a peer that has the keys and breaks the rules of TLS 1.3 (RFC 8446, 5).
///
/// ```text
///   first byte: how much is read at once
///   then: what (1 byte), length (2 bytes, big-endian), that many bytes:
///         sealed as one record | sent as they are | sealed, with a bit changed
/// ```
pub fn records(input: &[u8]) {
    let Some((&pieces, mut rest)) = input.split_first() else { return };
    let mut key = secrets(0).expect("the first key");
    let (mut sent, mut expected, mut end) = (Vec::new(), Vec::new(), None);
    let (mut changes, mut new_keys) = (0u8, 0);
    while let [what, high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (bytes, after) = tail.split_at(length);
        rest = after;
        if sent.len() + bytes.len() > FED_BYTES_MAX {
            break;
        }
        match what % 8 {
            0 if !bytes.is_empty() => {
                sent.extend_from_slice(bytes);
                end = end.or(Some(End::Broken));
            }
            1 => {
                let start = sent.len();
                seal(&mut key, bytes, &mut sent);
                let at = start + usize::from(*low) % (sent.len() - start);
                sent[at] ^= 1 << (high % 8);
                end = end.or(Some(End::Broken));
            }
            _ => {
                seal(&mut key, bytes, &mut sent);
                if end.is_none() {
                    end = judge(bytes, &mut expected);
                }
                if end.is_none() && is_key_update(bytes) {
                    let most = limits::NEW_KEYS_AT_ONCE + expected.len() as u64 / limits::BYTES_FOR_A_NEW_KEY;
                    if new_keys >= most {
                        end = Some(End::Broken);
                    }
                    new_keys += 1;
                    changes = changes.wrapping_add(1);
                    key = secrets(changes).expect("another key");
                }
            }
        }
    }
    let (peer, ours) = fed(&sent);
    let link = Link::new(ours.into());
    let schedule = KeySchedule::new(Box::new(Counted(0)));
    let mut opener = Opener::new(secrets(0).expect("the first key"), schedule, &[]);
    let mut got = Vec::new();
    let mut piece = vec![0; [1, 7, 100, 16_384, 16_401, 16_640, 40_000, 300_000][usize::from(pieces % 8)]];
    let ended = loop {
        match opener.read(&link, &mut piece) {
            Ok(0) => break End::Proper,
            Ok(read) => got.extend_from_slice(&piece[..read]),
            Err(_) => break End::Broken,
        }
    };
    drop(peer);
    assert_eq!(got, expected, "what the peer sealed, and nothing else");
    assert_eq!(ended, end.unwrap_or(End::Broken), "an end is one only where the peer says so");
}

/// A file of a private key, and the text of a public one.
pub fn key(text: &str) {
    if let Ok(identity) = Identity::from_pem(text) {
        let again = Identity::from_pem(&identity.to_pem()).expect("what was read can be written");
        assert_eq!(again.public(), identity.public());
    }
    if let Ok(key) = text.parse::<crate::PublicKey>() {
        assert_eq!(key.to_string().parse::<crate::PublicKey>().ok(), Some(key));
        assert_eq!(crate::PublicKey::from_spki(&key.to_spki()), Some(key));
    }
    let _ = crate::PublicKey::from_spki(text.as_bytes());
}

/// The file of the settings before `haul tune --apply`.
pub fn saved_settings(text: &str) {
    crate::host::kept::survives_the_disk(text);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Proper,
    Broken,
}

fn judge(inner: &[u8], expected: &mut Vec<u8>) -> Option<End> {
    let length_is_allowed = inner.len() + TAG_BYTES <= limits::RECORD_CIPHER_BYTES && !inner.is_empty();
    let Some(at) =
        inner.iter().rposition(|byte| *byte != 0).filter(|at| length_is_allowed && *at <= limits::RECORD_PLAIN_BYTES)
    else {
        return Some(End::Broken);
    };
    let content = &inner[..at];
    match (inner[at], content) {
        (23, _) => {
            expected.extend_from_slice(content);
            None
        }
        (21, [_, 0]) => Some(End::Proper),
        _ if is_key_update(inner) => None,
        _ => Some(End::Broken),
    }
}

fn is_key_update(inner: &[u8]) -> bool {
    let content = inner.iter().rposition(|byte| *byte != 0).map(|at| &inner[..=at]);
    matches!(content, Some([24, 0, 0, 1, 0..=1, 22]))
}

fn seal(key: &mut RecordKey, inner: &[u8], out: &mut Vec<u8>) {
    let mut cipher = inner.to_vec();
    let length = u16::try_from(inner.len() + TAG_BYTES).unwrap_or(u16::MAX).to_be_bytes();
    let header = [23, 3, 3, length[0], length[1]];
    key.seal_any(&header, &mut cipher);
    out.extend_from_slice(&header);
    out.extend(cipher);
}

fn secrets(number: u8) -> std::io::Result<RecordKey> {
    RecordKey::new(fixed(number))
}

fn fixed(number: u8) -> (u64, ConnectionTrafficSecrets) {
    let (key, iv) = (AeadKey::from([number; 32]), Iv::from([number; aead::NONCE_LEN]));
    (0, ConnectionTrafficSecrets::Aes256Gcm { key, iv })
}

struct Counted(u8);

impl NextSecrets for Counted {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        Ok(fixed(u8::MAX))
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.0 = self.0.wrapping_add(1);
        Ok(fixed(self.0))
    }
}

fn fed(bytes: &[u8]) -> (UnixStream, UnixStream) {
    let (mut peer, ours) = UnixStream::pair().expect("two descriptors");
    peer.write_all(&bytes[..bytes.len().min(FED_BYTES_MAX)]).expect("it fits into the buffer of the socket");
    peer.shutdown(Shutdown::Write).expect("it is open");
    // The peer does not read: its full buffer must not block us.
    ours.set_write_timeout(Some(Duration::from_secs(1))).expect("a limit above zero");
    (peer, ours)
}

/// Fits into a Unix socket's 208 KiB (net.core.wmem_default), where a byte may take a kilobyte.
const FED_BYTES_MAX: usize = 128 << 10;

const TAG_BYTES: usize = 16;

//! How much a peer may cost, before and after it has proved its key.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use crate::cipher::Cipher;
use crate::limits;
use crate::scenarios::{pattern, tcp_pair, tls_pair};

#[test]
fn who_has_not_said_what_it_wants_fills_the_memory_of_one_record() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    far.set_deadline(Some(Duration::from_secs(20))).unwrap();
    let bytes = pattern(400_000);
    let sent = bytes.clone();
    let writer = thread::spawn(move || near.write_all(&sent).and_then(|()| near.finish_write()));
    let mut received = vec![0; 30_000];
    far.read_exact(&mut received).unwrap();
    assert_eq!(far.held_bytes(), limits::FIRST_READ_BYTES);
    far.set_deadline(None).unwrap();
    far.read_to_end(&mut received).unwrap();
    assert!(received == bytes);
    assert_eq!(far.held_bytes(), limits::READ_BYTES);
    writer.join().unwrap().unwrap();
}

#[test]
fn a_peer_that_makes_one_key_after_another_and_sends_no_data_is_left() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.change_keys_after_records(1);
    let most = usize::try_from(limits::NEW_KEYS_AT_ONCE).unwrap() + 1;
    for _ in 0..=most {
        near.write_all(b"x").and_then(|()| near.flush()).unwrap();
    }
    let mut received = Vec::new();
    let error = far.read_to_end(&mut received).unwrap_err();
    assert!(error.to_string().contains("new key"), "{error}");
    assert_eq!(received.len(), most);
}

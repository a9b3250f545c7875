//! Connections that leave TLS.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use crate::cipher::Cipher;
use crate::identity::Identity;
use crate::scenarios::{ALL_CIPHERS, pattern, tcp_pair, tls_pair};
use crate::stream::Stream;
use crate::tls;

#[test]
fn a_stream_that_becomes_clear_goes_on_at_the_same_byte_with_keys_of_its_own() {
    let mut keys = Vec::new();
    for ahead in [0, 1, 100_000] {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        assert!(near.tag_keys().is_none(), "TLS needs no others");
        near.write_all(b"hello").unwrap();
        near.flush().unwrap();
        let mut near = near.into_clear().unwrap();
        // The far end may read ahead before it leaves TLS: those bytes must not be lost.
        near.write_all(&pattern(ahead)).unwrap();
        let mut hello = [0; 5];
        far.read_exact(&mut hello).unwrap();
        let far = far.into_clear().unwrap();
        let (ours, theirs) = (near.tag_keys().unwrap(), far.tag_keys().unwrap());
        assert!(ours.send == theirs.receive && ours.receive == theirs.send && ours.send != ours.receive);
        keys.push(ours.send);
        assert_eq!(near.cipher_name(), "none (clear, authenticated)");
        let whole = [pattern(ahead), pattern(300_000)].concat();
        thread::scope(|scope| {
            scope.spawn(|| near.write_all(&pattern(300_000)).and_then(|()| near.finish_write()).unwrap());
            let mut received = Vec::new();
            let mut far = far;
            far.read_to_end(&mut received).unwrap();
            assert!(received == whole, "{} of {} bytes", received.len(), whole.len());
        });
    }
    keys.dedup();
    assert_eq!(keys.len(), 3, "each connection has keys of its own");
    let (near, _far) = tcp_pair();
    assert!(Stream::plain_tcp(near).into_clear().is_err(), "nobody proved anything on it");
}

#[test]
fn clear_bytes_that_come_with_the_end_of_the_handshake_are_not_taken_for_tls() {
    let (near, mut before) = UnixStream::pair().unwrap();
    let (mut behind, far) = UnixStream::pair().unwrap();
    let (mut back_from, mut back_to) = (behind.try_clone().unwrap(), before.try_clone().unwrap());
    thread::spawn(move || io::copy(&mut back_from, &mut back_to));
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let server_thread = thread::spawn(move || tls::server(far, &server, |_| true, &ALL_CIPHERS));
    let (all_written, everything) = mpsc::channel();
    let line = thread::spawn(move || {
        let mut bytes = vec![0; 100_000];
        let hello = before.read(&mut bytes).unwrap();
        behind.write_all(&bytes[..hello]).unwrap();
        everything.recv().unwrap();
        let rest = before.read(&mut bytes).unwrap();
        behind.write_all(&bytes[..rest]).unwrap();
        behind
    });
    let (mut client, _) = tls::client(near, &client, |_| true, &ALL_CIPHERS).unwrap();
    client.write_all(b"hello").and_then(|()| client.flush()).unwrap();
    let mut client = client.into_clear().unwrap();
    client.write_all(&pattern(5_000)).unwrap();
    all_written.send(()).unwrap();
    let (mut server, _) = server_thread.join().unwrap().unwrap();
    let mut hello = [0; 5];
    server.read_exact(&mut hello).unwrap();
    let mut clear = vec![0; 5_000];
    server.into_clear().unwrap().read_exact(&mut clear).unwrap();
    assert!(hello == *b"hello" && clear == pattern(5_000));
    drop(line.join());
}

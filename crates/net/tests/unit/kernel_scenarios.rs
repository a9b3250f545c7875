//! Records of the kernel equal ours, and show the same damage. All but the first test need a kernel with TLS (`make guest`).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;

use haul_sys::kernel_tls::{self, Direction, KernelCipher, Keys};
use haul_sys::sendfile;

use crate::cipher::Cipher;
use crate::identity::Identity;
use crate::kernel_sealer::{self, KeyUsedUp};
use crate::scenarios::{ALL_CIPHERS, bench, pattern, relay_with_a_flip, tcp_pair, tls_pair};
use crate::stream::Stream;
use crate::tls;

pub(crate) fn kernel_seals() -> bool {
    let Err(error) = kernel_sealer::seals_here() else { return true };
    assert!(std::env::var_os("HAUL_TEST_KERNEL_TLS").is_none(), "it was promised: {error}");
    eprintln!("skipped: {error}");
    false
}

const BLOCK_BYTES: usize = 256 << 10;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn send_pages(stream: &mut Stream, file: &File, mut at: usize, end: usize) -> io::Result<()> {
    while at < end {
        let len = BLOCK_BYTES.min(end - at);
        let socket = stream.socket_to_send(len as u64)?.expect("the kernel seals");
        at += sendfile::send_from_file(socket, file.as_fd(), at as u64, len)?;
    }
    Ok(())
}

#[test]
fn what_the_kernel_cannot_seal_goes_on_here_and_nothing_is_lost() {
    let (near, far) = UnixStream::pair().unwrap();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.write_all(b"before, ").unwrap();
    let error = near.seal_in_kernel().unwrap_err();
    assert!(error.kind() == io::ErrorKind::Unsupported && error.to_string().contains("TCP"), "{error}");
    assert!(!near.is_sealed_in_kernel() && near.socket_to_send(1).unwrap().is_none());
    near.write_all(b"after").and_then(|()| near.finish_write()).unwrap();
    let mut received = String::new();
    far.read_to_string(&mut received).unwrap();
    assert_eq!(received, "before, after");
}

#[test]
fn in_kernel_tls_writes_and_pages_of_files_arrive_in_their_order_with_each_cipher() {
    if !kernel_seals() {
        return;
    }
    let bytes = pattern(3_000_001);
    let parts = [0, 5, 100_000, 100_007, 2_900_000, bytes.len()];
    for cipher in ALL_CIPHERS {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, cipher);
        let file = file_of(&bytes);
        let sent = bytes.clone();
        let sender = thread::spawn(move || {
            near.write_all(&sent[..parts[1]]).unwrap();
            near.seal_in_kernel().unwrap();
            send_pages(&mut near, &file, parts[1], parts[2]).unwrap();
            near.write_all(&sent[parts[2]..parts[3]]).unwrap();
            send_pages(&mut near, &file, parts[3], parts[4]).unwrap();
            near.write_all(&sent[parts[4]..]).unwrap();
            near.finish_write().unwrap();
            let mut answer = String::new();
            near.read_to_string(&mut answer).unwrap();
            assert!(near.is_sealed_in_kernel());
            answer
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert!(received == bytes, "{cipher:?}: {} of {} bytes", received.len(), bytes.len());
        far.write_all(b"answer").and_then(|()| far.finish_write()).unwrap();
        assert_eq!(sender.join().unwrap(), "answer");
    }
}

#[test]
fn in_kernel_tls_what_arrives_is_opened_by_the_kernel_up_to_its_proper_end() {
    if !kernel_seals() {
        return;
    }
    for (cipher, sealed_by_kernel) in ALL_CIPHERS.into_iter().flat_map(|cipher| [(cipher, false), (cipher, true)]) {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, cipher);
        let bytes = pattern(1_000_003);
        let sent = bytes.clone();
        let sender = thread::spawn(move || {
            if sealed_by_kernel {
                near.seal_in_kernel().unwrap();
            }
            near.write_all(&sent).and_then(|()| near.finish_write()).unwrap();
        });
        far.open_in_kernel().unwrap();
        assert!(far.is_opened_in_kernel());
        let mut received = vec![0; 10];
        // Less than any record without data.
        for byte in received.iter_mut() {
            far.read_exact(std::slice::from_mut(byte)).unwrap();
        }
        far.read_to_end(&mut received).unwrap();
        assert!(received == bytes, "{cipher:?}: {} of {} bytes", received.len(), bytes.len());
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "the end stays");
        sender.join().unwrap();
    }
}

#[test]
fn in_kernel_tls_a_flipped_bit_does_not_open_and_a_cut_is_not_the_end() {
    if !kernel_seals() {
        return;
    }
    for flip in [Some(100_000), None] {
        let (near, relay_in) = tcp_pair();
        let (relay_out, far) = tcp_pair();
        let (back_in, back_out) = (relay_out.try_clone().unwrap(), relay_in.try_clone().unwrap());
        thread::spawn(move || relay_with_a_flip(relay_in, relay_out, flip.unwrap_or(u64::MAX)));
        thread::spawn(move || relay_with_a_flip(back_in, back_out, u64::MAX));
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        far.open_in_kernel().unwrap();
        let bytes = pattern(400_000);
        let sent = bytes.clone();
        let sender = thread::spawn(move || {
            near.write_all(&sent).and_then(|()| near.flush())?;
            near.tcp().unwrap().shutdown(std::net::Shutdown::Write)
        });
        let mut received = Vec::new();
        let error = far.read_to_end(&mut received).unwrap_err();
        let wanted = if flip.is_some() { io::ErrorKind::InvalidData } else { io::ErrorKind::UnexpectedEof };
        assert_eq!(error.kind(), wanted, "{error}");
        assert!(bytes.starts_with(&received) && (flip.is_none() == (received.len() == bytes.len())));
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), wanted, "the error stays");
        drop(far);
        drop(sender.join());
    }
}

#[test]
fn in_kernel_tls_a_new_key_of_the_peer_is_followed_or_named() {
    if !kernel_seals() {
        return;
    }
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    far.open_in_kernel().unwrap();
    near.change_keys_after_records(5);
    let bytes = pattern(300_000);
    let sent = bytes.clone();
    let sender = thread::spawn(move || near.write_all(&sent).and_then(|()| near.finish_write()));
    let mut received = Vec::new();
    match far.read_to_end(&mut received) {
        Ok(_) => assert!(received == bytes),
        // Before Linux 6.14.
        Err(error) => {
            assert!(KeyUsedUp::caused(&error) && bytes.starts_with(&received), "{error}");
            assert_eq!(received.len(), 5 * 16_384);
        }
    }
    drop(far);
    drop(sender.join());
}

/// The kernel has one cipher for both directions: another's receiving key makes it refuse ours.
#[test]
fn in_kernel_tls_a_key_that_is_refused_changes_nothing() {
    if !kernel_seals() {
        return;
    }
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.write_all(b"before, ").unwrap();
    let socket = near.tcp().unwrap().as_fd();
    kernel_tls::attach(socket).unwrap();
    let other = Keys { cipher: KernelCipher::Aes256Gcm, key: &[1; 32], iv: [2; 12], next_record: 0 };
    kernel_tls::set_keys(socket, Direction::Receive, &other).unwrap();
    let error = near.seal_in_kernel().unwrap_err();
    assert!(error.kind() == io::ErrorKind::Unsupported && error.to_string().contains("cipher"), "{error}");
    near.write_all(b"after").and_then(|()| near.finish_write()).unwrap();
    let mut received = String::new();
    far.read_to_string(&mut received).unwrap();
    assert_eq!(received, "before, after");
}

/// With kernel TLS, unlike others, a socket takes and drops bytes after a shutdown.
#[test]
fn in_kernel_tls_nothing_is_taken_after_a_shutdown() {
    if !kernel_seals() {
        return;
    }
    let (near, far) = tcp_pair();
    let (mut near, _far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.seal_in_kernel().unwrap();
    near.write_all(b"before").unwrap();
    near.shutdown_handle().shutdown();
    assert_eq!(near.write(b"after").unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    assert_eq!(near.socket_to_send(1).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
}

#[test]
fn in_kernel_tls_a_flipped_bit_fails_and_nothing_wrong_is_delivered() {
    if !kernel_seals() {
        return;
    }
    for at in [20_000, 70_000, 200_001] {
        let (near, relay_in) = tcp_pair();
        let (relay_out, far) = tcp_pair();
        let (back_in, back_out) = (relay_out.try_clone().unwrap(), relay_in.try_clone().unwrap());
        thread::spawn(move || relay_with_a_flip(relay_in, relay_out, at));
        thread::spawn(move || relay_with_a_flip(back_in, back_out, u64::MAX));
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        let bytes = pattern(400_000);
        let file = file_of(&bytes);
        let sender = thread::spawn(move || {
            near.seal_in_kernel()?;
            send_pages(&mut near, &file, 0, 400_000)?;
            near.finish_write()
        });
        let mut received = Vec::new();
        let error = far.read_to_end(&mut received).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(received.len() < bytes.len() && bytes.starts_with(&received));
        drop(far);
        drop(sender.join());
    }
}

/// A call of 256 KiB makes 16 to 66 records, one for each page. The key may seal 300.
#[test]
fn in_kernel_tls_a_key_is_changed_in_time_or_the_connection_ends_in_time() {
    if !kernel_seals() {
        return;
    }
    const RECORDS: u64 = 300;
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes256Gcm);
    let bytes = pattern(10_000_000);
    let file = file_of(&bytes);
    let sender = thread::spawn(move || {
        near.seal_in_kernel()?;
        near.change_keys_after_records(RECORDS);
        send_pages(&mut near, &file, 0, 10_000_000)?;
        near.finish_write()
    });
    let mut received = Vec::new();
    let end = far.read_to_end(&mut received).map(drop);
    match sender.join().unwrap() {
        Ok(()) => {
            assert!(end.is_ok() && received == bytes, "{end:?}: {} of {}", received.len(), bytes.len());
            let changes = counter("TlsTxRekeyOk");
            assert!(changes >= 2, "10 MB are 611 records: {changes} changes");
        }
        Err(error) => {
            assert!(KeyUsedUp::caused(&error), "{error}");
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "not taken for the end");
            let records = received.len() / 16_384;
            assert!(bytes.starts_with(&received) && (220..=RECORDS as usize).contains(&records), "{records} records");
        }
    }
}

#[test]
fn in_kernel_tls_a_peer_that_asks_for_another_key_gets_it_or_no_more_data() {
    if !kernel_seals() {
        return;
    }
    let (near, mut far) = tcp_pair();
    let (asked, was_asked) = std::sync::mpsc::channel();
    let peer = thread::spawn(move || {
        let mut connection = bench::rustls_server(Cipher::Aes128Gcm);
        while connection.is_handshaking() {
            connection.complete_io(&mut far).unwrap();
        }
        let mut tls = rustls::Stream::new(&mut connection, &mut far);
        let mut received = vec![0; 300_000];
        tls.read_exact(&mut received).unwrap();
        tls.conn.refresh_traffic_keys().unwrap();
        tls.write_all(b"asked").unwrap();
        asked.send(()).unwrap();
        tls.read_to_end(&mut received).map(|_| received)
    });
    let (mut near, _) = tls::client(near, &Identity::generate().unwrap(), |_| true, &[Cipher::Aes128Gcm]).unwrap();
    let bytes = pattern(600_000);
    near.seal_in_kernel().unwrap();
    near.write_all(&bytes[..300_000]).unwrap();
    was_asked.recv().unwrap();
    near.read_exact(&mut [0; 5]).unwrap();
    let result = near.write_all(&bytes[300_000..]).and_then(|()| near.finish_write());
    drop(near);
    let received = peer.join().unwrap();
    match result {
        Ok(()) => assert!(received.unwrap() == bytes),
        Err(error) => {
            assert!(KeyUsedUp::caused(&error), "{error}");
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}

fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/net/tls_stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().parse().unwrap_or(0)
}

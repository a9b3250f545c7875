//! Two ends over loopback: admission, damaged bytes, and the cost of a block.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::cipher::{Cipher, preferred_ciphers};
use crate::error::NetError;
use crate::identity::Identity;
use crate::public_key::PublicKey;
use crate::stream::Stream;
use crate::tls;
use crate::transport::{Link, Pipes, Transport};

pub(crate) const ALL_CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];

type Outcome = Result<(Stream, PublicKey), NetError>;

pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    for socket in [&near, &far] {
        socket.set_nodelay(true).unwrap();
        // The host's default may be bbr, whose timers cost several times the CPU over loopback.
        haul_sys::socket::set_congestion_control(socket, "reno").unwrap();
    }
    (near, far)
}

fn shake(
    near: impl Into<Transport>,
    far: impl Into<Transport> + Send + 'static,
    expected_by_client: Option<PublicKey>,
    admitted_by_server: Option<PublicKey>,
    ciphers: [&[Cipher]; 2],
) -> (Outcome, Outcome) {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let expected = expected_by_client.unwrap_or(server.public());
    let admitted = admitted_by_server.unwrap_or(client.public());
    let server_ciphers = ciphers[1].to_vec();
    let server_thread = thread::spawn(move || tls::server(far, &server, move |key| *key == admitted, &server_ciphers));
    let client_end = tls::client(near, &client, move |key| *key == expected, ciphers[0]);
    (client_end, server_thread.join().unwrap())
}

pub(crate) fn tls_pair(
    near: impl Into<Transport>,
    far: impl Into<Transport> + Send + 'static,
    cipher: Cipher,
) -> (Stream, Stream) {
    let (client, server) = shake(near, far, None, None, [&[cipher]; 2]);
    (client.unwrap().0, server.unwrap().0)
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn check_carries(mut from: Stream, mut to: Stream, bytes: &[u8], step: usize) {
    thread::scope(|scope| {
        scope.spawn(|| {
            for part in bytes.chunks(step) {
                from.write_all(part).unwrap();
            }
            from.finish_write().unwrap();
        });
        let mut received = Vec::new();
        to.read_to_end(&mut received).unwrap();
        assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
    });
}

#[test]
fn both_ends_pinned_get_through_with_each_cipher() {
    for cipher in ALL_CIPHERS {
        let (near, far) = tcp_pair();
        let (near, far) = tls_pair(near, far, cipher);
        assert_eq!(near.cipher_name(), cipher.name());
        assert_eq!(near.peer_addr(), far.local_addr());
        assert!(near.tcp_info().is_some() && near.clear_socket().is_none() && !near.is_sealed_in_kernel());
        check_carries(near, far, &pattern(3_000_000), 256 * 1024);
    }
}

#[test]
fn the_best_common_cipher_is_agreed_on_and_none_is_an_error() {
    let (near, far) = tcp_pair();
    let (client, _server) = shake(near, far, None, None, [&ALL_CIPHERS, &[Cipher::Aes256Gcm]]);
    assert_eq!(client.unwrap().0.cipher(), Some(Cipher::Aes256Gcm));
    let (near, far) = tcp_pair();
    let (client, server) = shake(near, far, None, None, [&[Cipher::Aes128Gcm], &[Cipher::Aes256Gcm]]);
    for error in [client.unwrap_err(), server.unwrap_err()] {
        assert!(error.to_string().contains("no common cipher"), "{error}");
    }
    assert_eq!(preferred_ciphers(Some(Cipher::Aes256Gcm)), [Cipher::Aes256Gcm]);
    assert_eq!(preferred_ciphers(None).len(), 3);
}

#[test]
fn each_end_learns_the_key_of_the_other() {
    let (near, far) = tcp_pair();
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (client_key, server_key) = (client.public(), server.public());
    let thread = thread::spawn(move || tls::server(far, &server, |_| true, &preferred_ciphers(None)));
    let (_, seen) = tls::client(near, &client, |_| true, &preferred_ciphers(None)).unwrap();
    assert_eq!(seen, server_key);
    assert_eq!(thread.join().unwrap().unwrap().1, client_key);
}

#[test]
fn a_wrong_client_key_is_refused_and_the_client_learns_why() {
    let (near, far) = tcp_pair();
    let other = Identity::generate().unwrap().public();
    let (client, server) = shake(near, far, None, Some(other), [&ALL_CIPHERS; 2]);
    let error = server.unwrap_err();
    assert!(matches!(error, NetError::WrongKey { got } if got != other), "{error}");
    let error = client.unwrap().0.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn a_wrong_server_key_is_refused_and_the_server_learns_why() {
    let (near, far) = tcp_pair();
    let other = Identity::generate().unwrap().public();
    let (client, server) = shake(near, far, Some(other), None, [&ALL_CIPHERS; 2]);
    let error = client.unwrap_err();
    assert!(matches!(error, NetError::WrongKey { got } if got != other), "{error}");
    let error = server.unwrap_err();
    assert!(matches!(error, NetError::KeyRefused), "{error}");
}

#[test]
fn a_handshake_with_garbage_or_silence_fails_with_its_reason() {
    let (mut near, far) = tcp_pair();
    near.write_all(b"GET / HTTP/1.1\r\nHost: example.invalid\r\n\r\n").unwrap();
    let me = Identity::generate().unwrap();
    let error = tls::server(far, &me, |_| true, &ALL_CIPHERS).unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    let (near, far) = tcp_pair();
    drop(near);
    let error = tls::server(far, &me, |_| true, &ALL_CIPHERS).unwrap_err();
    assert!(error.to_string().contains("closed the connection"), "{error}");
}

#[test]
fn runs_over_pipes_and_unix_sockets() {
    let (near_in, far_out) = io::pipe().unwrap();
    let (far_in, near_out) = io::pipe().unwrap();
    let near = Pipes::new(near_in, near_out, None).unwrap();
    let far = Pipes::new(far_in, far_out, None).unwrap();
    let (near, far) = tls_pair(near, far, Cipher::Aes128Gcm);
    check_carries(far, near, &pattern(1_000_000), 100_000);
    let (near, far) = UnixStream::pair().unwrap();
    let (near, far) = tls_pair(near, far, Cipher::Aes128Gcm);
    assert_eq!((near.peer_addr(), near.tcp_info()), (None, None));
    check_carries(near, far, &pattern(1_000_000), 999);
    let (near, far) = Stream::plain_pair().unwrap();
    assert_eq!(near.cipher_name(), "none");
    check_carries(near, far, &pattern(1_000_000), 77_777);
}

#[test]
fn flush_sends_small_writes_and_has_input_sees_them() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    assert!(!far.has_input());
    near.write_all(b"hello").unwrap();
    near.flush().unwrap();
    let mut received = [0; 5];
    far.read_exact(&mut received[..2]).unwrap();
    assert!(far.has_input());
    far.read_exact(&mut received[2..]).unwrap();
    assert_eq!(&received, b"hello");
    assert!(!far.has_input());
}

#[test]
fn an_end_without_notice_is_a_truncation() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.write_all(b"cut").unwrap();
    near.flush().unwrap();
    near.tcp().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = Vec::new();
    let error = far.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(received, b"cut");
}

#[test]
fn reading_goes_on_after_our_own_end() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    near.finish_write().unwrap();
    assert_eq!(far.read(&mut [0; 9]).unwrap(), 0);
    far.write_all(b"answer").unwrap();
    far.finish_write().unwrap();
    let mut received = String::new();
    near.read_to_string(&mut received).unwrap();
    assert_eq!(received, "answer");
}

#[test]
fn shutdown_unblocks_readers_and_writers() {
    let pipes = || {
        let (near_in, far_out) = io::pipe().unwrap();
        let (far_in, near_out) = io::pipe().unwrap();
        let far = Stream::plain_pipes(far_in, far_out, None).unwrap();
        (Stream::plain_pipes(near_in, near_out, None).unwrap(), far)
    };
    let tls = || {
        let (near, far) = tcp_pair();
        tls_pair(near, far, Cipher::Aes128Gcm)
    };
    let pairs = [Stream::plain_pair().unwrap(), pipes(), tls()];
    for (at, (near, _far)) in pairs.into_iter().enumerate() {
        let handle = near.shutdown_handle();
        let (mut reader, mut writer) = near.split();
        // A blocked write to a pipe ends only when the callback closes the other end.
        let blocks_in_write = at != 1;
        let (tell, told) = mpsc::channel();
        let tell_too = tell.clone();
        thread::spawn(move || tell.send(reader.read(&mut [0]).map(|_| ())));
        thread::spawn(move || {
            let outcome = match blocks_in_write {
                true => (0..10_000).try_for_each(|_| writer.write_all(&[0; 65_536])),
                false => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            tell_too.send(outcome)
        });
        thread::sleep(Duration::from_millis(50));
        handle.shutdown();
        for _ in 0..2 {
            let outcome = told.recv_timeout(Duration::from_secs(5)).unwrap();
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "pair {at}: {error}");
        }
    }
}

#[test]
fn a_deadline_ends_a_wait_and_can_be_lifted() {
    let (near, far) = tcp_pair();
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    far.set_deadline(Some(Duration::from_millis(20))).unwrap();
    let error = far.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    far.set_deadline(None).unwrap();
    near.write_all(b"late").unwrap();
    near.flush().unwrap();
    assert_eq!(far.read(&mut [0; 9]).unwrap(), 4);
}

#[test]
fn both_halves_work_at_once_without_a_deadlock() {
    const BYTES: usize = 64 << 20;
    let (near, far) = tcp_pair();
    let (near, far) = tls_pair(near, far, Cipher::Aes128Gcm);
    // Only independent halves complete this: each end writes all before it reads.
    thread::scope(|scope| {
        for end in [near, far] {
            let (mut reader, mut writer) = end.split();
            scope.spawn(move || {
                let block = pattern(256 * 1024);
                for _ in 0..BYTES / block.len() {
                    writer.write_all(&block).unwrap();
                }
                writer.finish_write().unwrap();
            });
            scope.spawn(move || {
                let expected = pattern(256 * 1024);
                let mut block = vec![0; expected.len()];
                for _ in 0..BYTES / block.len() {
                    reader.read_exact(&mut block).unwrap();
                    assert!(block == expected);
                }
                assert_eq!(reader.read(&mut block).unwrap(), 0);
            });
        }
    });
}

pub(crate) fn relay_with_a_flip(mut from: TcpStream, mut to: TcpStream, at: u64) {
    let mut passed = 0;
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if (passed..passed + count as u64).contains(&at) {
            buffer[(at - passed) as usize] ^= 0x10;
        }
        passed += count as u64;
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Write));
}

#[test]
fn a_flipped_bit_fails_and_nothing_wrong_is_delivered() {
    // Past the handshake (below 4 KiB): within content, and in the header of a later record.
    for at in [20_000, 70_000, 200_001] {
        let (near, relay_in) = tcp_pair();
        let (relay_out, far) = tcp_pair();
        let (back_in, back_out) = (relay_out.try_clone().unwrap(), relay_in.try_clone().unwrap());
        thread::spawn(move || relay_with_a_flip(relay_in, relay_out, at));
        thread::spawn(move || relay_with_a_flip(back_in, back_out, u64::MAX));
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        let bytes = pattern(400_000);
        let sent = bytes.clone();
        let writer = thread::spawn(move || near.write_all(&sent).and_then(|()| near.finish_write()));
        let mut received = Vec::new();
        let error = far.read_to_end(&mut received).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(received.len() < bytes.len() && bytes.starts_with(&received));
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(far);
        drop(writer.join());
    }
}

#[test]
fn keys_change_on_the_way_in_both_directions() {
    for cipher in ALL_CIPHERS {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, cipher);
        near.change_keys_after_records(3);
        far.change_keys_after_records(5);
        let bytes = pattern(1_000_003);
        thread::scope(|scope| {
            for (end, step) in [(near, 40_000), (far, 999)] {
                let (mut reader, mut writer) = end.split();
                let bytes = &bytes;
                scope.spawn(move || {
                    for part in bytes.chunks(step) {
                        writer.write_all(part).unwrap();
                    }
                    writer.finish_write().unwrap();
                });
                scope.spawn(move || {
                    let mut received = Vec::new();
                    reader.read_to_end(&mut received).unwrap();
                    assert!(received == *bytes);
                });
            }
        });
    }
}

/// At an MTU of 1500 the first window is 10 segments of 1448 bytes. Beyond it takes one round trip more.
#[test]
fn the_first_flight_fills_the_window_and_no_more() {
    const FIRST_WINDOW_BYTES: u64 = 14_480;
    for (flight_bytes, least, most) in [(0, 200, 2_048), (1_000, 200, 2_048), (14_480, 8_688, FIRST_WINDOW_BYTES)] {
        let (near, mut far) = tcp_pair();
        far.shutdown(Shutdown::Write).unwrap();
        let (me, deadline) = (Identity::generate().unwrap(), Duration::from_secs(10));
        let link = Arc::new(Link::new(near.into()));
        assert!(tls::client_over(link, &me, |_| true, &[Cipher::Aes128Gcm], flight_bytes, deadline).is_err());
        let sent = io::copy(&mut far, &mut io::sink()).unwrap();
        assert!((least..=most).contains(&sent), "{sent} bytes for {flight_bytes}");
    }
    // Six of ten segments double the window, and a server ignores their content.
    let (near, far) = tcp_pair();
    let (me, peer) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let accepts = thread::spawn(move || crate::server(far, &peer, |_| true, &[Cipher::Aes128Gcm]).unwrap().0);
    let (near, _) = crate::client_padded(near, &me, |_| true, &[Cipher::Aes128Gcm]).unwrap();
    assert!(near.tcp_info().unwrap().bytes_sent.unwrap() > 8_688);
    check_carries(near, accepts.join().unwrap(), &pattern(100_000), 1000);
}

#[test]
fn padding_grows_what_is_sent_and_is_not_read() {
    for cipher in ALL_CIPHERS {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, cipher);
        near.change_keys_after_records(2);
        let sent_before = near.tcp_info().unwrap().bytes_sent.unwrap();
        near.write_all(b"before").unwrap();
        near.pad(40_000).unwrap();
        near.pad(usize::MAX).unwrap();
        near.write_all(b", after").unwrap();
        near.finish_write().unwrap();
        let mut received = String::new();
        far.read_to_string(&mut received).unwrap();
        assert_eq!(received, "before, after");
        let padded = near.tcp_info().unwrap().bytes_sent.unwrap() - sent_before;
        let asked = 40_000 + crate::PADDING_BYTES_MAX as u64;
        assert!((asked..asked + 2_000).contains(&padded), "{padded} bytes for {asked}");
    }
}

#[test]
fn our_records_are_those_of_rustls() {
    for cipher in ALL_CIPHERS {
        let (near, mut far) = tcp_pair();
        let me = Identity::generate().unwrap();
        let rustls_end = thread::spawn(move || {
            let mut connection = bench::rustls_server(cipher);
            while connection.is_handshaking() {
                connection.complete_io(&mut far).unwrap();
            }
            let bytes = pattern(300_000);
            let mut received = vec![0; bytes.len()];
            let mut tls = rustls::Stream::new(&mut connection, &mut far);
            tls.read_exact(&mut received).unwrap();
            assert!(received == bytes);
            tls.conn.refresh_traffic_keys().unwrap();
            tls.write_all(&bytes).unwrap();
            tls.read_exact(&mut received).unwrap();
            assert!(received == bytes);
            tls.conn.send_close_notify();
            tls.flush().unwrap();
        });
        let (mut near, _) = tls::client(near, &me, |_| true, &[cipher]).unwrap();
        near.change_keys_after_records(4);
        let bytes = pattern(300_000);
        let mut received = vec![0; bytes.len()];
        near.pad(40_000).unwrap();
        near.write_all(&bytes).unwrap();
        near.flush().unwrap();
        near.read_exact(&mut received).unwrap();
        assert!(received == bytes);
        // rustls' change asked for new keys: these bytes have our new key.
        near.write_all(&bytes).unwrap();
        near.flush().unwrap();
        assert_eq!(near.read(&mut received).unwrap(), 0);
        rustls_end.join().unwrap();
    }
}

#[test]
fn another_application_protocol_is_refused() {
    for protocols in [vec![], vec![b"other/1".to_vec()]] {
        let (near, mut far) = tcp_pair();
        let thread = thread::spawn(move || {
            let mut connection = bench::rustls_server_speaking(Cipher::Aes128Gcm, protocols);
            while connection.is_handshaking() {
                if connection.complete_io(&mut far).is_err() {
                    return;
                }
            }
        });
        let me = Identity::generate().unwrap();
        let error = tls::client(near, &me, |_| true, &[Cipher::Aes128Gcm]).unwrap_err();
        assert!(error.to_string().contains("haul/1"), "{error}");
        thread.join().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sizes_of_writes_and_reads_carry_the_same_bytes(
        writes in prop::collection::vec((0usize..70_000, any::<bool>()), 1..30),
        reads in prop::collection::vec(1usize..70_000, 1..10),
        records_per_key in prop::option::of(2u64..9),
    ) {
        let (near, far) = tcp_pair();
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        if let Some(records) = records_per_key {
            near.change_keys_after_records(records);
        }
        let bytes = pattern(writes.iter().map(|(length, _)| length).sum());
        let sent = bytes.clone();
        let writer = thread::spawn(move || {
            let mut rest = sent.as_slice();
            for (length, flush) in writes {
                let part;
                (part, rest) = rest.split_at(length);
                near.write_all(part).unwrap();
                if flush {
                    near.flush().unwrap();
                }
            }
            near.finish_write().unwrap();
        });
        let mut received = Vec::new();
        for size in reads.iter().cycle() {
            let mut target = vec![0; *size];
            let count = far.read(&mut target).unwrap();
            received.extend_from_slice(&target[..count]);
            if count == 0 {
                break;
            }
        }
        writer.join().unwrap();
        prop_assert!(received == bytes);
    }
}

/// The cost of a block. Run with `--release --ignored --nocapture cost_of`.
pub(crate) mod bench {
    use rustls::client::AlwaysResolvesClientRawPublicKeys;
    use rustls::server::AlwaysResolvesServerRawPublicKeys;

    use super::*;

    const BYTES: u64 = 2_000_000_000;
    const BLOCK_BYTES: usize = 256 * 1024;
    const ROUNDS: usize = 4;

    fn thread_cpu() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    type Send = Box<dyn FnMut(&[u8]) + std::marker::Send>;
    type Receive = Box<dyn FnMut(&mut [u8]) -> usize>;

    fn cost(name: &str, mut round: impl FnMut() -> (Send, Receive)) {
        // The smallest sum counts: over loopback the kernel charges either side.
        let mut best = (f64::MAX, f64::MAX, 0.0);
        for _ in 0..ROUNDS {
            let (mut send, mut receive) = round();
            let begin = Instant::now();
            let sender = thread::spawn(move || {
                let block = pattern(BLOCK_BYTES);
                let before = thread_cpu();
                for _ in 0..BYTES / BLOCK_BYTES as u64 {
                    send(&block);
                }
                send(&[]);
                thread_cpu() - before
            });
            let mut block = vec![0; BLOCK_BYTES];
            let before = thread_cpu();
            while receive(&mut block) > 0 {}
            let receive_cpu = (thread_cpu() - before).as_secs_f64();
            let send_cpu = sender.join().unwrap().as_secs_f64();
            let gigabytes = BYTES as f64 / 1e9;
            let round =
                (send_cpu / gigabytes, receive_cpu / gigabytes, 8.0 * gigabytes / begin.elapsed().as_secs_f64());
            if round.0 + round.1 < best.0 + best.1 {
                best = round;
            }
        }
        println!("{name:32} send {:.3} receive {:.3} cpu-s/GB, {:.1} Gbit/s", best.0, best.1, best.2);
    }

    fn ours(near: Stream, far: Stream) -> (Send, Receive) {
        let (mut near, mut far) = (near, far);
        (
            Box::new(move |block| match block {
                [] => near.finish_write().unwrap(),
                block => near.write_all(block).unwrap(),
            }),
            Box::new(move |block| far.read(block).unwrap()),
        )
    }

    #[test]
    #[ignore = "a measurement"]
    fn cost_of_a_block() {
        cost("clear", || {
            let (near, far) = tcp_pair();
            ours(Stream::plain(near), Stream::plain(far))
        });
        for cipher in ALL_CIPHERS {
            cost(&format!("own records, {}", cipher.name()), || {
                let (near, far) = tcp_pair();
                let (near, far) = tls_pair(near, far, cipher);
                ours(near, far)
            });
            cost(&format!("rustls records, {}", cipher.name()), || {
                let (near, far) = tcp_pair();
                buffered(near, far, cipher)
            });
        }
    }

    /// rustls in its plain way: 64 KiB at a time, vectored writes, reads of 256 KiB in parts.
    fn buffered(mut near: TcpStream, mut far: TcpStream, cipher: Cipher) -> (Send, Receive) {
        let mut server = rustls_server(cipher);
        let mut client = rustls_client(cipher);
        let mut near_too = near.try_clone().unwrap();
        let thread = thread::spawn(move || {
            while client.is_handshaking() || client.wants_write() {
                client.complete_io(&mut near_too).unwrap();
            }
            client
        });
        while server.is_handshaking() {
            server.complete_io(&mut far).unwrap();
        }
        let mut client = thread.join().unwrap();
        let mut input = vec![0; BLOCK_BYTES];
        let mut rest = 0..0;
        (
            Box::new(move |block| {
                for part in block.chunks(64 * 1024) {
                    client.writer().write_all(part).unwrap();
                    while client.wants_write() {
                        client.write_tls(&mut near).unwrap();
                    }
                }
                if block.is_empty() {
                    client.send_close_notify();
                    client.write_tls(&mut near).unwrap();
                }
            }),
            Box::new(move |block| {
                loop {
                    match server.reader().read(block) {
                        Ok(count) => return count,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                    if rest.is_empty() {
                        rest = 0..far.read(&mut input).unwrap();
                    }
                    let mut part = &input[rest.clone()];
                    // rustls takes 4 KiB at a time, and at most one record before processing.
                    while !part.is_empty() && server.wants_read() {
                        match server.read_tls(&mut part) {
                            Ok(0) | Err(_) => break,
                            Ok(_) => {}
                        }
                        server.process_new_packets().unwrap();
                    }
                    rest.start = rest.end - part.len();
                }
            }),
        )
    }

    pub(crate) fn rustls_server(cipher: Cipher) -> rustls::ServerConnection {
        rustls_server_speaking(cipher, vec![b"haul/1".to_vec()])
    }

    pub(super) fn rustls_server_speaking(cipher: Cipher, protocols: Vec<Vec<u8>>) -> rustls::ServerConnection {
        let me = Identity::generate().unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(tls::provider_with(&[cipher]))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(tls::admit_everybody())
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(me.certified())));
        config.alpn_protocols = protocols;
        config.send_tls13_tickets = 0;
        rustls::ServerConnection::new(Arc::new(config)).unwrap()
    }

    fn rustls_client(cipher: Cipher) -> rustls::ClientConnection {
        rustls_client_speaking(cipher, vec![b"haul/1".to_vec()])
    }

    pub(crate) fn rustls_client_speaking(cipher: Cipher, protocols: Vec<Vec<u8>>) -> rustls::ClientConnection {
        let mut config = rustls::ClientConfig::builder_with_provider(tls::provider_with(&[cipher]))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(tls::admit_everybody())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Identity::generate().unwrap().certified(),
            )));
        config.alpn_protocols = protocols;
        let name = rustls::pki_types::ServerName::try_from("haul").unwrap();
        rustls::ClientConnection::new(Arc::new(config), name).unwrap()
    }
}

//! Every route carries the same bytes; a refused one is given up once.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use haul_net::{Cipher, Identity, Stream, Transport, tls};
use haul_sys::file;

use super::*;

fn kernel_seals() -> bool {
    let Err(error) = haul_net::seals_here() else { return true };
    assert!(std::env::var_os("HAUL_TEST_KERNEL_TLS").is_none(), "it was promised: {error}");
    eprintln!("skipped: {error}");
    false
}

const LENGTH: usize = 3_000_001;
const BLOCK: usize = 256 << 10;

fn content() -> Vec<u8> {
    (0..LENGTH as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn source() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content()).unwrap();
    file
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn clear() -> (Stream, Stream) {
    let (near, far) = sockets();
    (Stream::plain_tcp(near), Stream::plain_tcp(far))
}

fn encrypted((near, far): (impl Into<Transport>, impl Into<Transport> + Send + 'static)) -> (Stream, Stream) {
    let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let server = std::thread::spawn(move || tls::server(far, &there, |_| true, &[Cipher::Aes128Gcm]).unwrap().0);
    let client = tls::client(near, &here, |_| true, &[Cipher::Aes128Gcm]).unwrap().0;
    (client, server.join().unwrap())
}

fn sent(routes: &Arc<Routes<SendRoute>>, (mut near, mut far): (Stream, Stream)) -> (Vec<u8>, Vec<u8>) {
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        far.read_to_end(&mut got).map(|_| got)
    });
    let file = source();
    let mut shown = Vec::new();
    let mut tap = |bytes: &[u8]| shown.extend_from_slice(bytes);
    let mut pump = SendPump::new(Arc::clone(routes), BLOCK);
    pump.send(&mut near, file.as_fd(), 1, LENGTH as u64 - 1, true, Some(&mut tap)).unwrap();
    near.flush().unwrap();
    near.finish_write().unwrap();
    (reader.join().unwrap().unwrap(), shown)
}

fn received(routes: &Arc<Routes<ReceiveRoute>>, file: File, offset: u64) -> Vec<u8> {
    let (mut near, mut far) = clear();
    let writer = std::thread::spawn(move || {
        near.write_all(&content()).unwrap();
        near.finish_write().unwrap();
        near
    });
    let target = Target::file(file);
    let mut shown = Vec::new();
    let mut tap = |bytes: &[u8]| shown.extend_from_slice(bytes);
    let mut pump = ReceivePump::new(Arc::clone(routes), BLOCK);
    let got = pump.receive(&mut far, &target, offset, u64::MAX, Some(&mut tap)).unwrap();
    pump.finish().unwrap();
    assert_eq!(got, LENGTH as u64, "up to the end of the stream");
    writer.join().unwrap();
    shown
}

fn stands_at(file: &File, offset: u64) -> bool {
    let mut got = vec![0; LENGTH];
    file::read_full_at(file.as_fd(), &mut got, offset).unwrap() == LENGTH && got == content()
}

#[test]
fn every_way_to_send_delivers_the_same_bytes_and_shows_them() {
    for (route, name) in SendRoute::ALL {
        let routes = Arc::new(Routes::new(&[route], SendRoute::Copy));
        let (got, shown) = sent(&routes, clear());
        assert!(got == content()[1..], "{name}: {} bytes arrived", got.len());
        assert!(shown == content()[1..], "{name}: {} bytes shown", shown.len());
        if !routes.dropped().is_empty() {
            eprintln!("{name} is refused here: {:?}", routes.dropped());
        }
    }
}

#[test]
fn every_way_to_receive_leaves_the_same_bytes_and_shows_them() {
    for (route, name) in ReceiveRoute::ALL.into_iter().filter(|(route, _)| route.fills_file()) {
        for offset in [0, 4097] {
            let routes = Arc::new(Routes::new(&[route], ReceiveRoute::Copy));
            let file = tempfile::tempfile().unwrap();
            let shown = received(&routes, file.try_clone().unwrap(), offset);
            assert!(stands_at(&file, offset), "{name} at {offset}");
            assert!(shown == content(), "{name} at {offset}: {} bytes shown", shown.len());
            assert_eq!(file.metadata().unwrap().len(), offset + LENGTH as u64, "{name} at {offset}");
            if !routes.dropped().is_empty() {
                eprintln!("{name} is refused here: {:?}", routes.dropped());
            }
        }
    }
}

#[test]
fn a_way_that_needs_a_clear_connection_is_given_up_for_all_lanes_at_once() {
    let routes = Arc::new(Routes::new(&[SendRoute::Sendfile, SendRoute::Splice], SendRoute::Copy));
    for _lane in 0..2 {
        // The kernel seals only TCP.
        let (got, shown) = sent(&routes, encrypted(UnixStream::pair().unwrap()));
        assert!(got == content()[1..] && shown == got);
    }
    let dropped: Vec<_> = routes.dropped().into_iter().map(|dropped| (dropped.route, dropped.instead)).collect();
    assert_eq!(dropped, [("sendfile", "splice"), ("splice", "copy")], "each is said once");
    assert_eq!(routes.current(), SendRoute::Copy);
}

#[test]
fn in_kernel_tls_every_way_to_send_delivers_the_same_bytes_and_shows_them() {
    if !kernel_seals() {
        return;
    }
    for (route, name) in SendRoute::ALL {
        let routes = Arc::new(Routes::new(&[route], SendRoute::Copy));
        for _lane in 0..2 {
            let (got, shown) = sent(&routes, encrypted(sockets()));
            assert!(got == content()[1..], "{name}: {} bytes arrived", got.len());
            assert!(shown == content()[1..], "{name}: {} bytes shown", shown.len());
        }
        match route {
            SendRoute::RingSplice | SendRoute::RingCopy => eprintln!("{name}: {:?}", routes.dropped()),
            _ => assert_eq!(routes.dropped(), [], "{name}"),
        }
    }
}

#[test]
fn in_kernel_tls_every_way_to_receive_leaves_the_same_bytes_up_to_the_proper_end() {
    if !kernel_seals() {
        return;
    }
    let without = [ReceiveRoute::Direct, ReceiveRoute::Discard];
    for (route, name) in ReceiveRoute::ALL.into_iter().filter(|(route, _)| !without.contains(route)) {
        for cut in [false, true] {
            let (mut near, mut far) = encrypted(sockets());
            let writer = std::thread::spawn(move || {
                near.write_all(&content()).and_then(|()| near.flush()).unwrap();
                match cut {
                    true => near.tcp().unwrap().shutdown(std::net::Shutdown::Write).unwrap(),
                    false => near.finish_write().unwrap(),
                }
                near
            });
            let file = tempfile::tempfile().unwrap();
            let target = if route.fills_file() { Target::file(file.try_clone().unwrap()) } else { Target::nowhere() };
            let routes = Arc::new(Routes::new(&[route], ReceiveRoute::Copy));
            let mut pump = ReceivePump::new(Arc::clone(&routes), BLOCK);
            let first = pump.receive(&mut far, &target, 0, 100_001, None).unwrap();
            let rest = pump.receive(&mut far, &target, first, u64::MAX, None);
            match (cut, rest) {
                (false, Ok(rest)) => assert_eq!(first + rest, LENGTH as u64, "{name}"),
                (true, Err(ReceiveError::Lane(error))) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{name}")
                }
                (_, other) => panic!("{name}, cut {cut}: {other:?}"),
            }
            pump.finish().unwrap();
            assert!(cut || !route.fills_file() || stands_at(&file, 0), "{name}");
            let by_kernel = matches!(route, ReceiveRoute::Splice | ReceiveRoute::Null);
            assert_eq!((far.is_opened_in_kernel(), routes.dropped()), (by_kernel, vec![]), "{name}");
            writer.join().unwrap();
        }
    }
}

#[test]
fn in_kernel_tls_is_used_for_no_more_than_a_route_needs() {
    if !kernel_seals() {
        return;
    }
    let file = source();
    for (route, sealed_in_kernel) in [(SendRoute::Copy, false), (SendRoute::Sendfile, true)] {
        let (mut near, mut far) = encrypted(sockets());
        let reader = std::thread::spawn(move || {
            let mut got = [0; 1000];
            far.read_exact(&mut got).map(|()| got)
        });
        let mut pump = SendPump::new(Arc::new(Routes::new(&[route], SendRoute::Copy)), BLOCK);
        pump.send(&mut near, file.as_fd(), 0, 1000, true, None).unwrap();
        near.flush().unwrap();
        assert!(reader.join().unwrap().unwrap() == content()[..1000]);
        assert_eq!(near.is_sealed_in_kernel(), sealed_in_kernel);
    }
}

#[test]
fn what_was_taken_when_a_file_system_refuses_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("appended");
    // Splicing into an append-only file is EINVAL (splice(2)), after the pipe was filled.
    let file = File::options().create_new(true).append(true).read(true).open(&path).unwrap();
    let routes = Arc::new(Routes::new(&[ReceiveRoute::Splice], ReceiveRoute::Copy));
    received(&routes, file, 0);
    assert!(stands_at(&File::open(&path).unwrap(), 0));
    let dropped = routes.dropped();
    assert_eq!((dropped.len(), dropped[0].route, dropped[0].instead), (1, "splice", "copy"), "{dropped:?}");
}

#[test]
fn a_source_that_ends_early_is_told_whatever_the_way() {
    for (route, name) in SendRoute::ALL {
        let (mut near, mut far) = clear();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).map(|_| got.len())
        });
        let file = source();
        file.set_len(500_000).unwrap();
        let mut pump = SendPump::new(Arc::new(Routes::new(&[route], SendRoute::Copy)), BLOCK);
        let result = pump.send(&mut near, file.as_fd(), 0, LENGTH as u64, true, None);
        let Err(SendFailed { sent_bytes, why: SendError::Ended }) = result else { panic!("{name}: {result:?}") };
        near.finish_write().unwrap();
        let got = reader.join().unwrap().unwrap();
        assert_eq!(got as u64, sent_bytes, "{name}: whoever frames the range has to know");
        match route {
            // The kernel has zeros of a mapping to the end of the last page, and the failing call may discard bytes that it had
            // taken.
            SendRoute::Map => assert!(got <= 500_000 + 4096, "{name}: {got}"),
            _ => assert_eq!(got, 500_000, "{name}"),
        }
    }
}

#[test]
fn a_connection_that_is_gone_is_no_fault_of_the_file() {
    for (route, name) in SendRoute::ALL {
        let (mut near, far) = clear();
        far.shutdown_handle().shutdown();
        drop(far);
        let file = source();
        let mut pump = SendPump::new(Arc::new(Routes::new(&[route], SendRoute::Copy)), BLOCK);
        // The socket may still take the first bytes.
        let result = (0..100).find_map(|_| pump.send(&mut near, file.as_fd(), 0, LENGTH as u64, false, None).err());
        let lane = matches!(result, Some(SendFailed { why: SendError::Lane(_), .. }));
        assert!(lane, "{name}: {result:?}");
    }
}

#[test]
fn what_nobody_wants_is_counted_and_let_go() {
    for (route, name) in ReceiveRoute::ALL.into_iter().filter(|(route, _)| !route.fills_file()) {
        let (mut near, mut far) = clear();
        let writer = std::thread::spawn(move || near.write_all(&content()).and_then(|()| near.finish_write()));
        let routes = Arc::new(Routes::new(&[route], ReceiveRoute::Copy));
        let mut pump = ReceivePump::new(Arc::clone(&routes), BLOCK);
        assert_eq!(pump.receive(&mut far, &Target::nowhere(), 0, 1_000_001, None).unwrap(), 1_000_001, "{name}");
        let mut next = [0; 1];
        far.read_exact(&mut next).unwrap();
        assert_eq!(next[0], content()[1_000_001], "{name}");
        assert_eq!(pump.receive(&mut far, &Target::nowhere(), 0, u64::MAX, None).unwrap(), LENGTH as u64 - 1_000_002);
        writer.join().unwrap().unwrap();
        assert_eq!(routes.dropped(), [], "{name}");
    }
}

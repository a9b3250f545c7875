//! Streams that come over loopback, and what is recorded of them.

use std::io::Write as _;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, atomic::AtomicBool, atomic::Ordering};

use super::*;

struct Onlooker {
    listening: Mutex<Option<Sender<SocketAddr>>>,
    told: Mutex<u64>,
    enough: AtomicBool,
}

impl Watcher for Onlooker {
    fn on_listening(&self, address: SocketAddr) {
        if let Some(tell) = self.listening.lock().unwrap().take() {
            tell.send(address).unwrap();
        }
    }

    fn on_interval(&self, interval: &Interval) {
        *self.told.lock().unwrap() += interval.bytes;
    }

    fn interrupted(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

fn request(directory: &std::path::Path) -> Request {
    Request {
        input: Input::Listen("127.0.0.1:0".parse().unwrap()),
        path: directory.join("stream"),
        reserve_bytes: 0,
        bytes: None,
        buffers: 4,
        buffer_bytes: 128 << 10,
        interval: Duration::from_millis(100),
    }
}

/// Records what `sends` writes into the connection; it may also have enough.
fn recorded(request: &Request, sends: impl FnOnce(TcpStream, &AtomicBool) + Send) -> (Result<Recorded, Error>, u64) {
    let (tell, listening) = channel();
    let onlooker = Onlooker { listening: Mutex::new(Some(tell)), told: Mutex::new(0), enough: AtomicBool::new(false) };
    let result = std::thread::scope(|scope| {
        let enough = &onlooker.enough;
        scope.spawn(move || {
            if let Ok(address) = listening.recv() {
                sends(TcpStream::connect(address).unwrap(), enough);
            }
        });
        let result = run(request, &onlooker);
        onlooker.listening.lock().unwrap().take();
        result
    });
    let told = *onlooker.told.lock().unwrap();
    (result, told)
}

#[test]
fn a_stream_is_recorded_to_its_last_byte_and_what_was_reserved_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    for (bytes, reserve_bytes) in [(0, 1 << 20), (1, 0), (128 << 10, 0), (3_000_001, 8 << 20), (3_000_001, 1000)] {
        let request = Request { reserve_bytes, ..request(dir.path()) };
        let (found, told) = recorded(&request, |mut stream, _| stream.write_all(&content(bytes)).unwrap());
        let found = found.unwrap();
        assert!(std::fs::read(&request.path).unwrap() == content(bytes), "{bytes} bytes");
        assert_eq!((found.bytes, told, found.interrupted), (bytes as u64, bytes as u64, false));
        assert!(found.high_water <= found.buffers && (found.overruns == 0) == found.held_up.is_zero(), "{found:?}");
        let allocated = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&request.path).unwrap()) * 512;
        assert!(allocated < bytes as u64 + (1 << 20), "{allocated} bytes are taken for {bytes}");
        std::fs::remove_file(&request.path).unwrap();
    }
}

#[test]
fn it_ends_after_what_was_asked_for_however_long_the_stream_is() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { bytes: Some(1_000_000), ..request(dir.path()) };
    let (found, _) = recorded(&request, |mut stream, _| drop(stream.write_all(&content(4_000_000))));
    assert_eq!(found.unwrap().bytes, 1_000_000);
    assert!(std::fs::read(&request.path).unwrap() == content(1_000_000));
}

#[test]
fn who_has_enough_keeps_what_came_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path());
    let (found, _) = recorded(&request, |mut stream, enough| {
        stream.write_all(&content(300_000)).unwrap();
        enough.store(true, Ordering::Relaxed);
        // The stream goes on; it is its end that the other side must not wait for.
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    });
    let found = found.unwrap();
    assert!(found.interrupted && found.bytes <= 300_000);
    assert!(std::fs::read(&request.path).unwrap() == content(300_000)[..found.bytes as usize]);
}

#[test]
fn of_a_stream_that_breaks_off_what_came_is_kept_and_that_it_broke_off_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { reserve_bytes: 1 << 20, ..request(dir.path()) };
    let (found, told) = recorded(&request, |stream, _| {
        (&stream).write_all(&content(200_000)).unwrap();
        // A close that is a reset.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let length = std::fs::metadata(&request.path).unwrap().len();
    // A reset may overtake what was sent before it; what was read is in the file.
    assert_eq!(told, length);
    assert!(std::fs::read(&request.path).unwrap() == content(200_000)[..length as usize]);
    let error = found.unwrap_err();
    assert!(error.fault == Fault::Network && error.what.contains(&length.to_string()), "{error:?}");
}

#[test]
fn nothing_is_replaced_and_nothing_is_left_of_what_cannot_begin() {
    let dir = tempfile::tempdir().unwrap();
    let taken = request(dir.path());
    std::fs::write(&taken.path, "there before").unwrap();
    let error = recorded(&taken, |_, _| {}).0.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.hint.is_some(), "{error:?}");
    assert_eq!(std::fs::read(&taken.path).unwrap(), b"there before");
    std::fs::remove_file(&taken.path).unwrap();
    let too_large = Request { reserve_bytes: 1 << 60, ..request(dir.path()) };
    assert!(recorded(&too_large, |_, _| {}).0.is_err());
    assert!(!too_large.path.exists());
    for bad in [
        Request { buffers: 1, ..request(dir.path()) },
        Request { buffer_bytes: 1000, ..request(dir.path()) },
        Request { interval: Duration::ZERO, ..request(dir.path()) },
        Request { buffers: 1024, buffer_bytes: 64 << 20, ..request(dir.path()) },
    ] {
        assert_eq!(recorded(&bad, |_, _| {}).0.unwrap_err().fault, Fault::Usage);
        assert!(!bad.path.exists());
    }
}

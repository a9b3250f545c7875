//! Strangers at a daemon's door: silent, talking nonsense, thousands.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_e2e::memory::{peak_resident_bytes, resident_bytes};
use haul_e2e::{Facets, assert_same, code, eventually, needs, plant, settle};

use crate::Stage;

/// Each source address has its own share of the waiting room.
///
/// Closed on drop, so no other test's program inherits it.
fn connect_from(source: Ipv4Addr, target: SocketAddrV4) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let own = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&own, &SocketAddr::from((source, 0))).expect("a loopback address");
    connect(&own, &SocketAddr::from(target)).expect("it listens");
    TcpStream::from(own)
}

#[test]
fn strangers_neither_get_in_nor_stand_in_the_way() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), 3 << 20, 1);
    let connect = || TcpStream::connect(stage.address).expect("it listens");
    for words in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 5000], &[0xff; 5000], &[0x16, 3, 1, 0xff, 0xff]] {
        for _ in 0..20 {
            // The daemon may close before all is sent.
            let _ = connect().write_all(words);
        }
    }
    let begun = Instant::now();
    let strangers: Vec<TcpStream> =
        (0..200).map(|_| connect_from(Ipv4Addr::new(127, 0, 0, 2), stage.address)).collect();
    stage.cp().args(["file", &stage.url("meanwhile")]).run().expect(code::OK);
    assert!(begun.elapsed() < Duration::from_secs(10), "the strangers were still there");
    for mut stranger in strangers {
        let left = Duration::from_secs(15).saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        stranger.set_read_timeout(Some(left)).expect("a socket");
        let answer = stranger.read(&mut [0; 64]);
        let stays = answer.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!stays, "an idle stranger may stay for more than 15 s");
    }
    stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK);
    assert_same(&stage.at("file"), &stage.at("offered/file"), Facets::PLAIN);
}

#[test]
fn strangers_at_the_address_of_the_client_delay_it_and_no_more() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    let strangers: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(stage.address).expect("it listens")).collect();
    stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK);
    drop(strangers);
}

/// `HAUL_STRANGERS=1000000` for an afternoon.
fn strangers() -> u32 {
    std::env::var("HAUL_STRANGERS").map_or(5_000, |count| count.parse().expect("HAUL_STRANGERS is a number"))
}

const NONSENSE: [&[u8]; 5] =
    [b"", b"GET / HTTP/1.0\r\n\r\n", &[0xff; 3000], BEGINNING, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]];

/// The header of a TLS record of 16 KiB, and its first byte.
const BEGINNING: &[u8] = &[0x16, 3, 1, 0x40, 0, 1];

/// `count` connections with nonsense from many addresses. Most are reset, which leaves no port in TIME-WAIT. A SYN without
/// room is repeated only after a second, so several threads work.
fn flood(target: SocketAddrV4, count: u32) {
    const FLOODERS: u32 = 8;
    let stranger = |at: u32| {
        let [_, _, high, low] = at.to_be_bytes();
        let mut stranger = connect_from(Ipv4Addr::new(127, 200, high & 7, low.max(1)), target);
        // The daemon may close before all is sent.
        let _ = stranger.write_all(NONSENSE[at as usize % NONSENSE.len()]);
        if !at.is_multiple_of(16) {
            let at_once = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&stranger, at_once).expect("a socket");
        }
    };
    std::thread::scope(|scope| {
        for flooder in 0..FLOODERS {
            scope.spawn(move || (flooder..count).step_by(FLOODERS as usize).for_each(stranger));
        }
    });
}

/// Fills the waiting room with strangers in mid-message, who leave once read.
fn fill_the_door(stage: &Stage) {
    // net/limits.rs has these: in all, and from one address.
    const HANDSHAKES: usize = 512;
    const FROM_ONE: usize = 128;
    /// On a busy machine, the first may time out before the last arrive.
    const TRIES: usize = 3;
    let tasks = PathBuf::from(format!("/proc/{}/task", stage.daemon.as_ref().expect("it runs").id()));
    let is_greeting = |task: &Path| fs::read(task.join("comm")).is_ok_and(|name| name == b"greeting\n");
    let greetings =
        || fs::read_dir(&tasks).expect("it runs").flatten().filter(|task| is_greeting(&task.path())).count();
    let source = |at: usize| Ipv4Addr::new(127, 201, 0, 1 + u8::try_from(at / FROM_ONE).expect("few addresses"));
    let was_full = (0..TRIES).any(|_| {
        let strangers: Vec<TcpStream> = (0..HANDSHAKES)
            .map(|at| {
                let mut stranger = connect_from(source(at), stage.address);
                // The daemon may have sent it away.
                let _ = stranger.write_all(BEGINNING);
                stranger
            })
            .collect();
        let is_full = settle(Duration::from_secs(5), || greetings() == HANDSHAKES);
        drop(strangers);
        eventually("they are gone", Duration::from_secs(20), || greetings() == 0);
        is_full
    });
    assert!(was_full, "the door was not full in any of {TRIES} tries");
}

#[test]
fn a_flood_of_strangers_leaves_memory_flat_and_a_copy_unharmed() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), 64 << 20, 1);
    let daemon = stage.daemon.as_ref().expect("it runs").id();
    let peak = || peak_resident_bytes(daemon).expect("it runs");
    let resident = || resident_bytes(daemon).expect("it runs");
    let copy = |name: &str| stage.cp().args(["--rate", "20MB", "file", &stage.url(name)]);
    copy("before").run().expect(code::OK);
    // How many are there at once, and so their memory, is chance. A full door is the upper bound.
    fill_the_door(&stage);
    let (before, resident_before) = (peak(), resident());
    let running = copy("meanwhile").start();
    flood(stage.address, strangers());
    running.wait().expect(code::OK);
    let grown = peak().saturating_sub(before);
    assert!(grown < FLAT_BYTES, "{grown} bytes more at the peak after {} strangers", strangers());
    let kept = resident().saturating_sub(resident_before);
    assert!(kept < FLAT_BYTES, "{kept} bytes more are kept after {} strangers", strangers());
    assert_same(&stage.at("file"), &stage.at("offered/meanwhile"), Facets::PLAIN);
}

/// Two copies differ by some pages; lingering connections of some hundred bytes would be megabytes.
const FLAT_BYTES: u64 = 4 << 20;

#[test]
fn a_daemon_whose_descriptors_strangers_have_waits_for_some_without_spinning() {
    needs!(Haul, Root);
    const DESCRIPTORS: usize = 64;
    /// Silent strangers may stay for 10 s.
    const WATCHED: Duration = Duration::from_secs(3);
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), 3 << 20, 1);
    let daemon = stage.daemon.as_ref().expect("it runs").id();
    limit_descriptors(daemon, DESCRIPTORS as u64);
    let open = || {
        let numbers = fs::read_dir(format!("/proc/{daemon}/fd")).expect("root may look").flatten();
        let number = |name: OsString| name.to_str().and_then(|name| name.parse().ok()).unwrap_or(DESCRIPTORS);
        numbers.filter(|entry| number(entry.file_name()) < DESCRIPTORS).count()
    };
    let connect = |_| connect_from(Ipv4Addr::new(127, 0, 0, 2), stage.address);
    let strangers: Vec<TcpStream> = (0..2 * DESCRIPTORS).map(connect).collect();
    eventually("they have all descriptors", Duration::from_secs(5), || open() == DESCRIPTORS);
    let before = processor_time(daemon);
    // The kernel keeps reporting connections that the daemon cannot accept.
    assert!(!settle(WATCHED, || open() < DESCRIPTORS), "they have left, and nothing is shown");
    let used = processor_time(daemon) - before;
    assert!(used < WATCHED / 10, "{used:?} of {WATCHED:?}");
    drop(strangers);
    stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK);
    stage.cp().args([&stage.url("file"), "back"]).run().expect(code::OK);
    assert_same(&stage.at("file"), &stage.at("back"), Facets::PLAIN);
    assert!(!stage.log().contains("panicked"), "{}", stage.log());
}

fn limit_descriptors(pid: u32, most: u64) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, limit).expect("root may");
}

/// User and kernel time of all threads (proc_pid_stat(5): fields 14 and 15).
fn processor_time(pid: u32) -> Duration {
    /// Clock ticks per second on all our architectures.
    const TICKS_PER_S: u32 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u32>().expect("a number"));
    Duration::from_secs(1) * ticks.sum::<u32>() / TICKS_PER_S
}

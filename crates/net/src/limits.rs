//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// The most plaintext of one TLS record (RFC 8446, 5.1).
pub const RECORD_PLAIN_BYTES: usize = 16_384;
/// A record adds header 5, content type 1, tag 16.
pub const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// The accepted ciphertext of one record: 2^14 + 256 (RFC 8446, 5.2).
pub const RECORD_CIPHER_BYTES: usize = RECORD_PLAIN_BYTES + 256;
/// Records in one write(2): 16 x 16 KiB are a lane's block of 256 KiB, one more its headers.
pub const RECORDS_PER_WRITE: usize = 17;
/// One read(2): a peer's whole write (17 x 16,406 = 278,902 bytes) and the start of the next.
pub const READ_BYTES: usize = (RECORDS_PER_WRITE + 1) * (RECORD_PLAIN_BYTES + RECORD_OVERHEAD_BYTES);
/// One read(2) until the hello, which fits into a record.
pub const FIRST_READ_BYTES: usize = 5 + RECORD_CIPHER_BYTES;
/// New keys of a peer; each [`BYTES_FOR_A_NEW_KEY`] permit one more. One costs us as much as opening 16 KiB, the peer 27
/// bytes. RFC 8446, 4.6.3 has no bound.
pub const NEW_KEYS_AT_ONCE: u64 = 64;
/// A peer's data for each further key; ours changes once in 128 GiB. Spliced data (`haul bench`) does not count:
/// [`NEW_KEYS_AT_ONCE`] suffice for 8 TiB.
pub const BYTES_FOR_A_NEW_KEY: u64 = 1 << 20;
/// AES-GCM is safe up to 2^24.5 full records under one key (RFC 8446, 5.5); 2^23 (128 GiB) leaves room.
pub const RECORDS_PER_KEY: u64 = 1 << 23;
/// Padding at once: two round trips of slow start, 10 + 20 segments of 1448 bytes, are 43 kB.
pub const PADDING_BYTES_MAX: usize = 64 * 1024;
/// A first handshake message: 0.4 KiB, or 1.6 KiB with a post-quantum key.
pub const HELLO_BYTES_MAX: usize = 2 * 1024;
/// Unread input of a handshake: rustls' bound on a message.
pub const HANDSHAKE_INPUT_BYTES: usize = 64 * 1024;
/// One read(2) of a handshake. A flight with raw keys is below 2 KiB.
pub const HANDSHAKE_READ_BYTES: usize = 16 * 1024;

/// Handshakes in one lobby, each a waiting thread of about 100 KiB: 512 x 100 KiB = 50 MiB. As many displaced ones may be
/// ending.
pub const MAX_HANDSHAKES: usize = 512;
/// Handshakes from one source: a quarter, so no stranger fills the room. A peer dials more lanes in groups.
pub const MAX_HANDSHAKES_PER_SOURCE: usize = 128;
/// A guest of this age makes no room for its own source, or one with as many guests. A handshake takes one round trip, 600
/// ms by satellite, so a stranger with up to 128 connections a second keeps nobody out. With ten times as many it shuts out
/// nine tenths of others from its own address; the tenth that enters completes its handshake.
pub const YOUNG: Duration = Duration::from_secs(1);
/// From a connection's first byte to the end of its hello.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// The same for an often refused source.
pub const BARRED_DEADLINE: Duration = Duration::from_secs(2);
/// Handshakes and refusals in a second of such a source (elsewhere 128): enough to leave some for the right key.
pub const MAX_HANDSHAKES_BARRED: usize = 32;
/// The charge for one refused key, see `door/penalty.rs`.
pub const REFUSED_KEY: Duration = Duration::from_secs(5);
/// Connections that wait: net.core.somaxconn is 4096 since Linux 5.4 (listen(2)). In a flood a SYN comes again after a
/// second; a door accepts some thousands a second.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Waits after an error such as "too many open files".
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Networks of a policy table: 4,096 x about 200 bytes are below 1 MiB.
pub const MAX_PREFIXES: usize = 4096;

/// Time before the next candidate, too, is tried (RFC 8305 recommends 250 ms and allows 100 ms to 2 s).
pub const DIAL_STAGGER: Duration = Duration::from_millis(150);
/// Candidates tried in one dial.
pub const MAX_DIAL_CANDIDATES: usize = 32;
/// Source ports tried by one dial, of up to 256 lanes. A refusal takes microseconds.
pub const MAX_SOURCE_PORTS_TRIED: usize = 512;

/// A far lane's unsent bytes: two writes. With more, a job's last chunks would wait in a slow lane.
pub const UNSENT_BYTES_MAX: u32 = 512 * 1024;
/// A connection unacknowledged so long ends; a lane gives its work back.
pub const USER_TIMEOUT_MS: u32 = 30_000;

/// The longest pause between attempts to send a segment (RFC 6298, 2.5; Linux 6.15). Else a connection without arrivals for
/// 20 s would try again only after 25 s, or end.
pub const RTO_MAX: Duration = Duration::from_secs(4);
/// Silence before the first keepalive probe.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Between keepalive probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A Unix pair's buffer: a few blocks of 256 KiB, if granted.
pub const PAIR_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Examined network devices: a person reads about a few of a container host's thousands.
pub const MAX_DEVICES: usize = 32;
/// Interrupt lines of one device: one for each queue and processor.
pub const MAX_INTERRUPTS: usize = 1_024;
/// Twice the processors of the largest configuration of Linux on x86.
pub const MAX_PROCESSORS: usize = 16_384;
/// The file of saved settings: 18 settings of some 80 bytes are 1.4 KiB.
pub const MAX_KEPT_BYTES: u64 = 64 * 1024;

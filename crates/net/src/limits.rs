//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// Plaintext of one TLS record, at most (RFC 8446, 5.1).
pub const RECORD_PLAIN_BYTES: usize = 16_384;
/// A record adds: header 5, content type 1, tag 16.
pub const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// Ciphertext of one record that we accept: 2^14 + 256 (RFC 8446, 5.2).
pub const RECORD_CIPHER_BYTES: usize = RECORD_PLAIN_BYTES + 256;
/// Records sealed before one write(2). 16 x 16 KiB are the 256 KiB block of a lane. One more record holds its
/// headers.
pub const RECORDS_PER_WRITE: usize = 17;
/// Bytes asked of one read(2): a peer's whole write (17 x 16,406 = 278,902 bytes) and the start of the next.
pub const READ_BYTES: usize = (RECORDS_PER_WRITE + 1) * (RECORD_PLAIN_BYTES + RECORD_OVERHEAD_BYTES);
/// Bytes of a read(2), and of its buffer, until the peer has said hello: one record, which holds any hello.
pub const FIRST_READ_BYTES: usize = 5 + RECORD_CIPHER_BYTES;
/// New keys that a peer may announce at any time; each [`BYTES_FOR_A_NEW_KEY`] of its data permit one more. A new key
/// costs us as much as opening a record of 16 KiB, and the peer 27 bytes. RFC 8446, 4.6.3 has no bound.
pub const NEW_KEYS_AT_ONCE: u64 = 64;
/// Data for each further key of a peer. We change ours once in 128 GiB. Data that the kernel opened and that was
/// spliced (`haul bench`) is not counted: there [`NEW_KEYS_AT_ONCE`] are enough for 8 TiB.
pub const BYTES_FOR_A_NEW_KEY: u64 = 1 << 20;
/// Records under one key before we change it. AES-GCM is safe up to 2^24.5 full records (RFC 8446, 5.5). 2^23, that
/// is 128 GiB, leaves room.
pub const RECORDS_PER_KEY: u64 = 1 << 23;
/// Padding sent at once. It covers the first two round trips of slow start: 10 + 20 segments of 1448 bytes are 43 kB.
pub const PADDING_BYTES_MAX: usize = 64 * 1024;
/// The first message of a handshake without padding: 0.4 KiB, or 1.6 KiB with a post-quantum key.
pub const HELLO_BYTES_MAX: usize = 2 * 1024;
/// Unread input of a handshake: rustls' own bound on a message.
pub const HANDSHAKE_INPUT_BYTES: usize = 64 * 1024;
/// One read(2) during the handshake. A flight with raw keys is below 2 KiB.
pub const HANDSHAKE_READ_BYTES: usize = 16 * 1024;

/// Handshakes at once in one lobby. Each is a thread that mostly waits, about 100 KiB: 512 x 100 KiB = 50 MiB. As
/// many again may be ending, because they had to make room.
pub const MAX_HANDSHAKES: usize = 512;
/// Handshakes at once from one source address: a quarter, so that one stranger cannot fill the room. A peer with more
/// lanes dials them in groups.
pub const MAX_HANDSHAKES_PER_SOURCE: usize = 128;
/// A guest younger than this makes no room for another of its own source, or of a source with as many guests. A
/// handshake takes one round trip, 600 ms by satellite. So a stranger with up to 128 connections a second keeps nobody
/// out. One with ten times as many shuts out nine tenths of the other callers from its own address; the tenth that
/// enters completes its handshake.
pub const YOUNG: Duration = Duration::from_secs(1);
/// From the first byte of a connection to the end of its hello, in all.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// The same for a source where key after key was refused, so that its silent guests are gone soon.
pub const BARRED_DEADLINE: Duration = Duration::from_secs(2);
/// Handshakes at once from such a source, and refused keys in a second (elsewhere 128). With fewer, a stranger could
/// easily take them all from somebody with the right key.
pub const MAX_HANDSHAKES_BARRED: usize = 32;
/// The charge of a source for one refused key, see `door/penalty.rs`.
pub const REFUSED_KEY: Duration = Duration::from_secs(5);
/// Connections that may wait in the kernel to be accepted: at most net.core.somaxconn (4096 since Linux 5.4,
/// listen(2)). When a flood of strangers fills the queue, a peer's SYN is dropped and sent again after a second. A door
/// accepts some thousands a second.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Pause after an accept error such as "too many open files": we wait for room instead of spinning.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Networks of a policy table: 4,096 x about 200 bytes are below 1 MiB.
pub const MAX_PREFIXES: usize = 4096;

/// Time for one candidate before the next is tried, too (RFC 8305 recommends 250 ms and allows 100 ms to 2 s).
pub const DIAL_STAGGER: Duration = Duration::from_millis(150);
/// Candidates tried in one dial.
pub const MAX_DIAL_CANDIDATES: usize = 32;
/// Source ports that one dial tries, where only some may be used. A job has at most 256 lanes, and a refusal takes the
/// kernel microseconds.
pub const MAX_SOURCE_PORTS_TRIED: usize = 512;

/// Unsent bytes in the send buffer of a lane on a far path: two writes. With more, a job's last chunks would wait in a
/// slow lane while others are idle.
pub const UNSENT_BYTES_MAX: u32 = 512 * 1024;
/// If sent bytes stay without an acknowledgement for this long, the connection ends. A lane then gives its work back.
pub const USER_TIMEOUT_MS: u32 = 30_000;

/// The longest pause between two attempts of the kernel to get a segment through (RFC 6298, 2.5), settable from Linux
/// 6.15 on. Otherwise a connection of which nothing arrived for 20 s would try again only after 25 s, or be ended
/// before.
pub const RTO_MAX: Duration = Duration::from_secs(4);
/// Silence before the first keepalive probe.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Between keepalive probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Buffer of a Unix socket pair: room for a few blocks of 256 KiB. The kernel may grant less.
pub const PAIR_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Network devices that are examined. A host of containers may have thousands, and a person reads about a few.
pub const MAX_DEVICES: usize = 32;
/// Interrupt lines of one device. Cards have one for each queue and processor.
pub const MAX_INTERRUPTS: usize = 1_024;
/// Processors in a list: twice what the largest configuration of Linux on x86 has.
pub const MAX_PROCESSORS: usize = 16_384;
/// The file of saved settings: 18 settings of some 80 bytes are 1.4 KiB.
pub const MAX_KEPT_BYTES: u64 = 64 * 1024;

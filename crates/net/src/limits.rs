//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// Plaintext of one TLS record, at most (RFC 8446, 5.1).
pub const RECORD_PLAIN_BYTES: usize = 16_384;
/// What one record adds: header 5, content type 1, tag 16.
pub const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// Ciphertext of one record that we accept: 2^14 + 256 (RFC 8446, 5.2).
pub const RECORD_CIPHER_BYTES: usize = RECORD_PLAIN_BYTES + 256;
/// Records sealed before one write(2): 16 x 16 KiB is the 256 KiB block of a lane, one more holds its headers.
pub const RECORDS_PER_WRITE: usize = 17;
/// Bytes asked of one read(2): a peer's whole write (17 x 16,406 = 278,902 bytes) and the start of the next.
pub const READ_BYTES: usize = (RECORDS_PER_WRITE + 1) * (RECORD_PLAIN_BYTES + RECORD_OVERHEAD_BYTES);
/// Bytes asked of one read(2), and kept, as long as nobody has judged what the peer wants: one record, which holds any hello.
pub const FIRST_READ_BYTES: usize = 5 + RECORD_CIPHER_BYTES;
/// New keys that a peer may have at any time, and one more for each [`BYTES_FOR_A_NEW_KEY`] of its data: making one costs as much as opening a
/// record of 16 KiB, and announcing it 27 bytes. RFC 8446, 4.6.3 has no bound.
pub const NEW_KEYS_AT_ONCE: u64 = 64;
/// Of data, for each further key of a peer. Ours has one in 128 GiB. What the kernel opened and was spliced (`haul bench`) is not counted: there the
/// keys at once are enough for 8 TiB.
pub const BYTES_FOR_A_NEW_KEY: u64 = 1 << 20;
/// Records under one key before we change it. AES-GCM stays far below its bounds up to 2^24.5 full records (RFC 8446,
/// 5.5); half of 2^24, that is 128 GiB, leaves room.
pub const RECORDS_PER_KEY: u64 = 1 << 23;
/// Padding sent at once: what slow start lets a new connection send in its first round trips, 10 + 20 segments of 1448 bytes are 43 kB.
pub const PADDING_BYTES_MAX: usize = 64 * 1024;
/// The first message of a handshake without padding: 0.4 KiB, or 1.6 KiB with a key that quantum computers would not find.
pub const HELLO_BYTES_MAX: usize = 2 * 1024;
/// Unread input that a handshake may pile up, rustls' own bound on a handshake message.
pub const HANDSHAKE_INPUT_BYTES: usize = 64 * 1024;
/// One read(2) during the handshake. A whole flight with raw keys is below 2 KiB.
pub const HANDSHAKE_READ_BYTES: usize = 16 * 1024;

/// Handshakes at once at one door. Each is a thread that mostly waits, about 100 KiB: 512 x 100 KiB = 50 MiB. Where others have to make room
/// there may be as many again that are just ending.
pub const MAX_HANDSHAKES: usize = 512;
/// Handshakes at once from one source address: a quarter, so that one stranger cannot fill the door. A peer with more
/// lanes than this dials them in groups.
pub const MAX_HANDSHAKES_PER_SOURCE: usize = 128;
/// Nobody makes room before for another of its own source, or of one that has as many. A handshake takes a round trip from its acceptance
/// on, 600 ms by satellite. So a stranger who opens no more than 128 connections a second keeps nobody out, and one who opens ten times
/// as many leaves a tenth of the knocks from its own address: those that get in are through.
pub const YOUNG: Duration = Duration::from_secs(1);
/// From the first byte of a connection to the end of its hello, in all.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// The same, where key after key was refused: who is silent there is gone soon.
pub const BARRED_DEADLINE: Duration = Duration::from_secs(2);
/// Handshakes at once from there, and refused keys a second (elsewhere 128). With fewer, less would do to take them all from who has the
/// right key.
pub const MAX_HANDSHAKES_BARRED: usize = 32;
/// What a source is charged for one key that is refused, see `door/penalty.rs`.
pub const REFUSED_KEY: Duration = Duration::from_secs(5);
/// Connections that may wait in the kernel to be accepted; it grants net.core.somaxconn at most (4096 since Linux 5.4, listen(2)). Where a
/// flood of strangers fills the queue, a peer's SYN finds no room and comes again after a second. A door lets in some thousands a second.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Pause after an accept error such as "too many open files", so that we wait for room instead of spinning.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Networks of a policy table: 4,096 x about 200 bytes are below 1 MiB.
pub const MAX_PREFIXES: usize = 4096;

/// Time given to one candidate before the next is tried beside it (RFC 8305 recommends 250 ms and allows 100 ms to 2 s).
pub const DIAL_STAGGER: Duration = Duration::from_millis(150);
/// Candidates tried in one dial.
pub const MAX_DIAL_CANDIDATES: usize = 32;

/// What a lane of a far path may have in its send buffer beyond what is under way: two writes. With more, the last chunks of a job
/// would wait in the buffer of a slow lane while others have nothing to do.
pub const UNSENT_BYTES_MAX: u32 = 512 * 1024;
/// Sent bytes without an acknowledgement for this long end the connection; a lane then gives its work back.
pub const USER_TIMEOUT_MS: u32 = 30_000;
/// Silence before the first keepalive probe.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Between keepalive probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Buffer of a Unix socket pair: room for a few blocks of 256 KiB; the kernel may grant less.
pub const PAIR_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Network devices that are looked at: a host of containers may have thousands, and a person reads about a few.
pub const MAX_DEVICES: usize = 32;
/// Interrupt lines of one device: cards have one for each queue and processor.
pub const MAX_INTERRUPTS: usize = 1_024;
/// Processors in a list: twice what the largest configuration of Linux on x86 has.
pub const MAX_PROCESSORS: usize = 16_384;
/// The file of saved settings: 17 settings of some 80 bytes are 1.4 KiB.
pub const MAX_KEPT_BYTES: u64 = 64 * 1024;

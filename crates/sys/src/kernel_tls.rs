//! Makes the kernel seal and open TLS 1.3 records, for sendfile and splice on encrypted connections.
//!
//! One socket option attaches the "upper layer protocol", another gives a direction its keys (linux/tls.h;
//! Documentation/networking/tls.rst of the kernel): the kernel then seals all writes, or opens all reads. Control messages
//! tell alerts and key updates.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The keys of a direction, and the kernel's first record.
pub struct Keys<'a> {
    /// The cipher.
    pub cipher: KernelCipher,
    /// The key, as long as the cipher wants.
    pub key: &'a [u8],
    /// The IV of the direction, as TLS 1.3 derives it.
    pub iv: [u8; 12],
    /// The number of the next record under this key.
    pub next_record: u64,
}

/// The ciphers that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCipher {
    /// AES-128-GCM
    Aes128Gcm,
    /// AES-256-GCM
    Aes256Gcm,
    /// ChaCha20-Poly1305, since Linux 5.11.
    Chacha20Poly1305,
}

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The data that this end writes.
    Send,
    /// The data that this end reads.
    Receive,
}

/// Whether the kernel has TLS, or this process may load it; else `ENOENT`.
pub fn available() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match attach(socket.as_fd()) {
        // The kernel first looks for the protocol.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
        result => result,
    }
}

/// Attaches the protocol to a connected TCP socket, once or more. Nothing changes before a direction has keys. `ENOENT`: it
/// is missing, and this process cannot load it.
pub fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls") {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result,
    }
}

/// Gives a direction its first keys, or others ([`can_change_keys`]). `EINVAL` for a wrong length; `ENOENT` for a missing
/// cipher; `EBUSY` if keys cannot change.
pub fn set_keys(socket: BorrowedFd<'_>, direction: Direction, keys: &Keys<'_>) -> io::Result<()> {
    let mut told = crypto_info(keys).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let result = set_option(socket, libc::SOL_TLS, option(direction), &told);
    wipe(&mut told);
    result
}

/// Whether a direction may get other keys (Linux 6.14). Offers an invalid one, of which such a kernel rejects the key
/// (`EINVAL`), another the change (`EBUSY`).
pub fn can_change_keys(socket: BorrowedFd<'_>, direction: Direction) -> bool {
    let no_version = [0; size_of::<libc::tls_crypto_info>()];
    let refused = set_option(socket, libc::SOL_TLS, option(direction), &no_version);
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// The next record of a direction, counted under its keys.
pub fn next_record(socket: BorrowedFd<'_>, direction: Direction, cipher: KernelCipher) -> io::Result<u64> {
    let (_, key_bytes, salt_bytes) = cipher_of(cipher);
    // The kernel fills the structure of `set_keys`, with the key, too.
    let mut told = vec![0u8; HEAD_BYTES + IV_BYTES + key_bytes + NUMBER_BYTES];
    debug_assert!(salt_bytes < IV_BYTES);
    let mut length = libc::socklen_t::try_from(told.len()).expect("an option is small");
    // SAFETY: the kernel writes at most `length` bytes, the size of `told`. Both live through the call, and the
    // descriptor is open.
    let result = unsafe {
        let value = told.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_TLS, option(direction), value, &raw mut length)
    };
    let outcome = if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        let number = told.last_chunk::<NUMBER_BYTES>().expect("it ends with the number");
        Ok(u64::from_be_bytes(*number))
    };
    wipe(&mut told);
    outcome
}

/// Sends a sealed control record, after earlier data.
pub fn send_record(socket: BorrowedFd<'_>, content_type: u8, content: &[u8]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
    let mut control = Control::default();
    // SAFETY: all zeros are a valid message: no address, no parts.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = control_bytes() as _;
    // SAFETY: `control` is aligned for a header and has room for a header and one byte. So the first header and its
    // data lie within `control`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(header).write(content_type);
    }
    loop {
        // SAFETY: the kernel only reads the message, its one part and its control data, and all live through the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) if sent == content.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Waits for opened bytes of one content type. Returns how many, and the type; `None` at the end. With `peek` they stay.
/// `EBADMSG`, finally, for a record that does not open.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], peek: bool) -> io::Result<(usize, Option<u8>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control::default();
    // SAFETY: all zeros are a valid message: no address, no parts.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = control_bytes() as _;
    let flags = if peek { libc::MSG_PEEK } else { 0 };
    // SAFETY: the kernel writes at most into `buffer` and `control`, whose lengths it was told; all live through the
    // call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has written the length of the control data. A header within this length is whole, and its data
    // follows it.
    let content_type = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_type =
            !header.is_null() && (*header).cmsg_level == libc::SOL_TLS && (*header).cmsg_type == TLS_GET_RECORD_TYPE;
        is_type.then(|| libc::CMSG_DATA(header).read())
    };
    Ok((received, content_type))
}

/// From linux/tls.h.
const TLS_GET_RECORD_TYPE: libc::c_int = 2;

/// Room for a control message of one byte.
#[repr(C)]
#[derive(Default)]
struct Control {
    words: [usize; 4],
}

fn control_bytes() -> usize {
    // SAFETY: computes with its argument, and looks at no memory.
    let bytes = unsafe { libc::CMSG_SPACE(1) } as usize;
    assert!(bytes <= size_of::<Control>(), "a header and a word");
    bytes
}

fn option(direction: Direction) -> libc::c_int {
    match direction {
        Direction::Send => libc::TLS_TX,
        Direction::Receive => libc::TLS_RX,
    }
}

/// The kernel's number of a cipher, the bytes of its key, and of the IV's salt (GCM only).
fn cipher_of(cipher: KernelCipher) -> (u16, usize, usize) {
    match cipher {
        KernelCipher::Aes128Gcm => (libc::TLS_CIPHER_AES_GCM_128, 16, 4),
        KernelCipher::Aes256Gcm => (libc::TLS_CIPHER_AES_GCM_256, 32, 4),
        KernelCipher::Chacha20Poly1305 => (libc::TLS_CIPHER_CHACHA20_POLY1305, 32, 0),
    }
}

/// `struct tls12_crypto_info_*`: version, cipher; as bytes iv, key, salt, record number.
fn crypto_info(keys: &Keys<'_>) -> Option<Vec<u8>> {
    let (cipher, key_bytes, salt_bytes) = cipher_of(keys.cipher);
    if keys.key.len() != key_bytes {
        return None;
    }
    let (salt, iv) = keys.iv.split_at(salt_bytes);
    let version: u16 = libc::TLS_1_3_VERSION;
    let mut told = Vec::with_capacity(HEAD_BYTES + IV_BYTES + key_bytes + NUMBER_BYTES);
    told.extend(version.to_ne_bytes());
    told.extend(cipher.to_ne_bytes());
    told.extend(iv);
    told.extend(keys.key);
    told.extend(salt);
    told.extend(keys.next_record.to_be_bytes());
    Some(told)
}

const HEAD_BYTES: usize = 4;
const IV_BYTES: usize = 12;
const NUMBER_BYTES: usize = 8;

fn wipe(told: &mut [u8]) {
    told.fill(0);
    std::hint::black_box(told);
}

fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).expect("an option is small");
    // SAFETY: the kernel reads `length` bytes, which live through the call; the descriptor is borrowed and so open.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const KEY: [u8; 32] = [7; 32];
    const ALERT: u8 = 21;
    const DATA: u8 = 23;

    fn keys(cipher: KernelCipher, key: &[u8]) -> Keys<'_> {
        Keys { cipher, key, iv: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], next_record: 0x0102 }
    }

    #[test]
    fn keys_are_laid_out_as_the_kernel_reads_them() {
        let told = crypto_info(&keys(KernelCipher::Aes128Gcm, &KEY[..16])).unwrap();
        assert_eq!(told.len(), size_of::<libc::tls12_crypto_info_aes_gcm_128>());
        assert_eq!(told[4..12], [5, 6, 7, 8, 9, 10, 11, 12], "iv");
        assert_eq!(told[12..28], KEY[..16]);
        assert_eq!(told[28..], [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 1, 2], "salt and record number");
        let told = crypto_info(&keys(KernelCipher::Aes256Gcm, &KEY)).unwrap();
        assert_eq!(told.len(), size_of::<libc::tls12_crypto_info_aes_gcm_256>());
        let told = crypto_info(&keys(KernelCipher::Chacha20Poly1305, &KEY)).unwrap();
        assert_eq!(told.len(), size_of::<libc::tls12_crypto_info_chacha20_poly1305>());
        assert!(crypto_info(&keys(KernelCipher::Aes256Gcm, &KEY[..16])).is_none());
    }

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn in_kernel_tls_what_one_end_writes_the_other_reads_or_the_kernel_says_why_not() {
        if let Err(error) = available() {
            let (near, _far) = connected();
            assert_eq!(attach(near.as_fd()).unwrap_err().raw_os_error(), error.raw_os_error(), "the probe is right");
            assert!(std::env::var_os("HAUL_TEST_KERNEL_TLS").is_none(), "it was promised: {error}");
            eprintln!("skipped: no kernel TLS here: {error}");
            return;
        }
        for cipher in [KernelCipher::Aes128Gcm, KernelCipher::Aes256Gcm, KernelCipher::Chacha20Poly1305] {
            let (mut near, mut far) = connected();
            let keys = keys(cipher, &KEY[..cipher_of(cipher).1]);
            for (socket, direction) in [(&near, Direction::Send), (&far, Direction::Receive)] {
                attach(socket.as_fd()).unwrap();
                attach(socket.as_fd()).unwrap();
                set_keys(socket.as_fd(), direction, &keys).unwrap();
            }
            near.write_all(b"sealed").unwrap();
            let mut got = [0; 6];
            far.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"sealed");
            send_record(near.as_fd(), ALERT, &[1, 0]).unwrap();
            assert_eq!(
                next_record(near.as_fd(), Direction::Send, cipher).unwrap(),
                0x0104,
                "{cipher:?}: data and an alert"
            );
            assert_eq!(far.read(&mut got).unwrap_err().raw_os_error(), Some(libc::EIO), "{cipher:?}");
            near.write_all(b"data").unwrap();
            send_record(near.as_fd(), ALERT, &[2, 40]).unwrap();
            drop(near.shutdown(std::net::Shutdown::Write));
            let mut kinds = Vec::new();
            loop {
                match receive(far.as_fd(), &mut got, false).unwrap() {
                    (0, None) => break,
                    (bytes, kind) => kinds.push((kind, got[..bytes].to_vec())),
                }
            }
            let both = [(Some(DATA), b"data".to_vec()), (Some(ALERT), vec![2, 40])];
            assert!(kinds.ends_with(&both), "{cipher:?}: {kinds:?}");
            let can_change = can_change_keys(near.as_fd(), Direction::Send);
            let changed = set_keys(near.as_fd(), Direction::Send, &keys);
            assert_eq!(can_change, changed.is_ok(), "{cipher:?}: {changed:?}");
        }
    }
}

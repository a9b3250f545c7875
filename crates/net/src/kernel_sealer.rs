//! The sending half of a TLS connection whose records the kernel makes, of bytes and of pages of files.
//!
//! ```text
//! Sealer --key, number of the next record--> kernel      write, sendfile, splice --> socket, sealed there
//! ```
//! The kernel does not watch how many records (of at most 16 KiB) it seals under one key: this changes the key in time.
//! Before Linux 6.14 it cannot: the connection ends, and its work goes elsewhere.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use haul_sys::kernel_tls::{self, Direction, KernelCipher, Keys};
use rustls::ConnectionTrafficSecrets;

use crate::control::{CLOSE_NOTIFY, KEY_UPDATE, KeySchedule, TYPE_ALERT, TYPE_HANDSHAKE};
use crate::transport::Link;

pub(crate) struct KernelSealer {
    schedule: Arc<KeySchedule>,
    cipher: KernelCipher,
    records_per_key: u64,
    /// An upper bound; at the limit the kernel is asked.
    records_max: u64,
}

/// A due key that this kernel cannot change: the cause within an [`io::Error`].
#[derive(Debug)]
pub struct KeyUsedUp;

impl KeyUsedUp {
    /// Whether a write failed for this.
    pub fn caused(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<KeyUsedUp>())
    }
}

impl fmt::Display for KeyUsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of this connection has to change, and this kernel cannot change it (Linux 6.14 can)")
    }
}

impl std::error::Error for KeyUsedUp {}

/// Whether this kernel seals TLS records, or why not.
pub fn seals_here() -> io::Result<()> {
    kernel_tls::available().map_err(|error| not_there(&error))
}

pub(crate) fn not_there(error: &io::Error) -> io::Error {
    match error.kind() {
        // The kernel loads the module by itself only for administrators of the network.
        io::ErrorKind::NotFound => refused("the TLS of this kernel is missing or not loaded; as root: modprobe tls"),
        _ => refused(&format!("the kernel does not do TLS on this connection: {error}")),
    }
}

pub(crate) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why.to_owned())
}

impl KernelSealer {
    /// Gives the kernel the key. `Unsupported`: it refused, and nothing has changed.
    pub(crate) fn begin(
        link: &Link,
        next_record: u64,
        secrets: &ConnectionTrafficSecrets,
        schedule: Arc<KeySchedule>,
        records_per_key: u64,
    ) -> io::Result<KernelSealer> {
        let socket = link.tcp().ok_or_else(|| refused("the kernel does TLS on TCP connections only"))?.as_fd();
        kernel_tls::attach(socket).map_err(|error| not_there(&error))?;
        let keys = keys(next_record, secrets)?;
        kernel_tls::set_keys(socket, Direction::Send, &keys)
            .map_err(|error| refused(&format!("the kernel does not take the key of this cipher: {error}")))?;
        Ok(KernelSealer { schedule, cipher: keys.cipher, records_per_key, records_max: next_record })
    }

    #[cfg(test)]
    pub(crate) fn change_keys_after_records(&mut self, records: u64) {
        self.records_per_key = records;
    }

    /// Call before `bytes` go to the socket in one call. Changes a due key, announced under the old one.
    pub(crate) fn prepare(&mut self, link: &Link, bytes: u64) -> io::Result<()> {
        // With TLS the kernel drops bytes after shutdown(2) (6.1, 7.2): the sender would await receipts.
        link.check_open()?;
        // Each page may become a record; first and last may be partial.
        let more = bytes / SMALLEST_PAGE_BYTES + 2;
        self.records_max = self.records_max.saturating_add(more);
        if self.records_max < self.records_per_key && !self.schedule.is_change_asked() {
            return Ok(());
        }
        let socket = link.tcp().ok_or(io::ErrorKind::NotConnected)?.as_fd();
        // Older kernels do not tell, for ChaCha20: the bound stands.
        if let Ok(made) = kernel_tls::next_record(socket, Direction::Send, self.cipher) {
            self.records_max = made.saturating_add(more);
        }
        if self.records_max < self.records_per_key && !self.schedule.is_change_asked() {
            return Ok(());
        }
        if !kernel_tls::can_change_keys(socket, Direction::Send) {
            return Err(io::Error::other(KeyUsedUp));
        }
        kernel_tls::send_record(socket, TYPE_HANDSHAKE, &KEY_UPDATE)?;
        let (next_record, secrets) = self.schedule.next_to_send()?;
        kernel_tls::set_keys(socket, Direction::Send, &keys(next_record, &secrets)?)?;
        self.records_max = more;
        Ok(())
    }

    pub(crate) fn write_vectored(&mut self, link: &Link, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.prepare(link, parts.iter().map(|part| part.len() as u64).sum())?;
        link.write_vectored(parts)
    }

    pub(crate) fn finish(&mut self, link: &Link) -> io::Result<()> {
        let socket = link.tcp().ok_or(io::ErrorKind::NotConnected)?;
        kernel_tls::send_record(socket.as_fd(), TYPE_ALERT, &CLOSE_NOTIFY)
    }
}

pub(crate) fn keys(next_record: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Keys<'_>> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (KernelCipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (KernelCipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (KernelCipher::Chacha20Poly1305, key, iv),
        _ => return Err(io::Error::other("unknown cipher")),
    };
    let iv = iv.as_ref().try_into().map_err(|_| io::Error::other("an IV of another length"))?;
    Ok(Keys { cipher, key: key.as_ref(), iv, next_record })
}

/// The smallest page of any architecture.
const SMALLEST_PAGE_BYTES: u64 = 4096;

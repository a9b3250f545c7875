//! Records of TLS without data: the end, alerts and new keys.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ConnectionTrafficSecrets;

use crate::limits;

/// Derives the next keys of a connection. rustls keeps the secrets.
pub(crate) trait NextSecrets: Send {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
}

/// The keys of both directions. The lock is taken once in 128 GiB, and held over no system call.
pub(crate) struct KeySchedule {
    secrets: Mutex<Box<dyn NextSecrets>>,
    /// The peer asked for our new key at the next write.
    change_asked: AtomicBool,
    /// The peer's new keys and bytes of data.
    new_keys: AtomicU64,
    data_bytes: AtomicU64,
}

impl KeySchedule {
    pub(crate) fn new(secrets: Box<dyn NextSecrets>) -> Arc<KeySchedule> {
        let (change_asked, new_keys, data_bytes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(KeySchedule { secrets: Mutex::new(secrets), change_asked, new_keys, data_bytes })
    }

    pub(crate) fn is_change_asked(&self) -> bool {
        self.change_asked.load(Ordering::Relaxed)
    }

    pub(crate) fn has_sent(&self, bytes: usize) {
        self.data_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn hear(&self, content_type: u8, content: &[u8]) -> io::Result<Heard> {
        match (content_type, content) {
            (TYPE_ALERT, [_, ALERT_CLOSE_NOTIFY]) => Ok(Heard::End),
            (TYPE_ALERT, [_, ALERT_ACCESS_DENIED]) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer does not admit our key"))
            }
            (TYPE_ALERT, [_, number]) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the peer ended the TLS connection with alert {number}"),
            )),
            (TYPE_HANDSHAKE, [HANDSHAKE_KEY_UPDATE, 0, 0, 1, request @ 0..=1]) => {
                let data_bytes = self.data_bytes.load(Ordering::Relaxed);
                let most = limits::NEW_KEYS_AT_ONCE.saturating_add(data_bytes / limits::BYTES_FOR_A_NEW_KEY);
                if self.new_keys.fetch_add(1, Ordering::Relaxed) >= most {
                    return Err(violation("one new key after another, with hardly any data"));
                }
                if *request != UPDATE_NOT_REQUESTED {
                    self.change_asked.store(true, Ordering::Relaxed);
                }
                let (next_record, secrets) = lock(&self.secrets).next_to_receive().map_err(io::Error::other)?;
                Ok(Heard::NewKey(next_record, secrets))
            }
            _ => Err(violation("a TLS message that has no place here")),
        }
    }

    /// The next key to send with; the caller announced it under the old one.
    pub(crate) fn next_to_send(&self) -> io::Result<(u64, ConnectionTrafficSecrets)> {
        self.change_asked.store(false, Ordering::Relaxed);
        lock(&self.secrets).next_to_send().map_err(io::Error::other)
    }
}

pub(crate) enum Heard {
    End,
    /// The records from this number on have this key.
    NewKey(u64, ConnectionTrafficSecrets),
}

pub(crate) fn violation(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("TLS: received {what}; the data was changed on its way or the peer is broken"),
    )
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a read without a proper end.
pub const BROKE_OFF: &str = "the connection broke off";

pub(crate) const TYPE_ALERT: u8 = 21;
pub(crate) const TYPE_HANDSHAKE: u8 = 22;
pub(crate) const TYPE_DATA: u8 = 23;
const ALERT_LEVEL_WARNING: u8 = 1;
const ALERT_CLOSE_NOTIFY: u8 = 0;
/// The proper end (RFC 8446, 6.1).
pub(crate) const CLOSE_NOTIFY: [u8; 2] = [ALERT_LEVEL_WARNING, ALERT_CLOSE_NOTIFY];
const ALERT_ACCESS_DENIED: u8 = 49;
const HANDSHAKE_KEY_UPDATE: u8 = 24;
const UPDATE_NOT_REQUESTED: u8 = 0;
/// The next record has the next key; the peer may keep its own (RFC 8446, 4.6.3).
pub(crate) const KEY_UPDATE: [u8; 5] = [HANDSHAKE_KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED];

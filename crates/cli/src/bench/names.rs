//! Names for text and JSON alike.

use std::os::unix::ffi::OsStrExt as _;

use haul_job::Cipher;
use haul_workbench::bench::{Request, Sink, Source};

use crate::text::printable::printable;

pub fn source(request: &Request) -> String {
    match &request.source {
        Source::Zero => "zero".to_owned(),
        Source::Memory => "memory".to_owned(),
        Source::File(path) => printable(path.as_os_str().as_bytes()),
    }
}

pub fn sink(request: &Request) -> String {
    match &request.sink {
        Sink::Discard => "discard".to_owned(),
        Sink::Memory => "memory".to_owned(),
        Sink::Directory(path) => printable(path.as_os_str().as_bytes()),
    }
}

pub fn by_whom(is_kernel: bool) -> &'static str {
    if is_kernel { "kernel" } else { "haul" }
}

pub fn cipher(request: &Request) -> &'static str {
    match request.cipher {
        None => "none",
        Some(Cipher::Aes128Gcm) => "aes128-gcm",
        Some(Cipher::Aes256Gcm) => "aes256-gcm",
        Some(Cipher::Chacha20Poly1305) => "chacha20",
    }
}

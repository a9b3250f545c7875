//! What a reply means that refuses something.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::codec::reply::Reply;

/// The error of a command that the server did not carry out.
pub(crate) fn refusal(reply: &Reply) -> io::Error {
    let text = reply.lines.concat().to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.windows(word.len()).any(|part| part == word.as_bytes()));
    let (kind, what) = match reply.code {
        421 => (ErrorKind::ResourceBusy, "the server ends the connection"),
        425 | 426 => (ErrorKind::ConnectionAborted, "the data connection was cut"),
        450 | 451 if says(&["no space", "disk full", "quota"]) => {
            (ErrorKind::StorageFull, "the server has no room left")
        }
        450 => (ErrorKind::ResourceBusy, "the server is busy with it"),
        452 | 552 => (ErrorKind::StorageFull, "the server has no room left"),
        430 | 530 | 532 => (ErrorKind::PermissionDenied, "the server wants another login"),
        500..=504 => (ErrorKind::Unsupported, "the server does not do that"),
        553 => (ErrorKind::PermissionDenied, "the server does not take a file of this name there"),
        550 if says(&["no space", "disk full", "quota"]) => (ErrorKind::StorageFull, "the server has no room left"),
        550 if says(&["permission", "denied", "not allowed", "not permitted"]) => {
            (ErrorKind::PermissionDenied, "the server does not allow it")
        }
        _ => (ErrorKind::Other, "the server does not do it"),
    };
    io::Error::new(kind, format!("{what} ({})", reply.shown()))
}

/// The error of a transfer that did not begin, or did not end well. Globus says 500 to all of them, and the reason in its text.
pub(crate) fn file_refusal(reply: &Reply) -> io::Error {
    let text = String::from_utf8_lossy(&reply.lines.join(&b'\n')).to_ascii_lowercase();
    let (kind, what) = match reply.code {
        _ if text.contains("no such file") => return missing(),
        _ if text.contains("permission denied") => (ErrorKind::PermissionDenied, "the server does not allow it"),
        _ if text.contains("no space left") || text.contains("quota") => {
            (ErrorKind::StorageFull, "the server has no room left")
        }
        // Not that the server cannot do such a thing at all.
        500..=504 => (ErrorKind::Other, "the server does not do it"),
        _ => return refusal(reply),
    };
    io::Error::new(kind, format!("{what} ({})", reply.shown()))
}

/// The server had no room, or did not allow it: to try again at once would be refused again.
pub(crate) fn is_lasting(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::PermissionDenied)
}

/// Makes the error of a path at which nothing stands. Most servers have one code (550) for all that may be wrong with a path.
pub(crate) fn missing() -> io::Error {
    Errno::NOENT.into()
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

//! What an error of the file system means to a reader.

use std::io;

use http::StatusCode;

/// Whether the kernel refused a link on the way. A kernel without `openat2` reports a link in a directory's place as no
/// directory.
pub(super) fn has_links(error: &io::Error) -> bool {
    error.raw_os_error() == Some(errno::LOOP) || error.kind() == io::ErrorKind::NotADirectory
}

pub(super) fn status_of(error: &io::Error) -> StatusCode {
    use errno::*;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename, _) => {
            StatusCode::NOT_FOUND
        }
        // A link on the way, a path that leads out, a FIFO, or missing rights.
        (io::ErrorKind::PermissionDenied, _) | (_, Some(LOOP | XDEV | NXIO)) => StatusCode::FORBIDDEN,
        (_, Some(MFILE | NFILE)) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Error numbers for which the standard library has no stable name, as on most architectures of Linux.
mod errno {
    pub(super) const NXIO: i32 = 6;
    pub(super) const XDEV: i32 = 18;
    pub(super) const NFILE: i32 = 23;
    pub(super) const MFILE: i32 = 24;
    pub(super) const LOOP: i32 = 40;
}

//! Maps an error of the file system to a status.

use std::io;

use http::StatusCode;

/// Without `openat2` a link in a directory's place is "not a directory".
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

/// Error numbers without a stable name in the standard library.
mod errno {
    pub(super) const NXIO: i32 = 6;
    pub(super) const XDEV: i32 = 18;
    pub(super) const NFILE: i32 = 23;
    pub(super) const MFILE: i32 = 24;
    pub(super) const LOOP: i32 = 40;
}

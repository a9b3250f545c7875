//! Reads the answers to requests that change something.

use std::io::{self, ErrorKind};

use http::{StatusCode, response};

/// Whether all succeeded: a 207 may hide a failure.
pub(crate) fn is_success(head: &response::Parts) -> bool {
    head.status.is_success() && head.status != StatusCode::MULTI_STATUS
}

/// The error of a refused request.
pub(crate) fn refusal(head: &response::Parts) -> io::Error {
    let (kind, what) = match head.status {
        StatusCode::UNAUTHORIZED => (
            ErrorKind::PermissionDenied,
            "it wants a login: put one for this host into ~/.netrc, or a token into HAUL_TOKEN",
        ),
        StatusCode::FORBIDDEN => (ErrorKind::PermissionDenied, "the server does not let us change it"),
        StatusCode::NOT_FOUND | StatusCode::GONE => (ErrorKind::NotFound, "the server has no such entry"),
        StatusCode::CONFLICT => (ErrorKind::NotFound, "the directory above it is not there"),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            (ErrorKind::Unsupported, "the server does not do that there")
        }
        StatusCode::PRECONDITION_FAILED => (ErrorKind::AlreadyExists, "something stands there by now"),
        StatusCode::PAYLOAD_TOO_LARGE => (ErrorKind::FileTooLarge, "it is larger than the server takes"),
        StatusCode::URI_TOO_LONG => (ErrorKind::InvalidInput, "its path is longer than the server takes"),
        StatusCode::LOCKED => (ErrorKind::ResourceBusy, "somebody has locked it at the server"),
        StatusCode::INSUFFICIENT_STORAGE => (ErrorKind::StorageFull, "the server has no room left"),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            (ErrorKind::ResourceBusy, "the server is busy")
        }
        status if status.is_redirection() => (ErrorKind::InvalidData, "the server leads elsewhere too late"),
        _ => (ErrorKind::InvalidData, "the server does not do it"),
    };
    io::Error::new(kind, format!("{what} ({})", head.status))
}

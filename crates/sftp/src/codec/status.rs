//! The status of a request (draft-ietf-secsh-filexfer-02, section 7).

use std::io;

use rustix::io::Errno;

use super::bytes::Input;
use super::malformed::Malformed;
use crate::limits::MAX_STATUS_TEXT_BYTES;

/// The status of a request: a code, and words of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// See [`Status::OK`] and its like.
    pub code: u32,
    /// The server's words; may be empty.
    pub text: String,
}

impl Status {
    /// Success.
    pub const OK: u32 = 0;
    /// The end of a file or of a listing.
    pub const EOF: u32 = 1;
    /// There is no such file.
    pub const NO_SUCH_FILE: u32 = 2;
    /// Not permitted.
    pub const PERMISSION_DENIED: u32 = 3;
    /// Any other failure. OpenSSH says so of a name that is taken, of a directory that is not empty, and of a full disk.
    pub const FAILURE: u32 = 4;
    /// The server does not have the request.
    pub const OP_UNSUPPORTED: u32 = 8;

    pub(crate) fn take(mut input: Input<'_>) -> Result<Self, Malformed> {
        let code = input.u32()?;
        // Servers of the first versions send neither words nor their language.
        let text = if input.is_empty() { &b""[..] } else { input.string()? };
        if !input.is_empty() {
            input.string()?;
        }
        input.end()?;
        let text = &text[..text.len().min(MAX_STATUS_TEXT_BYTES)];
        Ok(Self { code, text: haul_store::printable(text) })
    }

    /// The error that it means, as the kernel would give it where there is such an error.
    pub fn error(&self) -> io::Error {
        match self.code {
            Self::NO_SUCH_FILE => Errno::NOENT.into(),
            Self::PERMISSION_DENIED => Errno::ACCESS.into(),
            Self::OP_UNSUPPORTED => {
                io::Error::new(io::ErrorKind::Unsupported, "the server does not have this operation")
            }
            Self::EOF => io::Error::new(io::ErrorKind::UnexpectedEof, "the server says that it ends there"),
            code => io::Error::other(match self.text.as_str() {
                "" => format!("the server refuses it (status {code})"),
                text => format!("the server says: {text}"),
            }),
        }
    }

    /// Success, or the error.
    pub fn ok(&self) -> io::Result<()> {
        if self.code == Self::OK { Ok(()) } else { Err(self.error()) }
    }
}

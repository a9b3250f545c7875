//! Reasons to refuse a control frame.

use core::fmt;

/// Why a control frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecFault {
    /// Zero, or above [`crate::limits::MAX_CONTROL_FRAME_BYTES`].
    Length(u32),
    /// No message of this version.
    Message,
    /// Bytes left over.
    Trailing,
    /// Something above its limit.
    Limit(&'static str),
}

impl fmt::Display for CodecFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecFault::Length(length) => write!(f, "control frame of {length} bytes"),
            CodecFault::Message => f.write_str("unreadable control message"),
            CodecFault::Trailing => f.write_str("control message with bytes left over"),
            CodecFault::Limit(what) => write!(f, "control message with too much: {what}"),
        }
    }
}

impl core::error::Error for CodecFault {}

//! The reasons to refuse a control frame.

use core::fmt;

/// The reason why a control frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecFault {
    /// The announced length is zero or above [`crate::limits::MAX_CONTROL_FRAME_BYTES`].
    Length(u32),
    /// The bytes are no message of this version.
    Message,
    /// Bytes are left over behind the message.
    Trailing,
    /// A collection or text in the message is above its limit.
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

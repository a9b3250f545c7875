//! Control frames: a 32-bit big-endian length, then one postcard-encoded message.

use alloc::vec::Vec;
use core::fmt;

use crate::control::Control;
use crate::limits::MAX_CONTROL_FRAME_BYTES;

/// Bytes of the length that stands before each control frame.
pub const LENGTH_BYTES: usize = 4;

/// Why a control frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecFault {
    /// The announced length is zero or above [`MAX_CONTROL_FRAME_BYTES`].
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

/// Appends one frame to `out`.
pub fn encode(message: &Control, out: &mut Vec<u8>) -> Result<(), CodecFault> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let taken = core::mem::take(out);
    *out = postcard::to_extend(message, taken).map_err(|_| CodecFault::Message)?;
    let length = out.len() - start - LENGTH_BYTES;
    if length > MAX_CONTROL_FRAME_BYTES {
        out.truncate(start);
        return Err(CodecFault::Length(u32::try_from(length).unwrap_or(u32::MAX)));
    }
    let length = u32::try_from(length).map_err(|_| CodecFault::Length(u32::MAX))?;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Length of the message that follows, checked before anything is allocated for it.
pub fn decode_length(bytes: [u8; LENGTH_BYTES]) -> Result<usize, CodecFault> {
    let length = u32::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if (1..=MAX_CONTROL_FRAME_BYTES).contains(&length) => Ok(length),
        _ => Err(CodecFault::Length(length)),
    }
}

/// One message, with every limit checked.
pub fn decode(bytes: &[u8]) -> Result<Control, CodecFault> {
    let (message, rest) = postcard::take_from_bytes::<Control>(bytes).map_err(|_| CodecFault::Message)?;
    if !rest.is_empty() {
        return Err(CodecFault::Trailing);
    }
    message.check_limits()?;
    Ok(message)
}

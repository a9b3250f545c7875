//! Control frames: a 32-bit big-endian length, then one postcard-encoded message.
//!
//! A channel's first link numbers frames by their place. On a further link a 64-bit big-endian number comes first; a ping has the
//! next message's.

use alloc::vec::Vec;

use crate::control::{Abort, Control};
pub use crate::fault::CodecFault;
use crate::limits::MAX_CONTROL_FRAME_BYTES;

/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;

/// Bytes of a frame's number.
pub const NUMBER_BYTES: usize = 8;

/// Appends a frame to `out`.
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

/// Refuses a peer of another version, in that version's numbers.
pub fn encode_refusal(abort: &Abort, version: u32) -> Result<Vec<u8>, CodecFault> {
    let mut frame = Vec::new();
    encode(&Control::Abort(abort.clone()), &mut frame)?;
    frame[LENGTH_BYTES] = if version == 1 { ABORT_NUMBER_OF_1 } else { ABORT_NUMBER };
    Ok(frame)
}

/// The number of [`Control::Abort`]. It and the form hold since version 2: each version can refuse every other.
const ABORT_NUMBER: u8 = 22;

const ABORT_NUMBER_OF_1: u8 = 18;

/// The length, checked before memory is allocated.
pub fn decode_length(bytes: [u8; LENGTH_BYTES]) -> Result<usize, CodecFault> {
    let length = u32::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if (1..=MAX_CONTROL_FRAME_BYTES).contains(&length) => Ok(length),
        _ => Err(CodecFault::Length(length)),
    }
}

/// Decodes a message, every limit checked.
pub fn decode(bytes: &[u8]) -> Result<Control, CodecFault> {
    let (message, rest) = postcard::take_from_bytes::<Control>(bytes).map_err(|_| CodecFault::Message)?;
    if !rest.is_empty() {
        return Err(CodecFault::Trailing);
    }
    message.check_limits()?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;
    use crate::RelPath;
    use crate::control::AbortFault;

    #[test]
    fn a_refusal_is_understood_by_every_version() {
        let (what, hint) = (String::from("no"), Some(String::from("x")));
        let abort = Abort { fault: AbortFault::Protocol, what, cause: None, hint };
        // In all versions: fault 3, the text "no", no cause, the hint "x".
        let rest = [3, 2, b'n', b'o', 0, 1, 1, b'x'];
        for (version, number) in [(1, 18), (2, 22), (3, 22)] {
            let frame = encode_refusal(&abort, version).unwrap();
            assert_eq!((&frame[..5], &frame[5..]), (&[0, 0, 0, 9, number][..], &rest[..]), "version {version}");
        }
        let ours = encode_refusal(&abort, crate::PROTOCOL_VERSION).unwrap();
        assert_eq!(decode(&ours[LENGTH_BYTES..]), Ok(Control::Abort(abort)));
    }

    #[test]
    fn the_name_of_a_file_leads_nowhere() {
        let decoded = |name: &str| {
            let mut bytes = Vec::new();
            encode(&Control::Named(RelPath::new(name.into()).unwrap()), &mut bytes).unwrap();
            decode(&bytes[LENGTH_BYTES..]).map(drop)
        };
        assert_eq!(decoded("a name"), Ok(()));
        for name in ["", "directory/name"] {
            assert_eq!(decoded(name), Err(CodecFault::Limit("name")), "{name:?}");
        }
    }
}

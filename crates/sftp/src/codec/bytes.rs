//! Reads and writes the integers and strings of which packets consist (RFC 4251, section 5).

use super::malformed::Malformed;

/// Takes values from the front of a packet. Nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed("a string is too long"))?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Malformed("a string is longer than its packet"))?;
        self.0 = rest;
        Ok(string)
    }

    /// Fails if bytes are left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes follow behind its end")) }
    }
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// # Panics
/// With 4 GiB or more.
pub(crate) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_u32(out, u32::try_from(string.len()).expect("callers keep to MAX_PATH_BYTES and MAX_TRANSFER_BYTES"));
    out.extend_from_slice(string);
}

//! The attributes of an entry (draft-ietf-secsh-filexfer-02, section 5).

use super::bytes::{Input, put_u32, put_u64};
use super::malformed::Malformed;

/// The attributes of an entry. A field that is missing was not told, or stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Bytes of content.
    pub size: Option<u64>,
    /// Owner and group, by number.
    pub owners: Option<(u32, u32)>,
    /// Type and permission bits, as `st_mode`.
    pub mode: Option<u32>,
    /// Times of the last access and of the last change of the content, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Attributes {
    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let flag = |is_there: bool, flag: u32| if is_there { flag } else { 0 };
        put_u32(
            out,
            flag(self.size.is_some(), SIZE)
                | flag(self.owners.is_some(), OWNERS)
                | flag(self.mode.is_some(), MODE)
                | flag(self.times.is_some(), TIMES),
        );
        if let Some(size) = self.size {
            put_u64(out, size);
        }
        if let Some((uid, gid)) = self.owners {
            put_u32(out, uid);
            put_u32(out, gid);
        }
        if let Some(mode) = self.mode {
            put_u32(out, mode);
        }
        if let Some((access, change)) = self.times {
            put_u32(out, access);
            put_u32(out, change);
        }
    }

    pub(crate) fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let flags = input.u32()?;
        if flags & !(SIZE | OWNERS | MODE | TIMES | EXTENDED) != 0 {
            return Err(Malformed("its attributes have flags that version 3 does not know"));
        }
        let has = |flag| flags & flag != 0;
        let size = if has(SIZE) { Some(input.u64()?) } else { None };
        let owners = if has(OWNERS) { Some((input.u32()?, input.u32()?)) } else { None };
        let mode = if has(MODE) { Some(input.u32()?) } else { None };
        let times = if has(TIMES) { Some((input.u32()?, input.u32()?)) } else { None };
        if has(EXTENDED) {
            // Each pair takes at least eight bytes, so the packet bounds the loop.
            for _ in 0..input.u32()? {
                input.string()?;
                input.string()?;
            }
        }
        Ok(Self { size, owners, mode, times })
    }
}

const SIZE: u32 = 1;
const OWNERS: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

//! The names of one directory at a server.

use std::io;

use crate::codec::Attributes;
use crate::limits::MAX_LISTING_BYTES;
use crate::paths::is_name;
use crate::pool::Pool;

/// A name of a directory, as its server lists it.
pub(crate) struct Listed {
    pub name: Vec<u8>,
    pub attributes: Attributes,
}

/// The names of a directory, sorted, and those that no file can have.
#[derive(Default)]
pub(crate) struct Listing {
    pub names: Vec<Listed>,
    pub refused: Vec<Vec<u8>>,
}

impl Listing {
    pub(crate) fn read(pool: &Pool, path: &[u8]) -> io::Result<Self> {
        let handle = pool.server().opendir(path)?;
        let (mut listing, mut bytes) = (Self::default(), 0_usize);
        handle.each_name(&mut |found| {
            if matches!(&found.name[..], b"." | b"..") {
                return Ok(());
            }
            bytes += found.name.len() + size_of::<Listed>();
            if bytes > MAX_LISTING_BYTES {
                return Err(io::Error::other("the directory has more names than memory may hold"));
            }
            match is_name(&found.name) {
                true => listing.names.push(Listed { name: found.name, attributes: found.attributes }),
                false => listing.refused.push(found.name),
            }
            Ok(())
        })?;
        listing.names.sort_by(|one, other| one.name.cmp(&other.name));
        // A directory has a name once. What a server lists twice is one entry.
        listing.names.dedup_by(|one, other| one.name == other.name);
        Ok(listing)
    }
}

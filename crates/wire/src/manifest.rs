//! Manifest items: the findings at the source, in walk order. Each path is sent as its difference from the one before.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::limits::{
    MAX_ACCOUNT_NAME_BYTES, MAX_BATCH_ITEMS, MAX_LINK_TARGET_BYTES, MAX_PATH_BYTES, MAX_TEXT_BYTES, MAX_XATTR_BYTES,
    MAX_XATTRS,
};
use crate::path::{PathFault, RelPath};

/// Time since the epoch; `ns` is below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub s: i64,
    /// Nanoseconds within the second.
    pub ns: u32,
}

/// A source file's state: chunks of different ones are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Time,
    /// Catches a rewrite that restored the modification time.
    pub ctime: Time,
    /// Catches a replacement that restored both.
    pub inode: u64,
}

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Name with its namespace.
    pub name: Vec<u8>,
    /// Value of any bytes.
    pub value: Vec<u8>,
}

/// Names at the source; empty: none, or sent before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerNames {
    /// The user's name.
    pub user: Vec<u8>,
    /// The group's name.
    pub group: Vec<u8>,
}

/// Metadata of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// 0o7777 at most.
    pub mode: u32,
    /// Modification time.
    pub mtime: Time,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Names, with their first entry.
    pub names: Option<Box<OwnerNames>>,
    /// Wanted extended attributes and ACLs.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_XATTRS>")]
    pub xattrs: Vec<Xattr>,
}

/// A device, FIFO or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    Character {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    Block {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

impl Special {
    /// Whether it is a device of the host.
    pub fn is_device(&self) -> bool {
        matches!(self, Special::Character { .. } | Special::Block { .. })
    }
}

/// Kinds of items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemKind {
    /// A regular file.
    File {
        /// The listed state.
        identity: Identity,
        /// Known holes: the rest is data.
        hole_bytes: u64,
        /// Both sides compare by content.
        blake3: Option<[u8; 32]>,
        /// Number of other kept names, which follow as [`ItemKind::HardLink`] if found.
        further_names: u32,
    },
    /// A directory; entries and [`ItemKind::DirectoryEnd`] follow.
    Directory,
    /// All entries have been sent.
    DirectoryEnd {
        /// The listing had no error: unlisted entries do not exist.
        complete: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Unchanged, never followed.
        target: Vec<u8>,
    },
    /// A further name of an earlier file.
    HardLink {
        /// The first name.
        first: RelPath,
    },
    /// Left out on purpose.
    Skipped {
        /// Why.
        why: String,
    },
    /// Unreadable at the source.
    Failed {
        /// Act and cause.
        why: String,
        /// Listed, and gone.
        vanished: bool,
    },
    /// A device, FIFO or socket.
    Special(Special),
    /// A further name, also to be sent: a rule may stop the first alone (`--update`, `--ignore-existing`, `--existing`).
    FurtherName {
        /// The first name.
        first: RelPath,
        /// See [`ItemKind::File`].
        identity: Identity,
        /// See [`ItemKind::File`].
        hole_bytes: u64,
        /// See [`ItemKind::File`].
        blake3: Option<[u8; 32]>,
    },
}

impl ItemKind {
    /// The regular file under it, if any.
    pub fn as_file(&self) -> Option<ItemKind> {
        match *self {
            ItemKind::File { .. } => Some(self.clone()),
            ItemKind::FurtherName { identity, hole_bytes, blake3, .. } => {
                Some(ItemKind::File { identity, hole_bytes, blake3, further_names: 0 })
            }
            _ => None,
        }
    }
}

/// One item of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Relative to the target tree.
    pub path: RelPath,
    /// The kind.
    pub kind: ItemKind,
    /// Zeros if skipped or failed.
    pub attributes: Attributes,
}

impl Item {
    /// Whether it is an entry.
    pub fn makes_entry(&self) -> bool {
        match self.kind {
            ItemKind::File { .. }
            | ItemKind::Directory
            | ItemKind::Symlink { .. }
            | ItemKind::HardLink { .. }
            | ItemKind::FurtherName { .. }
            | ItemKind::Special(_) => true,
            ItemKind::DirectoryEnd { .. } | ItemKind::Skipped { .. } | ItemKind::Failed { .. } => false,
        }
    }

    /// The item's own memory on both sides.
    pub fn weight_bytes(&self) -> usize {
        self.path.as_bytes().len() + owned_bytes(&self.kind, &self.attributes)
    }
}

fn owned_bytes(kind: &ItemKind, attributes: &Attributes) -> usize {
    let kind = match kind {
        ItemKind::Symlink { target } => target.len(),
        ItemKind::HardLink { first } | ItemKind::FurtherName { first, .. } => first.as_bytes().len(),
        ItemKind::Skipped { why } | ItemKind::Failed { why, .. } => why.len(),
        ItemKind::File { .. } | ItemKind::Directory | ItemKind::DirectoryEnd { .. } | ItemKind::Special(_) => 0,
    };
    let xattrs: usize = attributes.xattrs.iter().map(|x| size_of_val(x) + x.name.len() + x.value.len()).sum();
    let names =
        attributes.names.as_ref().map_or(0, |names| size_of::<OwnerNames>() + names.user.len() + names.group.len());
    kind + xattrs + names
}

/// An item whose path lacks its first `shared` bytes, those of the path before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedItem {
    shared: u16,
    suffix: Vec<u8>,
    kind: ItemKind,
    attributes: Attributes,
}

impl PackedItem {
    /// The item's own memory.
    pub fn weight_bytes(&self) -> usize {
        self.suffix.len() + owned_bytes(&self.kind, &self.attributes)
    }
}

/// Decodes a frame's items, with attributes at most [`MAX_BATCH_ITEMS`].
pub(crate) fn batch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PackedItem>, D::Error> {
    bounded::weighed(deserializer, MAX_BATCH_ITEMS, |item: &PackedItem| 1 + item.attributes.xattrs.len())
}

/// Why a peer's item was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemFault {
    /// Malformed, or outside the tree.
    Path(PathFault),
    /// The path before is shorter.
    Shared,
    /// Above its limit or out of range.
    Field(&'static str),
}

impl core::fmt::Display for ItemFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ItemFault::Path(fault) => write!(f, "manifest item: {fault}"),
            ItemFault::Shared => f.write_str("manifest item: prefix longer than the path before it"),
            ItemFault::Field(field) => write!(f, "manifest item: {field} out of range"),
        }
    }
}

impl core::error::Error for ItemFault {}

/// Packs or unpacks a stream's items, each after the last path.
#[derive(Debug, Default)]
pub struct Packer {
    last: RelPath,
}

impl Packer {
    /// Packs the next item.
    pub fn pack(&mut self, item: &Item) -> PackedItem {
        let path = item.path.as_bytes();
        let shared = u16::try_from(self.last.shared_prefix(path)).unwrap_or(u16::MAX);
        self.last = item.path.clone();
        PackedItem {
            shared,
            suffix: path[usize::from(shared)..].to_vec(),
            kind: item.kind.clone(),
            attributes: item.attributes.clone(),
        }
    }

    /// Unpacks and checks a peer's next item.
    pub fn unpack(&mut self, packed: PackedItem) -> Result<Item, ItemFault> {
        let prefix = self.last.as_bytes().get(..usize::from(packed.shared)).ok_or(ItemFault::Shared)?;
        if prefix.len() + packed.suffix.len() > MAX_PATH_BYTES {
            return Err(ItemFault::Path(PathFault::TooLong));
        }
        let path = RelPath::new([prefix, packed.suffix.as_slice()].concat()).map_err(ItemFault::Path)?;
        check_kind(&packed.kind, &path)?;
        check_attributes(&packed.attributes)?;
        self.last = path.clone();
        Ok(Item { path, kind: packed.kind, attributes: packed.attributes })
    }
}

fn check_kind(kind: &ItemKind, path: &RelPath) -> Result<(), ItemFault> {
    match kind {
        ItemKind::File { identity, .. } => check_identity(identity).and_then(|()| not_root(path)),
        ItemKind::Symlink { target } => {
            if target.is_empty() || target.len() > MAX_LINK_TARGET_BYTES || target.contains(&0) {
                return Err(ItemFault::Field("link target"));
            }
            not_root(path)
        }
        ItemKind::Special(_) => not_root(path),
        ItemKind::HardLink { first } => {
            if first.is_root() {
                return Err(ItemFault::Field("hard link"));
            }
            not_root(path)
        }
        ItemKind::FurtherName { first, identity, .. } => {
            check_identity(identity)?;
            check_kind(&ItemKind::HardLink { first: first.clone() }, path)
        }
        ItemKind::Skipped { why } | ItemKind::Failed { why, .. } if why.len() > MAX_TEXT_BYTES => {
            Err(ItemFault::Field("reason"))
        }
        ItemKind::Skipped { .. } | ItemKind::Failed { .. } | ItemKind::Directory | ItemKind::DirectoryEnd { .. } => {
            Ok(())
        }
    }
}

fn check_identity(identity: &Identity) -> Result<(), ItemFault> {
    check_time(identity.mtime)?;
    check_time(identity.ctime)?;
    // An off_t: at most 2^63 - 1.
    if identity.size > i64::MAX as u64 { Err(ItemFault::Field("size")) } else { Ok(()) }
}

fn not_root(path: &RelPath) -> Result<(), ItemFault> {
    if path.is_root() { Err(ItemFault::Field("path")) } else { Ok(()) }
}

fn check_attributes(attributes: &Attributes) -> Result<(), ItemFault> {
    if attributes.mode > 0o7777 {
        return Err(ItemFault::Field("mode"));
    }
    check_time(attributes.mtime)?;
    let too_long = |name: &[u8]| name.len() > MAX_ACCOUNT_NAME_BYTES;
    if attributes.names.as_ref().is_some_and(|names| too_long(&names.user) || too_long(&names.group)) {
        return Err(ItemFault::Field("name of an account"));
    }
    let xattrs = &attributes.xattrs;
    let bytes: usize = xattrs.iter().map(|x| x.name.len() + x.value.len()).sum();
    if bytes > MAX_XATTR_BYTES {
        return Err(ItemFault::Field("extended attributes"));
    }
    if xattrs.iter().any(|x| x.name.is_empty() || x.name.len() > 255 || x.name.contains(&0)) {
        return Err(ItemFault::Field("extended attribute name"));
    }
    Ok(())
}

fn check_time(time: Time) -> Result<(), ItemFault> {
    if time.ns < 1_000_000_000 { Ok(()) } else { Err(ItemFault::Field("time")) }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::Control;
    use crate::codec::{self, CodecFault};

    fn directory(path: &[u8]) -> Item {
        Item {
            path: RelPath::new(path.to_vec()).unwrap(),
            kind: ItemKind::Directory,
            attributes: Attributes::default(),
        }
    }

    #[test]
    fn a_sequence_of_paths_survives_packing() {
        let items: Vec<Item> =
            [&b""[..], b"data", b"data/a", b"data/ab", b"data/b/c", b"x"].iter().map(|p| directory(p)).collect();
        let (mut pack, mut unpack) = (Packer::default(), Packer::default());
        for item in items {
            let packed = pack.pack(&item);
            assert_eq!(unpack.unpack(packed), Ok(item));
        }
    }

    #[test]
    fn a_prefix_that_does_not_exist_is_refused() {
        let packed = PackedItem {
            shared: 7,
            suffix: b"x".to_vec(),
            kind: ItemKind::Directory,
            attributes: Attributes::default(),
        };
        assert_eq!(Packer::default().unpack(packed), Err(ItemFault::Shared));
    }

    #[test]
    fn a_climbing_path_and_wild_fields_are_refused() {
        let packed = |suffix: &[u8], kind: ItemKind, attributes: Attributes| PackedItem {
            shared: 0,
            suffix: suffix.to_vec(),
            kind,
            attributes,
        };
        let plain = Attributes::default;
        let file = |change: fn(&mut Identity)| {
            let mut identity = Identity { size: 1, mtime: Time::default(), ctime: Time::default(), inode: 1 };
            change(&mut identity);
            let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
            packed(b"x", kind, plain())
        };
        let further = |first: &[u8], change: fn(&mut Identity)| {
            let mut identity = Identity { size: 1, mtime: Time::default(), ctime: Time::default(), inode: 1 };
            change(&mut identity);
            let first = RelPath::new(first.to_vec()).unwrap();
            packed(b"x", ItemKind::FurtherName { first, identity, hole_bytes: 0, blake3: None }, plain())
        };
        let xattr = |name: Vec<u8>, value: usize| {
            let xattrs = vec![Xattr { name, value: vec![0; value] }];
            packed(b"x", ItemKind::Directory, Attributes { xattrs, ..plain() })
        };
        let link = |length| packed(b"x", ItemKind::Symlink { target: vec![b'a'; length] }, plain());
        let named = |user, group| {
            let names = OwnerNames { user: vec![b'u'; user], group: vec![b'g'; group] };
            packed(b"x", ItemKind::Directory, Attributes { names: Some(Box::new(names)), ..plain() })
        };
        let largest = [
            file(|identity| identity.size = i64::MAX as u64),
            file(|identity| identity.mtime.ns = 999_999_999),
            link(MAX_LINK_TARGET_BYTES),
            xattr(vec![b'n'; 255], MAX_XATTR_BYTES - 255),
            named(MAX_ACCOUNT_NAME_BYTES, MAX_ACCOUNT_NAME_BYTES),
            packed(b"x", ItemKind::Skipped { why: "w".repeat(MAX_TEXT_BYTES) }, plain()),
        ];
        for case in largest {
            assert!(Packer::default().unpack(case.clone()).is_ok(), "{case:?}");
        }
        let cases = vec![
            file(|identity| identity.size = i64::MAX as u64 + 1),
            file(|identity| identity.size = u64::MAX),
            file(|identity| identity.mtime.ns = 1_000_000_000),
            file(|identity| identity.ctime.ns = 1_000_000_000),
            link(MAX_LINK_TARGET_BYTES + 1),
            xattr(vec![b'n'; 256], 0),
            named(MAX_ACCOUNT_NAME_BYTES + 1, 0),
            named(0, MAX_ACCOUNT_NAME_BYTES + 1),
            xattr(vec![], 0),
            xattr(b"a\0".to_vec(), 0),
            xattr(b"n".to_vec(), MAX_XATTR_BYTES),
            packed(b"x", ItemKind::Skipped { why: "w".repeat(MAX_TEXT_BYTES + 1) }, plain()),
            packed(b"x", ItemKind::Failed { why: "w".repeat(MAX_TEXT_BYTES + 1), vanished: false }, plain()),
            packed(b"x", ItemKind::HardLink { first: RelPath::default() }, plain()),
            further(b"", |_| {}),
            further(b"first", |identity| identity.size = u64::MAX),
            further(b"first", |identity| identity.ctime.ns = 1_000_000_000),
            packed(b"../x", ItemKind::Directory, plain()),
            packed(b"x", ItemKind::Symlink { target: vec![] }, plain()),
            packed(b"x", ItemKind::Symlink { target: b"a\0".to_vec() }, plain()),
            packed(b"", ItemKind::Symlink { target: b"a".to_vec() }, plain()),
            packed(b"x", ItemKind::Directory, Attributes { mode: 0o10000, ..plain() }),
            packed(b"x", ItemKind::Directory, Attributes { mtime: Time { s: 0, ns: 1_000_000_000 }, ..plain() }),
        ];
        for case in cases {
            assert!(Packer::default().unpack(case.clone()).is_err(), "{case:?}");
        }
    }

    #[test]
    fn a_frame_holds_no_more_items_and_attributes_than_agreed() {
        let decoded = |items: usize, attributes: usize| {
            let xattrs = vec![Xattr { name: b"n".to_vec(), value: Vec::new() }; attributes];
            let item = Item { attributes: Attributes { xattrs, ..Attributes::default() }, ..directory(b"x") };
            let message = Control::Items(vec![Packer::default().pack(&item); items]);
            let mut frame = Vec::new();
            codec::encode(&message, &mut frame).unwrap();
            codec::decode(&frame[codec::LENGTH_BYTES..]).map(|decoded| assert_eq!(decoded, message))
        };
        assert_eq!(decoded(MAX_BATCH_ITEMS, 0), Ok(()));
        assert_eq!(decoded(MAX_BATCH_ITEMS + 1, 0), Err(CodecFault::Message));
        assert_eq!(decoded(1, MAX_XATTRS), Ok(()));
        assert_eq!(decoded(1, MAX_XATTRS + 1), Err(CodecFault::Message));
        assert_eq!(decoded(MAX_BATCH_ITEMS / 4, 3), Ok(()));
        assert_eq!(decoded(MAX_BATCH_ITEMS / 4 + 1, 3), Err(CodecFault::Message));
    }

    proptest! {
        #[test]
        fn unpacking_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok((packed, _)) = postcard::take_from_bytes::<PackedItem>(&bytes) {
                let _ = Packer::default().unpack(packed);
            }
        }
    }
}

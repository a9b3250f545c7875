//! Requests, and how they stand in a packet (draft-ietf-secsh-filexfer-02, section 6; OpenSSH, PROTOCOL, section 4).

use super::attributes::Attributes;
use super::bytes::{put_string, put_u32, put_u64};

/// A request. Names are bytes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens a file.
    Open {
        /// Its path.
        path: &'a [u8],
        /// [`READ`](super::READ) and its like.
        flags: u32,
        /// The permissions of a new file.
        mode: Option<u32>,
    },
    /// Closes a file or directory.
    Close {
        /// What OPEN or OPENDIR gave.
        handle: &'a [u8],
    },
    /// Reads up to `bytes` bytes.
    Read {
        /// The open file.
        handle: &'a [u8],
        /// Where.
        offset: u64,
        /// At most so many.
        bytes: u32,
    },
    /// Writes bytes.
    Write {
        /// The open file.
        handle: &'a [u8],
        /// Where.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// The attributes of an entry itself.
    Lstat {
        /// Its path.
        path: &'a [u8],
    },
    /// The attributes of the entry to which links lead.
    Stat {
        /// Its path.
        path: &'a [u8],
    },
    /// The attributes of an open file.
    Fstat {
        /// The open file.
        handle: &'a [u8],
    },
    /// Sets attributes, through links.
    Setstat {
        /// The path.
        path: &'a [u8],
        /// What to set.
        attributes: &'a Attributes,
    },
    /// Sets attributes of an open file.
    Fsetstat {
        /// The open file.
        handle: &'a [u8],
        /// What to set.
        attributes: &'a Attributes,
    },
    /// Opens a directory for listing.
    Opendir {
        /// Its path.
        path: &'a [u8],
    },
    /// The next names of a directory.
    Readdir {
        /// The open directory.
        handle: &'a [u8],
    },
    /// Removes a file or link.
    Remove {
        /// Its path.
        path: &'a [u8],
    },
    /// Makes a directory.
    Mkdir {
        /// Its path.
        path: &'a [u8],
        /// Its permissions.
        mode: u32,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Its path.
        path: &'a [u8],
    },
    /// Renames an entry; fails where something stands at `to`.
    Rename {
        /// The old path.
        from: &'a [u8],
        /// The new path.
        to: &'a [u8],
    },
    /// Where a symbolic link leads.
    Readlink {
        /// The path of the link.
        path: &'a [u8],
    },
    /// Makes a symbolic link. OpenSSH has the two in this order, against the draft, and other servers follow it
    /// (PROTOCOL, 4.1).
    Symlink {
        /// Where it leads.
        leads_to: &'a [u8],
        /// The path of the link.
        path: &'a [u8],
    },
    /// Renames as rename(2) does, also onto a file.
    PosixRename {
        /// The old path.
        from: &'a [u8],
        /// The new path.
        to: &'a [u8],
    },
    /// Gives a file another name.
    Hardlink {
        /// The file.
        existing: &'a [u8],
        /// The new name.
        path: &'a [u8],
    },
    /// Waits until a file is on the medium.
    Fsync {
        /// The open file.
        handle: &'a [u8],
    },
    /// Sets attributes of an entry itself.
    Lsetstat {
        /// Its path.
        path: &'a [u8],
        /// What to set.
        attributes: &'a Attributes,
    },
    /// What the server takes at once.
    Limits,
    /// The room of a file system.
    Statvfs {
        /// A path on it.
        path: &'a [u8],
    },
}

/// The first packet: its length, INIT and version 3.
pub const GREETING: [u8; 9] = [0, 0, 0, 5, 1, 0, 0, 0, 3];

impl Request<'_> {
    /// The whole packet with its length.
    pub fn packet(&self, id: u32) -> Vec<u8> {
        let data = if let Request::Write { data, .. } = self { data.len() } else { 0 };
        let mut out = Vec::with_capacity(data + HEADER_BYTES);
        out.extend_from_slice(&[0; 4]);
        self.put(id, &mut out);
        let length = u32::try_from(out.len() - 4).expect("paths and data have limits");
        out[..4].copy_from_slice(&length.to_be_bytes());
        out
    }

    fn put(&self, id: u32, out: &mut Vec<u8>) {
        let mut begin = |kind: u8| {
            out.push(kind);
            put_u32(out, id);
        };
        match *self {
            Request::Open { path, flags, mode } => {
                begin(3);
                put_string(out, path);
                put_u32(out, flags);
                Attributes { mode, ..Attributes::default() }.put(out);
            }
            Request::Close { handle } => {
                begin(4);
                put_string(out, handle);
            }
            Request::Read { handle, offset, bytes } => {
                begin(5);
                put_string(out, handle);
                put_u64(out, offset);
                put_u32(out, bytes);
            }
            Request::Write { handle, offset, data } => {
                begin(6);
                put_string(out, handle);
                put_u64(out, offset);
                put_string(out, data);
            }
            Request::Lstat { path } => {
                begin(7);
                put_string(out, path);
            }
            Request::Fstat { handle } => {
                begin(8);
                put_string(out, handle);
            }
            Request::Setstat { path, attributes } => {
                begin(9);
                put_string(out, path);
                attributes.put(out);
            }
            Request::Fsetstat { handle, attributes } => {
                begin(10);
                put_string(out, handle);
                attributes.put(out);
            }
            Request::Opendir { path } => {
                begin(11);
                put_string(out, path);
            }
            Request::Readdir { handle } => {
                begin(12);
                put_string(out, handle);
            }
            Request::Remove { path } => {
                begin(13);
                put_string(out, path);
            }
            Request::Mkdir { path, mode } => {
                begin(14);
                put_string(out, path);
                Attributes { mode: Some(mode), ..Attributes::default() }.put(out);
            }
            Request::Rmdir { path } => {
                begin(15);
                put_string(out, path);
            }
            Request::Stat { path } => {
                begin(17);
                put_string(out, path);
            }
            Request::Rename { from, to } => {
                begin(18);
                put_string(out, from);
                put_string(out, to);
            }
            Request::Readlink { path } => {
                begin(19);
                put_string(out, path);
            }
            Request::Symlink { leads_to, path } => {
                begin(20);
                put_string(out, leads_to);
                put_string(out, path);
            }
            Request::PosixRename { from, to } => {
                begin(EXTENDED);
                put_string(out, b"posix-rename@openssh.com");
                put_string(out, from);
                put_string(out, to);
            }
            Request::Hardlink { existing, path } => {
                begin(EXTENDED);
                put_string(out, b"hardlink@openssh.com");
                put_string(out, existing);
                put_string(out, path);
            }
            Request::Fsync { handle } => {
                begin(EXTENDED);
                put_string(out, b"fsync@openssh.com");
                put_string(out, handle);
            }
            Request::Lsetstat { path, attributes } => {
                begin(EXTENDED);
                put_string(out, b"lsetstat@openssh.com");
                put_string(out, path);
                attributes.put(out);
            }
            Request::Limits => {
                begin(EXTENDED);
                put_string(out, b"limits@openssh.com");
            }
            Request::Statvfs { path } => {
                begin(EXTENDED);
                put_string(out, b"statvfs@openssh.com");
                put_string(out, path);
            }
        }
    }
}

const EXTENDED: u8 = 200;

/// Length, kind, number, the length of a handle with a short handle, offset, the length of the data.
const HEADER_BYTES: usize = 4 + 1 + 4 + 4 + 64 + 8 + 4;

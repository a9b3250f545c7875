//! Extended attributes and ACLs: which are copied, and how.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use haul_sys::{process, xattr};
use rustix::io::Errno;

use crate::error::printable;
use crate::limits::{MAX_XATTR_BYTES, MAX_XATTR_VALUE_BYTES};

pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    /// `user.`, and for root `trusted.` and `security.`.
    pub xattrs: bool,
    /// POSIX ACLs, which the kernel shows as attributes.
    pub acls: bool,
    pub unsupported: OnceLock<Vec<u8>>,
}

impl Namespaces {
    pub(crate) fn any(&self) -> bool {
        self.xattrs || self.acls
    }

    /// Security attributes (capabilities, SELinux labels) act like set-user bits: a target takes them only with ownership.
    fn covers(&self, name: &[u8], with_security: bool) -> bool {
        if name.starts_with(b"user.") {
            return self.xattrs;
        }
        if name == b"system.posix_acl_access" || name == b"system.posix_acl_default" {
            return self.acls;
        }
        let privileged = name.starts_with(b"trusted.") || (with_security && name.starts_with(b"security."));
        self.xattrs && privileged && process::is_root()
    }
}

pub(crate) enum Place<'a> {
    Open(BorrowedFd<'a>),
    Name(BorrowedFd<'a>, &'a [u8]),
}

impl Place<'_> {
    fn list(&self) -> io::Result<Vec<Vec<u8>>> {
        match self {
            Place::Open(fd) => xattr::list(*fd),
            Place::Name(dir, name) => xattr::list_at(*dir, name),
        }
    }

    fn get(&self, attribute: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self {
            Place::Open(fd) => xattr::get(*fd, attribute),
            Place::Name(dir, name) => xattr::get_at(*dir, name, attribute),
        }
    }

    fn set(&self, attribute: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            Place::Open(fd) => xattr::set(*fd, attribute, value),
            Place::Name(dir, name) => xattr::set_at(*dir, name, attribute, value),
        }
    }

    fn remove(&self, attribute: &[u8]) -> io::Result<()> {
        match self {
            Place::Open(fd) => xattr::remove(*fd, attribute),
            Place::Name(dir, name) => xattr::remove_at(*dir, name, attribute),
        }
    }
}

/// SELinux labels each new entry by the host's policy, and lets nobody remove the label.
const LABEL: &[u8] = b"security.selinux";

/// Reads the copied attributes, sorted. An unreadable or too large one is an error: leaving it out would delete the target's
/// own.
pub(crate) fn read(place: &Place<'_>, namespaces: &Namespaces) -> io::Result<Vec<Attribute>> {
    let mut names = place.list()?;
    names.retain(|name| namespaces.covers(name, true));
    names.sort_unstable();
    let mut found = Vec::with_capacity(names.len());
    let mut total_bytes = 0;
    for name in names {
        let Some(value) = place.get(&name)? else { continue };
        total_bytes += name.len() + value.len();
        if value.len() > MAX_XATTR_VALUE_BYTES || total_bytes > MAX_XATTR_BYTES {
            let name = printable(&name);
            let why = format!("with {name} they are more than the {} KiB that can be copied", MAX_XATTR_BYTES >> 10);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        found.push((name, value));
    }
    Ok(found)
}

/// Makes the copied attributes of an open entry, or a link's, equal to `wanted`; true: something changed.
pub(crate) fn apply(
    place: &Place<'_>,
    wanted: &[Attribute],
    with_security: bool,
    namespaces: &Namespaces,
) -> io::Result<bool> {
    if !namespaces.any() {
        return Ok(false);
    }
    let mut changed = false;
    for name in place.list()? {
        let keep = wanted.iter().any(|(wanted_name, _)| *wanted_name == name);
        if !keep && name != LABEL && namespaces.covers(&name, with_security) {
            place.remove(&name)?;
            changed = true;
        }
    }
    // Only files and directories have user attributes and ACLs (xattr(7)); a name here is a link.
    let takes = |name: &[u8]| {
        let is_open = matches!(place, Place::Open(_));
        is_open || name.starts_with(b"trusted.") || name.starts_with(b"security.")
    };
    for (name, value) in wanted.iter().filter(|(name, _)| takes(name) && namespaces.covers(name, with_security)) {
        if place.get(name)?.as_ref() == Some(value) {
            continue;
        }
        match place.set(name, value) {
            Ok(()) => changed = true,
            // Without the attributes, or a policy that knows the label, the host still holds the data: one warning is
            // enough.
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) || name == LABEL => {
                namespaces.unsupported.get_or_init(|| name.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}

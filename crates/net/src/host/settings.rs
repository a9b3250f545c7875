//! One setting of the kernel: read, written, read back. `net.ipv4.tcp_rmem` is the file `sys/net/ipv4/tcp_rmem` of
//! `/proc`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::Roots;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The words of the setting, with one space between them.
    pub value: String,
    /// Whether this network namespace may change it: only the first may change some.
    pub writable: bool,
}

/// Reads a setting. `None`: the kernel does not have it, or hides it from this network namespace.
pub fn read(roots: &Roots, name: &str) -> Option<Setting> {
    let path = path(roots, name);
    let value = single_spaces(&fs::read_to_string(&path).ok()?);
    // The bits of the file decide: sysctl refuses root, too, where they do.
    let writable = fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().mode() & 0o222 != 0);
    Some(Setting { value, writable })
}

/// Writes a setting, and returns its value as read back.
///
/// `NotFound`: this kernel does not have the setting, or not the queue or congestion control that the value names.
pub fn write(roots: &Roots, name: &str, value: &str) -> io::Result<String> {
    let path = path(roots, name);
    // One write(2), because the kernel takes each write as a whole value.
    OpenOptions::new().write(true).truncate(true).open(&path)?.write_all(format!("{value}\n").as_bytes())?;
    Ok(single_spaces(&fs::read_to_string(&path)?))
}

fn path(roots: &Roots, name: &str) -> PathBuf {
    roots.proc.join("sys").join(name.replace('.', "/"))
}

fn single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

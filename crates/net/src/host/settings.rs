//! One setting of the kernel: `net.ipv4.tcp_rmem` is `sys/net/ipv4/tcp_rmem` of `/proc`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::Roots;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The words, with one space between.
    pub value: String,
    /// Whether this network namespace may change it: often only the first.
    pub writable: bool,
}

/// Reads a setting, if the kernel shows it to this network namespace.
pub fn read(roots: &Roots, name: &str) -> Option<Setting> {
    let path = path(roots, name);
    let value = single_spaces(&fs::read_to_string(&path).ok()?);
    // By the file's bits sysctl refuses root, too.
    let writable = fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().mode() & 0o222 != 0);
    Some(Setting { value, writable })
}

/// Writes a setting, and returns it as read back. `NotFound`: this kernel lacks it, or the named queue or congestion
/// control.
pub fn write(roots: &Roots, name: &str, value: &str) -> io::Result<String> {
    let path = path(roots, name);
    // The kernel takes each write(2) as a whole value.
    OpenOptions::new().write(true).truncate(true).open(&path)?.write_all(format!("{value}\n").as_bytes())?;
    Ok(single_spaces(&fs::read_to_string(&path)?))
}

fn path(roots: &Roots, name: &str) -> PathBuf {
    roots.proc.join("sys").join(name.replace('.', "/"))
}

fn single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

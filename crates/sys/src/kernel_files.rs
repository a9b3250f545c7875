//! File systems of the kernel's interfaces, without user's data.
//!
//! Reading one asks the kernel, writing commands it. A daemon must not copy them for users: it learns more than their
//! programs would, and some check other rights than the owner's. Source: linux/magic.h, the drivers' own headers.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::FsWord;

/// The name of this file's file system, if of this kind.
pub fn kind_of(file: BorrowedFd<'_>) -> io::Result<Option<&'static str>> {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file))?.f_type;
    Ok(name_of(kind))
}

/// A magic number has 32 bits, and may come with its sign.
fn name_of(kind: FsWord) -> Option<&'static str> {
    KINDS.iter().find(|(number, _)| *number == kind as u32).map(|(_, name)| *name)
}

/// The magic number, and the name in /proc/filesystems.
const KINDS: [(u32, &str); 34] = [
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6573_5543, "fusectl"),
    (0x1980_0202, "mqueue"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    (0x0000_1cd1, "devpts"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0x0765_5821, "resctrl"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0x6c6f_6f70, "binder"),
    (0xabba_1974, "xenfs"),
    (0x0000_9fa1, "openpromfs"),
    (0x0000_9fa2, "usbfs"),
    (0x0a64_7361, "functionfs"),
    (0xaee7_1ee7, "gadgetfs"),
    (0x0068_7970, "s390_hypfs"),
    (0x23c9_b64e, "spufs"),
    (0x76a9_f425, "ocfs2_dlmfs"),
    (0x0bad_1dea, "futexfs"),
    (0x0904_1934, "anon_inodefs"),
];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernels_own_file_systems_are_known_and_those_of_data_are_not() {
        let of = |path: &str| kind_of(File::open(path).unwrap().as_fd()).unwrap();
        for (path, kind) in [
            ("/proc", "proc"),
            ("/proc/sys/kernel/core_pattern", "proc"),
            ("/proc/self", "proc"),
            ("/sys", "sysfs"),
            ("/sys/kernel", "sysfs"),
        ] {
            assert_eq!(of(path), Some(kind), "{path}");
        }
        for path in ["/", "/tmp", "/dev", "/etc/passwd"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}

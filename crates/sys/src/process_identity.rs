//! Tells a process from all others, on any host at any time: /proc.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::Pid;

/// A process, as it can be written down and found later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The kernel's start, of this host and time alone.
    boot: u128,
    /// The namespace of process numbers: a container has its own.
    numbers: u64,
    process: u32,
    /// Ticks since the kernel's start: a number is used again.
    started: u64,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process is this one.
    Own,
    /// The process lives, under this number.
    Alive(u32),
    /// The process has ended.
    Dead,
    /// The process runs, or ran, where this one cannot look.
    Elsewhere,
}

impl ProcessIdentity {
    /// The length of [`ProcessIdentity::to_bytes`].
    pub const BYTES: usize = 16 + 8 + 4 + 8;

    /// Identifies this process, with /proc.
    pub fn own() -> Option<Self> {
        static OWN: OnceLock<Option<ProcessIdentity>> = OnceLock::new();
        *OWN.get_or_init(|| Self::look().ok())
    }

    fn look() -> io::Result<Self> {
        let boot: String =
            fs::read_to_string("/proc/sys/kernel/random/boot_id")?.chars().filter(|c| *c != '-').collect();
        let boot = u128::from_str_radix(boot.trim(), 16).map_err(io::Error::other)?;
        let numbers = fs::metadata("/proc/self/ns/pid")?.ino();
        let process = std::process::id();
        Ok(Self { boot, numbers, process, started: started(process)? })
    }

    /// Whether the process lives.
    pub fn liveness(&self) -> Liveness {
        match Self::own() {
            Some(own) if own == *self => Liveness::Own,
            Some(own) if (own.boot, own.numbers) == (self.boot, self.numbers) => self.of_this_host(),
            // Another kernel: restarted, or another host's.
            _ => Liveness::Elsewhere,
        }
    }

    fn of_this_host(&self) -> Liveness {
        let Some(pid) = i32::try_from(self.process).ok().and_then(Pid::from_raw) else { return Liveness::Dead };
        match (rustix::process::test_kill_process(pid), started(self.process)) {
            (Err(Errno::SRCH), _) => Liveness::Dead,
            (_, Ok(started)) if started != self.started => Liveness::Dead,
            // A process of another user may be hidden.
            _ => Liveness::Alive(self.process),
        }
    }

    /// The process in bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.boot.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.numbers.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.process.to_le_bytes());
        bytes[28..].copy_from_slice(&self.started.to_le_bytes());
        bytes
    }

    /// The process that these bytes are; any bytes are one.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().rev().fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
        };
        Self {
            boot: number(0..16),
            numbers: number(16..24) as u64,
            process: number(24..28) as u32,
            started: number(28..36) as u64,
        }
    }
}

/// The 22nd field of /proc/PID/stat; the second, a name, may have brackets.
fn started(process: u32) -> io::Result<u64> {
    let text = fs::read(format!("/proc/{process}/stat"))?;
    let behind_name = text.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    let fields = String::from_utf8_lossy(&text[behind_name..]).into_owned();
    let started = fields.split_whitespace().nth(22 - 3).and_then(|field| field.parse().ok());
    started.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_one_that_has_ended_and_from_those_of_other_hosts() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!((own.liveness(), ProcessIdentity::from_bytes(&own.to_bytes())), (Liveness::Own, own));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other = ProcessIdentity { process: child.id(), started: started(child.id()).unwrap(), ..own };
        assert_eq!(other.liveness(), Liveness::Alive(child.id()));
        let earlier = ProcessIdentity { started: other.started - 1, ..other };
        assert_eq!(earlier.liveness(), Liveness::Dead, "its number was given again");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(other.liveness(), Liveness::Dead);
        for elsewhere in [ProcessIdentity { boot: 1, ..own }, ProcessIdentity { numbers: 1, ..own }] {
            assert_eq!(elsewhere.liveness(), Liveness::Elsewhere);
        }
        assert_eq!(ProcessIdentity { process: u32::MAX, ..own }.liveness(), Liveness::Dead);
        assert_eq!(ProcessIdentity { process: 0, ..own }.liveness(), Liveness::Dead);
    }
}

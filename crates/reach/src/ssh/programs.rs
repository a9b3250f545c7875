//! Finds the programs that can be brought to a far side: ours, and those for other machines that lie beside it.
//!
//! ```text
//!   /usr/bin/haul                    ours
//!   /usr/bin/haul-aarch64            for a far side of that machine, as `uname -m` names it
//!   /usr/lib/haul/haul-aarch64       the same, where packages put it
//! ```
//! One line names all before the far side tells its machine, which saves a round trip.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use haul_job::{Error, Fault, SshOptions};
use haul_sys::own::OTHERS_WRITE;
use haul_sys::process::effective_user;

pub(super) struct Program {
    pub(super) bytes: Vec<u8>,
    pub(super) sha256: String,
}

pub(crate) struct Programs {
    ours: Program,
    others: Vec<Other>,
}

/// The programs, while a thread reads and hashes ours in some 10 ms, in which ssh can tell its settings.
pub(crate) struct ProgramsSought(Option<JoinHandle<Result<Programs, Error>>>);

struct Other {
    machine: &'static Machine,
    path: PathBuf,
    sha256: String,
    size_bytes: usize,
}

struct Machine {
    /// The names of `uname -m` on different systems. The first is in the file's name.
    names: &'static [&'static str],
    /// `e_machine` of its little-endian programs (elf(5)).
    elf: u16,
}

const MACHINES: [Machine; 4] = [
    Machine { names: &["x86_64", "amd64"], elf: 62 },
    Machine { names: &["aarch64", "arm64"], elf: 183 },
    Machine { names: &["riscv64"], elf: 243 },
    Machine { names: &["ppc64le"], elf: 21 },
];

/// Ours has 16 MB.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;

impl Program {
    fn of(bytes: Vec<u8>) -> Self {
        let sha256 = sha256_of(&bytes);
        Self { bytes, sha256 }
    }
}

impl ProgramsSought {
    /// Seeks nothing where the user names the far side's program.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn begin(options: &SshOptions) -> Result<Self, Error> {
        if options.remote_program.is_some() {
            return Ok(Self(None));
        }
        let thread = std::thread::Builder::new().name("programs".into()).spawn(Programs::find);
        let thread = thread.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        Ok(Self(Some(thread)))
    }

    pub(super) fn found(self) -> Result<Programs, Error> {
        let Some(thread) = self.0 else { return Programs::find() };
        thread.join().unwrap_or_else(|_| Err(Error::new(Fault::Install, "cannot read our own program")))
    }
}

impl Programs {
    fn find() -> Result<Self, Error> {
        let bytes = std::fs::read("/proc/self/exe")
            .map_err(|error| Error::new(Fault::Install, "cannot read our own program").because(error))?;
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let directory = own.parent().unwrap_or(Path::new("/"));
        Ok(Self { ours: Program::of(bytes), others: beside(directory, std::env::consts::ARCH) })
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {}", self.ours.sha256, self.ours.bytes.len());
        for Other { machine, sha256, size_bytes, .. } in &self.others {
            machine.names.iter().for_each(|name| line.push_str(&format!(" {name} {sha256} {size_bytes}")));
        }
        line + "\n"
    }

    pub(super) fn take_for(self, system: &str, machine: &str) -> Option<Vec<u8>> {
        if system != "Linux" {
            return None;
        }
        let is_it = |of: &Machine| of.names.contains(&machine);
        if machine == std::env::consts::ARCH
            || MACHINES.iter().any(|of| is_it(of) && of.names[0] == std::env::consts::ARCH)
        {
            return Some(self.ours.bytes);
        }
        let other = self.others.into_iter().find(|other| is_it(other.machine))?;
        // If the file has changed, the far side finds a wrong hash and runs nothing.
        read(&other.path).ok()
    }
}

fn beside(directory: &Path, own: &str) -> Vec<Other> {
    let mut found = Vec::new();
    for machine in MACHINES.iter().filter(|machine| machine.names[0] != own) {
        let name = format!("haul-{}", machine.names[0]);
        for path in [directory.join(&name), directory.join("../lib/haul").join(&name)] {
            let Ok(bytes) = read(&path) else { continue };
            if elf_machine(&bytes) == Some(machine.elf) {
                found.push(Other { machine, path, sha256: sha256_of(&bytes), size_bytes: bytes.len() });
                break;
            }
        }
    }
    found
}

/// Reads a program that only we, root, or the owner of the running program could have put there.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (mut bytes, file) = (Vec::new(), File::open(path)?);
    let facts = file.metadata()?;
    let ours = std::fs::metadata("/proc/self/exe")?;
    let is_trusted = [effective_user(), 0, ours.uid()].contains(&facts.uid());
    if !facts.is_file() || !is_trusted || facts.mode() & OTHERS_WRITE & !ours.mode() != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    file.take(MAX_PROGRAM_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn elf_machine(bytes: &[u8]) -> Option<u16> {
    let is_elf = bytes.starts_with(b"\x7fELF");
    bytes.get(18..20).filter(|_| is_elf).map(|field| u16::from_le_bytes([field[0], field[1]]))
}

fn sha256_of(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(elf: u16, rest: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend(elf.to_le_bytes());
        bytes.extend(rest.as_bytes());
        bytes
    }

    #[test]
    fn programs_for_other_machines_are_found_beside_ours_and_in_lib() {
        let root = tempfile::tempdir().unwrap();
        let (bin, lib) = (root.path().join("bin"), root.path().join("lib/haul"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(bin.join("haul-aarch64"), program(183, "arm")).unwrap();
        std::fs::write(lib.join("haul-riscv64"), program(243, "risc")).unwrap();
        std::fs::write(bin.join("haul-ppc64le"), program(62, "x86")).unwrap();
        std::fs::write(bin.join("haul-x86_64"), program(62, "x86")).unwrap();
        let find = |own| Programs { ours: Program::of(b"ours".to_vec()), others: beside(&bin, own) };
        let line = find("x86_64").line();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!([words[1], words[2], words[4], words[5], words[8]], ["4", "aarch64", "23", "arm64", "riscv64"]);
        assert_eq!(words.len(), 2 + 3 * 3);
        assert_eq!(find("x86_64").take_for("Linux", "arm64"), Some(program(183, "arm")));
        assert_eq!(find("x86_64").take_for("Linux", "riscv64"), Some(program(243, "risc")));
        assert_eq!(find("x86_64").take_for("Linux", std::env::consts::ARCH).as_deref(), Some(&b"ours"[..]));
        assert_eq!(find("x86_64").take_for("FreeBSD", std::env::consts::ARCH), None);
        assert_eq!(find("x86_64").take_for("Linux", "ppc64le"), None);
        std::fs::set_permissions(bin.join("haul-aarch64"), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(find("x86_64").take_for("Linux", "arm64"), None);
    }
}

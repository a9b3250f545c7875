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
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use aws_lc_rs::digest::{Context, SHA256};
use haul_job::{Error, Fault, SshOptions};
use haul_sys::own::OTHERS_WRITE;
use haul_sys::process::effective_user;

/// A program as a far side names it: most far sides have it, so its bytes are read when one asks for them.
struct Program {
    path: PathBuf,
    sha256: String,
    size_bytes: u64,
}

pub(crate) struct Programs {
    ours: Program,
    others: Vec<(&'static Machine, Program)>,
}

/// The programs, while a thread hashes ours in some 15 ms, in which ssh can tell its settings.
pub(crate) struct ProgramsSought(Option<JoinHandle<Result<Programs, Error>>>);

struct Machine {
    /// The names of `uname -m` on different systems. The first is in the file's name.
    names: &'static [&'static str],
    /// `e_machine` of its little-endian programs (elf(5)).
    elf: u16,
}

const SELF: &str = "/proc/self/exe";

const MACHINES: [Machine; 4] = [
    Machine { names: &["x86_64", "amd64"], elf: 62 },
    Machine { names: &["aarch64", "arm64"], elf: 183 },
    Machine { names: &["riscv64"], elf: 243 },
    Machine { names: &["ppc64le"], elf: 21 },
];

/// Ours has 30 MB.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;

/// What is hashed while it lies in a processor's second cache. Read as a whole, ours took half as long again.
const HASHED_BYTES: usize = 256 << 10;

impl Program {
    fn of(path: PathBuf, file: File) -> io::Result<Self> {
        let (mut hash, mut size_bytes) = (Context::new(&SHA256), 0);
        let mut file = file.take(MAX_PROGRAM_BYTES);
        let mut piece = vec![0; HASHED_BYTES];
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
            size_bytes += read as u64;
        }
        let sha256 = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, sha256, size_bytes })
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
        let ours = File::open(SELF)
            .and_then(|file| Program::of(SELF.into(), file))
            .map_err(|error| unread(Path::new(SELF), error))?;
        let own = std::fs::read_link(SELF).unwrap_or_default();
        let directory = own.parent().unwrap_or(Path::new("/"));
        Ok(Self { ours, others: beside(directory, std::env::consts::ARCH) })
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {}", self.ours.sha256, self.ours.size_bytes);
        for (machine, Program { sha256, size_bytes, .. }) in &self.others {
            machine.names.iter().for_each(|name| line.push_str(&format!(" {name} {sha256} {size_bytes}")));
        }
        line + "\n"
    }

    /// The bytes of the program for a far side; none where no program is for it.
    pub(super) fn take_for(self, system: &str, machine: &str) -> Result<Option<Vec<u8>>, Error> {
        if system != "Linux" {
            return Ok(None);
        }
        let is_it = |of: &Machine| of.names.contains(&machine);
        let is_ours = machine == std::env::consts::ARCH
            || MACHINES.iter().any(|of| is_it(of) && of.names[0] == std::env::consts::ARCH);
        let (path, file) = if is_ours {
            let file = File::open(&self.ours.path);
            (self.ours.path, file)
        } else if let Some((_, other)) = self.others.into_iter().find(|(of, _)| is_it(of)) {
            let file = open_trusted(&other.path);
            (other.path, file)
        } else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        // If the file has changed, the far side finds a wrong hash and runs nothing.
        file.and_then(|file| file.take(MAX_PROGRAM_BYTES).read_to_end(&mut bytes))
            .map_err(|error| unread(&path, error))?;
        Ok(Some(bytes))
    }
}

fn unread(path: &Path, error: io::Error) -> Error {
    let name = if path == Path::new(SELF) { "our own program".into() } else { path.display().to_string() };
    Error::new(Fault::Install, format!("cannot read {name}")).because(error)
}

fn beside(directory: &Path, own: &str) -> Vec<(&'static Machine, Program)> {
    let mut found = Vec::new();
    for machine in MACHINES.iter().filter(|machine| machine.names[0] != own) {
        let name = format!("haul-{}", machine.names[0]);
        for path in [directory.join(&name), directory.join("../lib/haul").join(&name)] {
            let Ok(file) = open_trusted(&path) else { continue };
            if elf_machine(&file) != Some(machine.elf) {
                continue;
            }
            if let Ok(program) = Program::of(path, file) {
                found.push((machine, program));
                break;
            }
        }
    }
    found
}

/// Opens a program that only we, root, or the owner of the running program could have put there.
fn open_trusted(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let facts = file.metadata()?;
    let ours = std::fs::metadata(SELF)?;
    let is_trusted = [effective_user(), 0, ours.uid()].contains(&facts.uid());
    if !facts.is_file() || !is_trusted || facts.mode() & OTHERS_WRITE & !ours.mode() != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

fn elf_machine(file: &File) -> Option<u16> {
    let mut header = [0; 20];
    file.read_exact_at(&mut header, 0).ok()?;
    header.starts_with(b"\x7fELF").then(|| u16::from_le_bytes([header[18], header[19]]))
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
        let own = root.path().join("own");
        std::fs::write(&own, "ours").unwrap();
        let ours = || Program::of(own.clone(), File::open(&own).unwrap()).unwrap();
        let find = |machine| Programs { ours: ours(), others: beside(&bin, machine) };
        let line = find("x86_64").line();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!([words[1], words[2], words[4], words[5], words[8]], ["4", "aarch64", "23", "arm64", "riscv64"]);
        assert_eq!(words.len(), 2 + 3 * 3);
        let taken = |system, machine| find("x86_64").take_for(system, machine).unwrap();
        assert_eq!(taken("Linux", "arm64"), Some(program(183, "arm")));
        assert_eq!(taken("Linux", "riscv64"), Some(program(243, "risc")));
        assert_eq!(taken("Linux", std::env::consts::ARCH).as_deref(), Some(&b"ours"[..]));
        assert_eq!(taken("FreeBSD", std::env::consts::ARCH), None);
        assert_eq!(taken("Linux", "ppc64le"), None);
        std::fs::set_permissions(bin.join("haul-aarch64"), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(find("x86_64").take_for("Linux", "arm64").unwrap(), None);
    }
}

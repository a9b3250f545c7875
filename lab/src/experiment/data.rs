//! Makes incompressible files, equal for the same seed, and compares copies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::{ExperimentError, file, wrong};
use super::spec::DataSpec;
use crate::units::Size;
use crate::{limits, uml};

#[derive(Clone, Debug)]
pub(super) struct DataSet {
    pub(super) dir: PathBuf,
    pub(super) names: Vec<String>,
    pub(super) bytes: u64,
}

impl DataSet {
    /// Makes the data set below `work`, or finds an earlier run's.
    pub(super) fn make(work: &Path, spec: &DataSpec, seed: u64) -> Result<DataSet, ExperimentError> {
        let names: Vec<String> = (0..spec.files).map(|number| format!("f{number:05}.bin")).collect();
        let dir = work.join(format!("data-{}x{}-seed{seed}", spec.files, spec.size.bytes));
        let bytes = spec.bytes();
        if dir.is_dir() {
            return Ok(DataSet { dir, names, bytes });
        }
        // The final name means that the data set is whole.
        let part = work.join(format!("data-part-{}", std::process::id()));
        fs::create_dir_all(&part).map_err(file("make", &part))?;
        for (number, name) in names.iter().enumerate() {
            let path = part.join(name);
            write_file(&path, spec.size.bytes, seed, number as u64).map_err(file("write", &path))?;
        }
        // Servers that give up their rights must read it.
        fs::set_permissions(&part, fs::Permissions::from_mode(0o755)).map_err(file("open up", &part))?;
        fs::rename(&part, &dir).map_err(file("name", &dir))?;
        Ok(DataSet { dir, names, bytes })
    }

    pub(super) fn path(&self) -> PathBuf {
        match self.names.as_slice() {
            [only] => self.dir.join(only),
            _ => self.dir.clone(),
        }
    }

    /// Compares all files below `target`, also in a tool's own directory; no others may stand there.
    pub(super) fn compare(&self, target: &Path) -> io::Result<Result<(), String>> {
        let mut found = BTreeMap::new();
        collect(target, &mut found)?;
        let (mut left, mut right) = (vec![0; limits::COMPARE_BLOCK_BYTES], vec![0; limits::COMPARE_BLOCK_BYTES]);
        for name in &self.names {
            let Some(copy) = found.remove(name) else {
                return Ok(Err(format!("{name} is missing in the target")));
            };
            if let Some(at) = difference(&self.dir.join(name), &copy, &mut left, &mut right)? {
                return Ok(Err(format!("{name} differs from the source at byte {at}")));
            }
        }
        Ok(match found.keys().next() {
            Some(name) => Err(format!("{name} is in the target and not in the source")),
            None => Ok(()),
        })
    }
}

/// Checks the room below `work`, and with `copied` for a copy. A file system in memory claims more than there is.
pub(super) fn check_room(work: &Path, spec: &DataSpec, copied: bool) -> Result<(), ExperimentError> {
    let file_system = || rustix::fs::statfs(work).map_err(io::Error::from);
    let found = file_system().map_err(file("look at", work))?;
    let mut room = u64::try_from(found.f_bsize).unwrap_or(0).saturating_mul(found.f_bavail);
    if found.f_type == TMPFS_MAGIC {
        room = room.min(uml::available_memory().bytes.saturating_sub(limits::LEAST_MEMORY_LEFT_BYTES));
    }
    let wanted = spec.bytes().saturating_mul(1 + u64::from(copied));
    match wanted <= room {
        true => Ok(()),
        false => {
            let (wanted, room) = (Size { bytes: wanted }, Size { bytes: room });
            let why = format!(
                "data and copy take {wanted} there, and {room} are free: ask for less with --size, or name a directory with --work"
            );
            Err(wrong(work.display().to_string(), why))
        }
    }
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// BLAKE3's tree gives random bytes as fast as memory.
fn write_file(path: &Path, bytes: u64, seed: u64, number: u64) -> io::Result<()> {
    let mut hasher = blake3::Hasher::new_derive_key("haul-lab experiment data v1");
    hasher.update(&seed.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    let mut stream = hasher.finalize_xof();
    let mut out = File::create(path)?;
    let mut block = vec![0; limits::COMPARE_BLOCK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        stream.fill(&mut block[..length]);
        out.write_all(&block[..length])?;
        left -= length as u64;
    }
    out.set_permissions(fs::Permissions::from_mode(0o644))
}

fn collect(dir: &Path, found: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), found)?,
            false => {
                found.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
            }
        }
    }
    Ok(())
}

/// Offset of the first different byte, or the length of a file that begins the other.
fn difference(one: &Path, other: &Path, left: &mut [u8], right: &mut [u8]) -> io::Result<Option<u64>> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let mut at = 0u64;
    loop {
        let (a, b) = (read_full(&mut one, left)?, read_full(&mut other, right)?);
        let (a, b) = (&left[..a], &right[..b]);
        if a != b {
            let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            return Ok(Some(at + same as u64));
        }
        if a.is_empty() {
            return Ok(None);
        }
        at += a.len() as u64;
    }
}

fn read_full(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..])? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    #[test]
    fn data_is_the_same_for_the_same_seed_and_copies_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let spec = DataSpec { files: 2, size: Size { bytes: 1_500_000 } };
        let data = DataSet::make(dir.path(), &spec, 7).unwrap();
        let again = tempfile::tempdir().unwrap();
        let same = DataSet::make(again.path(), &spec, 7).unwrap();
        assert_eq!(data.compare(&same.dir).unwrap(), Ok(()));

        let copy = same.dir.join("f00001.bin");
        let mut bytes = fs::read(&copy).unwrap();
        bytes[1_234_567] ^= 1;
        fs::write(&copy, &bytes).unwrap();
        assert_eq!(data.compare(&same.dir).unwrap(), Err("f00001.bin differs from the source at byte 1234567".into()));
        fs::write(&copy, &fs::read(data.dir.join("f00001.bin")).unwrap()[..1_400_000]).unwrap();
        assert_eq!(data.compare(&same.dir).unwrap(), Err("f00001.bin differs from the source at byte 1400000".into()));
        fs::remove_file(&copy).unwrap();
        assert_eq!(data.compare(&same.dir).unwrap(), Err("f00001.bin is missing in the target".into()));
    }
}

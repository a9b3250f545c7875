//! A file in stripes over several directories, as `haul record` writes it: stripe `i` of `n` holds the blocks `i`, `i + n`,
//! `i + 2n` and so on.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_sys::file;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::ends::one_file::{Content, OneFile};
use crate::ends::reading::{FileToRead, SourceFile, SourceTree};
use crate::error::{Context, Result, StoreError, refusal};
use crate::meta::{STAT_BLOCK_BYTES, Stat, Time, Version};
use crate::regular_file::{self, READ_FLAGS};

/// The stripes of one file, open for reading.
#[derive(Debug)]
pub struct Striped {
    stripes: Vec<OwnedFd>,
    block_bytes: u64,
    size: u64,
}

/// The bytes of one of the stripes of a file.
pub fn stripe_bytes(size: u64, block_bytes: u64, stripes: u64, number: u64) -> u64 {
    let (blocks, rest) = (size / block_bytes, size % block_bytes);
    let whole = blocks / stripes + u64::from(number < blocks % stripes);
    whole * block_bytes + if number == blocks % stripes { rest } else { 0 }
}

impl Striped {
    /// Opens each stripe by name: a regular file in exactly one directory, not behind a link, of its share of `size`
    /// (without `exact`: or longer).
    ///
    /// # Panics
    /// If `names` is empty or `block_bytes` is 0.
    pub fn find(
        directories: &[PathBuf],
        names: &[String],
        block_bytes: u64,
        size: u64,
        exact: bool,
    ) -> Result<Striped> {
        assert!(!names.is_empty() && block_bytes > 0, "whoever reads the index checks that");
        let mut stripes = Vec::new();
        for (number, name) in (0u64..).zip(names) {
            let (path, stripe) = find(directories, name)?;
            let is = Stat::of_fd(&stripe).context("look at", &path)?.size;
            let wanted = stripe_bytes(size, block_bytes, names.len() as u64, number);
            if is < wanted || (exact && is > wanted) {
                let why = format!("it has {is} bytes, and the recording says {wanted}");
                return Err(StoreError::new("use", &path, io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            stripes.push(stripe);
        }
        Ok(Striped { stripes, block_bytes, size })
    }

    /// Makes this file a source.
    pub fn into_source(self, name: &str) -> Result<Arc<dyn SourceTree>> {
        let name = name.as_bytes().to_vec();
        let stat = self.stat().context("look at", &name)?;
        Ok(Arc::new(OneFile { typed: name.clone(), name, stat, content: Stripes(Arc::new(self)) }))
    }

    /// Makes the other disks read the next blocks meanwhile: one by one they would be as slow as one.
    fn announce(&self, first: u64) {
        for block in first..first + self.stripes.len() as u64 - 1 {
            let (stripe, start) = self.place(block);
            file::will_need(stripe.as_fd(), start, self.block_bytes);
        }
    }

    fn place(&self, block: u64) -> (&OwnedFd, u64) {
        let stripes = self.stripes.len() as u64;
        let stripe = usize::try_from(block % stripes).expect("one of them");
        (&self.stripes[stripe], block / stripes * self.block_bytes)
    }
}

/// Stripes have no common descriptor, and no holes: their bytes are copied.
impl FileToRead for Striped {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let (block, within) = (at / self.block_bytes, at % self.block_bytes);
            if within == 0 {
                self.announce(block + 1);
            }
            let left = usize::try_from(self.block_bytes - within).unwrap_or(usize::MAX);
            let part = left.min(wanted - done);
            let (stripe, start) = self.place(block);
            let read = file::read_full_at(stripe.as_fd(), &mut buffer[done..done + part], start + within)?;
            done += read;
            if read < part {
                break;
            }
        }
        Ok(done)
    }

    /// The metadata as of one full file: the stripes' newest times, all else from the first. Fails if a stripe was cut: the
    /// rest must not pass for the whole.
    fn stat(&self) -> io::Result<Stat> {
        let mut all = Stat::of_fd(&self.stripes[0])?;
        let newest = |a: Time, b: Time| a.max(b);
        for (number, stripe) in (0u64..).zip(&self.stripes) {
            let stat = Stat::of_fd(stripe)?;
            all.mtime = newest(all.mtime, stat.mtime);
            all.version = Version::new(newest(all.version.changed(), stat.version.changed()), all.version.file());
            if stat.size < stripe_bytes(self.size, self.block_bytes, self.stripes.len() as u64, number) {
                return Err(refusal(io::ErrorKind::UnexpectedEof, "one of its stripes was cut"));
            }
        }
        Ok(Stat { size: self.size, blocks: self.size.div_ceil(STAT_BLOCK_BYTES), ..all })
    }
}

#[derive(Debug)]
struct Stripes(Arc<Striped>);

impl Content for Stripes {
    fn open(&self) -> io::Result<SourceFile> {
        Ok(SourceFile::Other(self.0.clone()))
    }
}

fn find(directories: &[PathBuf], name: &str) -> Result<(Vec<u8>, OwnedFd)> {
    let mut found: Option<(Vec<u8>, OwnedFd)> = None;
    for directory in directories {
        let path = directory.join(name);
        let bytes = path.as_os_str().as_bytes().to_vec();
        match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::new("open", &bytes, error)),
            Ok(_) if found.is_some() => {
                let why = "it stands in another of the directories, too";
                return Err(StoreError::new("use", &bytes, refusal(io::ErrorKind::InvalidInput, why)));
            }
            Ok(stripe) => found = Some((bytes, stripe)),
        }
    }
    found.ok_or_else(|| {
        let why = "it is in none of the directories that were named with --stripe-dir";
        StoreError::new("find the stripe", name.as_bytes(), refusal(io::ErrorKind::NotFound, why))
    })
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let opened = rustix::io::retry_on_intr(|| rustix::fs::open(path, READ_FLAGS, Mode::empty()));
    let stripe = match opened {
        Err(Errno::LOOP) => return Err(refusal(io::ErrorKind::InvalidInput, "it is a symbolic link")),
        opened => opened?,
    };
    regular_file::check(&Stat::of_fd(&stripe)?)?;
    Ok(stripe)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_dealt_out_in_blocks_reads_back_as_one_file(
            size in 0usize..5000, block in 1u64..700, stripes in 1usize..5, offset in 0usize..5000, wanted in 0usize..3000
        ) {
            let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let dirs: Vec<_> = (0..stripes).map(|_| tempfile::tempdir().unwrap()).collect();
            let names: Vec<String> = (0..stripes).map(|number| format!("s{number}")).collect();
            for (number, (dir, name)) in dirs.iter().zip(&names).enumerate() {
                let blocks = data.chunks(block as usize).skip(number).step_by(stripes);
                let bytes: Vec<u8> = blocks.flatten().copied().collect();
                prop_assert_eq!(bytes.len() as u64, stripe_bytes(size as u64, block, stripes as u64, number as u64));
                std::fs::write(dir.path().join(name), bytes).unwrap();
            }
            let directories: Vec<PathBuf> = dirs.iter().rev().map(|dir| dir.path().to_owned()).collect();
            let striped = Striped::find(&directories, &names, block, size as u64, true).unwrap();
            let mut buffer = vec![0; wanted];
            let read = striped.read_at(&mut buffer, offset as u64).unwrap();
            let expected = &data[offset.min(size)..(offset + wanted).min(size).max(offset.min(size))];
            prop_assert!(&buffer[..read] == expected);
            prop_assert_eq!(striped.stat().unwrap().size, size as u64);
        }
    }

    #[test]
    fn a_stripe_that_is_missing_doubled_linked_or_of_another_length_is_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names = ["s0".to_owned(), "s1".to_owned()];
        let directories = [one.path().to_owned(), two.path().to_owned()];
        let find = |size, exact| Striped::find(&directories, &names, 10, size, exact).map(drop);
        let why = |size, exact| find(size, exact).unwrap_err().to_string();
        std::fs::write(one.path().join("s0"), [1; 10]).unwrap();
        assert!(why(15, true).contains("--stripe-dir"), "{}", why(15, true));
        std::fs::write(two.path().join("s1"), [2; 5]).unwrap();
        find(15, true).unwrap();
        assert!(why(16, true).contains("5 bytes") && why(14, true).contains("says 4"));
        find(14, false).unwrap();
        std::fs::write(one.path().join("s1"), [2; 5]).unwrap();
        assert!(why(15, true).contains("another of the directories"));
        std::fs::remove_file(one.path().join("s1")).unwrap();
        std::fs::rename(two.path().join("s1"), two.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", two.path().join("s1")).unwrap();
        assert!(why(15, true).contains("symbolic link"));
        std::fs::remove_file(two.path().join("s1")).unwrap();
        std::fs::create_dir(two.path().join("s1")).unwrap();
        assert!(why(15, true).contains("regular file"));
    }
}

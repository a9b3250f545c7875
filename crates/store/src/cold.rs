//! Reads a large file without growing the page cache.
//!
//! ```text
//! opened -> a map of what the page cache has -> hot stretches: read as ever, from there
//!                                            -> cold ones: past it, or through it and dropped once all of a stretch
//!                                            was read
//! ```

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_sys::cached::CacheProbe;
use haul_sys::direct::DirectSource;
use haul_sys::{file, medium};

use crate::limits::{COLD_STRETCH_BYTES, MAX_COLD_STRETCHES, MISSING_FRACTION};

/// The parts of an open file that the page cache lacks.
#[derive(Debug)]
pub struct ColdMap {
    file: Arc<OwnedFd>,
    size: u64,
    stretch_bytes: u64,
    stretches: Vec<Stretch>,
    direct: io::Result<Arc<DirectSource>>,
}

#[derive(Debug)]
enum Stretch {
    Hot,
    /// The bytes read through the page cache.
    Cold(AtomicU64),
}

impl ColdMap {
    /// Looks at a file once. `None` if the cache needs no protection (file below `from_bytes`, in memory, or wholly cached),
    /// or the kernel does not tell.
    pub(crate) fn of(file: &Arc<OwnedFd>, size: u64, from_bytes: u64) -> Option<ColdMap> {
        if size < from_bytes.max(1) || medium::lies_in_memory(file.as_fd()).unwrap_or(true) {
            return None;
        }
        let stretch_bytes = size.div_ceil(MAX_COLD_STRETCHES).next_power_of_two().max(COLD_STRETCH_BYTES);
        let mut probe = CacheProbe::new(file.as_fd());
        let mut stretches = Vec::new();
        for number in 0..size.div_ceil(stretch_bytes) {
            let start = number * stretch_bytes;
            let len = stretch_bytes.min(size - start);
            let cached = probe.cached_bytes(start, len).ok()?;
            let is_hot = cached.saturating_add(len / MISSING_FRACTION) >= len;
            stretches.push(if is_hot { Stretch::Hot } else { Stretch::Cold(AtomicU64::new(0)) });
        }
        if stretches.iter().all(|stretch| matches!(stretch, Stretch::Hot)) {
            return None;
        }
        let direct = DirectSource::of(file).map(Arc::new);
        Some(ColdMap { file: Arc::clone(file), size, stretch_bytes, stretches, direct })
    }

    /// Whether the page cache lacked a part of the stretch at `offset`.
    pub fn is_cold(&self, offset: u64) -> bool {
        self.count(offset).is_some()
    }

    /// The file for direct reads, or why not.
    pub fn direct(&self) -> Result<&Arc<DirectSource>, String> {
        match &self.direct {
            Ok(direct) if direct.is_refused() => Err("the file system refused a direct read".to_owned()),
            Ok(direct) => Ok(direct),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Notes a read through the page cache within one stretch. A stretch is dropped whole, as the kernel drops large pages.
    pub fn passed(&self, offset: u64, len: u64) {
        let Some(count) = self.count(offset) else { return };
        let (start, stretch_len) = self.range(offset / self.stretch_bytes);
        if count.fetch_add(len, Ordering::Relaxed) + len >= stretch_len {
            file::drop_cache(self.file.as_fd(), start, stretch_len);
        }
    }

    fn count(&self, offset: u64) -> Option<&AtomicU64> {
        match self.stretches.get(usize::try_from(offset / self.stretch_bytes).ok()?)? {
            Stretch::Hot => None,
            Stretch::Cold(count) => Some(count),
        }
    }

    fn range(&self, number: u64) -> (u64, u64) {
        let start = number * self.stretch_bytes;
        (start, self.stretch_bytes.min(self.size - start))
    }
}

impl Drop for ColdMap {
    /// Drops partly read stretches, too: the kernel has read ahead.
    fn drop(&mut self) {
        for (number, stretch) in (0..).zip(&self.stretches) {
            let (start, len) = self.range(number);
            if let Stretch::Cold(count) = stretch
                && (1..len).contains(&count.load(Ordering::Relaxed))
            {
                file::drop_cache(self.file.as_fd(), start, len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::condition::unmet;

    const SIZE: u64 = 2 * COLD_STRETCH_BYTES + 12_345;

    /// A file with its first stretch cached; `None`, with a message, if the kernel does not tell.
    fn first_stretch_cached() -> Option<Arc<OwnedFd>> {
        let file = tempfile::tempfile().unwrap();
        file::write_all_at(file.as_fd(), &vec![3; SIZE as usize], 0).unwrap();
        file::flush_all(file.as_fd()).unwrap();
        file::drop_cache(file.as_fd(), COLD_STRETCH_BYTES, SIZE);
        let can_tell =
            CacheProbe::new(file.as_fd()).cached_bytes(COLD_STRETCH_BYTES, 1 << 20).is_ok_and(|cached| cached == 0);
        if !can_tell || medium::lies_in_memory(file.as_fd()).unwrap() {
            unmet("the temporary directory lies in memory, or nobody says what is cached");
            return None;
        }
        Some(Arc::new(file.into()))
    }

    fn cached(file: &Arc<OwnedFd>, stretch: u64) -> u64 {
        let start = stretch * COLD_STRETCH_BYTES;
        CacheProbe::new(file.as_fd()).cached_bytes(start, COLD_STRETCH_BYTES.min(SIZE - start)).unwrap()
    }

    #[test]
    fn hot_and_cold_stretches_of_a_large_file_are_told_apart() {
        let Some(file) = first_stretch_cached() else { return };
        assert!(ColdMap::of(&file, SIZE, SIZE + 1).is_none(), "a small file is read as ever");
        let map = ColdMap::of(&file, SIZE, SIZE).unwrap();
        let cold = [0, COLD_STRETCH_BYTES - 1, COLD_STRETCH_BYTES, SIZE - 1, 3 * COLD_STRETCH_BYTES];
        assert_eq!(cold.map(|offset| map.is_cold(offset)), [false, false, true, true, false]);
        if let Err(why) = map.direct() {
            eprintln!("no direct reads here: {why}");
        }
    }

    #[test]
    fn a_file_in_the_page_cache_is_read_from_there() {
        let Some(file) = first_stretch_cached() else { return };
        file::read_full_at(file.as_fd(), &mut vec![0; SIZE as usize], 0).unwrap();
        assert!(ColdMap::of(&file, SIZE, 1).is_none());
    }

    #[test]
    fn what_was_read_through_the_page_cache_is_dropped_with_its_stretch_and_at_the_end() {
        let Some(file) = first_stretch_cached() else { return };
        let map = ColdMap::of(&file, SIZE, 1).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let read_all_but_the_last = |buffer: &mut [u8]| {
            for at in (COLD_STRETCH_BYTES..2 * COLD_STRETCH_BYTES - (1 << 20)).step_by(1 << 20) {
                file::read_full_at(file.as_fd(), buffer, at).unwrap();
                map.passed(at, 1 << 20);
            }
        };
        read_all_but_the_last(&mut buffer);
        assert!(cached(&file, 1) >= COLD_STRETCH_BYTES - (1 << 20), "others may still need it");
        file::read_full_at(file.as_fd(), &mut buffer, 2 * COLD_STRETCH_BYTES - (1 << 20)).unwrap();
        map.passed(2 * COLD_STRETCH_BYTES - (1 << 20), 1 << 20);
        assert_eq!(cached(&file, 1), 0);
        file::read_full_at(file.as_fd(), &mut buffer[..100], 2 * COLD_STRETCH_BYTES).unwrap();
        map.passed(2 * COLD_STRETCH_BYTES, 100);
        assert!(cached(&file, 2) > 0);
        drop(map);
        assert_eq!((cached(&file, 0), cached(&file, 2)), (COLD_STRETCH_BYTES, 0), "what was hot stays");
    }

    #[test]
    fn a_file_in_memory_has_no_map() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return unmet("no /dev/shm") };
        if !medium::lies_in_memory(file.as_fd()).unwrap() {
            return unmet("/dev/shm is no memory");
        }
        assert!(ColdMap::of(&Arc::new(file.into()), 1 << 30, 1).is_none());
    }
}

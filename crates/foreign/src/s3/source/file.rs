//! An object as a file, compared with the store's CRC64NVME of the whole.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_store::{FileToRead, Stat};

use crate::http_client::client::invalid;
use crate::s3::source::content::Content;
use crate::s3::source::opened::Object;
use crate::s3::sums::{Ranges, text};
use crate::web::file::RemoteFile;

/// A file that is compared once all was read.
#[derive(Debug)]
pub(in crate::s3) struct SummedFile {
    file: RemoteFile,
    size: u64,
    crc64: Option<String>,
    content: Option<Arc<Content>>,
    seen: Mutex<Seen>,
    uncompared: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Seen {
    ranges: Ranges,
    is_read: bool,
    is_compared: bool,
}

impl SummedFile {
    /// `uncompared` counts files that were read and not compared.
    pub(in crate::s3) fn new(file: RemoteFile, object: Object, uncompared: Arc<AtomicU64>) -> SummedFile {
        let Object { version, crc64, content, .. } = object;
        SummedFile { file, size: version.size, crc64, content, seen: Mutex::default(), uncompared }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileToRead for SummedFile {
    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn reads_on(&self, start: u64, end: u64) {
        self.file.reads_on(start, end);
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = match &self.content {
            Some(content) => content.read_at(buffer, offset),
            None => self.file.read_at(buffer, offset)?,
        };
        let longer = {
            let mut seen = self.seen();
            seen.is_read |= read > 0;
            if seen.is_compared || self.crc64.is_none() { None } else { seen.ranges.take(offset, read as u64) }
        };
        let (Some(of_store), Some(mut longer)) = (&self.crc64, longer) else { return Ok(read) };
        // Lanes read at once, so none waits for another's sum.
        longer.add(&buffer[..read]);
        let mut seen = self.seen();
        seen.ranges.put(longer);
        let Some(sum) = seen.ranges.of_whole(self.size) else { return Ok(read) };
        if text(sum) != *of_store {
            return Err(invalid("what was read has another CRC64NVME than the store keeps of it".to_owned()));
        }
        seen.is_compared = true;
        Ok(read)
    }
}

impl Drop for SummedFile {
    fn drop(&mut self) {
        let seen = self.seen();
        if seen.is_read && !seen.is_compared {
            self.uncompared.fetch_add(1, Ordering::Relaxed);
        }
    }
}

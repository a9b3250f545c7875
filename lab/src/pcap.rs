//! Writes packets for tcpdump (draft-ietf-opsawg-pcap; link type 101 is bare IP).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// A capture file.
#[derive(Debug)]
pub struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    /// Begins a file, over an existing one.
    pub fn create(path: &Path) -> io::Result<Capture> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        file.write_all(&[2, 0, 4, 0])?;
        file.write_all(&[0; 8])?;
        file.write_all(&SNAP_BYTES.to_le_bytes())?;
        file.write_all(&LINK_TYPE_RAW_IP.to_le_bytes())?;
        Ok(Capture { file })
    }

    /// Adds a packet; `at` counts from 1970.
    pub fn packet(&mut self, at: Duration, ip: &[u8]) -> io::Result<()> {
        let kept = &ip[..ip.len().min(SNAP_BYTES as usize)];
        let s = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        self.file.write_all(&s.to_le_bytes())?;
        self.file.write_all(&at.subsec_nanos().to_le_bytes())?;
        self.file.write_all(&length(kept))?;
        self.file.write_all(&length(ip))?;
        self.file.write_all(kept)
    }

    /// Writes out the buffer.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINK_TYPE_RAW_IP: u32 = 101;
/// All headers, and enough to recognise the rest.
const SNAP_BYTES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_header_and_its_records() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut capture = Capture::create(path.path()).unwrap();
        capture.packet(Duration::new(7, 9), &[0x45; 300]).unwrap();
        capture.finish().unwrap();
        let bytes = std::fs::read(path.path()).unwrap();
        assert_eq!(bytes.len(), 24 + 16 + 256);
        assert_eq!(bytes[24..40], [7, 0, 0, 0, 9, 0, 0, 0, 0, 1, 0, 0, 44, 1, 0, 0]);
    }
}

//! BLAKE3 of a file that is already there: for `--checksum`, and for files that are kept when a manifest is wanted.

use std::io;

use haul_store::SourceFile;
use haul_wire::limits::BLOCK_BYTES;

/// Reads the file to its end. The size it had when it was listed must be the size it has.
pub(crate) fn whole_file(file: &SourceFile, size: u64) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut block, offset)?;
        hasher.update(&block[..read]);
        offset += read as u64;
        if read < block.len() {
            break;
        }
    }
    if offset != size {
        return Err(io::Error::other("it changed while it was read"));
    }
    Ok(*hasher.finalize().as_bytes())
}

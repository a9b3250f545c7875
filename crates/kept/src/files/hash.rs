//! Computes BLAKE3 of files: for `haul verify`, `--checksum`, manifests, and data of earlier runs.

use std::io;

use haul_engine::front_to_back::FileHasher;
use haul_engine::integrity::{Hash, UnitHasher};
use haul_engine::plan::ChunkLayout;
use haul_engine::zeros;
use haul_store::{Draft, SourceFile};
use haul_wire::limits::BLOCK_BYTES;

use crate::files::sparse;

/// Hashes a whole file, until `is_over`. Fails unless it has the listed size.
pub fn whole_file(file: &SourceFile, size: u64, is_over: &dyn Fn() -> bool) -> io::Result<Hash> {
    match front_to_back(file, size, &mut vec![0; BLOCK_BYTES], |_| !is_over())? {
        Found::All(hash) => Ok(hash),
        Found::OtherSize(_) => Err(io::Error::other("it changed while it was read")),
        Found::Stopped => Err(io::Error::other("the session ended while it was read")),
    }
}

/// The outcome of hashing.
pub enum Found {
    /// BLAKE3.
    All(Hash),
    /// The file has another size: this one, or more if it has grown.
    OtherSize(u64),
    /// The callback ended the reading.
    Stopped,
}

/// Hashes a file of `size` bytes, without holes of whole blocks (see [`zeros`]). `goes_on` gets each piece's bytes; false ends
/// the reading.
pub fn front_to_back(
    file: &SourceFile,
    size: u64,
    buffer: &mut [u8],
    mut goes_on: impl FnMut(u64) -> bool,
) -> io::Result<Found> {
    let sparse = sparse::is_sparse(&file.stat()?);
    let mut hasher = FileHasher::default();
    let mut offset = 0;
    let mut hole_until = 0;
    while offset <= size {
        if sparse && offset < size && hole_until <= offset && offset.is_multiple_of(zeros::BLOCK_BYTES) {
            hole_until = file.next_data(offset, size)?.map_or(size, |(start, _)| start);
        }
        let hole = [FileHasher::skippable(offset), zeros::BLOCK_BYTES]
            .into_iter()
            .find(|length| offset.is_multiple_of(zeros::BLOCK_BYTES) && offset.saturating_add(*length) <= hole_until);
        let bytes = if let Some(length) = hole {
            hasher.skip(length);
            length
        } else {
            let room = zeros::BLOCK_BYTES - offset % zeros::BLOCK_BYTES;
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
            let read = file.read_at(&mut buffer[..room], offset)?;
            hasher.update(&buffer[..read]);
            read as u64
        };
        if bytes == 0 {
            break;
        }
        offset += bytes;
        if !goes_on(bytes) {
            return Ok(Found::Stopped);
        }
    }
    // A file that was cut shows only a hole behind its end.
    let found = if offset == size { file.stat()?.size } else { offset };
    Ok(if found == size { Found::All(hasher.finish()) } else { Found::OtherSize(found) })
}

/// Hashes a chunk. `None`: the part ends before, cannot be read, or the session is over.
pub fn chunk(part: &Draft, layout: &ChunkLayout, chunk: u32, is_over: &dyn Fn() -> bool) -> Option<Hash> {
    let (start, length) = layout.range(chunk)?;
    let mut hasher = UnitHasher::new(layout, chunk);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut done = 0;
    while done < length {
        let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(buffer.len());
        let read = part.read_at(&mut buffer[..wanted], start + done).ok()?;
        if read < wanted || is_over() {
            return None;
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use haul_store::{LocalTree, TargetOptions};

    use super::*;

    #[test]
    fn holes_are_not_read_and_the_hash_is_that_of_all_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let size = 3 * zeros::BLOCK_BYTES + 12_345;
        let made = std::fs::File::create(dir.path().join("file")).unwrap();
        made.set_len(size).unwrap();
        for at in [zeros::BLOCK_BYTES + 5, size - 100] {
            made.write_all_at(b"data", at).unwrap();
        }
        let expected = *blake3::hash(&std::fs::read(dir.path().join("file")).unwrap()).as_bytes();
        let (tree, _) = LocalTree::open(dir.path().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap();
        let file = tree.open_file(b"file").unwrap();
        assert_eq!(whole_file(&file, size, &|| false).unwrap(), expected);
        assert!(whole_file(&file, size, &|| true).is_err(), "the session is over");
        let mut told = Vec::new();
        let read = front_to_back(&file, size, &mut vec![0; 1 << 20], |bytes| {
            told.push(bytes);
            true
        });
        assert!(matches!(read, Ok(Found::All(hash)) if hash == expected));
        if sparse::is_sparse(&file.stat().unwrap()) {
            assert_eq!(told.iter().filter(|bytes| **bytes == zeros::BLOCK_BYTES).count(), 2, "{told:?}");
        }
        for other in [size - 1, size + 1, zeros::BLOCK_BYTES, 4 * zeros::BLOCK_BYTES] {
            assert!(whole_file(&file, other, &|| false).is_err(), "{other}");
        }
    }
}

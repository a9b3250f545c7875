//! Tells whether a file has holes, and their size.

use haul_store::{SourceFile, Stat};
use haul_wire::limits::MIN_CHUNK_BYTES;

/// Whether a file takes less than its size, by holes or compression; a look costs little.
pub fn is_sparse(stat: &Stat) -> bool {
    hole_bytes(stat) > 0
}

/// The holes' size, unless compressed.
pub fn hole_bytes(stat: &Stat) -> u64 {
    stat.size.saturating_sub(stat.blocks.saturating_mul(512))
}

/// The holes' size by the file system, or by blocks if small or many.
pub fn look(stat: &Stat, open: impl FnOnce() -> Option<SourceFile>) -> u64 {
    let by_size = hole_bytes(stat);
    if by_size == 0 || stat.size < MIN_CHUNK_BYTES {
        return by_size;
    }
    let Some(file) = open() else { return by_size };
    let (mut data_bytes, mut offset) = (0, 0);
    for _ in 0..MAX_EXTENTS {
        match file.next_data(offset, stat.size) {
            Ok(Some((start, end))) if end > offset && start < end => {
                data_bytes += end - start;
                offset = end;
            }
            Ok(None) => return stat.size.saturating_sub(data_bytes),
            _ => break,
        }
    }
    by_size
}

/// With more pieces blocks tell as well: lseek(2) costs about a microsecond each.
const MAX_EXTENTS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use haul_store::{ResolveOptions, SourceSet, SourceTree};

    use super::*;

    #[test]
    fn holes_are_counted_as_the_file_system_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
        file.set_len(100 << 20).unwrap();
        file.write_all_at(&[7; 1 << 20], 50 << 20).unwrap();
        file.sync_all().unwrap();
        let path = dir.path().join("sparse").into_os_string().into_encoded_bytes();
        let sources = SourceSet::resolve(&[path], &ResolveOptions::default()).unwrap();
        let sources: Arc<dyn SourceTree> = Arc::new(sources);
        let open = || sources.open(0, sources.name_of_single_file()).ok();
        let stat = open().unwrap().stat().unwrap();
        assert_eq!(look(&stat, open), 99 << 20);
        let whole = Stat { size: 50 << 20, ..stat.clone() };
        assert_eq!(look(&whole, || None), hole_bytes(&whole));
        assert_eq!(look(&Stat { blocks: u64::MAX, ..stat }, || unreachable!()), 0);
    }
}

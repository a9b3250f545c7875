//! Where the program under test is.

use std::path::{Path, PathBuf};

/// The program under test: `HAUL_BIN`, else the release build that belongs to this test binary, if there is one.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HAUL_BIN") {
        let path = std::path::absolute(&named).ok()?;
        assert!(path.is_file(), "HAUL_BIN names {}, which is not a file", path.display());
        return Some(path);
    }
    beside(&std::env::current_exe().ok()?)
}

/// `target/[<triple>/]debug/deps/scenarios-…` -> `target/[<triple>/]release/haul`.
fn beside(test_binary: &Path) -> Option<PathBuf> {
    test_binary.ancestors().skip(1).take(4).map(|dir| dir.join("release/haul")).find(|path| path.is_file())
}

//! Finds the programs under test.

use std::path::{Path, PathBuf};

/// The program under test: `HAUL_BIN`, else this test binary's release build.
pub fn find() -> Option<PathBuf> {
    named("HAUL_BIN").or_else(|| beside(&std::env::current_exe().ok()?, "haul"))
}

/// The network in a box: `HAUL_LAB_BIN`, else the release build.
pub fn find_lab() -> Option<PathBuf> {
    named("HAUL_LAB_BIN").or_else(|| beside(&std::env::current_exe().ok()?, "haul-lab"))
}

/// Copies the programs into a directory.
#[track_caller]
pub fn gather(programs: &Path) {
    std::fs::create_dir(programs).expect("own directory");
    for (name, program) in [("haul", find()), ("haul-lab", find_lab())] {
        if let Some(program) = program {
            std::fs::copy(&program, programs.join(name)).expect("space for the programs");
        }
    }
}

fn named(variable: &str) -> Option<PathBuf> {
    let typed = PathBuf::from(std::env::var_os(variable)?);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(typed);
    assert!(path.is_file(), "{variable} names {}, which is not a file", path.display());
    Some(path)
}

/// `target/[<triple>/]debug/deps/scenarios-...` -> `target/[<triple>/]release/haul`.
fn beside(test_binary: &Path, name: &str) -> Option<PathBuf> {
    let program = Path::new("release").join(name);
    test_binary.ancestors().skip(1).take(4).map(|dir| dir.join(&program)).find(|path| path.is_file())
}

//! The scenarios of an end that is looked at one path at a time, over OpenSSH's sftp-server.

// The scenarios name these by `crate`.
use haul_store::{Listed, PlaceTree, place};

#[path = "../../store/tests/conformance/place.rs"]
mod place_conformance;
mod servers;

use std::sync::Arc;

use haul_sftp::SftpPlace;
use place_conformance::{Place, place_conforms};

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("directory")).unwrap();
    std::fs::write(path("directory/inner"), "more data").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("file"), "data").unwrap();
    let tree = SftpPlace::new(servers::pool(dir.path(), None), Box::new(drop));
    Place { tree: Arc::new(tree), root: b".".to_vec(), writes: true, _held: Box::new(dir) }
}

place_conforms! { place }

//! The scenarios that every end must pass, over OpenSSH's sftp-server.

// The scenarios name these by `crate`.
use haul_store::{
    Abilities, Draft, EntryKind, Filter, Found, FoundEntry, Kind, Metadata, SourceNames, SourceTree, Stat, TargetTree,
    Time, WalkOptions,
};

#[path = "../../store/tests/conformance/mod.rs"]
mod conformance;
mod servers;

use std::sync::Arc;

use conformance::{Bench, Reading, source_conforms, target_conforms};
use haul_sftp::{OpenOptions, SftpSource, SftpTarget};

fn reading() -> Reading {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("directory")).unwrap();
    std::fs::write(path("directory/file"), vec![7; 900_000]).unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("small"), "data").unwrap();
    let (tree, missing) = SftpSource::find(servers::pool(dir.path(), None), &[b".".to_vec()]).unwrap();
    assert!(missing.is_empty());
    Reading { tree: Arc::new(tree), _held: Box::new(dir) }
}

source_conforms! { reading }

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let pool = servers::pool(dir.path(), None);
    let (target, name) = SftpTarget::open(Arc::clone(&pool), b".", OpenOptions::default(), Box::new(drop)).unwrap();
    assert_eq!(name, None);
    let source =
        move || -> Arc<dyn SourceTree> { Arc::new(SftpSource::find(Arc::clone(&pool), &[b"./".to_vec()]).unwrap().0) };
    Bench { target: Arc::new(target), source: Box::new(source), _held: Box::new(dir) }
}

target_conforms! { bench }

//! The ends of this crate: each passes the scenarios.

use std::sync::Arc;

use crate::{
    LocalTree, Metadata, Nowhere, ResolveOptions, SourceSet, SourceTree, Striped, TargetOptions, TargetTree as _,
};

use crate::conformance::{Bench, Reading, source_conforms, target_conforms};

mod local_disk {
    use super::*;

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().as_encoded_bytes().to_vec();
        let (target, _) = LocalTree::open(&path, &TargetOptions::default()).unwrap();
        let contents = [&path[..], b"/"].concat();
        let source = move || -> Arc<dyn SourceTree> {
            Arc::new(SourceSet::resolve(std::slice::from_ref(&contents), &ResolveOptions::default()).unwrap())
        };
        Bench { target: Arc::new(target), source: Box::new(source), _held: Box::new(dir) }
    }

    target_conforms! { bench }

    mod as_source {
        use super::*;

        fn reading() -> Reading {
            let bench = bench();
            bench.target.make_dir(b"directory").unwrap();
            let draft = bench.written("directory/with a hole", &[7; 200_000]);
            draft.punch(65_536, 65_536).unwrap();
            draft.commit(&Metadata::default(), true).unwrap();
            bench.file("empty", b"");
            bench.file("small", b"data");
            Reading { tree: (bench.source)(), _held: bench._held }
        }

        source_conforms! { reading }
    }
}

mod zeros {
    use super::*;

    fn reading() -> Reading {
        Reading { tree: crate::zeros(3 << 30).unwrap(), _held: Box::new(()) }
    }

    source_conforms! { reading }
}

mod stripes {
    use super::*;

    fn reading() -> Reading {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let data: Vec<u8> = (0..12_345_u32).map(|at| (at % 251) as u8).collect();
        for (number, dir) in dirs.iter().enumerate() {
            let blocks: Vec<u8> = data.chunks(1000).skip(number).step_by(2).flatten().copied().collect();
            std::fs::write(dir.path().join(format!("s{number}")), blocks).unwrap();
        }
        let directories = [dirs[0].path().to_owned(), dirs[1].path().to_owned()];
        let names = ["s0".to_owned(), "s1".to_owned()];
        let striped = Striped::find(&directories, &names, 1000, data.len() as u64, true).unwrap();
        Reading { tree: striped.into_source("recording").unwrap(), _held: Box::new(dirs) }
    }

    source_conforms! { reading }
}

mod nowhere {
    use super::*;

    #[test]
    fn it_keeps_nothing_and_says_so() {
        assert!(!Nowhere.abilities().keeps);
        assert!(!Nowhere.make_dir(b"directory").unwrap());
        assert_eq!(Nowhere.stat(b"directory").unwrap(), None);
        assert!(Nowhere.new_draft(b"file", false).is_err() && Nowhere.open_file(b"file").unwrap_err().is_vanished());
        assert!(Nowhere.resume_draft(b"file", false).unwrap().is_none());
    }
}

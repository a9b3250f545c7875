//! The scenarios of every end at which people look one path at a time ([`PlaceTree`]), taken in by its path as
//! `place_conformance`, beside the names of `store`.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use crate::place::{Elsewhere, EntryFacts, Grounds, Line, ListOptions, Moved, NodeKind, Removal, SiteBounds};
use crate::{Listed, PlaceTree};

/// A tree with `file` (data), `empty` (nothing), and `directory` with `inner` (more data).
pub(crate) struct Place {
    pub tree: std::sync::Arc<dyn PlaceTree>,
    pub root: Vec<u8>,
    pub writes: bool,
    pub _held: Box<dyn Any>,
}

impl Place {
    fn at(&self, path: &str) -> Vec<u8> {
        path.split('/').fold(self.root.clone(), |directory, name| self.tree.join(&directory, name.as_bytes()))
    }

    fn names(&self, directory: &[u8], facts: bool) -> io::Result<BTreeMap<Vec<u8>, Listed>> {
        let mut names = BTreeMap::new();
        let flow = self.tree.list(directory, true, facts, &mut |name, listed| {
            assert!(names.insert(name.to_vec(), listed.unwrap()).is_none(), "{name:?} is listed twice");
            ControlFlow::Continue(())
        })?;
        assert!(flow.is_continue());
        Ok(names)
    }

    fn data(&self, path: &str) -> io::Result<Vec<u8>> {
        let (file, mut data) = (self.tree.open(&self.at(path))?, vec![0; 1000]);
        let read = file.read_at(&mut data, 0)?;
        data.truncate(read);
        Ok(data)
    }

    fn is_there(&self, path: &str) -> bool {
        match self.tree.facts(&self.at(path), false) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                false
            }
        }
    }
}

fn is_known(facts: &EntryFacts, kind: NodeKind, size: u64) -> bool {
    facts.kind == kind && !facts.lacks.size && facts.size == size
}

pub(crate) fn the_names_of_a_directory_are_listed_with_their_kinds_and_facts(place: &Place) {
    for (directory, expected) in [
        (
            place.root.clone(),
            vec![("directory", NodeKind::Directory), ("empty", NodeKind::File), ("file", NodeKind::File)],
        ),
        (place.at("directory"), vec![("inner", NodeKind::File)]),
    ] {
        for facts in [false, true] {
            let names = place.names(&directory, facts).unwrap();
            let found: Vec<_> =
                names.iter().map(|(name, listed)| (std::str::from_utf8(name).unwrap(), listed.kind())).collect();
            let told: Vec<_> = found
                .iter()
                .zip(&expected)
                .map(|((name, kind), wanted)| match kind {
                    // Some ends tell names alone.
                    NodeKind::Unknown if !facts => (*name, wanted.1),
                    kind => (*name, *kind),
                })
                .collect();
            assert_eq!((found.len(), told), (expected.len(), expected.clone()));
            assert_eq!(
                names.values().all(|listed| matches!(listed, Listed::Facts(_))),
                facts,
                "facts come if they are asked for"
            );
        }
    }
    let Listed::Facts(facts) = &place.names(&place.root, true).unwrap()[&b"file"[..]] else { unreachable!() };
    assert!(is_known(facts, NodeKind::File, 4), "{facts:?}");
}

pub(crate) fn a_listing_that_nobody_wants_any_more_ends(place: &Place) {
    let mut names = 0;
    let flow = place.tree.list(&place.root, true, false, &mut |_, _| {
        names += 1;
        ControlFlow::Break(())
    });
    assert_eq!((flow.unwrap(), names), (ControlFlow::Break(()), 1));
}

pub(crate) fn an_entry_is_looked_at_and_read(place: &Place) {
    assert!(is_known(&place.tree.facts(&place.at("file"), false).unwrap(), NodeKind::File, 4));
    assert!(is_known(&place.tree.facts(&place.at("empty"), true).unwrap(), NodeKind::File, 0));
    assert_eq!(place.tree.facts(&place.at("directory"), false).unwrap().kind, NodeKind::Directory);
    assert_eq!((place.data("file").unwrap(), place.data("empty").unwrap()), (b"data".to_vec(), Vec::new()));
    assert_eq!(place.data("directory/inner").unwrap(), b"more data");
    assert!(place.data("directory").is_err(), "a directory is no file");
}

pub(crate) fn a_file_beneath_a_directory_is_opened_and_nothing_outside_of_it(place: &Place) {
    let file = place.tree.open_beneath(&place.root, b"directory/inner").unwrap();
    assert_eq!(file.stat().unwrap().size, 9);
    let directory = place.at("directory");
    for path in [&b"../file"[..], b"/file", b"./inner", b"inner/../inner", b"a//b", b"inner\0"] {
        assert!(place.tree.open_beneath(&directory, path).is_err(), "{path:?}");
    }
}

pub(crate) fn what_is_missing_is_not_found(place: &Place) {
    let missing = |error: io::Error| assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    missing(place.tree.facts(&place.at("missing"), false).unwrap_err());
    missing(place.data("missing").unwrap_err());
    missing(place.names(&place.at("missing"), false).unwrap_err());
    missing(place.tree.open_beneath(&place.root, b"missing/inner").map(drop).unwrap_err());
}

pub(crate) fn entries_are_made_moved_and_removed_or_that_is_refused(place: &Place) {
    let tree = &place.tree;
    if !place.writes {
        assert!(
            tree.make_directory(&place.at("new")).is_err() && tree.remove_directory(&place.at("directory")).is_err()
        );
        assert!(tree.rename(&place.at("file"), &place.at("new"), false).is_err());
        assert!(tree.remove_files(&[place.at("file")]).iter().all(Result::is_err));
        return assert!(place.is_there("file") && place.is_there("directory/inner") && !place.is_there("new"));
    }
    tree.make_directory(&place.at("new")).unwrap();
    assert_eq!(tree.make_directory(&place.at("new")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(tree.make_directory(&place.at("none/new")).is_err());
    tree.rename(&place.at("file"), &place.at("new/file"), false).unwrap();
    assert!(!place.is_there("file"));
    let kept = tree.rename(&place.at("empty"), &place.at("new/file"), true).unwrap_err();
    assert_eq!((kept.kind(), place.data("new/file").unwrap()), (ErrorKind::AlreadyExists, b"data".to_vec()));
    tree.rename(&place.at("empty"), &place.at("new/file"), false).unwrap();
    assert_eq!(place.data("new/file").unwrap(), b"", "what stood there is replaced");
    tree.rename(&place.at("new"), &place.at("other"), true).unwrap();
    assert!(tree.remove_directory(&place.at("other")).is_err(), "it is not empty");
    let outcomes = tree.remove_files(&[place.at("other/file"), place.at("missing"), place.at("directory/inner")]);
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true],
        "in the order of the paths"
    );
    tree.remove_directory(&place.at("other")).unwrap();
    tree.remove_directory(&place.at("directory")).unwrap();
    assert_eq!(place.names(&place.root, false).unwrap(), BTreeMap::new());
}

pub(crate) fn the_commands_do_what_they_do_on_a_disk(place: &Place) {
    let elsewhere = Elsewhere::new(std::sync::Arc::clone(&place.tree), SiteBounds::default());
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let operand = |grounds: &mut Grounds<'_>, path: &[u8]| grounds.operands(path).unwrap().remove(0);
    let root = operand(&mut grounds, &place.root);
    let mut lines = Vec::new();
    let mut take = |line| {
        lines.push(match line {
            Line::In(path) => format!("in {}", String::from_utf8(path).unwrap()),
            Line::Entry(path, _) | Line::Removed(path) | Line::FileAt(path) => String::from_utf8(path).unwrap(),
            Line::Usage(path, _, bytes) => format!("{} {}", String::from_utf8(path).unwrap(), bytes > 12),
            Line::Busy => return ControlFlow::Continue(()),
            line => panic!("{line:?}"),
        });
        ControlFlow::Continue(())
    };
    let all = ListOptions { recursive: true, hidden: true, facts: true, itself: false };
    let flows = [
        grounds.list(&root, all, &mut take).unwrap(),
        grounds.files(&root, &mut take).unwrap(),
        grounds.usage(&root, false, &mut Default::default(), &mut take).unwrap(),
    ];
    assert!(flows.iter().all(ControlFlow::is_continue));
    let expected = ["in ", "directory", "empty", "file", "in directory", "directory/inner"];
    assert_eq!(lines[..6], expected);
    assert_eq!(lines[6..], ["directory/inner", "empty", "file", " true"]);
    if place.writes {
        let moved = operand(&mut grounds, &place.at("file"));
        let to = place.at("directory");
        assert!(matches!(grounds.rename(&moved, &to, true).unwrap(), Moved::To(path) if path.ends_with(b"/file")));
        let directory = operand(&mut grounds, &to);
        let removal = Removal { trees: true, ..Removal::default() };
        assert!(grounds.remove(&directory, Removal::default(), &mut |_| ControlFlow::Continue(())).is_err());
        let mut removed = Vec::new();
        let flow = grounds.remove(&directory, removal, &mut |line| {
            if let Line::Removed(path) = line {
                removed.push(String::from_utf8(path).unwrap());
            }
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        removed[..2].sort();
        assert_eq!(removed, ["file", "inner", ""]);
    }
}

macro_rules! place_conforms {
    ($place:expr) => {
        $crate::place_conformance::place_conforms! { @ $place;
            the_names_of_a_directory_are_listed_with_their_kinds_and_facts
            a_listing_that_nobody_wants_any_more_ends
            an_entry_is_looked_at_and_read
            a_file_beneath_a_directory_is_opened_and_nothing_outside_of_it
            what_is_missing_is_not_found
            entries_are_made_moved_and_removed_or_that_is_refused
            the_commands_do_what_they_do_on_a_disk
        }
    };
    (@ $place:expr; $($scenario:ident)*) => {
        $(#[test]
        fn $scenario() {
            $crate::place_conformance::$scenario(&$place());
        })*
    };
}

pub(crate) use place_conforms;

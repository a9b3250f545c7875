//! The paths that a copy may bring. A receiver that trusts the sender's list accepts files that the user never named
//! (CVE-2019-6111 of scp, CVE-2022-29154 of rsync).

use std::collections::HashSet;
use std::sync::Arc;

use crate::files_from::{Extent, FileList};
use crate::filter::Filter;
use crate::glob::NamePattern;
use crate::name::split;
use crate::pattern::has_wildcard;
use crate::typed::means_contents;

/// The allowed paths, relative to the target.
#[derive(Debug)]
pub struct AskedFor {
    named: Named,
    filter: Filter,
    /// Directories come without content, except those named with a slash.
    dirs: bool,
    /// The next entry is mostly in the same directory.
    last: (Vec<u8>, Extent),
}

#[derive(Debug)]
enum Named {
    Contents,
    Sources { exact: HashSet<Vec<u8>>, wild: Vec<NamePattern> },
    Listed(Arc<FileList>),
}

impl AskedFor {
    /// Takes the typed sources, whose wildcards the sender expands.
    pub fn new(sources: &[Vec<u8>], list: Option<Arc<FileList>>, filter: Filter) -> Self {
        let named = list.map_or_else(|| Named::sources(sources), Named::Listed);
        let last = (Vec::new(), named.root());
        Self { named, filter, dirs: false, last }
    }

    /// Makes directories come without content (`--dirs`).
    #[must_use]
    pub fn dirs(mut self, dirs: bool) -> Self {
        self.dirs = dirs;
        self.last.1 = self.root();
        self
    }

    /// Whether the end of this directory may say that it holds nothing else. With a list, all beneath must be listed.
    pub fn may_be_complete(&mut self, path: &[u8]) -> bool {
        let least = if self.dirs && !matches!(self.named, Named::Listed(_)) { Extent::Entries } else { Extent::All };
        self.extent(path, true) >= least
    }

    fn root(&self) -> Extent {
        self.bounded(self.named.root(), Extent::Entries)
    }

    fn bounded(&self, extent: Extent, most: Extent) -> Extent {
        let is_listed = matches!(self.named, Named::Listed(_));
        if self.dirs && !is_listed { extent.min(most) } else { extent }
    }

    /// How much may come at this path. The directories above must have been asked for, sent or not.
    pub fn extent(&mut self, path: &[u8], is_dir: bool) -> Extent {
        if path.is_empty() {
            return match self.named {
                Named::Contents if is_dir => self.root(),
                // The directories on the way begin beneath the root.
                Named::Listed(_) if is_dir && self.named.root() > Extent::OnTheWay => self.named.root(),
                _ => Extent::Nothing,
            };
        }
        let parent = split(path).0;
        if self.last.0 != parent {
            let slashes = parent.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            let ends = slashes.chain((!parent.is_empty()).then_some(parent.len()));
            let extent = ends.fold(self.root(), |above, end| self.extent_of(&parent[..end], true, above));
            self.last = (parent.to_vec(), extent);
        }
        self.extent_of(path, is_dir, self.last.1)
    }

    fn extent_of(&self, path: &[u8], is_dir: bool, above: Extent) -> Extent {
        if above == Extent::Nothing {
            return above;
        }
        let (named, leads_on) = match &self.named {
            // With `--dirs`, entries of the contents come by the root's extent, and nothing beneath them.
            Named::Contents if self.dirs => (Extent::Nothing, false),
            named => named.extent_of(path),
        };
        let extent = self.bounded(named, Extent::Itself).max(above.of_entry());
        // Rules say nothing about directories on the way to what is listed.
        if extent > Extent::OnTheWay && self.filter.selects(path, is_dir) {
            return extent;
        }
        if leads_on && is_dir { Extent::OnTheWay } else { Extent::Nothing }
    }
}

impl Named {
    fn sources(typed: &[Vec<u8>]) -> Self {
        let (mut exact, mut wild) = (HashSet::new(), Vec::new());
        for path in typed {
            if means_contents(path) || path == b"~" {
                return Named::Contents;
            }
            let name = split(path).1;
            // A name that looks like a wildcard can be a real name.
            exact.insert(name.to_vec());
            if has_wildcard(name)
                && let Ok(pattern) = NamePattern::new(name)
            {
                wild.push(pattern);
            }
        }
        Named::Sources { exact, wild }
    }

    fn root(&self) -> Extent {
        match self {
            Named::Contents => Extent::All,
            Named::Listed(list) => list.root().0,
            Named::Sources { .. } => Extent::OnTheWay,
        }
    }

    fn extent_of(&self, path: &[u8]) -> (Extent, bool) {
        match self {
            Named::Contents => (Extent::All, false),
            Named::Sources { exact, wild } => {
                let is_named = exact.contains(path) || wild.iter().any(|pattern| pattern.matches(path));
                (if is_named { Extent::All } else { Extent::Nothing }, false)
            }
            Named::Listed(list) => list.extent_of(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut asked: AskedFor, yes: &[&str], no: &[&str]) {
        for (entries, expected) in [(yes, true), (no, false)] {
            for entry in entries {
                let is_dir = entry.ends_with('/');
                let path = entry.trim_end_matches('/').as_bytes();
                assert_eq!(asked.extent(path, is_dir) != Extent::Nothing, expected, "{entry} of {asked:?}");
            }
        }
    }

    fn filter(rules: &[&str]) -> Filter {
        let rules: Vec<_> = rules.iter().map(|rule| (rule.starts_with('+'), rule.as_bytes()[2..].to_vec())).collect();
        Filter::new(&rules).unwrap()
    }

    fn asked(sources: &[&str], rules: &[&str]) -> AskedFor {
        let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
        AskedFor::new(&sources, None, filter(rules))
    }

    fn listed(paths: &[&str], rules: &[&str]) -> AskedFor {
        let list = FileList::of(paths).unwrap();
        AskedFor::new(&[b"data".to_vec()], Some(Arc::new(list)), filter(rules))
    }

    #[test]
    fn a_source_comes_under_its_own_name() {
        let yes = ["run1", "run1/", "run1/a", "run1/.bashrc", "file"];
        check(asked(&["data/run1", "/abs/file"], &[]), &yes, &["/", "run2", "data/run1", ".bashrc", ".ssh/", "run"]);
    }

    #[test]
    fn contents_are_whatever_the_source_holds() {
        for open in ["data/", ".", "..", "~", "a/.", "data*/"] {
            check(asked(&["x", open], &[]), &["/", "a", ".bashrc", "d/a"], &[]);
        }
    }

    #[test]
    fn a_wildcard_brings_what_it_matches() {
        let no = ["b.txt", "sub/a.fits", ".hidden.fits", "/"];
        check(asked(&["data/*.fits"], &[]), &["a.fits", "a.fits/x", "*.fits"], &no);
        check(asked(&["*/run"], &[]), &["run/", "run/x"], &["runs", "x/run"]);
        check(asked(&[".*rc"], &[]), &[".bashrc"], &["bashrc"]);
        check(asked(&["[ab]"], &[]), &["a", "b", "[ab]"], &["c"]);
    }

    #[test]
    fn a_list_brings_its_paths_and_the_directories_that_lead_there() {
        let yes = ["a/", "a/b/", "a/b/c", "a/b/c/", "d", "d/", "e/", "e/x", "e/x/"];
        let no = [
            "/", "a", "a/b", "a/x", "a/x/", "a/b/c/x", "a/b/c2", "a/b/cc", "a-b", "a.b", ".bashrc", "d/x", "e/x/y",
            "f/",
        ];
        check(listed(&["a/b/c", "d", "e/"], &[]), &yes, &no);
        let mut asked = listed(&["a/b/c", "d", "e/"], &[]);
        for (path, extent) in
            [("a/b", Extent::OnTheWay), ("d", Extent::Itself), ("e", Extent::Entries), ("e/x", Extent::Itself)]
        {
            assert_eq!(asked.extent(path.as_bytes(), true), extent, "{path}");
        }
        check(listed(&["a", "."], &[]), &["/", "a", "b/"], &["a/b", "b/c"]);
        check(listed(&[], &[]), &[], &["/", "a"]);
        let list = FileList::of(["a", "b/c"]).unwrap().recursive();
        let whole = AskedFor::new(&[b"data".to_vec()], Some(Arc::new(list)), filter(&[]));
        check(whole, &["a/", "a/x/y", "b/", "b/c/d"], &["/", "b/x"]);
    }

    #[test]
    fn what_a_rule_excludes_does_not_come_nor_what_lies_in_it() {
        let no = [".ssh/", ".ssh/config", "a/.ssh/config", "a/b.o"];
        check(asked(&["."], &["- .ssh/", "- *.o"]), &["/", ".ssh", "a/b.c"], &no);
        check(asked(&["data"], &["+ /data/", "+ *.c", "- *"]), &["data/", "data/x.c"], &["data/x.h", "data/d/x.c"]);
        check(listed(&["a/b", "c"], &["- a"]), &["a/", "a/b", "c"], &["a", "a/x"]);
        check(listed(&["a/b", "c"], &["- b"]), &["a/", "c"], &["a/b", "a/b/"]);
    }
}

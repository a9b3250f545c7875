//! The meaning of a typed path: one entry, or the matches of its wildcards.

use std::io;
use std::os::fd::OwnedFd;

use haul_sys::file_system::Space;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::facts::{EntryFacts, NodeKind};
use super::site::Site;
use crate::ends::reading::SourceFile;
use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::glob::{self, NamePattern};
use crate::local_file::LocalFile;
use crate::pattern::has_wildcard;
use crate::regular_file::READ_FLAGS;
use crate::typed::{means_contents, parent_and_name};

/// One entry that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// The path as typed, or matched.
    pub shown: Vec<u8>,
    pub(super) path: Vec<u8>,
}

impl Site {
    /// The meaning of a typed path: an existing name, and its wildcards' matches; else the path itself.
    pub fn operands(&mut self, typed: &[u8]) -> Result<Vec<Operand>> {
        let path = self.typed.expand(typed);
        let literal = Operand { shown: typed.to_vec(), path };
        if !self.options.expand_globs || !has_wildcard(&literal.path) {
            return Ok(vec![literal]);
        }
        let limits = self.options.limits;
        let most = if self.typed.is_confined() { limits.sources_confined } else { limits.sources };
        let matches = glob::expand(&self.typed, &literal.path, most, &mut self.names_left)?;
        let exists = match self.typed.open(&literal.path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(_) => true,
            Err(error) if is_missing(&error) => false,
            Err(error) => return Err(StoreError::new("find", typed, error)),
        };
        if matches.is_empty() && !exists {
            let why = refusal(io::ErrorKind::NotFound, "nothing matches the wildcard");
            return Err(StoreError::new("find", typed, why));
        }
        let (was, is) = beginning(typed, &literal.path);
        let shown = |path: &[u8]| path.strip_prefix(is).map_or_else(|| path.to_vec(), |rest| [was, rest].concat());
        let mut operands: Vec<Operand> =
            matches.into_iter().map(|path| Operand { shown: shown(&path), path }).collect();
        if exists && operands.iter().all(|operand| operand.path != literal.path) {
            operands.insert(0, literal);
        }
        Ok(operands)
    }

    /// The facts of an entry, or of a link's target.
    pub fn facts(&self, operand: &Operand, follow: bool) -> Result<EntryFacts> {
        let look = || {
            let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
            let entry = self.typed.open(&operand.path, OFlags::PATH | flags)?;
            EntryFacts::look(&entry, b"", AtFlags::EMPTY_PATH)
        };
        look().context("access", &operand.shown)
    }

    /// The space of an entry's, or a link target's, file system.
    pub fn space(&self, operand: &Operand) -> Result<Space> {
        let look = || Space::of(self.typed.open(&operand.path, OFlags::PATH)?);
        look().context("access", &operand.shown)
    }

    /// Opens a regular file to read.
    pub fn read(&self, operand: &Operand) -> Result<SourceFile> {
        let open = || {
            let opened = self.typed.open(&operand.path, READ_FLAGS & !OFlags::NOFOLLOW)?;
            LocalFile::new(self.kernel_files.checked(opened)?).map(SourceFile::Local)
        };
        open().context("open", &operand.shown)
    }

    pub(super) fn directory(&self, operand: &Operand) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.typed.open(&operand.path, flags).context("open directory", &operand.shown)
    }

    /// The open directory of an entry, and its name. `/` at the end means the same; `.` and `..` have no name.
    pub(super) fn parent(&self, operand: &Operand) -> Result<(OwnedFd, Vec<u8>)> {
        let end = operand.path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &operand.path[..end];
        if means_contents(path) {
            let why = refusal(io::ErrorKind::InvalidInput, "it ends in `.`, `..` or `/`, and has no name to change");
            return Err(StoreError::new("use", &operand.shown, why));
        }
        let (parent, name) = parent_and_name(path);
        let opened = self.changed.open(parent, OFlags::PATH | OFlags::DIRECTORY);
        let opened = opened.and_then(|parent| self.kernel_files.checked(parent)).context("access", &operand.shown)?;
        Ok((opened, name.to_vec()))
    }

    pub(super) fn operand(&self, typed: &[u8]) -> Operand {
        Operand { shown: typed.to_vec(), path: self.typed.expand(typed) }
    }

    pub(super) fn is_directory(&self, operand: &Operand) -> bool {
        self.facts(operand, true).is_ok_and(|facts| facts.kind == NodeKind::Directory)
    }
}

fn beginning<'a>(typed: &'a [u8], path: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let same = typed.iter().rev().zip(path.iter().rev()).take_while(|(one, other)| one == other).count();
    (&typed[..typed.len() - same], &path[..path.len() - same])
}

/// Whether a peer may answer a typed path with this one: equal but for wildcards.
pub fn is_answer_to(typed: &[u8], told: &[u8]) -> bool {
    if typed == told {
        return true;
    }
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let begins = [if path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() }];
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec);
        begins.into_iter().chain(parts).collect()
    };
    let (typed, told) = (names(typed), names(told));
    typed.len() == told.len()
        && typed.iter().zip(&told).all(|(typed, told)| {
            let matches = || NamePattern::new(typed).is_ok_and(|pattern| pattern.matches(told));
            let leads_up = matches!(&told[..], b"." | b"..");
            typed == told || (has_wildcard(typed) && !leads_up && matches())
        })
}

/// The umask limits these rights.
pub(super) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SiteOptions;

    #[test]
    fn a_wildcard_is_shown_as_it_was_typed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a1", "a2", "b", "a*"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let root = dir.path().canonicalize().unwrap();
        let shown = |options: SiteOptions, typed: &str| -> Vec<String> {
            let found = Site::open(options).unwrap().operands(typed.as_bytes()).unwrap();
            found.into_iter().map(|operand| String::from_utf8(operand.shown).unwrap()).collect()
        };
        let at_home = SiteOptions { home: Some(root.clone()), expand_globs: true, ..SiteOptions::default() };
        assert_eq!(shown(at_home.clone(), "~/a?"), ["~/a*", "~/a1", "~/a2"]);
        assert_eq!(shown(at_home.clone(), "~/[a]*"), ["~/a*", "~/a1", "~/a2"]);
        assert_eq!(shown(at_home, "~/b"), ["~/b"]);
        let confined = SiteOptions { confine: Some(root), expand_globs: true, ..SiteOptions::default() };
        assert_eq!(shown(confined.clone(), "/a?"), ["/a*", "/a1", "/a2"]);
        assert_eq!(shown(confined, "a?"), ["a*", "a1", "a2"]);
    }

    #[test]
    fn a_peer_names_what_was_asked_for() {
        let table = [
            ("a", "a", true),
            ("../a", "../a", true),
            ("a", "b", false),
            ("*", "b", true),
            ("*", "..", false),
            (".*", "..", false),
            ("*", ".b", false),
            ("*", "a/b", false),
            ("d/*/x", "d/e/x", true),
            ("d/*/x", "e/e/x", false),
            ("/d/*", "/d/e", true),
            ("/d/*", "d/e", false),
            ("~/*", "~/x", true),
            ("~/*", "/etc/x", false),
        ];
        for (typed, told, expected) in table {
            assert_eq!(is_answer_to(typed.as_bytes(), told.as_bytes()), expected, "{typed} {told}");
        }
    }
}

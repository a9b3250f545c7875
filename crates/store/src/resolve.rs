//! Resolves typed source paths to open places.
//!
//! `dir/` means a directory's contents, `dir` the directory under its name; a file is itself. An existing name is meant
//! literally, and its matches, too.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::glob;
use crate::held::Held;
use crate::limits::{MAX_NAMES_LISTED, MAX_SOURCES, MAX_SOURCES_CONFINED};
use crate::meta::{Kind, Stat};
use crate::pattern::has_wildcard;
use crate::source::{Reach, Source, SourceSet};
use crate::typed::{Typed, means_contents, parent_and_name};

/// How typed source paths are read.
#[derive(Debug, Clone, Default)]
pub struct ResolveOptions {
    /// Expand wildcards that no shell has expanded.
    pub expand_globs: bool,
    /// The confining directory: no link leads out, and `/x` is `x` beneath it.
    pub confine: Option<PathBuf>,
    /// The meaning of `~`.
    pub home: Option<PathBuf>,
    /// Copy links' targets, not links.
    pub follow_links: bool,
    /// The bounds of a job.
    pub limits: SourceLimits,
}

/// How many sources a job may have, and how much its wildcards may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLimits {
    /// Sources of a job, and paths of one wildcard (`MAX_SOURCES`).
    pub sources: usize,
    /// The same for a confined job (`MAX_SOURCES_CONFINED`).
    pub sources_confined: usize,
    /// Names compared with a confined job's wildcards (`MAX_NAMES_LISTED`).
    pub names_listed: usize,
}

impl Default for SourceLimits {
    fn default() -> Self {
        Self { sources: MAX_SOURCES, sources_confined: MAX_SOURCES_CONFINED, names_listed: MAX_NAMES_LISTED }
    }
}

impl SourceSet {
    /// Resolves all paths; the error is the first path's.
    pub fn resolve(paths: &[Vec<u8>], options: &ResolveOptions) -> Result<SourceSet> {
        let (set, errors) = SourceSet::resolve_lossy(paths, options);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(set),
        }
    }

    /// Resolves what can be resolved, and reports the rest.
    pub fn resolve_lossy(paths: &[Vec<u8>], options: &ResolveOptions) -> (SourceSet, Vec<StoreError>) {
        let reach = Reach::of(options.follow_links, options.confine.is_some());
        let typed = match Typed::new(options.confine.as_deref(), options.home.as_deref()) {
            Ok(typed) => typed,
            Err(error) => return (SourceSet::new(Vec::new(), false, reach), vec![error]),
        };
        let mut resolver = Resolver {
            typed,
            options,
            found: Vec::new(),
            by_name: HashMap::new(),
            parent: None,
            held: Held::default(),
            // A user with an account may use the host's time anyway.
            names_left: if options.confine.is_some() { options.limits.names_listed } else { usize::MAX },
        };
        let mut errors = Vec::new();
        for path in paths {
            if let Err(error) = resolver.resolve(path) {
                errors.push(error);
            }
        }
        (SourceSet::new(resolver.found, paths.len() == 1, reach).holding(resolver.held), errors)
    }
}

struct Resolver<'a> {
    typed: Typed,
    options: &'a ResolveOptions,
    found: Vec<Source>,
    by_name: HashMap<Vec<u8>, usize>,
    /// A shell's matches share their open directory.
    parent: Option<(Vec<u8>, Arc<OwnedFd>)>,
    held: Held,
    names_left: usize,
}

impl Resolver<'_> {
    fn resolve(&mut self, path: &[u8]) -> Result<()> {
        let expanded = self.typed.expand(path);
        let literal = self.literal(&expanded);
        if !self.options.expand_globs || !has_wildcard(&expanded) {
            return self.add(literal.context("find", path)?);
        }
        // A path with wildcards may be a literal name: both are taken.
        let literal = match literal {
            Err(error) if is_missing(&error) => None,
            literal => Some(literal.context("find", path)?),
        };
        let matches = glob::expand(&self.typed, &expanded, self.max_sources(), &mut self.names_left)?;
        if matches.is_empty() && literal.is_none() {
            return Err(StoreError::new(
                "find",
                path,
                refusal(io::ErrorKind::NotFound, "nothing matches the wildcard"),
            ));
        }
        if let Some(literal) = literal.filter(|_| !matches.contains(&expanded)) {
            self.add(literal)?;
        }
        for found in matches {
            let source = self.literal(&found).context("find", &found)?;
            self.add(source)?;
        }
        Ok(())
    }

    fn literal(&mut self, path: &[u8]) -> io::Result<Source> {
        if means_contents(path) {
            let root = self.typed.open(path, DIRECTORY)?;
            let stat = Stat::of_fd(&root)?;
            return Ok(Source { root: self.hold(root)?, name: Vec::new(), is_dir: true, stat, typed: path.to_vec() });
        }
        let nofollow = if self.options.follow_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let entry = self.typed.open(path, OFlags::PATH | nofollow)?;
        let stat = Stat::of_fd(&entry)?;
        let (parent, name) = parent_and_name(path);
        let is_dir = stat.kind == Kind::Directory;
        // The root is the descriptor that was looked at: nothing can change in between.
        let root = if is_dir { self.hold(entry)? } else { self.parent(parent)? };
        let (name, typed) = (name.to_vec(), path.to_vec());
        Ok(Source { root, name, is_dir, stat, typed })
    }

    fn parent(&mut self, path: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if let Some((last, directory)) = &self.parent
            && last == path
        {
            return Ok(Arc::clone(directory));
        }
        let opened = self.typed.open(path, DIRECTORY)?;
        let directory = self.hold(opened)?;
        self.parent = Some((path.to_vec(), Arc::clone(&directory)));
        Ok(directory)
    }

    fn hold(&mut self, directory: OwnedFd) -> io::Result<Arc<OwnedFd>> {
        self.held.one_more(haul_sys::process::open_file_limit().unwrap_or(u64::MAX))?;
        Ok(Arc::new(directory))
    }

    fn max_sources(&self) -> usize {
        let SourceLimits { sources, sources_confined, .. } = self.options.limits;
        if self.options.confine.is_some() { sources_confined } else { sources }
    }

    /// Adds a source once. Directories of one name are merged, and win over files ([`crate::Walk`]); two different files of
    /// one name are refused.
    fn add(&mut self, source: Source) -> Result<()> {
        let twin = self.by_name.get(&source.name).and_then(|index| self.found.get(*index));
        match twin {
            Some(twin) if twin.stat.is_same_inode(&source.stat) => return Ok(()),
            Some(twin) if !twin.is_dir && !source.is_dir => {
                let why = refusal(
                    io::ErrorKind::AlreadyExists,
                    "another source has the same name, so one would replace the other",
                );
                return Err(StoreError::new("copy", &source.typed, why));
            }
            _ if self.found.len() >= self.max_sources() => {
                return Err(glob::too_many_sources(&source.typed));
            }
            _ => {}
        }
        if !source.name.is_empty() {
            self.by_name.entry(source.name.clone()).or_insert(self.found.len());
        }
        self.found.push(source);
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    const FEW: SourceLimits = SourceLimits { sources: 100, sources_confined: 50, names_listed: 2_100 };

    #[test]
    fn wildcards_are_not_tried_without_end() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20 {
            std::fs::write(dir.path().join(format!("f{number}")), "").unwrap();
        }
        let resolve = |times: usize, pattern: &str| {
            let confine = Some(dir.path().canonicalize().unwrap());
            let options = ResolveOptions { expand_globs: true, confine, limits: FEW, ..ResolveOptions::default() };
            SourceSet::resolve_lossy(&vec![pattern.as_bytes().to_vec(); times], &options)
        };
        let (sources, errors) = resolve(FEW.names_listed / 21, "f*");
        assert_eq!((sources.sources.len(), errors.len()), (20, 0));
        let (_, errors) = resolve(FEW.names_listed / 21 + 7, "f*");
        assert_eq!(errors.len(), 7);
        assert!(errors[0].to_string().ends_with("name the directories that hold them"), "{}", errors[0]);
        let (_, errors) = resolve(FEW.names_listed / 21 + 7, "nothing*");
        assert_eq!(
            errors.iter().filter(|error| error.to_string().contains("nothing matches")).count(),
            FEW.names_listed / 21
        );
    }

    #[test]
    fn a_wildcard_that_matches_too_much_is_given_up_while_it_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..FEW.names_listed {
            let parent = dir.path().join(format!("d{}", number / 100));
            std::fs::create_dir_all(&parent).unwrap();
            std::fs::write(parent.join(format!("f{}", number % 100)), "").unwrap();
        }
        let options = ResolveOptions {
            expand_globs: true,
            confine: Some(dir.path().canonicalize().unwrap()),
            limits: FEW,
            ..ResolveOptions::default()
        };
        for too_much in ["d*/f*", "d*/f*/", "d*/f*/x"] {
            let (sources, errors) = SourceSet::resolve_lossy(&[too_much.into(), b"d0/f1*".to_vec()], &options);
            assert_eq!((sources.sources.len(), errors.len()), (11, 1), "{errors:?}");
            assert!(errors[0].to_string().contains("too many sources"), "{}", errors[0]);
        }
    }

    #[test]
    fn sources_have_an_end_whatever_wildcards_match() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).as_os_str().as_bytes().to_vec();
        for number in 0..=FEW.sources {
            let parent = dir.path().join(format!("d{}", number % 2));
            std::fs::create_dir_all(parent.join(format!("s{number:03}"))).unwrap();
        }
        let options = ResolveOptions { expand_globs: true, limits: FEW, ..ResolveOptions::default() };
        let resolve = |paths: &[Vec<u8>]| SourceSet::resolve(paths, &options);
        assert_eq!(resolve(&[path("d0/*"), path("d0/s00*")]).unwrap().sources.len(), FEW.sources / 2 + 1);
        let error = resolve(&[path("d0/*"), path("d1/*")]).unwrap_err();
        assert!(error.to_string().ends_with("name the directories that hold them"), "{error}");
    }
}

//! From typed source paths to open places to read from.
//!
//! `dir/` means the contents of a directory, `dir` the directory under its own name; a file is itself. A name that
//! exists is taken literally; only when it does not are its wildcards expanded.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, refusal};
use crate::glob;
use crate::limits::MAX_SOURCES;
use crate::meta::{Kind, Stat};
use crate::pattern::has_wildcard;
use crate::source::{Alone, Source, SourceSet};
use crate::typed::{Typed, means_contents, parent_and_name};

/// How typed source paths are understood.
#[derive(Debug, Clone, Default)]
pub struct ResolveOptions {
    /// Expand wildcards, for paths that no shell has expanded.
    pub expand_globs: bool,
    /// All paths are beneath this directory and no link leads out of it; `/x` means `x` beneath it.
    pub confine: Option<PathBuf>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Copy what symbolic links point at instead of the links. Holds for the walk and for opening files too.
    pub follow_links: bool,
}

impl SourceSet {
    /// Resolves all paths; the first one that fails is the error.
    pub fn resolve(paths: &[Vec<u8>], options: &ResolveOptions) -> Result<SourceSet> {
        let (set, errors) = SourceSet::resolve_lossy(paths, options);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(set),
        }
    }

    /// Resolves what can be resolved and reports the rest.
    pub fn resolve_lossy(paths: &[Vec<u8>], options: &ResolveOptions) -> (SourceSet, Vec<StoreError>) {
        let typed = match Typed::new(options.confine.as_deref(), options.home.as_deref()) {
            Ok(typed) => typed,
            Err(error) => return (SourceSet::new(Vec::new(), false, options), vec![error]),
        };
        let mut resolver =
            Resolver { typed, options, found: Vec::new(), by_name: HashMap::new(), parent: None, held: 0 };
        let mut errors = Vec::new();
        for path in paths {
            if let Err(error) = resolver.resolve(path) {
                errors.push(error);
            }
        }
        let mut sources = resolver.found;
        mark_shared(&mut sources);
        (SourceSet::new(sources, paths.len() == 1, options), errors)
    }
}

struct Resolver<'a> {
    typed: Typed,
    options: &'a ResolveOptions,
    found: Vec<Source>,
    /// Where in `found` a name is.
    by_name: HashMap<Vec<u8>, usize>,
    /// The directory of the last file. What a shell makes of a wildcard stands in one directory, which is held open once.
    parent: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// Directories that are held open.
    held: u64,
}

impl Resolver<'_> {
    fn resolve(&mut self, path: &[u8]) -> Result<()> {
        let expanded = self.typed.expand(path);
        let missing = match self.literal(&expanded) {
            Ok(source) => return self.add(source),
            Err(error) => error,
        };
        let is_missing = missing.raw_os_error() == Some(Errno::NOENT.raw_os_error());
        if !is_missing || !self.options.expand_globs || !has_wildcard(&expanded) {
            return Err(StoreError::new("find", path, missing));
        }
        let matches = glob::expand(&self.typed, &expanded)?;
        if matches.is_empty() {
            return Err(StoreError::new(
                "find",
                path,
                refusal(io::ErrorKind::NotFound, "nothing matches the wildcard"),
            ));
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
            return Ok(Source {
                root: self.hold(root)?,
                name: Vec::new(),
                is_dir: true,
                alone: Alone::No,
                stat,
                shared: false,
                typed: path.to_vec(),
            });
        }
        let nofollow = if self.options.follow_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let entry = self.typed.open(path, OFlags::PATH | nofollow)?;
        let stat = Stat::of_fd(&entry)?;
        let (parent, name) = parent_and_name(path);
        let is_dir = stat.kind == Kind::Directory;
        // The descriptor that was looked at becomes the root, so nothing can change in between.
        let root = if is_dir { self.hold(entry)? } else { self.parent(parent)? };
        let (name, typed) = (name.to_vec(), path.to_vec());
        Ok(Source { root, name, is_dir, alone: Alone::No, stat, shared: false, typed })
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

    /// Half of the files that may be open at once are for the rest of the job.
    fn hold(&mut self, directory: OwnedFd) -> io::Result<Arc<OwnedFd>> {
        let may_be_open = haul_sys::process::open_file_limit().unwrap_or(u64::MAX);
        if self.held >= may_be_open / 2 {
            return Err(Errno::MFILE.into());
        }
        self.held += 1;
        Ok(Arc::new(directory))
    }

    /// The same source twice (a wildcard and a name, say) is taken once. Two different ones with one name would overwrite
    /// each other at the target.
    fn add(&mut self, source: Source) -> Result<()> {
        let twin = self.by_name.get(&source.name).and_then(|index| self.found.get(*index));
        match twin {
            Some(twin) if twin.stat.is_same_inode(&source.stat) => return Ok(()),
            None if self.found.len() >= MAX_SOURCES => {
                let why = "there are more than a million sources; name the directories that hold them";
                return Err(StoreError::new("copy", &source.typed, refusal(io::ErrorKind::ArgumentListTooLong, why)));
            }
            None => {}
            Some(_) => {
                let why = refusal(
                    io::ErrorKind::AlreadyExists,
                    "another source has the same name, so one would replace the other",
                );
                return Err(StoreError::new("copy", &source.typed, why));
            }
        }
        if !source.name.is_empty() {
            self.by_name.insert(source.name.clone(), self.found.len());
        }
        self.found.push(source);
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Sources whose contents meet in the root of the target: no single one knows all that belongs there.
fn mark_shared(sources: &mut [Source]) {
    let into_root = sources.iter().filter(|source| source.name.is_empty()).count();
    if into_root > 0 && sources.len() > 1 {
        sources.iter_mut().for_each(|source| source.shared = true);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn sources_have_an_end_whatever_wildcards_match() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).as_os_str().as_bytes().to_vec();
        for number in 0..=MAX_SOURCES {
            let parent = dir.path().join(format!("d{}", number % 2));
            std::fs::create_dir_all(parent.join(format!("s{number:03}"))).unwrap();
        }
        let options = ResolveOptions { expand_globs: true, ..ResolveOptions::default() };
        let resolve = |paths: &[Vec<u8>]| SourceSet::resolve(paths, &options);
        assert_eq!(resolve(&[path("d0/*"), path("d0/s00*")]).unwrap().sources.len(), MAX_SOURCES / 2 + 1);
        let error = resolve(&[path("d0/*"), path("d1/*")]).unwrap_err();
        assert!(error.to_string().ends_with("name the directories that hold them"), "{error}");
    }
}

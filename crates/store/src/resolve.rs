//! From typed source paths to open places to read from.
//!
//! `dir/` means the contents of a directory, `dir` the directory under its own name; a file is itself. A name that
//! exists is taken literally; only when it does not are its wildcards expanded.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, refusal};
use crate::glob;
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
        let mut sources = Vec::new();
        let mut errors = Vec::new();
        for path in paths {
            if let Err(error) = resolve_one(&typed, path, options, &mut sources) {
                errors.push(error);
            }
        }
        mark_shared(&mut sources);
        (SourceSet::new(sources, paths.len() == 1, options), errors)
    }
}

fn resolve_one(typed: &Typed, path: &[u8], options: &ResolveOptions, sources: &mut Vec<Source>) -> Result<()> {
    let expanded = typed.expand(path);
    let missing = match resolve_literal(typed, &expanded, options.follow_links) {
        Ok(source) => return add(source, sources),
        Err(error) => error,
    };
    let is_missing = missing.raw_os_error() == Some(Errno::NOENT.raw_os_error());
    if !is_missing || !options.expand_globs || !has_wildcard(&expanded) {
        return Err(StoreError::new("find", path, missing));
    }
    let matches = glob::expand(typed, &expanded)?;
    if matches.is_empty() {
        return Err(StoreError::new("find", path, refusal(io::ErrorKind::NotFound, "nothing matches the wildcard")));
    }
    for found in matches {
        add(resolve_literal(typed, &found, options.follow_links).context("find", &found)?, sources)?;
    }
    Ok(())
}

fn resolve_literal(typed: &Typed, path: &[u8], follow_links: bool) -> io::Result<Source> {
    let directory = OFlags::PATH | OFlags::DIRECTORY;
    if means_contents(path) {
        let root = typed.open(path, directory)?;
        let stat = Stat::of_fd(&root)?;
        return Ok(Source {
            root: Arc::new(root),
            name: Vec::new(),
            is_dir: true,
            alone: Alone::No,
            stat,
            shared: false,
            typed: path.to_vec(),
        });
    }
    let nofollow = if follow_links { OFlags::empty() } else { OFlags::NOFOLLOW };
    let entry = typed.open(path, OFlags::PATH | nofollow)?;
    let stat = Stat::of_fd(&entry)?;
    let (parent, name) = parent_and_name(path);
    let is_dir = stat.kind == Kind::Directory;
    // The descriptor that was looked at becomes the root, so nothing can change in between.
    let root = if is_dir { entry } else { typed.open(parent, directory)? };
    let (root, name, typed) = (Arc::new(root), name.to_vec(), path.to_vec());
    Ok(Source { root, name, is_dir, alone: Alone::No, stat, shared: false, typed })
}

/// The same source twice (a wildcard and a name, say) is taken once. Two different ones with one name would overwrite
/// each other at the target.
fn add(source: Source, sources: &mut Vec<Source>) -> Result<()> {
    let twin = sources.iter().find(|other| other.name == source.name && !other.name.is_empty());
    match twin {
        None => {}
        Some(twin) if twin.stat.is_same_inode(&source.stat) => return Ok(()),
        Some(_) => {
            let why = refusal(
                io::ErrorKind::AlreadyExists,
                "another source has the same name, so one would replace the other",
            );
            return Err(StoreError::new("copy", &source.typed, why));
        }
    }
    sources.push(source);
    Ok(())
}

/// Sources whose contents meet in the root of the target: no single one knows all that belongs there.
fn mark_shared(sources: &mut [Source]) {
    let into_root = sources.iter().filter(|source| source.name.is_empty()).count();
    if into_root > 0 && sources.len() > 1 {
        sources.iter_mut().for_each(|source| source.shared = true);
    }
}

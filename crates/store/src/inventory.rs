//! Lists all entries of a tree, to compare them with a manifest.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::error::{Result, StoreError, refusal};
use crate::limits::MAX_DEPTH;
use crate::listing::Names;
use crate::local_tree::LocalTree;
use crate::meta::{Kind, Stat};
use crate::name::join;

impl LocalTree {
    /// Calls `tell` with every entry beneath the root, directories first, until `Break`. Links are not followed; failures
    /// come as errors. It holds the paths of directories to list, and one's names.
    pub fn each_entry<F>(&self, mut tell: F) -> ControlFlow<()>
    where
        F: FnMut(&[u8], Result<&Stat>) -> ControlFlow<()>,
    {
        let mut pending = vec![(0, Vec::new())];
        while let Some((depth, directory)) = pending.pop() {
            if depth > MAX_DEPTH {
                let why = refusal(io::ErrorKind::InvalidInput, "directories are nested too deep");
                tell(&directory, Err(StoreError::new("read directory", &directory, why)))?;
                continue;
            }
            let listed = self.open_dir(&directory).and_then(|open| Ok((Names::read(open.as_fd())?, open)));
            let (names, open) = match listed {
                Ok(listed) => listed,
                Err(error) if depth > 0 && error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tell(&directory, Err(StoreError::new("read directory", &directory, error)))?;
                    continue;
                }
            };
            let mut next = 0;
            while let Some((name, _)) = names.get(next) {
                next += 1;
                let path = join(&directory, name);
                match Stat::of_name(open.as_fd(), name) {
                    Ok(stat) => {
                        tell(&path, Ok(&stat))?;
                        if stat.kind == Kind::Directory {
                            pending.push((depth + 1, path));
                        }
                    }
                    Err(Errno::NOENT) => {}
                    Err(error) => tell(&path, Err(StoreError::new("look at", &path, error)))?,
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::local_tree::TargetOptions;

    fn told(tree: &LocalTree) -> Vec<String> {
        let mut told = Vec::new();
        let ended = tree.each_entry(|path, found| {
            told.push(match found {
                Ok(stat) => format!("{} {:?}", String::from_utf8_lossy(path), stat.kind),
                Err(error) => error.to_string(),
            });
            ControlFlow::Continue(())
        });
        assert_eq!(ended, ControlFlow::Continue(()));
        told
    }

    #[test]
    fn every_entry_is_told_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/x"), b"x").unwrap();
        fs::write(dir.path().join("f"), b"f").unwrap();
        symlink("d", dir.path().join("link")).unwrap();
        let (tree, _) = LocalTree::open(dir.path().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap();
        assert_eq!(told(&tree), ["d Directory", "f File", "link Symlink { target: [] }", "d/x File"]);
    }

    #[test]
    fn a_root_that_cannot_be_listed_is_no_empty_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, _) = LocalTree::open(dir.path().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap();
        assert!(told(&tree).is_empty());
        dir.close().unwrap();
        let errors = told(&tree);
        assert!(errors.len() == 1 && errors[0].contains("read directory"), "{errors:?}");
    }
}

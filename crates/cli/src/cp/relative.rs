//! `-R`: sources keep their paths at the target, as a list of paths in one directory, like `--files-from`.

use std::sync::Arc;

use haul_job::job::{FileList, FileListBuilder, ListFault};
use haul_job::{Endpoint, Error, Fault, Here, Place};

use crate::text::printable::printable;

/// The common directory and the paths in it; `recursive` adds all beneath.
///
/// # Errors
/// [`Fault::Usage`]: a path leads upwards, or there is no common directory.
pub fn list(sources: &[Endpoint], recursive: bool) -> Result<(Endpoint, Arc<FileList>), Error> {
    let mut list = FileListBuilder::default();
    let mut base: Option<Endpoint> = None;
    for source in sources {
        let (directory, path) = split(&source.path);
        let refused = |what: &str| Error::new(Fault::Usage, format!("-R {}: {what}", printable(&source.path)));
        if source.place != Place::Here(Here::Disk) && path.iter().any(|byte| b"*?[".contains(byte)) {
            return Err(refused("wildcards of a far side have no place in a path that is kept")
                .try_this("--files-from names the paths, or --include and --exclude choose them"));
        }
        let endpoint = Endpoint { place: source.place.clone(), path: directory };
        if base.as_ref().is_some_and(|base| *base != endpoint) {
            return Err(refused("its path begins in another directory than that of the first source")
                .try_this("copy them one after the other"));
        }
        base = Some(endpoint);
        list.add(path).map_err(|fault| {
            let error = refused(&fault.to_string());
            if fault == ListFault::Upwards {
                return error.try_this("'/./' ends what is not kept: ../a/./b is copied as b");
            }
            error
        })?;
    }
    let base = base.ok_or_else(|| Error::new(Fault::Usage, "-R needs a source"))?;
    Ok((base, Arc::new(list.finish(recursive))))
}

/// The directory, and the kept path: behind the first `/./`, or all.
fn split(path: &[u8]) -> (Vec<u8>, &[u8]) {
    if let Some((directory, kept)) = at_dot(path) {
        return ([directory, b"/"].concat(), kept);
    }
    match path {
        [b'/', ..] => (b"/".to_vec(), path),
        [b'~', b'/', rest @ ..] => (b"~/".to_vec(), rest),
        _ => (b".".to_vec(), path),
    }
}

/// Splits at the first `/./`; the target keeps the second part.
pub fn at_dot(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = path.windows(3).position(|part| part == b"/./")?;
    let kept = &path[dot + 3..];
    Some((&path[..dot], if kept.is_empty() { b"./" } else { kept }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(paths: &[&str]) -> Result<(String, Vec<String>), Error> {
        let endpoint = |path: &&str| Endpoint { place: Place::Here(Here::Disk), path: path.as_bytes().to_vec() };
        let sources: Vec<_> = paths.iter().map(endpoint).collect();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        list(&sources, true).map(|(base, list)| (text(base.path), list.paths().map(text).collect()))
    }

    #[test]
    fn paths_are_kept_from_the_root_from_here_or_behind_the_dot() {
        let check = |paths: &[&str], base: &str, expected: &[&str]| {
            let expected = expected.iter().map(ToString::to_string).collect();
            assert_eq!(listed(paths).unwrap(), (base.to_owned(), expected), "{paths:?}");
        };
        check(&["a/b", "c/"], ".", &["a/b", "c/"]);
        check(&["/data/run1"], "/", &["data/run1"]);
        check(&["/data/./run1/x", "/data/./y"], "/data/", &["run1/x", "y"]);
        check(&["../up/./x"], "../up/", &["x"]);
        check(&["~/x"], "~/", &["x"]);
        check(&["dir/./"], "dir/", &["./"]);
        assert!(listed(&["../x"]).unwrap_err().hint.is_some());
        assert!(listed(&["a/./x", "b/./y"]).is_err());
    }
}

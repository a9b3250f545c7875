//! Looks for files in trees of this host (`--link-dest`, `--copy-dest`, `--compare-dest`).

use std::os::fd::BorrowedFd;

use haul_engine::compare::{self, FileDecision, Rules};
use haul_job::Error;
use haul_store::{LocalTree, TargetOptions};
use haul_wire::control::{Notice, OfReference, Selection};
use haul_wire::manifest::{Identity, Item};

use haul_channel::convert;
use haul_kept::faults;

#[derive(Default)]
pub(super) struct References {
    trees: Vec<LocalTree>,
    made: Option<OfReference>,
}

pub(super) struct Sought<'a> {
    pub(super) path: &'a [u8],
    pub(super) identity: &'a Identity,
    pub(super) item: &'a Item,
    pub(super) blake3: Option<[u8; 32]>,
}

pub(super) struct Candidate<'a> {
    pub(super) tree: &'a LocalTree,
    pub(super) is_exact: bool,
}

impl References {
    /// Opens trees beside the target. A missing one is told, as in rsync.
    pub(super) fn open(
        target: &LocalTree,
        selection: &Selection,
        options: &TargetOptions,
    ) -> Result<(Self, Vec<Notice>), Error> {
        let Some(wanted) = &selection.references else { return Ok((Self::default(), Vec::new())) };
        let (mut trees, mut notices) = (Vec::new(), Vec::new());
        for directory in &wanted.directories {
            match target.reference(directory, options).map_err(|error| faults::store_error(&error))? {
                Some(tree) => trees.push(tree),
                None => {
                    let shown = haul_store::printable(directory);
                    let text =
                        convert::bounded(format!("there is no directory {shown} beside the target to look into"));
                    notices.push(Notice::Warning { text });
                }
            }
        }
        Ok((Self { trees, made: Some(wanted.made) }, notices))
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.trees.iter().filter_map(LocalTree::root_directory)
    }

    pub(super) fn made(&self) -> Option<OfReference> {
        self.made.filter(|_| !self.trees.is_empty())
    }

    /// Prefers a file that matches the source in all that is kept to the first with its data.
    pub(super) fn find(
        &self,
        sought: &Sought<'_>,
        rules: Rules,
        selection: &Selection,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Candidate<'_>> {
        // Attributes are compared below; what stands at the target does not matter.
        let rules = Rules { xattrs: false, update: false, ignore_existing: false, existing: false, ..rules };
        let mut with_data = None;
        for tree in &self.trees {
            let Ok(Some(stat)) = tree.stat(sought.path) else { continue };
            let existing = convert::existing(Some(&stat));
            let mut decision = compare::file(sought.identity, &sought.item.attributes, &existing, &rules);
            if decision == FileDecision::CompareContents {
                let hash = tree
                    .open_file(sought.path)
                    .ok()
                    .and_then(|file| haul_kept::files::hash::whole_file(&file, sought.identity.size, is_over).ok());
                decision = match hash.is_some() && hash == sought.blake3 {
                    true => compare::same_data(&sought.item.attributes, &convert::standing(&stat), &rules),
                    false => FileDecision::Send,
                };
            }
            let is_exact = match decision {
                FileDecision::Keep => has_attributes(tree, sought, selection),
                FileDecision::Touch => false,
                _ => continue,
            };
            if is_exact {
                return Some(Candidate { tree, is_exact });
            }
            with_data.get_or_insert(Candidate { tree, is_exact });
        }
        with_data
    }
}

fn has_attributes(tree: &LocalTree, sought: &Sought<'_>, selection: &Selection) -> bool {
    if !selection.xattrs && !selection.acls {
        return true;
    }
    let Ok(file) = tree.open_file(sought.path) else { return false };
    let Ok(mut standing) = file.attributes(selection.xattrs, selection.acls) else { return false };
    let mut of_source: Vec<_> =
        sought.item.attributes.xattrs.iter().map(|x| (x.name.clone(), x.value.clone())).collect();
    standing.sort_unstable();
    of_source.sort_unstable();
    standing == of_source
}

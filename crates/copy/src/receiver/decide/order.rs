//! Checks that items are nested like their paths, sorted within a directory, with an end for each.

use haul_job::Error;
use haul_wire::RelPath;
use haul_wire::limits::MAX_NESTING_BYTES;
use haul_wire::manifest::{Item, ItemKind};

use super::Decider;

impl Decider {
    /// A sender that ends no directory would fill our memory.
    pub(super) fn check_nesting(&self, item: &Item) -> Result<(), Error> {
        if item.kind != ItemKind::Directory {
            return Ok(());
        }
        let nested = self.stack.last().is_none_or(|frame| is_beneath(&item.path, &frame.item.path));
        if nested && self.stack_bytes + item.weight_bytes() <= MAX_NESTING_BYTES {
            return Ok(());
        }
        let why =
            if nested { "it opens more directories than agreed" } else { "it leaves a directory without its end" };
        Err(Error::broke_the_protocol(why))
    }

    /// A listing that repeats itself would never end, so each name of a directory comes sorted and once.
    pub(super) fn check_order(&mut self, item: &Item) -> Result<(), Error> {
        let stray_end = matches!(item.kind, ItemKind::DirectoryEnd { .. })
            && self.stack.last().is_none_or(|frame| frame.item.path != item.path);
        let leaves_nothing = matches!(item.kind, ItemKind::Skipped { .. } | ItemKind::Failed { .. });
        let broken = |why| Err(Error::broke_the_protocol(why));
        match self.stack.last_mut() {
            _ if leaves_nothing || stray_end => self.idle_items += 1,
            None => self.idle_items += 1,
            Some(_) if matches!(item.kind, ItemKind::DirectoryEnd { .. }) => {}
            Some(frame) if item.path.parent().as_ref() != Some(&frame.item.path) => {
                return broken("it leaves a directory without its end");
            }
            Some(frame) if *item.path.name() <= *frame.last_name => {
                return broken("it lists a directory out of order, or a name twice");
            }
            Some(frame) => frame.last_name = item.path.name().to_vec(),
        }
        if self.idle_items > self.shared.job.bounds.idle_items {
            return broken("it lists more that is not to be copied than agreed");
        }
        Ok(())
    }
}

fn is_beneath(path: &RelPath, directory: &RelPath) -> bool {
    if directory.is_root() {
        return !path.is_root();
    }
    path.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

//! Converts a selection to the options of a walk.

use std::sync::Arc;

use haul_job::Error;
use haul_store::{FileList, WalkOptions};
use haul_wire::control as wire;

use haul_channel::convert;

pub(super) fn options(selection: &wire::Selection, listed: Option<Arc<FileList>>) -> Result<WalkOptions, Error> {
    Ok(WalkOptions {
        filter: convert::filter(&selection.rules)?,
        files_from: listed,
        hard_links: selection.hard_links,
        xattrs: selection.xattrs,
        acls: selection.acls,
        one_file_system: selection.one_file_system,
        dirs: selection.entries.dirs,
        prune_empty_dirs: selection.entries.prune_empty_dirs,
        devices: selection.entries.devices,
        specials: selection.entries.specials,
        listing_only: false,
        surely_wanted: None,
    })
}

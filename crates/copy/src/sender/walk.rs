//! The walk thread turns an item source, such as a walk over the sources, into the manifest.

use std::io;
use std::sync::Arc;

use haul_job::{Error, Subject};
use haul_store::{
    AsCopied, Duplicates, FileList, Found, FoundEntry, ItemSource, Kind, SourceTree, SurelyWanted, WalkOptions,
    printable,
};
use haul_wire::control::{self as wire, Notice};
use haul_wire::manifest::{Attributes, Item, ItemKind};
use haul_wire::path::RelPath;

use haul_channel::convert;
use haul_kept::faults;
use haul_kept::files::sparse;

use super::counting::Counting;
use super::deletions::Deletions;
use super::source_item::Origin;
use super::state::Shared;
use super::walk_options::options;

pub(super) struct Search {
    /// Options of the second walk, which counts.
    count: (WalkOptions, Arc<dyn SourceTree>),
    pub(super) items: Box<dyn ItemSource>,
    /// Options for directories listed ahead.
    pub(super) ahead: WalkOptions,
    pub(super) missing: Option<String>,
}

impl Search {
    pub(super) fn new(
        sources: &Arc<dyn SourceTree>,
        selection: &wire::Selection,
        listed: Option<&Arc<FileList>>,
        surely_wanted: Option<SurelyWanted>,
        missing: Option<String>,
    ) -> Result<Self, Error> {
        let ahead =
            WalkOptions { hard_links: false, xattrs: false, acls: false, ..options(selection, listed.cloned())? };
        let items = Arc::clone(sources).items(WalkOptions { surely_wanted, ..options(selection, listed.cloned())? });
        let count = WalkOptions { xattrs: false, acls: false, ..options(selection, listed.cloned())? };
        Ok(Self { count: (count, Arc::clone(sources)), items, ahead, missing })
    }
}

pub(super) fn start(shared: Arc<Shared>, search: Search) -> io::Result<()> {
    std::thread::Builder::new().name("walk".into()).spawn(move || {
        if let Err(error) = walk(&shared, search) {
            shared.failure.set(error);
        }
    })?;
    Ok(())
}

fn walk(shared: &Arc<Shared>, mut search: Search) -> Result<(), Error> {
    let checksum = shared.job.selection.checksum;
    if !shared.await_target()? {
        return Ok(());
    }
    let mut deletions = Deletions::new(shared, search.missing);
    deletions.look_ahead(&shared.reading.sources, search.ahead);
    let mut counting = Counting::new(shared, search.count);
    while let Some(found) = search.items.next() {
        let mut origin = Origin::default();
        let item = match found {
            Found::Entry(entry) => {
                let (source, path) = (entry.source, entry.source_path.clone());
                let copied = AsCopied::of(&entry.stat);
                origin = Origin { source, path, tells_changes: entry.tells_changes, copied };
                entry_item(shared, entry, checksum)
            }
            Found::DirEnd { path, complete } => {
                without_data(shared, path, ItemKind::DirectoryEnd { complete }, Attributes::default())
            }
            Found::Skipped { path, why } => {
                let kind = ItemKind::Skipped { why: convert::bounded(why) };
                without_data(shared, path, kind, Attributes::default())
            }
            Found::Failed { error, .. } if error.is_lost() => return Err(faults::store_error(&error)),
            Found::Failed { path, error, hides } => {
                deletions.on_failure(&path, &error, hides);
                let kind = ItemKind::Failed { why: convert::bounded(&error), vanished: error.is_vanished() };
                without_data(shared, path, kind, Attributes::default())
            }
        };
        if let Some(ItemKind::File { identity, hole_bytes, .. }) = item.as_ref().map(|item| &item.kind) {
            counting.found(identity.size.saturating_sub(*hole_bytes), &*search.items);
        }
        if let Some(item) = item
            && !shared.push(item, origin)?
        {
            return Ok(());
        }
    }
    deletions.end();
    tell_duplicates(shared, &search.items.duplicates());
    shared.walk_done();
    Ok(())
}

fn tell_duplicates(shared: &Shared, duplicates: &Duplicates) {
    let count = duplicates.count();
    if count > 0 {
        let (what, choice) = (Subject::Sources, "the first that has a name".to_owned());
        let s = if count == 1 { "y has its name" } else { "ies have their names" };
        let names: Vec<_> = duplicates.first().iter().map(|path| printable(path)).collect();
        let more = if count > names.len() as u64 { ", ..." } else { "" };
        let reason = format!("{count} entr{s} from an earlier source ({}{more})", names.join(", "));
        shared.notice(convert::chose(what, choice, convert::bounded(reason)));
    }
}

fn entry_item(shared: &Shared, entry: FoundEntry, checksum: bool) -> Option<Item> {
    let (source, source_path, path) = (entry.source, entry.source_path.clone(), entry.path.clone());
    let stat = entry.stat.clone();
    let mut item = match convert::item(entry) {
        Ok(item) => item,
        Err(fault) => {
            tell_failed(shared, path, fault.to_string());
            return None;
        }
    };
    if shared.job.selection.dry_run
        && let ItemKind::File { further_names, .. } = &mut item.kind
    {
        // A dry run makes no file, so no further name can be as its first one.
        *further_names = 0;
    }
    if let ItemKind::File { hole_bytes: holes @ 1.., .. } = &mut item.kind {
        *holes = sparse::look(&stat, || shared.reading.sources.open(source, &source_path).ok());
    }
    shared.announcer.name_owners(&mut item.attributes, true);
    if let ItemKind::HardLink { first } = &item.kind
        && shared.may_leave_first_names()
        && stat.kind == Kind::File
    {
        let (first, identity, hole_bytes) = (first.clone(), convert::identity(&stat), sparse::hole_bytes(&stat));
        item.kind = ItemKind::FurtherName { first, identity, hole_bytes, blake3: None };
    }
    if checksum
        && let ItemKind::File { identity, blake3, .. } | ItemKind::FurtherName { identity, blake3, .. } = &mut item.kind
    {
        match hash_source(shared, source, &source_path, identity.size) {
            Ok(hash) => *blake3 = Some(hash),
            Err(why) => {
                let kind = ItemKind::Failed { why: convert::bounded(why), vanished: false };
                return without_data(shared, path, kind, Attributes::default());
            }
        }
    }
    Some(item)
}

/// Makes an item without data. A path that cannot be sent (too long) is told beside the manifest.
fn without_data(shared: &Shared, path: Vec<u8>, kind: ItemKind, attributes: Attributes) -> Option<Item> {
    match RelPath::new(path.clone()) {
        Ok(path) => Some(Item { path, kind, attributes }),
        Err(fault) => {
            tell_failed(shared, path, fault.to_string());
            None
        }
    }
}

fn tell_failed(shared: &Shared, path: Vec<u8>, why: String) {
    shared.notice(Notice::Failed { path, why });
}

fn hash_source(shared: &Shared, source: u32, path: &[u8], size: u64) -> Result<[u8; 32], String> {
    let file = shared.reading.sources.open(source, path).map_err(|error| error.to_string())?;
    haul_kept::files::hash::whole_file(&file, size, &|| shared.is_over())
        .map_err(|error| format!("cannot read {}: {error}", printable(path)))
}

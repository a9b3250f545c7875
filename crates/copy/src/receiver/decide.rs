//! Decides each arriving item: rsync's quick check, directories, links.

mod order;

use std::io;
use std::sync::Arc;

use haul_engine::compare;
use haul_job::{Error, WITH_ITS_DIRECTORY};
use haul_store::{Kind, Metadata, SourceNames, Stat, StoreError, no_directory};
use haul_wire::control::{Answer, Changes, LeftOut, Notice, OutcomeKind, Wanted};
use haul_wire::manifest::{Item, ItemKind};

use crate::asked_for::AskedFor;
use haul_channel::convert;

use super::destination::shown;
use super::in_order::{DirectoryEnd, HardLink, InOrder};
use super::incoming::Incoming;
use super::owners::Owners;
use super::state::Shared;
use super::twins::Twins;
use super::{deletions, file, itemise, left_out, settle, special};

pub(super) struct Decider {
    shared: Arc<Shared>,
    asked_for: Option<AskedFor>,
    /// The outermost directory stands first.
    stack: Vec<Frame>,
    stack_bytes: usize,
    twins: Twins,
    owners: Owners,
    loose: Loose,
    /// Counts items that leave nothing here, or that no directory bounds.
    idle_items: u64,
    /// Files sent again that wait (see [`Decider::let_in`]).
    held: Vec<Held>,
}

/// Files outside all directories of the manifest stand in a root without an end.
#[derive(Default)]
enum Loose {
    #[default]
    None,
    One(Vec<u8>),
    Many,
}

const SET_GROUP: u32 = 0o2000;

struct Frame {
    item: Arc<Item>,
    fresh: bool,
    /// The directory was not made, or is a twin: its contents must stay.
    failed: bool,
    /// All beneath fails with it.
    is_lost: bool,
    /// The source's attributes were unreadable: those at the target stay.
    keeps_xattrs: bool,
    /// Names are collected for deletions.
    names: Option<SourceNames>,
    last_name: Vec<u8>,
}

/// Says why a directory is none of ours; by default a rule leaves it out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct NotMade {
    is_twin: bool,
    /// Something stands in its place, or we may not: all beneath fails alike. After other errors (a stale handle of a file
    /// server) each entry is tried.
    is_lost: bool,
}

impl NotMade {
    fn of(error: &StoreError) -> Self {
        use io::ErrorKind::{CrossesDevices, NotADirectory, PermissionDenied, QuotaExceeded};
        let lasts = [NotADirectory, PermissionDenied, CrossesDevices, QuotaExceeded].contains(&error.source.kind());
        Self { is_twin: error.is_twin(), is_lost: lasts || error.is_twin() }
    }
}

struct Held {
    index: u64,
    item: Arc<Item>,
    former: Arc<Incoming>,
}

impl Decider {
    pub(super) fn new(shared: Arc<Shared>, asked_for: Option<AskedFor>) -> Self {
        let (stack, twins, loose) = (Vec::new(), Twins::default(), Loose::None);
        let owners = Owners::new(&shared.job.selection);
        Self { shared, asked_for, stack, stack_bytes: 0, twins, owners, loose, idle_items: 0, held: Vec::new() }
    }

    pub(super) fn on_item(&mut self, mut item: Item) -> Result<(), Error> {
        if let Some(asked_for) = &mut self.asked_for {
            asked_for.check(&item)?;
        }
        if matches!(item.kind, ItemKind::HardLink { .. } | ItemKind::FurtherName { .. }) && self.shared.to.is_renamed()
        {
            return Err(Error::broke_the_protocol("it sends a second name of a single file"));
        }
        self.shared.first_names.resolve_further_name(&mut item);
        self.check_nesting(&item)?;
        self.check_order(&item)?;
        let index = self.shared.open_item(&item)?;
        if self.shared.to.discards() {
            self.discard(index, item);
            return Ok(());
        }
        self.localise(&mut item);
        let item = Arc::new(item);
        let path = self.shared.to.path_of(&item);
        let fresh = self.enter_name(&item) && !self.twins.takes_names_for_one();
        let is_new_name = item.makes_entry() && !matches!(item.kind, ItemKind::FurtherName { .. });
        if is_new_name && self.stack.last().is_some_and(|frame| frame.is_lost) {
            // The one cause has been told.
            if item.kind == ItemKind::Directory {
                self.begin_directory(&item, Err(NotMade { is_twin: false, is_lost: true }));
            }
            let why = format!("cannot copy {}: {WITH_ITS_DIRECTORY}", shown(&path));
            self.shared.failed_item(index, why);
            return Ok(());
        }
        let followed = self.keep_dirlink(&item, &path, fresh);
        if let Err(error) = followed.and_then(|()| self.check_twin(&item, &path, fresh)) {
            if item.kind == ItemKind::Directory {
                self.begin_directory(&item, Err(NotMade::of(&error)));
            }
            self.shared.fail_item(index, &error);
            return Ok(());
        }
        let fresh = fresh || (self.shared.job.selection.delete && self.makes_way(&item, &path));
        match &item.kind {
            ItemKind::File { .. } => {
                if self.stack.is_empty() {
                    self.loose = match self.loose {
                        Loose::None => Loose::One(path.clone()),
                        Loose::One(_) | Loose::Many => Loose::Many,
                    };
                }
                file::decide(&self.shared, index, &item, path, fresh);
            }
            ItemKind::Directory => self.directory(index, &item, &path, fresh),
            ItemKind::DirectoryEnd { complete } => self.directory_end(index, &item, path, *complete),
            ItemKind::Symlink { target } => self.symlink(index, &item, &path, target, fresh),
            ItemKind::Special(special) => special::bring(&self.shared, index, &item, &path, *special, fresh)?,
            ItemKind::HardLink { first } => {
                let link = HardLink { path, first: first.clone(), mtime: item.attributes.mtime };
                self.shared.in_order(index, InOrder::HardLink(Arc::new(link)));
            }
            ItemKind::Failed { .. } => {
                // The sender may have failed on a part of the directory itself, such as its attributes.
                if let Some(frame) = self.stack.last_mut().filter(|frame| frame.item.path == item.path) {
                    frame.keeps_xattrs = true;
                }
                self.shared.settle(index, OutcomeKind::Nothing);
            }
            ItemKind::Skipped { .. } | ItemKind::FurtherName { .. } => self.shared.settle(index, OutcomeKind::Nothing),
        }
        Ok(())
    }

    /// Takes a changed file again, outside the walk's order. One that is complete as announced stays: a copy a moment earlier
    /// would not have seen the change.
    pub(super) fn on_retry(&mut self, mut item: Item, of: u64) -> Result<(), Error> {
        if let Some(asked_for) = &mut self.asked_for {
            asked_for.check(&item)?;
        }
        let ItemKind::File { identity, .. } = item.kind else {
            return Err(Error::broke_the_protocol("it sends something else than a file again"));
        };
        let former = self.shared.incoming(of);
        if former.as_ref().is_some_and(|former| former.item.path != item.path) {
            return Err(Error::broke_the_protocol("it sends another file in the place of one that changed"));
        }
        let index = self.shared.open_item(&item)?;
        self.localise(&mut item);
        let Some(former) = former.filter(|_| self.shared.takes_place(index, of)) else {
            self.shared.settle(index, OutcomeKind::Superseded);
            return Ok(());
        };
        // The outcome comes first: a lane that names the file just now then tells of no failure.
        self.shared.settle(of, OutcomeKind::Superseded);
        former.abandon(false, &self.shared.disk.exposure);
        if former.identity.inode != identity.inode {
            self.shared.first_names.replaced(&item);
        }
        if self.shared.to.discards() {
            self.discard(index, item);
        } else {
            self.held.push(Held { index, item: Arc::new(item), former });
            self.let_in();
        }
        Ok(())
    }

    /// Decides files that are sent again, once no lane writes their earlier data: in place, late blocks would get into the new
    /// version.
    pub(super) fn let_in(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|held| {
            // A lane that writes a file holds it.
            let is_written = held.former.inplace && Arc::strong_count(&held.former) > 1;
            if !is_written {
                file::decide(&self.shared, held.index, &held.item, self.shared.to.path_of(&held.item), false);
            }
            is_written
        });
        self.held = held;
    }

    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// With `--keep-dirlinks` a link to a directory may stand where a directory comes.
    fn keep_dirlink(&self, item: &Item, path: &[u8], fresh: bool) -> Result<(), StoreError> {
        let asked = self.shared.job.selection.keep_dirlinks && item.kind == ItemKind::Directory && !fresh;
        match self.shared.to.tree().local().filter(|_| asked) {
            Some(tree) => tree.keep_dirlink(path).map(drop),
            None => Ok(()),
        }
    }

    fn localise(&mut self, item: &mut Item) {
        for text in self.owners.localise(item) {
            self.shared.notice(Notice::Warning { text: convert::bounded(text) });
        }
    }

    /// Returns false also where nothing of another kind stands.
    fn makes_way(&self, item: &Item, path: &[u8]) -> bool {
        let is_dir = match item.kind {
            ItemKind::Directory => true,
            ItemKind::File { .. } | ItemKind::Symlink { .. } | ItemKind::HardLink { .. } | ItemKind::Special(_) => {
                false
            }
            _ => return false,
        };
        // A failed look shows later, with its own message.
        let standing = self.shared.to.tree().stat(path).ok().flatten();
        if standing.is_some() && !path.is_empty() {
            self.shared.put_off.count_staying();
        }
        let stays = path.is_empty()
            || self.shared.job.selection.ignore_existing
            || left_out::by_itself(&self.shared, item).is_some();
        !stays
            && standing.is_some_and(|stat| (stat.kind == Kind::Directory) != is_dir)
            && deletions::make_way(&self.shared, path)
    }

    /// Takes files only to verify them; nothing else is to be done.
    fn discard(&self, index: u64, item: Item) {
        let shared = &self.shared;
        // A list of the sources is a dry run to nowhere.
        if item.makes_entry() {
            shared.changes.note(index, Changes::NEW);
        }
        let ItemKind::File { identity, .. } = item.kind else { return shared.settle(index, OutcomeKind::Nothing) };
        if shared.job.selection.dry_run {
            return shared.settle(index, OutcomeKind::WouldCopy);
        }
        let path = shared.to.path_of(&item);
        shared.expect(Arc::new(Incoming::cut_by(
            shared.job.carriage.cut,
            index,
            Arc::new(item),
            path,
            identity,
            false,
        )));
        shared.outbox.answer(Answer { index, wanted: Wanted::All });
    }

    /// Does for files outside of directories what ends of directories do.
    pub(super) fn end_loose(&self) {
        if let (Some(tree), true) = (self.shared.to.tree().local(), self.shared.to.makes_files()) {
            tree.sweep_one_directory();
            tree.tidy_drafts(b"");
        }
        let swept = match &self.loose {
            Loose::None => false,
            Loose::One(path) => self.shared.to.sweep(|tree| tree.sweep_draft_of(path)),
            Loose::Many => self.shared.to.sweep(|tree| tree.sweep_drafts(b"")),
        };
        let to = &self.shared.to;
        let may_stand_unflushed = to.flushes_names() && to.makes_files() && !matches!(self.loose, Loose::None);
        if swept || (may_stand_unflushed && settle::changed_lately(&self.shared, b"")) {
            self.shared.to.root_changed();
        }
    }

    /// Notes a name of the source. Returns true if its directory is new, so nothing can stand there.
    fn enter_name(&mut self, item: &Item) -> bool {
        if matches!(item.kind, ItemKind::DirectoryEnd { .. }) {
            return false;
        }
        let Some(frame) = self.stack.last_mut() else { return false };
        if item.path.parent().as_ref() != Some(&frame.item.path) {
            return false;
        }
        let (fresh, directory) = (frame.fresh, &frame.item.path);
        if let Some(names) = &mut frame.names
            && let Err(error) = names.add(item.path.name())
        {
            let error = StoreError::new("delete what the source lacks in", directory.as_bytes(), error);
            frame.names = None;
            self.shared.failed_aside(directory.as_bytes(), &error);
        }
        fresh
    }

    fn check_twin(&mut self, item: &Item, path: &[u8], fresh: bool) -> Result<(), StoreError> {
        let makes_a_name = item.makes_entry() && !matches!(item.kind, ItemKind::HardLink { .. });
        if !makes_a_name || path.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        // Each name is looked at once more, so only where it matters.
        let standing = if self.twins.takes_names_for_one() { self.stat(path, fresh)? } else { None };
        self.twins.check(shared.to.tree().local(), shared.to.makes_files(), path, standing.as_ref())
    }

    /// `made`: whether the directory is new, or why it is none of ours.
    fn begin_directory(&mut self, item: &Arc<Item>, made: Result<bool, NotMade>) {
        let (fresh, failed) = (made == Ok(true), made.is_err());
        let NotMade { is_twin, is_lost } = made.err().unwrap_or_default();
        let names = self.shared.job.selection.delete.then(SourceNames::default);
        self.stack_bytes += item.weight_bytes();
        let (item, last_name) = (Arc::clone(item), Vec::new());
        self.stack.push(Frame { item, fresh, failed, is_lost, keeps_xattrs: false, names, last_name });
        self.twins.enter_directory(is_twin);
    }

    fn directory(&mut self, index: u64, item: &Arc<Item>, path: &[u8], parent_fresh: bool) {
        if self.leaves_out_directory(index, item, path, parent_fresh) {
            return;
        }
        let shared = &self.shared;
        if shared.job.selection.itemise
            && let Ok(stat) = self.stat(path, parent_fresh)
        {
            shared.changes.note(
                index,
                itemise::of_entry(None, item, &convert::existing(stat.as_ref()), &shared.comparison.rules),
            );
        }
        let made = if shared.job.selection.dry_run {
            self.would_make_directory(path, parent_fresh)
        } else {
            shared.to.tree().make_dir(path).and_then(|is_new| {
                let Some(tree) = shared.to.tree().local() else { return Ok(is_new) };
                if !is_new {
                    // A later failure to change it tells why.
                    let _ = tree.open_up(path);
                }
                tree.enter(path).map(|()| is_new)
            })
        };
        self.begin_directory(item, made.as_ref().copied().map_err(NotMade::of));
        let shared = &self.shared;
        if made.is_ok() && !shared.job.selection.dry_run {
            self.pass_on_group(item, path);
        }
        match made {
            Ok(true) => {
                if !path.is_empty() && !shared.job.selection.dry_run {
                    shared.to.name_changed(path);
                }
                shared.settle(index, OutcomeKind::Made);
            }
            Ok(false) => shared.settle(index, OutcomeKind::Nothing),
            Err(error) => shared.fail_item(index, &error),
        }
    }

    /// Entries in a set-group-id directory get its group. So the directory gets bit and group first, as with rsync, and the
    /// rest of the mode at its end, where a failure here shows.
    fn pass_on_group(&self, item: &Item, path: &[u8]) {
        let (rules, tree) = (&self.shared.comparison.rules, self.shared.to.tree());
        if !rules.special_bits && !rules.group {
            return;
        }
        let Ok(Some(stat)) = tree.stat(path) else { return };
        let bit = if rules.special_bits { item.attributes.mode & SET_GROUP } else { stat.mode & SET_GROUP };
        let gid = item.attributes.gid;
        let group = (bit != 0 && rules.group && ![compare::LEFT, stat.gid].contains(&gid)).then_some(gid);
        if stat.kind == Kind::Directory && (bit != stat.mode & SET_GROUP || group.is_some()) {
            let mode = Some((stat.mode & !SET_GROUP) | bit);
            let _ = tree.set_metadata(path, &Metadata { mode, special_bits: true, group, ..Metadata::default() });
        }
    }

    fn would_make_directory(&self, path: &[u8], parent_fresh: bool) -> Result<bool, StoreError> {
        match self.stat(path, parent_fresh)? {
            None => Ok(true),
            Some(stat) if stat.kind == Kind::Directory => Ok(false),
            Some(stat) => {
                let error = io::Error::new(io::ErrorKind::NotADirectory, no_directory(&stat.kind));
                Err(StoreError::new("make directory", path, error))
            }
        }
    }

    fn directory_end(&mut self, index: u64, item: &Arc<Item>, path: Vec<u8>, complete: bool) {
        let frame = match self.stack.pop() {
            Some(frame) if frame.item.path == item.path => frame,
            other => {
                // An end without a beginning closes nothing.
                self.stack.extend(other);
                return self.shared.settle(index, OutcomeKind::Nothing);
            }
        };
        self.stack_bytes -= frame.item.weight_bytes();
        self.twins.leave_directory();
        if frame.failed {
            return self.shared.settle(index, OutcomeKind::Nothing);
        }
        let mut names = frame.names.filter(|_| complete);
        if let Some(names) = &mut names {
            names.seal();
        }
        let (fresh, keeps_xattrs, unread) = (frame.fresh, frame.keeps_xattrs, frame.keeps_xattrs && !complete);
        let is_empty = complete && frame.last_name.is_empty();
        let (directory, is_source) = (Some(frame.item), self.stack.is_empty());
        let end = DirectoryEnd { path, directory, fresh, keeps_xattrs, unread, is_source, is_empty, names };
        self.shared.in_order(index, InOrder::DirectoryEnd(Arc::new(end)));
    }

    fn symlink(&self, index: u64, item: &Item, path: &[u8], target: &[u8], fresh: bool) {
        let shared = &self.shared;
        let selection = &shared.job.selection;
        if let Some(rule) = left_out::by_itself(shared, item) {
            return shared.leave_out(index, item, rule);
        }
        if selection.dry_run || selection.ignore_existing || selection.existing || selection.itemise {
            let existing = match self.stat(path, fresh) {
                Ok(existing) => existing,
                Err(error) => return shared.fail_item(index, &error),
            };
            let is_same = |stat: &Stat| matches!(&stat.kind, Kind::Symlink { target: now } if now == target);
            match &existing {
                None if selection.existing => return shared.leave_out(index, item, LeftOut::Missing),
                Some(stat) if selection.ignore_existing && !is_same(stat) => {
                    // The source's link must get no further names made of this one.
                    shared.first_names.stays_foreign(item, true);
                    return shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Exists });
                }
                Some(_) if selection.ignore_existing => return shared.settle(index, OutcomeKind::Nothing),
                Some(stat) if stat.kind == Kind::Directory && !deletions::clear_directory(shared, path) => {
                    return shared.failed_item(index, settle::conflict(shared, path));
                }
                _ => {}
            }
            shared.changes.note(index, itemise::of_link(item, existing.as_ref(), target, &shared.comparison.rules));
            if selection.dry_run {
                return match existing.filter(is_same).map(|stat| shared.foresee_link(path, &stat, item)) {
                    None => shared.settle(index, OutcomeKind::Made),
                    Some(Ok(())) => shared.settle(index, OutcomeKind::Nothing),
                    Some(Err(error)) => shared.fail_item(index, &error),
                };
            }
        }
        let make = || shared.to.tree().make_symlink(path, target, &shared.metadata(item));
        match make().or_else(|error| if deletions::clear_directory(shared, path) { make() } else { Err(error) }) {
            Ok(true) => {
                shared.to.name_changed(path);
                self.settle_made(index, path);
            }
            Ok(false) => shared.settle(index, OutcomeKind::Nothing),
            Err(error) => shared.fail_item(index, &error),
        }
    }

    /// A new name must be on the medium before its source may go.
    fn settle_made(&self, index: u64, path: &[u8]) {
        match self.shared.flush_before_removal(path) {
            Ok(()) => self.shared.settle(index, OutcomeKind::Made),
            Err(error) => self.shared.fail_item(index, &error),
        }
    }

    /// With `--existing`, a missing directory is left out, with all beneath it.
    fn leaves_out_directory(&mut self, index: u64, item: &Arc<Item>, path: &[u8], parent_fresh: bool) -> bool {
        if !self.shared.comparison.rules.existing || !matches!(self.stat(path, parent_fresh), Ok(None)) {
            return false;
        }
        self.begin_directory(item, Err(NotMade::default()));
        if let Some(frame) = self.stack.last_mut() {
            frame.fresh = true;
        }
        self.shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Missing });
        true
    }

    fn stat(&self, path: &[u8], fresh: bool) -> Result<Option<Stat>, StoreError> {
        if fresh { Ok(None) } else { self.shared.to.tree().stat(path) }
    }
}

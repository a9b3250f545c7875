//! Decides about each item of the manifest as it arrives: rsync's quick check, directories, links.

mod order;

use std::io;
use std::sync::Arc;

use haul_engine::compare::{self, Existing, FileDecision};
use haul_engine::journal;
use haul_engine::plan::ChunkLayout;
use haul_job::Error;
use haul_store::{Kind, Metadata, NO_DIRECTORY, SourceNames, Stat, StoreError};
use haul_wire::control::{Answer, Changes, LeftOut, Notice, OutcomeKind, Wanted};
use haul_wire::manifest::{Identity, Item, ItemKind};

use crate::session::asked_for::AskedFor;
use crate::session::convert;

use super::in_order::{DirectoryEnd, HardLink, InOrder};
use super::incoming::{Incoming, KeptAs};
use super::owners::Owners;
use super::references::Sought;
use super::state::{Shared, Task};
use super::twins::Twins;
use super::{delayed, from_reference, itemise, leading, left_out, reread, settle, special};

/// Walks along with the manifest.
pub(super) struct Decider {
    shared: Arc<Shared>,
    asked_for: Option<AskedFor>,
    /// The directories that are open, outermost first, each beneath the one before it.
    stack: Vec<Frame>,
    /// What their items hold in memory.
    stack_bytes: usize,
    twins: Twins,
    owners: Owners,
    loose: Loose,
    /// Items so far that leave nothing here, or that no directory bounds.
    idle_items: u64,
    /// What is sent again and has to wait (see [`Decider::let_in`]).
    held: Vec<Held>,
}

/// Files outside all directories of the manifest: they stand in the root of the tree, which then has no end.
#[derive(Default)]
enum Loose {
    #[default]
    None,
    /// Where it goes.
    One(Vec<u8>),
    Many,
}

/// The set-group-id bit of a mode.
const SET_GROUP: u32 = 0o2000;

struct Frame {
    item: Arc<Item>,
    /// Made in this run: nothing can stand in it yet.
    fresh: bool,
    /// It could not be made, or is another one's twin: whatever stands there is not this one's to change.
    failed: bool,
    /// The attributes at the source could not be read: those at the target stay.
    keeps_xattrs: bool,
    /// Those of the source, when others are to be deleted.
    names: Option<SourceNames>,
    /// The name that came last in it.
    last_name: Vec<u8>,
}

/// A file that is sent again, and what came of it before.
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

    /// Takes the next item.
    pub(super) fn on_item(&mut self, mut item: Item) -> Result<(), Error> {
        if let Some(asked_for) = &mut self.asked_for {
            asked_for.check(&item)?;
        }
        if matches!(item.kind, ItemKind::HardLink { .. } | ItemKind::FurtherName { .. }) && self.shared.is_renamed() {
            return Err(Error::broke_the_protocol("it sends a second name of a single file"));
        }
        self.shared.resolve_further_name(&mut item);
        self.check_nesting(&item)?;
        self.check_order(&item)?;
        let index = self.shared.open_item(&item)?;
        if self.shared.lets_go() {
            self.let_go(index, item);
            return Ok(());
        }
        self.localise(&mut item);
        let item = Arc::new(item);
        let path = self.shared.target_path(&item);
        let fresh = self.enter_name(&item) && !self.twins.takes_names_for_one();
        if let Err(error) = self.check_twin(&item, &path, fresh) {
            if item.kind == ItemKind::Directory {
                self.begin_directory(&item, &Err(error.is_twin()));
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
                self.file(index, &item, path, fresh);
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
                // Beside the directory itself it tells that something of it could not be read: its attributes, maybe.
                if let Some(frame) = self.stack.last_mut().filter(|frame| frame.item.path == item.path) {
                    frame.keeps_xattrs = true;
                }
                self.shared.settle(index, OutcomeKind::Nothing);
            }
            ItemKind::Skipped { .. } | ItemKind::FurtherName { .. } => self.shared.settle(index, OutcomeKind::Nothing),
        }
        Ok(())
    }

    /// A file changed while it was read, and is announced as it is now, outside the order of the walk. One that is complete as it was announced
    /// stays so: a copy that was made a moment earlier would not have seen the change either.
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
        // First, so that a lane that gives it its name just now does not tell of a failure.
        self.shared.settle(of, OutcomeKind::Superseded);
        former.abandon(false, &self.shared.exposure);
        if former.identity.inode != identity.inode {
            self.shared.replaced(&item);
        }
        if self.shared.lets_go() {
            self.let_go(index, item);
        } else {
            self.held.push(Held { index, item: Arc::new(item), former });
            self.let_in();
        }
        Ok(())
    }

    /// Decides about files that are sent again, once no lane writes their earlier data. A lane that still had blocks of a file
    /// written in place would put them into the new version.
    pub(super) fn let_in(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|held| {
            // Whoever writes a file has it as it was announced.
            let is_written = held.former.inplace && Arc::strong_count(&held.former) > 1;
            if !is_written {
                self.file(held.index, &held.item, self.shared.target_path(&held.item), false);
            }
            is_written
        });
        self.held = held;
    }

    /// Whether a file that is sent again waits for the lanes.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives the item the mode, owner and group that it is to have here.
    fn localise(&mut self, item: &mut Item) {
        for text in self.owners.localise(item) {
            self.shared.notice(Notice::Warning { text: convert::bounded(text) });
        }
    }

    /// See [`settle::make_way`]. False also where nothing of another kind stands.
    fn makes_way(&self, item: &Item, path: &[u8]) -> bool {
        let is_dir = match item.kind {
            ItemKind::Directory => true,
            ItemKind::File { .. } | ItemKind::Symlink { .. } | ItemKind::HardLink { .. } | ItemKind::Special(_) => {
                false
            }
            _ => return false,
        };
        // What cannot be looked at fails by itself.
        let standing = self.shared.tree().stat(path).ok().flatten();
        let stays = path.is_empty()
            || self.shared.job.selection.ignore_existing
            || left_out::by_itself(&self.shared, item).is_some();
        !stays
            && standing.is_some_and(|stat| (stat.kind == Kind::Directory) != is_dir)
            && settle::make_way(&self.shared, path)
    }

    /// Files are sent and verified; of all else nothing is left to do.
    fn let_go(&self, index: u64, item: Item) {
        let shared = &self.shared;
        // A list of the sources is a dry run to nowhere.
        if item.makes_entry() {
            shared.note_changes(index, Changes::NEW);
        }
        let ItemKind::File { identity, .. } = item.kind else { return shared.settle(index, OutcomeKind::Nothing) };
        if shared.job.selection.dry_run {
            return shared.settle(index, OutcomeKind::WouldCopy);
        }
        let path = shared.target_path(&item);
        shared.expect(Arc::new(Incoming::new(index, Arc::new(item), path, identity, false)));
        shared.outbox.answer(Answer { index, wanted: Wanted::All });
    }

    /// When all is settled: what is done at the ends of directories, for files outside of them.
    pub(super) fn end_loose(&self) {
        if let (Some(tree), true) = (self.shared.tree().local(), self.shared.makes_files()) {
            tree.sweep_one_directory();
            tree.tidy_drafts(b"");
        }
        let swept = match &self.loose {
            Loose::None => false,
            Loose::One(path) => self.shared.sweep(|tree| tree.sweep_draft_of(path)),
            Loose::Many => self.shared.sweep(|tree| tree.sweep_drafts(b"")),
        };
        let stands = self.shared.makes_files() && !matches!(self.loose, Loose::None);
        if swept || (stands && settle::changed_lately(&self.shared, b"")) {
            self.shared.root_changed();
        }
    }

    /// Notes that the source has this name. True when its directory is new, so that nothing can stand under it.
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

    /// Fails when the name is that of another entry of this job at the target.
    fn check_twin(&mut self, item: &Item, path: &[u8], fresh: bool) -> Result<(), StoreError> {
        let makes_a_name = item.makes_entry() && !matches!(item.kind, ItemKind::HardLink { .. });
        if !makes_a_name || path.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        // Only where it matters: each name is looked at once more.
        let standing = if self.twins.takes_names_for_one() { self.stat(path, fresh)? } else { None };
        self.twins.check(shared.tree().local(), shared.makes_files(), path, standing.as_ref())
    }

    /// `made`: whether it is new, or why it is none of ours: whether it is another one's twin.
    fn begin_directory(&mut self, item: &Arc<Item>, made: &Result<bool, bool>) {
        let (fresh, failed) = (*made == Ok(true), made.is_err());
        let names = self.shared.job.selection.delete.then(SourceNames::default);
        self.stack_bytes += item.weight_bytes();
        let (item, last_name) = (Arc::clone(item), Vec::new());
        self.stack.push(Frame { item, fresh, failed, keeps_xattrs: false, names, last_name });
        self.twins.enter_directory(*made == Err(true));
    }

    fn file(&self, index: u64, item: &Arc<Item>, path: Vec<u8>, fresh: bool) {
        let shared = &self.shared;
        let ItemKind::File { identity, blake3, .. } = item.kind else {
            return shared.settle(index, OutcomeKind::Nothing);
        };
        let twin = |stat: &Option<Stat>| stat.as_ref().map_or(Ok(()), |stat| shared.check_twin(stat, &path));
        let stat = match self.stat(&path, fresh).and_then(|stat| twin(&stat).map(|()| stat)) {
            Ok(stat) => stat,
            Err(error) => return shared.fail_item(index, &error),
        };
        let existing = match &stat {
            Some(stat) if shared.is_unfinished(&path, stat) => Existing::Unfinished,
            stat => convert::existing(stat.as_ref()),
        };
        let mut hash = None;
        let mut decision = compare::file(&identity, &item.attributes, &existing, &shared.rules);
        if decision == FileDecision::CompareContents {
            hash = self.hash(&path, identity.size);
            if shared.is_over() {
                return;
            }
            decision = match (&existing, hash.is_some() && hash == blake3) {
                (Existing::File(standing), true) => compare::same_data(&item.attributes, standing, &shared.rules),
                _ => compare::other_data(&shared.rules),
            };
        }
        if decision == FileDecision::Conflict && settle::clear_directory(shared, &path) {
            decision = FileDecision::Send;
        }
        if let (FileDecision::Keep | FileDecision::Touch | FileDecision::LeaveOut(_), Some(stat)) = (&decision, &stat) {
            shared.keep(stat, &path);
        }
        if shared.rules.removes_sources && stat.as_ref().is_some_and(|stat| itemise::is_source(&identity, stat)) {
            decision = FileDecision::LeaveOut(LeftOut::Itself);
        }
        if matches!(decision, FileDecision::Keep | FileDecision::Touch)
            && let Err(error) = shared.flush_before_removal(&path)
        {
            return shared.fail_item(index, &error);
        }
        let stays = shared.rules.ignore_existing && decision == FileDecision::Keep;
        if !stays && !matches!(decision, FileDecision::LeaveOut(_)) {
            let of = if decision == FileDecision::Send { itemise::of_sent } else { itemise::of_kept };
            shared.note_changes(index, of(identity.size, item, &existing, &shared.rules));
        }
        if decision == FileDecision::Send {
            let sought = Sought { path: &path, identity: &identity, attributes: &item.attributes, blake3 };
            match from_reference::bring(shared, &sought) {
                Ok(None) => {}
                Ok(Some(kept)) => return self.keep(index, item, path, identity, kept, None),
                Err(error) => return shared.fail_item(index, &error),
            }
        }
        match decision {
            FileDecision::Send | FileDecision::CompareContents => {
                match delayed::waits(shared, item, &path, &identity) {
                    Ok(false) => {}
                    Ok(true) => return self.keep(index, item, path, identity, KeptAs::Touched, None),
                    Err(error) => return shared.fail_item(index, &error),
                }
                // What is written in place appears under all names of the file, also of one that was found right.
                let has_other_names = stat.is_some_and(|stat| stat.nlink > 1);
                // What was begun in place is finished there.
                let inplace = (shared.job.selection.inplace || existing == Existing::Unfinished) && !has_other_names;
                self.want(index, item, path, identity, inplace);
            }
            FileDecision::Conflict => {
                shared.failed_item(index, settle::conflict(shared, &path));
            }
            FileDecision::LeaveOut(rule @ (LeftOut::Exists | LeftOut::Newer | LeftOut::NotShorter)) => {
                // Before a second name of it can come to its turn. The source's hash is not that of what stays.
                shared.stays_foreign(item, compare::has_time(&existing, item.attributes.mtime));
                self.forget_journal(&path, identity.size);
                shared.settle(index, OutcomeKind::LeftOut { rule });
            }
            FileDecision::LeaveOut(rule) => shared.leave_out(index, item, rule),
            FileDecision::Keep => self.keep(index, item, path, identity, KeptAs::Kept, hash),
            FileDecision::Touch => self.touch(index, item, path, identity, stat.as_ref(), hash),
        }
    }

    /// Marks a file that is about to be written in place, where a file that is not the source's may stay. After a death, or another
    /// change of the source, the unfinished file must not stay.
    fn mark(&self, incoming: &Incoming) -> Result<(), StoreError> {
        let shared = &self.shared;
        if !incoming.inplace || !shared.rules.may_keep_others() {
            return Ok(());
        }
        let (identity, chunk_bytes) = (incoming.identity, incoming.layout.chunk_bytes());
        let header = |standing: Option<_>| {
            journal::Header { identity, chunk_bytes, part: standing.unwrap_or(journal::NOTHING) }.encode()
        };
        shared.tree().mark_unfinished(&incoming.path, &header, shared.job.selection.flush)
    }

    /// The file is there. A manifest wants its hash as it is at the source, unless the contents were compared anyway.
    fn keep(
        &self,
        index: u64,
        item: &Arc<Item>,
        path: Vec<u8>,
        identity: Identity,
        kept: KeptAs,
        hash: Option<[u8; 32]>,
    ) {
        let shared = &self.shared;
        self.forget_journal(&path, identity.size);
        if hash.is_some() || !shared.job.selection.hash_kept || shared.job.selection.dry_run {
            return shared.settle(index, kept.outcome(hash));
        }
        shared.expect(Arc::new(Incoming::kept(index, Arc::clone(item), path, identity, kept)));
        shared.outbox.answer(Answer { index, wanted: Wanted::Hash });
    }

    /// What stands under its final name is as it shall be.
    fn forget_journal(&self, path: &[u8], size: u64) {
        let shared = &self.shared;
        let may_have_journal = !ChunkLayout::of(size).is_whole() || shared.rules.may_keep_others();
        if may_have_journal && !shared.job.selection.dry_run {
            shared.tree().remove_left_journal(path);
        }
    }

    fn touch(
        &self,
        index: u64,
        item: &Arc<Item>,
        path: Vec<u8>,
        identity: Identity,
        stat: Option<&Stat>,
        hash: Option<[u8; 32]>,
    ) {
        let shared = &self.shared;
        let set = || {
            // The file may come from a run that died before it flushed. With the source's time it would look complete, even when a
            // power cut has left zeros in it.
            let has_time = stat.is_some_and(|stat| convert::time(stat.mtime) == item.attributes.mtime);
            if hash.is_some() && shared.job.selection.flush && !has_time {
                shared.storage.during(|| shared.tree().flush_file(&path))?;
            }
            shared.tree().set_metadata(&path, &left_out::metadata(shared, item, stat.filter(|_| hash.is_none())))
        };
        if !shared.job.selection.dry_run
            && let Err(error) = set()
        {
            return shared.fail_item(index, &error);
        }
        // With extended attributes the metadata is always applied; that alone is nothing to tell.
        let differs = stat.is_none_or(|stat| {
            let rules = compare::Rules { xattrs: false, ..shared.rules };
            compare::metadata_differs(&item.attributes, &convert::standing(stat), &rules)
        });
        let kept = if differs { KeptAs::Touched } else { KeptAs::Kept };
        self.keep(index, item, path, identity, kept, hash);
    }

    /// Asks for the data that is missing.
    fn want(&self, index: u64, item: &Arc<Item>, path: Vec<u8>, identity: Identity, inplace: bool) {
        let shared = &self.shared;
        let selection = &shared.job.selection;
        if selection.dry_run {
            return shared.settle(index, OutcomeKind::WouldCopy);
        }
        let mut incoming = Incoming::new(index, Arc::clone(item), path, identity, inplace);
        let mut wanted = Wanted::All;
        if !incoming.layout.is_whole() && !selection.no_resume {
            match shared.tree().resume_draft(&incoming.path, inplace) {
                Ok(Some((part, journal))) => {
                    if incoming.resume(part, &journal, shared.trusts_journal(), &|| shared.is_over()) {
                        wanted = Wanted::Chunks(incoming.missing());
                    } else if shared.is_over() {
                        // Nobody knows what it is worth: that is for the next run.
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => return shared.fail_item(index, &error),
            }
        }
        if matches!(wanted, Wanted::All)
            && let Err(error) = self.mark(&incoming)
        {
            return shared.fail_item(index, &error);
        }
        let incoming = Arc::new(incoming);
        shared.expect(Arc::clone(&incoming));
        if let Err(error) = leading::show_draft(shared, &incoming) {
            return shared.fail(&incoming, &error);
        }
        let resumed = incoming.resumed(shared.verifies_disk());
        if matches!(wanted, Wanted::Chunks(_)) && !incoming.inplace && shared.trusts_journal() {
            shared.rereads.trust(incoming.resumed_bytes());
        }
        match wanted {
            Wanted::Chunks(ranges) if ranges.is_empty() && resumed.is_none() => {
                shared.queue(Task::Publish(Arc::clone(&incoming)));
            }
            wanted => {
                shared.watch.on_answer(index, &wanted);
                shared.outbox.answer(Answer { index, wanted });
            }
        }
        if let Some(flushed) = resumed {
            reread::queue(shared, &incoming, flushed);
        }
    }

    fn directory(&mut self, index: u64, item: &Arc<Item>, path: &[u8], parent_fresh: bool) {
        if self.leaves_out_directory(index, item, path, parent_fresh) {
            return;
        }
        let shared = &self.shared;
        if shared.job.selection.itemise
            && let Ok(stat) = self.stat(path, parent_fresh)
        {
            shared.note_changes(index, itemise::of_entry(None, item, &convert::existing(stat.as_ref()), &shared.rules));
        }
        let made = if shared.job.selection.dry_run {
            self.would_make_directory(path, parent_fresh)
        } else {
            shared.tree().make_dir(path).and_then(|is_new| {
                let Some(tree) = shared.tree().local() else { return Ok(is_new) };
                if !is_new {
                    // What then cannot be changed in it says why.
                    let _ = tree.open_up(path);
                }
                tree.enter(path).map(|()| is_new)
            })
        };
        self.begin_directory(item, &made.as_ref().copied().map_err(StoreError::is_twin));
        let shared = &self.shared;
        if made.is_ok() && !shared.job.selection.dry_run {
            self.pass_on_group(item, path);
        }
        match made {
            Ok(true) => {
                if !path.is_empty() && !shared.job.selection.dry_run {
                    shared.name_changed(path);
                }
                shared.settle(index, OutcomeKind::Made);
            }
            Ok(false) => shared.settle(index, OutcomeKind::Nothing),
            Err(error) => shared.fail_item(index, &error),
        }
    }

    /// Entries that are made in a directory with the set-group-id bit get the group of the directory. So the directory gets the bit
    /// and its group first, as with rsync. It gets the rest of its mode at its end; a failure here shows there, with a message.
    fn pass_on_group(&self, item: &Item, path: &[u8]) {
        let (rules, tree) = (&self.shared.rules, self.shared.tree());
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

    /// Whether a dry run finds that a directory would be made.
    fn would_make_directory(&self, path: &[u8], parent_fresh: bool) -> Result<bool, StoreError> {
        match self.stat(path, parent_fresh)? {
            None => Ok(true),
            Some(stat) if stat.kind == Kind::Directory => Ok(false),
            Some(_) => {
                let error = io::Error::new(io::ErrorKind::NotADirectory, NO_DIRECTORY);
                Err(StoreError::new("make directory", path, error))
            }
        }
    }

    fn directory_end(&mut self, index: u64, item: &Arc<Item>, path: Vec<u8>, complete: bool) {
        let frame = match self.stack.pop() {
            Some(frame) if frame.item.path == item.path => frame,
            other => {
                // An end without its beginning closes nothing.
                self.stack.extend(other);
                return self.shared.settle(index, OutcomeKind::Nothing);
            }
        };
        self.stack_bytes -= frame.item.weight_bytes();
        self.twins.leave_directory();
        if frame.failed {
            return self.shared.settle(index, OutcomeKind::Nothing);
        }
        // Why it is not, the sender tells.
        let mut names = frame.names.filter(|_| complete);
        if let Some(names) = &mut names {
            names.seal();
        }
        let (fresh, keeps_xattrs, unread) = (frame.fresh, frame.keeps_xattrs, frame.keeps_xattrs && !complete);
        let end = DirectoryEnd { path, directory: Some(frame.item), fresh, keeps_xattrs, unread, names };
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
                    // No further name of the source's link is made of it.
                    shared.stays_foreign(item, true);
                    return shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Exists });
                }
                Some(_) if selection.ignore_existing => return shared.settle(index, OutcomeKind::Nothing),
                Some(stat) if stat.kind == Kind::Directory && !settle::clear_directory(shared, path) => {
                    return shared.failed_item(index, settle::conflict(shared, path));
                }
                _ => {}
            }
            shared.note_changes(index, itemise::of_link(item, existing.as_ref(), target, &shared.rules));
            if selection.dry_run {
                let made =
                    if existing.is_some_and(|stat| is_same(&stat)) { OutcomeKind::Nothing } else { OutcomeKind::Made };
                return shared.settle(index, made);
            }
        }
        let make = || shared.tree().make_symlink(path, target, &shared.metadata(item));
        match make().or_else(|error| if settle::clear_directory(shared, path) { make() } else { Err(error) }) {
            Ok(true) => {
                shared.name_changed(path);
                self.settle_made(index, path);
            }
            Ok(false) => shared.settle(index, OutcomeKind::Nothing),
            Err(error) => shared.fail_item(index, &error),
        }
    }

    /// A name was made. Before its source may go, the name itself must be on the medium.
    fn settle_made(&self, index: u64, path: &[u8]) {
        match self.shared.flush_before_removal(path) {
            Ok(()) => self.shared.settle(index, OutcomeKind::Made),
            Err(error) => self.shared.fail_item(index, &error),
        }
    }

    /// With `--existing`, a directory that does not stand here is left out, with all beneath it.
    fn leaves_out_directory(&mut self, index: u64, item: &Arc<Item>, path: &[u8], parent_fresh: bool) -> bool {
        if !self.shared.rules.existing || !matches!(self.stat(path, parent_fresh), Ok(None)) {
            return false;
        }
        self.begin_directory(item, &Err(false));
        if let Some(frame) = self.stack.last_mut() {
            frame.fresh = true;
        }
        self.shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Missing });
        true
    }

    fn stat(&self, path: &[u8], fresh: bool) -> Result<Option<Stat>, StoreError> {
        if fresh { Ok(None) } else { self.shared.tree().stat(path) }
    }

    fn hash(&self, path: &[u8], size: u64) -> Option<[u8; 32]> {
        let file = self.shared.tree().open_file(path).ok()?;
        crate::files::hash::whole_file(&file, size, &|| self.shared.is_over()).ok()
    }
}

//! A file of the manifest goes through steps in a fixed order. Each step may change the decision, or end it.
//!
//! ```text
//!   look -> compare -> make way -> reference trees -> --delay-updates -> send, keep, set times, leave out
//! ```
//! A new rule about files is a step in [`STEPS`].

use std::sync::Arc;

use haul_engine::compare::{self, Existing, FileDecision};
use haul_engine::integrity::Hash;
use haul_engine::plan::ChunkLayout;
use haul_kept::files::hash;
use haul_store::{Stat, StoreError};
use haul_wire::control::{Answer, LeftOut, OutcomeKind, Wanted};
use haul_wire::manifest::{Identity, Item, ItemKind};

use haul_channel::convert;

use super::incoming::{Incoming, KeptAs};
use super::references::Sought;
use super::state::Shared;
use super::to_bring::WantedFile;
use super::{bringing, delayed, deletions, from_reference, itemise, left_out, settle};

struct Case<'a> {
    index: u64,
    item: &'a Arc<Item>,
    path: Vec<u8>,
    identity: Identity,
    blake3: Option<Hash>,
    fresh: bool,
    standing: Option<Stat>,
    existing: Existing,
    standing_hash: Option<Hash>,
    decision: FileDecision,
}

enum Next {
    Step,
    /// The file is settled, or asked for, or the session is over.
    End,
}

type Step = fn(&Shared, &mut Case<'_>) -> Result<Next, StoreError>;

const STEPS: [Step; 10] = [
    look,
    compare_metadata,
    compare_contents,
    make_way,
    keep_what_stands,
    leave_the_source_itself,
    flush_before_removal,
    note_changes,
    bring_from_reference,
    wait_for_the_end,
];

pub(super) fn decide(shared: &Arc<Shared>, index: u64, item: &Arc<Item>, path: Vec<u8>, fresh: bool) {
    let ItemKind::File { identity, blake3, .. } = item.kind else { return shared.settle(index, OutcomeKind::Nothing) };
    let mut case = Case {
        index,
        item,
        path,
        identity,
        blake3,
        fresh,
        standing: None,
        existing: Existing::Missing,
        standing_hash: None,
        decision: FileDecision::Send,
    };
    for step in STEPS {
        match step(shared, &mut case) {
            Ok(Next::Step) => {}
            Ok(Next::End) => return,
            Err(error) => return shared.fail_item(index, &error),
        }
    }
    carry_out(shared, case);
}

fn look(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    case.standing = if case.fresh { None } else { shared.to.tree().stat(&case.path)? };
    if let Some(standing) = &case.standing {
        shared.to.check_twin(standing, &case.path)?;
    }
    case.existing = match &case.standing {
        Some(stat) if shared.is_unfinished(&case.path, stat) => Existing::Unfinished,
        stat => convert::existing(stat.as_ref()),
    };
    Ok(Next::Step)
}

fn compare_metadata(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    case.decision = compare::file(&case.identity, &case.item.attributes, &case.existing, &shared.comparison.rules);
    Ok(Next::Step)
}

fn compare_contents(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    if case.decision != FileDecision::CompareContents {
        return Ok(Next::Step);
    }
    case.standing_hash = hash_of(shared, &case.path, case.identity.size);
    if shared.is_over() {
        return Ok(Next::End);
    }
    let is_same = case.standing_hash.is_some() && case.standing_hash == case.blake3;
    case.decision = match (&case.existing, is_same) {
        (Existing::File(standing), true) => {
            compare::same_data(&case.item.attributes, standing, &shared.comparison.rules)
        }
        _ => compare::other_data(&shared.comparison.rules),
    };
    Ok(Next::Step)
}

fn hash_of(shared: &Shared, path: &[u8], size: u64) -> Option<Hash> {
    let file = shared.to.tree().open_file(path).ok()?;
    hash::whole_file(&file, size, &|| shared.is_over()).ok()
}

fn make_way(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    if case.decision == FileDecision::Conflict && deletions::clear_directory(shared, &case.path) {
        case.decision = FileDecision::Send;
    }
    Ok(Next::Step)
}

/// No later entry may take the place of a file that stays.
fn keep_what_stands(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    let stays = matches!(case.decision, FileDecision::Keep | FileDecision::Touch | FileDecision::LeaveOut(_));
    if let Some(standing) = case.standing.as_ref().filter(|_| stays) {
        shared.to.keep(standing, &case.path);
    }
    Ok(Next::Step)
}

/// A source that is removed after the copy must not be the target.
fn leave_the_source_itself(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    let is_source = |standing: &Stat| itemise::is_source(&case.identity, standing);
    if shared.comparison.rules.removes_sources && case.standing.as_ref().is_some_and(is_source) {
        case.decision = FileDecision::LeaveOut(LeftOut::Itself);
    }
    Ok(Next::Step)
}

fn flush_before_removal(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    if matches!(case.decision, FileDecision::Keep | FileDecision::Touch) {
        shared.flush_before_removal(&case.path)?;
    }
    Ok(Next::Step)
}

fn note_changes(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    let rules = &shared.comparison.rules;
    let stays = rules.ignore_existing && case.decision == FileDecision::Keep;
    if !stays && !matches!(case.decision, FileDecision::LeaveOut(_)) {
        let of = if case.decision == FileDecision::Send { itemise::of_sent } else { itemise::of_kept };
        shared.changes.note(case.index, of(case.identity.size, case.item, &case.existing, rules));
    }
    Ok(Next::Step)
}

fn bring_from_reference(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    if case.decision != FileDecision::Send {
        return Ok(Next::Step);
    }
    let Case { path, identity, blake3, .. } = &*case;
    let sought = Sought { path, identity, item: case.item, blake3: *blake3 };
    match from_reference::bring(shared, &sought)? {
        None => Ok(Next::Step),
        Some(kept) => {
            keep(shared, case, kept, None);
            Ok(Next::End)
        }
    }
}

fn wait_for_the_end(shared: &Shared, case: &mut Case<'_>) -> Result<Next, StoreError> {
    let is_sent = matches!(case.decision, FileDecision::Send | FileDecision::CompareContents);
    if is_sent && delayed::waits(shared, case.item, &case.path, &case.identity)? {
        keep(shared, case, KeptAs::Touched, None);
        return Ok(Next::End);
    }
    Ok(Next::Step)
}

fn carry_out(shared: &Arc<Shared>, mut case: Case<'_>) {
    let index = case.index;
    match case.decision {
        FileDecision::Send | FileDecision::CompareContents => want(shared, case),
        FileDecision::Conflict => shared.failed_item(index, settle::conflict(shared, &case.path)),
        FileDecision::LeaveOut(rule @ (LeftOut::Exists | LeftOut::Newer | LeftOut::NotShorter)) => {
            // No second name may come to its turn before. The source's hash is not that of what stays.
            let has_time = compare::has_time(&case.existing, case.item.attributes.mtime);
            shared.first_names.stays_foreign(case.item, has_time);
            forget_journal(shared, &case.path, case.identity.size);
            shared.settle(index, OutcomeKind::LeftOut { rule });
        }
        FileDecision::LeaveOut(rule) => shared.leave_out(index, case.item, rule),
        FileDecision::Keep => {
            let hash = case.standing_hash;
            keep(shared, &mut case, KeptAs::Kept, hash);
        }
        FileDecision::Touch => touch(shared, case),
    }
}

/// A manifest wants the source's hash of a kept file, unless contents were compared.
fn keep(shared: &Shared, case: &mut Case<'_>, kept: KeptAs, hash: Option<Hash>) {
    forget_journal(shared, &case.path, case.identity.size);
    if hash.is_some() || !shared.job.hash_kept || shared.job.selection.dry_run {
        return shared.settle(case.index, kept.outcome(hash));
    }
    let path = std::mem::take(&mut case.path);
    shared.expect(Arc::new(Incoming::kept(case.index, Arc::clone(case.item), path, case.identity, kept)));
    shared.outbox.answer(Answer { index: case.index, wanted: Wanted::Hash });
}

fn forget_journal(shared: &Shared, path: &[u8], size: u64) {
    let may_have_journal =
        !ChunkLayout::by(shared.job.carriage.cut, size).is_whole() || shared.comparison.rules.may_keep_others();
    if may_have_journal && !shared.job.selection.dry_run {
        shared.to.tree().remove_left_journal(path);
    }
}

fn touch(shared: &Shared, mut case: Case<'_>) {
    let (item, hash) = (case.item, case.standing_hash);
    let set = || {
        // The file may come from a run that died before its flush. With the source's time, zeros after a power cut would look
        // complete.
        let has_time = case.standing.as_ref().is_some_and(|stat| convert::time(stat.mtime) == item.attributes.mtime);
        if hash.is_some() && shared.job.selection.flush && !has_time {
            shared.disk.storage.during(|| shared.to.tree().flush_file(&case.path))?;
        }
        let standing = case.standing.as_ref().filter(|_| hash.is_none());
        let metadata = left_out::metadata(shared, item, standing);
        shared.to.tree().set_metadata(&case.path, &metadata).map(|applied| applied.changed)
    };
    let foresee = |stat: &Stat| {
        let standing = Some(stat).filter(|_| hash.is_none());
        shared.foresee_metadata(&case.path, stat, &left_out::metadata(shared, item, standing))
    };
    let set = if shared.job.selection.dry_run { case.standing.as_ref().map_or(Ok(true), foresee) } else { set() };
    let is_changed = match set {
        Ok(is_changed) => is_changed,
        Err(error) => return shared.fail_item(case.index, &error),
    };
    // Extended attributes always apply metadata; that alone is no change.
    let differs = case.standing.as_ref().is_none_or(|stat| {
        let rules = compare::Rules { xattrs: false, ..shared.comparison.rules };
        compare::metadata_differs(&item.attributes, &convert::standing(stat), &rules)
    });
    keep(shared, &mut case, if differs && is_changed { KeptAs::Touched } else { KeptAs::Kept }, hash);
}

fn want(shared: &Arc<Shared>, case: Case<'_>) {
    let selection = &shared.job.selection;
    let Case { index, item, path, identity, standing, existing, .. } = case;
    if selection.dry_run {
        return shared.settle(index, OutcomeKind::WouldCopy);
    }
    // Data written in place appears under all names of the file, even one found right.
    let has_other_names = standing.as_ref().is_some_and(|stat| stat.nlink > 1);
    // What was begun in place is finished there.
    let inplace = (selection.inplace || existing == Existing::Unfinished) && !has_other_names;
    let item = Arc::clone(item);
    bringing::bring_or_ask(shared, WantedFile { index, item, path, identity, inplace, standing, existing });
}

//! The settle thread makes checkpoints, gives large files their final names, and does what has to wait for its turn in the
//! manifest. Lanes wait for its flush only if too much would pile up behind it.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use haul_engine::compare;
use haul_store::{Kind, Metadata, Stat, StoreError, TargetTree};
use haul_wire::control::{Changes, LeftOut, OutcomeKind};
use haul_wire::manifest::{Item, Time};

use haul_channel::convert;

use super::destination::shown;
use super::first_names::Bar;
use super::in_order::{DirectoryEnd, HardLink, InOrder};
use super::incoming::{Incoming, Published};
use super::state::Shared;
use super::tasks::Task;
use super::{deletions, left_out, reread, server_sums};

pub(super) struct Settler(JoinHandle<()>);

impl Settler {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        std::thread::Builder::new().name("settle".into()).spawn(move || run(&shared)).map(Self)
    }

    /// The thread may never end if the disk is lost.
    pub(super) fn join(self, is_lost: bool) {
        if is_lost && !self.0.is_finished() {
            return;
        }
        let _ = self.0.join();
    }
}

fn run(shared: &Arc<Shared>) {
    while let Some(task) = shared.tasks.next() {
        do_task(shared, task);
    }
    for incoming in shared.unfinished() {
        // The session failed: what cannot be kept is sent again.
        let _ = incoming.checkpoint(&shared.disk.exposure);
    }
}

pub(super) fn do_task(shared: &Arc<Shared>, task: Task) {
    match task {
        Task::Checkpoint(incoming) => checkpoint(shared, &incoming),
        Task::Relieve => relieve(shared),
        Task::Publish(incoming) => publish(shared, &incoming),
        Task::Lost(incoming, chunk) => lose(shared, &incoming, chunk),
        Task::InOrder(index, InOrder::HardLink(link)) => hard_link(shared, index, &link),
        Task::InOrder(index, InOrder::DirectoryEnd(end)) => {
            directory_end(shared, &end);
            shared.settle(index, OutcomeKind::Nothing);
        }
    }
}

fn checkpoint(shared: &Arc<Shared>, incoming: &Arc<Incoming>) {
    let reads_back = shared.verifies_disk();
    // What goes up in order is safe only as a whole, unless the end lets a later run go on, and is read back as a whole.
    if shared.job.carriage.in_order && !incoming.is_short() && (reads_back || !incoming.is_safe_at_once()) {
        return;
    }
    let made = shared.disk.storage.during(|| match reads_back {
        true => incoming.checkpoint_to_read_back(&shared.disk.exposure),
        false => incoming.checkpoint(&shared.disk.exposure),
    });
    match made {
        Ok(Some(flushed)) if reads_back => reread::queue(shared, incoming, flushed),
        Ok(_) => {}
        Err(error) => shared.fail(incoming, &error),
    }
    // A sign of life for the session.
    shared.tally.count_done();
}

/// Makes checkpoints of the files with the most to lose, until none is due.
fn relieve(shared: &Arc<Shared>) {
    while shared.disk.exposure.is_still_due() {
        let open = shared.unfinished().into_iter().filter(|incoming| incoming.fresh_bytes() > 0);
        let most = open.max_by_key(|incoming| incoming.fresh_bytes());
        // `None`: fresh data has just become complete or was given up, and no checkpoint is due.
        if let Some(incoming) = most {
            checkpoint(shared, &incoming);
        }
    }
}

/// Takes all chunks of a file known not to stand as verified.
fn lose(shared: &Shared, incoming: &Arc<Incoming>, chunk: u32) {
    let mut chunks = shared.tasks.more_lost(incoming);
    chunks.push(chunk);
    match shared.disk.storage.during(|| incoming.lose(&chunks)) {
        Ok(lost) => lost.into_iter().for_each(|(chunk, lost)| shared.lost(incoming, chunk, lost)),
        Err(error) => shared.fail(incoming, &error),
    }
}

fn publish(shared: &Arc<Shared>, incoming: &Arc<Incoming>) {
    match server_sums::compare(shared, incoming) {
        Ok(Ok(())) => {}
        Ok(Err(differs)) => return shared.differs(incoming, differs),
        Err(error) => return shared.fail(incoming, &error),
    }
    let metadata = shared.metadata(&incoming.item);
    match shared.disk.storage.during(|| incoming.publish(&metadata, shared.job.selection.flush, &shared.disk.exposure))
    {
        Ok(Published::NotNow) => {}
        Ok(Published::Doubted(chunks)) => reread::queue(shared, incoming, chunks),
        Ok(Published::Named(blake3)) => {
            shared.to.name_changed(&incoming.path);
            match shared.flush_before_removal(&incoming.path) {
                Ok(()) => shared.settle(incoming.index, OutcomeKind::Copied { blake3 }),
                Err(error) => shared.fail(incoming, &error),
            }
        }
        Err(error) => shared.fail(incoming, &error),
    }
}

fn hard_link(shared: &Shared, index: u64, link: &HardLink) {
    let (path, first) = (&link.path[..], link.first.as_bytes());
    let selection = &shared.job.selection;
    let stands = |path| shared.to.tree().stat(path);
    let bar = || match shared.first_names.bars(first) {
        Some(Bar::UnlessItHasTheTime) => {
            stands(first).map(|stat| stat.filter(|stat| is_foreign(shared, link, stat)).map(|_| Bar::Foreign))
        }
        bar => Ok(bar),
    };
    let is_one = |stat: &Stat| -> Result<bool, StoreError> {
        Ok(stands(first)?.is_some_and(|first| first.is_same_inode(stat)) && bar()?.is_none())
    };
    if shared.comparison.rules.may_keep_others() || selection.dry_run || selection.existing {
        match stands(path) {
            Ok(None) if selection.existing => {
                return shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Missing });
            }
            Ok(Some(stat))
                if stat.kind == Kind::Directory
                    && !shared.comparison.rules.ignore_existing
                    && !deletions::clear_directory(shared, path) =>
            {
                return shared.failed_item(index, conflict(shared, path));
            }
            Ok(Some(stat)) if stays(shared, path, link.mtime, &stat) => {
                return match is_one(&stat) {
                    Ok(true) => shared.settle(index, OutcomeKind::Nothing),
                    // Another file stays: it is not the source's, and stands in no manifest.
                    Ok(false) => shared.settle(index, OutcomeKind::LeftOut { rule: stays_by(shared) }),
                    Err(error) => shared.fail_item(index, &error),
                };
            }
            Ok(_) => {}
            Err(error) => return shared.fail_item(index, &error),
        }
    }
    let bar = match bar() {
        Ok(bar) => bar,
        Err(error) => return shared.fail_item(index, &error),
    };
    let bar = bar.or_else(|| left_out::leads_out(shared, link).then_some(Bar::LeftOut(LeftOut::UnsafeLink)));
    if let Some(bar) = bar {
        let why = match bar {
            Bar::LeftOut(rule) => return shared.settle(index, OutcomeKind::LeftOut { rule }),
            Bar::Lost => "could not be copied, or is another file by now",
            Bar::Foreign | Bar::UnlessItHasTheTime => "stays at the target as it is there, and is another file",
        };
        let why = format!("cannot make hard link {}: {}, the first name of its file, {why}", shown(path), shown(first));
        return shared.failed_item(index, why);
    }
    if selection.dry_run {
        return match stands(path).and_then(|stat| stat.map_or(Ok(false), |stat| is_one(&stat))) {
            Ok(true) => shared.settle(index, OutcomeKind::Nothing),
            Ok(false) => {
                shared.changes.note(index, Changes::NEW);
                shared.settle(index, OutcomeKind::Made);
            }
            Err(error) => shared.fail_item(index, &error),
        };
    }
    // The first name may be given at the end.
    let make = |tree: &dyn TargetTree| match tree.local().filter(|tree| tree.delays_names()) {
        Some(local) => {
            // The link stands already, unless the first name gets another file.
            if local.delayed(first).is_none()
                && stands(path)?.is_some_and(|stat| is_one(&stat).is_ok_and(|is_one| is_one))
            {
                return Ok(false);
            }
            deletions::clear_directory(shared, path);
            local.delay_hard_link(path, first).map(|()| true)
        }
        None => tree.make_hard_link(path, first),
    };
    let made = make(shared.to.tree());
    match made
        .or_else(|error| if deletions::clear_directory(shared, path) { make(shared.to.tree()) } else { Err(error) })
    {
        Ok(true) => {
            if shared.comparison.rules.may_keep_others() {
                // The journal is of what was begun in place under this name.
                shared.to.tree().remove_left_journal(path);
            }
            shared.to.name_changed(path);
            if let Err(error) = shared.flush_before_removal(path) {
                return shared.fail_item(index, &error);
            }
            shared.changes.note(index, Changes::NEW);
            shared.settle(index, OutcomeKind::Made);
        }
        Ok(false) => shared.settle(index, OutcomeKind::Nothing),
        Err(error) => shared.fail_item(index, &error),
    }
}

pub(super) fn conflict(shared: &Shared, path: &[u8]) -> String {
    let selection = &shared.job.selection;
    let why = match selection.delete || selection.force {
        true => "it is a directory, and something in it stays",
        false => "it is a directory that is not empty, which only --delete or --force replaces",
    };
    format!("cannot replace {}: {why}", shown(path))
}

fn stays_by(shared: &Shared) -> LeftOut {
    if shared.comparison.rules.ignore_existing { LeftOut::Exists } else { LeftOut::Newer }
}

/// Whether an entry has to stay (`--ignore-existing`, `--update`).
fn stays(shared: &Shared, path: &[u8], mtime: Time, standing: &Stat) -> bool {
    let is_newer = || standing.kind == Kind::File && convert::time(standing.mtime) > mtime;
    let is_kept = shared.comparison.rules.ignore_existing || (shared.comparison.rules.update && is_newer());
    is_kept && !shared.is_unfinished(path, standing)
}

/// Whether the first name has another, kept file. Those with the source's time are remembered by name. Otherwise the time
/// tells: all names of a file have it, and every file of this job.
fn is_foreign(shared: &Shared, link: &HardLink, standing: &Stat) -> bool {
    let has_time = compare::has_time(&convert::existing(Some(standing)), link.mtime);
    !has_time && stays(shared, link.first.as_bytes(), link.mtime, standing)
}

fn directory_end(shared: &Shared, end: &DirectoryEnd) {
    let dry_run = shared.job.selection.dry_run;
    // Nothing is deleted in a directory that somebody else has put there.
    if let Some(tree) = shared.to.tree().local().filter(|_| !dry_run)
        && let Err(error) = tree.leave(&end.path)
    {
        shared.to.take_dirty(&end.path);
        return shared.failed_aside(&end.path, &error);
    }
    if end.path.is_empty() {
        // The token is no extra entry, and the tree's time is set below.
        shared.discard_token();
    }
    let deleted = deletions::delete(shared, end);
    if dry_run {
        if let Some(directory) = &end.directory
            && let Err(error) = foresee_directory_metadata(shared, end, directory)
        {
            shared.failed_aside(&end.path, &error);
        }
        return;
    }
    let swept = !end.fresh && shared.to.sweep(|tree| tree.sweep_drafts(&end.path));
    shared.to.tree().local().into_iter().for_each(|tree| tree.tidy_drafts(&end.path));
    if !shared.to.tree().abilities().directories {
        return leave_name(shared, end);
    }
    let dirty = shared.to.take_dirty(&end.path) || deleted || swept;
    let wants_flush = shared.to.flushes_names() && (dirty || (!end.fresh && changed_lately(shared, &end.path)));
    if let Some(directory) = &end.directory
        && let Err(error) = set_directory_metadata(shared, end, directory)
    {
        shared.failed_aside(&end.path, &error);
    }
    if wants_flush && let Err(error) = shared.to.tree().flush_dir(&end.path) {
        shared.failed_aside(&end.path, &error);
    }
}

fn leave_name(shared: &Shared, end: &DirectoryEnd) {
    shared.to.take_dirty(&end.path);
    if let Some(directory) = end.directory.as_ref().filter(|_| end.is_empty && end.fresh && !end.path.is_empty())
        && let Err(error) = shared.to.tree().mark_directory(&end.path, &shared.metadata(directory))
    {
        shared.failed_aside(&end.path, &error);
    }
}

/// Whether an earlier run may have changed names here without a flush: this run's exit status 0 covers them, too. Without an
/// answer, names count as changed. A missing directory has failed already.
pub(super) fn changed_lately(shared: &Shared, path: &[u8]) -> bool {
    let stat = match shared.to.tree().stat(path) {
        Ok(Some(stat)) => stat,
        Ok(None) => return false,
        Err(_) => return true,
    };
    !was_written_by_itself(stat.version.changed().s, SystemTime::now())
}

/// Judges `ctime_s`. A time ahead of our clock tells no age: the server's, or from before a clock was set back.
fn was_written_by_itself(ctime_s: i64, now: SystemTime) -> bool {
    let changed = Duration::from_secs(u64::try_from(ctime_s).unwrap_or(0));
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.checked_sub(changed).is_some_and(|ago| ago > WRITTEN_BY_ITSELF)
}

/// Unflushed data is on the medium by then: kernels write back after 30 s (`vm.dirty_expire_centisecs`), journals commit within
/// 5 to 30; the rest is for differing clocks. Without this limit a copy that finds all there would flush every directory, at
/// milliseconds each.
const WRITTEN_BY_ITSELF: Duration = Duration::from_secs(600);

fn set_directory_metadata(shared: &Shared, end: &DirectoryEnd, directory: &Item) -> Result<(), StoreError> {
    let path = &end.path;
    // The directory took along what was copied into it.
    let gone = || StoreError::new("find again, during the copy,", path, io::ErrorKind::NotFound);
    let stat = shared.to.tree().stat(path)?.ok_or_else(gone)?;
    // What was there stays when the source's could not be read.
    if !matches!(stat.kind, Kind::Directory) || (end.unread && !end.fresh) {
        return Ok(());
    }
    if let Some(metadata) = directory_metadata(shared, end, directory, &stat) {
        shared.to.tree().set_metadata(path, &metadata)?;
    }
    Ok(())
}

/// The metadata to set on a standing directory; `None`: it has it.
fn directory_metadata(shared: &Shared, end: &DirectoryEnd, directory: &Item, stat: &Stat) -> Option<Metadata> {
    let rules = shared.comparison.rules.of_directories();
    let is_new = end.fresh && rules.omits_modes;
    if !is_new && !compare::metadata_differs(&directory.attributes, &convert::standing(stat), &rules) {
        return None;
    }
    let mut metadata = shared.metadata(directory);
    metadata.xattrs = metadata.xattrs.filter(|_| !end.keeps_xattrs);
    if let Some(tree) = shared.to.tree().local().filter(|_| is_new) {
        metadata.mode = metadata.mode_if_new.map(|mode| mode & tree.default_mode(true));
    }
    if end.unread {
        metadata.mode = metadata.mode.map(|mode| mode | OWNER_MAY_ALL);
    }
    Some(metadata)
}

/// Foresees in a dry run that another user's directory would not be set.
fn foresee_directory_metadata(shared: &Shared, end: &DirectoryEnd, directory: &Item) -> Result<(), StoreError> {
    let Some(stat) = shared.to.tree().stat(&end.path)? else { return Ok(()) };
    if stat.kind != Kind::Directory || end.unread {
        return Ok(());
    }
    let metadata = directory_metadata(shared, end, directory, &stat);
    metadata.map_or(Ok(()), |metadata| shared.foresee_metadata(&end.path, &stat, &metadata).map(drop))
}

/// The owner may list it, change it, and look into it.
const OWNER_MAY_ALL: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_ahead_of_the_clock_has_changed_lately() {
        let limit = i64::try_from(WRITTEN_BY_ITSELF.as_secs()).unwrap();
        let day = 86_400;
        let now_s = 1_900_000_000;
        let at = |s: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(s).unwrap());
        for (ctime_s, now_s, long_ago) in [
            (now_s, now_s, false),
            (now_s - limit, now_s, false),
            (now_s - limit - 1, now_s, true),
            // The clock was set back by a day, the server's is ahead, or the time is nonsense.
            (now_s, now_s - day, false),
            (now_s + 1, now_s, false),
            (i64::MAX, now_s, false),
            // One is before 1970, and one of a clock that was never set.
            (-day, now_s, true),
            (now_s, 0, false),
        ] {
            assert_eq!(was_written_by_itself(ctime_s, at(now_s)), long_ago, "{ctime_s} at {now_s}");
        }
    }
}

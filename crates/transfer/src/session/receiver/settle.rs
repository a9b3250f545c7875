//! The settle thread: checkpoints and final names of large files, and what has to wait for its turn in the manifest.
//! Lanes do not wait for a flush of a large file, unless too much would pile up behind it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use haul_engine::compare;
use haul_store::{Asks, DirectoryRules, Kind, Stat, StoreError, TargetTree};
use haul_wire::control::{Changes, LeftOut, Notice, OutcomeKind, Selection};
use haul_wire::manifest::{Item, Time};

use crate::session::convert;

use super::first_names::Bar;
use super::in_order::{DirectoryEnd, HardLink, InOrder};
use super::incoming::{Incoming, Published};
use super::state::{Shared, Task, parent, shown};
use super::{left_out, reread};

pub(super) struct Settler(JoinHandle<()>);

impl Settler {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        std::thread::Builder::new().name("settle".into()).spawn(move || run(&shared)).map(Self)
    }

    /// Waits for the end of the thread. `is_lost`: the disk does not answer, so the thread may never end.
    pub(super) fn join(self, is_lost: bool) {
        if is_lost && !self.0.is_finished() {
            return;
        }
        // A panic was reported by the panic hook; the session ends by its timeout.
        let _ = self.0.join();
    }
}

fn run(shared: &Arc<Shared>) {
    while let Some(task) = shared.next_task() {
        do_task(shared, task);
    }
    for incoming in shared.unfinished() {
        // The session failed; what cannot be kept is sent again.
        let _ = incoming.checkpoint(&shared.exposure);
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
    let made = shared.storage.during(|| match reads_back {
        true => incoming.checkpoint_to_read_back(&shared.exposure),
        false => incoming.checkpoint(&shared.exposure),
    });
    match made {
        Ok(Some(flushed)) if reads_back => reread::queue(shared, incoming, flushed),
        Ok(_) => {}
        Err(error) => shared.fail(incoming, &error),
    }
    // The session sees that work goes on.
    shared.count_done();
}

/// Checkpoints of the files with the most to lose, until none is due.
fn relieve(shared: &Arc<Shared>) {
    while shared.exposure.is_still_due() {
        let open = shared.unfinished().into_iter().filter(|incoming| incoming.fresh_bytes() > 0);
        let most = open.max_by_key(|incoming| incoming.fresh_bytes());
        // None: what was fresh has just become complete, or was given up, and by now no checkpoint is due.
        if let Some(incoming) = most {
            checkpoint(shared, &incoming);
        }
    }
}

/// All chunks of a file that are known by now not to stand there as they were verified.
fn lose(shared: &Shared, incoming: &Arc<Incoming>, chunk: u32) {
    let mut chunks = shared.more_lost(incoming);
    chunks.push(chunk);
    match shared.storage.during(|| incoming.lose(&chunks)) {
        Ok(lost) => lost.into_iter().for_each(|(chunk, lost)| shared.lost(incoming, chunk, lost)),
        Err(error) => shared.fail(incoming, &error),
    }
}

fn publish(shared: &Arc<Shared>, incoming: &Arc<Incoming>) {
    let metadata = shared.metadata(&incoming.item);
    match shared.storage.during(|| incoming.publish(&metadata, shared.job.selection.flush, &shared.exposure)) {
        Ok(Published::NotNow) => {}
        Ok(Published::Doubted(chunks)) => reread::queue(shared, incoming, chunks),
        Ok(Published::Named(blake3)) => {
            shared.name_changed(&incoming.path);
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
    let stands = |path| shared.tree().stat(path);
    let bar = || match shared.bars_hard_links(first) {
        Some(Bar::UnlessItHasTheTime) => {
            stands(first).map(|stat| stat.filter(|stat| is_foreign(shared, link, stat)).map(|_| Bar::Foreign))
        }
        bar => Ok(bar),
    };
    let is_one = |stat: &Stat| -> Result<bool, StoreError> {
        Ok(stands(first)?.is_some_and(|first| first.is_same_inode(stat)) && bar()?.is_none())
    };
    if shared.rules.may_keep_others() || selection.dry_run || selection.existing {
        match stands(path) {
            Ok(None) if selection.existing => {
                return shared.settle(index, OutcomeKind::LeftOut { rule: LeftOut::Missing });
            }
            Ok(Some(stat))
                if stat.kind == Kind::Directory && !shared.rules.ignore_existing && !clear_directory(shared, path) =>
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
                shared.note_changes(index, Changes::NEW);
                shared.settle(index, OutcomeKind::Made);
            }
            Err(error) => shared.fail_item(index, &error),
        };
    }
    // The first name may be one of those that are given at the end.
    let make = |tree: &dyn TargetTree| match tree.local().filter(|tree| tree.delays_names()) {
        Some(local) => {
            // Unless the first name gets another file.
            if local.delayed(first).is_none()
                && stands(path)?.is_some_and(|stat| is_one(&stat).is_ok_and(|is_one| is_one))
            {
                return Ok(false);
            }
            clear_directory(shared, path);
            local.delay_hard_link(path, first).map(|()| true)
        }
        None => tree.make_hard_link(path, first),
    };
    let made = make(shared.tree());
    match made.or_else(|error| if clear_directory(shared, path) { make(shared.tree()) } else { Err(error) }) {
        Ok(true) => {
            if shared.rules.may_keep_others() {
                // Of what was begun in place under this name.
                shared.tree().remove_left_journal(path);
            }
            shared.name_changed(path);
            if let Err(error) = shared.flush_before_removal(path) {
                return shared.fail_item(index, &error);
            }
            shared.note_changes(index, Changes::NEW);
            shared.settle(index, OutcomeKind::Made);
        }
        Ok(false) => shared.settle(index, OutcomeKind::Nothing),
        Err(error) => shared.fail_item(index, &error),
    }
}

/// As with rsync, an empty directory makes way for a file or link, also without `--delete`; with `--force`, any directory.
/// False: none stands here, something in it stays, a rule protects it, or it is another entry of this job.
pub(super) fn clear_directory(shared: &Shared, path: &[u8]) -> bool {
    let is_ours = |stat: &Stat| shared.check_twin(stat, path).is_err();
    let standing = shared.tree().stat(path).ok().flatten();
    if standing.is_none_or(|stat| stat.kind != Kind::Directory || is_ours(&stat)) {
        return false;
    }
    let deletions = Deletions::of(shared, parent(path));
    let force = shared.job.selection.force;
    let spare = |entry: &[u8], is_dir: bool| (entry != path && !force) || deletions.is_protected(entry, is_dir);
    let mut gone = false;
    let mut deleted = |deleted: Vec<u8>, _| gone |= deleted == path;
    // A failure shows where the entry is made.
    let _ = shared.tree().delete_entry(path, &spare, shared.job.selection.dry_run, &mut deleted);
    gone
}

/// Why what is no directory fails where one stands.
pub(super) fn conflict(shared: &Shared, path: &[u8]) -> String {
    let selection = &shared.job.selection;
    let why = match selection.delete || selection.force {
        true => "it is a directory, and something in it stays",
        false => "it is a directory that is not empty, which only --delete or --force replaces",
    };
    format!("cannot replace {}: {why}", shown(path))
}

/// The rule by which a further name stays as it is here.
fn stays_by(shared: &Shared) -> LeftOut {
    if shared.rules.ignore_existing { LeftOut::Exists } else { LeftOut::Newer }
}

/// Whether what stands at `path`, where the source has a file of this time, is not replaced (`--ignore-existing`, `--update`).
fn stays(shared: &Shared, path: &[u8], mtime: Time, standing: &Stat) -> bool {
    let is_newer = || standing.kind == Kind::File && convert::time(standing.mtime) > mtime;
    let is_kept = shared.rules.ignore_existing || (shared.rules.update && is_newer());
    is_kept && !shared.is_unfinished(path, standing)
}

/// Whether the entry under the first name was kept, and is another file. Other files with the time of the source's file are
/// remembered by name. Otherwise the time tells: all names of a file have it, and so has every file that this job brought.
fn is_foreign(shared: &Shared, link: &HardLink, standing: &Stat) -> bool {
    let has_time = compare::has_time(&convert::existing(Some(standing)), link.mtime);
    !has_time && stays(shared, link.first.as_bytes(), link.mtime, standing)
}

fn directory_end(shared: &Shared, end: &DirectoryEnd) {
    let dry_run = shared.job.selection.dry_run;
    // Nothing is deleted in a directory that somebody else has put there.
    if let Some(tree) = shared.tree().local().filter(|_| !dry_run)
        && let Err(error) = tree.leave(&end.path)
    {
        shared.take_dirty(&end.path);
        return shared.failed_aside(&end.path, &error);
    }
    if end.path.is_empty() {
        // It is no extra entry, and the time of the tree is set below.
        shared.discard_token();
    }
    let deleted = delete(shared, end, dry_run);
    if dry_run {
        return;
    }
    let swept = !end.fresh && shared.sweep(|tree| tree.sweep_drafts(&end.path));
    shared.tree().local().into_iter().for_each(|tree| tree.tidy_drafts(&end.path));
    let dirty = shared.take_dirty(&end.path) || deleted || swept || (!end.fresh && changed_lately(shared, &end.path));
    if let Some(directory) = &end.directory
        && let Err(error) = set_directory_metadata(shared, end, directory)
    {
        shared.failed_aside(&end.path, &error);
    }
    if dirty
        && shared.job.selection.flush
        && let Err(error) = shared.tree().flush_dir(&end.path)
    {
        shared.failed_aside(&end.path, &error);
    }
}

/// Whether an earlier run may have changed names in a directory without a flush. This run keeps the files of that run, and its
/// exit status 0 covers them, too. Without an answer, names count as changed. A missing directory has failed already.
pub(super) fn changed_lately(shared: &Shared, path: &[u8]) -> bool {
    let stat = match shared.tree().stat(path) {
        Ok(Some(stat)) => stat,
        Ok(None) => return false,
        Err(_) => return true,
    };
    !was_written_by_itself(stat.version.changed().s, SystemTime::now())
}

/// Of what changed at `ctime_s`. A time ahead of our clock is the server's, or from before a clock was set back: who knows how long ago.
fn was_written_by_itself(ctime_s: i64, now: SystemTime) -> bool {
    let changed = Duration::from_secs(u64::try_from(ctime_s).unwrap_or(0));
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.checked_sub(changed).is_some_and(|ago| ago > WRITTEN_BY_ITSELF)
}

/// What nobody flushed is on the medium after so long: kernels write back after 30 s (`vm.dirty_expire_centisecs`), journals of file
/// systems commit within 5 to 30. The rest is for clocks that differ. Without this limit a copy that finds all there would flush every
/// directory, which takes milliseconds each.
const WRITTEN_BY_ITSELF: Duration = Duration::from_secs(600);

/// rsync's `--delete`: what the source does not have goes, unless a filter excludes it from the job. Part files of names
/// that the source has are kept: they hold what a later run goes on with.
fn delete(shared: &Shared, end: &DirectoryEnd, dry_run: bool) -> bool {
    let Some(names) = end.names.as_ref().filter(|_| !shared.deletes_nothing()) else { return false };
    if shared.job.selection.one_file_system && is_mounted_below_root(shared, &end.path) {
        return false;
    }
    let mut any = false;
    let deletions = Deletions::of(shared, &end.path);
    let mut deleted = |path: Vec<u8>, is_dir| {
        any = true;
        deletions.tell(path, is_dir);
    };
    let spare = |path: &[u8], is_dir: bool| deletions.spare(path, is_dir);
    let errors = shared.tree().delete_extraneous(&end.path, names, &spare, dry_run, &mut deleted);
    deletions.end(&end.path, errors);
    any
}

/// `-x` holds at the target, too, as with rsync: what is mounted below its root is left as it is.
fn is_mounted_below_root(shared: &Shared, path: &[u8]) -> bool {
    shared.tree().local().is_some_and(|tree| tree.is_on_other_mount(path))
}

/// With `--delete`, deletes an entry of another kind: a directory in the place of a file, or a file in the place of a directory.
/// False: the entry stays (a filter, `--max-delete`), and the new one fails.
pub(super) fn make_way(shared: &Shared, path: &[u8]) -> bool {
    let deletions = Deletions::of(shared, parent(path));
    let spare = |path: &[u8], is_dir: bool| deletions.spare(path, is_dir);
    let dry_run = shared.job.selection.dry_run;
    let mut gone = false;
    let mut deleted = |deleted: Vec<u8>, is_dir| {
        gone |= deleted == path;
        deletions.tell(deleted, is_dir);
    };
    let errors = shared.tree().delete_entry(path, &spare, dry_run, &mut deleted);
    deletions.end(parent(path), errors);
    shared.name_changed(path);
    gone
}

/// What may be deleted, and what becomes of it.
struct Deletions<'a> {
    shared: &'a Shared,
    /// The directory whose entries are looked at.
    directory: &'a [u8],
    /// Those of merge files at the target.
    rules: RefCell<DirectoryRules>,
    /// Entries that stay because of `--max-delete`.
    beyond: Cell<u64>,
}

impl<'a> Deletions<'a> {
    fn of(shared: &'a Shared, directory: &'a [u8]) -> Self {
        Self { shared, directory, rules: RefCell::default(), beyond: Cell::new(0) }
    }

    /// Whatever a sender lists, or leaves out: what is excluded stays, and so does what is more than was allowed.
    fn spare(&self, path: &[u8], is_dir: bool) -> bool {
        let stays = self.shared.is_over() || self.shared.deletes_nothing();
        if stays || self.is_protected(path, is_dir) {
            return true;
        }
        let stays = !self.shared.may_delete();
        self.beyond.set(self.beyond.get() + u64::from(stays));
        stays
    }

    /// What a rule excludes here, and with `--backup` what is called like a backup.
    fn is_protected(&self, path: &[u8], is_dir: bool) -> bool {
        let Self { shared, rules, directory, .. } = self;
        let selection = &shared.job.selection;
        let mut rules = rules.borrow_mut();
        let mut read = |path: &[u8]| shared.tree().local().map_or(Ok(None), |tree| tree.read_merge_file(path));
        let mut is_unread = false;
        rules.go_to(&shared.filter, path, &mut read, &mut |_, _| is_unread = true);
        let asks = Asks::Receiver { is_beneath_deleted: parent(path) != *directory };
        // What its rules would protect is not known.
        is_unread
            || !shared.filter.selects_in(&rules, asks, path, is_dir)
            || (!selection.delete_excluded && is_backup(selection, path))
    }

    fn tell(&self, path: Vec<u8>, is_directory: bool) {
        self.shared.count_done();
        self.shared.notice_in_time(Notice::Deleted { path, is_directory });
    }

    fn end(&self, directory: &[u8], errors: Vec<StoreError>) {
        for error in errors {
            // As with rsync, `-x` says that other file systems stay.
            if error.is_mounted() && self.shared.job.selection.one_file_system {
                let text = convert::bounded(error.seen_from(&self.shared.root));
                self.shared.notice_in_time(Notice::Warning { text });
                continue;
            }
            self.shared.failed_aside(&error.path.clone(), &error);
        }
        let beyond = self.beyond.get();
        if beyond > 0 {
            let most = self.shared.job.selection.max_delete.unwrap_or(u64::MAX);
            let why =
                format!("{beyond} more entries are to be deleted here than --max-delete {most} allows; they stay");
            self.shared.notice_in_time(Notice::Failed { path: directory.to_vec(), why });
        }
    }
}

/// As with rsync, a name like that of a backup stays where backups stand beside what they are of.
fn is_backup(selection: &Selection, path: &[u8]) -> bool {
    let beside = selection.backup.as_ref().filter(|backup| backup.directory.is_empty());
    let name = &path[parent(path).len()..];
    beside.is_some_and(|backup| name.len() > backup.suffix.len() && name.ends_with(&backup.suffix))
}

fn set_directory_metadata(shared: &Shared, end: &DirectoryEnd, directory: &Item) -> Result<(), StoreError> {
    let path = &end.path;
    // It was there, and what was copied into it went with it.
    let gone = || StoreError::new("find again, during the copy,", path, io::ErrorKind::NotFound);
    let stat = shared.tree().stat(path)?.ok_or_else(gone)?;
    // What was there before stays as it is when the source's could not be read.
    if !matches!(stat.kind, Kind::Directory) || (end.unread && !end.fresh) {
        return Ok(());
    }
    let standing = convert::standing(&stat);
    if compare::metadata_differs(&directory.attributes, &standing, &shared.rules) {
        let mut metadata = shared.metadata(directory);
        metadata.xattrs = metadata.xattrs.filter(|_| !end.keeps_xattrs);
        if end.unread {
            metadata.mode = metadata.mode.map(|mode| mode | OWNER_MAY_ALL);
        }
        shared.tree().set_metadata(path, &metadata)?;
    }
    Ok(())
}

/// Of a directory: its owner may list it, change it, and look into it.
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
            // The clock was set back by a day, the file server's is ahead, or the time is nonsense.
            (now_s, now_s - day, false),
            (now_s + 1, now_s, false),
            (i64::MAX, now_s, false),
            // Before 1970, and a clock that was never set.
            (-day, now_s, true),
            (now_s, 0, false),
        ] {
            assert_eq!(was_written_by_itself(ctime_s, at(now_s)), long_ago, "{ctime_s} at {now_s}");
        }
    }
}

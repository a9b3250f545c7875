//! Deletes what stands at the target and not at the source, and what stands in the way of what comes.

use std::cell::{Cell, RefCell};

use haul_store::{Asks, DirectoryRules, Kind, Stat, StoreError};
use haul_wire::control::{Notice, Selection, Withheld};

use haul_channel::convert;

use super::destination::parent;
use super::in_order::DirectoryEnd;
use super::put_off::Due;
use super::state::Shared;

/// Deletes what the source lacks, as rsync's `--delete`, unless a filter excludes it. Part files of the source's names stay.
/// Returns whether any went; where nobody insists, entries are noted for [`delete_noted`].
pub(super) fn delete(shared: &Shared, end: &DirectoryEnd) -> bool {
    let Some(names) = end.names.as_ref().filter(|_| !shared.deletions.is_forbidden()) else { return false };
    if shared.job.selection.one_file_system && is_mounted_below_root(shared, &end.path) {
        return false;
    }
    let insists = insists(&shared.job.selection);
    let is_suspect = end.is_source && names.is_empty() && !insists;
    let deletions = Deletions { of_empty: is_suspect.then(Cell::default), ..Deletions::of(shared, &end.path) };
    let mut any = false;
    let mut noted = Noted::of(shared, &end.path);
    let mut deleted = |path: Vec<u8>, is_dir| match insists {
        true => {
            any = true;
            deletions.tell(path, is_dir);
        }
        false => noted.add_one(&path),
    };
    let spare = |path: &[u8], is_dir: bool| deletions.spare(path, is_dir);
    let only_looks = shared.job.selection.dry_run || !insists;
    let mut errors = shared.to.tree().delete_extraneous(&end.path, names, &spare, only_looks, &mut deleted);
    if !insists {
        errors.retain(|error| error.path == end.path || !noted.add(&error.path));
        errors.extend(noted.failure);
    }
    deletions.end(&end.path, errors);
    any
}

/// A user who names a limit has thought about it. With `-m` a source may only look empty.
fn insists(selection: &Selection) -> bool {
    selection.force || selection.max_delete.is_some() || selection.entries.prune_empty_dirs
}

struct Noted<'a> {
    shared: &'a Shared,
    directory: &'a [u8],
    last: Vec<u8>,
    failure: Option<StoreError>,
}

impl<'a> Noted<'a> {
    fn of(shared: &'a Shared, directory: &'a [u8]) -> Self {
        Self { shared, directory, last: Vec::new(), failure: None }
    }

    fn add_one(&mut self, path: &[u8]) {
        self.shared.put_off.count_entry();
        self.add(path);
    }

    fn add(&mut self, path: &[u8]) -> bool {
        let above = if self.directory.is_empty() { 0 } else { self.directory.len() + 1 };
        let name = path.get(above..).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| above + slash);
        let entry = &path[..end];
        // All of one entry comes in a row.
        if entry != self.last {
            let root = self.shared.to.tree().local().and_then(|tree| tree.root_directory());
            if let Err(error) = self.shared.put_off.note(entry, root) {
                self.failure = Some(StoreError::new("note for deletion", entry, error));
                return false;
            }
            self.last = entry.to_vec();
        }
        true
    }
}

/// Deletes what was noted, unless it is most of what stood here.
pub(super) fn delete_noted(shared: &Shared) {
    let Some(mut due) = shared.put_off.take() else { return };
    if shared.deletions.is_forbidden() {
        return;
    }
    if due.is_suspect() {
        let Due { entries, of, .. } = due;
        return shared.notice_in_time(Notice::Withheld {
            path: Vec::new(),
            entries,
            why: Withheld::MoreThanHalf { of },
        });
    }
    let unread = |error| StoreError::new("read what is to be deleted in", b"", error);
    let mut paths = match due.paths.read() {
        Ok(paths) => paths.map(|path| path.map_err(unread)).peekable(),
        Err(error) => return shared.failed_aside(b"", &unread(error)),
    };
    while let Some(first) = paths.next() {
        let first = match first {
            Ok(first) => first,
            Err(error) => return shared.failed_aside(b"", &error),
        };
        let directory = parent(&first).to_vec();
        let mut work = || {
            let deletions = Deletions::of(shared, &directory);
            let mut next = Some(first.clone());
            while let Some(path) = next {
                deletions.delete(&path);
                let is_beside =
                    |path: &Result<Vec<u8>, StoreError>| path.as_ref().is_ok_and(|path| parent(path) == directory);
                next = paths.next_if(is_beside).and_then(Result::ok);
            }
        };
        let keeps_time = !shared.comparison.rules.of_directories().omits_times;
        let done = match shared.to.tree().local().filter(|_| shared.to.makes_files()) {
            Some(tree) => tree.within_finished(&directory, keeps_time, work),
            None => {
                work();
                Ok(())
            }
        };
        if let Err(error) = done {
            shared.failed_aside(&directory, &error);
        }
    }
}

/// `-x` holds at the target, too, as with rsync: what is mounted below its root stays.
fn is_mounted_below_root(shared: &Shared, path: &[u8]) -> bool {
    shared.to.tree().local().is_some_and(|tree| tree.is_on_other_mount(path))
}

/// Lets an entry of another kind make way for a file or a directory (`--delete`). Returns false if it stays (a filter,
/// `--max-delete`): the new one then fails.
pub(super) fn make_way(shared: &Shared, path: &[u8]) -> bool {
    Deletions::of(shared, parent(path)).delete(path)
}

/// Clears an empty directory for a file or link, as rsync also without `--delete`; with `--force`, any directory. Returns false
/// if none stands here, or if a rule, a rest or another entry of this job keeps it.
pub(super) fn clear_directory(shared: &Shared, path: &[u8]) -> bool {
    let is_ours = |stat: &Stat| shared.to.check_twin(stat, path).is_err();
    let standing = shared.to.tree().stat(path).ok().flatten();
    if standing.is_none_or(|stat| stat.kind != Kind::Directory || is_ours(&stat)) {
        return false;
    }
    let deletions = Deletions::of(shared, parent(path));
    let force = shared.job.selection.force;
    let spare = |entry: &[u8], is_dir: bool| (entry != path && !force) || deletions.is_protected(entry, is_dir);
    let mut gone = false;
    let mut deleted = |deleted: Vec<u8>, _| gone |= deleted == path;
    // A failure shows where the entry is made.
    let _ = shared.to.tree().delete_entry(path, &spare, shared.job.selection.dry_run, &mut deleted);
    gone
}

struct Deletions<'a> {
    shared: &'a Shared,
    directory: &'a [u8],
    rules: RefCell<DirectoryRules>,
    /// Entries that `--max-delete` keeps.
    beyond: Cell<u64>,
    /// Entries that stay because the source is empty, like a disk that is not mounted.
    of_empty: Option<Cell<u64>>,
}

impl<'a> Deletions<'a> {
    fn of(shared: &'a Shared, directory: &'a [u8]) -> Self {
        Self { shared, directory, rules: RefCell::default(), beyond: Cell::new(0), of_empty: None }
    }

    fn delete(&self, path: &[u8]) -> bool {
        let shared = self.shared;
        let spare = |path: &[u8], is_dir: bool| self.spare(path, is_dir);
        let mut gone = false;
        let mut deleted = |deleted: Vec<u8>, is_dir| {
            gone |= deleted == path;
            self.tell(deleted, is_dir);
        };
        let errors = shared.to.tree().delete_entry(path, &spare, shared.job.selection.dry_run, &mut deleted);
        self.end(self.directory, errors);
        shared.to.name_changed(path);
        gone
    }

    /// An excluded entry stays, whatever a sender lists, and so does what exceeds the limit.
    fn spare(&self, path: &[u8], is_dir: bool) -> bool {
        let stays = self.shared.is_over() || self.shared.deletions.is_forbidden();
        if stays || self.is_protected(path, is_dir) {
            return true;
        }
        if let Some(stay) = &self.of_empty {
            stay.set(stay.get() + 1);
            return true;
        }
        let stays = !self.shared.deletions.take();
        self.beyond.set(self.beyond.get() + u64::from(stays));
        stays
    }

    /// A rule protects what it excludes here. With `--backup`, the name of a backup is protected unless a rule gives it up.
    fn is_protected(&self, path: &[u8], is_dir: bool) -> bool {
        let Self { shared, rules, directory, .. } = self;
        let selection = &shared.job.selection;
        let mut rules = rules.borrow_mut();
        let mut read = |path: &[u8]| shared.to.tree().local().map_or(Ok(None), |tree| tree.read_merge_file(path));
        let mut is_unread = false;
        rules.go_to(shared.comparison.filter.merge_files(), path, &mut read, &mut |_, _| is_unread = true);
        let asks = Asks::Receiver { is_beneath_deleted: parent(path) != *directory };
        // Its rules might protect anything.
        if is_unread {
            return true;
        }
        // As with rsync, names of backups have their rule behind all others: `R *~` gives them up.
        let decided = shared.comparison.filter.decides_in(&rules, asks, path, is_dir);
        let may_go = decided.unwrap_or_else(|| selection.delete_excluded || !is_backup(selection, path));
        !may_go
    }

    fn tell(&self, path: Vec<u8>, is_directory: bool) {
        self.shared.tally.count_done();
        self.shared.notice_in_time(Notice::Deleted { path, is_directory });
    }

    fn end(&self, directory: &[u8], errors: Vec<StoreError>) {
        for error in errors {
            if error.is_mounted() && self.shared.job.selection.one_file_system {
                let text = convert::bounded(error.seen_from(self.shared.to.root()));
                self.shared.notice_in_time(Notice::Warning { text });
                continue;
            }
            self.shared.failed_aside(&error.path.clone(), &error);
        }
        if let Some(entries) = self.of_empty.as_ref().map(Cell::get).filter(|entries| *entries > 0) {
            let (path, why) = (directory.to_vec(), Withheld::SourceIsEmpty);
            self.shared.notice_in_time(Notice::Withheld { path, entries, why });
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

/// As with rsync, a backup's name stays where backups stand beside their originals.
fn is_backup(selection: &Selection, path: &[u8]) -> bool {
    let beside = selection.backup.as_ref().filter(|backup| backup.directory.is_empty());
    let name = &path[parent(path).len()..];
    beside.is_some_and(|backup| name.len() > backup.suffix.len() && name.ends_with(&backup.suffix))
}

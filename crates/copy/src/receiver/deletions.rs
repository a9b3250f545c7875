//! Deletes what stands at the target and not at the source, and what stands in the way of what comes.

use std::cell::{Cell, RefCell};

use haul_store::{Asks, DirectoryRules, Kind, Stat, StoreError};
use haul_wire::control::{Notice, Selection, Withheld};

use haul_channel::convert;

use super::destination::parent;
use super::in_order::DirectoryEnd;
use super::put_off::Due;
use super::state::Shared;

/// With rsync's `--delete` an entry that the source does not have goes, unless a filter excludes it from the job. Part
/// files of names that the source has are kept: they hold what a later run goes on with. It returns whether any went:
/// where nobody insists, they are noted, and go in [`delete_noted`].
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
        // What fails within an entry is told when the entry goes.
        errors.retain(|error| error.path == end.path || !noted.add(&error.path));
        errors.extend(noted.failure);
    }
    deletions.end(&end.path, errors);
    any
}

/// Whether the user insists: who names how many may go has thought about it. With `-m` a source may look empty that is not.
fn insists(selection: &Selection) -> bool {
    selection.force || selection.max_delete.is_some() || selection.entries.prune_empty_dirs
}

/// The entries of a directory that are to be deleted at the end of the job.
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

    /// Notes the entry of the directory that `path` is, or lies in. It returns false if that failed.
    fn add(&mut self, path: &[u8]) -> bool {
        let above = if self.directory.is_empty() { 0 } else { self.directory.len() + 1 };
        let name = path.get(above..).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| above + slash);
        let entry = &path[..end];
        // All that is in an entry comes in a row.
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

/// All of the source is known and has come: what was noted goes, unless it is most of what stood here.
pub(super) fn delete_noted(shared: &Shared) {
    let Some(mut due) = shared.put_off.take() else { return };
    // The sender says why.
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

/// `-x` holds at the target, too, as with rsync: what is mounted below its root is left as it is.
fn is_mounted_below_root(shared: &Shared, path: &[u8]) -> bool {
    shared.to.tree().local().is_some_and(|tree| tree.is_on_other_mount(path))
}

/// With `--delete` an entry of another kind makes way: a directory for a file, or a file for a directory. It returns
/// false if the entry stays (a filter, `--max-delete`): then the new one fails.
pub(super) fn make_way(shared: &Shared, path: &[u8]) -> bool {
    Deletions::of(shared, parent(path)).delete(path)
}

/// As with rsync, an empty directory makes way for a file or link, also without `--delete`; with `--force`, any
/// directory. It returns false if none stands here, or if something in it stays. It also does so if a rule protects it,
/// or if it is another entry of this job.
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
    /// The merge files at the target have these rules.
    rules: RefCell<DirectoryRules>,
    /// `--max-delete` keeps so many entries.
    beyond: Cell<u64>,
    /// The source is empty, as a disk is that is not mounted. So many entries stay for that.
    of_empty: Option<Cell<u64>>,
}

impl<'a> Deletions<'a> {
    fn of(shared: &'a Shared, directory: &'a [u8]) -> Self {
        Self { shared, directory, rules: RefCell::default(), beyond: Cell::new(0), of_empty: None }
    }

    /// Deletes an entry with all that is in it; false if it stays.
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

    /// An excluded entry stays, whatever a sender lists or leaves out, and so does what is more than was allowed.
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

    /// A rule protects what it excludes here. With `--backup`, a name like that of a backup is protected if no rule
    /// gives it up.
    fn is_protected(&self, path: &[u8], is_dir: bool) -> bool {
        let Self { shared, rules, directory, .. } = self;
        let selection = &shared.job.selection;
        let mut rules = rules.borrow_mut();
        let mut read = |path: &[u8]| shared.to.tree().local().map_or(Ok(None), |tree| tree.read_merge_file(path));
        let mut is_unread = false;
        rules.go_to(shared.comparison.filter.merge_files(), path, &mut read, &mut |_, _| is_unread = true);
        let asks = Asks::Receiver { is_beneath_deleted: parent(path) != *directory };
        // Nobody knows what its rules would protect.
        if is_unread {
            return true;
        }
        // As with rsync, names like those of backups have their rule behind all others: `R *~` gives them up.
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
            // As with rsync, `-x` says that other file systems stay.
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

/// As with rsync, a name like that of a backup stays where backups stand beside what they are of.
fn is_backup(selection: &Selection, path: &[u8]) -> bool {
    let beside = selection.backup.as_ref().filter(|backup| backup.directory.is_empty());
    let name = &path[parent(path).len()..];
    beside.is_some_and(|backup| name.len() > backup.suffix.len() && name.ends_with(&backup.suffix))
}

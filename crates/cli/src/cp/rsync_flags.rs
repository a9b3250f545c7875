//! Flags with rsync's names and meaning: which entries are left out, and what becomes of a source.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use haul_job::rate;
use haul_job::{
    AccountRule, Accounts, Backup, Drafts, Entries, Error, Fault, Here, OfReference, Place, References, Selection,
};
use jiff::Zoned;

use crate::cp::account_map::{self, AccountMap, Ownership};
use crate::cp::chmod;
use crate::cp::deadline_flags::{self, Deadline};
use crate::flags::headings::{SAID, WHAT, WRITE};
use crate::flags::values::parse_age;
use crate::progress::itemise::Format;

/// Rules of rsync for what is copied, and what is told of each entry.
#[derive(Debug, Args)]
pub struct RsyncRules {
    /// Compare by content, not by size and time (scp's -c CIPHER is --cipher here)
    #[arg(short = 'c', long, help_heading = WHAT)]
    pub checksum: bool,
    /// Leave files alone that are newer at the target
    #[arg(short = 'u', long, help_heading = WHAT)]
    pub update: bool,
    /// Copy only what exists at the target already: make no new file, link or directory
    #[arg(long, visible_alias = "ignore-non-existing", help_heading = WHAT)]
    pub existing: bool,
    /// Leave files alone that exist at the target
    #[arg(long, help_heading = WHAT)]
    pub ignore_existing: bool,
    /// Files only grow: one that is as long at the target, or longer, stays as it is. What is new of one that has grown is
    /// sent, and all of it is verified
    #[arg(long, visible_alias = "append", conflicts_with_all = ["partial_dir", "delay_updates"], help_heading = WHAT)]
    pub append_verify: bool,
    /// Compare by size alone, not by time
    #[arg(long, conflicts_with = "checksum", help_heading = WHAT)]
    pub size_only: bool,
    /// Times that differ by so many seconds are equal: 0 to the second, 1 for FAT, -1 to the nanosecond. Without this flag: to
    /// the nanosecond, or to the second where the target keeps no more
    #[arg(short = '@', long, value_name = "SECONDS", allow_hyphen_values = true, help_heading = WHAT)]
    pub modify_window: Option<i32>,
    /// Send files also where size and time are equal
    #[arg(short = 'I', long, help_heading = WHAT)]
    pub ignore_times: bool,
    /// Replace a directory with all that is in it where a file or link comes, also without --delete. With --delete: delete
    /// also where the source is empty, or lacks most of what stands at the target
    #[arg(long, help_heading = WHAT)]
    pub force: bool,
    /// Leave out files that are larger, such as 1.5M or 100MB: K M G T P are powers of 1024, KB MB of 1000, and '+1' or
    /// '-1' behind adds a byte or takes one away. They stay at the target, also with --delete
    #[arg(long, value_name = "SIZE", value_parser = rate::parse_rsync_size, allow_hyphen_values = true, help_heading = WHAT)]
    pub max_size: Option<u64>,
    /// Leave out files that are smaller
    #[arg(long, value_name = "SIZE", value_parser = rate::parse_rsync_size, allow_hyphen_values = true, help_heading = WHAT)]
    pub min_size: Option<u64>,
    /// Leave out files that were modified longer ago than 90m, 12h, 30d, 2w or 1y. They stay at the target, also with
    /// --delete
    #[arg(long, value_name = "AGE", value_parser = parse_age, help_heading = WHAT)]
    pub max_age: Option<u64>,
    /// Leave out files that were modified more lately: somebody may still write them
    #[arg(long, value_name = "AGE", value_parser = parse_age, help_heading = WHAT)]
    pub min_age: Option<u64>,
    /// Do not go into other file systems: the directory in which one is mounted is copied without its contents
    #[arg(short = 'x', long, help_heading = WHAT)]
    pub one_file_system: bool,
    /// Copy directories without their contents, but for those with a slash behind: 'dir/' is dir and its entries. -r and -a
    /// win over it
    #[arg(short = 'd', long, help_heading = WHAT)]
    pub dirs: bool,
    /// Copy no directory in which nothing is copied; with --delete it goes from the target. A rule 'P dir/' keeps one
    #[arg(short = 'm', long, help_heading = WHAT)]
    pub prune_empty_dirs: bool,
    /// Where a directory comes and a symbolic link to a directory stands at the target, copy into that directory: a link that
    /// leads within the target, or that is your own or root's. Trust the links that are there
    #[arg(short = 'K', long, help_heading = WHAT)]
    pub keep_dirlinks: bool,
    /// Leave out symbolic links that are absolute or lead out of the tree that is copied
    #[arg(long, help_heading = WHAT)]
    pub safe_links: bool,
    /// Copy devices, too, which only root can make; without this flag they are skipped, and named
    #[arg(long, help_heading = WHAT)]
    pub devices: bool,
    /// Copy FIFOs and the names of sockets, too
    #[arg(long, help_heading = WHAT)]
    pub specials: bool,
    /// The same as --devices --specials
    #[arg(short = 'D', help_heading = WHAT)]
    pub devices_and_specials: bool,
    /// Remove each file and link of the source once it is verified and flushed at the target. What changed since is kept,
    /// and so are directories and what a rule leaves out
    #[arg(long, conflicts_with_all = ["delete", "delete_after", "delete_excluded", "no_flush"], help_heading = WHAT)]
    pub remove_source_files: bool,
    /// As --delete, which removes after the copy; with --force or --max-delete in each directory after its entries have come
    #[arg(long, visible_aliases = ["del", "delete-during", "delete-delay", "delete-before"], conflicts_with = "files_from", help_heading = WHAT)]
    pub delete_after: bool,
    /// As --delete, and also delete at the target what --exclude leaves out
    #[arg(long, conflicts_with = "files_from", help_heading = WHAT)]
    pub delete_excluded: bool,
    /// Change the modes of what is copied, as in rsync: D750,F640 or u=rwX,go-w (D for directories, F for all else)
    #[arg(long, value_name = "CHANGES", value_parser = chmod::parse, allow_hyphen_values = true, help_heading = WHAT)]
    pub chmod: Vec<chmod::Changes>,
    /// A rule of rsync's language: '- PATTERN', '+ PATTERN', 'P PATTERN' (protect from --delete), '. FILE' (rules of a file)
    /// or ': NAME' (rules of such a file in each directory of the source)
    #[arg(short = 'f', long, value_name = "RULE", allow_hyphen_values = true, help_heading = WHAT)]
    pub filter: Vec<OsString>,
    /// Leave out what CVS ignores: objects, backups, .git/ and their like, and what .cvsignore files name
    #[arg(long, help_heading = WHAT)]
    pub cvs_exclude: bool,
    /// Copy each source with its path as typed: 'a/b' becomes DST/a/b. In 'a/./b' the path begins behind the dot
    #[arg(short = 'R', long, help_heading = WHAT)]
    pub relative: bool,
    /// Keep what is replaced or deleted at the target: 'name' becomes 'name~'
    #[arg(short = 'b', long, conflicts_with = "inplace", help_heading = WHAT)]
    pub backup: bool,
    /// As --backup, into this directory, with the path in the target. A relative one begins at the target
    #[arg(long, value_name = "DIR", conflicts_with = "inplace", help_heading = WHAT)]
    pub backup_dir: Option<OsString>,
    /// What --backup puts behind the name instead of '~'; with --backup-dir nothing, without this flag
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true, help_heading = WHAT)]
    pub suffix: Option<OsString>,
    /// Make hard links to files of DIR, at the target's host, that are the source's in all that is kept; a file whose
    /// metadata alone differs is copied there. A relative DIR begins at the target. Repeat the flag for several
    #[arg(long, value_name = "DIR", conflicts_with_all = ["copy_dest", "compare_dest"], help_heading = WHAT)]
    pub link_dest: Vec<OsString>,
    /// As --link-dest, with copies
    #[arg(long, value_name = "DIR", conflicts_with = "compare_dest", help_heading = WHAT)]
    pub copy_dest: Vec<OsString>,
    /// As --link-dest, and make nothing of a file that DIR has
    #[arg(long, value_name = "DIR", help_heading = WHAT)]
    pub compare_dest: Vec<OsString>,
    /// Give all to this user and group of the target, by name or number; either may be empty
    #[arg(long, value_name = "USER:GROUP", value_parser = account_map::parse_chown, help_heading = WHAT)]
    #[arg(conflicts_with_all = ["usermap", "groupmap"])]
    pub chown: Option<Ownership>,
    /// Give what belongs to users of the source to others: FROM:TO,FROM:TO with names, numbers, LOW-HIGH or '*'; the first
    /// FROM that matches counts
    #[arg(long, value_name = "MAP", value_parser = account_map::parse, allow_hyphen_values = true, help_heading = WHAT)]
    pub usermap: Option<AccountMap>,
    /// The same for groups
    #[arg(long, value_name = "MAP", value_parser = account_map::parse, allow_hyphen_values = true, help_heading = WHAT)]
    pub groupmap: Option<AccountMap>,
}

/// Where data stands until its file has its name.
#[derive(Debug, Args)]
pub struct RsyncDrafts {
    /// Keep unfinished files in directories of this name beside their places, made at need and removed when empty; or all in
    /// one, if DIR is absolute. The next run goes on with them
    #[arg(long, value_name = "DIR", conflicts_with = "inplace", help_heading = WRITE)]
    pub partial_dir: Option<OsString>,
    /// Write unfinished files into DIR; a relative one begins at the target. If DIR is on another file system than its
    /// place, a file is written beside its place, so that its name follows in one step
    #[arg(short = 'T', long, value_name = "DIR", conflicts_with = "inplace", help_heading = WRITE)]
    pub temp_dir: Option<OsString>,
    /// Give all files their names at the end, once all have arrived. Until then they wait in .~tmp~ beside their places, or in
    /// --partial-dir
    #[arg(long, conflicts_with_all = ["inplace", "remove_source_files"], help_heading = WRITE)]
    pub delay_updates: bool,
}

const DELAYED_IN: &str = ".~tmp~";

impl RsyncDrafts {
    /// The drafts of the flags.
    ///
    /// # Errors
    /// [`Fault::Usage`]: a directory is none.
    pub fn drafts(&self) -> Result<Drafts, Error> {
        let partial = self.partial_dir.as_ref().map(|dir| dir.as_bytes()).filter(|dir| !matches!(*dir, b"" | b"."));
        let name = partial.filter(|dir| !dir.starts_with(b"/"));
        let name = name.map(|dir| dir.strip_suffix(b"/").unwrap_or(dir));
        if name.is_some_and(|name| name.contains(&b'/') || name == b"..") {
            return Err(Error::new(Fault::Usage, "--partial-dir takes one name, or an absolute path")
                .try_this("--partial-dir=.partial puts a directory of this name beside each unfinished file"));
        }
        let temporary = self.temp_dir.as_ref().map(|dir| dir.as_bytes()).filter(|dir| !dir.is_empty());
        let delayed_in = if self.delay_updates { name.unwrap_or(DELAYED_IN.as_bytes()).to_vec() } else { Vec::new() };
        let directory = name.or(partial).or(temporary).unwrap_or_default().to_vec();
        Ok(Drafts { directory, in_each: name.is_some(), delayed_in })
    }

    /// Keeps such directories out of the copy and safe at the target, also with --delete-excluded. These rules come
    /// last, as with rsync.
    ///
    /// # Errors
    /// [`Fault::Usage`]: see [`RsyncDrafts::drafts`].
    pub fn rules(&self) -> Result<Vec<OsString>, Error> {
        let drafts = self.drafts()?;
        let name = if drafts.in_each { drafts.directory } else { drafts.delayed_in };
        let rule = |kind: &[u8]| OsString::from_vec([kind, &name[..], b"/"].concat());
        Ok(if name.is_empty() { Vec::new() } else { vec![rule(b"Hp "), rule(b"Pp ")] })
    }
}

/// When a copy ends before all is there.
#[derive(Debug, Args)]
pub struct RsyncStops {
    /// End the copy after so many minutes; the next run goes on
    #[arg(long, value_name = "MINUTES", visible_alias = "time-limit", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = SAID)]
    pub stop_after: Option<u32>,
    /// End the copy at this time: '06:00' or '2026-12-01T08:00'
    #[arg(long, value_name = "TIME", value_parser = deadline_flags::parse_by, conflicts_with = "stop_after", help_heading = SAID)]
    pub stop_at: Option<Deadline>,
}

impl RsyncStops {
    /// Returns the moment.
    ///
    /// # Errors
    /// There is no such time.
    pub fn at(&self) -> Result<Option<SystemTime>, Error> {
        let after = self.stop_after.map(|minutes| SystemTime::now() + Duration::from_secs(u64::from(minutes) * 60));
        let at = self.stop_at.map(|deadline| deadline.moment(&Zoned::now())).transpose();
        let at = at.map_err(|why| Error::new(Fault::Usage, "--stop-at names no time").because(why))?;
        Ok(after.or(at))
    }
}

/// What is told of each entry, in rsync's words.
#[derive(Debug, Args)]
pub struct RsyncLines {
    /// A table of all totals at the end
    #[arg(long, conflicts_with_all = ["json", "quiet"], help_heading = SAID)]
    pub stats: bool,
    /// List what would be copied, with type, permissions, size and time, and copy nothing; without a target, too. Directories
    /// come without their contents, unless -r or -a asks for them
    #[arg(long, conflicts_with_all = ["stats", "itemize_changes", "out_format"], help_heading = SAID)]
    pub list_only: bool,
    /// A line for each entry that changes, with rsync's letters: '>f.st...... name'. (-i is an ssh key, as in scp)
    #[arg(long, help_heading = SAID)]
    pub itemize_changes: bool,
    /// A line for each entry that changes, in rsync's words: '%i %n%L' is that of --itemize-changes. Also %l size, %b bytes
    /// moved, %M time, %B permissions, %U and %G owner and group, %o what was done, %f name, %t now, %p process
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse, conflicts_with = "json", help_heading = SAID)]
    pub out_format: Option<Format>,
    /// Add these lines to FILE, each with its time, whatever is shown here
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SAID)]
    pub log_file: Option<PathBuf>,
}

/// rsync's limit.
const MAX_REFERENCES: usize = 20;

/// Refused: it would keep a file under its own name.
const NO_BACKUP: Backup = Backup { suffix: Vec::new(), directory: Vec::new() };

impl RsyncRules {
    /// Applies the flags. With `dirs`, directories come without contents.
    pub fn select(&self, selection: Selection, dirs: bool) -> Selection {
        let (user_map, group_map) = self.maps();
        Selection {
            owner: selection.owner || !user_map.is_empty(),
            group: selection.group || !group_map.is_empty(),
            user_map,
            group_map,
            backup: self.backup(),
            references: self.references(),
            keep_dirlinks: self.keep_dirlinks,
            checksum: self.checksum,
            update: self.update,
            delete: selection.delete || self.delete_after || self.delete_excluded,
            delete_excluded: self.delete_excluded,
            chmod: self.chmod.iter().flat_map(|changes| changes.0.iter().copied()).collect(),
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            size_only: self.size_only,
            append: self.append_verify,
            ignore_times: self.ignore_times,
            force: self.force,
            max_size_bytes: self.max_size,
            min_size_bytes: self.min_size,
            modified_since_s: self.max_age.map(ago_s),
            modified_until_s: self.min_age.map(ago_s),
            one_file_system: self.one_file_system,
            remove_source_files: self.remove_source_files,
            entries: Entries {
                dirs,
                prune_empty_dirs: self.prune_empty_dirs,
                safe_links: self.safe_links,
                devices: self.devices || self.devices_and_specials,
                specials: self.specials || self.devices_and_specials,
            },
            modify_window_s: self.modify_window,
            ..selection
        }
    }

    /// As with rsync, a directory for backups asks for them, a suffix alone does not.
    fn backup(&self) -> Option<Backup> {
        let bytes = |text: &Option<OsString>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let directory = bytes(&self.backup_dir).unwrap_or_default();
        let usual = if directory.is_empty() { b"~".to_vec() } else { Vec::new() };
        let suffix = bytes(&self.suffix).unwrap_or(usual);
        (self.backup || self.backup_dir.is_some()).then_some(Backup { suffix, directory })
    }

    fn references(&self) -> Option<References> {
        let (made, directories) = [
            (OfReference::HardLink, &self.link_dest),
            (OfReference::Copy, &self.copy_dest),
            (OfReference::Nothing, &self.compare_dest),
        ]
        .into_iter()
        .find(|(_, directories)| !directories.is_empty())?;
        let directories = directories.iter().map(|directory| directory.as_bytes().to_vec()).collect();
        Some(References { directories, made })
    }

    fn maps(&self) -> (Vec<AccountRule>, Vec<AccountRule>) {
        let all = |to: &Option<Vec<u8>>| {
            let rule = |to: &Vec<u8>| AccountRule { from: Accounts::Named(b"*".to_vec()), to: to.clone() };
            to.iter().map(rule).collect()
        };
        match &self.chown {
            Some(Ownership { user, group }) => (all(user), all(group)),
            None => [&self.usermap, &self.groupmap].map(|map| map.clone().map_or_else(Vec::new, |map| map.0)).into(),
        }
    }

    /// Removed sources need a target that keeps something.
    pub fn check(&self, target: &Place) -> Result<(), Error> {
        let is_name = |suffix: &OsString| !suffix.as_bytes().contains(&b'/');
        if !self.suffix.as_ref().is_none_or(is_name) || self.backup().is_some_and(|backup| backup == NO_BACKUP) {
            return Err(Error::new(Fault::Usage, "--suffix is a part of a name: not empty, and without a slash")
                .try_this("--backup --suffix .old, or --backup-dir DIR"));
        }
        if self.references().is_some_and(|references| references.directories.len() > MAX_REFERENCES) {
            let what = format!("more than {MAX_REFERENCES} directories to look into");
            return Err(Error::new(Fault::Usage, what).try_this("name the latest ones"));
        }
        if self.remove_source_files && *target == Place::Here(Here::Null) {
            return Err(Error::new(Fault::Usage, "--remove-source-files and null: exclude each other")
                .because("what arrives at null: is let go, and the sources would be gone")
                .try_this("leave one of the two out"));
        }
        Ok(())
    }
}

impl RsyncLines {
    pub fn itemises(&self) -> bool {
        self.list_only || self.itemize_changes || self.out_format.is_some() || self.log_file.is_some()
    }

    pub fn format(&self) -> Option<Format> {
        if self.list_only {
            return Some(Format::listing());
        }
        self.out_format.clone().or_else(|| self.itemize_changes.then(Format::itemized))
    }
}

fn ago_s(age_s: u64) -> i64 {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(now_s).unwrap_or(i64::MAX).saturating_sub(i64::try_from(age_s).unwrap_or(i64::MAX))
}

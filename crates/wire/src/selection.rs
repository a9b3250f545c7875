//! What is copied, and how faithfully: the one type for flags, jobs, messages and both roles.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::filter_rule::FilterRule;
use crate::limits::{MAX_ACCOUNT_RULES, MAX_SPEC_ITEMS};
use crate::mode_change::ModeChange;
use crate::rsync_rules::{AccountRule, Backup, Drafts, Entries, References, Wishes};

/// Filled by the front ends, read by both roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Rules of which the first match decides, as in rsync.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub rules: Vec<FilterRule>,
    /// Follow the source's links (`-L`).
    pub follow_links: bool,
    /// Follow the target's links to directories (`--keep-dirlinks`).
    pub keep_dirlinks: bool,
    /// Owner, for root at the target; else ignored with a word.
    pub owner: bool,
    /// Group; without root the user's own, others are reported.
    pub group: bool,
    /// Set-user-id, set-group-id and sticky bits, as rsync's `-p`.
    pub special_bits: bool,
    /// How much modes and times matter.
    pub wishes: Wishes,
    /// Owners and groups by number.
    pub numeric_ids: bool,
    /// Hard links within the job (`-H`).
    pub hard_links: bool,
    /// `user.` attributes (root: `trusted.`, `security.`) (`-X`).
    pub xattrs: bool,
    /// POSIX ACLs (`-A`).
    pub acls: bool,
    /// Holes; true by default.
    pub sparse: bool,
    /// Delete extraneous entries (`--delete`).
    pub delete: bool,
    /// Most deletions; further ones count as failed (`--max-delete`).
    pub max_delete: Option<u64>,
    /// Compare contents (`-c`, `--checksum`).
    pub checksum: bool,
    /// Skip older files (`-u`).
    pub update: bool,
    /// Skip existing files.
    pub ignore_existing: bool,
    /// Delete excluded entries, too.
    pub delete_excluded: bool,
    /// Changes of modes, in order.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub chmod: Vec<ModeChange>,
    /// Keep what is replaced or deleted.
    pub backup: Option<Backup>,
    /// Trees that may have a file already.
    pub references: Option<References>,
    /// Owners for users of the source; the first match counts (needs `owner`).
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_ACCOUNT_RULES>")]
    pub user_map: Vec<AccountRule>,
    /// Groups for groups of the source; likewise.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_ACCOUNT_RULES>")]
    pub group_map: Vec<AccountRule>,
    /// Make nothing new.
    pub existing: bool,
    /// Compare by size alone.
    pub size_only: bool,
    /// Send equal files, too.
    pub ignore_times: bool,
    /// Files and links replace full directories, also without `delete`. With `delete`, an empty source, or one that lacks most
    /// entries, deletes, too.
    pub force: bool,
    /// Both ends may be one host: the target shows its tree, not to be copied into itself.
    pub may_overlap: bool,
    /// Leave out larger files.
    pub max_size_bytes: Option<u64>,
    /// Leave out smaller files.
    pub min_size_bytes: Option<u64>,
    /// Leave out files modified before this second since 1970 (`--max-age`).
    pub modified_since_s: Option<i64>,
    /// Leave out files modified after this second since 1970 (`--min-age`).
    pub modified_until_s: Option<i64>,
    /// Each source's file system only.
    pub one_file_system: bool,
    /// Remove files and links of the source once the target has them.
    pub remove_source_files: bool,
    /// Report differences.
    pub itemise: bool,
    /// Entries that come, beyond the rules.
    pub entries: Entries,
    /// Where unfinished data stands.
    pub drafts: Drafts,
    /// Files only grow: one not shorter at the target stays (`--append-verify`).
    pub append: bool,
    /// Times within so many seconds are equal (`--modify-window`); below 0: to the nanosecond. `None`: as the target keeps them.
    pub modify_window_s: Option<i32>,
    /// Change nothing (`-n`).
    pub dry_run: bool,
    /// Write in place (`--inplace`).
    pub inplace: bool,
    /// Start partial files over.
    pub no_resume: bool,
    /// Send all of a file that differs (`-W`, `--whole-file`).
    pub whole_file: bool,
    /// Copy grown files as listed (`--growing`).
    pub growing: bool,
    /// Flush files and directories before they count; true by default.
    pub flush: bool,
    /// Read chunks back from the medium before files count; needs `flush`.
    pub verify_disk: bool,
    /// An earlier run's data counts by its journal; else it is read and hashed first.
    pub trust_journal: bool,
    /// Make the target's parents; true by default.
    pub make_target: bool,
}

impl Selection {
    /// Whether the target shows its tree first.
    pub fn shows_target(&self) -> bool {
        (self.remove_source_files || self.delete || self.may_overlap) && !self.dry_run
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            follow_links: false,
            keep_dirlinks: false,
            owner: false,
            group: false,
            special_bits: false,
            wishes: Wishes::default(),
            numeric_ids: false,
            hard_links: false,
            xattrs: false,
            acls: false,
            sparse: true,
            delete: false,
            max_delete: None,
            checksum: false,
            update: false,
            ignore_existing: false,
            delete_excluded: false,
            chmod: Vec::new(),
            backup: None,
            references: None,
            user_map: Vec::new(),
            group_map: Vec::new(),
            existing: false,
            size_only: false,
            ignore_times: false,
            force: false,
            may_overlap: false,
            max_size_bytes: None,
            min_size_bytes: None,
            modified_since_s: None,
            modified_until_s: None,
            one_file_system: false,
            remove_source_files: false,
            itemise: false,
            entries: Entries::default(),
            drafts: Drafts::default(),
            append: false,
            modify_window_s: None,
            dry_run: false,
            inplace: false,
            no_resume: false,
            whole_file: false,
            growing: false,
            flush: true,
            verify_disk: false,
            trust_journal: false,
            make_target: true,
        }
    }
}

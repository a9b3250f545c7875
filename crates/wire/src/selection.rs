//! What is copied, and how faithfully: the one type for flags, jobs, messages and both roles.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::filter_rule::FilterRule;
use crate::limits::{MAX_ACCOUNT_RULES, MAX_SPEC_ITEMS};
use crate::mode_change::ModeChange;
use crate::rsync_rules::{AccountRule, Backup, Drafts, Entries, References, Wishes};

/// The selection: which entries are copied, and how faithfully. The front ends fill it, and both roles read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Filter rules in the order given, rsync's meaning: the first that matches decides.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub rules: Vec<FilterRule>,
    /// Follow symbolic links at the source instead of copying them (`-L`).
    pub follow_links: bool,
    /// Follow symbolic links to directories at the target where directories come (`--keep-dirlinks`).
    pub keep_dirlinks: bool,
    /// Owner (root at the target only; ignored with a word otherwise).
    pub owner: bool,
    /// Group; without root at the target, only groups of the user are set, and others are reported.
    pub group: bool,
    /// Set-user-id, set-group-id and sticky bits, as rsync's `-p`; all other permissions are always kept.
    pub special_bits: bool,
    /// How much permissions and times are wanted.
    pub wishes: Wishes,
    /// Keep owners and groups by number, not by name.
    pub numeric_ids: bool,
    /// Keep hard links between files of the job (`-H`).
    pub hard_links: bool,
    /// Extended attributes of the `user.` namespace (and `trusted.`/`security.` when root) (`-X`).
    pub xattrs: bool,
    /// POSIX ACLs (`-A`).
    pub acls: bool,
    /// Recreate holes. True by default: only data is sent; the target gets holes where the source has them.
    pub sparse: bool,
    /// Delete what the source does not have (`--delete`).
    pub delete: bool,
    /// The most entries to delete; further ones stay and count as failed (`--max-delete`).
    pub max_delete: Option<u64>,
    /// Compare by content instead of size and modification time (`-c`, `--checksum`).
    pub checksum: bool,
    /// Skip files that are newer at the target (`-u`).
    pub update: bool,
    /// Skip files that exist at the target.
    pub ignore_existing: bool,
    /// Also delete what the rules exclude.
    pub delete_excluded: bool,
    /// Changes of modes, in their order.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub chmod: Vec<ModeChange>,
    /// Keep replaced and deleted entries under another name.
    pub backup: Option<Backup>,
    /// Trees beside the target that may have a file already.
    pub references: Option<References>,
    /// Owners at the target for users of the source; the first match counts (`owner` must be asked for).
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_ACCOUNT_RULES>")]
    pub user_map: Vec<AccountRule>,
    /// Groups at the target for groups of the source; likewise.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_ACCOUNT_RULES>")]
    pub group_map: Vec<AccountRule>,
    /// Make nothing that does not exist at the target.
    pub existing: bool,
    /// Compare by size alone.
    pub size_only: bool,
    /// Send files also where size and time are equal.
    pub ignore_times: bool,
    /// Replace a directory with all that is in it where a file or link comes, also without `delete`. With it, delete also
    /// where the source is empty, or lacks most of what stands there.
    pub force: bool,
    /// Both ends are hosts, which may be one host under two names. The target shows its tree, so that it is not copied into
    /// itself.
    pub may_overlap: bool,
    /// Leave out files that are larger than this.
    pub max_size_bytes: Option<u64>,
    /// Leave out files that are smaller than this.
    pub min_size_bytes: Option<u64>,
    /// Leave out files that were modified before this second since 1970 (`--max-age`).
    pub modified_since_s: Option<i64>,
    /// Leave out files that were modified after this second since 1970 (`--min-age`).
    pub modified_until_s: Option<i64>,
    /// Do not enter directories of another file system than that of the source they belong to.
    pub one_file_system: bool,
    /// Remove each file and link of the source once the target has it; directories stay.
    pub remove_source_files: bool,
    /// Report each entry's differences.
    pub itemise: bool,
    /// The entries of the sources to copy, beyond the rules.
    pub entries: Entries,
    /// The place of data until its file has its name.
    pub drafts: Drafts,
    /// Files only grow: one that is not shorter at the target stays (`--append-verify`).
    pub append: bool,
    /// Times that differ by at most this many seconds are equal, as in rsync's `--modify-window`; below 0: to the
    /// nanosecond. `None`: to the nanosecond, or to the second if the target keeps no more.
    pub modify_window_s: Option<i32>,
    /// Say what would be done; change nothing (`-n`).
    pub dry_run: bool,
    /// Write into the final file instead of a temporary one (`--inplace`).
    pub inplace: bool,
    /// Do not continue partial files of an earlier run; start them over.
    pub no_resume: bool,
    /// Send all of a file that differs, also what stands at the target (`-W`, `--whole-file`).
    pub whole_file: bool,
    /// A file that has only grown since it was listed is copied as it was listed (`--growing`).
    pub growing: bool,
    /// Flush files and directories before they count as copied. True by default.
    pub flush: bool,
    /// Read each chunk back from the target's medium before its file counts as copied; needs `flush`.
    pub verify_disk: bool,
    /// Whether data of an earlier run counts by its journal. Otherwise it is read and hashed again before it gets its
    /// name.
    pub trust_journal: bool,
    /// Whether missing parent directories of the target are made (true by default, like `mkdir -p`).
    pub make_target: bool,
}

impl Selection {
    /// Whether the target shows its tree to the sender before anything is listed.
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

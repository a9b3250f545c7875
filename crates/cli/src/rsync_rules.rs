//! Flags that carry rsync's names and rsync's meaning: which entries are left out, and what becomes of a source.

use clap::Args;
use haul_job::{Error, Fault, Place, Selection};

use crate::itemise::Format;
use crate::rate;

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
    /// Compare by size alone, not by time
    #[arg(long, conflicts_with = "checksum", help_heading = WHAT)]
    pub size_only: bool,
    /// Leave out files that are larger, such as 1.5M or 100MB: K M G T P are powers of 1024, KB MB of 1000, and '+1' or
    /// '-1' behind adds a byte or takes one away. They stay at the target, also with --delete
    #[arg(long, value_name = "SIZE", value_parser = rate::parse_rsync_size, allow_hyphen_values = true, help_heading = WHAT)]
    pub max_size: Option<u64>,
    /// Leave out files that are smaller
    #[arg(long, value_name = "SIZE", value_parser = rate::parse_rsync_size, allow_hyphen_values = true, help_heading = WHAT)]
    pub min_size: Option<u64>,
    /// Do not go into other file systems: the directory in which one is mounted is copied without its contents
    #[arg(short = 'x', long, help_heading = WHAT)]
    pub one_file_system: bool,
    /// Remove each file and link of the source once it is verified and flushed at the target. What changed since is kept,
    /// and so are directories and what a rule leaves out
    #[arg(long, conflicts_with_all = ["delete", "no_flush"], help_heading = WHAT)]
    pub remove_source_files: bool,
}

/// What is told of each entry, in rsync's words.
#[derive(Debug, Args)]
pub struct RsyncLines {
    /// A table of all totals at the end
    #[arg(long, conflicts_with_all = ["json", "quiet"], help_heading = SAID)]
    pub stats: bool,
    /// A line for each entry that changes, with rsync's letters: '>f.st...... name'. (-i is an ssh key, as in scp)
    #[arg(long, help_heading = SAID)]
    pub itemize_changes: bool,
    /// A line for each entry that changes, in rsync's words: '%i %n%L' is that of --itemize-changes. Also %l size, %b bytes
    /// moved, %M time, %B permissions, %U and %G owner and group, %o what was done, %f name, %t now, %p process
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse, conflicts_with = "json", help_heading = SAID)]
    pub out_format: Option<Format>,
}

const WHAT: &str = "What is copied";
const SAID: &str = "What is said";

impl RsyncRules {
    /// What they mean for a job.
    pub fn select(&self, selection: Selection) -> Selection {
        Selection {
            checksum: self.checksum,
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            size_only: self.size_only,
            max_size_bytes: self.max_size,
            min_size_bytes: self.min_size,
            one_file_system: self.one_file_system,
            remove_source_files: self.remove_source_files,
            ..selection
        }
    }

    /// Refuses a target that keeps nothing of sources that are removed.
    pub fn check(&self, target: &Place) -> Result<(), Error> {
        if self.remove_source_files && *target == Place::Null {
            return Err(Error::new(Fault::Usage, "--remove-source-files and null: exclude each other")
                .because("what arrives at null: is let go, and the sources would be gone")
                .try_this("leave one of the two out"));
        }
        Ok(())
    }
}

impl RsyncLines {
    /// Whether each entry gets a line.
    pub fn itemises(&self) -> bool {
        self.itemize_changes || self.out_format.is_some()
    }

    /// The form of these lines.
    pub fn format(&self) -> Option<Format> {
        self.out_format.clone().or_else(|| self.itemize_changes.then(Format::itemized))
    }
}

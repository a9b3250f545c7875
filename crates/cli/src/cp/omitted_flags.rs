//! Flags of rsync for attributes that stay as they are at the target.

use clap::Args;
use haul_job::{Selection, Wish, Wishes};

use crate::flags::headings::WHAT;

/// These flags leave what the target has as it is.
#[derive(Debug, Args)]
pub struct OmittedFlags {
    /// Leave the times of directories as they are at the target
    #[arg(short = 'O', long, help_heading = WHAT)]
    pub omit_dir_times: bool,
    /// Leave the times of symbolic links as they are at the target
    #[arg(long, help_heading = WHAT)]
    pub omit_link_times: bool,
    /// Leave permissions as they are at the target; what is new gets the source's, as far as the umask allows them
    #[arg(long, alias = "no-p", overrides_with = "perms", help_heading = WHAT)]
    pub no_perms: bool,
    /// Keep no times. A file is sent again by the next copy then, unless -c or --size-only compares
    #[arg(long, alias = "no-t", overrides_with = "times", help_heading = WHAT)]
    pub no_times: bool,
    /// With -a: leave groups as they are at the target
    #[arg(long, alias = "no-g", overrides_with = "group", help_heading = WHAT)]
    pub no_group: bool,
    /// With -a: leave owners as they are at the target
    #[arg(long, alias = "no-o", overrides_with = "owner", help_heading = WHAT)]
    pub no_owner: bool,
}

impl OmittedFlags {
    /// `times`: times were asked for in words.
    pub fn select(&self, selection: Selection, times: bool) -> Selection {
        let wish = |omitted: bool, in_words: bool| match (omitted, in_words) {
            (true, _) => Wish::No,
            (false, true) => Wish::InWords,
            (false, false) => Wish::Usual,
        };
        let wishes = Wishes {
            permissions: wish(self.no_perms, selection.special_bits || !selection.chmod.is_empty()),
            times: wish(self.no_times, times),
            directory_times: wish(self.no_times || self.omit_dir_times, times),
            link_times: wish(self.no_times || self.omit_link_times, times),
        };
        Selection {
            special_bits: selection.special_bits && !self.no_perms,
            owner: selection.owner && !(self.no_owner && selection.user_map.is_empty()),
            group: selection.group && !(self.no_group && selection.group_map.is_empty()),
            wishes,
            ..selection
        }
    }
}

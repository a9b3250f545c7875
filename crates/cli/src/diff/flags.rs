//! The flags of `haul diff`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::far_side::flags::Reach;

/// `haul diff`
#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub struct DiffArgs {
    /// The source of a copy: a directory, or a file
    #[arg(value_name = "A", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// Its target
    #[arg(value_name = "B", value_hint = ValueHint::AnyPath)]
    pub target: OsString,
    /// Compare contents instead of size and time: each side hashes its files, only hashes travel
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Compare permissions, too
    #[arg(short = 'p', long)]
    pub perms: bool,
    /// What 'haul cp -a' carries: permissions, owner, group, and times of directories and links, too
    #[arg(short = 'a', long)]
    pub archive: bool,
    /// Leave out what matches, in A and in B; rsync's patterns, and the first rule that matches decides
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub exclude: Vec<OsString>,
    /// Keep what matches, whatever a later --exclude says
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub include: Vec<OsString>,
    /// Read exclude patterns from FILE, one a line ('-' is standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_from: Vec<OsString>,
    /// Read include patterns from FILE, one a line ('-' is standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub include_from: Vec<OsString>,
    /// A rule of rsync: '- PATTERN', '+ PATTERN', '. FILE'
    #[arg(short = 'f', long, value_name = "RULE", allow_hyphen_values = true)]
    pub filter: Vec<OsString>,
    /// Also name what is the same
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Say nothing
    #[arg(short = 'q', long, conflicts_with_all = ["verbose", "json"])]
    pub quiet: bool,
    /// A JSON object a line: each difference, then the totals
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const DIFF_HELP: &str = "\
It changes nothing. A and B are compared as 'haul cp -r A/ B' would do it:
'new' is only in A, 'extra' only in B, 'changed' says in what: kind, size,
time, contents, target of a link; with -p and -a permissions, owner, group. Each
may be a path of this machine, [USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH,
haul://HOST[:PORT]/PATH, sftp://[USER@]HOST[:PORT]/PATH, ftp://[USER@]HOST/PATH
or a URL of a web server. What such a server does not tell is not compared, and
is named. With -c it sends all contents, and they are hashed here.

EXIT STATUS (as of diff)
  0  all is the same
  1  something differs
  2  and more: something could not be compared";

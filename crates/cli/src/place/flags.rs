//! The flags of the commands that look at a tree and change it by hand. They have the names of coreutils.

use std::ffi::OsString;

use clap::{ArgAction, Args, Subcommand, ValueEnum, ValueHint};
use haul_transfer::place::Algorithm;

use crate::reach::Reach;

/// Commands about trees here, at a host, or at a daemon.
#[derive(Debug, Subcommand)]
pub enum PlaceCommand {
    /// Lists directories, here or at a host
    Ls(Box<Ls>),
    /// Shows what files and trees take on their disk, here or at a host
    Du(Box<Du>),
    /// Shows what a file system knows of a file, here or at a host
    Stat(Box<StatArgs>),
    /// Makes directories, here or at a host
    Mkdir(Box<Mkdir>),
    /// Gives files and directories other names, on one host
    Mv(Box<Mv>),
    /// Removes files and trees, here or at a host
    Rm(Box<Rm>),
    /// Writes files to standard output, from here or from a host
    Cat(Box<Cat>),
    /// Hashes files where they lie, as b3sum, sha256sum, md5sum and their like print it
    Hash(Box<HashArgs>),
    /// Shows what copies that died have left in a directory, and removes it on request
    Clean(Box<Clean>),
}

const PATHS_HELP: &str = "\
A PATH is one of this machine, [USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH
or haul://HOST[:PORT]/PATH. Wildcards of a path at another host are expanded
there; put them in quotes.";

/// `haul ls`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = PATHS_HELP)]
pub struct Ls {
    /// What to list; the current directory without any
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Kind, permissions, links, owner, group, size and time of each entry
    #[arg(short = 'l', long)]
    pub long: bool,
    /// All that lies beneath, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Also names that begin with a dot; never '.' and '..'
    #[arg(short = 'a', visible_short_alias = 'A', long)]
    pub all: bool,
    /// Directories themselves, not their entries
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// With -l: sizes such as 1.5K, 234M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// With -l: owner and group as numbers
    #[arg(short = 'n', long)]
    pub numeric_uid_gid: bool,
    /// One entry a line; always so
    #[arg(short = '1', hide = true)]
    pub one: bool,
    /// A JSON object a line, with all that is known of each entry
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// `haul du`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = PATHS_HELP)]
pub struct Du {
    /// What to measure; the current directory without any
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// One line for each PATH, none for the directories beneath
    #[arg(short = 's', long)]
    pub summarize: bool,
    /// Sizes such as 1.5K, 234M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// The sizes of the files, not what they take on the disk
    #[arg(long)]
    pub apparent_size: bool,
    /// The sizes of the files, in bytes
    #[arg(short = 'b', long, conflicts_with = "human_readable")]
    pub bytes: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// `haul stat`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct StatArgs {
    /// What to look at
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// What a link points at, instead of the link
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// `haul mkdir`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Mkdir {
    /// Directories to make
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Also the directories above; one that exists is fine
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Name each directory that was made
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// `haul mv`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP, override_usage = "haul mv [OPTIONS] PATH... NEW")]
pub struct Mv {
    /// What to move, then its new name or the directory to move it into; all at one place
    #[arg(value_name = "PATH", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Leave what has the new name already; without this flag a file there is replaced, as mv does it
    #[arg(short = 'n', long)]
    pub no_clobber: bool,
    /// Replace what has the new name; always so
    #[arg(short = 'f', long, hide = true, conflicts_with = "no_clobber")]
    pub force: bool,
    /// Name each entry that was moved
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// `haul rm`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Rm {
    /// What to remove
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Directories too, with all that lies in them. Links in them are removed, not followed
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Say nothing about what does not exist
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Only name what would be removed
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Name each entry that was removed
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// `haul cat`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Cat {
    /// Files to write, one after the other
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub reach: Reach,
}

/// `haul hash`
#[derive(Debug, Args)]
#[command(after_help = HASH_HELP)]
pub struct HashArgs {
    /// Files, and directories whose files are hashed
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Which hash
    #[arg(short = 'a', long, value_name = "NAME", default_value = "blake3")]
    pub algorithm: AlgorithmName,
    /// Lines with the name of the hash, as BSD and 'sha256sum --tag' write them
    #[arg(long, conflicts_with = "json")]
    pub tag: bool,
    /// A manifest of haul, of one directory or file: with sizes, times, and a closing line that has the hash of the tree
    #[arg(short = 'm', long, conflicts_with_all = ["tag", "json"])]
    pub manifest: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const HASH_HELP: &str = "\
The files are read at the far side; only their hashes travel. A path is printed
as it is named there, so 'haul hash -a sha256 host:data | ssh host sha256sum
-c' finds the same files. Links in a directory are left out.

'haul hash -m DIR' writes what 'haul cp -r --manifest-out FILE DIR/ TARGET'
writes, and 'haul verify FILE DIR' reads it.";

/// `--algorithm`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmName {
    Blake3,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::Blake3 => Self::Blake3,
            AlgorithmName::Md5 => Self::Md5,
            AlgorithmName::Sha1 => Self::Sha1,
            AlgorithmName::Sha256 => Self::Sha256,
            AlgorithmName::Sha512 => Self::Sha512,
        }
    }
}

/// `haul clean`
#[derive(Debug, Args)]
#[command(after_help = CLEAN_HELP)]
pub struct Clean {
    /// Directories to look through, with all beneath them
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub paths: Vec<OsString>,
    /// Remove what is found
    #[arg(short = 'f', long)]
    pub delete: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const CLEAN_HELP: &str = "\
A copy that dies leaves drafts (.haul-*.part) and journals (.haul-*.journal).
The same copy goes on with them when it is run again. Drafts of a copy that
lives are locked; they are neither shown nor removed.";

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
time, contents, target of a link; with -p and -a permissions, owner, group.
Each may be a path of this machine,
[USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH or haul://HOST[:PORT]/PATH.

Exit status, as of diff: 0 all the same, 1 something differs, 2 and more when
something could not be compared.";

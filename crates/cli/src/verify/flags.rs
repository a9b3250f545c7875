//! The flags of `haul verify`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::far_side::flags::Reach;
use crate::flags::values::AlgorithmName;

/// `haul verify`
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct Verify {
    /// A list of hashes, '-' for standard input; or a bag (a directory with bagit.txt)
    #[arg(value_name = "LIST", value_hint = ValueHint::AnyPath)]
    pub list: OsString,
    /// The directory that the names of the list begin in, here, at a host, a daemon, sftp:// or https://; '.' without it
    #[arg(value_name = "ROOT", value_hint = ValueHint::AnyPath)]
    pub root: Option<OsString>,
    /// Also name files that the list does not have; always so for the payload of a bag
    #[arg(long)]
    pub extra: bool,
    /// The hash of lines that do not name theirs. Without this flag: what the number of digits says, and for 64
    /// digits whichever of SHA-256 and BLAKE3 the first files have
    #[arg(short = 'a', long, value_name = "NAME")]
    pub algorithm: Option<AlgorithmName>,
    /// Say nothing but what differs
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// A JSON object a line: each difference, then the totals
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const VERIFY_HELP: &str = "\
Lists: those of 'haul cp --manifest-out', of 'haul hash', b3sum, md5sum,
sha1sum, sha256sum and sha512sum (with --tag, too), and the manifests of a bag
(BagIt). The format is told by the list. A tree at another host is read there;
only names and hashes travel. A server of sftp or of the web sends all bytes,
and they are hashed here.

EXAMPLES
  haul verify SHA256SUMS                  files of this directory
  haul verify list host:data              files beneath data at another host
  haul verify host:bag                    a bag with all its manifests
  haul hash data | haul verify - host:    the same tree at a host
  haul verify SHA256SUMS https://host/d/  files of a web server

EXIT STATUS
   0  all files match
  11  the list cannot be read
  25  some files differ, or the list is damaged";

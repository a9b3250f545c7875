//! The flags of `haul token`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

/// `haul token`
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    override_usage = "haul token [OPTIONS] WHO\n       haul token [OPTIONS] --narrow FILE\n       \
                      haul token show FILE\n       haul token revoke NUMBER|FILE...",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub action: Option<Action>,
    /// The line of the daemon's list that the token stands for: token:NAME, or ed25519:KEY
    #[arg(value_name = "WHO", required_unless_present = "narrow", conflicts_with = "narrow")]
    pub who: Option<String>,
    /// Only for this path in the directory of the line, and what is beneath it
    #[arg(long, value_name = "PATH")]
    pub path: Option<OsString>,
    /// Only to read
    #[arg(long)]
    pub ro: bool,
    /// It begins to hold after this time, with a unit: 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    pub starts: Option<Duration>,
    /// How long it holds, with a unit: 90s, 30m, 12h, 7d. A new token holds 30d without this flag
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    pub expires: Option<Duration>,
    /// Add these conditions to the token in FILE ('-' is standard input); that needs no key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub narrow: Option<PathBuf>,
    /// The daemon's key; ~/.config/haul/host_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
}

/// What else is done with tokens.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Say what a token grants, until when, and its number
    Show {
        /// The file that has the token, '-' for standard input, or the token itself
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        token: OsString,
        /// The daemon's key; ~/.config/haul/host_ed25519 without this flag
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        identity: Option<PathBuf>,
        /// The daemon's list of keys; ~/.config/haul/authorized_keys without this flag
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        authorized_keys: Option<PathBuf>,
    },
    /// End tokens at once, each with all that was narrowed from it
    Revoke {
        /// The number of a token, or the file that has it
        #[arg(value_name = "NUMBER|FILE", required = true, value_hint = ValueHint::FilePath)]
        tokens: Vec<OsString>,
        /// The daemon's list of keys; the numbers are kept beside it, in revoked_tokens
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        authorized_keys: Option<PathBuf>,
    },
}

const HELP: &str = "\
Run it where the daemon's key is. The list of keys has a line for the token:
  ro root=/data/lab token:NAME
Without the line, the token opens nothing, so removing the line ends all of its
tokens. 'haul token revoke NUMBER' ends one. The number stands in the log, and
'haul token show FILE' tells it.
  haul token token:NAME --path /runs/3 --expires 7d >token
A reader shows it over TLS, from a file, so that it stands in no list of
processes:
  (header: Authorization: Bearer TOKEN)
  curl -H @header https://HOST:8443/runs/3/data
Whoever holds a token can hand on a part of it: haul token --narrow token
--path /runs/3/a";

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and its unit: 90s, 30m, 12h, 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_unit() {
        assert_eq!(parse_lifetime("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_lifetime("90s"), Ok(Duration::from_secs(90)));
        for text in ["", "7", "d", "7w", "-1d", "1.5h", "99999999999999999999d", "9999999999999999999d", "7ü"] {
            assert!(parse_lifetime(text).is_err(), "{text}");
        }
    }
}

//! `haul token`: makes tokens for readers of the web, and narrows them.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueHint};
use haul_daemon::{Lifetime, TokenOptions};
use haul_job::{Error, Fault};

use crate::printable::printable;
use crate::{failure, output};

/// `haul token`
#[derive(Debug, Args)]
#[command(after_help = HELP, override_usage = "haul token [OPTIONS] WHO\n       haul token [OPTIONS] --narrow FILE")]
pub struct TokenArgs {
    /// The line of the daemon's list that the token stands for: token:NAME, or ed25519:KEY
    #[arg(value_name = "WHO", required_unless_present = "narrow", conflicts_with = "narrow")]
    pub who: Option<String>,
    /// Only for this path in the directory of the line, and what is beneath it
    #[arg(long, value_name = "PATH")]
    pub path: Option<OsString>,
    /// Only to read
    #[arg(long)]
    pub ro: bool,
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

const HELP: &str = "\
Run it where the daemon's key is. The list of keys has a line for the token:
  ro root=/data/lab token:NAME
Without the line, the token opens nothing, so removing the line ends all of its
tokens.
  haul token token:NAME --path /runs/3 --expires 7d >token
A reader shows it over TLS, from a file, so that it stands in no list of
processes:
  (header: Authorization: Bearer TOKEN)
  curl -H @header https://HOST:8443/runs/3/data
Whoever holds a token can hand on a part of it: haul token --narrow token
--path /runs/3/a";

/// Prints the token.
pub fn run(typed: &TokenArgs) -> ExitCode {
    match token(typed) {
        Ok(text) => {
            output::say((text + "\n").into_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = write!(io::stderr(), "{}", failure::text(&error));
            ExitCode::from(failure::of_fault(error.fault).code)
        }
    }
}

fn token(typed: &TokenArgs) -> Result<String, Error> {
    let path = typed.path.as_ref().map(|path| path.as_bytes().to_vec());
    let options = |expires: Option<Duration>| TokenOptions {
        path: path.clone(),
        read_only: typed.ro,
        lifetime: expires.map(Lifetime),
    };
    match (&typed.narrow, &typed.who) {
        (Some(file), _) => haul_daemon::narrow(&read(file)?, &options(typed.expires)),
        (None, who) => {
            let who = who.as_deref().unwrap_or_default();
            haul_daemon::issue(typed.identity.clone(), who, &options(Some(typed.expires.unwrap_or(DEFAULT_LIFETIME))))
        }
    }
}

const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// More than any token has.
const MAX_FILE_BYTES: u64 = 64 << 10;

fn read(file: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let done = match file == Path::new("-") {
        true => io::stdin().lock().take(MAX_FILE_BYTES).read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text)),
    };
    done.map_err(|error| {
        let name = printable(file.as_os_str().as_bytes());
        Error::new(Fault::FileIo, format!("cannot read the token in {name}")).because(error)
    })?;
    Ok(text)
}

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

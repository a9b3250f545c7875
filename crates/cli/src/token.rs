//! `haul token`: makes tokens for readers of the web, narrows, shows and revokes them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use haul_daemon::{Condition, Lifetime, Shown, TokenOptions};
use haul_job::{Error, Fault};
use haul_transfer::TypedFile;
use haul_transfer::standard_streams::Input;
use jiff::Timestamp;

use crate::printable::printable;
use crate::{failure, output};

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
    match &typed.action {
        Some(Action::Show { token, identity, authorized_keys }) => {
            let shown = haul_daemon::show(&text_of(token)?, identity.clone(), authorized_keys.clone())?;
            return Ok(table(&shown, Timestamp::now()));
        }
        Some(Action::Revoke { tokens, authorized_keys }) => {
            let revoked = tokens.iter().map(|token| {
                let (number, is_new) = haul_daemon::revoke(&text_of(token)?, authorized_keys.clone())?;
                Ok(format!("{number} {}", if is_new { "revoked" } else { "was revoked before" }))
            });
            return Ok(revoked.collect::<Result<Vec<_>, Error>>()?.join("\n"));
        }
        None => {}
    }
    let path = typed.path.as_ref().map(|path| path.as_bytes().to_vec());
    let options = |expires: Option<Duration>| TokenOptions {
        path: path.clone(),
        read_only: typed.ro,
        start: typed.starts.map(Lifetime),
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

/// A token, a number, or the content of a file.
fn text_of(word: &OsStr) -> Result<String, Error> {
    match word.to_str().filter(|word| word.starts_with("haul1.") || is_number(word)) {
        Some(text) => Ok(text.to_owned()),
        None => read(Path::new(word)),
    }
}

fn is_number(word: &str) -> bool {
    word.len() == 16 && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn table(shown: &Shown, now: Timestamp) -> String {
    let time = |second: u64| {
        let at = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
        (at, at.map_or("the end of time".to_owned(), |at| at.to_string()))
    };
    let mut lines = vec![format!("number   {}", shown.number), format!("for      {}", printable(shown.who.as_bytes()))];
    for condition in &shown.conditions {
        lines.push(match condition {
            Condition::Path(path) => format!("path     /{} and what is beneath", printable(path)),
            Condition::ReadOnly => "rights   to read".to_owned(),
            Condition::From(second) => match time(*second) {
                (Some(at), text) if at <= now => format!("from     {text}"),
                (_, text) => format!("from     {text}: it is not yet valid"),
            },
            Condition::Until(second) => match time(*second) {
                (Some(at), text) if at <= now => format!("until    {text}: it has expired"),
                (_, text) => format!("until    {text}"),
            },
        });
    }
    if shown.is_revoked {
        lines.push("revoked  it counts no more".to_owned());
    }
    lines.push(match shown.is_genuine {
        Some(true) => "made     with the key of the daemon here".to_owned(),
        Some(false) => "made     with another key than that of the daemon here".to_owned(),
        None => "made     unknown: only the key of its daemon tells".to_owned(),
    });
    lines.join("\n")
}

const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// More than any token has.
const MAX_FILE_BYTES: u64 = 64 << 10;

fn read(file: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let done = match file == Path::new("-") {
        true => Input::open().and_then(|input| input.take(MAX_FILE_BYTES).read_to_string(&mut text)),
        false => TypedFile::read(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text)),
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
    fn a_token_is_shown_with_all_that_holds_for_it() {
        let number = haul_daemon::Number::parse("00000000000000a1").unwrap();
        let conditions = vec![
            Condition::Path(b"runs/3".to_vec()),
            Condition::From(2_000),
            Condition::Until(1_000),
            Condition::Until(u64::MAX),
        ];
        let shown = Shown { number, who: "token:lab".into(), conditions, is_genuine: Some(true), is_revoked: true };
        let expected = "number   00000000000000a1\nfor      token:lab\npath     /runs/3 and what is beneath\n\
            from     1970-01-01T00:33:20Z: it is not yet valid\nuntil    1970-01-01T00:16:40Z: it has expired\n\
            until    the end of time\nrevoked  it counts no more\nmade     with the key of the daemon here";
        assert_eq!(table(&shown, Timestamp::from_second(1_500).unwrap()), expected);
        assert!(is_number("00000000000000a1") && !is_number("00000000000000A1") && !is_number("a1"));
    }

    #[test]
    fn lifetimes_have_a_unit() {
        assert_eq!(parse_lifetime("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_lifetime("90s"), Ok(Duration::from_secs(90)));
        for text in ["", "7", "d", "7w", "-1d", "1.5h", "99999999999999999999d", "9999999999999999999d", "7ü"] {
            assert!(parse_lifetime(text).is_err(), "{text}");
        }
    }
}

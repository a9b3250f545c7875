//! `haul token`: makes, narrows, shows and revokes tokens for readers of the web.

pub mod flags;

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use haul_daemon::{Condition, Lifetime, Shown, TokenOptions};
use haul_job::{Error, Fault};
use haul_transfer::TypedFile;
use haul_transfer::standard_streams::Input;
use jiff::Timestamp;

use crate::process::output;
use crate::text::failure;
use crate::text::printable::printable;
use crate::token::flags::{Action, TokenArgs};

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

/// A token, a number, or a file's content.
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
}

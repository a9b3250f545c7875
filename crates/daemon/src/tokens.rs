//! Makes, narrows, shows and revokes tokens for `haul token`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_job::{Error, Fault};
use haul_transfer::own::Weight;
use haul_transfer::{Surroundings, trusted_keys};
use haul_web::token::{Condition, Number, Secret, Token, nonce};

use crate::authorized::Holder;
use crate::lookout::Say;
use crate::revoked::{self, Revoked};

/// The daemon's key also gives this secret: another file could be lost.
pub(crate) const SECRET_PURPOSE: &str = "haul web token 1";

/// The conditions of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// `--path PATH`: this path and all beneath it.
    pub path: Option<Vec<u8>>,
    /// `--ro`
    pub read_only: bool,
    /// `--starts TIME`: from now on.
    pub start: Option<Lifetime>,
    /// `--expires TIME`
    pub lifetime: Option<Lifetime>,
}

/// A time from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

impl TokenOptions {
    fn added_to(&self, token: Token, now: SystemTime) -> Result<Token, Error> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let from_now = |Lifetime(time): Lifetime| now.saturating_add(time.as_secs());
        let path = self.path.as_deref().map(Condition::path);
        let times = [
            self.start.map(|start| Condition::From(from_now(start))),
            self.lifetime.map(|lifetime| Condition::Until(from_now(lifetime))),
        ];
        let conditions = path.into_iter().chain(self.read_only.then_some(Condition::ReadOnly));
        let conditions = conditions.chain(times.into_iter().flatten());
        conditions.into_iter().try_fold(token, Token::narrowed).map_err(refused)
    }
}

/// Makes a token for `who`: `token:NAME` or `ed25519:KEY`. `identity` is the daemon's key.
pub fn issue(identity: Option<PathBuf>, who: &str, options: &TokenOptions) -> Result<String, Error> {
    if !matches!(Holder::parse(who), Some(Ok(Holder::Token(_) | Holder::Key(_)))) {
        return Err(Error::new(Fault::Usage, format!("a token is for a line of the list of keys, not for '{who}'"))
            .try_this("haul token token:NAME, with the line: ro root=/DIR token:NAME"));
    }
    let file = identity_file(identity).ok_or_else(|| {
        Error::new(Fault::Authentication, "there is no home directory to look for the daemon's key in")
            .try_this("--identity names the key file of the daemon")
    })?;
    let identity = trusted_keys::load_identity(&file, Weight::NamedSecret).map_err(|error| match file.exists() {
        true => error,
        // A new key would make tokens that open nothing.
        false => {
            error.try_this("run it where the daemon runs: 'haul serve' makes its key; --identity names another file")
        }
    })?;
    let secret = Secret::new(identity.secret_for(SECRET_PURPOSE));
    let nonce = nonce().map_err(|error| Error::new(Fault::Authentication, error.to_string()))?;
    let token = secret.issue(who, nonce).map_err(refused)?;
    Ok(options.added_to(token, SystemTime::now())?.to_text().to_string())
}

/// Adds conditions, without any key.
pub fn narrow(text: &str, options: &TokenOptions) -> Result<String, Error> {
    let token = Token::parse(text.trim()).map_err(refused)?;
    Ok(options.added_to(token, SystemTime::now())?.to_text().to_string())
}

fn identity_file(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Surroundings::of_process().config_file("host_ed25519"))
}

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number in logs and lists.
    pub number: Number,
    /// The line of the list of keys.
    pub who: String,
    /// The conditions, each on its own.
    pub conditions: Vec<Condition>,
    /// Whether the daemon's key made it. `None`: there is no such key here.
    pub is_genuine: Option<bool>,
    /// Whether its number is revoked here.
    pub is_revoked: bool,
}

/// Tells what a token grants and, beside the daemon's key, whether it counts.
pub fn show(text: &str, identity: Option<PathBuf>, list: Option<PathBuf>) -> Result<Shown, Error> {
    let token = Token::parse(text.trim()).map_err(refused)?;
    let key = identity_file(identity).and_then(|file| trusted_keys::load_identity(&file, Weight::NamedSecret).ok());
    let secret = key.map(|identity| Secret::new(identity.secret_for(SECRET_PURPOSE)));
    let quiet: Say = Arc::new(|_: &str, _| {});
    let is_revoked = revoked_file(list).is_some_and(|list| Revoked::beside(&list, quiet).contains(token.number()));
    Ok(Shown {
        number: token.number(),
        who: token.who().to_owned(),
        conditions: token.conditions().to_vec(),
        is_genuine: secret.map(|secret| secret.made(&token)),
        is_revoked,
    })
}

/// Revokes a number, or the token in this text. Returns the number, and whether it is new.
pub fn revoke(text: &str, list: Option<PathBuf>) -> Result<(Number, bool), Error> {
    let text = text.trim();
    let number = match Number::parse(text) {
        Some(number) => number,
        None => Token::parse(text).map_err(refused)?.number(),
    };
    let list = revoked_file(list).ok_or_else(|| {
        Error::new(Fault::Authentication, "there is no home directory to look for the daemon's list of keys in")
            .try_this("--authorized-keys names it")
    })?;
    let file = revoked::file_beside(&list);
    let is_new = revoked::add(&file, number).map_err(|error| {
        Error::new(Fault::FileIo, format!("cannot revoke the token in {}", file.display())).because(error)
    })?;
    Ok((number, is_new))
}

fn revoked_file(list: Option<PathBuf>) -> Option<PathBuf> {
    list.or_else(|| Surroundings::of_process().config_file("authorized_keys"))
}

fn refused(why: haul_web::token::Refused) -> Error {
    Error::new(Fault::Authentication, "cannot use the token").because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_a_line_and_can_be_narrowed_without_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("host");
        let identity = trusted_keys::generate_identity(&key, false).unwrap();
        let none = TokenOptions { path: None, read_only: false, start: None, lifetime: None };
        let wide = issue(Some(key.clone()), "token:lab", &none).unwrap();
        let options = TokenOptions {
            path: Some(b"/runs/".to_vec()),
            read_only: true,
            start: None,
            lifetime: Some(Lifetime(Duration::from_secs(60))),
        };
        let narrow = Token::parse(&narrow(&wide, &options).unwrap()).unwrap();
        let secret = Secret::new(identity.secret_for(SECRET_PURPOSE));
        assert_eq!(secret.verify(&narrow, b"runs/1", SystemTime::now()), Ok("token:lab"));
        assert!(secret.verify(&narrow, b"other", SystemTime::now()).is_err());
        assert!(secret.verify(&narrow, b"runs/1", SystemTime::now() + Duration::from_secs(61)).is_err());
        let list = dir.path().join("authorized_keys");
        let shown = |text: &str| show(text, Some(key.clone()), Some(list.clone())).unwrap();
        let (number, is_new) = (narrow.number(), |text: &str| revoke(text, Some(list.clone())).unwrap().1);
        let before = shown(&wide);
        assert_eq!((before.number, before.who.as_str(), before.is_genuine), (number, "token:lab", Some(true)));
        assert!(!before.is_revoked && is_new(&wide) && !is_new(&number.to_string()));
        let after = shown(&narrow.to_text());
        assert!(after.is_revoked && after.conditions.len() == 3, "{after:?}");
        assert!(revoke("rubbish", Some(list.clone())).is_err());
        for who in ["lab", "token:", "cert:00", "boss:x", ""] {
            assert!(issue(Some(key.clone()), who, &none).is_err(), "{who}");
        }
    }

    #[test]
    fn without_the_daemons_key_the_hint_is_no_key_of_a_client() {
        let dir = tempfile::tempdir().unwrap();
        let none = TokenOptions { path: None, read_only: false, start: None, lifetime: None };
        let error = issue(Some(dir.path().join("host")), "token:lab", &none).unwrap_err();
        assert!(error.hint.unwrap().contains("'haul serve' makes its key"));
    }
}

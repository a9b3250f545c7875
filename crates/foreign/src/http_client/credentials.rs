//! Who we are to a server: a login from the URL, a token of the environment, or a line of `.netrc`.
//!
//! ```text
//!   login of the URL, HAUL_TOKEN           sent with each request to the origin that was typed
//!   BEARER_TOKEN, BEARER_TOKEN_FILE        the same origin, once it answers 401 or 403 (WLCG Bearer Token Discovery)
//!   .netrc                                 the host of the line, once it answers 401 or 403
//! ```
//! Tokens travel over TLS alone. None of it is ever printed.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use zeroize::Zeroizing;

use crate::http_client::limits::MAX_SECRET_BYTES;
use crate::http_client::url::Origin;

/// A user's name and password (Basic, RFC 7617).
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password, or empty.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(...)")
    }
}

/// Logins and tokens that servers may be shown.
#[derive(Default)]
pub struct Credentials {
    /// The login typed in the URL.
    pub login: Option<Login>,
    /// The token for us (`HAUL_TOKEN`).
    pub token: Option<Zeroizing<String>>,
    /// The token for all programs of a grid.
    pub found_token: Option<Zeroizing<String>>,
    /// The file of logins that `curl` and `ftp` read.
    pub netrc: Option<PathBuf>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(...)")
    }
}

impl Credentials {
    /// Reads the environment of this process.
    pub fn of_environment(login: Option<Login>) -> Credentials {
        let text = |name: &str| std::env::var(name).ok().map(Zeroizing::new);
        let token = |text: Zeroizing<String>| {
            let text = Zeroizing::new(text.trim().to_owned());
            (!text.is_empty()).then_some(text)
        };
        let in_file = || read(Path::new(&std::env::var_os("BEARER_TOKEN_FILE")?));
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".netrc"));
        Credentials {
            login,
            token: text("HAUL_TOKEN").and_then(token),
            found_token: text("BEARER_TOKEN").and_then(token).or_else(|| in_file().and_then(token)),
            netrc: std::env::var_os("NETRC").map(PathBuf::from).or_else(home),
        }
    }

    /// The login at a server that always asks: the URL's, with a missing password from `.netrc`; else `.netrc`'s.
    pub fn login_at(&self, host: &str) -> Option<Login> {
        let of_netrc = || login_of(&read(self.netrc.as_deref()?)?, host);
        match &self.login {
            Some(typed) if typed.password.is_empty() => {
                Some(of_netrc().filter(|kept| kept.user == typed.user).unwrap_or_else(|| typed.clone()))
            }
            Some(typed) => Some(typed.clone()),
            None => of_netrc(),
        }
    }

    /// `typed` is the user's own origin. A server that `asks` has answered 401 or 403.
    pub(crate) fn of(&self, origin: &Origin, typed: &Origin, asks: bool) -> Option<HeaderValue> {
        let is_typed = origin == typed;
        if let Some(login) = self.login.as_ref().filter(|_| is_typed) {
            return basic(login);
        }
        if let Some(token) = self.token.as_ref().filter(|_| is_typed && origin.is_tls) {
            return bearer(token);
        }
        if !asks {
            return None;
        }
        let of_netrc = || basic(&login_of(&read(self.netrc.as_deref()?)?, &origin.host)?);
        let of_grid = || bearer(self.found_token.as_ref().filter(|_| is_typed && origin.is_tls)?);
        of_netrc().or_else(of_grid)
    }
}

fn basic(login: &Login) -> Option<HeaderValue> {
    let pair = Zeroizing::new(format!("{}:{}", login.user, login.password.as_str()));
    sensitive(&Zeroizing::new(format!("Basic {}", haul_net::base64_text(pair.as_bytes()))))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&Zeroizing::new(format!("Bearer {token}")))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn read(path: &Path) -> Option<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    File::open(path).ok()?.take(MAX_SECRET_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `default` is for ftp, and would show a password to every server.
fn login_of(netrc: &str, host: &str) -> Option<Login> {
    let (mut is_ours, mut user, mut password) = (false, None, None);
    let mut words = Words(netrc);
    while let Some(word) = words.next() {
        match word.as_str() {
            "machine" | "default" => {
                if is_ours && user.is_some() {
                    break;
                }
                is_ours = word == "machine" && words.next()?.eq_ignore_ascii_case(host);
            }
            "login" if is_ours => user = words.next(),
            "password" if is_ours => password = words.next().map(Zeroizing::new),
            "login" | "password" | "account" => drop(words.next()),
            "macdef" => words.skip_macro(),
            _ => {}
        }
    }
    Some(Login { user: user?, password: password.unwrap_or_default() })
}

/// Words of a `.netrc`, maybe quoted with backslashes; `#` begins a comment.
struct Words<'a>(&'a str);

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.0 = self.0.trim_start();
        while self.0.starts_with('#') {
            self.0 = self.0.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
        }
        let Some(quoted) = self.0.strip_prefix('"') else {
            let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
            let (word, rest) = self.0.split_at(end);
            self.0 = rest;
            return (!word.is_empty()).then(|| word.to_owned());
        };
        let (mut word, mut characters) = (String::new(), quoted.chars());
        loop {
            match characters.next() {
                Some('\\') => word.extend(characters.next()),
                Some('"') | None => break,
                Some(other) => word.push(other),
            }
        }
        self.0 = characters.as_str();
        Some(word)
    }
}

impl Words<'_> {
    /// An empty line ends a macro.
    fn skip_macro(&mut self) {
        self.0 = self.0.find("\n\n").map_or("", |end| &self.0[end..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(is_tls: bool, host: &str) -> Origin {
        Origin { is_tls, host: host.to_owned(), port: Origin::usual_port(is_tls) }
    }

    #[test]
    fn a_netrc_gives_the_login_of_its_host_alone() {
        let netrc = "# mine\nmachine one login me password \"a \\\"b\" \nmacdef init\nmachine two login x\n\n\
                     machine two\n  login you account z password p\nmachine three password only\ndefault login anonymous";
        let login = |host: &str| login_of(netrc, host).map(|login| (login.user, login.password.to_string()));
        assert_eq!(login("ONE"), Some(("me".to_owned(), "a \"b".to_owned())));
        assert_eq!(login("two"), Some(("you".to_owned(), "p".to_owned())));
        assert_eq!((login("three"), login("four")), (None, None));
    }

    #[test]
    fn credentials_go_to_the_typed_origin_and_tokens_over_tls_alone() {
        let (typed, plain, other) = (origin(true, "host"), origin(false, "host"), origin(true, "other"));
        let login = Login { user: "me".to_owned(), password: "secret".to_owned().into() };
        let of_url = Credentials { login: Some(login), ..Credentials::default() };
        assert_eq!(of_url.of(&typed, &typed, false).unwrap(), "Basic bWU6c2VjcmV0");
        assert_eq!((of_url.of(&other, &typed, true), of_url.of(&plain, &typed, true)), (None, None));
        let ours = Credentials { token: Some("t".to_owned().into()), ..Credentials::default() };
        assert_eq!(ours.of(&typed, &typed, false).unwrap(), "Bearer t");
        assert_eq!((ours.of(&plain, &plain, true), ours.of(&other, &typed, true)), (None, None));
        let of_grid = Credentials { found_token: Some("g".to_owned().into()), ..Credentials::default() };
        assert_eq!(of_grid.of(&typed, &typed, false), None);
        assert_eq!(of_grid.of(&typed, &typed, true).unwrap(), "Bearer g");
        assert_eq!(format!("{of_url:?} {:?}", of_url.login), "Credentials(...) Some(Login(...))");
    }
}

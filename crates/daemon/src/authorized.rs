//! Parses the list of authorised keys. Each line binds a key to a directory, to read or also to write.
//!
//! ```text
//!   # access             directory                 key               a name for the log
//!   ro                   root=/data/public         ed25519:<64 hex>  bob@lab
//!   rw clear user=alice  root="/data/new sets"     ed25519:<64 hex>  alice@laptop
//! ```
//! In place of the key, readers of the web have `cert:<64 hex>`, the SHA-256 of a TLS certificate, or `token:NAME`, for holders
//! of tokens by `haul token token:NAME`.
//!
//! `user=NAME` is the account that reads and writes the files; a daemon that is not root can use only its own.
//! `rate=500Mbit`, `sessions=4` and `day=10T` limit all sessions of a key together (`allowance.rs`). `clear` permits data
//! connections without encryption, but authenticated, for clients that ask for them; control is always encrypted. Within
//! quotes `\"`, `\\` and `\xHH` stand for one byte.
//!
//! The key stands last, before the name, so a line that was cut off grants nothing. Nor does a line whose directory holds the
//! daemon's own files (`own_files.rs`), judged when a session begins. A bad line is logged, the other lines hold, and
//! `haul serve --check` fails.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use haul_net::PublicKey;
use haul_transfer::Grant;

use crate::allowance::KeyLimits;
use crate::limits::{MAX_SESSIONS, MIN_KEY_RATE_BYTES_PER_S};
use crate::log::escaped;

/// The grant of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorized {
    /// The directory and the rights in it.
    pub grant: Grant,
    /// The limits on its sessions.
    pub limits: KeyLimits,
    /// The name for the log; maybe empty.
    pub comment: String,
    /// The number of the line, from 1.
    pub line: usize,
}

/// The holder of a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The holder of this key.
    Key(PublicKey),
    /// The holder of the TLS certificate with this SHA-256.
    Certificate([u8; 32]),
    /// Holders of tokens for this name.
    Token(String),
}

/// The keys of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(HashMap<Holder, Authorized>);

/// A line that grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

impl List {
    /// Reads the lines. A key in two lines has no grant: the lines may differ.
    pub fn parse(text: &[u8]) -> (List, Vec<BadLine>) {
        let mut list = HashMap::new();
        let mut bad = Vec::new();
        let mut seen: HashMap<Holder, usize> = HashMap::new();
        for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            match parse_line(bytes) {
                Ok(None) => {}
                Ok(Some((key, authorized))) => match seen.insert(key.clone(), line) {
                    None => {
                        list.insert(key, Authorized { line, ..authorized });
                    }
                    Some(other) => {
                        list.remove(&key);
                        bad.push(BadLine { line, why: format!("the key stands in line {other}, too") });
                    }
                },
                Err(why) => bad.push(BadLine { line, why }),
            }
        }
        (List(list), bad)
    }

    /// The grant of a key.
    pub fn get(&self, key: &PublicKey) -> Option<&Authorized> {
        self.0.get(&Holder::Key(*key))
    }

    /// The line of any holder.
    pub fn line_for(&self, holder: &Holder) -> Option<&Authorized> {
        self.0.get(holder)
    }

    /// Whether a line has a TLS certificate.
    pub fn has_certificates(&self) -> bool {
        self.0.keys().any(|holder| matches!(holder, Holder::Certificate(_)))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list has no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All grants.
    pub fn grants(&self) -> impl Iterator<Item = &Authorized> {
        self.0.values()
    }
}

impl Holder {
    /// `None`: the word begins like none of them.
    pub fn parse(word: &str) -> Option<Result<Holder, String>> {
        let (kind, rest) = word.split_once(':')?;
        match kind {
            "ed25519" => Some(word.parse().map(Holder::Key).map_err(|error: haul_net::BadKey| error.to_string())),
            "cert" => Some(fingerprint(rest).map(Holder::Certificate)),
            "token" => Some(token_name(rest).map(Holder::Token)),
            _ => None,
        }
    }
}

fn fingerprint(digits: &str) -> Result<[u8; 32], String> {
    // A certificate has 64 digits like a key; `openssl x509 -fingerprint` prints colons between them.
    let key = format!("ed25519:{}", digits.replace(':', "").to_ascii_lowercase());
    let parsed: Result<PublicKey, haul_net::BadKey> = key.parse();
    parsed.map(|print| print.0).map_err(|_| "cert: needs the 64 hexadecimal digits of a SHA-256".to_owned())
}

fn token_name(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@');
    match !name.is_empty() && name.len() <= MAX_TOKEN_NAME && name.bytes().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err("token: needs a name of at most 64 letters, digits and . _ - @".to_owned()),
    }
}

const HOLDERS: [&[u8]; 3] = [b"ed25519:", b"cert:", b"token:"];

const MAX_TOKEN_NAME: usize = 64;

/// `None`: an empty line or a comment.
fn parse_line(line: &[u8]) -> Result<Option<(Holder, Authorized)>, String> {
    let mut rest = line.trim_ascii();
    if rest.is_empty() || rest.starts_with(b"#") {
        return Ok(None);
    }
    let (mut read_only, mut root, mut clear, mut user) = (None, None, false, None);
    let mut limits = KeyLimits::default();
    loop {
        let (word, after) = split_word(rest)?;
        match word.as_slice() {
            b"" => return Err("it has no key".into()),
            b"ro" | b"rw" if read_only.is_some() => return Err("it says more than once ro or rw".into()),
            b"ro" => read_only = Some(true),
            b"rw" => read_only = Some(false),
            b"clear" => clear = true,
            _ if word.starts_with(b"root=") && root.is_some() => return Err("it has more than one root".into()),
            _ if word.starts_with(b"root=") => root = Some(directory(&word[b"root=".len()..])?),
            _ if word.starts_with(b"user=") && user.is_some() => return Err("it has more than one user".into()),
            _ if word.starts_with(b"user=") => user = Some(account(&word[b"user=".len()..])?),
            _ if limit(&word, &mut limits)? => {}
            _ if HOLDERS.iter().any(|kind| word.starts_with(kind)) => {
                let no_such = || Err("its key has no such form".to_owned());
                let key = Holder::parse(&String::from_utf8_lossy(&word)).unwrap_or_else(no_such)?;
                let read_only = read_only.ok_or("it must say ro or rw before the key")?;
                let root = root.ok_or("it names no directory, root=/DIR, before the key")?;
                let comment = String::from_utf8_lossy(after.trim_ascii()).into_owned();
                let grant = Grant { root: Some(root), read_only, clear, user, ..Grant::default() };
                if limits != KeyLimits::default() && !matches!(key, Holder::Key(_)) {
                    return Err("rate=, sessions= and day= are for keys: ed25519:KEY".into());
                }
                return Ok(Some((key, Authorized { grant, limits, comment, line: 0 })));
            }
            other => {
                let word = escaped(other);
                return Err(format!(
                    "'{word}' is none of ro, rw, clear, user=NAME, rate=RATE, sessions=N, day=SIZE, root=/DIR and ed25519:KEY"
                ));
            }
        }
        rest = after;
    }
}

/// False: the word is no limit.
fn limit(word: &[u8], limits: &mut KeyLimits) -> Result<bool, String> {
    let word = String::from_utf8_lossy(word);
    let Some((name, value)) = word.split_once('=') else { return Ok(false) };
    let wrong = |why: String| format!("{name}={}: {why}", escaped(value.as_bytes()));
    let is_again = match name {
        "rate" => {
            let rate = haul_job::rate::parse_rate(value).map_err(wrong)?;
            if rate < MIN_KEY_RATE_BYTES_PER_S {
                return Err(wrong("less than 1Mbit is too slow for a session".into()));
            }
            limits.rate_bytes_per_s.replace(rate).is_some()
        }
        "sessions" => {
            let sessions = value.parse().ok().filter(|sessions| (1..=MAX_SESSIONS).contains(sessions));
            let sessions = sessions.ok_or_else(|| wrong(format!("a number from 1 to {MAX_SESSIONS}")))?;
            limits.sessions.replace(sessions).is_some()
        }
        "day" => limits.day_bytes.replace(haul_job::rate::parse_size(value).map_err(wrong)?).is_some(),
        _ => return Ok(false),
    };
    if is_again { Err(format!("it has more than one {name}")) } else { Ok(true) }
}

fn split_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut word = Vec::new();
    let mut quoted = false;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let (byte, length) = escape(&text[at..])?;
                word.push(byte);
                at += length;
            }
            b' ' | b'\t' | b'\r' if !quoted => return Ok((word, text[at..].trim_ascii_start())),
            _ => word.push(byte),
        }
    }
    if quoted { Err("a quote is not closed".into()) } else { Ok((word, b"")) }
}

fn escape(text: &[u8]) -> Result<(u8, usize), String> {
    let digit =
        |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    match (text.first(), digit(1), digit(2)) {
        (Some(byte @ (b'"' | b'\\')), ..) => Ok((*byte, 1)),
        (Some(b'x'), Some(high), Some(low)) => Ok((high << 4 | low, 3)),
        _ => Err(r#"a backslash in quotes must be \", \\ or \xHH"#.into()),
    }
}

fn directory(bytes: &[u8]) -> Result<PathBuf, String> {
    let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
    if bytes.contains(&0) || !path.is_absolute() {
        return Err("root must be a full path, root=/DIR".into());
    }
    Ok(path)
}

/// The account itself is looked up when a session begins.
fn account(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.is_empty() && !name.contains('\0') => Ok(name.to_owned()),
        _ => Err("user must be the name of an account, user=NAME".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PublicKey = PublicKey([0xab; 32]);

    fn granted(line: &[u8]) -> Result<Option<(PathBuf, bool, String)>, String> {
        let (list, bad) = List::parse(line);
        match (list.get(&KEY), bad.into_iter().next()) {
            (Some(found), None) => {
                let root = found.grant.root.clone().expect("always");
                Ok(Some((root, found.grant.read_only, found.comment.clone())))
            }
            (None, None) => Ok(None),
            (_, Some(bad)) => Err(bad.why),
        }
    }

    #[test]
    fn readers_of_the_web_have_lines_of_their_own() {
        let text = format!(
            "ro root=/a token:lab\nro root=/b cert:{} bob\nro root=/c cert:AB:cd\nro root=/d token:a/b\n",
            "AB:".repeat(31) + "AB"
        );
        let (list, bad) = List::parse(text.as_bytes());
        let root = |holder: &Holder| list.line_for(holder).and_then(|line| line.grant.root.clone());
        assert_eq!(root(&Holder::Token("lab".to_owned())), Some("/a".into()));
        assert_eq!(root(&Holder::Certificate([0xab; 32])), Some("/b".into()));
        assert_eq!(list.get(&KEY), None, "a certificate is no key");
        assert_eq!(bad.len(), 2, "{bad:?}");
        assert!(list.has_certificates());
    }

    #[test]
    fn lines_that_grant() {
        let check = |line: &str, root: &[u8], read_only: bool, comment: &str| {
            let root = PathBuf::from(OsString::from_vec(root.to_vec()));
            assert_eq!(granted(line.as_bytes()), Ok(Some((root, read_only, comment.to_owned()))), "{line}");
        };
        check(&format!("ro root=/data {KEY}"), b"/data", true, "");
        check(&format!("  rw\troot=/data  {KEY}   bob at home \r"), b"/data", false, "bob at home");
        check(&format!("root=/data rw {KEY} root=/etc rw"), b"/data", false, "root=/etc rw");
        check(&format!("rw root=\"/data/new sets\" {KEY} x"), b"/data/new sets", false, "x");
        check(&format!("rw \"root=/data/new sets\" {KEY}"), b"/data/new sets", false, "");
        check(&format!(r#"rw root="/a\"b\\c\xff\x20#" {KEY} "quoted""#), b"/a\"b\\c\xff #", false, "\"quoted\"");
        check(&format!(r"rw root=/back\slash {KEY}"), br"/back\slash", false, "");
        check(&format!("ro root=/ {KEY}"), b"/", true, "");
    }

    #[test]
    fn clear_lanes_are_granted_by_word_only() {
        let clear = |line: String| List::parse(line.as_bytes()).0.get(&KEY).map(|found| found.grant.clear);
        assert_eq!(clear(format!("rw root=/data {KEY} clear")), Some(false), "a name grants nothing");
        assert_eq!(clear(format!("rw clear root=/data {KEY}")), Some(true));
        assert_eq!(clear(format!("clear ro root=/data {KEY}")), Some(true));
    }

    #[test]
    fn the_account_of_a_key_is_named_once_before_it() {
        let user = |line: String| List::parse(line.as_bytes()).0.get(&KEY).map(|found| found.grant.user.clone());
        assert_eq!(user(format!("rw root=/data {KEY} user=bob")), Some(None), "a name grants nothing");
        assert_eq!(user(format!("rw user=alice root=/data {KEY}")), Some(Some("alice".into())));
        for bad in ["user=", "user=a user=b", "user=\"a\\x00\"", "user=\"\\xff\""] {
            assert_eq!(user(format!("rw {bad} root=/data {KEY}")), None, "{bad}");
        }
    }

    #[test]
    fn the_limits_of_a_key_stand_before_it() {
        let parse = |words: &str| List::parse(format!("rw {words} root=/data {KEY}").as_bytes());
        let limits = |words: &str| parse(words).0.get(&KEY).map(|found| found.limits);
        let all = KeyLimits { rate_bytes_per_s: Some(62_500_000), sessions: Some(4), day_bytes: Some(10 << 40) };
        assert_eq!(limits("rate=500Mbit sessions=4 day=10T"), Some(all));
        assert_eq!(limits(""), Some(KeyLimits::default()));
        let check = |words: &str, why: &str| {
            let (list, bad) = parse(words);
            assert!(list.is_empty() && bad[0].why.contains(why), "{words}: {bad:?}");
        };
        check("rate=500", "rate=500: a rate needs a unit");
        check("rate=100kbit", "too slow");
        check("rate=1Gbit rate=2Gbit", "more than one rate");
        check("sessions=0", "a number from 1 to 64");
        check("sessions=65", "a number from 1 to 64");
        check("day=much", "day=much: ");
        check("year=1T", "'year=1T' is none of");
        let (_, bad) = List::parse(b"ro rate=1Gbit root=/data token:lab");
        assert!(bad[0].why.contains("are for keys"), "{bad:?}");
    }

    #[test]
    fn lines_that_grant_nothing() {
        for line in ["", "   ", "# ro root=/ ", "\t#"] {
            assert_eq!(granted(line.as_bytes()), Ok(None), "{line}");
        }
        let check = |line: String, words: &str| {
            let why = granted(line.as_bytes()).expect_err(&line);
            assert!(why.contains(words), "{line}: {why}");
        };
        check(format!("{KEY}"), "must say ro or rw");
        check(format!("root=/data {KEY}"), "must say ro or rw");
        check(format!("ro {KEY}"), "no directory");
        check(format!("ro root= {KEY}"), "full path");
        check(format!("ro root=data {KEY}"), "full path");
        check(format!("ro root=~/data {KEY}"), "full path");
        check(format!("ro rw root=/data {KEY}"), "more than once");
        check(format!("ro root=/data root=/ {KEY}"), "more than one root");
        check(format!("RW root=/data {KEY}"), "'RW' is none of");
        check(format!("rw,root=/data {KEY}"), "'rw,root=/data' is none of");
        check(format!("ro root=/new sets {KEY}"), "'sets' is none of");
        check(format!("ro root=\"/new sets {KEY}"), "not closed");
        check(format!(r#"ro root="/n\ew" {KEY}"#), "backslash");
        check(format!(r#"ro root="/n\x4" {KEY}"#), "backslash");
        check(format!("ro root=\"/a\\x00b\" {KEY}"), "full path");
        check("ro root=/data".into(), "no key");
        check("ro root=/data ssh-ed25519 AAAA".into(), "'ssh-ed25519' is none of");
        check(format!("ro root=/data {}", &KEY.to_string()[..70]), "64 hexadecimal");
        check("\x1b[2J".into(), r"\u{1b}[2J");
    }

    #[test]
    fn a_cut_off_line_grants_nothing() {
        let line = format!("rw root=/data {KEY}");
        for end in 1..line.len() {
            let (list, bad) = List::parse(&line.as_bytes()[..end]);
            assert!(list.is_empty() && bad.len() == 1, "{}", &line[..end]);
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_others_hold() {
        let other = PublicKey([1; 32]);
        let text = format!("ro root=/a {KEY}\nnonsense\n\nrw root=/b {other}\n");
        let (list, bad) = List::parse(text.as_bytes());
        assert_eq!(list.len(), 2);
        assert_eq!(
            bad.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "line 2: 'nonsense' is none of ro, rw, clear, user=NAME, rate=RATE, sessions=N, day=SIZE, root=/DIR and ed25519:KEY"
            ]
        );
        let (list, bad) = List::parse(format!("ro root=/a {KEY}\nrw root=/b {KEY}\nro root=/c {KEY}").as_bytes());
        assert!(list.is_empty());
        assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 3]);
    }
}

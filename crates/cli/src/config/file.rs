//! Reads `~/.config/haul/config.toml`; errors name file and line.
//!
//! ```toml
//! [defaults]                  # flags of `haul cp`; --rate 1Gbit is rate = "1Gbit", --compress is compress = true
//! retry = "2h"
//!
//! [host."dtn1.example.org"]   # for copies from and to this host; wins over [defaults]
//! port = 2222                 # a flag with a letter alone has a word here: `haul config --all` lists them
//! ssh-option = ["Compression=no"]
//!
//! [ends]                      # tape:sub/dir is haul://dtn.example.org/archive/sub/dir
//! tape = "haul://dtn.example.org/archive"
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use clap::ArgAction;
use haul_job::{Error, Fault, Here, Place};
use haul_transfer::own::{self, Weight};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::far_side::endpoint::{self, NamedEnd};
use crate::flags::headings::{REACH, SAID, TRAVEL, WHAT, WRITE};
use crate::text::printable::printable;

#[derive(Debug, Default)]
pub struct Config {
    /// The file need not exist.
    pub path: PathBuf,
    pub defaults: Vec<Setting>,
    pub hosts: BTreeMap<String, Vec<Setting>>,
    pub ends: BTreeMap<String, End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name in the file.
    pub key: String,
    /// The name in the flags' definitions.
    pub flag: clap::Id,
    pub given: Given,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    Switch(bool),
    /// Several values, for a repeated flag.
    Values(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub written: String,
    pub means: NamedEnd,
    pub line: usize,
}

/// A thousand hosts with ten settings take a quarter.
const MAX_BYTES: u64 = 1 << 20;

/// The file may set these flags of what is copied. Flags that leave out or delete entries stay on the command line,
/// where the user sees them.
const WHAT_HABITS: [&str; 8] = ["archive", "owner", "group", "perms", "numeric_ids", "hard_links", "xattrs", "acls"];

/// Flags that belong to one copy, or only show it.
const OF_ONE_COPY: [&str; 8] =
    ["manifest_out", "stripe_dir", "json", "help", "human_readable", "detach", "detached_as", "no_config"];

/// Names with another meaning before a colon.
const TAKEN: [&str; 6] = ["zero", "null", "stripes", "ssh", "scp", "haul"];

impl Config {
    /// A missing file has no settings.
    pub fn read(path: &Path, cp: &clap::Command) -> Result<Self, Error> {
        let empty = Self { path: path.to_owned(), ..Self::default() };
        let Some(text) = text_of(path)? else { return Ok(empty) };
        Self::parse(&text, empty, cp)
    }

    fn parse(text: &str, empty: Self, cp: &clap::Command) -> Result<Self, Error> {
        let reading = Reading { path: &empty.path, text, cp };
        let table = DeTable::parse(text)
            .map_err(|error| reading.wrong(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        let mut config = Self { path: empty.path.clone(), ..Self::default() };
        for (name, value) in table.get_ref() {
            match name.get_ref().as_ref() {
                "defaults" => config.defaults = reading.settings(name, value)?,
                "host" => {
                    for (host, settings) in reading.table(name, value)? {
                        config.hosts.insert(host.get_ref().to_string(), reading.settings(host, settings)?);
                    }
                }
                "ends" => {
                    for (end, root) in reading.table(name, value)? {
                        config.ends.insert(end.get_ref().to_string(), reading.end(end, root)?);
                    }
                }
                other => {
                    let what = format!("there is no [{}]", printable(other));
                    return Err(reading.wrong(name.span().start, what).try_this("[defaults], [host.\"NAME\"], [ends]"));
                }
            }
        }
        Ok(config)
    }

    pub fn place(&self, line: usize) -> String {
        format!("{}:{line}", printable(self.path.as_os_str().as_encoded_bytes()))
    }
}

/// Refuses a file that others may write or replace, as ssh does: it can name programs to start.
fn text_of(path: &Path) -> Result<Option<String>, Error> {
    let named = || printable(path.as_os_str().as_encoded_bytes());
    let failed = |why: String| Error::new(Fault::Usage, format!("cannot use {}", named())).because(why);
    let opened = match own::open(path, Weight::Obeyed) {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(haul_transfer::advised(failed(error.to_string()), &error)),
    };
    let mut text = String::new();
    let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if read as u64 > MAX_BYTES {
        return Err(failed(format!("it is longer than {} KiB", MAX_BYTES >> 10)));
    }
    Ok(Some(text))
}

struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    cp: &'a clap::Command,
}

type Key<'i> = Spanned<DeString<'i>>;
type Value<'i> = Spanned<DeValue<'i>>;

impl Reading<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    fn wrong(&self, at: usize, what: impl Into<String>) -> Error {
        let place = printable(self.path.as_os_str().as_encoded_bytes());
        Error::new(Fault::Usage, format!("{place}:{}: {}", self.line(at), what.into()))
    }

    fn table<'v, 'i>(&self, name: &Key<'i>, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, Error> {
        value.get_ref().as_table().ok_or_else(|| {
            let what =
                format!("{} is a table, with its lines below [{}]", printable(name.get_ref().as_ref()), name.get_ref());
            self.wrong(name.span().start, what)
        })
    }

    fn settings(&self, name: &Key<'_>, value: &Value<'_>) -> Result<Vec<Setting>, Error> {
        let mut found = Vec::new();
        for (key, value) in self.table(name, value)? {
            found.push(self.setting(key, value)?);
        }
        found.sort_by_key(|setting| setting.line);
        Ok(found)
    }

    fn setting(&self, key: &Key<'_>, value: &Value<'_>) -> Result<Setting, Error> {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        let Some(arg) = settable(self.cp).find(|arg| word(arg) == name) else {
            let error = self.wrong(at, format!("there is no setting '{}'", printable(name)));
            return Err(match self.cp.get_arguments().any(|arg| word(arg) == name) {
                true => error.because("it belongs to one copy").try_this("write it on the command line"),
                false => error.try_this("a setting has the name of its flag: haul cp --help"),
            });
        };
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count);
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        let given = match value.get_ref() {
            DeValue::Boolean(on) if is_switch => Given::Switch(*on),
            DeValue::Array(list) if is_list => {
                let texts = list.iter().map(|one| text_in(one.get_ref()));
                Given::Values(
                    texts.collect::<Option<_>>().ok_or_else(|| self.wrong(at, format!("{name}: texts only")))?,
                )
            }
            one if !is_switch => match text_in(one) {
                Some(text) => Given::Values(vec![text]),
                None => return Err(self.wrong(at, format!("{name} takes a text or a number"))),
            },
            _ => return Err(self.wrong(at, format!("{name} is true or false"))),
        };
        if matches!(&given, Given::Values(values) if values.iter().any(String::is_empty)) {
            return Err(self.wrong(at, format!("{name} is empty")).try_this("leave it out"));
        }
        Ok(Setting { key: name.to_owned(), flag: arg.get_id().clone(), given, line: self.line(at) })
    }

    fn end(&self, name: &Key<'_>, value: &Value<'_>) -> Result<End, Error> {
        let (at, key) = (name.span().start, name.get_ref().as_ref());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if key.is_empty() || key.starts_with('-') || !key.bytes().all(plain) || TAKEN.contains(&key) {
            let what = format!("'{}' cannot be the name of an end", printable(key));
            return Err(self
                .wrong(at, what)
                .try_this("letters, digits, - _ .; zero, null, stripes, ssh, scp and haul are taken"));
        }
        let Some(written) = value.get_ref().as_str() else {
            return Err(self.wrong(at, format!("{key} is a text, such as \"host:dir\"")));
        };
        let (first, others) = endpoint::parse_hosts(OsStr::new(written)).map_err(|error| {
            let Error { cause, hint, .. } = error;
            Error { cause, hint, ..self.wrong(at, format!("{key} means no place")) }
        })?;
        let is_absolute = first.path.starts_with(b"/");
        match &first.place {
            Place::Here(Here::Disk) if !is_absolute => {
                Err(self.wrong(at, format!("{key} is no place that all directories share")).try_this("begin it with /"))
            }
            Place::Here(Here::Zero { .. } | Here::Stripes { .. } | Here::Web(_) | Here::Null) => {
                Err(self.wrong(at, format!("{key} has no paths below it")))
            }
            Place::Here(Here::Disk | Here::Sftp { .. } | Here::Ftp(_) | Here::SshFtp { .. } | Here::S3 { .. })
            | Place::Far(_) => {
                Ok(End { written: written.to_owned(), means: NamedEnd { first, others }, line: self.line(at) })
            }
        }
    }
}

pub fn settable(cp: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    cp.get_arguments().filter(|arg| {
        let id = arg.get_id().as_str();
        let fits = match arg.get_help_heading() {
            Some(WHAT) => WHAT_HABITS.contains(&id),
            Some(WRITE | TRAVEL | REACH | SAID) => true,
            _ => false,
        };
        fits && !OF_ONE_COPY.contains(&id)
    })
}

/// A flag's name in the file: its long form, else its id.
pub fn word(arg: &clap::Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().as_str().replace('_', "-"), str::to_owned)
}

fn text_in(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::settings::tests::cp;

    pub fn read(text: &str) -> Result<Config, Error> {
        Config::parse(text, Config { path: "c.toml".into(), ..Config::default() }, &cp())
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = |text: &str| {
            let error = read(text).expect_err(text);
            assert_eq!(error.fault, Fault::Usage);
            error.what
        };
        let table = [
            ("[defaults]\nlanes = 4\nlane = 5\n", "c.toml:3: there is no setting 'lane'"),
            ("[defaults]\ndelete = true\n", "c.toml:2: there is no setting 'delete'"),
            ("\n[default]\n", "c.toml:2: there is no [default]"),
            ("lanes = 3\n", "c.toml:1: there is no [lanes]"),
            ("[defaults]\ncompress = 1\n", "c.toml:2: compress is true or false"),
            ("[defaults]\nlanes = true\n", "c.toml:2: lanes takes a text or a number"),
            ("[defaults]\nssh-option = [1.5]\n", "c.toml:2: ssh-option: texts only"),
            ("[defaults]\njump = \"\"\n", "c.toml:2: jump is empty"),
            ("ends = 5\n", "c.toml:1: ends is a table, with its lines below [ends]"),
            ("[ends]\nnull = \"h:x\"\n", "c.toml:2: 'null' cannot be the name of an end"),
            ("[ends]\nt = \"data\"\n", "c.toml:2: t is no place that all directories share"),
            ("[ends]\nt = \"null:\"\n", "c.toml:2: t has no paths below it"),
            ("[ends]\nt = \"gopher://h/x\"\n", "c.toml:2: t means no place"),
            ("[host.a]\nports = 3\n", "c.toml:2: there is no setting 'ports'"),
        ];
        for (text, expected) in table {
            assert_eq!(wrong(text), expected);
        }
        assert!(wrong("[defaults\n").starts_with("c.toml:1: "), "{}", wrong("[defaults\n"));
        assert!(wrong("[ends]\na = \"h:x\"\na = \"h:y\"\n").starts_with("c.toml:3: "));
    }

    #[test]
    fn flags_with_a_letter_alone_have_words() {
        let text =
            "[host.\"a.b\"]\nport = 2222\nssh-option = [\"A=b\", \"C=d\"]\nssh-identity = \"k\"\nthrough-here = true\n";
        let config = read(text).unwrap();
        let words: Vec<(&str, &str)> =
            config.hosts["a.b"].iter().map(|setting| (setting.key.as_str(), setting.flag.as_str())).collect();
        let expected = [("port", "port"), ("ssh-option", "ssh_option"), ("ssh-identity", "ssh_identity")];
        assert_eq!(words[..3], expected);
        assert_eq!(config.hosts["a.b"][1].given, Given::Values(vec!["A=b".to_owned(), "C=d".to_owned()]));
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_and_none_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        assert!(Config::read(&path, &cp()).unwrap().defaults.is_empty());
        fs::write(&path, "[defaults]\nlanes = 3\n").unwrap();
        for (mode, is_fine) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Config::read(&path, &cp()).is_ok(), is_fine, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Config::read(&path, &cp()).unwrap_err();
        assert_eq!(refused.hint, Some(format!("chmod go-w {}", dir.path().display())));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        assert!(Config::read(&path, &cp()).unwrap_err().cause.unwrap().contains("longer than"));
    }
}

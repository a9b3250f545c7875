//! `haul key`: the identity for haul:// connections, and trusted daemons.

pub mod flags;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use haul_job::{Error, Far, Fault, Place};
use haul_transfer::Surroundings;
use haul_transfer::own::Weight;
use haul_transfer::trusted_keys::{self, Trusted};

use crate::far_side::endpoint;
use crate::key::flags::{Key, KeyAction, Trust};
use crate::process::output;
use crate::text::failure;
use crate::text::printable::printable;

pub fn run(typed: &Key) -> ExitCode {
    let done = match &typed.action {
        KeyAction::Generate(typed) => key_file(typed.file.clone(), "id_ed25519").and_then(|file| {
            let key = trusted_keys::generate_identity(&file, typed.force)?.public();
            let aside = format!("made {}\n{}", shown(&file), fingerprint(&key.fingerprint()));
            Ok(Told { text: line_of(&key.to_string()), aside })
        }),
        KeyAction::Show(typed) => key_file(typed.file.clone(), "id_ed25519").and_then(|file| {
            let key = trusted_keys::load_identity(&file, Weight::NamedSecret)?.public();
            Ok(Told { text: line_of(&key.to_string()), aside: fingerprint(&key.fingerprint()) })
        }),
        KeyAction::Trust(typed) => trust(typed).map(|text| Told { text, aside: String::new() }),
    };
    match done {
        Ok(Told { text, aside }) => {
            let _ = write!(std::io::stderr(), "{aside}");
            output::say(text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = write!(std::io::stderr(), "{}", failure::text(&error));
            ExitCode::from(failure::of_fault(error.fault).code)
        }
    }
}

fn trust(typed: &Trust) -> Result<String, Error> {
    let mut address = OsString::from("haul://");
    address.push(&typed.host);
    let parsed = endpoint::parse(&address)?;
    let (Place::Far(Far::Haul { host, port }), b".") = (&parsed.place, parsed.path.as_slice()) else {
        return Err(Error::new(
            Fault::Usage,
            format!("'{}' is no HOST[:PORT]", printable(typed.host.as_encoded_bytes())),
        ));
    };
    let file = key_file(typed.known_hosts.clone(), "known_hosts")?;
    let name = trusted_keys::host_name(host, *port);
    let file_shown = shown(&file);
    Ok(match trusted_keys::trust(&file, host, *port, &typed.key, typed.replace)? {
        Trusted::Added => format!("{name} is now known in {file_shown}\n"),
        Trusted::Instead => format!("{name} is now known with its new key in {file_shown}\n"),
        Trusted::Before => format!("{name} was known with this key already, in {file_shown}\n"),
    })
}

struct Told {
    /// Standard output gets the key line alone, for lists of keys.
    text: String,
    aside: String,
}

/// The public half as a line of a list, named for the log.
fn line_of(key: &str) -> String {
    format!("{key} {}\n", printable(owner()))
}

fn fingerprint(short: &str) -> String {
    format!("fingerprint {short}\n")
}

/// The user and host, as in ssh-keygen's comment.
fn owner() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

fn key_file(typed: Option<PathBuf>, name: &str) -> Result<PathBuf, Error> {
    typed.or_else(|| Surroundings::of_process().config_file(name)).ok_or_else(|| {
        Error::new(Fault::Usage, "there is no home directory for keys").try_this("set HOME, or name the file")
    })
}

fn shown(file: &std::path::Path) -> String {
    printable(file.as_os_str().as_encoded_bytes())
}

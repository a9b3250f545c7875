//! Places that a flag of ssh would swallow: `ls -F DIR`, `ls -i`, `ls -S` and `ls -o` are words of ls(1).
//!
//! A command that lost a place would look elsewhere and end well. So a value that ssh could not use either is refused,
//! even if no ssh runs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use haul_job::{Error, Fault, Place};

use crate::far_side::endpoint::one_host;
use crate::far_side::flags::Reach;
use crate::text::printable::printable;

pub fn refuse(typed: &Reach) -> Result<(), Error> {
    let identities = typed.ssh_identity.iter().map(|file| ("-i", "a key", file.as_os_str()));
    let config = typed.ssh_config.iter().map(|file| ("-F", "a configuration file", file.as_os_str()));
    let program = typed.ssh_program.iter().map(|program| ("-S", "the program", program.as_os_str()));
    for (flag, what, value) in identities.chain(config).chain(program) {
        if Path::new(value).is_dir() || (is_far(value) && fs::symlink_metadata(value).is_err()) {
            return Err(refused(flag, &format!("{what} of ssh"), value));
        }
    }
    for option in &typed.ssh_option {
        // ssh_config(5): keyword and value, with a space or equals sign between.
        if !option.as_bytes().iter().any(|byte| matches!(byte, b'=' | b' ' | b'\t')) {
            return Err(refused("-o", "an option of ssh, NAME=VALUE", option));
        }
    }
    for hop in typed.jump.iter().flat_map(|jump| jump.split(',')) {
        let port =
            hop.rsplit_once(':').map(|(_, port)| port).filter(|_| !hop.starts_with("ssh://") && !hop.ends_with(']'));
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(refused("-J", "a host to jump over", &OsString::from(hop)));
        }
    }
    Ok(())
}

fn is_far(value: &OsStr) -> bool {
    one_host(value).is_ok_and(|end| matches!(end.place, Place::Far(_)))
}

fn refused(flag: &str, what: &str, value: &OsStr) -> Error {
    Error::new(Fault::Usage, format!("{flag} takes {what}, and {} is none", printable(value.as_bytes())))
        .because(format!("{flag} is a flag of ssh here, as in scp; it may have another meaning in ls, du and stat"))
        .try_this(format!("leave {flag} out, or name {what} behind it"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Typed {
        #[command(flatten)]
        reach: Reach,
    }

    fn of(line: &str) -> Result<(), String> {
        let typed = Typed::try_parse_from(std::iter::once("haul").chain(line.split(' '))).unwrap();
        refuse(&typed.reach).map_err(|error| error.what)
    }

    #[test]
    fn a_place_is_no_value_of_a_flag_of_ssh() {
        for line in [
            "-F host:data",
            "-F /",
            "-F haul://dtn/data",
            "-i host:data",
            "-i /tmp",
            "-S host:data",
            "-S /usr",
            "-o host:data",
            "-o data",
            "-J host:data",
            "-J host:",
        ] {
            let what = of(line).unwrap_err();
            assert!(what.starts_with(&line[..2]) && what.ends_with("is none"), "{line}: {what}");
        }
    }

    #[test]
    fn what_ssh_takes_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("host:config");
        fs::write(&odd, "").unwrap();
        for line in [
            "-F none",
            "-F /no/such/config",
            "-F /dev/null",
            "-i ~/.ssh/id_ed25519",
            "-i id_of_tomorrow",
            "-S ssh",
            "-S /usr/bin/ssh",
            "-o Port=22",
            "-o ProxyCommand=ssh -W %h:%p gate",
            "-J gate",
            "-J me@gate:2222,[fe80::1]",
            "-J ssh://gate:22",
        ] {
            let words = line.split_once(' ').unwrap();
            let typed = Typed::try_parse_from(["haul", words.0, words.1]).unwrap();
            assert_eq!(refuse(&typed.reach), Ok(()), "{line}");
        }
        let typed = Typed::try_parse_from(["haul".as_ref(), "-F".as_ref(), odd.as_os_str()]).unwrap();
        assert_eq!(refuse(&typed.reach), Ok(()), "a file of that name is there");
    }
}

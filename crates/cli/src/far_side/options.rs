//! Turns flags for the far side into options of ssh and data connections.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;

use haul_job::{Carriage, Error, Family, Fault, SshOptions};

use crate::far_side::flags::{Connections, Reach, parse_jump};
use crate::far_side::{meant_places, options};
use crate::flags::values::{parse_port, split_words};
use crate::text::printable::printable;

pub fn ways(reach: &Reach) -> Result<(Carriage, SshOptions), Error> {
    let (ssh, ssh_family) = options::ssh_options(reach)?;
    let family = match (reach.ipv4, reach.ipv6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => ssh_family,
    };
    Ok((Carriage { family, ..Carriage::default() }, ssh))
}

pub fn connections(typed: &Connections, reach: &Reach, ssh_family: Option<Family>) -> Carriage {
    Carriage {
        lanes: typed.lanes.0,
        paths: typed.network_paths.clone(),
        transport: typed.transport.into(),
        port_range: typed.port_range.map(|range| (range.0, range.1)),
        family: match (reach.ipv4, reach.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => ssh_family,
        },
        congestion_control: typed.cc.clone(),
        ..Carriage::default()
    }
}

/// `-e` comes first, so a flag of its own wins.
pub fn ssh_options(typed: &Reach) -> Result<(SshOptions, Option<Family>), Error> {
    meant_places::refuse(typed)?;
    let (mut ssh, family) = match &typed.rsh {
        Some(command) => remote_shell(command)?,
        None => (SshOptions::default(), None),
    };
    ssh.program = typed.ssh_program.clone().or(ssh.program);
    ssh.port = typed.port.or(ssh.port);
    ssh.identities.extend(typed.ssh_identity.iter().cloned());
    ssh.config = typed.ssh_config.clone().or(ssh.config);
    ssh.jump = typed.jump.clone().or(ssh.jump);
    // ssh takes a repeated option's first value.
    ssh.options.splice(0..0, typed.ssh_option.iter().cloned());
    ssh.fresh_login = typed.no_keep_login;
    ssh.remote_program = typed.haul_path.clone();
    ssh.haul_identity = typed.identity.clone();
    ssh.haul_known_hosts = typed.known_hosts.clone();
    if ssh.remote_program.as_ref().is_some_and(String::is_empty) {
        return Err(usage("--haul-path is empty").try_this("name the program: --haul-path /opt/bin/haul"));
    }
    Ok((ssh, family))
}

/// `-e 'ssh -p 2222 -i key'` as in rsync. Refuses options that the job would silently lose.
fn remote_shell(command: &str) -> Result<(SshOptions, Option<Family>), Error> {
    let refused = |cause: String| {
        usage("cannot use the command of -e").because(cause).try_this(
            "-e takes the ssh program and its options -p -i -o -F -J -l -4 -6; put other options into ~/.ssh/config",
        )
    };
    let mut words: VecDeque<String> = split_words(command).map_err(refused)?.into();
    let mut ssh = SshOptions { program: words.pop_front().map(OsString::from), ..SshOptions::default() };
    if ssh.program.as_ref().is_none_or(|program| program.is_empty()) {
        return Err(refused("it is empty".to_owned()));
    }
    let mut family = None;
    while let Some(word) = words.pop_front() {
        let mut letters = word.chars();
        let (Some('-'), Some(letter)) = (letters.next(), letters.next()) else {
            return Err(refused(format!("{} is not an option", printable(&word))));
        };
        match word.as_str() {
            "-4" => family = Some(Family::V4),
            "-6" => family = Some(Family::V6),
            _ if "pioFJl".contains(letter) => {
                let value = match letters.as_str() {
                    "" => words.pop_front().ok_or_else(|| refused(format!("-{letter} lacks its value")))?,
                    attached => attached.to_owned(),
                };
                match letter {
                    'p' => ssh.port = Some(parse_port(&value).map_err(|e| refused(format!("the port is {e}")))?),
                    'i' => ssh.identities.push(PathBuf::from(value)),
                    'o' => ssh.options.push(value.into()),
                    'F' => ssh.config = Some(PathBuf::from(value)),
                    'J' => ssh.jump = Some(parse_jump(&value).map_err(refused)?),
                    _ => ssh.options.push(format!("User={value}").into()),
                }
            }
            _ => return Err(refused(format!("{} has no meaning here", printable(&word)))),
        }
    }
    Ok((ssh, family))
}

fn usage(what: impl Into<String>) -> Error {
    Error::new(Fault::Usage, what)
}

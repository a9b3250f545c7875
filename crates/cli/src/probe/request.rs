//! Turns a probe's flags into the request.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use haul_job::{Carriage, Error, Far, Fault, Place};
use haul_transfer::probe::{Request, SILENCE};

use crate::far_side::{endpoint, options};
use crate::probe::flags::Probe;
use crate::text::printable::printable;

pub fn request(typed: &Probe) -> Result<Request, Error> {
    let place = place(&typed.host)?;
    let (ssh, ssh_family) = options::ssh_options(&typed.reach)?;
    let carriage = Carriage { timeout: SILENCE, ..options::connections(&typed.connections, &typed.reach, ssh_family) };
    Ok(Request { place, time: Duration::from_secs(typed.time.into()), carriage, ssh })
}

/// `[USER@]HOST`, `ssh://[USER@]HOST[:PORT]` or `haul://HOST[:PORT]`; as in `cp`, a colon may follow the host.
fn place(typed: &OsStr) -> Result<Far, Error> {
    let bytes = typed.as_bytes();
    let is_uri = bytes.windows(3).any(|part| part == b"://");
    let mut with_colon = typed.to_owned();
    if !is_uri && !bytes.is_empty() && !bytes.ends_with(b":") {
        with_colon.push(":");
    }
    let found = endpoint::parse(&with_colon)?;
    let refused = |cause: &str| {
        Error::new(Fault::Usage, format!("'{}' is no host", printable(bytes)))
            .because(cause)
            .try_this("haul probe user@host, ssh://user@host:port or haul://host:port")
    };
    match found.place {
        Place::Here(_) => Err(refused("it looks like a local name")),
        Place::Far(_) if found.path != b"." => Err(refused("a probe has no path: it measures the network only")),
        Place::Far(far) => Ok(far),
    }
}

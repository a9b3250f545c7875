//! Opens what was named of a web server.

use std::io::ErrorKind;

use haul_foreign::{Credentials, Login, Opened, Origin, Settings, Url};
use haul_job::{Carriage, Error, Family, Fault, Here, Job, Place, WebServer};
use haul_store::{StoreError, printable};

/// The lanes that read from a web server, where nobody asks for a number: as many connections as a browser opens to one host, which
/// servers are used to.
const LANES: u16 = 6;

/// The connections of a copy whose lanes another host takes: as many as such a path has lanes for the most part.
const CONNECTIONS_FOR_FAR_TARGET: u16 = 16;

/// The usual number of lanes, if the source is a web server.
pub(crate) fn lanes(job: &Job) -> Option<u16> {
    matches!(job.sources.first()?.place, Place::Here(Here::Web(_))).then_some(LANES)
}

pub(crate) fn open(server: &WebServer, paths: &[Vec<u8>], job: &Job) -> Result<Opened, Error> {
    let Carriage { lanes, timeout, family, .. } = &job.carriage;
    let usual = if job.target.place.is_here() { LANES } else { CONNECTIONS_FOR_FAR_TARGET };
    let login =
        server.login.as_ref().map(|login| Login { user: login.user.clone(), password: login.password.clone().into() });
    let settings = Settings {
        // A server that is silent is asked again before the copy gives up.
        silence: *timeout / 3,
        family: family.map(|family| match family {
            Family::V4 => haul_net::Family::V4,
            Family::V6 => haul_net::Family::V6,
        }),
        ..Settings::usual(lanes.unwrap_or(usual).into(), Credentials::of_environment(login))
    };
    let origin = Origin { is_tls: server.is_tls, host: server.host.clone(), port: server.port };
    let urls = paths.iter().map(|path| {
        Url::new(origin.clone(), path).ok_or_else(|| {
            Error::new(Fault::Usage, format!("cannot use a URL of {origin}")).because("it is longer than 16 KiB")
        })
    });
    haul_foreign::open(&urls.collect::<Result<Vec<_>, _>>()?, settings).map_err(|error| fault(&error))
}

fn fault(error: &StoreError) -> Error {
    let fault = match error.source.kind() {
        ErrorKind::NotFound => Fault::Missing,
        ErrorKind::PermissionDenied => Fault::Authentication,
        ErrorKind::InvalidInput => Fault::Usage,
        ErrorKind::InvalidData | ErrorKind::FileTooLarge => Fault::FileIo,
        _ => Fault::Network,
    };
    Error::new(fault, format!("cannot {} {}", error.op, printable(&error.path))).because(&error.source)
}

//! Opens what was named of a web server.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use haul_channel::convert;
use haul_channel::reporter::Watch;
use haul_engine::path::servers::{self, FAR_REQUESTS_MAX, USUAL_CONNECTIONS};
use haul_engine::service::ServiceClass;
use haul_foreign::{Credentials, Lists, Login, Opened, Origin, Reach, Settings, Url, WebPlace};
use haul_job::{AskedClass, Error, Event, Family, Fault, Job, WebServer};
use haul_kept::network_classes;
use haul_kept::surroundings::Surroundings;
use haul_net::Wanted;
use haul_net::policy::Dscp;
use haul_reach::paths::first_way;
use haul_store::{PlaceTree, StoreError, printable};

use crate::named_ends::named;
use crate::server_terms::{self, Connections};

pub(crate) fn open(
    server: &WebServer,
    paths: &[Vec<u8>],
    job: &Job,
    surroundings: &Surroundings,
    watch: &Watch,
) -> Result<Opened, Error> {
    for text in server_terms::not_kept(&job.carriage, Connections::ToRead) {
        watch.tell(&Event::Warning { text });
    }
    let connections = job.carriage.lanes.unwrap_or(FAR_REQUESTS_MAX);
    let settings = settings(server, connections, job.carriage.timeout / 3, reach(job, surroundings)?);
    let settings = Settings { begins_with: servers::requests_at_start, ..settings };
    let urls = paths.iter().map(|path| url(server, path)).collect::<Result<Vec<_>, _>>()?;
    haul_foreign::open(&urls, settings, lists(server)).map_err(|error| fault(&named(error, &job.sources)))
}

pub(crate) fn settings(server: &WebServer, connections: u16, silence: Duration, reach: Reach) -> Settings {
    let login =
        server.login.as_ref().map(|login| Login { user: login.user.clone(), password: login.password.clone().into() });
    Settings { silence, reach, ..Settings::usual(connections.into(), Credentials::of_environment(login)) }
}

fn lists(server: &WebServer) -> Lists {
    if server.is_dav { Lists::Dav } else { Lists::Pages }
}

pub(crate) fn url(server: &WebServer, path: &[u8]) -> Result<Url, Error> {
    let origin = Origin { is_tls: server.is_tls, host: server.host.clone(), port: server.port };
    Url::new(origin, path).ok_or_else(|| {
        Error::new(Fault::Usage, format!("cannot use a URL of {server}")).because("it is longer than 16 KiB")
    })
}

/// Opens a server for a question, without asking yet, and without a tuner of connections.
pub(crate) fn place(server: &WebServer, job: &Job, surroundings: &Surroundings) -> Result<Arc<dyn PlaceTree>, Error> {
    let connections = job.carriage.lanes.unwrap_or(USUAL_CONNECTIONS);
    let settings = settings(server, connections, job.carriage.timeout / 3, reach(job, surroundings)?);
    let settings = Settings { begins_with: servers::at_start, ..settings };
    let origin = Origin { is_tls: server.is_tls, host: server.host.clone(), port: server.port };
    Ok(Arc::new(WebPlace::new(origin, settings, lists(server))))
}

/// The way of connections from this host, as of lanes.
pub(crate) fn reach(job: &Job, surroundings: &Surroundings) -> Result<Reach, Error> {
    let is_background = job.carriage.service.class == AskedClass::Background;
    let mark = is_background.then(|| Dscp::new(ServiceClass::Background.code_point())).flatten();
    marked(mark, job, surroundings)
}

/// The same to a target. Where this process has the data, its connections get the class of the copy while they send.
pub(crate) fn reach_to(job: &Job, surroundings: &Surroundings) -> Result<Reach, Error> {
    match Connections::of_target(job) {
        Connections::ToWrite => Ok(Reach { outbound: Some(Arc::default()), ..marked(None, job, surroundings)? }),
        _ => reach(job, surroundings),
    }
}

fn marked(mark: Option<Dscp>, job: &Job, surroundings: &Surroundings) -> Result<Reach, Error> {
    let carriage = &job.carriage;
    let policies = network_classes::policies(&surroundings.network_files)?;
    let policies = mark.map_or(policies.clone(), |mark| Arc::new(policies.marked(mark)));
    Ok(Reach {
        family: carriage.family.map(|family| match family {
            Family::V4 => haul_net::Family::V4,
            Family::V6 => haul_net::Family::V6,
        }),
        way: first_way(carriage),
        wanted: Wanted { policies, ..convert::wanted(&convert::carriage(job, &[])) },
        outbound: None,
    })
}

pub(crate) fn fault(error: &StoreError) -> Error {
    let fault = match error.source.kind() {
        ErrorKind::NotFound => Fault::Missing,
        ErrorKind::PermissionDenied => Fault::Authentication,
        ErrorKind::InvalidInput => Fault::Usage,
        ErrorKind::InvalidData | ErrorKind::FileTooLarge => Fault::FileIo,
        _ => Fault::Network,
    };
    Error::new(fault, format!("cannot {} {}", error.op, printable(&error.path))).because(&error.source)
}

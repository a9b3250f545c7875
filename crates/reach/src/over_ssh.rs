//! Reaches a host over ssh, and starts our own program there.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, sync_channel};

use haul_job::{Error, Family, Far, Job};
use haul_net::dial;

use crate::remote::{Remote, net_family};
use crate::ssh::{ProgramsSought, SftpSession, SshServer, SshTarget, is_host_unknown};
use haul_channel::channel::Events;
use haul_channel::id;
use haul_channel::reporter::Watch;
use haul_kept::surroundings::Surroundings;

pub(crate) fn connect_ssh(place: &Far, job: &Job, surroundings: &Surroundings, watch: &Watch) -> Result<Remote, Error> {
    let programs = ProgramsSought::begin(&job.ssh)?;
    let target = SshTarget::of(place, &job.ssh, &job.carriage).expect("an ssh place").looked_up(surroundings);
    let arguments = match job.carriage.port_range {
        Some((first, last)) => format!("--port-range {first}-{last}"),
        None => String::new(),
    };
    let resolver = resolve_meanwhile(&target.host_name, job.carriage.family);
    let session = target.start_agent(&arguments, programs, watch, None)?;
    let round_trip_at_most = session.round_trip_at_most();
    let (stream, child) = session.into_stream()?;
    let mut remote = Remote::meet(place, stream, id::random_id()?, Events::new(), watch)?;
    remote.round_trip_at_most = round_trip_at_most;
    remote.resolver = resolver;
    remote.is_indirect = target.is_indirect;
    // Over a kept login all lanes would share one connection.
    remote.ssh = Some(target.without_kept_login());
    remote.child = Some(child);
    Ok(remote)
}

/// Logs in to hosts whose logins can be kept. ssh asks at the terminal.
pub fn log_in(job: &Job, surroundings: &Surroundings) -> Result<(), Error> {
    let ends = job.sources.first().into_iter().chain([&job.target]).filter_map(|end| end.place.login());
    let places = ends.chain(job.movers.iter().cloned());
    let mut targets = places.filter_map(|place| SshTarget::of(&place, &job.ssh, &job.carriage));
    targets.try_for_each(|target| target.looked_up(surroundings).log_in(&Watch::silent()))
}

/// The way to a server of ssh.
#[derive(Clone)]
pub struct SftpWay(SshTarget, SshServer);

impl SftpWay {
    /// Finds ssh's way; `place` is reached over ssh.
    pub fn to(server: SshServer, place: &Far, job: &Job, surroundings: &Surroundings) -> Option<Self> {
        SshTarget::of(place, &job.ssh, &job.carriage).map(|target| Self(target.looked_up(surroundings), server))
    }

    /// The host in ssh's configuration.
    pub fn host_name(&self) -> &str {
        &self.0.host_name
    }

    /// Whether somebody can answer.
    pub fn may_ask(&self) -> bool {
        self.0.may_ask
    }

    /// Logs in, or uses the kept login. ssh may ask.
    ///
    /// # Errors
    /// ssh cannot log in.
    pub fn first(&self, greeting: &[u8], watch: &Watch) -> Result<SftpSession, Error> {
        self.0.start_server(self.1, greeting, watch)
    }

    /// Logs in anew, without questions or words of ssh.
    ///
    /// # Errors
    /// ssh cannot log in.
    pub fn again(&self, greeting: &[u8], watch: &Watch) -> Result<SftpSession, Error> {
        self.0.clone().without_kept_login().silently().with_words_held().start_server(self.1, greeting, watch)
    }

    /// Starts a further session of the kept login, if possible.
    pub fn beside(&self, greeting: &[u8], watch: &Watch) -> Option<SftpSession> {
        self.0.start_server_beside(self.1, greeting, watch)
    }

    /// Whether the host's key was unknown.
    pub fn is_host_unknown(error: &Error) -> bool {
        is_host_unknown(error)
    }
}

/// Resolves the name while ssh logs in: a hung resolver must not hold up a session.
fn resolve_meanwhile(host: &str, family: Option<Family>) -> Option<Receiver<Vec<IpAddr>>> {
    let (sender, receiver) = sync_channel(1);
    let host = host.to_owned();
    let started = std::thread::Builder::new().name("resolve".into()).spawn(move || {
        let addresses = dial::resolve(&host, 0, family.map(net_family)).unwrap_or_default();
        let _ = sender.send(addresses.iter().map(SocketAddr::ip).collect());
    });
    started.is_ok().then_some(receiver)
}

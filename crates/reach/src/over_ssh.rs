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
    let (stream, child) = target.start_agent(&arguments, programs, watch, None)?.into_stream()?;
    let mut remote = Remote::meet(place, stream, id::random_id()?, Events::new(), watch)?;
    remote.resolver = resolver;
    remote.is_indirect = target.is_indirect;
    // Over a kept login all lanes would share one connection through the network.
    remote.ssh = Some(target.without_kept_login());
    remote.child = Some(child);
    Ok(remote)
}

/// Logs in to each host of the job whose login can be kept for the copy that follows. ssh asks at the terminal.
pub fn log_in(job: &Job, surroundings: &Surroundings) -> Result<(), Error> {
    let ends = job.sources.first().into_iter().chain([&job.target]).filter_map(|end| end.place.login());
    let places = ends.chain(job.movers.iter().cloned());
    let mut targets = places.filter_map(|place| SshTarget::of(&place, &job.ssh, &job.carriage));
    targets.try_for_each(|target| target.looked_up(surroundings).log_in(&Watch::silent()))
}

/// The way to a server that ssh starts at a host. It may be gone more than once.
#[derive(Clone)]
pub struct SftpWay(SshTarget, SshServer);

impl SftpWay {
    /// Finds out how ssh reaches the host; `place` is reached over ssh.
    pub fn to(server: SshServer, place: &Far, job: &Job, surroundings: &Surroundings) -> Option<Self> {
        SshTarget::of(place, &job.ssh, &job.carriage).map(|target| Self(target.looked_up(surroundings), server))
    }

    /// The name or address that ssh's configuration has for the host.
    pub fn host_name(&self) -> &str {
        &self.0.host_name
    }

    /// Whether ssh may have a question, and somebody to ask.
    pub fn may_ask(&self) -> bool {
        self.0.may_ask
    }

    /// Logs in, or uses the login that was kept. ssh may ask its questions.
    ///
    /// # Errors
    /// ssh cannot log in.
    pub fn first(&self, greeting: &[u8], watch: &Watch) -> Result<SftpSession, Error> {
        self.0.start_server(self.1, greeting, watch)
    }

    /// Logs in once more, on a connection of its own. No question is asked: where ssh has one, this fails, and ssh's words are not shown.
    ///
    /// # Errors
    /// ssh cannot log in.
    pub fn again(&self, greeting: &[u8], watch: &Watch) -> Result<SftpSession, Error> {
        self.0.clone().without_kept_login().silently().with_words_held().start_server(self.1, greeting, watch)
    }

    /// Starts one more session over the connection of the login that is kept. `None`: there is none, or the host allows no more.
    pub fn beside(&self, greeting: &[u8], watch: &Watch) -> Option<SftpSession> {
        self.0.start_server_beside(self.1, greeting, watch)
    }

    /// Whether a login failed because the host's key is not known here.
    pub fn is_host_unknown(error: &Error) -> bool {
        is_host_unknown(error)
    }
}

/// Asks the resolver while ssh logs in, for the name that ssh's configuration has for the host. A hung resolver must
/// not hold up a session.
fn resolve_meanwhile(host: &str, family: Option<Family>) -> Option<Receiver<Vec<IpAddr>>> {
    let (sender, receiver) = sync_channel(1);
    let host = host.to_owned();
    let started = std::thread::Builder::new().name("resolve".into()).spawn(move || {
        let addresses = dial::resolve(&host, 0, family.map(net_family)).unwrap_or_default();
        let _ = sender.send(addresses.iter().map(SocketAddr::ip).collect());
    });
    started.is_ok().then_some(receiver)
}

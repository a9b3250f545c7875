//! Holds what ends at servers of GridFTP have beside those of FTP: the ports of this host, and control connections through ssh.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use haul_channel::reporter::Watch;
use haul_ftp::{Grid, MakePipe, Pipe};
use haul_job::{Error, Event, Fault, FtpServer, Here, Job, Place};
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;
use haul_reach::over_ssh::SftpWay;
use haul_reach::paths::named_ways;
use haul_reach::ssh::{SftpSession, SshServer};

use crate::foreseen;

pub(crate) fn grid(job: &Job, is_target: bool, surroundings: &Surroundings) -> Result<Grid, Error> {
    let of_globus = surroundings.environment.get(PORT_RANGE).map(|text| {
        let text = text.to_string_lossy().into_owned();
        ports(&text).ok_or_else(|| {
            Error::new(Fault::Usage, format!("{PORT_RANGE} is {text:?}")).try_this("write two ports: 50000,51000")
        })
    });
    let ports = match job.carriage.port_range {
        Some(range) => Some(range),
        None => of_globus.transpose()?,
    };
    let foreseen_bytes = if is_target { foreseen::bytes(job) } else { 0 };
    Ok(Grid { ports, foreseen_bytes, ways: named_ways(&job.carriage) })
}

/// The server sends to an address of each path. A path that is named by its device has none to tell.
pub(crate) fn comes_over_all_paths(job: &Job) -> bool {
    named_ways(&job.carriage).iter().all(|way| way.local.is_some())
}

/// Tells tools of Globus which ports a firewall lets through.
const PORT_RANGE: &str = "GLOBUS_TCP_PORT_RANGE";

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.trim().split_once([',', ' '])?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some((first, last))
}

pub(crate) struct ThroughSsh {
    pub(crate) server: FtpServer,
    pub(crate) make: MakePipe,
}

/// Logs in by ssh. Further control connections use the kept login, or new ones without questions.
pub(crate) fn through_ssh(
    place: &Here,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<ThroughSsh, Error> {
    watch.tell(&Event::Connecting { place: place.to_string() });
    let far = Place::Here(place.clone()).login().expect("ssh leads there");
    let way = SftpWay::to(SshServer::GridFtp, &far, job, surroundings).expect("a place that ssh reaches");
    let first = Mutex::new(Some(pipe(way.first(&[], watch)?)));
    let host = way.host_name().to_owned();
    let silent = Watch::silent();
    let doors = Doors::default();
    let make = move || {
        if let Some(first) = lock(&first).take() {
            return Ok(first);
        }
        let _door = doors.enter();
        let further = way.beside(&[], &silent).map_or_else(|| way.again(&[], &silent), Ok);
        // The connections that are there go on.
        further.map(pipe).map_err(|error| io::Error::new(io::ErrorKind::ResourceBusy, error.to_string()))
    };
    let server = FtpServer { is_tls: false, is_grid: true, host, port: FtpServer::GRID_PORT, login: None };
    Ok(ThroughSsh { server, make: Box::new(make) })
}

/// Bounds simultaneous logins of ssh.
#[derive(Default)]
struct Doors {
    taken: Mutex<usize>,
    left: Condvar,
}

/// From the eleventh on, sshd turns some away (`MaxStartups`).
const DOORS: usize = 8;

struct Door<'a>(&'a Doors);

impl Doors {
    fn enter(&self) -> Door<'_> {
        let waited = self.left.wait_while(lock(&self.taken), |taken| *taken >= DOORS);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Door(self)
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) -= 1;
        self.0.left.notify_one();
    }
}

fn pipe(session: SftpSession) -> Pipe {
    let SftpSession { output, input, heard, control } = session;
    let for_end = control.clone();
    Pipe { output, input, heard, end: Box::new(move || for_end.end()), why_ended: Box::new(move || control.said()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_globus() {
        assert_eq!(ports("50000,51000"), Some((50_000, 51_000)));
        assert_eq!(ports(" 50000 51000 "), Some((50_000, 51_000)));
        for wrong in ["", "50000", "51000,50000", "0,10", "1,70000", "a,b"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }
}

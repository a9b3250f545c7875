//! Lanes inside further ssh sessions, for hosts that cannot reach each other in any other way.

use std::sync::Arc;

use haul_engine::plan;
use haul_job::Error;
use haul_net::{NetError, Stream};
use haul_wire::lane::lane_of;
use haul_wire::limits::MAX_LANES;

use crate::kept::hook_words::Outlet;
use crate::reach::lane_terms::{LaneTerms, greet};
use crate::session::channel::SessionEvent;
use crate::session::lane_threads::LaneKeeper;
use crate::session::reporter::Watch;

use super::SshTarget;
use super::session::kill;

/// Lanes inside further ssh sessions, each relayed by the far side to its agent's port.
#[derive(Clone)]
pub(crate) struct SshLanes {
    pub(crate) target: SshTarget,
    pub(crate) port: u16,
    pub(crate) watch: Arc<Watch>,
}

/// ssh sessions opened at the same time: sshd begins to refuse at ten that are not logged in yet (MaxStartups).
const SSH_AT_ONCE: u16 = 3;

impl SshLanes {
    /// Brings the lanes of a path: the first one now, the others in threads. `told` hears of the first, and how many there will be.
    pub(crate) fn bring(
        &self,
        terms: &LaneTerms,
        path: u16,
        silently: bool,
        told: &dyn Fn(&Stream, u16),
    ) -> Result<(), Error> {
        let lanes = terms.carriage.lanes.unwrap_or(plan::SSH_LANES).clamp(1, MAX_LANES);
        let first = self.connect(terms, lane_of(path, 0), silently)?;
        told(&first, lanes);
        let _ = terms.events.send(SessionEvent::LaneUp(first, lane_of(path, 0)));
        for first in 1..lanes.min(SSH_AT_ONCE + 1) {
            let (over_ssh, terms) = (self.clone(), terms.clone());
            let _ = terms.crew.clone().start(format!("dial-{first}"), move || {
                for lane in (first..lanes).step_by(usize::from(SSH_AT_ONCE)).map(|index| lane_of(path, index)) {
                    // Nobody is asked for a password again; sshd may limit its sessions. The lanes that are up suffice.
                    let Ok(stream) = over_ssh.connect(&terms, lane, true) else { return };
                    let _ = terms.events.send(SessionEvent::LaneUp(stream, lane));
                }
            });
        }
        Ok(())
    }

    /// Connects one lane. `silently`: without asking anybody for a password.
    pub(crate) fn connect(&self, terms: &LaneTerms, lane: u16, silently: bool) -> Result<Stream, Error> {
        let target = if silently { self.target.clone().silently() } else { self.target.clone() };
        let session = target.start_agent(&format!("--relay {}", self.port), &self.watch, Some(&terms.crew))?;
        let child = session.child();
        let held = Arc::clone(&child);
        let _watched = terms.crew.on_end(move || kill(&held));
        let greeted = greet(session.into_pipes()?, terms, lane);
        greeted.map_err(|error: NetError| {
            // The relay there may hang, and then ssh would not end by itself.
            kill(&child);
            crate::faults::net_error(&error)
        })
    }

    /// Replaces a lost lane by a new session.
    pub(crate) fn keeper(self, terms: LaneTerms) -> SshKeeper {
        SshKeeper { lanes: self, terms, left: MAX_REPLACED }
    }
}

/// Lost lanes that are replaced by new ssh sessions in one job.
const MAX_REPLACED: u32 = 32;

pub(crate) struct SshKeeper {
    lanes: SshLanes,
    terms: LaneTerms,
    left: u32,
}

impl LaneKeeper for SshKeeper {
    /// Each lane would be a login of its own, and sshd bounds them: those that are there have to do.
    fn want(&mut self, _path: u16, _lanes: u16) -> bool {
        true
    }

    /// No network on the way could be asked for them.
    fn leave_from(&mut self, _path: u16, _outlet: Outlet, _lanes: &[u16]) -> bool {
        false
    }

    fn lane_lost(&mut self, lane: u16) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let (lanes, terms) = (self.lanes.clone(), self.terms.clone());
        let _ = self.terms.crew.start(format!("redial-{lane}"), move || {
            if let Ok(stream) = lanes.connect(&terms, lane, true) {
                let _ = terms.events.send(SessionEvent::LaneUp(stream, lane));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use haul_job::{Place, SshOptions, job};
    use haul_wire::PROTOCOL_VERSION;

    use super::*;
    use crate::session::channel::Events;

    const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/no-lane");

    #[test]
    fn ssh_is_not_left_behind_where_nobody_shakes_hands_for_a_lane() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let (user, host) = (Some(PROTOCOL_VERSION.to_string()), pid.to_str().unwrap().to_owned());
        // A named program needs no other sent.
        let options =
            SshOptions { program: Some(SSH.into()), remote_program: Some("haul".into()), ..SshOptions::default() };
        let place = Place::Ssh { user, host, port: None };
        let target = SshTarget::of(&place, &options, &job::Carriage::default()).unwrap();
        let events = Events::new();
        let lead = crate::reach::crew::Lead::new();
        let terms = LaneTerms::towards_nobody(&events, lead.crew());
        let lanes = SshLanes { target, port: 7, watch: Arc::new(Watch::silent()) };
        assert!(lanes.connect(&terms, 0, true).is_err());
        let pid = std::fs::read_to_string(pid).unwrap();
        // It was told to end: where the machine is busy it may take a moment, but no minute. What has ended has no command any more.
        let (command, begun) = (format!("/proc/{}/cmdline", pid.trim()), Instant::now());
        while std::fs::read(&command).is_ok_and(|command| !command.is_empty()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

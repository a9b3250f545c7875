//! Brings lanes inside further ssh sessions, for hosts that cannot reach each other in any other way.

use std::sync::Arc;

use haul_engine::plan;
use haul_job::Error;
use haul_net::{NetError, Stream};
use haul_wire::lane::lane_of;
use haul_wire::limits::MAX_LANES;

use crate::lane_terms::{LaneTerms, greet};
use haul_channel::channel::{LaneEvent, SessionEvent};
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::reporter::Watch;
use haul_kept::hook_words::Outlet;

use super::programs::ProgramsSought;
use super::session::kill;
use super::target::SshTarget;

/// Lanes inside ssh.
#[derive(Clone)]
pub struct SshLanes {
    /// The ssh.
    pub target: SshTarget,
    /// The agent's port.
    pub port: u16,
    /// Hears of logins.
    pub watch: Arc<Watch>,
}

/// sshd begins to refuse at ten logins at once (MaxStartups).
const SSH_AT_ONCE: u16 = 3;

impl SshLanes {
    /// Brings a path's lanes, the first at once. `told` gets it and their number.
    pub fn bring(
        &self,
        terms: &LaneTerms,
        path: u16,
        silently: bool,
        told: &dyn Fn(&Stream, u16),
    ) -> Result<(), Error> {
        let lanes = terms.carriage.lanes.unwrap_or(plan::SSH_LANES).clamp(1, MAX_LANES);
        let first = self.connect(terms, lane_of(path, 0), silently)?;
        told(&first, lanes);
        let _ = terms.events.send(SessionEvent::Lane(LaneEvent::Up(first, lane_of(path, 0))));
        for first in 1..lanes.min(SSH_AT_ONCE + 1) {
            let (over_ssh, terms) = (self.clone(), terms.clone());
            let _ = terms.dial_threads.clone().start(format!("dial-{first}"), move || {
                for lane in (first..lanes).step_by(usize::from(SSH_AT_ONCE)).map(|index| lane_of(path, index)) {
                    // The standing lanes suffice: no password is asked for again.
                    let Ok(stream) = over_ssh.connect(&terms, lane, true) else { return };
                    let _ = terms.events.send(SessionEvent::Lane(LaneEvent::Up(stream, lane)));
                }
            });
        }
        Ok(())
    }

    /// Connects one lane; `silently`: without a question.
    pub fn connect(&self, terms: &LaneTerms, lane: u16, silently: bool) -> Result<Stream, Error> {
        let target = if silently { self.target.clone().silently() } else { self.target.clone() };
        let (arguments, programs) = (format!("--relay {}", self.port), ProgramsSought::begin(&target.options)?);
        let session = target.start_agent(&arguments, programs, &self.watch, Some(&terms.dial_threads))?;
        let child = session.child();
        let held = Arc::clone(&child);
        let _watched = terms.dial_threads.on_end(move || kill(&held));
        let greeted = greet(session.into_pipes()?, terms, lane);
        greeted.map_err(|error: NetError| {
            // The relay there may hang, and then ssh would not end by itself.
            kill(&child);
            haul_kept::faults::net_error(&error)
        })
    }

    /// Makes the keeper.
    pub fn keeper(self, terms: LaneTerms) -> SshKeeper {
        SshKeeper { lanes: self, terms, left: MAX_REPLACED }
    }
}

const MAX_REPLACED: u32 = 32;

/// Replaces lost lanes.
pub struct SshKeeper {
    lanes: SshLanes,
    terms: LaneTerms,
    left: u32,
}

impl LaneKeeper for SshKeeper {
    /// Each lane would be a login, which sshd bounds.
    fn want(&mut self, _path: u16, _lanes: u16) -> bool {
        true
    }

    /// Their packets are those of ssh.
    fn shrink(&mut self, _path: u16, _segment_bytes: u16) -> bool {
        false
    }

    /// No network on the way could grant them priority.
    fn leave_from(&mut self, _path: u16, _outlet: Outlet, _lanes: &[u16]) -> bool {
        false
    }

    fn lane_lost(&mut self, lane: u16) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let (lanes, terms) = (self.lanes.clone(), self.terms.clone());
        let _ = self.terms.dial_threads.start(format!("redial-{lane}"), move || {
            if let Ok(stream) = lanes.connect(&terms, lane, true) {
                let _ = terms.events.send(SessionEvent::Lane(LaneEvent::Up(stream, lane)));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use haul_job::{Far, SshOptions, job};
    use haul_wire::PROTOCOL_VERSION;

    use super::*;
    use haul_channel::channel::Events;

    const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/no-lane");

    #[test]
    fn ssh_is_not_left_behind_where_nobody_shakes_hands_for_a_lane() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let (user, host) = (Some(PROTOCOL_VERSION.to_string()), pid.to_str().unwrap().to_owned());
        let options =
            SshOptions { program: Some(SSH.into()), remote_program: Some("haul".into()), ..SshOptions::default() };
        let place = Far::Ssh { user, host, port: None };
        let target = SshTarget::of(&place, &options, &job::Carriage::default()).unwrap();
        let events = Events::new();
        let dial_owner = crate::dial_threads::DialThreadsOwner::new();
        let terms = LaneTerms::towards_nobody(&events, dial_owner.threads());
        let lanes = SshLanes { target, port: 7, watch: Arc::new(Watch::silent()) };
        assert!(lanes.connect(&terms, 0, true).is_err());
        let pid = std::fs::read_to_string(pid).unwrap();
        let (command, begun) = (format!("/proc/{}/cmdline", pid.trim()), Instant::now());
        while std::fs::read(&command).is_ok_and(|command| !command.is_empty()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

//! Lanes inside further ssh sessions, for hosts that cannot reach each other in any other way.

use std::sync::Arc;

use haul_net::{NetError, Stream};

use crate::channel::SessionEvent;
use crate::error::Error;
use crate::lanes::{LaneTerms, greet};
use crate::session::LaneKeeper;
use crate::watch::Watch;

use super::SshTarget;

/// Lanes inside further ssh sessions, each relayed by the far side to its agent's port.
#[derive(Clone)]
pub(crate) struct SshLanes {
    pub(crate) target: SshTarget,
    pub(crate) port: u16,
    pub(crate) watch: Arc<Watch>,
}

impl SshLanes {
    /// Connects one lane. `silently`: without asking anybody for a password.
    pub(crate) fn connect(&self, terms: &LaneTerms, lane: u16, silently: bool) -> Result<Stream, Error> {
        let mut target = self.target.clone();
        if silently {
            target.options.options.push("BatchMode=yes".into());
        }
        let session = target.start_agent(&format!("--relay {}", self.port), &self.watch)?;
        let pipes = session.into_pipes()?;
        greet(pipes, terms, lane).map_err(|error: NetError| crate::far::net_error(&error))
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
    fn want(&mut self, _lanes: u16) -> bool {
        true
    }

    fn lane_lost(&mut self, lane: u16) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let (lanes, terms) = (self.lanes.clone(), self.terms.clone());
        let _ = std::thread::Builder::new().name(format!("redial-{lane}")).spawn(move || {
            if let Ok(stream) = lanes.connect(&terms, lane, true) {
                let _ = terms.events.send(SessionEvent::LaneUp(stream, lane));
            }
        });
    }
}

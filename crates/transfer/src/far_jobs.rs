//! Runs the jobs of one session at its far side, one after the other.
//!
//! ```text
//!   Start -> the rights of the key, anew -> a thread for the job -> role -> JobEnd      the thread gives up what the job does not need
//!     ^                                                               |
//!     +------ JobEnd of the peer, Start --- within IDLE_MAX ----------+---- Leave, or the end of the channel
//! ```
//! The session's thread keeps the rights of the key. Each job has a part of them, and no access to files that an earlier job
//! opened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_wire::control::{Control, Role, Start};

use crate::far_limits::{LONGEST_LOGIN, bounded};
use crate::far_role::{Served, run_role};
use haul_channel::channel::{self, Channel, Events, SessionEvent};
use haul_channel::clock::START_DEADLINE;
use haul_channel::grant::{Grant, Visit};
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::reporter::Watch;
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, farewell};
use haul_copy::rights;
use haul_kept::faults;

/// A waiting session holds a place of its key, and of the daemon.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);

const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct FarJobs<'a> {
    pub(crate) grant: Grant,
    pub(crate) served: &'a Served<'a>,
    pub(crate) visit: Option<&'a Arc<dyn Visit>>,
    pub(crate) events: Events,
    pub(crate) channel: &'a Channel,
    pub(crate) watch: &'a Arc<Watch>,
    pub(crate) keeper: &'a mut (dyn LaneKeeper + 'a),
    pub(crate) on_other_message: &'a mut (dyn FnMut(Control) -> Result<(), Error> + Send + 'a),
}

impl FarJobs<'_> {
    pub(crate) fn run(mut self, first: Start) -> Result<(), Error> {
        let (ends, mut start) = (Ends::of(&first), first);
        loop {
            if let Some(visit) = self.visit {
                visit.on_role(&start.role);
            }
            if !start.stays {
                let Self { grant, served, visit, events, channel, watch, keeper, on_other_message } = self;
                let watch = Arc::new(watch.of_job(visit.cloned()));
                let context = RoleContext { events, channel, watch: &watch, keeper, on_other_message };
                return run_role(start, &grant, served, visit.map(|visit| &**visit), context);
            }
            if start.job <= self.events.last_job() {
                let error = Error::broke_the_protocol("it begins a job that there was already");
                farewell::abort(self.channel, &error);
                return Err(error);
            }
            let result = self.in_thread(start);
            if let Some(visit) = self.visit {
                visit.on_job_end(result.as_ref().err());
            }
            let lanes = result.is_ok() || self.events.lanes_are_spared();
            if let Err(error) = result
                && !farewell::lets_others_follow(&error)
            {
                return Err(error);
            }
            let next = self.await_next(lanes).and_then(|next| match next {
                Some(next) => ends.check(&next).and_then(|()| self.renew()).map(|()| Some(next)),
                None => Ok(None),
            });
            start = match next {
                Ok(Some(next)) => bounded(next),
                Ok(None) => {
                    self.channel.close(farewell::FAREWELL);
                    return Ok(());
                }
                Err(error) => {
                    farewell::abort(self.channel, &error);
                    return Err(error);
                }
            };
        }
    }

    /// Runs one job in a thread, whose rights go with it.
    fn in_thread(&mut self, start: Start) -> Result<(), Error> {
        let Self { grant, served, visit, channel, .. } = self;
        let (events, watch) = (self.events.of_job(start.job), Arc::new(self.watch.of_job(visit.cloned())));
        let (keeper, on_other_message) = (&mut *self.keeper, &mut *self.on_other_message);
        let (grant, served, visit, channel) = (&*grant, *served, visit.map(|visit| &**visit), *channel);
        std::thread::scope(|scope| {
            let role = move || {
                let context = RoleContext { events, channel, watch: &watch, keeper, on_other_message };
                run_role(start, grant, served, visit, context)
            };
            let thread = std::thread::Builder::new().name("job".into()).spawn_scoped(scope, role);
            let thread = thread.map_err(|error| {
                let error = Error::new(Fault::FileIo, "cannot start a thread for the job").because(error);
                farewell::abort(channel, &error);
                error
            })?;
            let broke = |_| Err(Error::new(Fault::Protocol, "the thread of the job broke"));
            thread.join().unwrap_or_else(broke)
        })
    }

    /// Waits for the peer's next job, if any. `lanes`: ours can carry it.
    fn await_next(&mut self, lanes: bool) -> Result<Option<Start>, Error> {
        let (begun, mut has_ended) = (Instant::now(), false);
        loop {
            match self.events.next_word(LOOK_EVERY) {
                Some(SessionEvent::Control(Control::JobEnd { lanes: theirs })) if !has_ended => {
                    has_ended = true;
                    if !(lanes && theirs) {
                        self.events.drop_lanes_back();
                    }
                }
                Some(SessionEvent::Control(Control::Start(start))) if has_ended => return Ok(Some(*start)),
                Some(SessionEvent::Control(Control::Leave)) if has_ended => return Ok(None),
                Some(SessionEvent::Control(Control::Abort(abort))) if has_ended => {
                    return Err(convert::error_of(abort));
                }
                Some(SessionEvent::Control(
                    message @ (Control::Dial(_) | Control::Addresses(_) | Control::Admit { .. }),
                )) => (self.on_other_message)(message)?,
                Some(SessionEvent::Control(message)) if has_ended => return Err(faults::unexpected(&message)),
                Some(SessionEvent::ControlEnded(why)) if !has_ended => return Err(channel::ended(why)),
                // Nothing is at stake between two jobs.
                Some(SessionEvent::ControlEnded(_)) => return Ok(None),
                Some(_) | None => {}
            }
            if self.visit.is_some_and(|visit| visit.interrupted()) {
                return Err(self.watch.interruption());
            }
            if is_left_alone(begun.elapsed(), self.channel.silence(), has_ended, self.grant.is_of_daemon()) {
                let seconds = begun.elapsed().as_secs();
                return Err(Error::new(Fault::Timeout, format!("no other job was asked for within {seconds} s"))
                    .try_this("run the same command again"));
            }
        }
    }

    /// The session's thread cannot regain rights, so more rights need a new session.
    fn renew(&mut self) -> Result<(), Error> {
        let Some(visit) = self.visit else { return Ok(()) };
        visit.on_list(0);
        let now = visit.next_job()?;
        let before = &self.grant;
        let is_other = now.root != before.root || now.user != before.user || (before.read_only && !now.read_only);
        if is_other {
            return Err(Error::new(Fault::Authentication, "the daemon's operator has changed the rights of our key")
                .try_this("run the same command again: what is verified is not sent again"));
        }
        rights::look_at_root(&now, visit.as_ref())?;
        self.grant = now;
        Ok(())
    }
}

/// An agent ends with its ssh in any case.
fn is_left_alone(waited: Duration, silence: Duration, has_ended: bool, of_daemon: bool) -> bool {
    let longest = match (has_ended, of_daemon) {
        (false, _) => START_DEADLINE,
        (true, true) => IDLE_MAX,
        (true, false) => LONGEST_LOGIN,
    };
    waited > longest || silence > START_DEADLINE
}

struct Ends {
    session: [u8; 16],
    peer_session: [u8; 16],
    peer_key: [u8; 32],
    links: bool,
    clear: bool,
    sends: bool,
}

impl Ends {
    fn of(start: &Start) -> Self {
        let Start { session, peer_session, peer_key, links, .. } = *start;
        let sends = matches!(start.role, Role::Sender { .. });
        Self { session, peer_session, peer_key, links, clear: start.carriage.clear, sends }
    }

    fn check(&self, next: &Start) -> Result<(), Error> {
        let Self { session, peer_session, peer_key, links, clear, sends } = Self::of(next);
        let is_same = (session, peer_session, peer_key, links)
            == (self.session, self.peer_session, self.peer_key, self.links)
            && (clear, sends) == (self.clear, self.sends)
            && matches!(next.role, Role::Sender { .. } | Role::Receiver { .. });
        if is_same { Ok(()) } else { Err(Error::broke_the_protocol("its next job is for other ends")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_a_job_is_bounded_in_time() {
        let check = |waited, silence, has_ended, of_daemon, expected| {
            let [waited, silence] = [waited, silence].map(Duration::from_secs);
            assert_eq!(
                is_left_alone(waited, silence, has_ended, of_daemon),
                expected,
                "{waited:?} {silence:?} {has_ended} {of_daemon}"
            );
        };
        for of_daemon in [false, true] {
            check(59, 1, false, of_daemon, false);
            check(61, 1, false, of_daemon, true);
            check(599, 1, true, of_daemon, false);
            check(90, 61, true, of_daemon, true);
        }
        check(601, 1, true, true, true);
        check(3600, 1, true, false, false);
    }
}

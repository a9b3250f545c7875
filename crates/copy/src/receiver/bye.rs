//! Ends a job: all is verified and flushed, and the sender says good-bye.

use std::time::Instant;

use haul_job::Error;
use haul_wire::control::{Control, SenderSummary};
use haul_wire::limits::MAX_LANES;
use haul_wire::service::Service;

use haul_channel::channel::{Channel, Events, LaneEvent, SessionEvent};
use haul_channel::clock::TICK;
use haul_channel::convert;

use super::{ReceiverJob, Session};

impl Session<'_> {
    /// Returns `None` if there is more to do.
    pub(super) fn until_bye(&mut self, events: &Events) -> Result<Option<SenderSummary>, Error> {
        let mut for_next = Vec::new();
        let result = self.hear_bye(events, &mut for_next);
        events.put_back(for_next);
        result
    }

    fn hear_bye(&mut self, events: &Events, for_next: &mut Vec<SessionEvent>) -> Result<Option<SenderSummary>, Error> {
        let start = Instant::now();
        loop {
            self.clock.turn(self.watch, self.channel, &self.shared.failure)?;
            if start.elapsed() > self.clock.timeout() {
                // Nobody may keep a session open by saying no good-bye: go on as if the sender had left.
                return Ok(Some(SenderSummary::default()));
            }
            if let Some(findings) = self.findings.take_if(|_| may_leave_first(&self.shared.job, self.channel, events)) {
                self.leaves_first = true;
                return Ok(Some(findings));
            }
            match events.next(TICK) {
                Some(SessionEvent::Control(Control::Bye(summary))) => return Ok(Some(summary)),
                Some(SessionEvent::Control(Control::Findings(summary))) => self.findings = Some(summary),
                Some(SessionEvent::Control(Control::Withdraw(withdraw))) if withdraw.retry.is_some() => {
                    self.on_withdraw(withdraw)?;
                    return Ok(None);
                }
                Some(SessionEvent::Lane(LaneEvent::Down(end))) => {
                    self.lanes.ended(&end);
                }
                Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
                // All is verified and flushed: a silent leave changes nothing.
                Some(SessionEvent::ControlEnded(why)) => {
                    if events.stay() {
                        for_next.push(SessionEvent::ControlEnded(why));
                    }
                    return Ok(Some(SenderSummary::default()));
                }
                Some(event @ SessionEvent::Lane(LaneEvent::Up(..)))
                    if events.stay() && for_next.len() < usize::from(MAX_LANES) =>
                {
                    for_next.push(event);
                }
                Some(_) | None => {}
            }
        }
    }
}

/// Whether this side may end the job without the sender's Bye. Some jobs need it:
///
/// - Two other hosts end theirs through the initiator.
/// - Lanes that stay come to their end first.
/// - Movers have findings of their own.
/// - Removed sources, marked bytes and the time of a rate limit belong to the result.
///
/// After a link's silent death, the Bye tells that the Summary came over another.
fn may_leave_first(job: &ReceiverJob, channel: &Channel, events: &Events) -> bool {
    let asks = job.carriage.service != Service::default() || job.carriage.rate_bytes_per_s.is_some();
    let needs_bye = job.far || events.stay() || job.movers.count() > 0 || job.selection.remove_source_files || asks;
    !needs_bye && channel.is_well()
}

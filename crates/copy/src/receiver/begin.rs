//! Awaits the sender's word that its sources are open, and whether they are a single file.

use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_wire::control::Control;
use haul_wire::limits::MAX_LANES;

use haul_channel::channel::{self, Channel, Events, LaneEvent, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::reporter::Watch;
use haul_channel::{convert, failure};

/// A sender opens its sources within this time, or the session's limit where that is longer.
pub(super) const BEGIN_DEADLINE: Duration = Duration::from_secs(60);

/// The target's name means something only once the sources are open.
pub(super) fn await_begin(
    events: &Events,
    channel: &Channel,
    watch: &Watch,
    clock: &mut Clock,
    longest: Duration,
    on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
) -> Result<bool, Error> {
    let failure = failure::Failure::default();
    let start = Instant::now();
    // Lanes may be up before the session is.
    let mut early = Vec::new();
    loop {
        clock.turn(watch, channel, &failure)?;
        if start.elapsed() > clock.timeout().max(longest) {
            return Err(Error::new(Fault::Timeout, "the far side did not say that its sources are open")
                .try_this("look at its storage; then run the same command again"));
        }
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Begin { single_file })) => {
                events.put_back(early);
                return Ok(single_file);
            }
            Some(SessionEvent::Control(Control::Notice(notice))) => watch.on_notice(notice),
            Some(SessionEvent::Control(Control::Abort(abort))) => {
                events.put_back(early);
                return Err(convert::error_of(abort));
            }
            Some(SessionEvent::Control(message)) => on_other_message(message)?,
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(SessionEvent::Lane(LaneEvent::NoMore(error))) => return Err(error),
            Some(SessionEvent::Lane(LaneEvent::PathLost { .. } | LaneEvent::Redialled { .. })) => {}
            Some(event @ SessionEvent::Lane(_)) => {
                // A surplus lane may be dialled again later.
                if early.len() < usize::from(MAX_LANES) {
                    early.push(event);
                }
            }
            Some(SessionEvent::Moved(..) | SessionEvent::Wake) | None => {}
        }
    }
}

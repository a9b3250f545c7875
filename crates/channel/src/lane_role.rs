//! Handles the events of lanes for every loop whose session has lanes.
//!
//! ```text
//!   LaneEvent -> carry_on -> Lanes: which threads run, and whether any lane is left
//!                         -> LaneRole: what the lanes of this role carry
//!                         -> LaneKeeper: brings a lost lane back
//! ```

use haul_job::Error;
use haul_net::Stream;
use haul_wire::control::{Control, Notice};

use crate::channel::{Channel, LaneBack, LaneEnd, LaneEvent};
use crate::convert;
use crate::lane_threads::{LaneKeeper, Lanes};

/// The lanes' part of a role.
pub trait LaneRole {
    /// The host in warnings: "the sending host".
    fn host(&self) -> &'static str;

    /// The lanes.
    fn lanes(&mut self) -> &mut Lanes;

    /// Starts a new lane's thread.
    fn lane_up(&mut self, lane: u16, stream: Stream) -> Result<(), Error>;

    /// Starts the thread of a lane of the last job, if several jobs run.
    fn lane_back(&mut self, _back: LaneBack) -> Result<(), Error> {
        Ok(())
    }

    /// Notes a thread's end. `is_newest`: no other lane has its number.
    fn lane_down(&mut self, end: &LaneEnd, is_newest: bool);

    /// Learns whether lanes of a path leave elsewhere.
    fn redialled(&mut self, _path: u16, _outcome: Result<(), String>) {}

    /// Passes on a notice.
    fn notice(&self, notice: Notice);
}

/// Handles an event of a lane or a path. Fails if no thread starts.
pub fn carry_on<R: LaneRole>(
    role: &mut R,
    event: LaneEvent,
    channel: &Channel,
    keeper: &mut dyn LaneKeeper,
) -> Result<(), Error> {
    match event {
        LaneEvent::Up(stream, lane) => role.lane_up(lane, stream)?,
        LaneEvent::Back(back) => role.lane_back(back)?,
        LaneEvent::Down(end) => {
            let is_newest = role.lanes().ended(&end);
            role.lane_down(&end, is_newest);
            if is_newest && end.error.is_some() {
                keeper.lane_lost(end.lane);
            }
        }
        LaneEvent::FallsShort(short) => {
            let host = role.host();
            role.lanes().tell_short(&short, host, channel);
        }
        LaneEvent::NoMore(error) => role.lanes().give_up(error),
        LaneEvent::PathLost { path, why } => {
            role.lanes().cut_path(path);
            channel.outbox().send(Control::PathLost { path });
            role.notice(convert::path_lost(path, &why));
        }
        LaneEvent::Redialled { path, outcome } => role.redialled(path, outcome),
    }
    Ok(())
}

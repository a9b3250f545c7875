//! Another host of the sender's end: it sends chunks of files that the leading host has found.
//!
//! ```text
//!   loop           Takes -> Portion -> the same file is found here -> scheduler
//!   lane threads   scheduler -> read, hash, send
//!   loop           receipts of the receiver: done;  a file that is another one here: Returns
//! ```
//! The receiver compares each chunk with what the leader has read. A failure costs the job this host, and nothing else.

use haul_engine::schedule::Unit;
use haul_job::{Error, Fault};
use haul_store::StoreError;
use haul_wire::control::{Control, MoverWord, Portion, ReceiverSummary, SenderSummary};

use haul_channel::channel::{self, Events, SessionEvent};
use haul_channel::lane_role;
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, farewell};

use super::job::SenderJob;
use super::resolve::{Resolved, resolve};
use super::session::Session;

/// Portions whose files are not here as the leader found them. Files may change during a job; a host with so many does not have
/// them.
const MAX_DECLINED: u32 = 1024;

/// Runs a mover's session to its end.
pub fn run(job: SenderJob, context: RoleContext<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let RoleContext { events, channel, watch, keeper, on_other_message } = context;
    let found = resolve(&job, channel, watch).map_err(|error| has_others(&error.what));
    let result = found.and_then(|Resolved { sources, recorded, .. }| {
        let mut session = Session::over(sources, recorded, job, &events, channel, watch);
        let result = Mover::default().until_bye(&mut session, &events, keeper, on_other_message);
        session.end(result.map(|()| ReceiverSummary::default()), events)
    });
    if let Ok((sender, _)) = &result {
        channel.outbox().send(Control::Bye(sender.clone()));
    }
    farewell::close(channel, &result);
    result
}

#[derive(Default)]
struct Mover {
    proved: bool,
    declined: u32,
}

impl Mover {
    fn until_bye(
        &mut self,
        session: &mut Session<'_>,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        session.shared.ask();
        loop {
            session.turn(keeper)?;
            let Some(event) = events.next(session.tuning.tick()) else { continue };
            match event {
                SessionEvent::Control(Control::Bye(_)) => return Ok(()),
                SessionEvent::Control(message) => self.on_message(session, message, on_other_message)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                SessionEvent::Lane(event) => lane_role::carry_on(session, event, session.channel, keeper)?,
                SessionEvent::Moved(..) | SessionEvent::Wake => {}
            }
        }
    }

    fn on_message(
        &mut self,
        session: &mut Session<'_>,
        message: Control,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shared = &session.shared;
        match message {
            Control::OfMover { word: MoverWord::Portion(portion), .. } => self.on_portion(session, &portion)?,
            Control::Receipts(receipts) => {
                for receipt in receipts {
                    shared.portion_arrived(Unit { index: receipt.index, chunk: receipt.chunk })?;
                }
            }
            Control::Void(void) => shared.portion_void(&void)?,
            Control::LaneLost { lane } => {
                session.lanes.cut(lane);
                session.shared.lane_died(lane);
            }
            Control::PathLost { path } => session.lanes.cut_path(path),
            Control::Rate { bytes_per_s } => session.limit_rate(bytes_per_s),
            Control::Abort(abort) => return Err(convert::error_of(abort)),
            other => on_other_message(other)?,
        }
        Ok(())
    }

    fn on_portion(&mut self, session: &Session<'_>, portion: &Portion) -> Result<(), Error> {
        let shared = &session.shared;
        let file = shared.file_of(portion);
        let found = shared.reading.storage.during(|| {
            let open = file.open(&*shared.reading.sources, shared.direct_from_bytes())?;
            open.stat().map_err(|error| StoreError::new("look at", &portion.path, error))
        });
        let why = match found {
            Ok(stat) if convert::identity(&stat) == portion.identity => {
                self.proved = true;
                return shared.take_on(portion, file);
            }
            Ok(_) => format!("{} is another one here", haul_store::printable(&portion.path)),
            Err(error) => error.to_string(),
        };
        self.declined += 1;
        if !self.proved || self.declined > MAX_DECLINED {
            return Err(has_others(&why));
        }
        shared.decline(portion);
        Ok(())
    }
}

fn has_others(why: &dyn std::fmt::Display) -> Error {
    Error::new(Fault::Usage, "this host does not have the files of the leading host at the source")
        .because(why)
        .try_this("mount the same file system on both hosts, at the same path")
}

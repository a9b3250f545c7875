//! The side that reads.
//!
//! ```text
//!   walk thread     sources -> items -> window, control channel
//!   loop            answers -> scheduler;  receipts, outcomes -> window, tally
//!   lane threads    scheduler -> read, hash, send
//! ```

mod ahead;
mod announcer;
mod changes;
mod counting;
mod deletions;
pub mod early_look;
mod findings;
mod found;
mod growing;
mod job;
mod lane;
mod lane_loads;
mod limits;
pub mod mover;
mod owners;
mod paced;
mod prover;
mod read_again;
mod read_ahead_budget;
mod removals;
mod resolve;
mod resolve_options;
mod send_route;
mod server;
mod session;
mod source_item;
mod standing;
mod standing_budget;
mod state;
mod stop;
mod surely_wanted;
mod walk;
mod walk_options;
mod young_stamp;

use haul_channel::farewell;
use haul_channel::farewell::Ending;
use haul_channel::role_context::RoleContext;
use haul_job::Error;
use haul_wire::control::{Control, ReceiverSummary, SenderSummary};

pub use job::{OpenSource, SenderJob, Sources};
pub use server::lanes_for;
use session::Session;

/// Runs the session to its end.
pub fn run(job: SenderJob, context: RoleContext<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let RoleContext { events, channel, watch, keeper, on_other_message } = context;
    let begun = Session::begin(job, &events, channel, watch);
    let ending = Ending::of(&begun, &events);
    let result = begun.and_then(|mut session| {
        let result = session.until_summary(&events, keeper, on_other_message);
        session.end(result, events)
    });
    if let Ok((sender, _)) = &result {
        channel.outbox().send(Control::Bye(sender.clone()));
    }
    farewell::end(channel, &result, ending);
    result
}

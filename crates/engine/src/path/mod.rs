//! The loop that tunes the lanes to the path: `Sample -> Estimate -> Advice`.
//!
//! ```text
//!   sample     counters of the lanes, again and again  -> what happened since the last reading
//!   estimate   what happened                           -> rate, queue, capacity, windows, loss
//!   way_back   times of words on the way back          -> how much of a queue stands there
//!   pacing     queue and rate                          -> how fast all lanes may send together
//!   limiter    losses, a little slower                 -> whether somebody drops what is faster than a limit
//!   ramp_losses  losses while the lanes grow            -> whether they come by chance
//!   lanes      windows, loss, capacity                 -> how many lanes carry data
//!   held       what happened, and both of these        -> what held the lanes, for the report
//!   advise     all of it                               -> advice, with its reasons
//!   share      the bound of all lanes                  -> the bound of each
//!   remember   the estimate                            -> where the next job begins
//!   servers    what moved over connections to a server -> how many of them carry data, where no haul is at the other end
//! ```
//! Several windows fill a far path, and together may hold more than it does: the rest stands in a queue, delays everyone, and in
//! the end is lost. So the lanes ask for a little less than the path carries, and look now and then for more. Restraint only pays
//! when it empties the queue: when others fill it again, the lanes take their share like anyone else, with as few lanes as that
//! needs.
//!
//! Near paths ([`crate::plan::NEAR_RTT_US`]) are left alone.
//!
//! Comments of constants name three rows of `tests/path_table.rs` in short. *Jitter*: 150 Mbit/s x 60 ms, jitter of 10 ms, 50
//! Mbit/s from 15 to 25 s. *Two cubic*: 1 Gbit/s x 100 ms, two cubic flows from 10 s. *Four cubic*: 100 Mbit/s x 50 ms, four
//! cubic flows before us.

mod advise;
mod estimate;
mod held;
mod lanes;
mod limiter;
mod pacing;
mod ramp_losses;
mod remember;
mod sample;
pub mod servers;
mod share;
mod silence;
mod way_back;

pub use advise::{Advice, Reasons, Tuner, Wishes};
pub use estimate::{Confidence, Estimate, Limit, Phase};
pub(crate) use estimate::{MSS_USUAL_BYTES, SOURCE_PERMILLE, per_second, square_root};
pub(crate) use lanes::STOCK_WINDOW_BYTES;
pub use lanes::{AUTO_LANES_MAX, QUICK_FROM_US, QUICK_START_WORTH_BYTES, START_LANES_MAX};
pub use limiter::Marked;
pub use remember::Remembered;
pub use sample::{LaneReading, Sample};
pub use share::{EndingLane, beside_own_bounds, better_given_up, bound_per_lane, bounds_at_end, too_slow_for_more};
pub(crate) use share::{SAMPLE_US, TCP_RTO_MIN_US};
pub use way_back::OneWay;

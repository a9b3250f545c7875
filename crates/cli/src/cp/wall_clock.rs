//! The clock on the wall of this host, in the time zone of its user.

use haul_job::timetable::MinuteOfDay;
use jiff::Zoned;

/// The minute of the day that it shows.
pub fn minute() -> MinuteOfDay {
    let now = Zoned::now();
    let hand = |at: i8| u16::try_from(at).unwrap_or(0);
    MinuteOfDay::new(hand(now.hour()), hand(now.minute())).unwrap_or_default()
}

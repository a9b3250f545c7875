//! This host's clock on the wall, in its user's time zone.

use haul_job::timetable::MinuteOfDay;
use jiff::Zoned;

pub fn minute() -> MinuteOfDay {
    let now = Zoned::now();
    let hand = |at: i8| u16::try_from(at).unwrap_or(0);
    MinuteOfDay::new(hand(now.hour()), hand(now.minute())).unwrap_or_default()
}

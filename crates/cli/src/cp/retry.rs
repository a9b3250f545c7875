//! When a copy that broke off is tried again, and after which pause.

use std::time::Duration;

use haul_job::Fault;

use crate::flags::values::length_s;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Never,
    /// Gives up after this time without data.
    For(Duration),
    Forever,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Try {
    /// Totals came, so the far side was there.
    pub reached: bool,
    pub moved: bool,
}

#[derive(Debug)]
pub struct Retries {
    patience: Patience,
    /// A first try that reaches nobody ends the copy, as in scp, unless patience was asked for: the name may be wrong.
    from_the_start: bool,
    has_reached: bool,
    pause: Duration,
    lost_since: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub pause: Duration,
    /// Time without data after which the copy gives up; `None`: never.
    pub gives_up_after: Option<Duration>,
}

impl Retries {
    pub fn new(asked: Option<Patience>) -> Self {
        Self {
            patience: asked.unwrap_or(Patience::For(DEFAULT_PATIENCE)),
            from_the_start: asked.is_some(),
            has_reached: false,
            pause: FIRST_PAUSE,
            lost_since: None,
        }
    }

    pub fn has_reached(&mut self) {
        self.has_reached = true;
    }

    /// A try ended with this fault, `now` after the start. `None`: give up.
    pub fn after(&mut self, now: Duration, fault: Fault, this: Try) -> Option<Next> {
        self.has_reached |= this.reached;
        if !mends(fault) || !(self.has_reached || self.from_the_start) {
            return None;
        }
        if this.moved {
            (self.pause, self.lost_since) = (FIRST_PAUSE, None);
        }
        let lost_for = now.saturating_sub(*self.lost_since.get_or_insert(now));
        let left = match self.patience {
            Patience::Never => return None,
            Patience::For(bound) => Some(bound.checked_sub(lost_for).filter(|left| !left.is_zero())?),
            Patience::Forever => None,
        };
        let pause = left.map_or(self.pause, |left| self.pause.min(left));
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Some(Next { pause, gives_up_after: left })
    }
}

fn mends(fault: Fault) -> bool {
    match fault {
        Fault::Network | Fault::Ssh | Fault::Timeout | Fault::Busy => true,
        Fault::Usage
        | Fault::FileIo
        | Fault::Missing
        | Fault::Space
        | Fault::Protocol
        | Fault::Authentication
        | Fault::Install
        | Fault::SftpOnly
        | Fault::Verification
        | Fault::Storage
        // The next day is too far away.
        | Fault::Allowance
        | Fault::Interrupted => false,
    }
}

/// `10m`, `1h30m`, `90s`, `forever`, `0`.
pub fn parse(text: &str) -> Result<Patience, String> {
    let wrong = || "a time with its unit, such as 90s, 10m, 2h, 1h30m; or forever, or 0".to_owned();
    match text {
        "forever" => return Ok(Patience::Forever),
        "0" => return Ok(Patience::Never),
        _ => {}
    }
    match length_s(text).ok_or_else(wrong)? {
        0 => Ok(Patience::Never),
        seconds => Ok(Patience::For(Duration::from_secs(seconds))),
    }
}

/// Enough for a host that restarts, and a train in a tunnel.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(600);

/// Pauses double up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A network that is back is used within a minute.
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const REACHED: Try = Try { reached: true, moved: false };
    const MOVED: Try = Try { reached: true, moved: true };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_grow_to_a_minute_and_start_anew_when_data_moved() {
        let mut retries = Retries::new(Some(Patience::Forever));
        let mut pause = |this| retries.after(s(0), Fault::Network, this).unwrap().pause.as_secs();
        assert_eq!([0; 9].map(|_| pause(Try::default())), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!([pause(MOVED), pause(REACHED)], [1, 2]);
    }

    #[test]
    fn ten_minutes_without_data_are_the_end_and_the_last_pause_is_no_longer_than_they_are() {
        let mut retries = Retries::new(None);
        assert_eq!(
            retries.after(s(100), Fault::Timeout, MOVED),
            Some(Next { pause: s(1), gives_up_after: Some(s(600)) })
        );
        for now in [101, 103, 107, 115, 131, 163] {
            assert!(retries.after(s(now), Fault::Network, Try::default()).is_some());
        }
        let last = retries.after(s(690), Fault::Network, Try::default());
        assert_eq!(last, Some(Next { pause: s(10), gives_up_after: Some(s(10)) }));
        assert_eq!(retries.after(s(700), Fault::Network, Try::default()), None);
        assert!(retries.after(s(2_000), Fault::Network, MOVED).is_some());
    }

    #[test]
    fn a_host_that_was_never_there_is_tried_once_unless_the_user_asked_for_more() {
        assert_eq!(Retries::new(None).after(s(1), Fault::Network, Try::default()), None);
        assert!(Retries::new(Some(Patience::For(s(60)))).after(s(1), Fault::Network, Try::default()).is_some());
    }

    #[test]
    fn what_does_not_mend_by_waiting_ends_the_copy_at_once() {
        for fault in [Fault::Authentication, Fault::Space, Fault::Usage, Fault::Verification, Fault::Interrupted] {
            assert_eq!(Retries::new(Some(Patience::Forever)).after(s(1), fault, MOVED), None);
        }
        assert_eq!(Retries::new(Some(Patience::Never)).after(s(1), Fault::Network, MOVED), None);
    }

    #[test]
    fn times_are_read_with_their_units() {
        let table = [
            ("0", Some(Patience::Never)),
            ("0s", Some(Patience::Never)),
            ("forever", Some(Patience::Forever)),
            ("90s", Some(Patience::For(s(90)))),
            ("10m", Some(Patience::For(s(600)))),
            ("1h30m", Some(Patience::For(s(5_400)))),
            ("2d", Some(Patience::For(s(172_800)))),
            ("10", None),
            ("m", None),
            ("-1m", None),
            ("1.5h", None),
            ("10é", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ];
        for (text, patience) in table {
            assert_eq!(parse(text).ok(), patience, "{text}");
        }
    }
}

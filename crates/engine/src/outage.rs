//! Outages: times in which no byte and no word comes from the other end, although it speaks each second.
//!
//! ```text
//!   how long the other end is silent, again and again -> Listener -> no data for so long
//!   that, over all tries of a job                     -> Outages  -> when each outage began, and how long it took
//! ```
//! [`crate::path`] watches a sender's own packets: one path may be out while others carry.

use alloc::vec::Vec;

/// Listens for the other end of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listener {
    looked_at_us: Option<u64>,
    silent_us: u64,
    /// Silence in which this process did not look.
    deaf_us: u64,
}

impl Listener {
    /// Takes a look after `silent_us` of silence. Returns an outage's time so far.
    ///
    /// `rtt_us` is the slowest path's, 0 if unknown.
    pub fn on_look(&mut self, now_us: u64, silent_us: u64, rtt_us: u32) -> Option<u64> {
        if silent_us < self.silent_us {
            self.deaf_us = 0;
        }
        let gap_us = self.looked_at_us.map_or(0, |looked_us| now_us.saturating_sub(looked_us));
        if gap_us > LOOK_US_MAX {
            // A process that was stopped hears everything late.
            self.deaf_us = self.deaf_us.saturating_add(gap_us);
        }
        (self.looked_at_us, self.silent_us) = (Some(now_us), silent_us);
        let heard_nothing_us = silent_us.saturating_sub(self.deaf_us);
        let pause_us = OUTAGE_US_MIN + PAUSE_ROUND_TRIPS * u64::from(rtt_us.min(RTT_US_MAX));
        (heard_nothing_us >= pause_us).then_some(heard_nothing_us)
    }
}

/// One outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The beginning, by the caller's clock.
    pub began_us: u64,
    /// The time that it took.
    pub us: u64,
}

/// The first [`OUTAGES_KEPT`] outages of all tries, and the number of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// In their order.
    pub first: Vec<Outage>,
    /// The number of later ones.
    pub more: u32,
}

/// Gathers a job's outages, by the caller's clock.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    over: Outages,
    now: Option<Outage>,
    was_reached: bool,
    is_lost: bool,
}

impl Gathering {
    /// Takes progress in. `no_data_us`: see [`Listener::on_look`].
    pub fn on_progress(&mut self, now_us: u64, no_data_us: Option<u64>) {
        self.was_reached = true;
        match (no_data_us, self.now) {
            (None, _) => self.end(now_us),
            (Some(us), Some(outage)) => self.now = Some(Outage { us: outage.us.max(us), ..outage }),
            (Some(us), None) => self.now = Some(Outage { began_us: now_us.saturating_sub(us), us }),
        }
    }

    /// Enters that a try broke off.
    pub fn on_broke_off(&mut self, now_us: u64) {
        // An end never reached is no outage.
        if self.was_reached {
            self.now.get_or_insert(Outage { began_us: now_us, us: 0 });
            self.is_lost = true;
        }
    }

    /// The outages until now.
    pub fn until(mut self, now_us: u64) -> Outages {
        self.end(now_us);
        self.over
    }

    fn end(&mut self, now_us: u64) {
        let is_lost = core::mem::take(&mut self.is_lost);
        let Some(outage) = self.now.take() else { return };
        // Nobody looks between two tries.
        let us = if is_lost { outage.us.max(now_us.saturating_sub(outage.began_us)) } else { outage.us };
        if us < OUTAGE_US_MIN {
            return;
        }
        if self.over.first.len() < OUTAGES_KEPT {
            self.over.first.push(Outage { us, ..outage });
        } else {
            self.over.more = self.over.more.saturating_add(1);
        }
    }
}

/// The other end speaks each second: one word late, and the next missing.
const OUTAGE_US_MIN: u64 = 2_000_000;
/// A lost word comes after a round trip, with doubling timeouts (RFC 6298).
const PAUSE_ROUND_TRIPS: u64 = 4;
/// Two satellites: after an outage the smoothed time is too long.
const RTT_US_MAX: u32 = 1_200_000;
/// Busy hosts delay looks, ten a second, by less.
const LOOK_US_MAX: u64 = 1_000_000;
/// A longer list is not read; 16 bytes each.
pub const OUTAGES_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// The first tenth of a second that counts.
    fn known_after_s(rtt_us: u32) -> f64 {
        let mut listener = Listener::default();
        let tenth = (1..=200).find(|tenth| listener.on_look(tenth * S / 10, tenth * S / 10, rtt_us).is_some());
        tenth.unwrap() as f64 / 10.0
    }

    #[test]
    fn two_seconds_and_four_round_trips_of_silence_are_an_outage() {
        assert_eq!([0, 50_000, 600_000].map(known_after_s), [2.0, 2.2, 4.4]);
        // The wait of an outage does not hide the next.
        assert_eq!(known_after_s(20_000_000), 6.8);
    }

    #[test]
    fn a_word_ends_it_at_once() {
        let mut listener = Listener::default();
        for tenth in 1..=70 {
            let told = listener.on_look(tenth * S / 10, tenth * S / 10, 0);
            assert_eq!(told, (tenth >= 20).then_some(tenth * S / 10));
        }
        assert_eq!(listener.on_look(71 * S / 10, 50_000, 0), None);
    }

    #[test]
    fn a_process_that_was_stopped_does_not_blame_the_other_end() {
        let mut listener = Listener::default();
        listener.on_look(S, 0, 0);
        assert_eq!(listener.on_look(601 * S, 600 * S, 0), None);
        assert_eq!(listener.on_look(601 * S + 100_000, 0, 0), None);
        // Stopped within an outage, which goes on.
        let mut listener = Listener::default();
        let told = (1..=30).filter_map(|tenth| listener.on_look(tenth * S / 10, tenth * S / 10, 0)).last();
        assert_eq!(told, Some(3 * S));
        assert_eq!(listener.on_look(103 * S, 103 * S, 0), Some(3 * S));
        assert_eq!(listener.on_look(104 * S, 104 * S, 0), Some(4 * S));
        listener.on_look(105 * S, 0, 0);
        assert_eq!((1..=30).filter_map(|t| listener.on_look(105 * S + t * S / 10, t * S / 10, 0)).last(), Some(3 * S));
    }

    fn out(gathering: &mut Gathering, from_s: u64, until_s: u64) {
        for tenth in from_s * 10..=until_s * 10 {
            let us = (tenth - from_s * 10) * S / 10;
            gathering.on_progress(tenth * S / 10, (us >= 2 * S).then_some(us));
        }
        gathering.on_progress(until_s * S + S / 10, None);
    }

    #[test]
    fn each_outage_has_its_time_and_those_beyond_the_list_are_counted() {
        let mut gathering = Gathering::default();
        out(&mut gathering, 10, 17);
        out(&mut gathering, 30, 33);
        let told = gathering.clone().until(40 * S);
        let [first, second] = [(10, 7), (30, 3)].map(|(at, long)| Outage { began_us: at * S, us: long * S });
        assert_eq!(told, Outages { first: Vec::from([first, second]), more: 0 });
        for nth in 2..30 {
            out(&mut gathering, nth * 100, nth * 100 + 4);
        }
        let told = gathering.until(4_000 * S);
        assert_eq!((told.first.len(), told.more, told.first[0]), (OUTAGES_KEPT, 30 - 16, first));
    }

    #[test]
    fn an_outage_that_ends_a_try_lasts_until_the_other_end_is_reached_again() {
        let mut gathering = Gathering::default();
        gathering.on_progress(S, None);
        for s in 2..=30 {
            gathering.on_progress((10 + s) * S, Some(s * S));
        }
        for s in [40, 43, 48] {
            gathering.on_broke_off(s * S);
        }
        let still = gathering.clone().until(50 * S);
        assert_eq!(still.first, [Outage { began_us: 10 * S, us: 40 * S }]);
        gathering.on_progress(55 * S, None);
        assert_eq!(gathering.until(90 * S).first, [Outage { began_us: 10 * S, us: 45 * S }]);
    }

    #[test]
    fn a_peer_that_was_never_there_and_a_quick_second_login_are_no_outages() {
        let mut gathering = Gathering::default();
        gathering.on_broke_off(S);
        gathering.on_broke_off(20 * S);
        gathering.on_progress(60 * S, None);
        gathering.on_broke_off(70 * S);
        gathering.on_progress(71 * S, None);
        assert_eq!(gathering.until(80 * S), Outages::default());
    }
}

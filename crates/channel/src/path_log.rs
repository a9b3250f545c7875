//! Notes which paths of a session come and go, for a daemon's log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::lane_addresses::LaneAddresses;

/// A loss this recent is most often a replaced lane, or the session's end, which has a line of its own.
const GONE_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct PathLog(BTreeMap<u16, Known>);

struct Known {
    ends: LaneAddresses,
    lanes: u32,
    gone_since: Option<Instant>,
    is_told_gone: bool,
}

impl PathLog {
    pub fn lane_up(&mut self, path: u16, ends: Option<LaneAddresses>) -> Option<LaneAddresses> {
        let Some(known) = self.0.get_mut(&path) else {
            let ends = ends?;
            self.0.insert(path, Known { ends, lanes: 1, gone_since: None, is_told_gone: false });
            return Some(ends);
        };
        let ends = ends.unwrap_or(known.ends);
        let is_news = known.is_told_gone || ends != known.ends;
        *known = Known { ends, lanes: known.lanes + 1, gone_since: None, is_told_gone: false };
        is_news.then_some(ends)
    }

    pub fn lane_down(&mut self, path: u16, now: Instant) {
        let Some(known) = self.0.get_mut(&path) else { return };
        known.lanes = known.lanes.saturating_sub(1);
        if known.lanes == 0 && !known.is_told_gone {
            known.gone_since = Some(now);
        }
    }

    pub fn gone(&mut self, now: Instant) -> Vec<u16> {
        let is_gone =
            |known: &Known| known.gone_since.is_some_and(|since| now.saturating_duration_since(since) >= GONE_AFTER);
        let gone = self.0.iter_mut().filter(|(_, known)| is_gone(known));
        gone.map(|(number, known)| {
            (known.gone_since, known.is_told_gone) = (None, true);
            *number
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(net: u8) -> Option<LaneAddresses> {
        Some(LaneAddresses { local: [10, 0, net, 2].into(), peer: [10, 0, net, 1].into() })
    }

    #[test]
    fn a_path_is_told_when_it_comes_when_it_stays_away_and_when_it_is_back() {
        let (mut log, start) = (PathLog::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(log.lane_up(1, ends(1)), ends(1));
        assert_eq!(log.lane_up(1, ends(1)), None, "a second lane is no news");
        log.lane_down(1, at(0));
        assert!(log.gone(at(5_000)).is_empty(), "it has another lane");
        log.lane_down(1, at(5_000));
        assert!(log.gone(at(5_900)).is_empty(), "the session may be at its end");
        assert_eq!((log.gone(at(6_000)), log.gone(at(9_000))), (vec![1], vec![]), "once");
        assert_eq!(log.lane_up(1, ends(1)), ends(1), "it is back");
    }

    #[test]
    fn a_lane_that_is_replaced_is_no_news_and_another_address_is() {
        let (mut log, start) = (PathLog::default(), Instant::now());
        log.lane_up(0, ends(1));
        log.lane_down(0, start);
        assert_eq!(log.lane_up(0, ends(1)), None);
        assert!(log.gone(start + GONE_AFTER * 2).is_empty());
        assert_eq!(log.lane_up(0, ends(7)), ends(7), "a client that moved");
        assert_eq!(log.lane_up(2, None), None, "a lane within ssh has no addresses");
    }
}

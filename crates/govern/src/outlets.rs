//! Moves a path's connections to where they must leave this host, if the operator's program grants priority only there.
//!
//! ```text
//!   granted, and lanes leave elsewhere   -> they are dialled again from there (`Move`), and nothing is judged meanwhile
//!     they stand                         -> they are marked
//!     they cannot                        -> a notice; those that leave elsewhere stay unmarked
//! ```

use std::net::SocketAddr;

use haul_job::Subject;
use haul_wire::control::Notice;

use haul_channel::convert;
use haul_kept::hook_words::Outlet;

/// Makes new lanes leave from `outlet`.
pub struct Move {
    /// The path.
    pub path: u16,
    /// The place where its lanes leave.
    pub outlet: Outlet,
    /// Lanes dialled again.
    pub lanes: Vec<u16>,
}

/// Lost lanes may come back elsewhere.
const MOVES_PER_GRANT: u8 = 3;

#[derive(Default)]
pub(crate) struct Granted {
    outlet: Outlet,
    moves: u8,
    is_moving: bool,
    stays: Option<String>,
    was_told: bool,
}

impl Granted {
    pub fn to(outlet: Outlet) -> Self {
        Self { outlet, ..Self::default() }
    }

    pub fn outlet(&self) -> Outlet {
        self.outlet
    }

    pub fn has(&self, end: Option<SocketAddr>) -> bool {
        self.outlet.has(end)
    }

    /// Moving lanes show no effect.
    pub(crate) fn is_moving(&self) -> bool {
        self.is_moving
    }

    /// Takes lanes that leave elsewhere. Returns those to move.
    pub(crate) fn on_outside(&mut self, outside: &[u16]) -> Option<Vec<u16>> {
        if outside.is_empty() || self.is_moving || self.stays.is_some() {
            return None;
        }
        if self.moves == MOVES_PER_GRANT {
            self.stays = Some("connections from there do not last".into());
            return None;
        }
        self.moves += 1;
        self.is_moving = true;
        Some(outside.to_vec())
    }

    /// False: nothing was ordered.
    pub fn on_moved(&mut self, outcome: Result<(), String>) -> bool {
        self.stays = outcome.err().filter(|_| self.is_moving).or(self.stays.take());
        std::mem::take(&mut self.is_moving)
    }

    /// Reports once a grant that `outside` of `marked` lanes stay.
    pub fn word(&mut self, outside: usize, marked: usize) -> Option<Notice> {
        let why = self.stays.as_ref().filter(|_| outside > 0 && !self.was_told)?;
        self.was_told = true;
        let outlet = self.outlet;
        if outside < marked {
            let choice = format!("{} of {marked} lanes marked", marked - outside);
            let reason = format!("the operator's program grants priority to connections from {outlet}: {why}");
            return Some(convert::chose(Subject::Class, choice, convert::bounded(&reason)));
        }
        let text = format!(
            "the operator's program grants priority to connections from {outlet}, and this path has none from there: {why}. It stays \
             unmarked. --paths chooses the address, --port-range the ports of a side that listens"
        );
        Some(Notice::Warning { text: convert::bounded(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_moved_a_few_times_and_then_it_is_said_once_that_they_stay() {
        let mut granted = Granted::to(Outlet::default());
        assert_eq!(granted.on_outside(&[]), None);
        for _ in 0..MOVES_PER_GRANT {
            assert_eq!(granted.on_outside(&[0, 2]), Some(vec![0, 2]));
            assert_eq!(granted.on_outside(&[0, 2]), None, "they are on their way");
            assert!(granted.is_moving() && granted.word(2, 2).is_none());
            assert!(granted.on_moved(Ok(())) && !granted.on_moved(Ok(())));
        }
        assert_eq!(granted.on_outside(&[0]), None);
        assert!(matches!(granted.word(1, 1), Some(Notice::Warning { text }) if text.contains("do not last")));
        assert_eq!(granted.word(1, 1), None);
    }

    #[test]
    fn what_cannot_be_moved_stays_with_its_reason() {
        let mut granted = Granted::to(Outlet::default());
        assert!(granted.on_outside(&[0, 1, 2]).is_some() && granted.on_moved(Err("no port is free".into())));
        assert_eq!(granted.on_outside(&[2]), None);
        let word = granted.word(1, 3);
        assert!(
            matches!(&word, Some(Notice::Chose { choice, reason, .. })
                if choice == "2 of 3 lanes marked" && reason.ends_with("no port is free")),
            "{word:?}"
        );
    }
}

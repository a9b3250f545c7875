//! Failures of one cause are a few lines and a count.

use std::collections::BTreeMap;

use crate::text::figures::counted;
use crate::text::printable::printable;

#[derive(Debug, Default)]
pub struct Causes(BTreeMap<String, u64>);

impl Causes {
    /// Entries named for one cause, as many as a copy's closing lines repeat.
    pub const NAMED: u64 = 20;

    pub fn has_line(&mut self, cause: &str) -> bool {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(cause) {
            return true;
        }
        let count = self.0.entry(cause.to_owned()).or_default();
        *count += 1;
        *count <= Self::NAMED
    }

    pub fn rest(&mut self) -> impl Iterator<Item = (String, u64)> + use<> {
        let counts = std::mem::take(&mut self.0).into_iter();
        counts.filter(|(_, count)| *count > Self::NAMED).map(|(cause, count)| (cause, count - Self::NAMED))
    }
}

/// The kernel's error behind a message's path.
pub fn of_message(message: &str) -> &str {
    message.rsplit(": ").next().unwrap_or(message)
}

/// `980 entries more: Permission denied`
pub fn more_of(cause: &str, count: u64) -> String {
    format!("{} more: {}", counted(count, "entry", "entries"), printable(cause))
}

/// Causes remembered; of further ones, each failure is a line.
pub const REMEMBERED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_first_twenty_of_a_cause_is_counted() {
        let mut causes = Causes::default();
        let lines =
            (0..1000).filter(|number| causes.has_line(of_message(&format!("cannot read {number}: Permission denied"))));
        assert_eq!(lines.count(), 20);
        assert!(causes.has_line("another"));
        assert_eq!(causes.rest().collect::<Vec<_>>(), [("Permission denied".to_owned(), 980)]);
        assert_eq!(causes.rest().count(), 0);
    }

    #[test]
    fn with_too_many_causes_each_has_its_line() {
        let mut causes = Causes::default();
        for number in 0..REMEMBERED {
            assert!(causes.has_line(&number.to_string()));
        }
        assert!((0..100).all(|_| causes.has_line("one more")));
        assert_eq!(causes.rest().count(), 0);
    }
}

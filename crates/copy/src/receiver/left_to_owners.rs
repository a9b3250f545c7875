//! Says what stays on other users' entries: in a shared directory that is no failure.

use haul_store::{LeftToOwners, printable};

pub(super) fn text(left: &LeftToOwners, root: &[u8]) -> String {
    let of = |what: &str, count: u64| match count {
        0 => None,
        1 => Some(format!("{what} of 1 entry")),
        _ => Some(format!("{what} of {count} entries")),
    };
    let what: Vec<String> = [of("permissions", left.modes), of("times", left.times)].into_iter().flatten().collect();
    let first = if left.first.is_empty() { root } else { &left.first };
    format!(
        "{} stay as they are at the target: they belong to other users, who alone may set them ({}, for one)",
        what.join(" and "),
        printable(first)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_says_what_stays_and_of_how_many() {
        let of = |modes, times| text(&LeftToOwners { modes, times, first: b"".to_vec() }, b"/shared/run42");
        let rest = "stay as they are at the target: they belong to other users, who alone may set them (/shared/run42, for one)";
        assert_eq!(of(2, 1), format!("permissions of 2 entries and times of 1 entry {rest}"));
        assert_eq!(of(0, 3), format!("times of 3 entries {rest}"));
    }
}

//! The order of a listing: directories first, numbers in names by their value.

use std::cmp::Ordering;

use haul_store::{Kind, Stat};

use crate::request::target::{Column, Order};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key<N> {
    pub(super) is_directory: bool,
    pub(super) number: i128,
    pub(super) name: N,
}

impl<N: AsRef<[u8]>> Key<N> {
    /// Directories come first in either direction.
    pub(super) fn compare<M: AsRef<[u8]>>(&self, other: &Key<M>, order: Order) -> Ordering {
        let by_number = self.number.cmp(&other.number);
        let by_column = by_number.then_with(|| by_value(self.name.as_ref(), other.name.as_ref()));
        let by_column = if order.is_reverse { by_column.reverse() } else { by_column };
        other.is_directory.cmp(&self.is_directory).then(by_column)
    }

    /// Writes the key as `name`, `directory/`, or with its number before a colon.
    pub(super) fn marker(&self, order: Order) -> Vec<u8> {
        let mut marker = match order.by {
            Column::Name => Vec::new(),
            Column::Size | Column::Time => format!("{}:", self.number).into_bytes(),
        };
        marker.extend_from_slice(self.name.as_ref());
        if self.is_directory {
            marker.push(b'/');
        }
        marker
    }
}

impl Key<Vec<u8>> {
    pub(super) fn parse(marker: &[u8], order: Order) -> Option<Self> {
        let (number, name) = match order.by {
            Column::Name => (0, marker),
            Column::Size | Column::Time => {
                let colon = marker.iter().position(|byte| *byte == b':')?;
                (std::str::from_utf8(&marker[..colon]).ok()?.parse().ok()?, &marker[colon + 1..])
            }
        };
        let (is_directory, name) = match name.strip_suffix(b"/") {
            Some(name) => (true, name),
            None => (false, name),
        };
        Some(Key { is_directory, number, name: name.to_vec() })
    }
}

/// The number before the name. A directory's size says nothing about its content.
pub(super) fn number(stat: &Stat, by: Column) -> i128 {
    match by {
        Column::Name => 0,
        Column::Size if stat.kind == Kind::Directory => 0,
        Column::Size => stat.size.into(),
        Column::Time => i128::from(stat.mtime.s) * 1_000_000_000 + i128::from(stat.mtime.ns),
    }
}

/// Compares names so that `file2` comes before `file10`.
pub(super) fn by_value(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        match (left.first(), right.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ((x, left_behind), (y, right_behind)) = (split_digits(left), split_digits(right));
                match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                    Ordering::Equal => (left, right) = (left_behind, right_behind),
                    unequal => return unequal,
                }
            }
            (Some(x), Some(y)) if x == y => (left, right) = (&left[1..], &right[1..]),
            (None, None) => return a.cmp(b),
            (x, y) => return x.cmp(&y),
        }
    }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, behind) = text.split_at(end);
    let start = digits.iter().position(|digit| *digit != b'0').unwrap_or(end);
    (&digits[start..], behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_their_value() {
        let sorted = [
            "",
            "-",
            "0",
            "00",
            "1",
            "01.txt",
            "1.txt",
            "2",
            "10",
            "A",
            "file",
            "file-1",
            "file1",
            "file1-2",
            "file1-10",
            "file02",
            "file2",
            "file2a",
            "file10",
            "file18446744073709551616",
            "file99999999999999999999",
            "filea",
            "ü2",
            "ü10",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(by_value(a.as_bytes(), b.as_bytes()), at.cmp(&other), "{a} {b}");
            }
        }
    }

    #[test]
    fn a_marker_leads_to_the_place_that_it_was_made_of() {
        for by in [Column::Name, Column::Size, Column::Time] {
            let order = Order { by, is_reverse: false };
            for (is_directory, number, name) in [(true, 0, "a:b"), (false, -7, "7:x"), (false, i128::MAX, "\n")] {
                let number = if by == Column::Name { 0 } else { number };
                let key = Key { is_directory, number, name: name.as_bytes().to_vec() };
                assert_eq!(Key::parse(&key.marker(order), order), Some(key));
            }
        }
        assert_eq!(Key::parse(b"name", Order { by: Column::Size, is_reverse: true }), None);
    }
}

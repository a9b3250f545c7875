//! Changes of an input, as fuzzers make them.

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// More changes leave little of an input.
const CHANGES_MAX: usize = 8;

const PIECE_BYTES_MAX: usize = 64;

/// The longest kept inputs have about as much.
const INPUT_BYTES_MAX: usize = 128 << 10;

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Write(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Number(Index, u64),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
    /// Inserts a piece of another input: from where, how much.
    Borrow(Index, Index, usize),
    /// Goes on with the other input.
    Cross(Index, Index),
}

/// One of these inputs, changed.
pub fn changed(inputs: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let (one, other) = (select(inputs.clone()), select(inputs));
    (one, other, prop::collection::vec(change(), 1..=CHANGES_MAX)).prop_map(|(mut bytes, other, changes)| {
        changes.into_iter().for_each(|change| apply(change, &mut bytes, &other));
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    })
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let length = || 1..=PIECE_BYTES_MAX;
    let piece = || prop_oneof![edge(), prop::collection::vec(any::<u8>(), 1..=8)];
    prop_oneof![
        2 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, 1 << bit)),
        1 => (at(), any::<u8>()).prop_map(|(at, bits)| Change::Flip(at, bits)),
        2 => (at(), piece()).prop_map(|(at, bytes)| Change::Write(at, bytes)),
        2 => (at(), piece()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), edge_number()).prop_map(|(at, number)| Change::Number(at, number)),
        2 => (at(), length()).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        1 => (at(), length()).prop_map(|(at, bytes)| Change::Repeat(at, bytes)),
        1 => at().prop_map(Change::Cut),
        2 => (at(), at(), length()).prop_map(|(at, from, bytes)| Change::Borrow(at, from, bytes)),
        1 => (at(), at()).prop_map(|(at, from)| Change::Cross(at, from)),
    ]
}

fn edge_number() -> impl Strategy<Value = u64> + Clone {
    select(vec![0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, u32::MAX.into(), 1 << 32, i64::MAX as u64, u64::MAX])
}

/// Numbers at the edges of their types in both byte orders and as text, and signs with a meaning somewhere.
fn edge() -> impl Strategy<Value = Vec<u8>> {
    let number = edge_number();
    let binary = (number.clone(), select(vec![1, 2, 4, 8]), any::<bool>()).prop_map(|(number, width, big)| {
        let mut bytes = number.to_le_bytes()[..width].to_vec();
        if big {
            bytes.reverse();
        }
        bytes
    });
    let signs =
        ["\0", "\n", "\r\n", "\\", "\"", "/", "../", "%2e", "%00", "=", ",", ";", "[", "{", "-1", "1e309", "\u{fffd}"];
    prop_oneof![
        binary,
        number.prop_map(|number| number.to_string().into_bytes()),
        select(signs.map(|sign| sign.as_bytes().to_vec()).to_vec()),
        any::<u8>().prop_map(|byte| vec![byte; PIECE_BYTES_MAX]),
    ]
}

fn apply(change: Change, bytes: &mut Vec<u8>, other: &[u8]) {
    let place = |at: Index, bytes: &[u8]| at.index(bytes.len() + 1);
    match change {
        Change::Flip(at, bits) => {
            let at = place(at, bytes);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
        }
        Change::Write(at, piece) => {
            let at = place(at, bytes);
            let end = bytes.len().min(at + piece.len());
            bytes.splice(at..end, piece);
        }
        Change::Insert(at, piece) => {
            let at = place(at, bytes);
            bytes.splice(at..at, piece);
        }
        Change::Number(at, number) => {
            let at = place(at, bytes);
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let start = at + bytes[at..].iter().take_while(|byte| !is_digit(byte)).count();
            let end = start + bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
            bytes.splice(start..end, number.to_string().into_bytes());
        }
        Change::Remove(at, length) => {
            let at = place(at, bytes);
            let end = bytes.len().min(at + length);
            bytes.drain(at..end);
        }
        Change::Repeat(at, length) => {
            let at = place(at, bytes);
            let piece = bytes[at..].iter().take(length).copied().collect::<Vec<_>>();
            bytes.splice(at..at, piece);
        }
        Change::Cut(at) => bytes.truncate(place(at, bytes)),
        Change::Borrow(at, from, length) => {
            let at = place(at, bytes);
            bytes.splice(at..at, other[place(from, other)..].iter().take(length).copied());
        }
        Change::Cross(at, from) => {
            bytes.truncate(place(at, bytes));
            bytes.extend_from_slice(&other[place(from, other)..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    use super::*;

    #[test]
    fn an_input_is_changed_in_many_ways_and_stays_bounded() {
        let inputs = vec![b"one input".to_vec(), b"another one".to_vec(), Vec::new(), vec![7; INPUT_BYTES_MAX]];
        let (changed, mut runner) = (changed(inputs.clone()), TestRunner::deterministic());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let made = changed.new_tree(&mut runner).unwrap().current();
            assert!(made.len() <= INPUT_BYTES_MAX);
            seen.insert(made);
        }
        assert!(seen.len() > 700, "{} of 1000 differ", seen.len());
        assert!(seen.iter().any(|made| made.starts_with(b"one") && made.ends_with(b"another one")), "none is of two");
    }
}

//! The items that are sent but not settled, in manifest order. Bounded in number and bytes, on both sides.

use alloc::collections::VecDeque;

use haul_wire::limits::{MAX_OPEN_ITEM_BYTES, MAX_OPEN_ITEMS};

/// Items by manifest index, in at the back and out at the front.
#[derive(Debug)]
pub struct Window<T> {
    first: u64,
    items: VecDeque<(T, usize)>,
    weight_bytes: usize,
}

/// The peer keeps more items open than agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { first: 0, items: VecDeque::new(), weight_bytes: 0 }
    }
}

impl<T> Window<T> {
    /// Whether this weight has room; one item always does.
    pub fn has_room(&self, weight_bytes: usize) -> bool {
        self.items.is_empty()
            || (self.items.len() < MAX_OPEN_ITEMS && self.weight_bytes + weight_bytes <= MAX_OPEN_ITEM_BYTES)
    }

    /// Enters the next item and gives its index.
    pub fn push(&mut self, item: T, weight_bytes: usize) -> u64 {
        self.items.push_back((item, weight_bytes));
        self.weight_bytes += weight_bytes;
        self.first + self.items.len() as u64 - 1
    }

    /// [`Window::push`] for a peer, with twice the room: each file may have a retry.
    pub fn push_checked(&mut self, item: T, weight_bytes: usize) -> Result<u64, Overflow> {
        let fits = self.items.len() < 2 * MAX_OPEN_ITEMS && self.weight_bytes <= 2 * MAX_OPEN_ITEM_BYTES;
        if fits { Ok(self.push(item, weight_bytes)) } else { Err(Overflow) }
    }

    /// The index of the next item.
    pub fn next_index(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// The index of the first open item.
    pub fn first_index(&self) -> u64 {
        self.first
    }

    /// An open item.
    pub fn get(&self, index: u64) -> Option<&T> {
        self.items.get(self.position(index)?).map(|(item, _)| item)
    }

    /// An open item.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut T> {
        let position = self.position(index)?;
        self.items.get_mut(position).map(|(item, _)| item)
    }

    /// The first open item.
    pub fn front(&self) -> Option<&T> {
        self.items.front().map(|(item, _)| item)
    }

    /// Lets the first open item go.
    pub fn pop_front(&mut self) -> Option<(u64, T)> {
        let (item, weight_bytes) = self.items.pop_front()?;
        let index = self.first;
        self.first += 1;
        self.weight_bytes -= weight_bytes;
        Some((index, item))
    }

    /// Number of open items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn position(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_index_while_others_leave() {
        let mut window = Window::default();
        assert_eq!([window.push("a", 1), window.push("b", 1), window.push("c", 1)], [0, 1, 2]);
        assert_eq!(window.pop_front(), Some((0, "a")));
        assert_eq!((window.get(0), window.get(1), window.get(2), window.get(3)), (None, Some(&"b"), Some(&"c"), None));
        assert_eq!(window.next_index(), 3);
    }

    #[test]
    fn it_is_full_by_number_and_by_bytes() {
        let mut window = Window::default();
        for _ in 0..MAX_OPEN_ITEMS {
            assert!(window.has_room(10));
            window.push((), 10);
        }
        assert!(!window.has_room(10));

        let mut heavy = Window::default();
        assert!(heavy.has_room(MAX_OPEN_ITEM_BYTES + 1), "one item always fits");
        heavy.push((), MAX_OPEN_ITEM_BYTES);
        assert!(!heavy.has_room(1));
        heavy.pop_front();
        assert!(heavy.has_room(1));
    }
}

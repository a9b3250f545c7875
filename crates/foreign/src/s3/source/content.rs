//! The content of small objects that came with their metadata, until a lane reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room for contents that no lane has read.
#[derive(Debug)]
pub(in crate::s3) struct Room {
    left_bytes: AtomicU64,
}

impl Room {
    pub(in crate::s3) fn new(bytes: u64) -> Arc<Room> {
        Arc::new(Room { left_bytes: AtomicU64::new(bytes) })
    }

    /// `None`: other contents fill it.
    pub(in crate::s3) fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        let taken = self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| Place { room: Arc::clone(self), bytes })
    }
}

/// A part of the room, given back at its end.
#[derive(Debug)]
pub(in crate::s3) struct Place {
    room: Arc<Room>,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.left_bytes.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// All bytes of an object.
#[derive(Debug)]
pub(in crate::s3) struct Content {
    bytes: Box<[u8]>,
    _place: Place,
}

impl Content {
    pub(in crate::s3) fn new(bytes: Vec<u8>, place: Place) -> Content {
        Content { bytes: bytes.into_boxed_slice(), _place: place }
    }

    pub(in crate::s3) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::s3) fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_take_no_more_room_than_there_is_and_give_it_back() {
        let room = Room::new(10);
        let first = Content::new(vec![1, 2, 3], room.take(7).unwrap());
        assert!(room.take(4).is_none());
        let _second = room.take(3).unwrap();
        let mut buffer = [0; 2];
        assert_eq!((first.read_at(&mut buffer, 2), buffer), (1, [3, 0]));
        assert_eq!((first.read_at(&mut buffer, 3), first.read_at(&mut buffer, u64::MAX)), (0, 0));
        drop(first);
        assert!(room.take(7).is_some());
    }
}

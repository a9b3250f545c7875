//! A piece of a body: bytes, or a marker for a range of a file.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use haul_store::LocalFile;

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    /// A marker for this many bytes of [`Queue`].
    File(usize),
}

/// The slice of a marker. It is never touched, so it takes no memory; an array would enlarge the program. One slice is at most
/// one sendfile.
static MARKER: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; MARKER_BYTES].into_boxed_slice());

const MARKER_BYTES: usize = 4 << 20;

pub(crate) fn is_marker(slice: &[u8]) -> bool {
    std::ptr::eq(slice.as_ptr(), MARKER.as_ptr())
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.remaining(),
            Piece::File(left) => *left,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes.chunk(),
            Piece::File(0) => &[],
            Piece::File(_) => panic!("the bytes of a file were asked for where only the kernel has them"),
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.chunks_vectored(slices),
            Piece::File(left) if *left > 0 && !slices.is_empty() => {
                slices[0] = IoSlice::new(&MARKER[..MARKER_BYTES.min(*left)]);
                1
            }
            Piece::File(_) => 0,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Bytes(bytes) => bytes.advance(count),
            Piece::File(left) => *left = left.checked_sub(count).expect("hyper counts what it was told was written"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Arc<Mutex<VecDeque<Range>>>);

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) file: Arc<LocalFile>,
    pub(crate) offset: u64,
    pub(crate) left: u64,
}

impl Queue {
    /// Adds a range of at most [`crate::limits::WINDOW_BYTES`].
    pub(crate) fn add(&self, range: Range) -> Piece {
        let len = usize::try_from(range.left).expect("a window fits into memory");
        self.lock().push_back(range);
        Piece::File(len)
    }

    pub(crate) fn first(&self) -> Option<Range> {
        self.lock().front().cloned()
    }

    pub(crate) fn sent(&self, count: u64) {
        let mut ranges = self.lock();
        if let Some(first) = ranges.front_mut() {
            first.offset += count;
            first.left = first.left.saturating_sub(count);
            if first.left == 0 {
                ranges.pop_front();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Range>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_counted_and_never_read() {
        let mut piece = Piece::File(MARKER_BYTES + 5);
        let mut slices = [IoSlice::new(b""), IoSlice::new(b"")];
        assert_eq!(piece.chunks_vectored(&mut slices), 1);
        assert!(is_marker(&slices[0]) && slices[0].len() == MARKER_BYTES);
        assert!(!is_marker(b"bytes"));
        piece.advance(MARKER_BYTES);
        assert_eq!(piece.remaining(), 5);
        assert!(std::panic::catch_unwind(|| Piece::File(1).chunk().len()).is_err());
        piece.advance(5);
        assert!(!piece.has_remaining() && piece.chunk().is_empty());
    }
}

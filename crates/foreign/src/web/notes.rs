//! What the walk saw of files, for when they are opened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;
use crate::web::version::Version;

/// A session's open items, at 200 bytes. A file without its note costs one more question.
const MAX_NOTES: usize = 16 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    pub(crate) size: Option<u64>,
    pub(crate) digests: Vec<Digest>,
    /// The version in a list, which tells less than the file's answers.
    pub(crate) listed: Option<Version>,
}

/// Notes by path, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    notes: HashMap<Vec<u8>, Note>,
    order: VecDeque<Vec<u8>>,
}

impl Notes {
    pub(crate) fn add(&self, path: &[u8], note: Note) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.notes.insert(path.to_vec(), note).is_some() {
            return;
        }
        kept.order.push_back(path.to_vec());
        if kept.order.len() > MAX_NOTES
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.notes.remove(&oldest);
        }
    }

    /// The note stays: a file may be opened again.
    pub(crate) fn of(&self, path: &[u8]) -> Note {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.notes.get(path).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notes_go() {
        let notes = Notes::default();
        for at in 0..=MAX_NOTES {
            notes.add(at.to_string().as_bytes(), Note { size: Some(at as u64), ..Note::default() });
        }
        assert_eq!((notes.of(b"0").size, notes.of(b"1").size), (None, Some(1)));
    }
}

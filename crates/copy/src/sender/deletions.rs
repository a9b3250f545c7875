//! The target may delete only while all sources could be listed in full.
//!
//! ```text
//! every source is there -> their directories are listed once -> the walk -> a failure
//!      or: nothing is deleted        or: nothing is deleted         from here on nothing is deleted
//! ```
//! Entries that could not be listed may stand at the target under any name. haul lists the directories before it sends the
//! first entry. So the order of names does not matter, unlike with rsync.

use std::sync::Arc;

use haul_store::{Found, Hidden, SourceTree, StoreError, WalkOptions, printable};
use haul_wire::control::{Control, Notice};

use haul_channel::convert;

use super::state::Shared;

pub(super) struct Deletions<'a> {
    shared: &'a Shared,
    state: State,
    changed: Option<Vec<u8>>,
}

enum State {
    NotAsked,
    Allowed,
    /// `is_told_as_failure`: whether the user knows of a failure.
    Barred {
        why: String,
        is_told_as_failure: bool,
    },
}

impl<'a> Deletions<'a> {
    pub(super) fn new(shared: &'a Shared, missing: Option<String>) -> Self {
        let state = if shared.job.selection.delete { State::Allowed } else { State::NotAsked };
        let mut deletions = Self { shared, state, changed: None };
        if let Some(why) = missing {
            deletions.bar("nothing is deleted", &why, true);
        }
        deletions
    }

    pub(super) fn look_ahead(&mut self, sources: &Arc<dyn SourceTree>, options: WalkOptions) {
        if !matches!(self.state, State::Allowed) {
            return;
        }
        for found in Arc::clone(sources).items(WalkOptions { listing_only: true, ..options }) {
            if self.shared.is_over() {
                return;
            }
            if let Found::Failed { error, hides: Hidden::Anything, .. } = found {
                return self.bar("nothing is deleted", &error.to_string(), false);
            }
        }
    }

    pub(super) fn on_failure(&mut self, path: &[u8], error: &StoreError, hides: Hidden) {
        match (&mut self.state, hides) {
            (State::Barred { is_told_as_failure, .. }, _) => *is_told_as_failure = true,
            (State::Allowed, Hidden::Anything) => self.bar("from here on nothing is deleted", &error.to_string(), true),
            (State::Allowed, Hidden::Sibling) => self.tell_changed(path),
            (State::Allowed, Hidden::Nothing) | (State::NotAsked, _) => {}
        }
    }

    /// A listed name is gone: the listing may lack what came instead.
    fn tell_changed(&mut self, path: &[u8]) {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |slash| &path[..slash]);
        if self.changed.as_deref() == Some(directory) {
            return;
        }
        let shown = if directory.is_empty() { ".".to_owned() } else { printable(directory) };
        let text = format!("nothing is deleted in {shown}: it changed while it was listed");
        self.shared.notice(Notice::Warning { text: convert::bounded(text) });
        self.changed = Some(directory.to_vec());
    }

    fn bar(&mut self, what: &str, why: &str, is_told_as_failure: bool) {
        if !matches!(self.state, State::Allowed) {
            return;
        }
        self.state = State::Barred { why: why.to_owned(), is_told_as_failure };
        self.shared.outbox.send(Control::DeleteNothing);
        self.shared.notice(Notice::Warning { text: convert::bounded(format!("{what}: {why}")) });
    }

    /// A directory that could be listed only later has still cost the deletions.
    pub(super) fn end(self) {
        if let State::Barred { why, is_told_as_failure: false } = self.state {
            let why = convert::bounded(format!("nothing was deleted: {why}"));
            self.shared.notice(Notice::Failed { path: Vec::new(), why });
        }
    }
}

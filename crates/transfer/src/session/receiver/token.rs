//! The token: a file of the leader with a random name and random contents. A mover that finds it, with the same inode and contents,
//! sees the same tree. A source that finds the name sees it, too.

use std::sync::Mutex;

use haul_store::{Draft, StoreError, TargetTree};
use haul_wire::control::SharedRoot;

use crate::session::id;
use crate::sync::lock;

/// The file by which movers know the tree, as long as it stands.
pub(super) struct Token {
    draft: Mutex<Option<Draft>>,
    /// The file system of the tree: what is mounted beneath it may be another thing elsewhere.
    dev: u64,
}

impl Token {
    /// `flush`: other hosts of this end read it.
    pub(super) fn make(tree: &dyn TargetTree, flush: bool) -> Result<Option<(Self, SharedRoot)>, StoreError> {
        let (Some(local), Some(root)) = (tree.local(), tree.stat(b"").ok().flatten()) else { return Ok(None) };
        let Ok((name, first, second)) = id::random_id().and_then(|name| Ok((name, id::random_id()?, id::random_id()?)))
        else {
            return Ok(None);
        };
        let mut token = [0; 32];
        token[..16].copy_from_slice(&first);
        token[16..].copy_from_slice(&second);
        let path = format!("haul-token-{:032x}", u128::from_le_bytes(name)).into_bytes();
        // Whoever sees the tree finds it there, wherever unfinished data stands.
        let draft = Draft::Local(local.new_part_beside(&path)?);
        draft.write_at(&token, 0)?;
        if flush {
            draft.flush()?;
        }
        let inode = draft.id().1;
        Ok(Some((Self { draft: Mutex::new(Some(draft)), dev: root.id.dev }, SharedRoot { path, inode, token })))
    }

    /// The file system that it stands on.
    pub(super) fn dev(&self) -> u64 {
        self.dev
    }

    /// Removes it: before the tree gets its times, and at the end.
    pub(super) fn discard(&self) {
        if let Some(draft) = lock(&self.draft).take() {
            // A sweep takes what is left.
            let _ = draft.discard();
        }
    }
}

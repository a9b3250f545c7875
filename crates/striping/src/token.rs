//! The token is a file of the leader with a random name and contents. A mover or a source that finds it, with the same inode,
//! sees the same tree.

use std::sync::Mutex;

use haul_channel::id;
use haul_kept::sync::lock;
use haul_store::{Draft, StoreError, TargetTree};
use haul_wire::control::SharedRoot;

/// The file by which movers know the tree.
pub struct Token {
    draft: Mutex<Option<Draft>>,
    /// A file system mounted beneath the tree may differ elsewhere.
    dev: u64,
}

impl Token {
    /// Makes the file, if possible; with `flush` for other hosts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn make(tree: &dyn TargetTree, flush: bool) -> Result<Option<(Self, SharedRoot)>, StoreError> {
        let (Some(local), Some(root)) = (tree.local(), tree.stat(b"").ok().flatten()) else { return Ok(None) };
        let Ok((name, first, second)) = id::random_id().and_then(|name| Ok((name, id::random_id()?, id::random_id()?)))
        else {
            return Ok(None);
        };
        let mut token = [0; 32];
        token[..16].copy_from_slice(&first);
        token[16..].copy_from_slice(&second);
        let path = format!("haul-token-{:032x}", u128::from_le_bytes(name)).into_bytes();
        let draft = Draft::Local(local.new_part_beside(&path)?);
        draft.write_at(&token, 0)?;
        if flush {
            draft.flush()?;
        }
        let inode = draft.id().1;
        Ok(Some((Self { draft: Mutex::new(Some(draft)), dev: root.id.dev }, SharedRoot { path, inode, token })))
    }

    /// The tree's file system.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// Removes the file, before the tree gets its times.
    pub fn discard(&self) {
        if let Some(draft) = lock(&self.draft).take() {
            let _ = draft.discard();
        }
    }
}

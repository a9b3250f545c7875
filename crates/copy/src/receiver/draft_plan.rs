//! Facts about a file for an end that makes its draft.

use haul_engine::plan::ChunkLayout;
use haul_store::{DraftPlan, Time};
use haul_wire::manifest::{Attributes, Item};

pub(super) fn of(item: &Item, layout: &ChunkLayout, inplace: bool) -> DraftPlan {
    let Attributes { mtime, mode, uid, gid, .. } = item.attributes;
    let (size, chunk_bytes, mtime) = (layout.size(), layout.chunk_bytes(), Time { s: mtime.s, ns: mtime.ns });
    DraftPlan { inplace, size, chunk_bytes, mtime, mode, uid, gid }
}

//! Whether a file has holes.

use haul_store::Stat;

/// A file has holes when it takes less space than its size. A compressed file may have none: to look for them costs
/// little.
pub(crate) fn is_sparse(stat: &Stat) -> bool {
    stat.blocks.saturating_mul(512) < stat.size
}

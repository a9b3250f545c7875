//! How paths of sources are read.

use std::path::PathBuf;

use haul_store::ResolveOptions;

/// Says how the user's paths on this machine are understood.
pub(super) fn resolve_options(home: Option<PathBuf>, follow_links: bool) -> ResolveOptions {
    ResolveOptions { home, follow_links, ..ResolveOptions::default() }
}

//! rsync's words with rsync's meaning: rsync and haul run on the same trees, and what they leave and say is compared.
//!
//! `matrix` has a row for each flag. Its comparisons make `docs/use/rsync.md`. `moving` has what `--remove-source-files` must
//! never lose.

mod drafts;
mod emptying;
mod entries;
mod far;
mod in_the_way;
mod matrix;
mod moving;
mod stage;
mod table;

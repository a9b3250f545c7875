//! rsync's words with rsync's meaning: both run on equal trees, and results and output are compared.
//!
//! `matrix` has a row for each flag, and makes `docs/use/rsync.md`. `moving` has what `--remove-source-files` must never
//! lose.

mod drafts;
mod emptying;
mod entries;
mod far;
mod in_the_way;
mod matrix;
mod moving;
mod stage;
mod table;

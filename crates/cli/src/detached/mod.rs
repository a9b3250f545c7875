//! Detached copies, which go on when their terminal closes: their records, and `haul status`, `haul stop`, `haul wait`, `haul rate`, `haul log`.

pub mod commands;
pub mod flags;
mod follow;
pub mod rate;
pub mod record;

//! Detached copies go on when their terminal closes: records, and `haul status`, `stop`, `wait`, `rate`, `log`.

pub mod commands;
pub mod flags;
mod follow;
pub mod rate;
pub mod record;

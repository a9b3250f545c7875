//! A command's share of its process: standard output, the printing thread, signals, the exit code.

pub mod ending;
pub mod output;
pub mod signals;
pub mod speaker;

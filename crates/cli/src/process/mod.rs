//! What a command shares with its process: standard output, the thread that prints, signals, the exit code.

pub mod ending;
pub mod output;
pub mod signals;
pub mod speaker;

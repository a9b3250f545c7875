//! The flags of `haul complete`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// `haul complete`
#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// The shell that asks
    pub shell: Shell,
    /// The words up to the cursor, the first is the program. For bash: the line up to the cursor, and its end that readline
    /// replaces
    #[arg(last = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

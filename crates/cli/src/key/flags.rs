//! The flags of `haul key`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// `haul key`
#[derive(Debug, Args)]
pub struct Key {
    #[command(subcommand)]
    pub action: KeyAction,
}

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Makes a new key
    Generate(KeyGenerate),
    /// Shows the public half, as it goes into the daemon's list of authorised keys
    Show(KeyFile),
    /// Adds a daemon's key to the list of known hosts
    Trust(Trust),
}

#[derive(Debug, Args)]
pub struct KeyGenerate {
    /// The key file; ~/.config/haul/id_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Replace an existing key; hosts that know the old key will not accept the new one
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Trust {
    /// The daemon, as it is named in haul://HOST:PORT/path
    #[arg(value_name = "HOST[:PORT]", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    /// Its key, as 'haul serve' prints it: ed25519: and 64 hexadecimal digits
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The list; ~/.config/haul/known_hosts without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub known_hosts: Option<PathBuf>,
    /// Replace another key of the same daemon
    #[arg(long)]
    pub replace: bool,
}

#[derive(Debug, Args)]
pub struct KeyFile {
    /// The key file; ~/.config/haul/id_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

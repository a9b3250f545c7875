//! The flags of `haul config`.

use std::ffi::OsString;

use clap::Args;

/// `haul config`
#[derive(Debug, Args)]
#[command(after_help = CONFIG_HELP)]
pub struct ConfigArgs {
    /// What counts for copies from and to this host or named end; without it, for a host that the file does not name
    #[arg(value_name = "HOST|NAME")]
    pub host: Option<OsString>,
    /// Also list the settings that are not set
    #[arg(long)]
    pub all: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const CONFIG_HELP: &str = "\
The file is ~/.config/haul/config.toml ($XDG_CONFIG_HOME/haul/config.toml):
  [defaults]
  retry = \"2h\"
  [host.\"dtn1.example.org\"]
  port = 2222
  ssh-option = [\"Compression=no\"]
  [ends]
  tape = \"haul://dtn.example.org/archive\"
A setting has the name of its flag. Settings of a host win over defaults, and
the command line wins over both. tape:sub/dir is
haul://dtn.example.org/archive/sub/dir. A name here wins over a host of the
same name; ssh://tape/dir is always the host. haul-config(5) has the rest.";

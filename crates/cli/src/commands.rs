//! Every command: its line in the help, its flags, its function. A new command is a folder and an entry here.
//!
//! Help, man page and completions are made from these.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::settings::{self, Refused};
use crate::flags::filters::{self, Filter};
use crate::{
    agent, bench, complete, config, cp, detached, dial, diff, key, networks, pages, places, probe, record, serve,
};
use crate::{token, tune, verify, why};

/// Moves large data sets between machines: as simply as scp, at the speed of the wire.
#[derive(Debug, Parser)]
#[command(name = "haul", version, long_version = LONG_VERSION, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true, before_help = crate::cp::help::first_six(), after_help = "See 'haul cp --help' for copying, the main use.")]
pub struct Typed {
    #[command(subcommand)]
    pub command: Command,
}

/// Parses the command line with the settings of the user's file. The filters are those of `cp` or `diff`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(Typed, Vec<Filter>), Refused> {
    let matches = settings::matches(args.into_iter().collect(), Typed::command())?;
    let filters = filters::of_command(&matches);
    Ok((Typed::from_arg_matches(&matches).map_err(Refused::CommandLine)?, filters))
}

/// Makes the enum of commands and its dispatch from lines `Name(flags: Type) => function;`
macro_rules! commands {
    (|$filters:ident| $($(#[$about:meta])* $name:ident($flags:ident: $type:ty) => $run:expr;)*) => {
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$about])* $name($type),)*
        }

        impl Command {
            pub fn run(&self, $filters: &[Filter]) -> ExitCode {
                match self {
                    $(Self::$name($flags) => $run,)*
                }
            }
        }
    };
}

commands! { |filters|
    /// Copies files and trees between machines, encrypted, verified, resumable
    Cp(flags: Box<cp::flags::Cp>) => cp::run(flags, filters, Typed::command);
    /// Lists directories, here or at a host
    Ls(flags: Box<places::ls::Ls>) => places::ls::run(flags);
    /// Shows what files and trees take on their disk, here or at a host
    Du(flags: Box<places::du::Du>) => places::du::run(flags);
    /// Shows how much space file systems have, here or at a host
    Df(flags: Box<places::df::Df>) => places::df::run(flags);
    /// Shows what a file system knows of a file, here or at a host
    Stat(flags: Box<places::stat::Stat>) => places::stat::run(flags);
    /// Makes directories, here or at a host
    Mkdir(flags: Box<places::mkdir::Mkdir>) => places::mkdir::run(flags);
    /// Gives files and directories other names, on one host
    Mv(flags: Box<places::mv::Mv>) => places::mv::run(flags);
    /// Removes files and trees, here or at a host
    Rm(flags: Box<places::rm::Rm>) => places::rm::run(flags);
    /// Writes files to standard output, from here or from a host
    Cat(flags: Box<places::cat::Cat>) => places::cat::run(flags);
    /// Hashes files where they lie, as b3sum, sha256sum, md5sum and their like print it
    Hash(flags: Box<places::hash::Hash>) => places::hash::run(flags);
    /// Shows what copies that died have left in a directory, and removes it on request
    Clean(flags: Box<places::clean::Clean>) => places::clean::run(flags);
    /// Shows the copies that go on by themselves: how far they are, and how they ended
    Status(flags: detached::flags::Status) => detached::commands::status(flags);
    /// Stops a copy that goes on by itself
    Stop(flags: detached::flags::Stop) => detached::commands::stop(flags);
    /// Waits until copies that go on by themselves have ended, and ends as they did
    Wait(flags: detached::flags::Wait) => detached::commands::wait(flags);
    /// Changes the limit of the rate of a copy that goes on by itself, or shows it
    Rate(flags: detached::flags::Rate) => detached::rate::run(flags);
    /// Prints what a copy that goes on by itself has said
    Log(flags: detached::flags::Log) => detached::commands::log(flags);
    /// Shows what limited the last copy, where its time went, and what would help
    Why(flags: why::flags::Why) => why::run(flags);
    /// Checks a tree against a manifest written by 'haul cp --manifest-out'
    Verify(flags: Box<verify::flags::Verify>) => verify::run(flags);
    /// Shows what a copy of A to B would do: what is new, changed, extra; changes nothing
    Diff(flags: Box<diff::flags::DiffArgs>) => diff::run(flags, filters);
    /// Makes and shows the key that haul:// connections use
    Key(flags: key::flags::Key) => key::run(flags);
    /// Offers directories to haul://host/path, on one port and without ssh
    Serve(flags: serve::flags::Serve) => serve::run(flags);
    /// Makes a token, with which a program reads a directory of a daemon over the web
    Token(flags: token::flags::TokenArgs) => token::run(flags);
    /// Shows the network classes of this host, and how connections of an address are treated
    Networks(flags: networks::flags::NetworkFlags) => networks::run(flags);
    /// Measures what the path to a host carries, both ways, and says what would help; copies nothing
    Probe(flags: Box<probe::flags::Probe>) => probe::run(flags);
    /// Measures how fast each way of moving bytes is on this host, and what it costs
    Bench(flags: Box<bench::flags::Bench>) => bench::run(flags);
    /// Records a stream into a file, past the page cache, and says whether the disk kept up
    Record(flags: record::flags::Record) => record::run(flags);
    /// Shows what this host should be set to for a rate and a round trip, and why; sets it on request
    Tune(flags: tune::flags::Tune) => tune::run(flags);
    /// The far side of a copy; started over ssh, never by hand
    #[command(hide = true)]
    Agent(flags: agent::flags::Agent) => agent::run(flags);
    /// Connects for ssh, which starts it; never by hand
    #[command(hide = true)]
    Dial(flags: dial::flags::Dial) => dial::run(flags);
    /// Shows the settings of ~/.config/haul/config.toml, and where each comes from
    Config(flags: config::flags::ConfigArgs) => config::run(flags, Typed::command());
    /// Writes the completions for a shell to standard output
    Completions(flags: pages::flags::Completions) => pages::completions(flags.shell, Typed::command());
    /// How a word may go on: the completions of the shells ask it
    #[command(hide = true)]
    Complete(flags: complete::flags::CompleteArgs) => complete::run(flags, Typed::command());
    /// Writes the manual pages, made from the same definitions as this help
    #[command(hide = true)]
    Man(flags: pages::flags::Man) => pages::man(flags.directory.as_deref(), Typed::command());
}

const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("HAUL_COMMIT"), ", ", env!("HAUL_TARGET"), ")");

#[cfg(test)]
impl Typed {
    /// The command line as typed, without a file's settings.
    pub fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<(Self, Vec<Filter>), clap::Error> {
        let matches = Self::command().try_get_matches_from(args)?;
        Ok((Self::from_arg_matches(&matches)?, filters::of_command(&matches)))
    }
}

//! Parses the command line, puts the file's settings in front, and parses again.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use haul_job::Error;
use haul_transfer::Surroundings;

use crate::config::apply;
use crate::config::file::Config;
use crate::far_side::endpoint;

#[derive(Debug)]
pub enum Refused {
    /// A wrong command line, or a question for help.
    CommandLine(clap::Error),
    /// `json` is true if the command asked for JSON.
    Settings { error: Error, json: bool },
}

pub fn matches(args: Vec<OsString>, mut command: clap::Command) -> Result<ArgMatches, Refused> {
    let typed = command.try_get_matches_from_mut(&args).map_err(Refused::CommandLine)?;
    match with_settings(&args, &mut command, &typed) {
        Ok(both) => Ok(both.unwrap_or(typed)),
        Err(error) => {
            let json =
                typed.subcommand().is_some_and(|(_, sub)| matches!(sub.try_get_one::<bool>("json"), Ok(Some(true))));
            Err(Refused::Settings { error, json })
        }
    }
}

/// The ends' hosts, which alone decide a command's settings.
pub fn hosts_of(ends: &[OsString]) -> Vec<String> {
    ends.iter().flat_map(|end| apply::hosts_of(end)).collect()
}

/// `None`: the file has no setting for this command.
fn with_settings(
    args: &[OsString],
    command: &mut clap::Command,
    typed: &ArgMatches,
) -> Result<Option<ArgMatches>, Error> {
    let Some((name, of_sub)) = typed.subcommand() else { return Ok(None) };
    let Some(sub) = command.find_subcommand(name).filter(|sub| reaches(sub)) else { return Ok(None) };
    if of_sub.try_get_one::<bool>("no_config").is_ok_and(|no| no == Some(&true)) {
        return Ok(None);
    }
    let Some(path) = path() else { return Ok(None) };
    let config = Config::read(&path, cp_of(command))?;
    name_ends(&config);
    let chosen = apply::choose(&config, &apply::hosts(sub, of_sub), sub, &apply::typed_flags(sub, of_sub));
    if chosen.is_empty() {
        return Ok(None);
    }
    let settings = apply::arguments(&chosen, sub, of_sub);
    let line = args[..2].iter().cloned().chain(settings).chain(args[2..].iter().cloned());
    let blamed = cp_of(command).clone();
    match command.try_get_matches_from_mut(line) {
        Ok(matches) => Ok(Some(matches)),
        Err(error) => Err(apply::blame(&config, &chosen, &blamed).unwrap_or_else(|| {
            let what = format!("{} and the command line do not fit together", config.path.display());
            Error::new(haul_job::Fault::Usage, what).because(error.to_string().lines().next().unwrap_or_default())
        })),
    }
}

fn reaches(command: &clap::Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "ssh_config")
}

pub fn cp_of(command: &clap::Command) -> &clap::Command {
    command.find_subcommand("cp").expect("haul has a command cp")
}

pub fn name_ends(config: &Config) {
    endpoint::name_ends(config.ends.iter().map(|(name, end)| (name.clone(), end.means.clone())).collect());
}

pub fn path() -> Option<PathBuf> {
    Surroundings::of_process().config_file("config.toml")
}

#[cfg(test)]
pub mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Typed;
    use crate::config::file;

    pub fn cp() -> clap::Command {
        let mut command = Typed::command();
        command.build();
        cp_of(&command).clone()
    }

    pub fn read(text: &str) -> Config {
        file::tests::read(text).unwrap()
    }
}

//! Puts the file's settings in front of a command line, so one parser judges both.
//!
//! The command line wins over the host, the host over the defaults. A setting that excludes a typed flag is left out. A
//! repeated flag keeps all values, typed ones first.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use haul_job::{Endpoint, Error, Far, Fault};

use crate::config::file::{Config, Given, Setting};
use crate::far_side::endpoint;
use crate::flags::headings::{REACH, TRAVEL};

#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    pub setting: &'a Setting,
    /// The host of its section; `None` for a default.
    pub host: Option<&'a str>,
}

/// Pairs that exclude each other by meaning, beyond the flags' definitions.
const PAIRS: [(&str, &str); 5] = [
    ("verify", "no_flush"),
    ("verify", "trust_journal"),
    ("class", "floor"),
    ("background", "floor"),
    ("quiet", "verbose"),
];

/// Settings for these hosts. The last host, the target's, wins.
pub fn choose<'a>(config: &'a Config, hosts: &[String], command: &Command, typed: &[&Arg]) -> Vec<Chosen<'a>> {
    let of_hosts = hosts.iter().rev().filter_map(|host| config.hosts.get_key_value(host));
    let levels = of_hosts.map(|(host, settings)| (Some(host.as_str()), settings));
    let mut chosen: Vec<Chosen<'a>> = Vec::new();
    for (host, settings) in levels.chain([(None, &config.defaults)]) {
        let before: Vec<&Arg> = chosen.iter().filter_map(|chosen| flag(command, chosen.setting)).collect();
        let mut here = Vec::new();
        for setting in settings {
            let Some(arg) = flag(command, setting) else { continue };
            let is_list = matches!(arg.get_action(), ArgAction::Append);
            let yields = |other: &&Arg| (other.get_id() == arg.get_id() && !is_list) || excludes(command, arg, other);
            if !typed.iter().chain(&before).any(yields) {
                here.push(Chosen { setting, host });
            }
        }
        chosen.extend(here);
    }
    chosen
}

/// Other commands share `cp`'s flags for connections.
fn flag<'c>(command: &'c Command, setting: &Setting) -> Option<&'c Arg> {
    let arg = command.get_arguments().find(|arg| *arg.get_id() == setting.flag)?;
    let is_shared = matches!(arg.get_help_heading(), Some(TRAVEL | REACH));
    (command.get_name() == "cp" || is_shared).then_some(arg)
}

fn excludes(command: &Command, one: &Arg, other: &Arg) -> bool {
    let declared = |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|arg| arg.get_id() == b.get_id());
    let (a, b) = (one.get_id().as_str(), other.get_id().as_str());
    declared(one, other) || declared(other, one) || PAIRS.contains(&(a, b)) || PAIRS.contains(&(b, a))
}

pub fn typed_flags<'c>(command: &'c Command, matches: &ArgMatches) -> Vec<&'c Arg> {
    let is_typed = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    command.get_arguments().filter(is_typed).collect()
}

pub fn hosts(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let named = command.get_positionals().flat_map(|arg| {
        let names = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
        let is_host = arg.get_value_hint() == ValueHint::Hostname;
        names.flat_map(move |name| if is_host { hosts_named(name) } else { hosts_of(name) })
    });
    named.collect()
}

/// A host without a colon, or a named end.
pub fn hosts_named(name: &OsStr) -> Vec<String> {
    let mut with_colon = name.to_owned();
    if !name.as_encoded_bytes().contains(&b':') {
        with_colon.push(":");
    }
    hosts_of(&with_colon)
}

pub fn hosts_of(name: &OsStr) -> Vec<String> {
    let host = |far: &Far| match far {
        Far::Ssh { host, .. } | Far::Haul { host, .. } => host.clone(),
    };
    match endpoint::parse_hosts(name) {
        Ok((Endpoint { place, .. }, others)) => place.far().into_iter().chain(&others).map(host).collect(),
        Err(_) => Vec::new(),
    }
}

/// The settings as arguments. Typed values of a repeated flag come before them and in their own place, because ssh
/// takes an option's first value.
pub fn arguments(chosen: &[Chosen<'_>], command: &Command, matches: &ArgMatches) -> Vec<OsString> {
    let mut repeated = Vec::new();
    let mut settings = Vec::new();
    for Chosen { setting, .. } in chosen {
        let Some(arg) = flag(command, setting) else { continue };
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        if is_list && !repeated.contains(&arg.get_id()) {
            repeated.push(arg.get_id());
            let typed = matches.try_get_raw(arg.get_id().as_str()).ok().flatten();
            settings.extend(typed.into_iter().flatten().map(|value| argument(arg, Some(value))));
        }
        match &setting.given {
            Given::Switch(true) => settings.push(argument(arg, None)),
            Given::Switch(false) => {}
            Given::Values(values) => {
                settings.extend(values.iter().map(|value| argument(arg, Some(OsStr::new(value)))));
            }
        }
    }
    settings
}

fn argument(arg: &Arg, value: Option<&OsStr>) -> OsString {
    let mut text = OsString::new();
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => {
            text.push("--");
            text.push(long);
            value.inspect(|_| text.push("="));
        }
        (None, short) => {
            text.push("-");
            text.push(short.map(String::from).unwrap_or_default());
        }
    }
    text.push(value.unwrap_or_default());
    text
}

/// Finds the refused setting: tries each alone, then all together.
pub fn blame(config: &Config, chosen: &[Chosen<'_>], cp: &Command) -> Option<Error> {
    let parse = |some: &[Chosen<'_>]| {
        let args = arguments(some, cp, &ArgMatches::default());
        let line = [OsString::from("cp")].into_iter().chain(args).chain(["a".into(), "b".into()]);
        cp.clone().no_binary_name(false).try_get_matches_from(line).err()
    };
    let refused = |chosen: &Chosen<'_>, error: &clap::Error| {
        let what = format!("{}: cannot use {}", config.place(chosen.setting.line), chosen.setting.key);
        let why = error.to_string();
        let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Error::new(Fault::Usage, what).because(why)
    };
    let alone = chosen.iter().find_map(|one| parse(&[*one]).map(|error| refused(one, &error)));
    alone.or_else(|| {
        let (last, error) = (chosen.last()?, parse(chosen)?);
        Some(refused(last, &error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::tests::{cp, read};

    fn added(text: &str, line: &[&str]) -> String {
        let (config, mut cp) = (read(text), cp());
        let matches = cp.try_get_matches_from_mut([&["cp"], line].concat()).unwrap();
        let chosen = choose(&config, &hosts(&cp, &matches), &cp, &typed_flags(&cp, &matches));
        let args: Vec<String> =
            arguments(&chosen, &cp, &matches).into_iter().map(|arg| arg.into_string().unwrap()).collect();
        args.join(" ")
    }

    const FILE: &str = r#"
        [defaults]
        rate = "1Gbit"
        compress = true
        ssh-option = ["A=default"]
        [host.far]
        bwlimit = 500
        compress = false
        ssh-option = ["A=far", "B=far"]
        port = 2222
        [host.other]
        port = 3333
    "#;

    #[test]
    fn the_command_line_wins_over_the_host_and_the_host_over_the_defaults() {
        let table: [(&[&str], &str); 6] = [
            (&["a", "b"], "--rate=1Gbit --compress -oA=default"),
            (&["a", "far:b"], "--bwlimit=500 -oA=far -oB=far -P2222 -oA=default"),
            (&["-l", "9", "-P", "1", "me@far:a", "b"], "-oA=far -oB=far -oA=default"),
            (&["-o", "A=me", "-z", "a", "b"], "--rate=1Gbit -oA=me -oA=default"),
            (&["far:a", "other:b"], "-P3333 --bwlimit=500 -oA=far -oB=far -oA=default"),
            (&["-oX=y", "a", "ssh://far:22/b"], "--bwlimit=500 -oX=y -oA=far -oB=far -P2222 -oA=default"),
        ];
        for (line, expected) in table {
            assert_eq!(added(FILE, line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_setting_that_a_typed_flag_excludes_is_left_out() {
        let table: [(&str, &[&str], &str); 5] = [
            ("class = \"background\"", &["--by", "23:59"], ""),
            ("class = \"background\"", &["--floor", "1Gbit"], ""),
            ("verify = \"disk\"", &["--no-flush"], ""),
            ("quiet = true", &["--live"], ""),
            ("quiet = true", &["-z"], "--quiet"),
        ];
        for (text, typed, expected) in table {
            let line = [typed, &["a", "b"]].concat();
            assert_eq!(added(&format!("[defaults]\n{text}\n"), &line), expected, "{text} {typed:?}");
        }
    }

    #[test]
    fn the_setting_with_a_bad_value_is_named() {
        let blamed = |text: &str| {
            let config = read(text);
            let all: Vec<Chosen<'_>> = config.defaults.iter().map(|setting| Chosen { setting, host: None }).collect();
            blame(&config, &all, &cp()).map(|error| error.what)
        };
        let bad = |text: &str| blamed(text).expect(text);
        assert_eq!(bad("[defaults]\nlanes = 4\nretry = \"10\"\n"), "c.toml:3: cannot use retry");
        assert_eq!(bad("[defaults]\nrate = \"1Gbit\"\nbwlimit = 3\n"), "c.toml:3: cannot use bwlimit");
        assert_eq!(blamed(FILE), None);
    }
}

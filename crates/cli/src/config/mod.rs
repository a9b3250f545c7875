//! `haul config`: each setting and its origin. `settings.rs` applies them to all commands.

mod apply;
mod file;
pub mod flags;
pub mod settings;

use std::fmt::Write as _;
use std::process::ExitCode;

use haul_job::{Error, Fault};
use serde::Serialize;

use crate::config::apply::Chosen;
use crate::config::file::{Config, Given};
use crate::config::flags::ConfigArgs;
use crate::json::line::to_line;
use crate::process::{ending, output};
use crate::text::printable::printable;

pub fn run(typed: &ConfigArgs, definitions: clap::Command) -> ExitCode {
    match shown(typed, definitions) {
        Ok(shown) => {
            output::say(if typed.json { to_line(&shown) } else { text(&shown) });
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    event: &'static str,
    file: String,
    host: Option<String>,
    settings: Vec<Line>,
    ends: Vec<EndLine>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    value: Option<String>,
    from: String,
}

#[derive(Debug, Serialize)]
struct EndLine {
    name: String,
    means: String,
    from: String,
}

fn shown(typed: &ConfigArgs, mut command: clap::Command) -> Result<Shown, Error> {
    let path = settings::path().ok_or_else(|| {
        Error::new(Fault::Usage, "there is no place for a config.toml")
            .because("neither HOME nor XDG_CONFIG_HOME is set")
    })?;
    command.build();
    let cp = settings::cp_of(&command);
    let config = Config::read(&path, cp)?;
    settings::name_ends(&config);
    // Here all values are judged, those for other hosts too.
    for (host, settings) in
        config.hosts.iter().map(|(host, all)| (Some(host.as_str()), all)).chain([(None, &config.defaults)])
    {
        let all: Vec<Chosen<'_>> = settings.iter().map(|setting| Chosen { setting, host }).collect();
        if let Some(error) = apply::blame(&config, &all, cp) {
            return Err(error);
        }
    }
    let hosts = typed.host.as_deref().map(apply::hosts_named).unwrap_or_default();
    let chosen = apply::choose(&config, &hosts, cp, &[]);
    Ok(Shown {
        event: "config",
        file: printable(path.as_os_str().as_encoded_bytes()),
        host: typed.host.as_ref().map(|host| printable(host.as_encoded_bytes())),
        settings: file::settable(cp).filter_map(|arg| line(&config, &chosen, arg, typed.all)).collect(),
        ends: (config.ends.iter())
            .map(|(name, end)| EndLine {
                name: name.clone(),
                means: printable(&end.written),
                from: config.place(end.line),
            })
            .collect(),
    })
}

fn line(config: &Config, chosen: &[Chosen<'_>], arg: &clap::Arg, all: bool) -> Option<Line> {
    let name = file::word(arg);
    let mine: Vec<&Chosen<'_>> = chosen.iter().filter(|chosen| chosen.setting.flag == *arg.get_id()).collect();
    if let Some(first) = mine.first() {
        let from = mine.iter().map(|chosen| {
            let place = config.place(chosen.setting.line);
            chosen.host.map_or(place.clone(), |host| format!("{place}, host {}", printable(host)))
        });
        let from: Vec<String> = from.collect();
        let value = match &first.setting.given {
            Given::Switch(on) => on.to_string(),
            Given::Values(_) => {
                let values = mine.iter().filter_map(|chosen| match &chosen.setting.given {
                    Given::Values(values) => Some(values.join(" ")),
                    Given::Switch(_) => None,
                });
                printable(values.collect::<Vec<_>>().join(" "))
            }
        };
        return Some(Line { name, value: Some(value), from: from.join("; ") });
    }
    let built_in = arg.get_default_values().first().filter(|_| arg.get_action().takes_values());
    let value = built_in.map(|value| value.to_string_lossy().into_owned());
    (all || value.is_some()).then(|| Line { name, value, from: "built in".to_owned() })
}

fn text(shown: &Shown) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "file  {}", shown.file);
    if let Some(host) = &shown.host {
        let _ = writeln!(text, "for   {host}");
    }
    let width = |names: &mut dyn Iterator<Item = usize>| names.max().unwrap_or(0);
    let names = width(&mut shown.settings.iter().map(|line| line.name.len()));
    let values = width(&mut shown.settings.iter().map(|line| line.value.as_deref().unwrap_or("-").chars().count()));
    let _ = writeln!(text, "\nsettings");
    for Line { name, value, from } in &shown.settings {
        let value = value.as_deref().unwrap_or("-");
        let _ = writeln!(text, "  {name:names$}  {value:values$}  {from}");
    }
    if !shown.ends.is_empty() {
        let names = width(&mut shown.ends.iter().map(|end| end.name.len() + 1));
        let means = width(&mut shown.ends.iter().map(|end| end.means.chars().count()));
        let _ = writeln!(text, "\nends (a name here wins over a host of the same name; ssh://NAME/ is the host)");
        for EndLine { name, means: root, from } in &shown.ends {
            let _ = writeln!(text, "  {:names$}  {root:means$}  {from}", format!("{name}:"));
        }
    }
    text
}

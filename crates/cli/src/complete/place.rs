//! Hosts known by name, and names at a far side.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use clap::FromArgMatches as _;
use haul_job::{Carriage, Endpoint, Event, Far, Observer, Place};
use haul_transfer::place::{self, Kind, List, Piece, Question, Request, Told, Verb};
use haul_transfer::ssh_names::{self, FarName, Wanted};
use haul_transfer::{Surroundings, trusted_keys};

use crate::complete::harmless::is_harmless;
use crate::complete::offer::{Files, MAX_OFFERS, Offer, Offers};
use crate::complete::slot::Line;
use crate::complete::ssh_files;
use crate::config::settings;
use crate::far_side::endpoint;
use crate::far_side::flags::Reach;
use crate::flags::headings::REACH;
use crate::text::printable::printable;

/// How long a person who pressed Tab waits for a far side.
const PATIENCE: Duration = Duration::from_secs(4);

pub fn offers(line: &Line<'_>, typed: &OsStr) -> Offers {
    let only = |files| Offers { files, words: Vec::new() };
    let Some(text) = typed.to_str() else { return only(Files::Any) };
    let words = |words: Option<Vec<String>>| words.unwrap_or_default().into_iter().map(plain).collect();
    match endpoint::split_path(text) {
        Some((root, path)) => Offers { files: Files::None, words: words(beneath(line, root, path)) },
        None if text.contains("://") => Offers { files: Files::None, words: words(places(line, text)) },
        None if text.contains('/') => only(Files::Any),
        None => Offers { files: Files::Any, words: words(places(line, text)) },
    }
}

pub fn hosts(line: &Line<'_>, typed: &OsStr) -> Vec<Offer> {
    let Some((typed, known)) = typed.to_str().zip(Known::of(line, ".")) else { return Vec::new() };
    let daemons = known.daemons().into_iter().filter(|_| line.reaches()).map(|name| format!("haul://{name}"));
    known.hosts(typed).chain(daemons).map(plain).collect()
}

fn plain(word: String) -> Offer {
    Offer { word, about: String::new() }
}

fn places(line: &Line<'_>, typed: &str) -> Option<Vec<String>> {
    let known = Known::of(line, ".")?;
    let hosts = known.hosts(typed).map(|host| host + ":");
    let daemons = known.daemons().into_iter().map(|name| format!("haul://{name}/"));
    let ends = endpoint::names_of_ends().into_iter().map(|name| name + ":");
    Some(hosts.chain(daemons).chain(ends).filter(|place| printable(place) == *place).collect())
}

/// `root` is `host:` or `haul://host/`. `None`: nothing can be asked there.
fn beneath(line: &Line<'_>, root: &str, path: &str) -> Option<Vec<String>> {
    let begins = path.rfind('/').map_or(0, |slash| slash + 1);
    let (directory, begun) = path.split_at(begins);
    let above = format!("{root}{directory}");
    let known = Known::of(line, &above)?;
    let (Endpoint { place, path }, _) = endpoint::parse_hosts(OsStr::new(&above)).ok()?;
    let is_uri = root.contains("://");
    let begun_name = match begun {
        "" => Vec::new(),
        _ if is_uri => endpoint::parse(OsStr::new(&format!("{root}{begun}"))).ok()?.path,
        _ => begun.as_bytes().to_vec(),
    };
    let is_top = directory.is_empty() && !is_uri;
    let names = known
        .names(place.far()?.clone(), path, &begun_name)?
        .into_iter()
        .filter(|name| is_only_a_name(&name.name, is_top));
    let words = names.filter_map(|name| {
        let rest = str::from_utf8(name.name.strip_prefix(begun_name.as_slice())?).ok()?;
        let rest = if is_uri { rest.replace('%', "%25") } else { rest.to_owned() };
        Some(format!("{above}{begun}{rest}{}", if name.is_directory { "/" } else { "" }))
    });
    Some(words.collect())
}

/// Safe for terminals and haul: wildcards would mean other names, too, and `host::x` a module of rsync.
fn is_only_a_name(name: &[u8], is_top: bool) -> bool {
    let is_plain = printable(name).as_bytes() == name && !name.iter().any(|byte| b"*?[".contains(byte));
    is_plain && !(is_top && (name.starts_with(b":") || name == b"~"))
}

/// How a far side is reached, by typed flags and config.toml.
struct Known {
    reach: Reach,
    surroundings: Surroundings,
    /// True if asking runs no program that was only typed.
    is_harmless: bool,
}

impl Known {
    /// Applies the settings of `end`'s host. `None`: flags or settings make no sense, which the command itself will
    /// say.
    fn of(line: &Line<'_>, end: &str) -> Option<Self> {
        let cp = line.root.find_subcommand("cp")?;
        let mut words: Vec<OsString> = vec!["haul".into(), "cp".into()];
        for (arg, value) in &line.given {
            let is_shared =
                arg.get_help_heading() == Some(REACH) && cp.get_arguments().any(|of_cp| of_cp.get_id() == arg.get_id());
            let name = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, Some(short)) => format!("-{short}"),
                (None, None) => continue,
            };
            if is_shared {
                words.push(name.into());
                words.extend(arg.get_action().takes_values().then(|| value.clone()));
            }
        }
        words.extend(["--".into(), end.into(), ".".into()]);
        let matches = settings::matches(words, line.root.clone()).ok()?;
        let reach = Reach::from_arg_matches(matches.subcommand_matches("cp")?).ok()?;
        let surroundings = Surroundings::of_process();
        let is_harmless = is_harmless(line, surroundings.home.as_deref());
        Some(Self { reach, surroundings, is_harmless })
    }

    fn hosts(&self, typed: &str) -> impl Iterator<Item = String> {
        let user = typed.rfind('@').map_or("", |at| &typed[..=at]).to_owned();
        let hosts = ssh_files::hosts(self.surroundings.home.as_deref(), self.reach.ssh_config.as_deref());
        let bracketed = |host: String| if host.contains(':') { format!("[{host}]") } else { host };
        hosts.into_iter().map(move |host| format!("{user}{}", bracketed(host)))
    }

    fn daemons(&self) -> Vec<String> {
        let own = || self.surroundings.config_file("known_hosts");
        let Some(file) = self.reach.known_hosts.clone().or_else(own) else { return Vec::new() };
        let usual = format!(":{}", endpoint::HAUL_PORT);
        let names = trusted_keys::names(&file).into_iter();
        names.map(|name| name.strip_suffix(&usual).map(str::to_owned).unwrap_or(name)).collect()
    }

    fn names(&self, far: Far, directory: Vec<u8>, begun: &[u8]) -> Option<Vec<FarName>> {
        let (carriage, ssh) = crate::far_side::options::ways(&self.reach).ok()?;
        let until = Instant::now() + PATIENCE;
        match far {
            Far::Ssh { .. } if !self.is_harmless => None,
            Far::Ssh { .. } => {
                let wanted = Wanted { directory: &directory, begun, most: MAX_OFFERS, until };
                ssh_names::list(&far, (&ssh, &carriage), &self.surroundings, &wanted)
            }
            Far::Haul { .. } => {
                let list = List { recursive: false, hidden: begun.starts_with(b"."), itself: false, facts: true };
                let question = Question { verb: Verb::List(list), paths: vec![directory] };
                let carriage = Carriage { timeout: PATIENCE, ..carriage };
                Some(ask(
                    Request { place: Place::Far(far), question, carriage, ssh },
                    &self.surroundings,
                    begun.to_vec(),
                    until,
                ))
            }
        }
    }
}

/// Asks a daemon; names after `until` are left out.
fn ask(request: Request, surroundings: &Surroundings, begun: Vec<u8>, until: Instant) -> Vec<FarName> {
    haul_transfer::hide_memory();
    let (sender, receiver) = sync_channel(MAX_OFFERS);
    let surroundings = surroundings.clone();
    // A host that takes no connection keeps this thread, and the process does not wait for it.
    let asks = move || {
        let mut take = |piece| {
            let Piece::Line(Told::Entry { path, facts }) = piece else { return ControlFlow::Continue(()) };
            if !path.as_bytes().starts_with(&begun) {
                return ControlFlow::Continue(());
            }
            let is_directory = facts.is_some_and(|facts| facts.kind == Kind::Directory);
            match sender.try_send(FarName { name: path.as_bytes().to_vec(), is_directory }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let _ = place::ask(&request, &haul_transfer::ways(&surroundings), Arc::new(Silent { until }), &mut take);
    };
    if thread::Builder::new().name("ask".into()).spawn(asks).is_err() {
        return Vec::new();
    }
    let left = || until.saturating_duration_since(Instant::now());
    std::iter::from_fn(|| receiver.recv_timeout(left()).ok()).take(MAX_OFFERS).collect()
}

struct Silent {
    until: Instant,
}

impl Observer for Silent {
    fn on_event(&self, _event: &Event) {}

    fn interrupted(&self) -> bool {
        Instant::now() >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_a_name_is_left_out() {
        for name in ["a b", "a'b", "a:b", "größe", "-x", "~x", r"a\b", "$(id)"] {
            assert!(is_only_a_name(name.as_bytes(), true), "{name}");
        }
        for name in [&b"a\x1b[2J"[..], b"a\nb", b"\xff", b"a*", b"a[1]", "a\u{202e}b".as_bytes(), b":a", b"~"] {
            assert!(!is_only_a_name(name, true), "{}", name.escape_ascii());
        }
        assert!(is_only_a_name(b":a", false));
    }
}

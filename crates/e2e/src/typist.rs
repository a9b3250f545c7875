//! Types a page's commands at terminals, one for each host, and copies keys between them.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use crate::page::{Seen, Step};
use crate::{Host, Running, eventually};

/// The terminals.
#[derive(Debug)]
pub struct Typist<'a> {
    hosts: Vec<(&'a str, &'a Host)>,
    running: Vec<Running>,
    keys: Vec<Option<String>>,
}

/// A program silent by then has failed.
const FIRST_WORDS_LIMIT: Duration = Duration::from_secs(15);

/// Wide enough for closing lines, and no wider than a page.
const SIZE: &str = "stty cols 200 rows 50";

static KEY: LazyLock<Regex> = LazyLock::new(|| Regex::new("ed25519:[A-Za-z0-9+/=_-]{20,}").expect("a constant"));

impl<'a> Typist<'a> {
    /// A terminal for each prompt.
    pub fn at(hosts: &[(&'a str, &'a Host)]) -> Self {
        Self { hosts: hosts.to_vec(), running: Vec::new(), keys: vec![None; hosts.len()] }
    }

    /// Types one command, and looks after its end; at a daemon, after its first words.
    #[track_caller]
    pub fn types(&mut self, step: &Step) -> Seen {
        let at = self.hosts.iter().position(|(prompt, _)| *prompt == step.host);
        let at = at.unwrap_or_else(|| panic!("there is no host for the prompt {}$", step.host));
        let command = self.with_key(at, &step.command);
        let terminal = self.hosts[at].1.run("script").args(["-qec", &format!("{SIZE}; {command}"), "/dev/null"]);
        let seen = if goes_on(&command) {
            let running = terminal.start();
            let lines = step.shown.len().max(1);
            eventually("the daemon speaks", FIRST_WORDS_LIMIT, || {
                Seen::of(&running.stdout_so_far()).lines.len() >= lines
            });
            let mut seen = Seen::of(&running.stdout_so_far());
            self.running.push(running);
            seen.lines.truncate(lines);
            seen
        } else {
            let run = terminal.run();
            Seen { status: run.code(), ..Seen::of(&run.stdout) }
        };
        let key = seen.lines.iter().rev().find_map(|line| KEY.find(line));
        self.keys[at] = key.map(|key| key.as_str().to_owned()).or(self.keys[at].take());
        seen
    }

    /// Ends what goes on.
    pub fn ends_daemons(&mut self) {
        self.running.clear();
    }

    /// `ed25519:…` is the key that the other terminal showed last.
    fn with_key(&self, at: usize, command: &str) -> String {
        let other = self.keys.iter().enumerate().rev().find_map(|(of, key)| key.as_ref().filter(|_| of != at));
        match other {
            Some(key) => command.replace("ed25519:…", key),
            None => command.to_owned(),
        }
    }
}

fn goes_on(command: &str) -> bool {
    let is_daemon = command.starts_with("haul serve") && !command.contains("--check");
    is_daemon || command.starts_with("haul record")
}

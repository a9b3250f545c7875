//! EXAMPLES of the manual pages. Those of `haul cp` also begin its help.

use crate::cp::help::{Example, FIRST_SIX};

const OF_COMMANDS: [(&str, &[Example]); 27] = [
    (
        "ls",
        &[
            ("haul ls -lh host:data", "names, sizes, times and owners"),
            ("haul ls -R --json host:data", "a whole tree, an object a line"),
        ],
    ),
    ("du", &[("haul du -sh host:data/run42 host:data/run43", "one sum for each tree")]),
    ("df", &[("haul df -h host:data haul://dtn/", "what is free before a copy begins")]),
    ("stat", &[("haul stat host:data/run42/a.dat", "what its file system knows of a file")]),
    ("mkdir", &[("haul mkdir -p host:data/2026/run42", "with the directories above it")]),
    ("mv", &[("haul mv host:data/run42 host:data/run42-old", "another name on the same host")]),
    (
        "rm",
        &[("haul rm -rn host:data/run42-old", "what would go"), ("haul rm -r host:data/run42-old", "and it is gone")],
    ),
    ("cat", &[("haul cat host:data/run42/log.txt", "to standard output")]),
    (
        "status",
        &[
            ("haul status", "the copies that go on by themselves"),
            ("haul status --json 3", "one of them, for a program"),
        ],
    ),
    ("stop", &[("haul stop 3", "the same command goes on later")]),
    ("wait", &[("haul wait 3", "ends as copy 3 ends"), ("haul wait", "for all copies that go on now")]),
    (
        "rate",
        &[
            ("haul rate 3 200Mbit", "copy 3 goes on at this rate at most"),
            ("haul rate 3 \"08:00-18:00 200Mbit, else 5Gbit\"", "by the time of day"),
            ("haul rate 3 none", "without a limit"),
            ("haul rate 3", "which limit it has"),
        ],
    ),
    ("log", &[("haul log 3", "what it has said"), ("haul log -f 3", "and what it says from now on")]),
    (
        "why",
        &[
            ("haul why", "the last copy"),
            ("haul why --list", "the last twenty"),
            ("haul why 2", "the one before the last"),
        ],
    ),
    (
        "verify",
        &[
            ("haul cp --manifest-out run42.b3 run42 host:data/", "copy, and keep a list of hashes"),
            ("haul verify run42.b3 /data", "there, or years later"),
        ],
    ),
    (
        "hash",
        &[
            ("haul hash host:data/run42", "hashes of what is there; the files stay there"),
            ("haul hash -m host:data/run42 > run42.b3", "a manifest, with the hash of the tree"),
        ],
    ),
    (
        "diff",
        &[
            ("haul diff run42 host:data/run42", "what a copy would do, by sizes and times"),
            ("haul diff -c run42 host:data/run42", "what differs in content, by hashes"),
        ],
    ),
    ("clean", &[("haul clean host:data", "what dead copies left")]),
    ("key", &[("haul key show", "the line for the list of a daemon")]),
    (
        "serve",
        &[
            ("haul serve --authorized-keys /etc/haul/authorized_keys", "haul:// for those whose keys are in the list"),
            ("haul serve --http --public /data/public", "the same tree for browsers and curl"),
        ],
    ),
    ("token", &[("haul token --help", "tokens for readers over the web")]),
    (
        "networks",
        &[("haul networks", "the classes of this host"), ("haul networks 203.0.113.7", "how that address is treated")],
    ),
    ("probe", &[("haul probe host", "what the path carries, both ways")]),
    ("bench", &[("haul bench --source zero --sink memory", "how fast this host moves bytes")]),
    (
        "tune",
        &[
            ("haul tune --rate 10Gbit --rtt 100ms", "what this host should be set to"),
            ("haul tune --apply --rate 10Gbit --rtt 100ms", "and set it"),
        ],
    ),
    ("config", &[("haul config", "each setting, and where it comes from")]),
    ("completions", &[("haul completions bash", "for ~/.local/share/bash-completion/completions/haul")]),
];

pub fn of_page(page: &str) -> &'static [Example] {
    match page {
        "haul" | "haul-cp" => &FIRST_SIX,
        _ => {
            let name = page.strip_prefix("haul-").unwrap_or(page);
            OF_COMMANDS.iter().find(|(command, _)| *command == name).map_or(&[], |(_, examples)| examples)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::commands::Typed;

    #[test]
    fn each_example_is_a_command_line_that_is_understood() {
        let all = FIRST_SIX.iter().chain(OF_COMMANDS.iter().flat_map(|(_, examples)| *examples));
        for (line, words) in all {
            let typed = Typed::try_parse_from(shlex::split(line).unwrap());
            let is_help = |error: &clap::Error| !error.use_stderr();
            assert!(typed.as_ref().err().is_none_or(is_help), "{line}: {}", typed.unwrap_err());
            assert!(!words.ends_with('.'), "{words}");
        }
        let command = Typed::command();
        for (name, _) in OF_COMMANDS {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    /// clap wraps at the terminal: text with its own line breaks would break twice.
    #[test]
    fn no_text_of_the_help_wraps_twice() {
        let mut haul = Typed::command();
        haul.build();
        let known = |command: &&clap::Command| OF_COMMANDS.iter().any(|(name, _)| *name == command.get_name());
        let others = haul.get_subcommands().filter(|command| known(command) || command.get_name() == "cp");
        for command in std::iter::once(&haul).chain(others) {
            let texts = [command.get_before_help(), command.get_after_help(), command.get_after_long_help()];
            for line in texts
                .into_iter()
                .flatten()
                .flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
            {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
    }
}

//! `haul complete WORD`: what a place may go on with. The completions of the shells ask it (`pages.rs`).
//!
//! ```text
//!   ho             hosts of ssh's configuration and known hosts, known daemons, named ends
//!   host:da        names at that host, over ssh in batch mode: no question is asked, and a running ControlMaster is used
//!   haul://dtn/da  names at that daemon
//!   tape:da        names at that named end
//! ```
//! Files of this machine are for the shell. Whatever fails, there is nothing to offer.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use haul_transfer::Surroundings;

use crate::args::CompleteArgs;
use crate::config;
use crate::output;

/// Whoever pressed the key waits no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer of a host, and the longest file that is looked into.
const MAX_BYTES: u64 = 1 << 20;

/// At most so many words are offered.
const MAX_OFFERED: usize = 4096;

pub fn run(typed: &CompleteArgs) -> ExitCode {
    let mut text = Vec::new();
    for word in offers(&typed.word.to_string_lossy(), &Known::here()).into_iter().take(MAX_OFFERED) {
        let _ = writeln!(text, "{word}");
    }
    output::say(text);
    ExitCode::SUCCESS
}

/// What this user knows by name.
#[derive(Default)]
struct Known {
    ssh_hosts: Vec<String>,
    /// As they stand behind `haul://`.
    daemons: Vec<String>,
    /// Name, and what stands for it.
    ends: Vec<(String, String)>,
}

impl Known {
    fn here() -> Self {
        let surroundings = Surroundings::of_process();
        let of_home = |name: &str| surroundings.home.as_ref().map(|home| home.join(".ssh").join(name));
        let mut ssh_hosts = Vec::new();
        for config in [of_home("config"), Some("/etc/ssh/ssh_config".into())].into_iter().flatten() {
            ssh_hosts.extend(hosts_of_config(&text_of(&config)));
        }
        for known in [of_home("known_hosts"), Some("/etc/ssh/ssh_known_hosts".into())].into_iter().flatten() {
            ssh_hosts.extend(hosts_of_known_hosts(&text_of(&known)));
        }
        let daemons =
            surroundings.config_file("known_hosts").map(|file| daemons_of(&text_of(&file))).unwrap_or_default();
        Self { ssh_hosts, daemons, ends: config::ends() }
    }
}

fn text_of(file: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = fs::File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names without wildcards (ssh_config(5), Host).
fn hosts_of_config(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let line = line.trim();
        let (key, names) = line.split_once(|c: char| c.is_ascii_whitespace() || c == '=')?;
        key.eq_ignore_ascii_case("host").then_some(names)
    });
    let is_plain = |name: &&str| !name.contains(['*', '?', '!', '"']);
    names.flat_map(str::split_ascii_whitespace).filter(is_plain).map(str::to_owned).collect()
}

/// Names that are not hashed (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
fn hosts_of_known_hosts(text: &str) -> Vec<String> {
    let fields = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let names = fields.filter(|field| !field.starts_with(['#', '@', '|'])).flat_map(|field| field.split(','));
    // A host at another port is not reached by its name alone.
    names.filter(|name| !name.contains(['*', '?', '!', '['])).map(str::to_owned).collect()
}

fn daemons_of(text: &str) -> Vec<String> {
    let fields = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let names = fields.filter(|field| !field.starts_with('#'));
    names.map(|name| name.strip_suffix(":7632").unwrap_or(name).to_owned()).collect()
}

/// Whole words that begin like this one.
fn offers(word: &str, known: &Known) -> Vec<String> {
    let mut found = match word.strip_prefix("haul://").map(|rest| rest.split_once('/')) {
        Some(Some((host, path))) => at_place(&format!("haul://{host}/"), path),
        Some(None) => Vec::new(),
        None => match word.split_once(':') {
            Some((host, _)) if host.contains('/') => Vec::new(),
            Some((name, path)) => match known.ends.iter().find(|(end, _)| end == name) {
                Some((_, place)) => at_end(name, place, path),
                None => at_ssh(name, path),
            },
            None => Vec::new(),
        },
    };
    let (user, host) = word.rsplit_once('@').map_or(("", word), |(user, host)| (&word[..user.len() + 1], host));
    if !word.contains(['/', ':']) {
        let of_host = |name: &String| name.starts_with(host);
        found.extend(known.ssh_hosts.iter().filter(|name| of_host(name)).map(|name| format!("{user}{name}:")));
        found.extend(known.ends.iter().map(|(name, _)| format!("{name}:")).filter(|name| name.starts_with(word)));
    }
    found.extend(known.daemons.iter().map(|name| format!("haul://{name}/")).filter(|url| url.starts_with(word)));
    found.retain(|offered| offered != word);
    found.sort();
    found.dedup();
    found
}

/// The directory that a path names so far, and the beginning of a name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').map_or(("", path), |(directory, name)| (&path[..directory.len() + 1], name))
}

fn at_end(name: &str, place: &str, path: &str) -> Vec<String> {
    let root = format!("{}/", place.trim_end_matches('/'));
    let found = match place.strip_prefix("haul://") {
        Some(_) => at_place(&root, path),
        None => match root.split_once(':') {
            Some((host, directory)) => at_ssh(host, &format!("{directory}{path}")),
            None => return Vec::new(),
        },
    };
    found.iter().filter_map(|found| Some(format!("{name}:{}", found.strip_prefix(&root)?))).collect()
}

/// Names at a daemon, as `haul ls` has them.
fn at_place(root: &str, path: &str) -> Vec<String> {
    let (directory, name) = split(path);
    let mut list = Command::new("/proc/self/exe");
    list.args(["ls", "--json", "--all", "--timeout", "5", "--", &format!("{root}{directory}")]);
    let text = answer(&mut list);
    let entries = text.lines().filter_map(|line| {
        let entry: serde_json::Value = serde_json::from_str(line).ok()?;
        let slash = if entry["kind"] == "directory" { "/" } else { "" };
        Some(format!("{}{slash}", split(entry["path"].as_str()?.trim_end_matches('/')).1))
    });
    entries.filter(|entry| fits(entry, name)).map(|entry| format!("{root}{directory}{entry}")).collect()
}

/// Names at a host, as scp's completion asks for them.
fn at_ssh(host: &str, path: &str) -> Vec<String> {
    if host.is_empty() || host.starts_with('-') {
        return Vec::new();
    }
    let (directory, name) = split(path);
    let mut list = Command::new("ssh");
    list.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4", "-o", "ClearAllForwardings=yes", "--", host]);
    list.arg(format!("LC_ALL=C ls -1Ap -- {}", shell_word(if directory.is_empty() { "." } else { directory })));
    let text = answer(&mut list);
    text.lines().filter(|entry| fits(entry, name)).map(|entry| format!("{host}:{directory}{entry}")).collect()
}

fn fits(entry: &str, begun: &str) -> bool {
    entry.starts_with(begun) && (begun.starts_with('.') || !entry.starts_with('.')) && !entry.contains(char::is_control)
}

/// One word for a POSIX shell, in which only `~/` means what it does there.
fn shell_word(path: &str) -> String {
    let (home, rest) = path.strip_prefix("~/").map_or(("", path), |rest| ("~/", rest));
    format!("{home}'{}'", rest.replace('\'', "'\\''"))
}

/// What a program prints; nothing when it takes too long.
fn answer(command: &mut Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return String::new() };
    let (says, said) = mpsc::sync_channel(1);
    let output = child.stdout.take();
    let reads = move || {
        let mut bytes = Vec::new();
        let _ = output.map(|output| output.take(MAX_BYTES).read_to_end(&mut bytes));
        let _ = says.send(bytes);
    };
    let started = std::thread::Builder::new().spawn(reads);
    let bytes = started.ok().and_then(|_| said.recv_timeout(PATIENCE).ok()).unwrap_or_default();
    let _ = child.kill();
    let _ = child.wait();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The script of a shell: flags as clap makes it, and places from [`offers`].
pub fn with_places(shell: clap_complete::Shell, flags: &[u8]) -> Vec<u8> {
    let flags = String::from_utf8_lossy(flags);
    match shell {
        clap_complete::Shell::Bash => format!("{flags}\n{BASH}").into_bytes(),
        clap_complete::Shell::Zsh => {
            let is_place = |line: &str| line.contains("paths -- ") || line.contains("::tree -- ");
            let with =
                |line: &str| if is_place(line) { line.replace(":_files'", ":_haul_places'") } else { line.into() };
            let lines: Vec<String> = flags.lines().map(with).collect();
            // The function has to be there before the last lines of the script, which may call it.
            let head = lines.first().cloned().unwrap_or_default();
            format!("{head}\n{ZSH}\n{}\n", lines[1..].join("\n")).into_bytes()
        }
        clap_complete::Shell::Fish => format!("{flags}\n{FISH}").into_bytes(),
        _ => flags.into_owned().into_bytes(),
    }
}

const BASH: &str = r#"_haul_places() {
    local word=${COMP_LINE:0:COMP_POINT}
    word=${word##*[[:space:]]}
    case ${COMP_WORDS[1]} in
        cp|ls|du|stat|cat|mkdir|mv|rm|hash|clean|verify|probe) ;;
        *) _haul "$@"; return ;;
    esac
    if [[ $COMP_CWORD -lt 2 || $word == -* || ${COMP_WORDS[COMP_CWORD-1]} == -* ]]; then
        _haul "$@"
        return
    fi
    local IFS=$'\n' offered
    offered=($(haul complete -- "$word" 2>/dev/null))
    # Readline replaces what stands behind the last colon.
    if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
        offered=("${offered[@]#"${word%:*}:"}")
    fi
    [[ ${#offered[@]} -gt 0 ]] && compopt -o nospace
    COMPREPLY=("${offered[@]}")
    if [[ $word != *:* ]]; then
        local file
        while read -r file; do
            if [[ -d $file ]]; then file+=/; compopt -o nospace; fi
            COMPREPLY+=("$file")
        done < <(compgen -f -- "$word")
    fi
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _haul_places -o nosort -o bashdefault -o default haul
else
    complete -F _haul_places -o bashdefault -o default haul
fi
"#;

const ZSH: &str = r#"_haul_places() {
    local -a offered
    offered=(${(f)"$(haul complete -- "$PREFIX" 2>/dev/null)"})
    (( $#offered )) && compadd -S '' -- $offered
    [[ $PREFIX == *:* ]] || _files
}
"#;

const FISH: &str = r#"complete -c haul -n "__fish_seen_subcommand_from cp ls du stat cat mkdir mv rm hash clean verify probe" -a "(haul complete -- (commandline -ct))"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            ssh_hosts: ["dtn1", "dtn2", "login"].map(String::from).into(),
            daemons: vec!["dtn3".into(), "dtn4:7000".into()],
            ends: vec![("data".into(), "haul://dtn3/data".into())],
        }
    }

    #[test]
    fn hosts_daemons_and_named_ends_begin_a_place() {
        let check = |word: &str, expected: &[&str]| assert_eq!(offers(word, &known()), expected, "{word}");
        check("", &["data:", "dtn1:", "dtn2:", "haul://dtn3/", "haul://dtn4:7000/", "login:"]);
        check("d", &["data:", "dtn1:", "dtn2:"]);
        check("me@dtn", &["me@dtn1:", "me@dtn2:"]);
        check("ha", &["haul://dtn3/", "haul://dtn4:7000/"]);
        check("haul://dtn4", &["haul://dtn4:7000/"]);
        check("./d", &[]);
        check("dir/a:b", &[]);
    }

    #[test]
    fn names_without_wildcards_are_taken_from_the_files_of_ssh() {
        let config = "Host dtn1 dtn2\n  HostName x\nhost=login\nHost * !no ?\nHostName never\n# Host not\n";
        assert_eq!(hosts_of_config(config), ["dtn1", "dtn2", "login"]);
        let known =
            "dtn1,192.0.2.1 ssh-ed25519 A\n|1|x|y ssh-rsa B\n[dtn2]:22 ssh-rsa C\n@revoked z ssh-rsa D\n# e f\n";
        assert_eq!(hosts_of_known_hosts(known), ["dtn1", "192.0.2.1"]);
        assert_eq!(daemons_of("dtn:7632 ed25519:a\n[::1]:70 ed25519:b\n"), ["dtn", "[::1]:70"]);
    }

    #[test]
    fn a_path_is_one_word_for_the_far_shell_and_hidden_names_are_asked_for() {
        assert_eq!(shell_word("~/it's/"), "~/'it'\\''s/'");
        assert!(fits("run1/", "ru") && fits(".hidden", ".h"));
        assert!(!fits(".hidden", "") && !fits("a\tb", "a") && !fits("b", "a"));
        assert_eq!((split("a/b/c"), split("c")), (("a/b/", "c"), ("", "c")));
        assert_eq!(at_ssh("-oProxyCommand=x", ""), Vec::<String>::new(), "no flag of ssh");
    }

    /// With a haul in its PATH that answers, as bash calls it.
    #[test]
    fn bash_replaces_what_stands_behind_the_last_colon() {
        let script =
            String::from_utf8(with_places(clap_complete::Shell::Bash, b"_haul() { COMPREPLY=(flags); }\n")).unwrap();
        let asks = |line: &str, words: &str| {
            let test = format!(
                "haul() {{ printf '%s\\n' dtn:run1/ dtn:run2; }}\ncompopt() {{ :; }}\n{script}\nCOMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
                 COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _haul_places; echo \"${{COMPREPLY[@]}}\""
            );
            let bash =
                Command::new("bash").args(["--norc", "-c", &test]).current_dir("/proc/self/task").output().unwrap();
            String::from_utf8(bash.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(asks("haul cp dtn:r", "haul cp dtn : r"), "run1/ run2");
        assert_eq!(asks("haul cp d", "haul cp d"), "dtn:run1/ dtn:run2");
        assert_eq!(asks("haul cp --la", "haul cp --la"), "flags");
        assert_eq!(asks("haul serve d", "haul serve d"), "flags");
    }
}

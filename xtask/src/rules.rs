//! The house style in lines of text. A banned call names its replacement.

use crate::source::Source;

struct Ban {
    call: &'static str,
    /// The crates with this ban; empty for all.
    only_in: &'static [&'static str],
    /// Crates and files with a reason for the call.
    except: &'static [&'static str],
    instead: &'static str,
}

const BANS: &[Ban] = &[
    ban("println!", "send an Event to the observer; only cli speaks to a person").except(&[
        "cli",
        "xtask",
        "lab/src/main.rs",
        // Tests use it to say why one does not run.
        "crates/sys/src/condition.rs",
    ]),
    ban("eprint!", "send an Event to the observer; only cli speaks to a person").except(&[
        "cli",
        "xtask",
        "lab/src/main.rs",
    ]),
    ban(" print!(", "send an Event to the observer; only cli speaks to a person").except(&[
        "cli",
        "xtask",
        "lab/src/main.rs",
    ]),
    ban("dbg!(", "send an Event to the observer"),
    ban("todo!(", "write it"),
    ban("unimplemented!(", "write it, or return an error that says so"),
    ban("process::exit", "return an ExitCode up to main, so that everything is dropped").except(&["cli"]),
    ban(".unwrap()", "use `?`, or expect(\"the reason why it cannot fail\")"),
    ban(".expect(\"\")", "give the reason why it cannot fail"),
    ban("Instant::now", "take the time as an argument").only_in(&["engine", "wire"]),
    ban("SystemTime::now", "take the time as an argument").only_in(&["engine", "wire"]),
    ban("thread::sleep", "wait for the condition itself, with a deadline (recv_timeout, wait_timeout, poll)").except(
        &[
            // Rates wait for time alone.
            "crates/net/src/stream.rs",
            // Pauses before dialling again, or a host in trouble is flooded.
            "crates/reach/src/daemon.rs",
            // An address comes into use silently.
            "lab/src/address.rs",
            // Probes and traffic leave at their times.
            "lab/src/calibrate/mod.rs",
            "lab/src/traffic.rs",
            // Others have the network before a tool.
            "lab/src/experiment/attempt.rs",
            // Events wait for time alone, and another kernel does not signal that it wrote a file.
            "lab/src/uml/lab.rs",
            "lab/src/uml/boot.rs",
            // Locks have no wait with a limit (flock(2)).
            "crates/store/src/own_file.rs",
            // Child processes have no wait with a limit.
            "lab/src/inside.rs",
            "lab/src/sandbox.rs",
            "crates/reach/src/ssh/session.rs",
            "crates/reach/src/ssh/words.rs",
        ],
    ),
];

/// Names that say nothing.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "common", "manager", "misc", "helper", "helpers"];

pub fn check(files: &[Source]) -> Vec<String> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let path = &file.path;
    for ban in BANS.iter().filter(|ban| ban.concerns(file)) {
        for (number, _) in file.program_lines().filter(|(_, line)| line.contains(ban.call)) {
            findings.push(format!("{path}:{number}: {}: {}", ban.call.trim(), ban.instead));
        }
    }
    if !file.text.starts_with("//!") {
        findings.push(format!("{path}:1: no module comment: say what the file is for, and what goes in and out"));
    }
    if file.is_root() && file.crate_name() != "sys" && !file.text.contains("#![forbid(unsafe_code)]") {
        findings.push(format!("{path}:1: no #![forbid(unsafe_code)]; unsafe code lives in crates/sys only"));
    }
    let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    if EMPTY_NAMES.contains(&name) {
        findings.push(format!("{path}: name the file for what is inside"));
    }
    findings
}

const fn ban(call: &'static str, instead: &'static str) -> Ban {
    Ban { call, only_in: &[], except: &[], instead }
}

impl Ban {
    const fn except(self, except: &'static [&'static str]) -> Self {
        Self { except, ..self }
    }

    const fn only_in(self, only_in: &'static [&'static str]) -> Self {
        Self { only_in, ..self }
    }

    fn concerns(&self, file: &Source) -> bool {
        let banned_here = self.only_in.is_empty() || self.only_in.contains(&file.crate_name());
        let excepted = self.except.contains(&file.crate_name()) || self.except.contains(&file.path.as_str());
        // This file lists them all.
        banned_here && !excepted && file.path != "xtask/src/rules.rs"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        check_file(&Source::new(path, text))
    }

    #[test]
    fn banned_calls_name_their_replacement() {
        let found = check("crates/net/src/dial.rs", "//! Dials.\nfn a() {\n    x.unwrap();\n    println!();\n}\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/net/src/dial.rs:4: println!: send an Event"), "{found:?}");
        assert!(found[1].starts_with("crates/net/src/dial.rs:3: .unwrap()"), "{found:?}");
    }

    #[test]
    fn crates_have_their_own_rights() {
        assert_eq!(check("crates/cli/src/cp/carry.rs", "//! Speaks.\nprintln!();\n").len(), 0);
        assert_eq!(check("crates/net/src/dial.rs", "//! Dials.\nInstant::now();\n").len(), 0);
        assert_eq!(check("crates/engine/src/pace.rs", "//! Paces.\nInstant::now();\n").len(), 1);
    }

    #[test]
    fn tests_may_unwrap() {
        let text = "//! Dials.\n#[cfg(test)]\nmod tests {\n    x.unwrap();\n}\n";
        assert_eq!(check("crates/net/src/dial.rs", text).len(), 0);
        assert_eq!(check("crates/net/tests/dial.rs", "//! Dials.\nx.unwrap();\n").len(), 0);
    }

    #[test]
    fn roots_forbid_unsafe_code_and_files_have_a_comment_and_a_name() {
        assert_eq!(check("crates/net/src/lib.rs", "//! Net.\n").len(), 1);
        assert_eq!(check("crates/sys/src/lib.rs", "//! Sys.\n").len(), 0);
        assert_eq!(check("crates/net/src/dial.rs", "fn a() {}\n").len(), 1);
        assert_eq!(check("crates/net/src/utils.rs", "//! Things.\n").len(), 1);
    }
}

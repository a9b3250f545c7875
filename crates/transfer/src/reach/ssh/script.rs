//! What is said to the login shell of a far side: run our program, or take it.

use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{FAIL, NEED, NOTE};

/// The command for the login shell: `sh` runs [`START`]. SHA-256 because every system has a program for it; openssl's takes half the time of the
/// others (10 against 20 ms for our 8 MB).
pub(super) fn start_script(arguments: &str) -> String {
    let lines = START.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let script = lines.collect::<Vec<_>>().join(" ");
    let script = script.replace("@PROTOCOL@", &PROTOCOL_VERSION.to_string()).replace("@ARGUMENTS@", arguments);
    format!("exec sh -c '{}'", script.replace("@NEED@", NEED).replace("@NOTE@", NOTE).replace("@FAIL@", FAIL))
}

const START: &str = include_str!("start.sh");

/// One word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
#[path = "../../../tests/inside/ssh_script.rs"]
mod scenarios;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_script_survives_any_login_shell() {
        let script = start_script("--port-range 5000-5010");
        let inner = script.strip_prefix("exec sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inner.contains(['\'', '\n', '!']), "{inner}");
    }

    #[test]
    fn a_named_program_is_one_word_for_the_shell() {
        assert_eq!(quoted("/opt/my haul"), "'/opt/my haul'");
        assert_eq!(quoted("a'; rm -rf /; '"), "'a'\\''; rm -rf /; '\\'''");
    }
}

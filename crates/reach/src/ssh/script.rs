//! Makes the command for the login shell of a far side: run our program, or take it.

use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{FAIL, NEED, NOTE};

/// Every system has a program for SHA-256; openssl's is twice as fast as others (10 against 20 ms for our 8 MB).
///
/// `programs` is the line about ours: its hash and size, and those for other machines.
pub(super) fn start_script(arguments: &str, programs: &str) -> String {
    let lines = START.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let script = lines.collect::<Vec<_>>().join(" ");
    // Hexadecimal digits, numbers, and names of machines need no quotes.
    let mut words = programs.trim_end().splitn(3, ' ').map(str::to_owned);
    let [hash, size, others] = [(); 3].map(|()| words.next().unwrap_or_default());
    let script = script.replace("@HASH@", &hash).replace("@SIZE@", &size).replace("@OTHERS@", &others);
    let script = script.replace("@PROTOCOL@", &PROTOCOL_VERSION.to_string()).replace("@ARGUMENTS@", arguments);
    format!("exec sh -c '{}'", script.replace("@NEED@", NEED).replace("@NOTE@", NOTE).replace("@FAIL@", FAIL))
}

const START: &str = include_str!("start.sh");

pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
#[path = "../../tests/unit/start_script.rs"]
mod scenarios;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_script_survives_any_login_shell() {
        let line = "00ff 12345 x86_64 aa 7 amd64 aa 7\n";
        for programs in [line, "00ff 12345\n"] {
            let script = start_script("--port-range 5000-5010", programs);
            let inner = script.strip_prefix("exec sh -c '").unwrap().strip_suffix('\'').unwrap();
            assert!(!inner.contains(['\'', '\n', '!']), "{inner}");
        }
        assert!(start_script("", line).contains("w=00ff; n=12345; o=\"x86_64 aa 7 amd64 aa 7\";"));
    }

    #[test]
    fn a_named_program_is_one_word_for_the_shell() {
        assert_eq!(quoted("/opt/my haul"), "'/opt/my haul'");
        assert_eq!(quoted("a'; rm -rf /; '"), "'a'\\''; rm -rf /; '\\'''");
    }
}

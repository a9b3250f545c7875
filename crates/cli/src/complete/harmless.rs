//! Whether ssh, with the flags typed so far, would run only what its user has configured.
//!
//! Pressing TAB has not sent the line. So no program starts that stands on the line alone, or in a file that only the
//! line names: `-S`, `-e`, `-o ProxyCommand=...`, a configuration (`-F`) that came with somebody's data. Unknown
//! settings count as running something.

use std::ffi::OsStr;
use std::path::Path;

use crate::complete::slot::Line;
use crate::complete::ssh_files::{self, is_harmless_setting};

pub fn is_harmless(line: &Line<'_>, home: Option<&Path>) -> bool {
    line.given.iter().all(|(arg, value)| match arg.get_id().as_str() {
        "ssh_program" | "rsh" => false,
        "ssh_option" => value.to_str().is_some_and(is_harmless_option),
        "ssh_config" => is_own(value, home) || ssh_files::runs_nothing(home, Path::new(value)),
        _ => true,
    })
}

/// ssh would read its usual file anyway.
fn is_own(named: &OsStr, home: Option<&Path>) -> bool {
    let own = home.map(|home| home.join(".ssh/config"));
    let same = |own: &Path| Some(own.canonicalize().ok()? == Path::new(named).canonicalize().ok()?);
    own.is_some_and(|own| same(&own) == Some(true))
}

/// ssh takes `Name=value` and `Name value`.
fn is_harmless_option(option: &str) -> bool {
    let option = option.trim_start();
    let end = option.find(|letter: char| letter.is_ascii_whitespace() || letter == '=').unwrap_or(option.len());
    is_harmless_setting(&option[..end])
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Typed;

    fn check(line: &str, expected: bool) {
        let mut root = Typed::command();
        root.build();
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(is_harmless(&Line::read(&root, &words), None), expected, "{line}");
    }

    #[test]
    fn nothing_is_run_that_was_only_typed() {
        for line in
            ["cp", "cp -P 22 -i key -J gate", "cp -o Port=22 -oproxyjump=gate", "ls -4 -o StrictHostKeyChecking=no"]
        {
            check(line, true);
        }
        for line in [
            "cp -S ./ssh",
            "cp -S=./ssh",
            "ls -e ./ssh",
            "cp --rsh ./ssh",
            "cp -o ProxyCommand=x",
            "cp -oproxycommand=x",
            "cp -o Port=22 -o PermitLocalCommand=yes -o LocalCommand=x",
            "cp -o KnownHostsCommand=x",
            "cp -o PKCS11Provider=x",
            "cp -o SecurityKeyProvider=x",
            "cp -o ForwardAgent=yes",
            "cp -o NewOption=x",
            "cp -F /no/such/file",
        ] {
            check(line, false);
        }
    }
}

//! Colour only at terminals that have it. script(1) gives the program a terminal.

use std::process::{Command, Stdio};

fn at_terminal(environment: &[(&str, &str)], line: &str) -> Vec<u8> {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} {line}", env!("CARGO_BIN_EXE_haul")), "/dev/null"]);
    command.stdin(Stdio::null());
    // The tester's own settings must not count: under `CI` even a dumb terminal gets colour.
    for setting in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "CI"] {
        command.env_remove(setting);
    }
    command.envs(environment.iter().copied());
    command.output().expect("script is part of util-linux").stdout
}

fn has_colour(text: &[u8]) -> bool {
    // ECMA-48: SGR ends with `m`; the bar's moves are no colour.
    text.split(|byte| *byte == 0x1b).skip(1).any(|rest| {
        let end = rest.iter().skip(1).position(u8::is_ascii_alphabetic);
        rest.first() == Some(&b'[') && end.is_some_and(|end| rest[end + 1] == b'm')
    })
}

#[test]
fn colour_is_for_terminals_that_have_it_and_for_users_who_want_it() {
    for line in ["--help", "cp --lanes 0 a b"] {
        assert!(has_colour(&at_terminal(&[("TERM", "xterm")], line)), "{line}");
        assert!(!has_colour(&at_terminal(&[("TERM", "xterm"), ("NO_COLOR", "1")], line)), "NO_COLOR: {line}");
        assert!(!has_colour(&at_terminal(&[("TERM", "dumb")], line)), "a dumb terminal: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(words).env("TERM", "xterm").output().unwrap();
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "a pipe: {line}");
    }
    let bar = at_terminal(&[("TERM", "xterm")], "cp --rate 200MB zero:400M null:");
    assert!(bar.contains(&0x1b) && !has_colour(&bar), "{}", bar.escape_ascii());
    assert!(!at_terminal(&[("TERM", "dumb")], "cp --rate 200MB zero:400M null:").contains(&0x1b));
}

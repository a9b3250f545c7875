//! The one table from errors to words and exit codes.
//!
//! Codes follow rsync where the meaning is the same (1, 5, 10, 11, 12, 20, 23, 24, 30). Zero: all selected is at the
//! target, verified.

use std::fmt::Write as _;

use haul_job::{Error, Fault, Report};

use crate::text::printable::printable_lines;

pub struct Exit {
    pub code: u8,
    pub name: &'static str,
    pub meaning: &'static str,
    /// For errors without a hint.
    pub hint: Option<&'static str>,
}

/// Every exit code, in the help's order.
pub const EXITS: [Exit; 15] = [
    row(0, "ok", "all that was selected is there and verified", None),
    row(1, "usage", "the request makes no sense", None),
    row(5, "authentication", "wrong key, unknown host, login refused", None),
    row(10, "network", "a name did not resolve, or a connection was refused or lost", Some(AGAIN)),
    row(11, "file_io", "files could not be read or written at all", None),
    row(12, "protocol", "the far side speaks another version, or nonsense", None),
    row(13, "install", "haul is missing at the far side, and ours does not run there", None),
    row(14, "ssh", "ssh did not start or ended early; its own words stand above", None),
    row(20, "interrupted", "stopped by a signal", Some(AGAIN)),
    row(23, "partial", "some entries were not copied; the rest was", None),
    row(24, "vanished", "some sources vanished during the copy; the rest was copied", None),
    row(25, "verification", "data did not verify", None),
    row(
        28,
        "space",
        "no space or quota left at the target",
        Some("make room; then run the same command again to continue"),
    ),
    row(30, "timeout", "the far side fell silent", Some(AGAIN)),
    row(31, "busy", "the daemon has no room for one more", Some("try again later")),
];

const AGAIN: &str = "run the same command again: it goes on where this one stopped";

const fn row(code: u8, name: &'static str, meaning: &'static str, hint: Option<&'static str>) -> Exit {
    Exit { code, name, meaning, hint }
}

pub fn of_fault(fault: Fault) -> &'static Exit {
    named(match fault {
        Fault::Usage => "usage",
        Fault::Authentication => "authentication",
        Fault::Network => "network",
        Fault::FileIo => "file_io",
        Fault::Protocol => "protocol",
        Fault::Install => "install",
        Fault::Ssh | Fault::SftpOnly => "ssh",
        Fault::Interrupted => "interrupted",
        Fault::Verification => "verification",
        Fault::Space => "space",
        Fault::Timeout | Fault::Storage => "timeout",
        Fault::Busy | Fault::Allowance => "busy",
        Fault::Missing => "partial",
    })
}

pub fn of_report(report: &Report) -> &'static Exit {
    named(match report {
        r if r.unverified > 0 => "verification",
        r if r.failed == 0 => "ok",
        r if r.failed == r.vanished => "vanished",
        _ => "partial",
    })
}

pub fn of_recording(overruns: u64) -> &'static Exit {
    named(if overruns > 0 { "partial" } else { "ok" })
}

pub fn name_of_code(code: u8) -> &'static str {
    EXITS.iter().find(|exit| exit.code == code).map_or("unknown", |exit| exit.name)
}

fn named(name: &str) -> &'static Exit {
    EXITS.iter().find(|exit| exit.name == name).expect("every fault has its row; a test pins it")
}

/// The error as a person reads it.
/// ```text
/// error: what failed, on what
///   cause: the system's or the peer's words
///   hint:  what to try
/// ```
pub fn text(error: &Error) -> String {
    labelled("error: ", error, hint(error))
}

pub fn in_a_line(error: &Error) -> String {
    match &error.cause {
        Some(cause) => format!("{}: {cause}", error.what),
        None => error.what.clone(),
    }
}

/// [`text`] for an error that did not end the job.
pub fn warning(error: &Error) -> String {
    labelled("warning: ", error, error.hint.as_deref())
}

fn labelled(label: &str, error: &Error, hint: Option<&str>) -> String {
    let mut text = String::new();
    add(&mut text, label, &error.what);
    if let Some(cause) = &error.cause {
        add(&mut text, "  cause: ", cause);
    }
    if let Some(hint) = hint {
        add(&mut text, "  hint:  ", hint);
    }
    text
}

pub fn hint(error: &Error) -> Option<&str> {
    error.hint.as_deref().or(of_fault(error.fault).hint)
}

fn add(text: &mut String, label: &str, words: &str) {
    let mut lead = label.to_owned();
    for line in printable_lines(words) {
        let _ = writeln!(text, "{lead}{line}");
        lead = " ".repeat(label.len());
    }
}

pub fn exit_table() -> String {
    EXITS.iter().fold(String::new(), |mut text, exit| {
        let _ = writeln!(text, "  {:>2}  {}", exit.code, exit.meaning);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::closing_lines::tests::report;

    #[test]
    fn every_fault_has_its_exit_code() {
        let table = [
            (Fault::Usage, 1),
            (Fault::Authentication, 5),
            (Fault::Network, 10),
            (Fault::FileIo, 11),
            (Fault::Protocol, 12),
            (Fault::Install, 13),
            (Fault::Ssh, 14),
            (Fault::SftpOnly, 14),
            (Fault::Interrupted, 20),
            (Fault::Verification, 25),
            (Fault::Space, 28),
            (Fault::Timeout, 30),
            (Fault::Busy, 31),
            (Fault::Allowance, 31),
            (Fault::Missing, 23),
            (Fault::Storage, 30),
        ];
        for (fault, code) in table {
            assert_eq!(of_fault(fault).code, code, "{fault:?}");
        }
    }

    #[test]
    fn a_report_is_a_success_only_when_nothing_is_missing() {
        let code = |failed, vanished, unverified| of_report(&Report { failed, vanished, unverified, ..report() }).code;
        assert_eq!(code(0, 0, 0), 0);
        assert_eq!(code(3, 0, 0), 23);
        assert_eq!(code(3, 2, 0), 23);
        assert_eq!(code(3, 3, 0), 24);
        assert_eq!(code(3, 2, 1), 25);
    }

    #[test]
    fn each_exit_code_stands_on_the_page_of_messages() {
        let page = include_str!("../../../../docs/use/errors.md");
        for exit in &EXITS {
            assert!(page.contains(&format!("\n| {} | ", exit.code)), "{}", exit.name);
        }
    }

    #[test]
    fn codes_and_names_are_unique() {
        for (at, exit) in EXITS.iter().enumerate() {
            assert!(EXITS[..at].iter().all(|other| other.code < exit.code && other.name != exit.name), "{}", exit.name);
        }
    }

    #[test]
    fn an_error_says_what_why_and_what_to_try() {
        let error = Error::new(Fault::Ssh, "ssh to host-b\x1b[2J ended early").because("first line\nsecond line");
        insta::assert_snapshot!(text(&error), @r"
        error: ssh to host-b\x1b[2J ended early
          cause: first line
                 second line
        ");
        let error = Error::new(Fault::Timeout, "host-b is silent").because("nothing for 60 s");
        insta::assert_snapshot!(text(&error), @r"
        error: host-b is silent
          cause: nothing for 60 s
          hint:  run the same command again: it goes on where this one stopped
        ");
        insta::assert_snapshot!(warning(&error), @r"
        warning: host-b is silent
          cause: nothing for 60 s
        ");
    }
}

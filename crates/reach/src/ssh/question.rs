//! Tells what ssh wanted to ask where nobody is there to answer: a detached copy, a job of cron.
//!
//! ssh has a program ask its questions (ssh(1), `SSH_ASKPASS`): here, our own. It prints the question behind [`ASKED`] and
//! gives no answer, and [`login_failed`](super::words::login_failed) finds the question in ssh's words.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::Command;

pub(super) const ASKED: &str = "nobody is here to answer: ";

const REFUSES: &str = "HAUL_REFUSES_QUESTIONS";

const FAR_SIDE: &str = "agent";

/// No question is longer, though a host chooses its words.
const MAX_BYTES: usize = 600;

/// Makes ssh tell questions that nobody could answer.
pub(super) fn tell_instead(command: &mut Command) {
    let Ok(program) = std::env::current_exe() else { return };
    command.env("SSH_ASKPASS", program).env("SSH_ASKPASS_REQUIRE", "force").env(REFUSES, "yes");
    // ssh before 8.4 asks for the program only where there is a screen.
    if std::env::var_os("DISPLAY").is_none() {
        command.env("DISPLAY", "none");
    }
}

/// Prints the question that ssh started this program to ask, and returns true: the program then fails.
pub fn refused() -> bool {
    if std::env::var_os(REFUSES).is_none() {
        return false;
    }
    let mut words = std::env::args_os().skip(1);
    let (Some(question), None) = (words.next(), words.next()) else { return false };
    // A stand-in for ssh (`-S`) may run the far side here, in ssh's environment.
    if question == FAR_SIDE {
        return false;
    }
    let _ = writeln!(std::io::stderr(), "{}", line(&question));
    true
}

fn line(question: &OsString) -> String {
    let question = question.to_string_lossy();
    let mut words = question.split_whitespace().collect::<Vec<_>>().join(" ");
    words.truncate(words.floor_char_boundary(MAX_BYTES));
    format!("{ASKED}{words}")
}

pub(super) fn found(said: &str, host: &str) -> Option<(String, String)> {
    let question = said.lines().find_map(|line| line.trim().strip_prefix(ASKED)).filter(|words| !words.is_empty())?;
    let is_about = |word: &str| question.to_ascii_lowercase().contains(word);
    let hint = if is_about("passphrase") {
        "load the key into an ssh agent before: ssh-add".to_owned()
    } else if is_about("authenticity") || is_about("fingerprint") {
        format!("log in once with: ssh {host}; and compare the key")
    } else {
        let other = "or start it at a terminal, which asks; the login is kept for a minute";
        format!("use a key that an agent has (ssh-copy-id {host}), {other}")
    };
    Some((question.to_owned(), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_one_line_and_is_found_with_what_to_do() {
        let check = |question: &str, hint: &str| {
            let said = format!("Warning: odd\r\n{}\r\na@h: Permission denied.\r\n", line(&question.into()));
            let (found, told) = found(&said, "h").unwrap();
            assert_eq!(found, question.split_whitespace().collect::<Vec<_>>().join(" "));
            assert!(told.contains(hint), "{told}");
        };
        check("Enter passphrase for key '/home/a/.ssh/id_ed25519': ", "ssh-add");
        check("a@h's password: ", "ssh-copy-id h");
        check("(a@h) Verification code: ", "start it at a terminal");
        check("The authenticity of host 'h (::1)' can't be established.\nED25519 key\nAre you sure? ", "ssh h;");
        assert_eq!(found("a@h: Permission denied (publickey).", "h"), None);
        assert!(line(&"ä".repeat(4000).into()).len() <= ASKED.len() + MAX_BYTES);
    }
}

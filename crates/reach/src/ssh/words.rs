//! Passes the words of ssh on, escaped, and reads from them what kind of failure they mean.

use std::io::{self, Read, Write};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};

use haul_kept::sync::lock;

use super::escaper::Escaper;
use super::machinery::WithoutMachinery;
use super::question;

/// Standard error of ssh and the far side; its end explains a failure. The far side chooses most of it, so it is escaped, also
/// for a file: logs are read on terminals.
#[derive(Default)]
pub(super) struct Words {
    kept: Mutex<Vec<u8>>,
    /// Text that waits for [`Words::release`]; `None`: all is shown.
    held: Mutex<Option<String>>,
    ended: Mutex<Option<JoinHandle<()>>>,
}

/// The reason stands in the last lines.
const WORDS_KEPT_BYTES: usize = 4096;

pub(super) const EXIT_WAIT: Duration = Duration::from_millis(1500);

/// Words wait some seconds for the far side's first word.
const WORDS_HELD_BYTES: usize = 64 << 10;

impl Words {
    pub(super) fn listen(stderr: Option<ChildStderr>, is_held: bool) -> Arc<Self> {
        let words = Arc::new(Self { held: Mutex::new(is_held.then(String::new)), ..Self::default() });
        let Some(mut stderr) = stderr else { return words };
        let listener = Arc::clone(&words);
        let thread = std::thread::Builder::new().name("ssh-words".into()).spawn(move || {
            let mut block = [0; 1024];
            let (mut filter, mut escaper) = (WithoutMachinery::default(), Escaper::default());
            while let Ok(read @ 1..) = stderr.read(&mut block) {
                listener.hear(&filter.push(&block[..read]), &mut escaper);
                listener.keep(&filter.asked());
            }
            listener.hear(&filter.finish(), &mut escaper);
            listener.say(&escaper.finish());
        });
        *lock(&words.ended) = thread.ok();
        words
    }

    fn hear(&self, bytes: &[u8], escaper: &mut Escaper) {
        self.say(&escaper.push(bytes));
        self.keep(bytes);
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = lock(&self.kept);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(WORDS_KEPT_BYTES);
        kept.drain(..surplus);
    }

    fn say(&self, words: &str) {
        match &mut *lock(&self.held) {
            Some(held) if held.len() < WORDS_HELD_BYTES => held.push_str(words),
            Some(_) => {}
            None => drop(io::stderr().write_all(words.as_bytes())),
        }
    }

    pub(super) fn release(&self) {
        if let Some(held) = lock(&self.held).take() {
            let _ = io::stderr().write_all(held.as_bytes());
        }
    }

    /// Returns the kept words after ssh's end. A background process of the user's ssh (a shared connection) may hold the pipe
    /// open, so the wait is bounded.
    pub(super) fn last(&self) -> Option<String> {
        let end = Instant::now() + EXIT_WAIT;
        while Instant::now() < end && lock(&self.ended).as_ref().is_some_and(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let kept = lock(&self.kept);
        let text = String::from_utf8_lossy(&kept).into_owned();
        (!text.trim().is_empty()).then_some(text)
    }
}

pub(super) fn last_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// The words are those of OpenSSH's sshconnect.c, sshconnect2.c and misc.c.
const SSH_SAYS: [(&str, Fault, &str, &str); 12] = [
    ("Could not resolve hostname", Fault::Network, "cannot find the host", "check the spelling of the host"),
    (
        "Connection refused",
        Fault::Network,
        "nothing accepts ssh there",
        "is sshd running there, and on this port (-P)?",
    ),
    ("timed out", Fault::Network, "it does not answer", "is the host up, and does a firewall let ssh through?"),
    (
        "No route to host",
        Fault::Network,
        "there is no way to it",
        "is the host up, and does a firewall let ssh through?",
    ),
    ("Network is unreachable", Fault::Network, "there is no way to it", "look at this host's network"),
    ("Connection reset", Fault::Network, "it broke the connection", "is it sshd that listens on this port?"),
    (
        "HOST IDENTIFICATION HAS CHANGED",
        Fault::Authentication,
        "it shows another host key than before",
        "somebody may be in between; ask its operator, then: ssh-keygen -R HOST",
    ),
    (HOST_UNKNOWN, Fault::Authentication, "its host key is not known here", "log in once with ssh and compare the key"),
    (
        "No ED25519 host key is known",
        Fault::Authentication,
        "its host key is not known here",
        "log in once with ssh and compare the key",
    ),
    ("Permission denied", Fault::Authentication, "it refuses the login", "check user name, key (-i) and ssh agent"),
    (
        "Too many authentication failures",
        Fault::Authentication,
        "it refuses the login",
        "name the key with -i, and -o IdentitiesOnly=yes",
    ),
    ("Bad configuration option", Fault::Usage, "ssh does not know an option", "check -o and the ssh configuration"),
];

pub(super) fn login_failed(host: &str, said: &Option<String>) -> Error {
    let text = said.as_deref().unwrap_or_default();
    let known = SSH_SAYS.iter().find(|(words, ..)| text.contains(words));
    let is_of_login = known.is_none_or(|(_, fault, ..)| *fault == Fault::Authentication);
    if is_of_login && let Some((question, hint)) = question::found(text, host) {
        return Error::new(Fault::Authentication, format!("ssh cannot log in to {host}: nobody is here to answer it"))
            .because(format!("it asks: {question}"))
            .try_this(hint);
    }
    let error = match known {
        Some((_, fault, what, hint)) => {
            Error::new(*fault, format!("ssh cannot log in to {host}: {what}")).try_this(hint.replace("HOST", host))
        }
        None => {
            Error::new(Fault::Ssh, format!("ssh could not log in to {host}")).try_this(format!("try: ssh {host} true"))
        }
    };
    match last_line(text) {
        Some(line) => error.because(line),
        None => error,
    }
}

const HOST_UNKNOWN: &str = "Host key verification failed";

pub(crate) fn is_host_unknown(error: &Error) -> bool {
    error.fault == Fault::Authentication && error.cause.as_ref().is_some_and(|words| words.contains(HOST_UNKNOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ssh_decide_what_kind_of_failure_it_is() {
        let check = |said: &str, fault| assert_eq!(login_failed("h", &Some(said.into())).fault, fault, "{said}");
        check("ssh: Could not resolve hostname h: Name or service not known\r\n", Fault::Network);
        check("ssh: connect to host h port 22: Connection refused\r\n", Fault::Network);
        check("a@h: Permission denied (publickey).\r\n", Fault::Authentication);
        check(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            Fault::Authentication,
        );
        check("something new", Fault::Ssh);
        check("nobody is here to answer: a@h's password:\nReceived disconnect", Fault::Authentication);
        // The question was that of a host on the way.
        check("nobody is here to answer: a@gate's password:\nConnection refused", Fault::Network);
    }
}

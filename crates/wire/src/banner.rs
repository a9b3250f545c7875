//! The first words on a control channel that runs through a login shell.
//!
//! The shell may print anything before our agent starts; everything before the agent's mark is ignored.
//!
//! ```text
//!   HAUL-NEED <uname -s> <uname -m> [gzip]   from the start script: our program is not there, send it, packed where gzip is
//!   HAUL-NOTE <choice>: <reason>         from the start script: how our program is run there, where that is not as usual
//!   HAUL-FAIL <text>                     from the start script: it cannot be put or run there
//!   HAUL-AGENT <protocol version>        from the agent: control frames follow
//!   HAUL-LOGIN                           from our own ssh, before any of these: the login is over
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use crate::limits::MAX_BANNER_NOISE_BYTES;

/// The meaning of a far line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Banner {
    /// The program has to be sent.
    Need {
        /// `uname -s`
        system: String,
        /// `uname -m`
        machine: String,
        /// gzip is there.
        unpacks: bool,
    },
    /// Our program runs in an unusual way.
    Note {
        /// How.
        choice: String,
        /// Why.
        reason: String,
    },
    /// The start script gave up.
    Fail(String),
    /// The agent runs.
    Agent {
        /// The protocol version.
        version: u32,
    },
    /// ssh has logged in.
    LoggedIn,
}

/// Mark of [`Banner::Need`].
pub const NEED: &str = "HAUL-NEED";
/// Mark of [`Banner::Note`].
pub const NOTE: &str = "HAUL-NOTE";
/// Mark of [`Banner::Fail`].
pub const FAIL: &str = "HAUL-FAIL";
/// Mark of [`Banner::Agent`].
pub const AGENT: &str = "HAUL-AGENT";

/// Mark of [`Banner::LoggedIn`].
pub const LOGIN: &str = "HAUL-LOGIN";

/// Collects far bytes one at a time, to swallow none behind the banner.
#[derive(Debug, Default)]
pub struct BannerScanner {
    line: Vec<u8>,
    seen: usize,
}

impl BannerScanner {
    /// Takes one byte. `Ok(Some)`: the banner. `Err`: too much was printed.
    pub fn push(&mut self, byte: u8) -> Result<Option<Banner>, NoBanner> {
        self.seen += 1;
        if self.seen > MAX_BANNER_NOISE_BYTES {
            return Err(NoBanner);
        }
        if byte != b'\n' {
            self.line.push(byte);
            return Ok(None);
        }
        let banner = parse(&self.line);
        self.line.clear();
        Ok(banner)
    }
}

/// Too much without a banner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBanner;

/// Parses a line, perhaps with noise (a prompt, a terminal title) before the banner.
fn parse(line: &[u8]) -> Option<Banner> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r');
    let after = |mark: &str| line.rfind(mark).map(|at| line[at + mark.len()..].trim());
    if let Some(rest) = after(AGENT) {
        return rest.parse().ok().map(|version| Banner::Agent { version });
    }
    if let Some(rest) = after(NEED) {
        let mut words = rest.split_whitespace();
        return Some(Banner::Need {
            system: words.next().unwrap_or_default().into(),
            machine: words.next().unwrap_or_default().into(),
            unpacks: words.next() == Some("gzip"),
        });
    }
    if let Some(rest) = after(NOTE) {
        let (choice, reason) = rest.split_once(": ").unwrap_or((rest, ""));
        return Some(Banner::Note { choice: choice.into(), reason: reason.into() });
    }
    if let Some(rest) = after(FAIL) {
        return Some(Banner::Fail(rest.into()));
    }
    after(LOGIN).map(|_| Banner::LoggedIn)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn scan(text: &[u8]) -> Result<Option<Banner>, NoBanner> {
        let mut scanner = BannerScanner::default();
        for byte in text {
            if let Some(banner) = scanner.push(*byte)? {
                return Ok(Some(banner));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_chatty_login_shell_does_not_hide_the_agent() {
        assert_eq!(scan(b"HAUL-AGENT 1\n"), Ok(Some(Banner::Agent { version: 1 })));
        let noisy = b"Welcome to DTN-1!\r\n\x1b]0;title\x07You have mail.\nprompt> HAUL-AGENT 15\r\n";
        assert_eq!(scan(noisy), Ok(Some(Banner::Agent { version: 15 })));
    }

    #[test]
    fn the_start_script_can_ask_and_fail() {
        for (word, unpacks) in [("", false), (" gzip", true)] {
            let need = Banner::Need { system: "Linux".into(), machine: "x86_64".into(), unpacks };
            assert_eq!(scan(format!("hello\nHAUL-NEED Linux x86_64{word}\n").as_bytes()), Ok(Some(need)));
        }
        assert_eq!(scan(b"HAUL-LOGIN\n"), Ok(Some(Banner::LoggedIn)));
        assert_eq!(scan(b"HAUL-FAIL no space\n"), Ok(Some(Banner::Fail("no space".into()))));
        let note = |choice: &str, reason: &str| Banner::Note { choice: choice.into(), reason: reason.into() };
        assert_eq!(scan(b"HAUL-NOTE by its name: no /proc\n"), Ok(Some(note("by its name", "no /proc"))));
        assert_eq!(scan(b"HAUL-NOTE by its name\n"), Ok(Some(note("by its name", ""))));
    }

    #[test]
    fn an_endless_login_text_is_given_up() {
        let mut scanner = BannerScanner::default();
        let last = (0..=MAX_BANNER_NOISE_BYTES).map(|_| scanner.push(b'x')).last();
        assert_eq!(last, Some(Err(NoBanner)));
    }
}

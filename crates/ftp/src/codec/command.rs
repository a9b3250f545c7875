//! Commands as they go to a server: a verb, a space, an argument and CR LF.

use std::fmt;
use std::io::{self, ErrorKind};

use zeroize::Zeroizing;

use crate::limits::MAX_COMMAND_BYTES;

/// A command that is one line, whatever its argument is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command {
    verb: &'static str,
    bytes: Zeroizing<Vec<u8>>,
}

impl Command {
    /// A command without an argument.
    pub(crate) fn plain(verb: &'static str) -> Command {
        Command { verb, bytes: Zeroizing::new(format!("{verb}\r\n").into_bytes()) }
    }

    /// A command with an argument, such as a path.
    ///
    /// A line break in it would be a command of whoever chose the name. Byte 255 begins a command of telnet, and servers disagree on how a
    /// name has it.
    pub(crate) fn new(verb: &'static str, argument: &[u8]) -> io::Result<Command> {
        let refused = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why.to_owned()));
        if argument.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return refused("FTP cannot say a name with a line break or a NUL byte in it");
        }
        if argument.contains(&255) {
            return refused("servers of FTP disagree on names with byte 255 in them");
        }
        if argument.len() > MAX_COMMAND_BYTES - 16 {
            return refused("its path is longer than servers of FTP take (4 KiB)");
        }
        let bytes = [verb.as_bytes(), b" ", argument, b"\r\n"].concat();
        Ok(Command { verb, bytes: Zeroizing::new(bytes) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_command_of_its_own() {
        assert_eq!(Command::new("RETR", b" a\xe4 b ").unwrap().bytes(), b"RETR  a\xe4 b \r\n");
        for bad in [&b"a\r\nDELE b"[..], b"a\nb", b"a\0", b"a\xffb", &[b'x'; 5000]] {
            assert_eq!(Command::new("RETR", bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(format!("{:?}", Command::new("PASS", b"secret").unwrap()), "PASS");
    }
}

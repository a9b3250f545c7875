//! Leaves out what ssh says of the sockets by which it shares connections: its user has not asked for them.

/// Passes on whatever else ssh and the far side say, letter by letter.
#[derive(Default)]
pub(super) struct WithoutMachinery {
    /// The beginning of a line that could be such words.
    begun: Vec<u8>,
    line: Line,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Undecided,
    Passed,
    LeftOut,
}

impl WithoutMachinery {
    /// What of these bytes may be said.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut said = Vec::with_capacity(bytes.len());
        for byte in bytes.iter().copied() {
            if self.line == Line::Undecided {
                self.begun.push(byte);
                self.decide(&mut said);
            } else if self.line == Line::Passed {
                said.push(byte);
            }
            if byte == b'\n' {
                self.line = Line::Undecided;
                said.append(&mut self.begun);
            }
        }
        said
    }

    fn decide(&mut self, said: &mut Vec<u8>) {
        if BEGINNINGS.iter().any(|words| self.begun.starts_with(words)) {
            self.line = Line::LeftOut;
            self.begun.clear();
        } else if !BEGINNINGS.iter().any(|words| words.starts_with(&self.begun)) {
            self.line = Line::Passed;
            said.append(&mut self.begun);
        }
    }

    /// The rest of a line without an end.
    pub(super) fn finish(self) -> Vec<u8> {
        self.begun
    }
}

/// Beginnings of lines of OpenSSH's mux.c and ssh.c.
const BEGINNINGS: [&[u8]; 4] = [b"mux_client_", b"ControlSocket ", b"Control socket ", b"Shared connection to "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_sockets_are_left_out_and_all_else_is_said_at_once() {
        let mut words = WithoutMachinery::default();
        let mut said = |text: &str| String::from_utf8(words.push(text.as_bytes())).unwrap();
        assert_eq!(
            said("Welcome\nmux_client_request_session: read from master failed: Broken pipe\r\nto alpha"),
            "Welcome\nto alpha"
        );
        assert_eq!(said(" m"), " m");
        assert_eq!(said("ux_client_\nCon"), "ux_client_\n");
        assert_eq!(
            said("nection refused\nControlSocket /x already exists, disabling multiplexing\n"),
            "Connection refused\n"
        );
        assert_eq!(said("\nmux"), "\n");
        assert_eq!(words.finish(), b"mux");
    }
}

//! Leaves out ssh's words about shared connections, which the user has not asked for. Unanswered questions go, too: another key
//! may do, and an error has the question.

use super::question::ASKED;

/// Passes all other words on.
#[derive(Default)]
pub(super) struct WithoutMachinery {
    begun: Vec<u8>,
    line: Line,
    asked: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Undecided,
    Passed,
    LeftOut,
    Asked,
}

impl WithoutMachinery {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut said = Vec::with_capacity(bytes.len());
        for byte in bytes.iter().copied() {
            if self.line == Line::Undecided {
                self.begun.push(byte);
                self.decide(&mut said);
            } else if self.line == Line::Passed {
                said.push(byte);
            } else if self.line == Line::Asked {
                self.asked.push(byte);
            }
            if byte == b'\n' {
                self.line = Line::Undecided;
                said.append(&mut self.begun);
            }
        }
        said
    }

    /// The questions since the last call.
    pub(super) fn asked(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.asked)
    }

    fn decide(&mut self, said: &mut Vec<u8>) {
        if self.begun.starts_with(ASKED.as_bytes()) {
            self.line = Line::Asked;
            self.asked.append(&mut self.begun);
        } else if BEGINNINGS.iter().any(|words| self.begun.starts_with(words)) {
            self.line = Line::LeftOut;
            self.begun.clear();
        } else if !BEGINNINGS.iter().chain([&ASKED.as_bytes()]).any(|words| words.starts_with(&self.begun)) {
            self.line = Line::Passed;
            said.append(&mut self.begun);
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.begun
    }
}

/// The lines are those of OpenSSH's mux.c and ssh.c.
const BEGINNINGS: [&[u8]; 6] = [
    b"mux_client_",
    b"ControlSocket ",
    b"Control socket ",
    b"Shared connection to ",
    b"mm_receive_fd: ",
    b"proxy dialer did not pass back a connection",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_kept_and_not_said() {
        let mut filter = WithoutMachinery::default();
        let said = filter.push(b"nobody is home\nnobody is here to answer: a@h's password: \nnext");
        assert_eq!(String::from_utf8(said).unwrap(), "nobody is home\nnext");
        assert_eq!(filter.asked(), b"nobody is here to answer: a@h's password: \n");
        assert_eq!(filter.asked(), b"");
    }

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

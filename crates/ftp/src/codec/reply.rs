//! Replies of a server (RFC 959, 4.2): a line `CODE text`, or `CODE-text`, more lines, and `CODE text`.

use std::io::{self, ErrorKind};

use haul_store::printable;

use crate::limits::{MAX_LINE_BYTES, MAX_REPLY_BYTES, MAX_SHOWN_BYTES};

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 100 to 599.
    pub code: u16,
    /// The text behind the code, line by line.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// Another reply follows: 1xx.
    pub fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The server wants more before it acts: 3xx.
    pub fn wants_more(&self) -> bool {
        (300..400).contains(&self.code)
    }

    /// The server does not know the command, or not with this argument.
    pub fn is_unknown(&self) -> bool {
        matches!(self.code, 500..=504)
    }

    /// The last line.
    pub fn text(&self) -> &[u8] {
        self.lines.last().map_or(b"", Vec::as_slice)
    }

    /// The reply as a person may see it, on one line.
    pub fn shown(&self) -> String {
        let first = self.lines.iter().find(|line| !line.is_empty()).map_or(&b""[..], Vec::as_slice);
        let text = printable(&first[..first.len().min(MAX_SHOWN_BYTES)]);
        format!("{} {text}", self.code).trim_end().to_owned()
    }
}

/// Makes replies of the bytes that a server sends.
#[derive(Debug, Default)]
pub struct Replies {
    /// Bytes that were read and not looked at yet.
    input: Vec<u8>,
    at: usize,
    line: Vec<u8>,
    begun: Option<Reply>,
    begun_bytes: usize,
}

impl Replies {
    /// Takes bytes in. All replies of the bytes before have to be taken out first: so memory is bounded by one reply and one read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Nothing is left that the server has sent.
    pub fn is_empty(&self) -> bool {
        self.at == self.input.len() && self.line.is_empty() && self.begun.is_none()
    }

    /// The next reply, if it is complete.
    ///
    /// # Errors
    /// It is none, or longer than any.
    pub fn take(&mut self) -> io::Result<Option<Reply>> {
        while let Some(end) = self.input[self.at..].iter().position(|byte| *byte == b'\n') {
            let rest = &self.input[self.at..self.at + end];
            self.line.extend_from_slice(rest);
            self.at += end + 1;
            if self.line.len() > MAX_LINE_BYTES {
                return Err(no_reply("a line longer than 64 KiB"));
            }
            let mut line = std::mem::take(&mut self.line);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if let Some(reply) = self.add(line)? {
                return Ok(Some(reply));
            }
        }
        self.line.extend_from_slice(&self.input[self.at..]);
        self.at = self.input.len();
        match self.line.len() > MAX_LINE_BYTES {
            true => Err(no_reply("a line longer than 64 KiB")),
            false => Ok(None),
        }
    }

    fn add(&mut self, line: Vec<u8>) -> io::Result<Option<Reply>> {
        let code = code_of(&line);
        let Some(mut reply) = self.begun.take() else {
            let (code, is_last) = code.ok_or_else(|| no_reply("a line without a code"))?;
            let reply = Reply { code, lines: vec![line.get(4..).unwrap_or_default().to_vec()] };
            self.begun_bytes = line.len();
            if is_last {
                return Ok(Some(reply));
            }
            self.begun = Some(reply);
            return Ok(None);
        };
        // An empty line costs as much memory as a short one.
        self.begun_bytes += line.len() + size_of::<Vec<u8>>();
        if self.begun_bytes > MAX_REPLY_BYTES {
            return Err(no_reply("a reply longer than 1 MiB"));
        }
        if code == Some((reply.code, true)) {
            reply.lines.push(line.get(4..).unwrap_or_default().to_vec());
            return Ok(Some(reply));
        }
        reply.lines.push(line);
        self.begun = Some(reply);
        Ok(None)
    }
}

/// The code in front of a line, and whether the line is the last one of its reply.
fn code_of(line: &[u8]) -> Option<(u16, bool)> {
    let digits = line.get(..3)?;
    let is_last = match line.get(3) {
        None | Some(b' ') => true,
        Some(b'-') => false,
        Some(_) => return None,
    };
    let code = digits
        .iter()
        .try_fold(0, |code: u16, digit| digit.is_ascii_digit().then(|| code * 10 + u16::from(digit - b'0')))?;
    (100..600).contains(&code).then_some((code, is_last))
}

fn no_reply(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server does not speak FTP: it sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], step: usize) -> Result<Vec<Reply>, String> {
        let (mut replies, mut found) = (Replies::default(), Vec::new());
        for piece in bytes.chunks(step) {
            replies.push(piece);
            while let Some(reply) = replies.take().map_err(|error| error.to_string())? {
                found.push(reply);
            }
        }
        Ok(found)
    }

    #[test]
    fn replies_come_whole_however_their_bytes_are_cut() {
        let bytes = b"220 hello\r\n211-Features:\r\n MDTM\r\n211 not last\n211-x\r\n\r\n213\r\n211 End\r\n";
        let reply =
            |code, lines: &[&str]| Reply { code, lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect() };
        let expected = vec![
            reply(220, &["hello"]),
            reply(211, &["Features:", " MDTM", "not last"]),
            reply(211, &["x", "", "213", "End"]),
        ];
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(all(bytes, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn what_is_no_reply_ends_the_connection() {
        for bad in [&b"hello\r\n"[..], b"\r\n", b"22\r\n", b"999 x\r\n", b"220x\r\n", b"HTTP/1.1 400 Bad Request\r\n"] {
            assert!(all(bad, 100).is_err(), "{bad:?}");
        }
        assert!(all(&vec![b'2'; MAX_LINE_BYTES + 1], 4096).is_err(), "a line without an end");
        let endless = [&b"211-x\r\n"[..], &b"\r\n".repeat(MAX_REPLY_BYTES / 2)].concat();
        assert!(all(&endless, 4096).is_err(), "a reply without an end");
    }

    #[test]
    fn a_reply_is_shown_on_one_line_without_what_drives_a_terminal() {
        let reply = Reply { code: 550, lines: vec![b"no\x1b[31m such".to_vec()] };
        assert_eq!(reply.shown(), "550 no\\x1b[31m such");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_become_replies_or_an_error(bytes: Vec<u8>, step in 1_usize..40) {
            for reply in all(&bytes, step).unwrap_or_default() {
                assert!((100..600).contains(&reply.code) && !reply.lines.is_empty());
            }
        }
    }
}

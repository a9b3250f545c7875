//! The bytes of one transfer, out of its blocks.

use std::io::{self, ErrorKind, Read};

use crate::account::{Account, Broken, Next};
use crate::header::{HEADER_BYTES, Header};

/// A transfer on its way here. Bytes go from the connection into the reader's buffer at once.
#[derive(Debug, Default)]
pub struct Incoming {
    account: Account,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    of_header: usize,
    /// Bytes of this block that have yet to come.
    left: u64,
}

impl Incoming {
    /// The next bytes. None: all of the data is there.
    ///
    /// # Errors
    /// The connection is cut, or the sender breaks the rules. [`ErrorKind::Unsupported`]: it sends in a way that was not asked for.
    pub fn read(&mut self, from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.left == 0 {
            if self.account.is_over() {
                return Ok(0);
            }
            while self.of_header < HEADER_BYTES {
                match from.read(&mut self.header[self.of_header..])? {
                    0 => return Err(cut()),
                    count => self.of_header += count,
                }
            }
            self.of_header = 0;
            if let Next::Data(bytes) = self.account.enter(Header::decode(&self.header)).map_err(refused)? {
                self.left = bytes;
            }
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        match from.read(&mut buffer[..most])? {
            0 => Err(cut()),
            count => {
                self.left -= count as u64;
                Ok(count)
            }
        }
    }

    /// All of the data was read.
    pub fn is_over(&self) -> bool {
        self.left == 0 && self.account.is_over()
    }

    /// All of the data was read, and the connection may carry the next transfer.
    pub fn is_kept(&self) -> bool {
        self.left == 0 && self.account.is_kept()
    }
}

fn refused(broken: Broken) -> io::Error {
    let kind = if broken.is_allowed_elsewhere() { ErrorKind::Unsupported } else { ErrorKind::InvalidData };
    io::Error::new(kind, broken)
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the data connection before the end of the data")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;

    use super::*;
    use crate::outgoing::{write_block, write_end};

    fn all(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Incoming), String> {
        let (mut from, mut incoming, mut content) = (bytes, Incoming::default(), Vec::new());
        let mut buffer = vec![0; step];
        loop {
            match incoming.read(&mut from, &mut buffer).map_err(|error| error.to_string())? {
                0 => return Ok((content, incoming)),
                count => content.extend_from_slice(&buffer[..count]),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_sent_arrives_however_it_is_cut(
            blocks in vec(vec(any::<u8>(), 0..20), 0..6),
            step in 1_usize..64,
        ) {
            let (mut sent, mut at) = (Vec::new(), 0);
            for block in &blocks {
                write_block(&mut sent, block, at).unwrap();
                at += block.len() as u64;
            }
            write_end(&mut sent).unwrap();
            let (content, incoming) = all(&sent, step).unwrap();
            assert_eq!(content, blocks.concat());
            assert!(incoming.is_over() && incoming.is_kept());
            for end in 0..sent.len() {
                let why = all(&sent[..end], step).unwrap_err();
                assert!(why.contains("closed the data connection"), "{end}: {why}");
            }
        }
    }
}

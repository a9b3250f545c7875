//! Blocks on their way to a server, and the end of a transfer.

use std::io::{self, ErrorKind, IoSlice, Write};

use crate::header::Header;

/// Writes bytes that belong at this place of the file. The header goes out with them.
///
/// # Errors
/// The connection is lost.
pub fn write_block(to: &mut impl Write, data: &[u8], offset: u64) -> io::Result<()> {
    // A block without bytes says nothing.
    if data.is_empty() {
        return Ok(());
    }
    let header = Header { flags: 0, count: data.len() as u64, offset }.encode();
    let (mut head, mut rest) = (&header[..], data);
    while !head.is_empty() || !rest.is_empty() {
        match to.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                let of_head = count.min(head.len());
                head = &head[of_head..];
                rest = &rest[count - of_head..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a transfer of one connection, which the next transfer may use again.
///
/// # Errors
/// The connection is lost.
pub fn write_end(to: &mut impl Write) -> io::Result<()> {
    let end = Header { flags: Header::END_OF_FILE | Header::END_OF_DATA, count: 0, offset: ONE_CONNECTION };
    to.write_all(&end.encode())
}

const ONE_CONNECTION: u64 = 1;

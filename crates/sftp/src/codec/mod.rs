//! Packets of SFTP, version 3, and the extensions of OpenSSH that we use.
//!
//! ```text
//!   length (4) | kind (1) | number of the request (4) | fields
//! ```
//! All that a server says is checked before it is kept: lengths, counts, flags, and that nothing follows behind the end.

mod attributes;
mod bytes;
mod malformed;
mod reply;
mod request;
mod status;

pub use attributes::Attributes;
pub use malformed::Malformed;
pub use reply::{Data, Greeting, HEAD_BYTES, Name, Reply, decode, decode_greeting, id_of};
pub use request::{GREETING, Request};
pub use status::Status;

pub(crate) use bytes::Input;

/// Open for reading (draft, 6.3).
pub const READ: u32 = 1;
/// Open for writing.
pub const WRITE: u32 = 2;
/// Make the file if it is missing.
pub const CREATE: u32 = 8;
/// Fail if it exists.
pub const EXCLUSIVE: u32 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets as draft-ietf-secsh-filexfer-02 and OpenSSH's PROTOCOL write them.
    #[test]
    fn requests_stand_in_packets_as_the_draft_says() {
        let open = Request::Open { path: b"/a", flags: READ | WRITE, mode: Some(0o600) };
        assert_eq!(
            open.packet(7),
            [&[0, 0, 0, 23, 3, 0, 0, 0, 7, 0, 0, 0, 2][..], b"/a", &[0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 1, 0o200]].concat()
        );
        let read = Request::Read { handle: b"h", offset: 1 << 32, bytes: 5 };
        assert_eq!(read.packet(1), [0, 0, 0, 22, 5, 0, 0, 0, 1, 0, 0, 0, 1, b'h', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
        let link = Request::Symlink { leads_to: b"to", path: b"l" };
        assert_eq!(link.packet(0)[9..], [&[0, 0, 0, 2][..], b"to", &[0, 0, 0, 1], b"l"].concat());
        let limits = Request::Limits.packet(2);
        assert_eq!(limits[4..], [&[200, 0, 0, 0, 2, 0, 0, 0, 18][..], b"limits@openssh.com"].concat());
        assert_eq!(
            Request::Write { handle: b"h", offset: 0, data: b"xyz" }.packet(0)[22..],
            [0, 0, 0, 3, 120, 121, 122]
        );
    }

    #[test]
    fn replies_are_read_and_what_breaks_the_format_is_refused() {
        let reply = |bytes: &[u8]| decode(bytes.to_vec());
        let of = |kind: u8, rest: &[u8]| reply(&[&[kind, 0, 0, 0, 9][..], rest].concat());
        let status = Status { code: 4, text: "no".into() };
        assert_eq!(of(101, b"\0\0\0\x04\0\0\0\x02no\0\0\0\x02en"), Ok((9, Reply::Status(status.clone()))));
        assert_eq!(of(101, b"\0\0\0\x04"), Ok((9, Reply::Status(Status { text: String::new(), ..status }))));
        assert_eq!(of(102, b"\0\0\0\x01h"), Ok((9, Reply::Handle(b"h".to_vec()))));
        let Ok((9, Reply::Data(data))) = of(103, b"\0\0\0\x03xyz") else { panic!("no data") };
        assert_eq!(data.bytes(), b"xyz");
        let Ok((9, Reply::Names(names))) = of(104, b"\0\0\0\x01\0\0\0\x01a\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05") else {
            panic!("no names")
        };
        assert_eq!((&names[0].name[..], names[0].attributes.size), (&b"a"[..], Some(5)));
        for (kind, rest) in [
            (101, &b""[..]),
            (102, &[0, 0, 1, 1]),
            (102, b"\0\0\0\x01h!"),
            (103, b"\0\0\0\x04xyz"),
            (103, b"\xff\xff\xff\xffxyz"),
            (104, b"\xff\xff\xff\xff"),
            (105, &[0, 0, 0, 0x10]),
            (105, b"\x80\0\0\0\xff\xff\xff\xff"),
            (106, b""),
        ] {
            assert!(of(kind, rest).is_err(), "{kind} {rest:?}");
        }
        let long = [&[0, 0, 1, 1][..], &[0; 257]].concat();
        assert!(of(102, &long).is_err() && reply(b"").is_err() && reply(&[101, 0]).is_err());
    }

    #[test]
    fn a_greeting_tells_version_and_extensions() {
        let greeting = decode_greeting(b"\x02\0\0\0\x03\0\0\0\x01a\0\0\0\x011").unwrap();
        assert_eq!((greeting.version, &greeting.extensions[..]), (3, &[(b"a".to_vec(), b"1".to_vec())][..]));
        assert!(decode_greeting(b"\x02\0\0\0\x03\0\0\0\x01a").is_err() && decode_greeting(b"Welcome").is_err());
        let many = [&b"\x02\0\0\0\x03"[..], &[0; 8 * 300]].concat();
        assert!(decode_greeting(&many).is_err());
    }
}

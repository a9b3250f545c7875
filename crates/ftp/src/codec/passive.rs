//! The port of a data connection, as the replies to EPSV and PASV tell it.
//!
//! The address that PASV tells is used only of a data node that a striped server has named by SPAS, under the rule of
//! `control/named_hosts.rs`. Otherwise data comes from the host of the control connection: so no server leads us to another host, and one
//! behind a NAT that tells its inner address is reached all the same.

use std::net::SocketAddrV4;

/// `229 text (|||PORT|)` (RFC 2428): any character may stand for the bar.
pub(crate) fn extended(text: &[u8]) -> Option<u16> {
    let begin = text.iter().position(|byte| *byte == b'(')? + 1;
    let inside = &text[begin..begin + text[begin..].iter().position(|byte| *byte == b')')?];
    let (bar, rest) = inside.split_first()?;
    let rest = rest.strip_prefix(&[*bar, *bar])?;
    let digits = rest.strip_suffix(&[*bar])?;
    port(digits)
}

/// `227 text h1,h2,h3,h4,p1,p2 text`, mostly in brackets.
pub(crate) fn usual(text: &[u8]) -> Option<u16> {
    address(text).map(|address| address.port())
}

/// The address, too.
pub(crate) fn address(text: &[u8]) -> Option<SocketAddrV4> {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    let numbers =
        text.split(|byte| !is_of_number(byte)).find(|part| part.iter().filter(|byte| **byte == b',').count() == 5)?;
    let numbers: Option<Vec<u8>> =
        numbers.split(|byte| *byte == b',').map(|part| std::str::from_utf8(part).ok()?.parse().ok()).collect();
    match numbers?[..] {
        [a, b, c, d, high, low] => {
            let port = Some(u16::from_be_bytes([high, low])).filter(|port| *port > 0)?;
            Some(SocketAddrV4::new([a, b, c, d].into(), port))
        }
        _ => None,
    }
}

/// `229-text`, a line ` h1,h2,h3,h4,p1,p2` for each data node, `229 text` (SPAS of GFD.20). `None`: a line tells no address, or there are none,
/// or more than `most`.
pub(crate) fn stripes(lines: &[Vec<u8>], most: usize) -> Option<Vec<SocketAddrV4>> {
    let [_, told @ .., _] = lines else { return None };
    if told.is_empty() || told.len() > most {
        return None;
    }
    told.iter().map(|line| address(line)).collect()
}

fn port(digits: &[u8]) -> Option<u16> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_both_forms() {
        assert_eq!(extended(b"Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(extended(b"ok (!!!1!)"), Some(1));
        for bad in [&b"(|||0|)"[..], b"(|||65536|)", b"(|||x|)", b"(||6446|)", b"|||6446|", b"(|||+1|)", b"(", b"()"] {
            assert_eq!(extended(bad), None, "{bad:?}");
        }
        assert_eq!(usual(b"Entering Passive Mode (10,0,0,1,4,1)."), Some(1025));
        assert_eq!(address(b"=127,0,0,1,0,21"), Some(SocketAddrV4::new([127, 0, 0, 1].into(), 21)));
        let lines = |told: &[&str]| -> Vec<Vec<u8>> {
            ["Entering Striped Passive Mode."]
                .iter()
                .chain(told)
                .chain(&["End"])
                .map(|line| line.as_bytes().to_vec())
                .collect()
        };
        let nodes = stripes(&lines(&[" 10,0,0,1,4,1", " 10,0,0,2,4,2"]), 2).unwrap();
        assert_eq!(nodes.iter().map(SocketAddrV4::port).collect::<Vec<_>>(), [1025, 1026]);
        for (told, most) in [(&[][..], 2), (&["10,0,0,1,4,1"; 3], 2), (&["10,0,0,1,4,1", "x"], 2)] {
            assert_eq!(stripes(&lines(told), most), None, "{told:?}");
        }
        for bad in [&b"(1,2,3,4,0,0)"[..], b"(1,2,3,4,256,1)", b"(1,2,3,4,5)", b"", b"(1,2,3,4,,1)"] {
            assert_eq!(usual(bad), None, "{bad:?}");
        }
    }
}

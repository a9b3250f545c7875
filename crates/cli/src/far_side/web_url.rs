//! Addresses as typed: `https://[user[:password]@]host[:port]/path[?query]`, `http`, `dav`, `davs`; and `ftp://`,
//! `ftps://`, `gsiftp://`, whose paths are names of files without a query.
//!
//! Passwords and queries, which may be signatures, are never shown.

use haul_job::written::without_query;
use haul_job::{Endpoint, FtpServer, Here, WebLogin, WebServer};

pub type Refused = (&'static str, &'static str);

pub fn parse_any(scheme: &[u8], rest: &[u8]) -> Option<Result<Endpoint, Refused>> {
    match of_ftp(scheme) {
        Some(kind) => Some(parse_ftp(kind, rest)),
        None => Some(parse(of_scheme(scheme)?, rest)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scheme {
    is_tls: bool,
    is_dav: bool,
}

fn of_scheme(scheme: &[u8]) -> Option<Scheme> {
    let (is_tls, is_dav) = match scheme.to_ascii_lowercase().as_slice() {
        b"http" => (false, false),
        b"https" => (true, false),
        b"dav" => (false, true),
        b"davs" => (true, true),
        _ => return None,
    };
    Some(Scheme { is_tls, is_dav })
}

fn parse(Scheme { is_tls, is_dav }: Scheme, rest: &[u8]) -> Result<Endpoint, Refused> {
    let end = end_of_authority(rest);
    let (authority, path) = rest.split_at(end);
    let (login, host, port) = split_login(authority)?;
    let port = port.unwrap_or(if is_tls { 443 } else { 80 });
    let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
    let server = WebServer { is_tls, is_dav, host: host.to_ascii_lowercase(), port, login };
    Ok(Endpoint { place: Here::Web(server).into(), path })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FtpKind {
    Ftp,
    Ftps,
    Grid,
}

fn of_ftp(scheme: &[u8]) -> Option<FtpKind> {
    match scheme.to_ascii_lowercase().as_slice() {
        b"ftp" => Some(FtpKind::Ftp),
        b"ftps" => Some(FtpKind::Ftps),
        b"gsiftp" => Some(FtpKind::Grid),
        _ => None,
    }
}

/// GridFTP's path begins at the top, and with `/~/` at the home.
pub fn grid_path(path: Vec<u8>) -> Vec<u8> {
    match path.strip_prefix(b"/~") {
        Some(b"") => Vec::new(),
        Some([b'/', beneath @ ..]) => beneath.to_vec(),
        _ if path.starts_with(b"/") => path,
        _ => [b"/", &path[..]].concat(),
    }
}

/// Parses the rest behind `ftp://`. The path begins where the server starts; after a second slash, or `%2F`, at its top
/// (RFC 1738, 3.2.2).
fn parse_ftp(kind: FtpKind, rest: &[u8]) -> Result<Endpoint, Refused> {
    let (authority, path) = rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()));
    let (login, host, port) = split_login(authority)?;
    let (is_tls, is_grid) = (kind == FtpKind::Ftps, kind == FtpKind::Grid);
    let path = if is_grid { path } else { path.strip_prefix(b"/").unwrap_or(path) };
    let path = match path.len().checked_sub(TYPE_BYTES).map(|at| path.split_at(at)) {
        Some((path, b";type=i" | b";type=I")) => path,
        Some((_, b";type=a" | b";type=A" | b";type=d" | b";type=D")) => {
            return Err(("files are copied as they are", "leave ;type= out"));
        }
        _ => path,
    };
    let path = unescaped(path);
    if path.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(("FTP cannot say a name with a line break or a NUL byte in it", "rename it at the server"));
    }
    let path = if is_grid { grid_path(path) } else { path };
    let port = port.unwrap_or(if is_grid { FtpServer::GRID_PORT } else { FtpServer::usual_port(is_tls) });
    let server = FtpServer { is_tls, is_grid, host: host.to_ascii_lowercase(), port, login };
    Ok(Endpoint { place: Here::Ftp(server).into(), path })
}

/// `;type=i`
const TYPE_BYTES: usize = 7;

fn split_login(authority: &[u8]) -> Result<(Option<WebLogin>, &str, Option<u16>), Refused> {
    let (login, address) = match authority.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (Some(login(&authority[..at])?), &authority[at + 1..]),
        None => (None, authority),
    };
    let (host, port) = split_port(address)?;
    Ok((login, host, port))
}

/// The address without what stands before an `@`, and without its query.
pub fn shown(typed: &[u8]) -> Option<Vec<u8>> {
    let at = typed.windows(3).position(|three| three == b"://")?;
    let is_ftp = of_ftp(&typed[..at]).is_some();
    if !is_ftp {
        of_scheme(&typed[..at])?;
    }
    let (scheme, rest) = typed.split_at(at + 3);
    let (authority, path) = rest.split_at(end_of_authority(rest));
    let address = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    let path = if is_ftp { path.to_vec() } else { without_query(path) };
    Some([scheme, address, &path].concat())
}

/// Returns the path of the file that a URL's path means.
pub fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        let escaped = tail.split_at_checked(2).filter(|_| *byte == b'%');
        let value = escaped.and_then(|(digits, tail)| {
            let digits = std::str::from_utf8(digits).ok().filter(|two| two.bytes().all(|d| d.is_ascii_hexdigit()))?;
            Some((u8::from_str_radix(digits, 16).ok()?, tail))
        });
        match value {
            Some((value, tail)) => {
                bytes.push(value);
                rest = tail;
            }
            None => bytes.push(*byte),
        }
    }
    bytes
}

/// Returns a URL's path for a file's; it can be typed.
pub fn escaped(path: &[u8]) -> Vec<u8> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte);
    path.iter()
        .flat_map(|byte| if is_plain(*byte) { vec![*byte] } else { format!("%{byte:02X}").into_bytes() })
        .collect()
}

fn end_of_authority(rest: &[u8]) -> usize {
    rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len())
}

fn login(text: &[u8]) -> Result<WebLogin, Refused> {
    let mut parts = text.splitn(2, |byte| *byte == b':').map(decoded);
    let user = parts.next().flatten().filter(|user| !user.is_empty());
    let password = parts.next().unwrap_or_else(|| Some(String::new()));
    match (user, password) {
        (Some(user), Some(password)) => Ok(WebLogin { user, password }),
        _ => {
            Err(("the text before the @ is no login", "write https://user:password@host/path, with %40 for an @ in it"))
        }
    }
}

fn decoded(text: &[u8]) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

fn split_port(address: &[u8]) -> Result<(&str, Option<u16>), Refused> {
    let no_host = ("the host is no name or address", "write https://host/path, or https://[2001:db8::1]/path");
    let address = std::str::from_utf8(address).map_err(|_| no_host)?;
    let (host, port) = match address.strip_prefix('[') {
        Some(inside) => {
            let (host, port) = inside.split_once(']').ok_or(no_host)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(no_host)?) })
        }
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    if host.is_empty() || host.len() > MAX_HOST_BYTES || host.starts_with('-') || !host.bytes().all(is_host) {
        return Err(no_host);
    }
    let port = port.filter(|port| !port.is_empty()).map(|port| {
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
        port.filter(|port| *port > 0).ok_or(("its port is none", "a port is a number from 1 to 65535"))
    });
    Ok((host, port.transpose()?))
}

/// DNS names have at most 253 bytes; a scope such as `%eth0` may follow an address.
const MAX_HOST_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use haul_job::Place;

    use super::*;

    fn show(rest: &str) -> String {
        match parse(of_scheme(b"https").unwrap(), rest.as_bytes()) {
            Ok(Endpoint { place: Place::Here(Here::Web(server)), path }) => {
                let login = server.login.as_ref().map(|login| format!("{} {} ", login.user, login.password));
                format!("{}{server} {}", login.unwrap_or_default(), String::from_utf8_lossy(&path))
            }
            Ok(_) => panic!("another place"),
            Err((why, _)) => format!("refused: {why}"),
        }
    }

    #[test]
    fn addresses_of_web_servers() {
        for (rest, expected) in [
            ("host/a%20b?x=1", "https://host /a%20b?x=1"),
            ("HOST", "https://host /"),
            ("host:8443/", "https://host:8443 /"),
            ("host:443?x", "https://host /?x"),
            ("[2001:db8::1]:81/x", "https://[2001:db8::1]:81 /x"),
            ("me:s%40c:ret@host/x", "me s@c:ret https://host /x"),
            ("me@host/x", "me  https://host /x"),
            ("/x", "refused: the host is no name or address"),
            ("ho st/x", "refused: the host is no name or address"),
            ("-host/x", "refused: the host is no name or address"),
            ("host:0/x", "refused: its port is none"),
            ("host:x/", "refused: its port is none"),
            (":secret@host/x", "refused: the text before the @ is no login"),
        ] {
            assert_eq!(show(rest), expected, "{rest}");
        }
    }

    #[test]
    fn a_path_of_a_file_and_that_of_its_url_lead_to_each_other() {
        for (path, url) in [
            (&b"/a b"[..], "/a%20b"),
            (b"/100%", "/100%25"),
            (b"/#?\n", "/%23%3F%0A"),
            (b"/\xff", "/%FF"),
            (b"/x+y;z", "/x+y;z"),
        ] {
            assert_eq!(String::from_utf8(escaped(path)).unwrap(), url);
            assert_eq!(unescaped(url.as_bytes()), path);
        }
        assert_eq!(unescaped(b"/%zz%"), b"/%zz%");
    }

    #[test]
    fn webdav_has_schemes_of_its_own_and_the_ports_of_the_web() {
        for (scheme, shown) in [("dav", "dav://host"), ("DAVS", "davs://host"), ("http", "http://host")] {
            let Endpoint { place, .. } = parse(of_scheme(scheme.as_bytes()).unwrap(), b"host/x").unwrap();
            assert_eq!(place.to_string(), shown);
        }
        assert_eq!(of_scheme(b"webdav"), None);
    }

    #[test]
    fn addresses_of_ftp() {
        use FtpKind::{Ftp, Ftps, Grid};
        for (kind, rest, expected) in [
            (Ftp, "host/a%20b?x;y", "ftp://host [a b?x;y]"),
            (Ftp, "host", "ftp://host []"),
            (Ftp, "me:s%40c@HOST:2121//etc/x", "ftp://host:2121 [/etc/x]"),
            (Ftp, "host/%2Fetc/;type=i", "ftp://host [/etc/]"),
            (Ftps, "host/x", "ftps://host [x]"),
            (Ftps, "[::1]:21/x", "ftps://[::1]:21 [x]"),
            (Ftp, "host/x;type=a", "refused: files are copied as they are"),
            (Ftp, "host/x%0d%0aDELE%20y", "refused: FTP cannot say a name with a line break or a NUL byte in it"),
            (Grid, "host:2811/data/x%20y", "gsiftp://host [/data/x y]"),
            (Grid, "me@host:2812/~/x", "gsiftp://host:2812 [x]"),
            (Grid, "host/~/", "gsiftp://host []"),
            (Grid, "host/~user/x", "gsiftp://host [/~user/x]"),
            (Grid, "host", "gsiftp://host [/]"),
            (Ftp, "/x", "refused: the host is no name or address"),
        ] {
            let shown = match parse_ftp(kind, rest.as_bytes()) {
                Ok(Endpoint { place, path }) => format!("{place} [{}]", String::from_utf8_lossy(&path)),
                Err((why, _)) => format!("refused: {why}"),
            };
            assert_eq!(shown, expected, "{rest}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let shown = |typed: &str| shown(typed.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(shown("https://me:secret@host/x?sig=1#y").as_deref(), Some("https://host/x?..."));
        assert_eq!(shown("HTTP://a@b@host").as_deref(), Some("HTTP://host"));
        assert_eq!(shown("ftp://me:secret@host/x?y").as_deref(), Some("ftp://host/x?y"));
        assert_eq!(shown("ssh://me@host/x"), None);
    }
}

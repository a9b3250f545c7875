//! Endpoints as people type them.
//!
//! ```text
//! user@host:path   host:path   [v6]:path   user@[v6]:path      as in scp; a relative path starts at the home directory
//! ssh://[user@]host[:port]/path      relative to the home directory, as in scp://; ssh://host//path is absolute
//! sftp://[user@]host[:port]/path     a host where no haul can run; paths as with ssh://
//! haul://host[:port]/path            a daemon; relative to the directory it offers to the key
//! stripes:INDEX                      a striped recording to copy from as one file, here; INDEX is what haul record --stripe-dir left
//! https://[user[:password]@]host[:port]/path, http://...      files and directories of a web server, to copy from
//! davs://..., dav://...              the same of a server with WebDAV; ftp://..., ftps://...: a tree at a server of FTP
//! gsiftp://..., sshftp://...         a tree at a server of GridFTP, by a login of its own or through ssh; paths begin at the top, /~/x at home
//! s3://bucket/key                    objects of a store; the key is taken as it is written
//! zero:SIZE, null:                   a file of zeros to copy from, and nowhere to copy to; both here
//! NAME:path                          NAME is an end of config.toml; path is beneath it
//! anything else                      here; a name with a colon needs ./ in front, as in scp
//! ```
//! host1,host2:path   haul://host1,host2[:port]/path   several hosts with the same files. A user or port that is named once is for all.
//! Everything after the host is bytes. A URI's path may hold %HH for any byte but NUL.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use haul_job::rate;
use haul_job::{Endpoint, Error, Far, Fault, Here, Place};

use crate::far_side::web_url;
use crate::text::printable::printable;

pub fn parse_hosts(typed: &OsStr) -> Result<(Endpoint, Vec<Far>), Error> {
    let bytes = typed.as_bytes();
    if let Some(end) = named_end(bytes) {
        return end;
    }
    let Some((hosts, scheme, rest)) = host_list(bytes) else { return Ok((parse(typed)?, Vec::new())) };
    let mut parts: Vec<Vec<u8>> = hosts.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect();
    if parts.len() > MAX_HOSTS {
        return Err(refused(bytes, &format!("one end has at most {MAX_HOSTS} hosts"), "name fewer of them"));
    }
    share_user(&mut parts);
    if scheme.is_some() {
        share_port(&mut parts);
    }
    let one = |host: Vec<u8>| {
        let scheme = scheme.unwrap_or_default();
        parse(OsStr::from_bytes(&[scheme, &host, rest].concat()))
    };
    let mut ends = parts.into_iter().map(one);
    let first = ends.next().expect("a split has a part")?;
    let mut others = Vec::new();
    for other in ends {
        let (Place::Far(leader), Place::Far(far)) = (&first.place, other?.place) else {
            return Err(refused(bytes, "one of its names is no host", "name hosts alone"));
        };
        if far == *leader || others.contains(&far) {
            return Err(refused(bytes, "it names a host twice", "name each host once"));
        }
        others.push(far);
    }
    Ok((first, others))
}

pub fn one_host(typed: &OsStr) -> Result<Endpoint, Error> {
    parse_hosts(typed).map(|(first, _)| first)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEnd {
    pub first: Endpoint,
    pub others: Vec<Far>,
}

/// Set once, at the program's start.
static NAMED_ENDS: OnceLock<BTreeMap<String, NamedEnd>> = OnceLock::new();

pub fn name_ends(ends: BTreeMap<String, NamedEnd>) {
    let _ = NAMED_ENDS.set(ends);
}

pub fn names_of_ends() -> Vec<String> {
    NAMED_ENDS.get().into_iter().flat_map(BTreeMap::keys).cloned().collect()
}

/// `host:path` and `haul://host/path`, split behind the host. `None`: a path here, or no full host.
pub fn split_path(typed: &str) -> Option<(&str, &str)> {
    let scheme = split_scheme(typed.as_bytes());
    let end = match scheme {
        Some((scheme, rest)) => scheme.len() + 3 + rest.iter().position(|byte| *byte == b'/')?,
        None => find_colon_of_list(typed.as_bytes()).or_else(|| find_colon(typed.as_bytes()))?,
    };
    Some(typed.split_at(end + 1))
}

/// `NAME:path`; never a URI or a name with a user.
fn named_end(typed: &[u8]) -> Option<Result<(Endpoint, Vec<Far>), Error>> {
    let ends = NAMED_ENDS.get()?;
    if split_scheme(typed).is_some() {
        return None;
    }
    let colon = find_colon(typed)?;
    let NamedEnd { first, others } = ends.get(std::str::from_utf8(&typed[..colon]).ok()?)?;
    if typed.contains(&0) {
        return Some(Err(refused(typed, "it contains a NUL byte", "no file name can")));
    }
    let path = beneath(&first.path, &typed[colon + 1..]);
    Some(Ok((Endpoint { place: first.place.clone(), path }, others.clone())))
}

/// A path of a named end starts at its root, even with a slash in front, as with rclone's aliases.
fn beneath(root: &[u8], path: &[u8]) -> Vec<u8> {
    let path = &path[path.iter().position(|byte| *byte != b'/').unwrap_or(path.len())..];
    match (root, path) {
        (root, b"") => root.to_vec(),
        (b"", path) => path.to_vec(),
        (b".", path) => path.to_vec(),
        (root, path) if root.ends_with(b"/") => [root, path].concat(),
        (root, path) => [root, b"/", path].concat(),
    }
}

/// [`haul_job::MAX_MOVERS`] and the first.
const MAX_HOSTS: usize = haul_job::MAX_MOVERS as usize + 1;

type HostList<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

fn host_list(bytes: &[u8]) -> Option<HostList<'_>> {
    let has_several = |hosts: &[u8]| hosts.contains(&b',');
    if let Some((scheme, rest)) = split_scheme(bytes) {
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let is_ours = matches!(scheme, b"ssh" | b"scp" | b"haul");
        return (is_ours && has_several(&rest[..end]))
            .then(|| (&rest[..end], Some(&bytes[..scheme.len() + 3]), &rest[end..]));
    }
    let colon = find_colon_of_list(bytes)?;
    has_several(&bytes[..colon]).then(|| (&bytes[..colon], None, &bytes[colon..]))
}

/// [`find_colon`] for lists, where brackets may stand anywhere.
fn find_colon_of_list(bytes: &[u8]) -> Option<usize> {
    let mut is_inside = false;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'[' if at == 0 || matches!(bytes[at - 1], b',' | b'@') => is_inside = true,
            b']' => is_inside = false,
            b':' if !is_inside => return Some(at),
            b'/' => return None,
            _ => {}
        }
    }
    None
}

/// Hosts without a login name have the first host's.
fn share_user(hosts: &mut [Vec<u8>]) {
    let Some(user) = split_user(&hosts[0]).0.map(<[u8]>::to_vec) else { return };
    for host in hosts.iter_mut().filter(|host| !host.contains(&b'@')) {
        *host = [&user, &b"@"[..], host].concat();
    }
}

/// Hosts without a port have the last host's.
fn share_port(hosts: &mut [Vec<u8>]) {
    let colon = |host: &[u8]| {
        let address = host.iter().rposition(|byte| matches!(byte, b']' | b'@')).unwrap_or(0);
        host[address..].iter().position(|byte| *byte == b':').map(|at| address + at)
    };
    let Some(port) = hosts.last().and_then(|last| Some(last[colon(last)?..].to_vec())) else { return };
    for host in hosts.iter_mut().filter(|host| colon(host).is_none()) {
        host.extend_from_slice(&port);
    }
}

pub fn parse(typed: &OsStr) -> Result<Endpoint, Error> {
    let bytes = typed.as_bytes();
    if bytes.is_empty() {
        return Err(refused(bytes, "the name is empty", "use . for the current directory"));
    }
    if bytes.contains(&0) {
        return Err(refused(bytes, "it contains a NUL byte", "no file name can"));
    }
    if let Some(path) = bytes.strip_prefix(b"stripes:").filter(|path| !path.is_empty()) {
        return Ok(Endpoint { place: Here::Stripes { directories: Vec::new() }.into(), path: path.to_vec() });
    }
    if let Some(made_up) = made_up(bytes)? {
        return Ok(Endpoint { place: made_up.into(), path: Vec::new() });
    }
    if let Some((scheme, rest)) = split_scheme(bytes) {
        if let Some(parsed) = web_url::parse_any(scheme, rest) {
            return parsed.map_err(|(cause, hint)| refused(bytes, cause, hint));
        }
        return match scheme {
            b"ssh" | b"scp" => ssh_uri(bytes, rest),
            b"haul" => haul_uri(bytes, rest),
            b"sftp" => sftp_uri(bytes, rest),
            b"sshftp" => sshftp_uri(bytes, rest),
            b"s3" => s3_uri(bytes, rest),
            other => Err(refused(
                bytes,
                &format!("haul does not speak {}://", printable(other)),
                "use host:path, ssh://host/path, sftp://host/path, haul://host/path, ftp://host/path, s3://bucket/key or https://host/path; for a local name put ./ in front",
            )),
        };
    }
    match find_colon(bytes) {
        Some(colon) => remote(bytes, &bytes[..colon], &bytes[colon + 1..]),
        None => Ok(Endpoint { place: Here::Disk.into(), path: bytes.to_vec() }),
    }
}

/// `zero:SIZE` and `null:`. Hosts of these names have other spellings: `ssh://null/`, `null:.`.
fn made_up(bytes: &[u8]) -> Result<Option<Here>, Error> {
    if bytes == b"null:" {
        return Ok(Some(Here::Null));
    }
    let Some(size) = bytes.strip_prefix(b"zero:").filter(|size| size.first().is_some_and(u8::is_ascii_digit)) else {
        return Ok(None);
    };
    let size = std::str::from_utf8(size).map_err(|_| "it is no number".to_owned());
    match size.and_then(rate::parse_size) {
        Ok(bytes) if bytes <= ZERO_BYTES_MAX => Ok(Some(Here::Zero { bytes })),
        Ok(_) => Err(refused(bytes, "a file here may have at most 1 PiB", "zero:1T")),
        Err(why) => Err(refused(bytes, &why, "zero:10G is 10 GiB of zeros; a path on a host named zero: zero:./NAME")),
    }
}

/// 1 PiB: ten days at 10 Gbit/s.
const ZERO_BYTES_MAX: u64 = 1 << 50;

/// scp's rule, also for `[v6]:`: the first colon ends the host, unless a slash stands before it.
fn find_colon(bytes: &[u8]) -> Option<usize> {
    let mut bracketed = bytes.first() == Some(&b'[');
    for (at, byte) in bytes.iter().enumerate() {
        let next = bytes.get(at + 1);
        match byte {
            b'@' if next == Some(&b'[') => bracketed = true,
            b']' if next == Some(&b':') && bracketed => return Some(at + 1),
            b':' if !bracketed => return Some(at),
            b'/' => return None,
            _ => {}
        }
    }
    None
}

fn remote(typed: &[u8], host: &[u8], path: &[u8]) -> Result<Endpoint, Error> {
    if path.starts_with(b":") {
        return Err(refused(
            typed,
            "host::module means a daemon of rsync, and haul does not speak its protocol",
            "use host:path over ssh, or haul://host/path; for a remote name with a colon host:./:name",
        ));
    }
    // user@[host]:path, and as scp also [user@host]:path.
    let (user, host) = match unbracketed(host) {
        Some(inside) => split_user(inside),
        None => {
            let (user, host) = split_user(host);
            (user, unbracketed(host).unwrap_or(host))
        }
    };
    let user = user.map(|u| check_user(typed, u)).transpose()?;
    let place = Far::Ssh { user, host: check_host(typed, host)?, port: None }.into();
    Ok(Endpoint { place, path: home_if_empty(path.to_vec()) })
}

fn unbracketed(host: &[u8]) -> Option<&[u8]> {
    host.strip_prefix(b"[")?.strip_suffix(b"]")
}

fn ssh_uri(typed: &[u8], rest: &[u8]) -> Result<Endpoint, Error> {
    let (authority, path) = split_authority(rest);
    let (user, address) = split_user(authority);
    let (host, port) = split_port(typed, address)?;
    let user = user.map(|user| percent_decode(typed, user).and_then(|user| check_user(typed, &user))).transpose()?;
    let place = Far::Ssh { user, host: check_host(typed, host)?, port }.into();
    Ok(Endpoint { place, path: home_if_empty(percent_decode(typed, path)?) })
}

fn sftp_uri(typed: &[u8], rest: &[u8]) -> Result<Endpoint, Error> {
    let Endpoint { place, path } = ssh_uri(typed, rest)?;
    let Place::Far(Far::Ssh { user, host, port }) = place else { unreachable!("ssh_uri makes such a place") };
    Ok(Endpoint { place: Here::Sftp { user, host, port }.into(), path })
}

fn sshftp_uri(typed: &[u8], rest: &[u8]) -> Result<Endpoint, Error> {
    let (_, path) = split_authority(rest);
    let Endpoint { place, .. } = ssh_uri(typed, rest)?;
    let Place::Far(Far::Ssh { user, host, port }) = place else { unreachable!("ssh_uri makes such a place") };
    let path = web_url::grid_path(percent_decode(typed, path)?);
    if path.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(refused(typed, "FTP cannot say a name with a line break in it", "rename it at the server"));
    }
    Ok(Endpoint { place: Here::SshFtp { user, host, port }.into(), path })
}

/// A key is taken byte for byte, as by other tools, percent signs too.
fn s3_uri(typed: &[u8], rest: &[u8]) -> Result<Endpoint, Error> {
    let (bucket, key) = rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()));
    let bucket = std::str::from_utf8(bucket).ok().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| refused(typed, "it names no bucket", "write s3://bucket/key"))?;
    let path = key.strip_prefix(b"/").unwrap_or(key).to_vec();
    Ok(Endpoint { place: Here::S3 { bucket: bucket.to_owned() }.into(), path })
}

fn haul_uri(typed: &[u8], rest: &[u8]) -> Result<Endpoint, Error> {
    let (authority, path) = split_authority(rest);
    if authority.contains(&b'@') {
        return Err(refused(typed, "a haul:// address has no user", "the key says who you are: --identity FILE"));
    }
    let (host, port) = split_port(typed, authority)?;
    let place = Far::Haul { host: check_host(typed, host)?, port: port.unwrap_or(HAUL_PORT) }.into();
    Ok(Endpoint { place, path: home_if_empty(percent_decode(typed, path)?) })
}

/// `host:` is the home directory, `haul://host` what the daemon offers.
fn home_if_empty(path: Vec<u8>) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path }
}

/// `name://rest`. An unknown scheme is likelier than a host `http` with a path `//x`.
fn split_scheme(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(3).position(|w| w == b"://")?;
    let scheme = &bytes[..at];
    let plain = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    plain.then(|| (scheme, &bytes[at + 3..]))
}

fn split_authority(rest: &[u8]) -> (&[u8], &[u8]) {
    match rest.iter().position(|b| *b == b'/') {
        Some(slash) => (&rest[..slash], &rest[slash + 1..]),
        None => (rest, b""),
    }
}

/// The last `@` splits: only a login name may hold another.
fn split_user(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match bytes.iter().rposition(|b| *b == b'@') {
        Some(at) => (Some(&bytes[..at]), &bytes[at + 1..]),
        None => (None, bytes),
    }
}

fn split_port<'a>(typed: &[u8], address: &'a [u8]) -> Result<(&'a [u8], Option<u16>), Error> {
    let (host, port) = if let Some(inside) = address.strip_prefix(b"[") {
        let Some(end) = inside.iter().position(|b| *b == b']') else {
            return Err(refused(typed, "the bracket around the address is not closed", "write [2001:db8::1]"));
        };
        match &inside[end + 1..] {
            b"" => (&inside[..end], None),
            [b':', port @ ..] => (&inside[..end], Some(port)),
            _ => {
                return Err(refused(typed, "there is text between the address and its port", "write [2001:db8::1]:22"));
            }
        }
    } else {
        let mut parts = address.splitn(2, |b| *b == b':');
        let host = parts.next().unwrap_or_default();
        (host, parts.next())
    };
    if port.is_some_and(|port| port.contains(&b':')) {
        return Err(refused(typed, "an IPv6 address needs brackets", "write [2001:db8::1]"));
    }
    let port = match port {
        None => None,
        Some(digits) => Some(parse_port(digits).ok_or_else(|| {
            refused(typed, &format!("{} is not a port", printable(digits)), "a port is a number from 1 to 65535")
        })?),
    };
    Ok((host, port))
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok().filter(|port| *port != 0)
}

/// Refuses what ssh does (`valid_hostname` in its ssh.c), with our message first.
fn check_host(typed: &[u8], host: &[u8]) -> Result<String, Error> {
    const FORBIDDEN: &[u8] = b"'`\"$\\;&<>|(){},/@[]";
    let hint = "for a local name with a colon, put ./ in front";
    if host.is_empty() {
        return Err(refused(typed, "the host is empty", hint));
    }
    if host.starts_with(b"-") {
        return Err(refused(typed, "a host cannot start with a dash", hint));
    }
    if host.len() > MAX_HOST_BYTES {
        return Err(refused(typed, "the host is longer than any host name", hint));
    }
    if host.iter().any(|b| b.is_ascii_control() || b.is_ascii_whitespace() || FORBIDDEN.contains(b)) {
        return Err(refused(typed, "the host has a character that no host name has", hint));
    }
    String::from_utf8(host.to_vec()).map_err(|_| refused(typed, "the host is not text", hint))
}

/// Refuses what ssh does (`valid_ruser` in its ssh.c). A Windows domain's login has a backslash.
fn check_user(typed: &[u8], user: &[u8]) -> Result<String, Error> {
    const FORBIDDEN: &[u8] = b"'`\";&<>|(){}";
    let bad = user.is_empty()
        || user.starts_with(b"-")
        || user.ends_with(b"\\")
        || user.len() > MAX_HOST_BYTES
        || user.iter().any(|b| b.is_ascii_control() || b.is_ascii_whitespace() || FORBIDDEN.contains(b));
    let error = || {
        let hint = "write user@host:path; for a local name with a colon, put ./ in front";
        refused(typed, "the text before the @ is not a login name", hint)
    };
    if bad {
        return Err(error());
    }
    String::from_utf8(user.to_vec()).map_err(|_| error())
}

fn percent_decode(typed: &[u8], text: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let decoded = tail.get(..2).and_then(|pair| {
            let digits = std::str::from_utf8(pair).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok().filter(|b| *b != 0)
        });
        match decoded {
            Some(decoded) => out.push(decoded),
            None => {
                let hint = "in an address with :// a percent sign is written %25; host:path takes it as it is";
                return Err(refused(typed, "a % is not followed by two hexadecimal digits (or by 00)", hint));
            }
        }
        rest = &tail[2..];
    }
    Ok(out)
}

fn refused(typed: &[u8], cause: &str, hint: &str) -> Error {
    Error::new(Fault::Usage, format!("cannot use {}", shown(typed))).because(cause).try_this(hint)
}

fn shown(typed: &[u8]) -> String {
    let without_secrets = web_url::shown(typed);
    let typed = without_secrets.as_deref().unwrap_or(typed);
    let short = typed.len() > 200;
    format!("'{}{}'", printable(&typed[..typed.len().min(200)]), if short { "…" } else { "" })
}

/// The port of `haul serve` and `haul://host/path`, unassigned by IANA.
pub const HAUL_PORT: u16 = 7632;

/// DNS names have at most 253 bytes; a scope such as `%eth0` may follow an address.
const MAX_HOST_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn show(typed: &[u8]) -> String {
        match parse(OsStr::from_bytes(typed)) {
            Ok(Endpoint { place, path }) => {
                let path = printable(path);
                match place {
                    Place::Here(Here::Disk) => format!("local {path}"),
                    Place::Here(made_up) => format!("{made_up} {path}"),
                    Place::Far(Far::Ssh { user, host, port }) => format!("ssh {user:?} {host} {port:?} {path}"),
                    Place::Far(Far::Haul { host, port }) => format!("haul {host} {port} {path}"),
                }
            }
            Err(error) => {
                assert_eq!(error.fault, Fault::Usage);
                assert!(error.hint.is_some());
                format!("refused: {}", error.cause.unwrap_or_default())
            }
        }
    }

    #[test]
    fn a_key_of_a_store_is_taken_byte_for_byte() {
        assert_eq!(
            (show(b"s3://bucket"), show(b"s3://bucket/a%20b//c/")),
            ("s3://bucket ".to_owned(), "s3://bucket a%20b//c/".to_owned())
        );
        assert!(show(b"s3:///key").starts_with("refused"));
    }

    #[test]
    fn a_host_of_sftp_is_written_as_one_of_ssh() {
        for (typed, shown) in [
            ("sftp://host", "sftp://host ."),
            ("sftp://me@host:2222/a%20b/", "sftp://me@host:2222 a b/"),
            ("sftp://host//abs", "sftp://host /abs"),
            ("sftp://[2001:db8::1]:22/x", "sftp://[2001:db8::1]:22 x"),
        ] {
            assert_eq!(show(typed.as_bytes()), shown);
            let end = parse(OsStr::new(typed)).unwrap();
            assert_eq!(parse(OsStr::from_bytes(&end.written())).unwrap().place, end.place, "{typed}");
        }
        assert!(show(b"sftp:///x").starts_with("refused"));
    }

    #[test]
    fn a_path_of_a_named_end_is_beneath_its_root() {
        let table: [(&[u8], &[u8], &[u8]); 6] = [
            (b"archive", b"sub/dir", b"archive/sub/dir"),
            (b"archive", b"", b"archive"),
            (b"/data/", b"/x/", b"/data/x/"),
            (b".", b"x", b"x"),
            (b".", b"", b"."),
            (b"/", b"//x", b"/x"),
        ];
        for (root, path, expected) in table {
            assert_eq!(beneath(root, path), expected, "{root:?} {path:?}");
        }
    }

    #[test]
    fn a_host_ends_where_its_path_begins() {
        let table = [
            ("host:a/b:c", Some(("host:", "a/b:c"))),
            ("h1,h2:a", Some(("h1,h2:", "a"))),
            ("me@[::1]:a", Some(("me@[::1]:", "a"))),
            ("haul://h:9/a:b", Some(("haul://h:9/", "a:b"))),
            ("ssh://h//a", Some(("ssh://h/", "/a"))),
            ("haul://h", None),
            ("./a:b", None),
            ("a", None),
        ];
        for (typed, expected) in table {
            assert_eq!(split_path(typed), expected, "{typed}");
        }
    }

    #[test]
    fn a_list_of_hosts_is_one_end_and_a_comma_elsewhere_is_none() {
        let hosts = |typed: &str| match parse_hosts(OsStr::new(typed)) {
            Ok((Endpoint { place, path }, others)) => {
                let named = |far: &Far| match far {
                    Far::Ssh { port: Some(port), .. } => format!("{far} port {port}"),
                    Far::Ssh { .. } | Far::Haul { .. } => far.to_string(),
                };
                let others: Vec<String> = others.iter().map(named).collect();
                let first = place.far().map_or_else(|| place.to_string(), named);
                format!("{first} {} and {}", printable(&path), others.join(" "))
            }
            Err(error) => format!("refused: {}", error.cause.unwrap_or_default()),
        };
        let table = [
            ("h1,h2:data", "h1 data and h2"),
            ("me@h1,h2,you@h3:", "me@h1 . and me@h2 you@h3"),
            ("h1,me@h2:d", "h1 d and me@h2"),
            ("[2001:db8::1],h2:d", "2001:db8::1 d and h2"),
            ("h1,me@[2001:db8::2]:d:e", "h1 d:e and me@2001:db8::2"),
            ("h1,h2:a,b:c", "h1 a,b:c and h2"),
            ("ssh://me@h1,h2:2200/d", "me@h1 port 2200 d and me@h2 port 2200"),
            ("haul://h1,h2/d", "haul://h1:7632 d and haul://h2:7632"),
            ("haul://h1,h2:9/d", "haul://h1:9 d and haul://h2:9"),
            ("haul://h1:8,h2:9/a,b", "haul://h1:8 a,b and haul://h2:9"),
            ("haul://[2001:db8::1],[2001:db8::2]:9/d", "haul://[2001:db8::1]:9 d and haul://[2001:db8::2]:9"),
            ("h1:a,b", "h1 a,b and "),
            ("a,b", "this machine a,b and "),
            ("./a,b:c", "this machine ./a,b:c and "),
            ("dir/a,b:c", "this machine dir/a,b:c and "),
            ("[a,b].txt", "this machine [a,b].txt and "),
            ("h1,:d", "refused: the host is empty"),
            ("h1,h1:d", "refused: it names a host twice"),
            ("h1,h2,h3,h4,h5,h6:d", "refused: one end has at most 5 hosts"),
        ];
        for (typed, expected) in table {
            assert_eq!(hosts(typed), expected, "{typed}");
        }
    }

    #[test]
    fn what_is_typed_becomes_an_endpoint() {
        let table: &[(&[u8], &str)] = &[
            (b"file", "local file"),
            (b"./a:b", "local ./a:b"),
            (b"dir/a:b", "local dir/a:b"),
            (b"/a:b", "local /a:b"),
            (b"[abc].txt", "local [abc].txt"),
            (b"[a:b].txt", "local [a:b].txt"),
            (b"-r", "local -r"),
            (b" ", "local  "),
            (b"\xff\xfe", r"local \xff\xfe"),
            (b"a//b", "local a//b"),
            (b"dir/http://x", "local dir/http://x"),
            (b"stripes:dir/scan.stripes", "stripes: dir/scan.stripes"),
            (b"stripes:", "ssh None stripes None ."),
            (b"host:path", "ssh None host None path"),
            (b"host:/abs/dir/", "ssh None host None /abs/dir/"),
            (b"host:", "ssh None host None ."),
            (b"host:~/x", "ssh None host None ~/x"),
            (b"host:-r", "ssh None host None -r"),
            (b"host:a b*?[c]", "ssh None host None a b*?[c]"),
            (b"host:a:b", "ssh None host None a:b"),
            (b"host:\xff", r"ssh None host None \xff"),
            (b"host:100%", "ssh None host None 100%"),
            (b"user@host:p", "ssh Some(\"user\") host None p"),
            (b"me@corp@host:p", "ssh Some(\"me@corp\") host None p"),
            (b"CORP\\me@host:p", "ssh Some(\"CORP\\\\me\") host None p"),
            (b"10.0.0.1:p", "ssh None 10.0.0.1 None p"),
            (b"[2001:db8::1]:p", "ssh None 2001:db8::1 None p"),
            (b"user@[fe80::1%eth0]:p/q", "ssh Some(\"user\") fe80::1%eth0 None p/q"),
            (b"[user@host]:p", "ssh Some(\"user\") host None p"),
            (b"[host]:", "ssh None host None ."),
            (b"null:", "null: "),
            (b"null:.", "ssh None null None ."),
            (b"./null:", "local ./null:"),
            (b"zero:2K", "zero:2048 "),
            (b"zero:0", "zero:0 "),
            (b"zero:", "ssh None zero None ."),
            (b"zero:path", "ssh None zero None path"),
            (b"zero:./1G", "ssh None zero None ./1G"),
            (b"zero:1024T", "zero:1125899906842624 "),
            (b"zero:1025T", "refused: a file here may have at most 1 PiB"),
            (b"ssh://host", "ssh None host None ."),
            (b"ssh://host/", "ssh None host None ."),
            (b"ssh://host/rel", "ssh None host None rel"),
            (b"ssh://host//abs", "ssh None host None /abs"),
            (b"ssh://user@host:2222/rel/", "ssh Some(\"user\") host Some(2222) rel/"),
            (b"scp://user@[::1]:22//abs", "ssh Some(\"user\") ::1 Some(22) /abs"),
            (b"ssh://host/a%20b%ff", r"ssh None host None a b\xff"),
            (b"haul://host/path", "haul host 7632 path"),
            (b"haul://host:99/path/", "haul host 99 path/"),
            (b"haul://[::1]", "haul ::1 7632 ."),
        ];
        for (typed, expected) in table {
            assert_eq!(show(typed), *expected, "{}", printable(typed));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let table: &[(&[u8], &str)] = &[
            (b"", "the name is empty"),
            (b":path", "the host is empty"),
            (b"user@:path", "the host is empty"),
            (b"[]:path", "the host is empty"),
            (b"ssh:///path", "the host is empty"),
            (b"haul://:1/path", "the host is empty"),
            (b"-oProxyCommand=x:path", "a host cannot start with a dash"),
            (b"user@-oProxyCommand=x:path", "a host cannot start with a dash"),
            (b"ssh://-oProxyCommand=x/", "a host cannot start with a dash"),
            (b"-l@host:path", "the text before the @ is not a login name"),
            (b"@host:path", "the text before the @ is not a login name"),
            (b"ssh://%2dl@host/", "the text before the @ is not a login name"),
            (b"ho\x1bst:path", "the host has a character that no host name has"),
            (b"ho st:path", "the host has a character that no host name has"),
            (b"h$(id):path", "the host has a character that no host name has"),
            (b"h\xffst:path", "the host is not text"),
            (b"host::module", "host::module means a daemon of rsync, and haul does not speak its protocol"),
            (b"rsync://host/mod", "haul does not speak rsync://"),
            (b"gs://bucket/file", "haul does not speak gs://"),
            (b"https://ho st/file", "the host is no name or address"),
            (b"ssh://host:0/p", "0 is not a port"),
            (b"ssh://host:99999/p", "99999 is not a port"),
            (b"ssh://host:/p", " is not a port"),
            (b"ssh://host:+22/p", "+22 is not a port"),
            (b"ssh://::1/p", "an IPv6 address needs brackets"),
            (b"ssh://[::1/p", "the bracket around the address is not closed"),
            (b"ssh://[::1]x/p", "there is text between the address and its port"),
            (b"ssh://host/100%", "a % is not followed by two hexadecimal digits (or by 00)"),
            (b"ssh://host/%00", "a % is not followed by two hexadecimal digits (or by 00)"),
            (b"ssh://host/%+1", "a % is not followed by two hexadecimal digits (or by 00)"),
            (b"haul://me@host/p", "a haul:// address has no user"),
        ];
        for (typed, expected) in table {
            assert_eq!(show(typed), format!("refused: {expected}"), "{}", printable(typed));
        }
        assert!(show(&[b"h".repeat(300), b":x".to_vec()].concat()).contains("longer than"));
    }
}

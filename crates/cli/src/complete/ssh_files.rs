//! Hosts' names in ssh's files: `Host` lines, known hosts that are not hashed, `/etc/hosts`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 4 << 20;

/// Files read because of `Include`.
const MAX_FILES: usize = 256;

/// ssh's own depth of `Include` (readconf.c, READCONF_MAX_DEPTH).
const MAX_DEPTH: usize = 16;

const SYSTEM_KNOWN_HOSTS: [&str; 2] = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];

/// Hosts that the user's ssh knows by name. `named`, from `-F`, replaces the usual files.
pub fn hosts(home: Option<&Path>, named: Option<&Path>) -> BTreeSet<String> {
    let mut reader = Reader::of(home);
    match named {
        Some(named) => reader.configuration(named, &relative_to(home), MAX_DEPTH),
        None => {
            let own = relative_to(home);
            reader.configuration(&own.join("config"), &own, MAX_DEPTH);
            reader.configuration(Path::new("/etc/ssh/ssh_config"), Path::new("/etc/ssh"), MAX_DEPTH);
            let own = ["known_hosts", "known_hosts2"].map(|name| own.join(name));
            reader.known_hosts.extend(own.into_iter().chain(SYSTEM_KNOWN_HOSTS.map(PathBuf::from)));
        }
    }
    let known_hosts = std::mem::take(&mut reader.known_hosts);
    known_hosts.iter().for_each(|file| reader.hosts.extend(hosts_of_known_hosts(&text_of(file))));
    reader.hosts.extend(hosts_of_etc_hosts(&text_of(Path::new("/etc/hosts"))));
    reader.hosts
}

/// Whether ssh runs no program because of this configuration and its includes. An unreadable end may run one.
pub fn runs_nothing(home: Option<&Path>, named: &Path) -> bool {
    let mut reader = Reader::of(home);
    reader.configuration(named, &relative_to(home), MAX_DEPTH);
    !reader.may_run_programs && named.is_file()
}

/// A setting of ssh_config(5) that runs no program, loads no library, and gives the far side nothing.
pub fn is_harmless_setting(name: &str) -> bool {
    HARMLESS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless))
}

const HARMLESS: [&str; 47] = [
    "AddressFamily",
    "BatchMode",
    "BindAddress",
    "BindInterface",
    "CanonicalDomains",
    "CanonicalizeFallbackLocal",
    "CanonicalizeHostname",
    "CanonicalizeMaxDots",
    "CanonicalizePermittedCNAMEs",
    "CASignatureAlgorithms",
    "CertificateFile",
    "CheckHostIP",
    "Ciphers",
    "Compression",
    "ConnectionAttempts",
    "ConnectTimeout",
    "ControlMaster",
    "ControlPath",
    "ControlPersist",
    "FingerprintHash",
    "GlobalKnownHostsFile",
    "GSSAPIAuthentication",
    "HashKnownHosts",
    "HostKeyAlgorithms",
    "HostKeyAlias",
    "Hostname",
    "IdentitiesOnly",
    "IdentityFile",
    "IPQoS",
    "KbdInteractiveAuthentication",
    "KexAlgorithms",
    "LogLevel",
    "MACs",
    "NumberOfPasswordPrompts",
    "PasswordAuthentication",
    "Port",
    "PreferredAuthentications",
    "ProxyJump",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAuthentication",
    "RekeyLimit",
    "ServerAliveCountMax",
    "ServerAliveInterval",
    "StrictHostKeyChecking",
    "TCPKeepAlive",
    "User",
    "UserKnownHostsFile",
];

fn relative_to(home: Option<&Path>) -> PathBuf {
    home.map(|home| home.join(".ssh")).unwrap_or_default()
}

fn text_of(file: &Path) -> String {
    let mut bytes = Vec::new();
    let is_file = fs::metadata(file).is_ok_and(|found| found.is_file());
    if is_file {
        let _ = fs::File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Reader<'a> {
    home: Option<&'a Path>,
    hosts: BTreeSet<String>,
    known_hosts: Vec<PathBuf>,
    files_left: usize,
    /// A setting runs a program, or may do so.
    may_run_programs: bool,
}

impl<'a> Reader<'a> {
    fn of(home: Option<&'a Path>) -> Self {
        let (hosts, known_hosts) = (BTreeSet::new(), Vec::new());
        Self { home, hosts, known_hosts, files_left: MAX_FILES, may_run_programs: false }
    }

    /// Reads ssh_config(5). `base` is where a relative `Include` begins.
    fn configuration(&mut self, file: &Path, base: &Path, depth: usize) {
        // ssh also reads a FIFO and its like.
        let is_whole = fs::metadata(file).map_or(true, |found| found.is_file() && found.len() <= MAX_BYTES);
        self.may_run_programs |= depth == 0 || self.files_left == 0 || !is_whole;
        if depth == 0 || self.files_left == 0 {
            return;
        }
        self.files_left -= 1;
        for line in text_of(file).lines() {
            let Some((key, values)) = setting(line) else {
                self.may_run_programs |= !matches!(line.trim().as_bytes(), [] | [b'#', ..]);
                continue;
            };
            let is_harmless = match key.as_str() {
                "host" | "include" => true,
                "match" => !values.iter().any(|word| word.to_ascii_lowercase().contains("exec")),
                name => is_harmless_setting(name),
            };
            self.may_run_programs |= !is_harmless;
            match key.as_str() {
                "host" => self.hosts.extend(values.into_iter().filter(|name| is_name(name))),
                "include" => {
                    // ssh knows more wildcards than are found here.
                    self.may_run_programs |= values.iter().any(|value| value.contains(['[', '$', '%', '{']));
                    let paths = values.iter().map(|value| base.join(self.at_home(value)));
                    for included in paths.flat_map(|path| matching(&path)).collect::<Vec<PathBuf>>() {
                        self.configuration(&included, base, depth - 1);
                    }
                }
                "userknownhostsfile" | "globalknownhostsfile" => {
                    let files: Vec<PathBuf> = values.iter().map(|value| self.at_home(value)).collect();
                    self.known_hosts.extend(files.into_iter().filter(|file| file.is_absolute()).take(self.files_left));
                }
                _ => {}
            }
        }
    }

    fn at_home(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        }
    }
}

/// The keyword in small letters, and its values.
fn setting(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    let (key, values) = line.split_once(|c: char| c.is_ascii_whitespace() || c == '=' || c == '"')?;
    if key.starts_with('#') {
        return None;
    }
    let values = values.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '=');
    Some((key.to_ascii_lowercase(), shlex::split(values)?))
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

/// The first field of each line (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), without hashed names and revoked keys.
fn hosts_of_known_hosts(text: &str) -> Vec<String> {
    let fields = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "@cert-authority" => words.next(),
            word if word.starts_with(['#', '@', '|']) => None,
            word => Some(word),
        }
    });
    // A port other than 22 stands behind a name in brackets; ssh's configuration knows it.
    let name = |name: &str| match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name.to_owned(),
        None => name.to_owned(),
    };
    fields.flat_map(|field| field.split(',')).map(name).filter(|name| is_name(name)).collect()
}

/// hosts(5), without this machine and groups.
fn hosts_of_etc_hosts(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address: std::net::IpAddr = words.next()?.parse().ok()?;
        (!address.is_loopback() && !address.is_multicast() && !address.is_unspecified()).then_some(words)
    });
    lines.flatten().filter(|name| is_name(name) && !name.starts_with("ip6-")).map(str::to_owned).collect()
}

fn matching(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let part = part.as_os_str();
        if !part.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?')) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let names = |directory: &PathBuf| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let fits = |name: &[u8]| fits(part.as_bytes(), name) && !name.starts_with(b".");
            entries.filter(|entry| fits(entry.file_name().as_bytes())).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(names).take(MAX_FILES).collect();
        found.sort();
    }
    found
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        [b'?', rest @ ..] => !name.is_empty() && fits(rest, &name[1..]),
        [byte, rest @ ..] => name.first() == Some(byte) && fits(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_from_the_configuration_and_all_that_it_takes_in() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
        };
        at(
            ".ssh/config",
            "Include conf.d/*.conf\nInclude ~/more\n  Host dtn1 \"dtn2\" *.org !no we?b\nHOST=login\n# Host not\n\
             Host ev$(id)il -oProxyCommand=x\nUserKnownHostsFile ~/known \"~/known two\"\nHostName never\nInclude config\n",
        );
        at(".ssh/conf.d/a.conf", "Host included\nInclude deeper\n");
        at(".ssh/conf.d/b.off", "Host off\n");
        at(".ssh/deeper", "Host deeper\n");
        at("more", "Match host x\nHost more\n");
        at("known", "h1,192.0.2.1 ssh-ed25519 A\n|1|x|y ssh-rsa B\n[h2]:2222 ssh-rsa C\n[2001:db8::1]:22 ssh-rsa C\n");
        at("known two", "@cert-authority h3 ssh-rsa D\n@revoked h4 ssh-rsa D\n*.h5 ssh-rsa D\n# h6 x\n");
        let found = |named: Option<&Path>| {
            let known = hosts_of_etc_hosts(&text_of(Path::new("/etc/hosts")));
            let hosts = hosts(Some(dir.path()), named).into_iter().filter(|host| !known.contains(host));
            hosts.collect::<Vec<String>>().join(" ")
        };
        let expected = "192.0.2.1 2001:db8::1 deeper dtn1 dtn2 h1 h2 h3 included login more";
        let hosts = found(None);
        assert_eq!(
            hosts.split(' ').filter(|host| expected.split(' ').any(|name| name == *host)).count(),
            11,
            "{hosts}"
        );
        assert!(!["off", "never", "h4", "no"].iter().any(|name| hosts.split(' ').any(|host| host == *name)), "{hosts}");
        assert_eq!(found(Some(&dir.path().join("more"))), "more");
    }

    #[test]
    fn a_configuration_runs_nothing_only_where_all_of_it_is_known_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, included) = (dir.path().join("config"), dir.path().join("included"));
        let runs_nothing = |text: &str| {
            fs::write(&file, text).unwrap();
            runs_nothing(Some(dir.path()), &file)
        };
        let include = format!("Host a\n  Port 22\nInclude {}\n", included.display());
        fs::write(&included, "# ProxyCommand x\nHost b\nUser b\n").unwrap();
        assert!(runs_nothing("") && runs_nothing(&include) && runs_nothing("Match host a\n  User=b\n"));
        for line in [
            "proxyCommand x",
            "ProxyCommand=x",
            "Match exec \"x\"",
            "Match host a EXEC x",
            "LocalCommand \"x",
            "Strange 1",
            "Port",
        ] {
            assert!(!runs_nothing(&format!("Host a\n  {line}\n")), "{line}");
        }
        fs::write(&included, "Host b\nKnownHostsCommand x\n").unwrap();
        assert!(!runs_nothing(&include) && !runs_nothing("Include [c]onfig\n"));
        assert!(!runs_nothing(&format!("Include {}\n", file.display())), "it has no end");
        assert!(
            !super::runs_nothing(None, Path::new("/dev/null")) && !super::runs_nothing(None, &dir.path().join("none"))
        );
    }

    #[test]
    fn the_hosts_of_this_network_without_this_machine() {
        let text = "127.0.0.1 localhost\n::1 ip6-localhost\nff02::1 ip6-allnodes\n10.0.0.5 dtn dtn.example # it\n# 10.0.0.6 x\n";
        assert_eq!(hosts_of_etc_hosts(text), ["dtn", "dtn.example"]);
    }
}

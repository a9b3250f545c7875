//! The end of manual pages: environment, files, other pages.

use crate::pages::blocks::Block;

type Entry = (&'static str, &'static str, &'static [&'static str]);

const COPIES: &str = "haul-cp";
const COPY: [&str; 2] = ["haul", COPIES];
const SERVE: &str = "haul-serve";

const ENVIRONMENT: [Entry; 9] = [
    ("HOME", "where the directories below begin, if their own variables are not set", &["haul", COPIES, SERVE]),
    ("XDG_CONFIG_HOME", "settings, keys and lists; ~/.config without it", &["haul", COPIES, SERVE]),
    ("XDG_STATE_HOME", "what haul remembers; ~/.local/state without it", &["haul", COPIES, SERVE, "haul-why"]),
    ("XDG_CACHE_HOME", "programs that were brought here; ~/.cache without it", &COPY),
    ("XDG_RUNTIME_DIR", "sockets of kept logins; the directory of XDG_STATE_HOME without it", &COPY),
    ("TMPDIR", "sockets and programs that have no other place: haul-UID in it; /tmp without it", &COPY),
    ("CVSIGNORE", "patterns that --cvs-exclude adds", &[COPIES]),
    ("NO_COLOR", "if it is set, the help has no colours", &["haul"]),
    (
        "LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES",
        "sockets that systemd holds; their names are haul, http and https",
        &[SERVE],
    ),
];

const FILES: [Entry; 14] = [
    ("~/.config/haul/config.toml", "settings, and names of ends: haul-config(5)", &["haul", COPIES, "haul-config"]),
    (
        "~/.config/haul/id_ed25519, ~/.config/haul/known_hosts",
        "the user's key for haul://, and the keys of known daemons",
        &["haul", COPIES, "haul-key"],
    ),
    (
        "/etc/haul/policy.toml, ~/.config/haul/policy.toml",
        "what copies may ask of a network: haul-policy(5)",
        &["haul", COPIES, SERVE, "haul-policy"],
    ),
    (
        "/etc/haul/networks.toml, ~/.config/haul/networks.toml",
        "how connections of which networks are treated: haul-networks(5)",
        &["haul", COPIES, SERVE, "haul-networks"],
    ),
    ("~/.cache/haul", "at a far side: the program that was brought there", &COPY),
    ("~/.local/state/haul", "reports of the last copies, and what is known of paths", &["haul", COPIES, "haul-why"]),
    (
        "~/.local/state/haul/copies",
        "copies that go on by themselves",
        &["haul", "haul-status", "haul-stop", "haul-wait", "haul-log"],
    ),
    ("~/.local/state/haul/uploads", "uploads to stores that a later copy goes on with", &COPY),
    ("~/.config/haul/host_ed25519", "the daemon's own key", &[SERVE, "haul-token"]),
    ("~/.config/haul/authorized_keys", "the keys that may log in", &[SERVE]),
    ("~/.local/state/haul/key-days", "what each key has moved today", &[SERVE]),
    (
        "~/.local/state/haul/networks-observed.json",
        "what the daemon has seen of connections",
        &[SERVE, "haul-networks"],
    ),
    ("/etc/sysctl.d/90-haul.conf", "the values that --apply sets at each start", &["haul-tune"]),
    ("/var/lib/haul/tune-before.toml", "the values before the first --apply", &["haul-tune"]),
];

const SEE_ALSO: [(&str, &str); 22] = [
    ("haul", "haul-cp(1), haul-config(5), haul-policy(5), haul-networks(5), ssh(1)"),
    (
        COPIES,
        "haul-why(1), haul-diff(1), haul-status(1), haul-verify(1), haul-config(5), ssh(1), ssh_config(5), rsync(1), scp(1)",
    ),
    ("haul-diff", "haul-cp(1), haul-verify(1), diff(1)"),
    ("haul-hash", "haul-verify(1), haul-cp(1), sha256sum(1), md5sum(1)"),
    ("haul-verify", "haul-hash(1), haul-cp(1), sha256sum(1)"),
    ("haul-status", "haul-cp(1), haul-log(1), haul-stop(1), haul-wait(1)"),
    ("haul-stop", "haul-status(1)"),
    ("haul-wait", "haul-status(1)"),
    ("haul-log", "haul-status(1)"),
    ("haul-why", "haul-cp(1), haul-probe(1), haul-tune(1)"),
    ("haul-key", "haul-serve(1)"),
    (SERVE, "haul-key(1), haul-token(1), haul-policy(5), haul-networks(5), systemd.socket(5), curl(1)"),
    ("haul-token", "haul-serve(1), curl(1)"),
    ("haul-networks.1", "haul-networks(5), haul-serve(1), ip-route(8), tcp(7)"),
    ("haul-probe", "haul-why(1), haul-tune(1), haul-bench(1)"),
    ("haul-bench", "haul-probe(1), haul-tune(1)"),
    ("haul-record", "haul-cp(1)"),
    ("haul-tune", "haul-probe(1), haul-why(1), sysctl(8), tcp(7)"),
    ("haul-config.1", "haul-config(5), haul-cp(1)"),
    ("haul-config.5", "haul-config(1), haul-cp(1), ssh_config(5)"),
    ("haul-policy.5", "haul-cp(1), haul-serve(1), haul-probe(1), haul-networks(5)"),
    ("haul-networks.5", "haul-networks(1), haul-serve(1), haul-policy(5), tcp(7), ip-route(8)"),
];

pub fn places(page: &str) -> Vec<Block> {
    [section("ENVIRONMENT", &ENVIRONMENT, page), section("FILES", &FILES, page)].concat()
}

pub fn see_also(page: &str, number: u8) -> Vec<Block> {
    let name = format!("{page}.{number}");
    let others = SEE_ALSO.iter().find(|(of, _)| *of == page || *of == name).map_or("", |(_, others)| others);
    let main = if page == "haul" { "" } else { "haul(1)" };
    let all: Vec<&str> = [main, others].into_iter().filter(|pages| !pages.is_empty()).collect();
    vec![Block::Section("SEE ALSO".to_owned()), Block::plain(&all.join(", ")), Block::plain(DOCS)]
}

const DOCS: &str = "Packages have the further pages, which begin with docs/, in /usr/share/doc/haul.";

fn section(name: &str, entries: &[Entry], page: &str) -> Vec<Block> {
    let items = entries.iter().filter(|(_, _, pages)| pages.contains(&page));
    let items: Vec<Block> = items.map(|(name, words, _)| Block::item(name, words)).collect();
    if items.is_empty() { items } else { [vec![Block::Section(name.to_owned())], items].concat() }
}

#[cfg(test)]
pub fn named() -> (Vec<String>, Vec<String>) {
    let of_entries =
        ENVIRONMENT.iter().chain(&FILES).flat_map(|(_, _, pages)| pages.iter().map(|page| page.to_string()));
    let of_pages = SEE_ALSO.iter().map(|(page, _)| page.trim_end_matches(".1").trim_end_matches(".5").to_owned());
    let ours = SEE_ALSO.iter().flat_map(|(_, others)| others.split(", ")).filter(|other| other.starts_with("haul"));
    (of_entries.chain(of_pages).collect(), ours.map(|page| page.replace('(', ".").replace(')', "")).collect())
}

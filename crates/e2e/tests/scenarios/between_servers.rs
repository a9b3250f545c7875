//! Copies between two servers of GridFTP: their bytes do not pass the host that asks for it.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Host, Lab, Outcome, Run, Running, assert_same, code, needs, plant};

struct Servers {
    lab: Lab,
    _servers: Vec<Running>,
}

const PORT: u16 = 2811;

impl Servers {
    fn start() -> Servers {
        Servers::known_by(|host| host.address())
    }

    /// They run as root, whose the lab's files are.
    fn known_by(address_of: impl Fn(&Host) -> IpAddr) -> Servers {
        let lab = Lab::triangle();
        let start = |name: &str| {
            let address = address_of(lab.host(name));
            let mut server = lab
                .host(name)
                .run("globus-gridftp-server")
                .args(["-aa", "-allow-root", "-anonymous-user", "root", "-p", &PORT.to_string()])
                .args(["-data-interface", &address.to_string(), "-log-level", "NONE"])
                .start();
            let reached = SocketAddr::new(address, PORT);
            server.when("it listens", |_| lab.home().inside(|| TcpStream::connect(reached).is_ok()));
            server
        };
        let servers = ["alpha", "beta"].map(start).into();
        Servers { lab, _servers: servers }
    }

    /// Globus makes this script for a user.
    fn takes_ssh(&self, name: &str) {
        let home = self.lab.data(name).parent().expect("a host has a directory").join("home/.globus");
        fs::create_dir_all(&home).expect("own directory");
        let address = self.lab.host(name).address();
        let script = format!("#!/bin/sh\nexec globus-gridftp-server -ssh -auth-level 0 -data-interface {address}\n");
        fs::write(home.join("sshftp"), script).expect("own directory");
        plant::set_mode(&home.join("sshftp"), 0o755);
    }

    fn url(&self, scheme: &str, name: &str, path: impl AsRef<Path>) -> OsString {
        let host = match scheme {
            "sshftp" => name.to_owned(),
            _ => self.lab.host(name).address().to_string(),
        };
        let mut url = OsString::from(format!("{scheme}://{host}"));
        url.push(path.as_ref());
        url
    }

    fn at(&self, name: &str, path: &str) -> PathBuf {
        self.lab.data(name).join(path)
    }

    /// From alpha to beta.
    fn cp(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Run {
        self.lab.cp().arg(self.url("gsiftp", "alpha", from)).arg(self.url("gsiftp", "beta", to))
    }

    /// Bytes that a host has sent.
    fn sent_by(&self, name: &str) -> u64 {
        let told = self.lab.host(name).run("ip").args(["-s", "-j", "link", "show", "eth0"]).run().expect(code::OK);
        let told: serde_json::Value = serde_json::from_str(&told.stdout_text()).expect("ip tells JSON");
        told[0]["stats64"]["tx"]["bytes"].as_u64().expect("ip tells bytes")
    }

    /// What stands in beta's directory.
    fn left(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.lab.data("beta")).expect("own directory");
        names.map(|name| name.expect("it is listed").path()).collect()
    }
}

fn proof(run: &Outcome) -> String {
    run.report()["proof"].as_str().expect("a name").to_owned()
}

#[test]
fn a_tree_and_a_large_file_go_from_server_to_server() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"), Tool("globus-url-copy"));
    let servers = Servers::start();
    servers.takes_ssh("alpha");
    servers.takes_ssh("beta");
    let tree = servers.at("alpha", "tree");
    for size in [0_u64, 1, 262_145, (1 << 20) + 1, 16 << 20, 100_000_000] {
        plant::file(&tree.join(size.to_string()), size, size);
    }
    plant::many(&tree.join("many"), 60, 3000, 2);
    for name in ["a b", " leading", "100%", "#hash", "-dash", "'quote\"<>", "back\\slash"] {
        plant::text(&tree.join("odd").join(name), name);
    }
    for (number, schemes) in [["gsiftp", "gsiftp"], ["gsiftp", "sshftp"], ["sshftp", "gsiftp"]].into_iter().enumerate()
    {
        let there = servers.at("beta", &format!("to{number}"));
        let [from, to] =
            [servers.url(schemes[0], "alpha", tree.join("")), servers.url(schemes[1], "beta", there.join(""))];
        let before = servers.sent_by("home");
        let run = servers.lab.cp().arg(&from).arg(&to).run().expect(code::OK);
        assert_eq!(proof(&run), "by_both_servers", "{schemes:?}: {run}");
        assert!(servers.sent_by("home") - before < 20_000_000, "the bytes do not pass this host: {run}");
        assert_same(&tree, &there, Facets::CONTENTS);
        let again = servers.lab.cp().arg(&from).arg(&to).run().expect(code::OK);
        assert_eq!((again.count("files_moved"), again.count("bytes_moved")), (0, 0), "{schemes:?}: {again}");
    }
    let (one, other) = (servers.at("beta", "one"), servers.at("beta", "other"));
    let large = tree.join("100000000");
    let run = servers.cp(&large, &one).run().expect(code::OK);
    assert_eq!((run.count("files_moved"), run.count("bytes_moved")), (1, 100_000_000), "{run}");
    let url = |name: &str, path: &Path| format!("ftp://{}:{PORT}{}", servers.lab.host(name).address(), path.display());
    let globus = servers.lab.home().run("globus-url-copy").args(["-nodcau", "-p", "8"]);
    globus.arg(url("alpha", &large)).arg(url("beta", &other)).run().expect(code::OK);
    assert_same(&one, &other, Facets::CONTENTS);
}

#[test]
fn servers_that_are_known_by_ipv6_send_to_each_other() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let servers = Servers::known_by(|host| host.v6.into());
    let (source, there) = (servers.at("alpha", "f"), servers.at("beta", "f"));
    plant::file(&source, 20_000_000, 1);
    let url = |name: &str, path: &Path| format!("gsiftp://[{}]{}", servers.lab.host(name).v6, path.display());
    let run = servers.lab.cp().arg(url("alpha", &source)).arg(url("beta", &there)).run().expect(code::OK);
    assert_eq!(proof(&run), "by_both_servers", "{run}");
    assert_same(&source, &there, Facets::CONTENTS);
}

#[test]
fn a_copy_between_servers_that_was_killed_goes_on_with_what_is_there() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"), Tool("tc"));
    const LARGE: u64 = 200 << 20;
    let servers = Servers::start();
    let (source, there) = (servers.at("alpha", "f"), servers.at("beta", "f"));
    plant::file(&source, LARGE, 1);
    let slow = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "400mbit", "burst", "256k", "latency", "50ms"];
    servers.lab.alpha().run("tc").args(slow).run().expect(code::OK);
    let mut running = servers.cp(&source, &there).start();
    running.when("two thirds are there", |_| {
        servers.left().iter().any(|draft| draft.metadata().is_ok_and(|draft| draft.blocks() * 512 > LARGE / 3 * 2))
    });
    running.kill();
    assert!(!there.exists(), "half a file has no name");
    let before = servers.sent_by("alpha");
    let again = servers.cp(&source, &there).run().expect(code::OK);
    let sent = servers.sent_by("alpha") - before;
    assert!(sent < LARGE / 3 * 2, "it goes on with what has the sum of the source: {sent} bytes, {again}");
    assert_eq!(proof(&again), "by_both_servers", "{again}");
    assert_same(&source, &there, Facets::CONTENTS);
    assert_eq!(servers.left(), [there], "the second run took the name of the first");
}

#[test]
fn servers_that_do_not_reach_each_other_are_joined_by_this_host_with_a_word() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"), Nftables);
    let servers = Servers::start();
    let tree = servers.at("alpha", "tree");
    plant::many(&tree, 20, 30_000, 2);
    let (alpha, beta) = (servers.lab.alpha().address(), servers.lab.host("beta"));
    beta.run("nft").arg("add table inet wall").run().expect(code::OK);
    beta.run("nft").arg("add chain inet wall in { type filter hook input priority 0; }").run().expect(code::OK);
    let rule = format!("add rule inet wall in ip saddr {alpha} tcp flags & (syn | ack) == syn drop");
    beta.run("nft").arg(rule).run().expect(code::OK);
    let there = servers.at("beta", "to");
    let run = servers.cp(tree.join(""), there.join("")).run().expect(code::OK);
    run.clone().says(&["the data passes through this host: the one server does not reach the other one in time"]);
    assert_eq!(run.stdout_text().matches("passes through this host").count(), 1, "{run}");
    assert_eq!((proof(&run).as_str(), run.count("files_moved")), ("confirmed", 20), "{run}");
    assert_same(&tree, &there, Facets::CONTENTS);
}

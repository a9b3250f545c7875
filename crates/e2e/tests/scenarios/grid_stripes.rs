//! Copies from and to a striped server of GridFTP: its front end and one data node on one host, the other data node on another one.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use haul_e2e::{Facets, Lab, Outcome, Running, assert_same, code, needs, plant};

struct Striped {
    lab: Lab,
    _servers: Vec<Running>,
}

const FRONT_END: u16 = 2811;
const DATA_NODE: u16 = 7000;
/// A server that is not striped, on the host that asks.
const PLAIN: u16 = 2812;

const LARGE: u64 = 40_000_000;

impl Striped {
    /// They run as root, whose the lab's files are.
    fn start() -> Striped {
        let lab = Lab::triangle();
        let nodes: Vec<String> =
            ["alpha", "beta"].map(|name| format!("{}:{DATA_NODE}", lab.host(name).address())).into();
        let start = |name: &str, port: u16, more: &[&str]| {
            let address = lab.host(name).address();
            let mut server = lab
                .host(name)
                .run("globus-gridftp-server")
                .args(["-aa", "-allow-root", "-anonymous-user", "root", "-p", &port.to_string()])
                .args(["-data-interface", &address.to_string(), "-log-level", "NONE"])
                .args(more)
                .start();
            let reached = SocketAddr::new(address, port);
            server.when("it listens", |_| lab.home().inside(|| TcpStream::connect(reached).is_ok()));
            server
        };
        let servers = vec![
            start("alpha", DATA_NODE, &["-dn"]),
            start("beta", DATA_NODE, &["-dn"]),
            start("alpha", FRONT_END, &["-r", &nodes.join(",")]),
            start("home", PLAIN, &[]),
        ];
        Striped { lab, _servers: servers }
    }

    fn url(&self, path: &Path) -> OsString {
        self.url_at("alpha", FRONT_END, path)
    }

    fn url_at(&self, name: &str, port: u16, path: &Path) -> OsString {
        let mut url = OsString::from(format!("gsiftp://{}:{port}", self.lab.host(name).address()));
        url.push(path);
        url
    }

    fn cp(&self, from: OsString, to: OsString) -> Outcome {
        self.lab.cp().arg(from).arg(to).run().expect(code::OK)
    }

    /// Bytes that a host has sent, or received.
    fn counted(&self, name: &str, way: &str) -> u64 {
        let told = self.lab.host(name).run("ip").args(["-s", "-j", "link", "show", "eth0"]).run().expect(code::OK);
        let told: serde_json::Value = serde_json::from_str(&told.stdout_text()).expect("ip tells JSON");
        told[0]["stats64"][way]["bytes"].as_u64().expect("ip tells bytes")
    }
}

#[test]
fn both_data_nodes_of_a_striped_server_take_and_send_a_large_file() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let striped = Striped::start();
    let data = |name: &str, path: &str| striped.lab.data(name).join(path);
    let (file, there, back) = (data("home", "f"), data("alpha", "f"), data("home", "back"));
    plant::file(&file, LARGE, 1);
    for (from, to, way) in [
        (file.clone().into_os_string(), striped.url(&there), "rx"),
        (striped.url(&there), back.clone().into_os_string(), "tx"),
    ] {
        let before = ["alpha", "beta"].map(|name| striped.counted(name, way));
        let run = striped.cp(from, to);
        let after = ["alpha", "beta"].map(|name| striped.counted(name, way));
        let moved = [after[0] - before[0], after[1] - before[1]];
        // A node that is quicker carries more.
        assert!(moved.iter().all(|bytes| *bytes > LARGE / 20), "{way}: {moved:?}, {run}");
    }
    assert_same(&file, &there, Facets::CONTENTS);
    assert_same(&file, &back, Facets::CONTENTS);
}

#[test]
fn a_tree_goes_to_a_striped_server_and_back() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let striped = Striped::start();
    let tree = striped.lab.data("home").join("tree");
    for size in [0_u64, 1, 262_145, (1 << 20) + 1, (8 << 20) + 1] {
        plant::file(&tree.join(size.to_string()), size, size);
    }
    plant::many(&tree.join("many"), 30, 3000, 2);
    let (there, back) = (striped.lab.data("alpha").join("tree"), striped.lab.data("home").join("back"));
    striped.cp(tree.join("").into(), striped.url(&there.join("")));
    assert_same(&tree, &there, Facets::CONTENTS);
    striped.cp(striped.url(&there.join("")), back.join("").into());
    assert_same(&tree, &back, Facets::CONTENTS);
}

#[test]
fn a_striped_server_and_another_one_send_to_each_other() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let striped = Striped::start();
    let data = |name: &str, path: &str| striped.lab.data(name).join(path);
    let (source, there, back) = (data("home", "f"), data("alpha", "f"), data("home", "back"));
    plant::file(&source, LARGE, 3);
    for (from, to) in [
        (striped.url_at("home", PLAIN, &source), striped.url(&there)),
        (striped.url(&there), striped.url_at("home", PLAIN, &back)),
    ] {
        let run = striped.cp(from, to);
        assert_eq!(run.report()["proof"].as_str(), Some("by_both_servers"), "{run}");
    }
    assert_same(&source, &back, Facets::CONTENTS);
}

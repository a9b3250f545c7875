//! systemd holds the port: the daemon begins with the first caller, and a restart turns nobody away.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use haul_e2e::{Facets, Run, assert_same, code, eventually, needs, plant};
use rustix::process::Signal;

use crate::Stage;

/// Hands over a socket like systemd, without systemd.
const ACTIVATE: &str = "systemd-socket-activate";

#[test]
fn a_socket_of_systemd_is_the_port_of_the_daemon() {
    needs!(Haul, Tool(ACTIVATE));
    let program = haul_e2e::needs::tool(ACTIVATE).expect("asked for with needs!");
    let mut stage = Stage::new("rw");
    stage.stop(Signal::TERM).expect(code::OK);
    plant::text(&stage.at("file"), "words\n");
    let haul = haul_e2e::binary::find().expect("asked for with needs!");
    let holder = Run::new(program).env("HOME", stage.at("server")).arg("--listen").arg(stage.host());
    let mut holder = holder.arg("--setenv=HOME").arg(haul).args(["serve", "--port", "1"]).start();
    eventually("the port is held", Duration::from_secs(10), || TcpStream::connect(stage.address).is_ok());
    holder.when("it serves", |daemon| crate::said(daemon, "a socket that was handed over"));
    stage.cp().args(["file", &stage.url("in")]).run().expect(code::OK);
    assert_same(&stage.at("file"), &stage.at("offered/in"), Facets::CONTENTS);
    assert_eq!(fs::read(stage.at("offered/in")).expect("it came"), b"words\n");
    holder.signal(Signal::TERM);
    holder.wait().expect(code::OK);
}

#[test]
fn sockets_of_systemd_are_the_ports_that_their_names_say() {
    needs!(Haul, Tool(ACTIVATE), Tool("curl"));
    let program = haul_e2e::needs::tool(ACTIVATE).expect("asked for with needs!");
    let mut stage = Stage::new("rw");
    stage.stop(Signal::TERM).expect(code::OK);
    plant::text(&stage.at("offered/file"), "words\n");
    let haul = haul_e2e::binary::find().expect("asked for with needs!");
    let [http, also] = [8080, 8081].map(|port| format!("{}:{port}", stage.address.ip()));
    let mut holder = Run::new(program).env("HOME", stage.at("server"));
    for address in [&http, &stage.host(), &also] {
        holder = holder.arg("--listen").arg(address);
    }
    let holder = holder.args(["--fdname=http:haul:http", "--setenv=HOME"]).arg(haul).args(["serve", "--public"]);
    let mut holder = holder.arg(stage.at("offered")).start();
    eventually("the port is held", Duration::from_secs(10), || TcpStream::connect(&http).is_ok());
    holder.when("it serves", |daemon| crate::said(daemon, "Z listening on"));
    for address in [http, also] {
        let got = Run::new("curl").args(["-s", &format!("http://{address}/file")]).run().expect(0);
        assert_eq!(got.stdout_text(), "words\n");
    }
    stage.cp().args([&stage.url("file"), "."]).run().expect(code::OK);
    holder.signal(Signal::TERM);
    holder.wait().expect(code::OK);
}

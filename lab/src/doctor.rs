//! Checks this machine for a lab, with advice.

use std::fs;
use std::process::{Command, Stdio};

use crate::programs;
use crate::uml::kernel;

/// One checked part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part's name.
    pub what: &'static str,
    /// Whether the part is there.
    pub state: State,
    /// The finding in words.
    pub words: String,
}

/// Whether a part is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The part is there.
    Good,
    /// Missing, and only some features need it.
    Lacking,
    /// Missing, and every lab needs it.
    Missing,
}

/// Checks every part.
pub fn examine() -> Vec<Finding> {
    vec![
        user(),
        namespaces(),
        tun(),
        tools(),
        congestion_controls(),
        mptcp(),
        processors(),
        kernel("engine virtual", true),
        kernel("engine uml", false),
    ]
}

/// One line for each.
pub fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let mark = match finding.state {
            State::Good => "ok     ",
            State::Lacking => "lacking",
            State::Missing => "MISSING",
        };
        format!("{mark}  {:<20} {}\n", finding.what, finding.words)
    };
    findings.iter().map(line).collect()
}

fn user() -> Finding {
    let root = rustix::process::geteuid().is_root();
    let words = if root { "root" } else { "an ordinary user; the lab lives in a user namespace" };
    good("user", words)
}

fn namespaces() -> Finding {
    let what = "namespaces";
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "--pid", "--net", "--fork", "--mount-proc", "true"]);
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => good(what, "user, mount, process and network namespaces can be made"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            missing(
                what,
                format!(
                    "{}; a host may forbid them: see sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns",
                    said.trim()
                ),
            )
        }
        Err(error) => missing(what, format!("cannot run unshare (package util-linux): {error}")),
    }
}

fn tun() -> Finding {
    match haul_sys::tun::openable() {
        Ok(()) => good("TUN devices", "/dev/net/tun can be opened"),
        Err(error) => missing(
            "TUN devices",
            format!("/dev/net/tun: {error}; as root: modprobe tun; chmod 666 /dev/net/tun (as udev does it)"),
        ),
    }
}

fn tools() -> Finding {
    let needed = [
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
    ];
    let absent: Vec<String> = needed
        .into_iter()
        .filter(|(program, _)| programs::find(program).is_none())
        .map(|(program, package)| format!("{program} (package {package})"))
        .collect();
    if absent.is_empty() {
        good("tools", "ip, tc, unshare, nsenter, setpriv")
    } else {
        missing("tools", absent.join(", "))
    }
}

fn congestion_controls() -> Finding {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default().trim().to_owned();
    let (there, allowed) = (read("tcp_available_congestion_control"), read("tcp_allowed_congestion_control"));
    let state = if there.contains("cubic") && there.contains("bbr") { State::Good } else { State::Lacking };
    let words = format!("the kernel has {there}; everybody may use {allowed}");
    Finding { what: "congestion control", state, words }
}

fn mptcp() -> Finding {
    match fs::read_to_string("/proc/sys/net/mptcp/enabled") {
        Ok(text) if text.trim() == "1" => good("MPTCP", "enabled"),
        Ok(_) => lacking("MPTCP", "switched off: sysctl net.mptcp.enabled=1".into()),
        Err(_) => lacking("MPTCP", "not in this kernel".into()),
    }
}

fn processors() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let words = format!("{count}; sender, receiver and emulator share them");
    Finding { what: "processors", state: if count > 1 { State::Good } else { State::Lacking }, words }
}

fn kernel(what: &'static str, virtual_time: bool) -> Finding {
    match kernel::find(&kernel::Places::of_user(None), virtual_time) {
        Ok(found) => good(what, &format!("{} ({})", found.path.display(), found.why)),
        Err(error) => lacking(what, error.to_string()),
    }
}

fn good(what: &'static str, words: &str) -> Finding {
    Finding { what, state: State::Good, words: words.to_owned() }
}

fn lacking(what: &'static str, words: String) -> Finding {
    Finding { what, state: State::Lacking, words }
}

fn missing(what: &'static str, words: String) -> Finding {
    Finding { what, state: State::Missing, words }
}

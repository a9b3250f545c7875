//! Two hosts with two ways between them in `haul-lab`: a daemon and an sshd at one, and a hand on the cables.
//!
//! ```text
//!            .-- eth0 ---- (left) ---- eth0 --.        left and right: routers, if there are any
//!   source --|                                |-- target      haul serve on port 7070, sshd on port 2222
//!            '-- eth1 ---- (right) --- eth1 --'
//! ```

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::boxed_stage::{Stage, Turn};
use crate::lab::{at, keygen};
use crate::needs::tool;
use crate::{Outcome, Run, binary};

/// How the interfaces are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Each pair by a link.
    Directly,
    /// The first pair by a link, the second through a router.
    OneThroughARouter,
    /// Each through a router.
    ThroughRouters,
}

/// The hosts, for one copy at a time.
#[derive(Debug)]
pub struct Ways {
    name: String,
    stage: Stage,
    _turn: Turn,
}

/// The sshd's port.
const SSH_PORT: u16 = 2222;

/// The target on the first way.
const SSH_HOST: &str = "target";

impl Ways {
    /// Two ways of this rate and 10 ms; the daemon offers a directory.
    pub fn of(joined: Joined, rate: &str, offered: &Path) -> Self {
        Self::prepared(joined, rate, offered, ["", ""])
    }

    /// The same, with a shell command each for `source` and `target` before the copy. `SERVE` of the latter are the daemon's
    /// flags.
    pub fn prepared(joined: Joined, rate: &str, offered: &Path, before: [&str; 2]) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let turn = Turn::take(false);
        let name = format!("ways-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let link = |one: &str, other: &str, more: &str| format!("{{ ends = [\"{one}\", \"{other}\"]{more} }}");
        let slow = format!(", rate = \"{rate}\", rtt = \"10ms\"");
        let way = |router: &str| match (joined, router) {
            (Joined::Directly, way) | (Joined::OneThroughARouter, way @ "left") => {
                link("source", "target", &format!("{slow}, name = \"{way}\""))
            }
            (_, router) => format!("{}, {}", link("source", router, &slow), link(router, "target", "")),
        };
        let topology = format!(
            "name = \"{name}\"\nhosts = {{ source = {{}}, target = {{}}, left = {{ router = true }}, right = {{ router = true }} }}\n\
             links = [{}, {}]\n",
            way("left"),
            way("right")
        );
        let sshd = tool("sshd").map_or_else(|| "false".into(), |path| path.display().to_string());
        // Both hosts see one disk, so the sshd's keys stand beside the daemon's.
        let login = "\"$HOME/sshd_config\" 2>\"$HOME/sshd.log\" &";
        let target = format!("mkdir -p /run/sshd\n{sshd} -D -e -f {login}\n{}", before[1]);
        let stage = Stage::build(&topology, offered, before[0], &target);
        let ways = Self { name, stage, _turn: turn };
        ways.allow_ssh();
        ways
    }

    fn allow_ssh(&self) {
        let path = |name: &str| self.stage.file(name).display().to_string();
        for key in ["ssh_host", "ssh_user"] {
            keygen(&self.stage.file(key));
        }
        let public = |key: &str| std::fs::read_to_string(path(key) + ".pub").expect("ssh-keygen wrote it");
        self.stage.write("ssh_authorized", &public("ssh_user"));
        self.stage.write("ssh_known", &format!("{SSH_HOST} {}", public("ssh_host")));
        let home = path("home");
        self.stage.write(
            "sshd_config",
            &format!(
                "Port {SSH_PORT}\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
                 PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 PrintMotd no\nUseDNS no\nSetEnv HOME={home} XDG_STATE_HOME={home}/state XDG_CACHE_HOME={home}/cache\n",
                path("ssh_host"),
                path("ssh_authorized"),
            ),
        );
        self.stage.write(
            "ssh_config",
            &format!(
                "Host *\n  Port {SSH_PORT}\n  HostKeyAlias {SSH_HOST}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
                 UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n  \
                 LogLevel ERROR\n",
                path("ssh_user"),
                path("ssh_known"),
            ),
        );
    }

    /// `haul cp --json` on `source`, without flags and paths.
    pub fn cp(&self) -> Run {
        let haul = binary::find().expect("asked for with needs!(Haul)");
        self.stage.cp().arg("-F").arg(self.stage.file("ssh_config")).arg("--haul-path").arg(haul)
    }

    /// `haul probe --json` on `source`, without flags and place.
    pub fn probe(&self) -> Run {
        self.stage.haul("probe")
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.stage.file("serve.log")).unwrap_or_default()
    }

    /// A path below the offered directory, at the daemon.
    pub fn daemon(&self, path: &str) -> OsString {
        self.stage.url(path).into()
    }

    /// A path on `target`, over its sshd.
    pub fn ssh(&self, path: &Path) -> OsString {
        at(SSH_HOST, path)
    }

    /// Runs a shell command on a host during a copy, and returns its output.
    #[track_caller]
    pub fn on(&self, host: &str, command: &str) -> String {
        self.enter(host, command).expect(0).stdout_text()
    }

    #[track_caller]
    fn enter(&self, host: &str, command: &str) -> Outcome {
        let run = Run::new(binary::find_lab().expect("asked for with needs!(Boxed)"));
        run.args(["exec", "--lab", &self.name, host, "--", "sh", "-c", command]).run()
    }

    /// Bytes, headers too, that a target's device has received; `None` once the copy and its hosts have ended.
    #[track_caller]
    pub fn received(&self, device: &str) -> Option<u64> {
        let table = self.enter("target", "cat /proc/net/dev").stdout_text();
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{device}:")));
        line?.split_whitespace().next()?.parse().ok()
    }

    /// Pulls a way's cable at both ends, or puts it back; both kernels notice.
    #[track_caller]
    pub fn plug(&self, device: &str, is_plugged: bool) {
        let state = if is_plugged { "on" } else { "off" };
        for host in ["source", "target"] {
            self.on(host, &format!("ip link set {device} carrier {state}"));
        }
    }

    /// A router swallows all packets, or passes them; no host notices.
    #[track_caller]
    pub fn swallow(&self, router: &str, swallows: bool) {
        let rules = "add table inet hole; add chain inet hole c { type filter hook forward priority 0; policy drop; }";
        let rules = if swallows { rules } else { "delete table inet hole" };
        self.on(router, &format!("nft '{rules}'"));
    }
}

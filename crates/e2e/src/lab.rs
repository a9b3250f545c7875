//! Hosts on one switch: network namespaces with own addresses, directories and, where asked, an sshd.
//!
//! ```text
//!   home ----+            10.77.0.1   fd77::1     runs the commands, no sshd
//!   alpha ---+- switch    10.77.0.2   fd77::2     sshd on port 2202
//!   beta ----+            10.77.0.3   fd77::3     sshd on port 2203
//! ```
//! All hosts see the same disk. A file below `Lab::dir("alpha")` is "on alpha".

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::LinkNameSpaceType;

use crate::needs::tool;
use crate::own_root::{self, OwnRoot};
use crate::{Outcome, Run, eventually, settle};

/// The host that commands start from.
pub const HOME: &str = "home";

const PREFIX: &str = "haul-e2e-";

/// More labs at once would only measure how busy the machine is.
const TESTS_AT_ONCE: u32 = 2;

/// A server without its open port has failed by then.
const READY_LIMIT: Duration = Duration::from_secs(15);

/// Hosts, switch, keys and directories of one test.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<Host>,
    switch: String,
    root: tempfile::TempDir,
    _place: Place,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// `home`, `alpha`, …
    pub name: String,
    /// The network namespace.
    pub namespace: String,
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
    /// The port of its sshd.
    pub ssh_port: u16,
    /// The directory: `data`, home, cache, keys.
    pub dir: PathBuf,
    switch_port: String,
    switch: String,
    own_root: Option<OwnRoot>,
    sshd: Mutex<Option<Child>>,
}

impl Lab {
    /// `home` and `alpha`.
    pub fn pair() -> Self {
        Self::with(&[HOME, "alpha"])
    }

    /// `home`, `alpha` and `beta`.
    pub fn triangle() -> Self {
        Self::with(&[HOME, "alpha", "beta"])
    }

    /// A lab of these hosts; all but `home` run an sshd.
    pub fn with(names: &[&str]) -> Self {
        Self::prepared(names, |_| {})
    }

    /// `home` and these hosts, each with its own root directory. On `home`, `~/.ssh/config` and `/etc/hosts` know all names.
    /// A paired host has the other's files.
    #[track_caller]
    pub fn of_machines(names: &[&str], same_files: &[(&str, &str)]) -> Self {
        let all: Vec<&str> = [HOME].iter().chain(names).copied().collect();
        Self::prepared(&all, |lab| {
            let programs = lab.root.path().join("bin");
            crate::binary::gather(&programs);
            let known: String = lab.hosts.iter().map(|host| format!("{} {}\n", host.v4, host.name)).collect();
            for at in 0..lab.hosts.len() {
                let Host { name, dir, .. } = &lab.hosts[at];
                fs::write(own_root::hosts_file(dir), format!("127.0.0.1 localhost\n{known}")).expect("own directory");
                let files = same_files.iter().find(|(one, _)| one == name).map_or(name.as_str(), |(_, other)| other);
                let own_root = OwnRoot::build(name, dir, &lab.host(files).dir, &programs);
                lab.hosts[at].own_root = Some(own_root);
            }
            let ssh = lab.home().dir.join("home/.ssh");
            fs::create_dir(&ssh).expect("own directory");
            fs::copy(lab.ssh_config(), ssh.join("config")).expect("own directory");
        })
    }

    fn prepared(names: &[&str], prepare: impl FnOnce(&mut Self)) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let place = Place::take();
        remove_labs_of_dead_tests();

        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let stem = format!("{PREFIX}{}-{number}", std::process::id());
        let root = crate::scratch();
        let switch = format!("{stem}-switch");
        // Hosts added to `lab` one by one are removed by a panic half-way.
        let mut lab = Self { hosts: Vec::new(), switch: switch.clone(), root, _place: place };
        ip(&["netns", "add", &switch]);
        ip(&["-n", &switch, "link", "add", "switch0", "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", "switch0", "up"]);
        for (index, name) in (1..).zip(names) {
            let host = Host::attach(lab.root.path(), &stem, &switch, name, index);
            lab.hosts.push(host);
        }
        lab.make_keys();
        lab.write_ssh_config();
        prepare(&mut lab);
        for host in lab.hosts.iter().filter(|host| host.name != HOME) {
            host.start_sshd("");
        }
        lab
    }

    /// A host by name.
    #[track_caller]
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap_or_else(|| panic!("this lab has no host {name}"))
    }

    /// The host that commands start from.
    pub fn home(&self) -> &Host {
        self.host(HOME)
    }

    /// The first remote host.
    pub fn alpha(&self) -> &Host {
        self.host("alpha")
    }

    /// A host's directory for the test's trees.
    pub fn data(&self, host: &str) -> PathBuf {
        self.host(host).dir.join("data")
    }

    /// The client's ssh configuration.
    pub fn ssh_config(&self) -> PathBuf {
        self.root.path().join("ssh_config")
    }

    /// The client's known hosts.
    pub fn known_hosts(&self) -> PathBuf {
        self.root.path().join("known_hosts")
    }

    /// The client's private key.
    pub fn identity(&self) -> PathBuf {
        self.root.path().join("id_ed25519")
    }

    /// `haul` on `home`.
    pub fn haul(&self) -> Run {
        self.home().haul()
    }

    /// `haul cp` on `home` with the lab's ssh and JSON lines, without retry: most tests look at how one try ends.
    pub fn cp(&self) -> Run {
        self.haul().args(["cp", "--json", "--retry", "0", "--no-keep-login", "-F"]).arg(self.ssh_config())
    }

    /// `haul cp ARGS…` to its end.
    #[track_caller]
    pub fn cp_run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        self.cp().args(args).run()
    }

    /// `ssh HOST COMMAND` from `home`.
    pub fn ssh(&self, host: &str, command: &str) -> Run {
        self.home().run("ssh").arg("-F").arg(self.ssh_config()).arg(host).arg(command)
    }

    fn make_keys(&self) {
        keygen(&self.identity());
        let public = fs::read(self.identity().with_extension("pub")).expect("ssh-keygen wrote a public key");
        let mut known = String::new();
        for host in self.hosts.iter().filter(|host| host.name != HOME) {
            let key = host.dir.join("host_key");
            keygen(&key);
            fs::write(host.dir.join("authorized_keys"), &public).expect("the lab's directory is writable");
            let host_key = fs::read_to_string(key.with_extension("pub")).expect("ssh-keygen wrote a host key");
            known.push_str(&format!("{} {host_key}", host.name));
        }
        fs::write(self.known_hosts(), known).expect("the lab's directory is writable");
    }

    fn write_ssh_config(&self) {
        let mut text = String::new();
        for host in self.hosts.iter().filter(|host| host.name != HOME) {
            let Host { name, v4, v6, ssh_port, .. } = host;
            text.push_str(&format!("Host {name}\n  HostName {v4}\n  HostKeyAlias {name}\n  Port {ssh_port}\n"));
            text.push_str(&format!("Host {name}-v6\n  HostName {v6}\n  HostKeyAlias {name}\n  Port {ssh_port}\n"));
            text.push_str(&format!("Host {v4} {v6}\n  HostKeyAlias {name}\n"));
        }
        text.push_str(&format!(
            "Host *\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  \
             GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n  ConnectTimeout 10\n",
            self.identity().display(),
            self.known_hosts().display(),
        ));
        fs::write(self.ssh_config(), text).expect("the lab's directory is writable");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &self.hosts {
            host.stop_sshd();
            kill_all_in(&host.namespace);
        }
        for namespace in self.hosts.iter().map(|host| &host.namespace).chain([&self.switch]) {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

impl Host {
    fn attach(root: &Path, stem: &str, switch: &str, name: &str, index: u8) -> Self {
        let namespace = format!("{stem}-{name}");
        let v4 = Ipv4Addr::new(10, 77, 0, index);
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, index.into());
        let port = format!("port{index}");
        ip(&["netns", "add", &namespace]);
        ip(&["-n", switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
        ip(&["-n", switch, "link", "set", &port, "master", "switch0", "up"]);
        ip(&["-n", &namespace, "link", "set", "lo", "up"]);
        ip(&["-n", &namespace, "addr", "add", &format!("{v4}/24"), "dev", "eth0"]);
        // Duplicate address detection would block the address for a second.
        ip(&["-n", &namespace, "addr", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]);
        ip(&["-n", &namespace, "link", "set", "eth0", "up"]);

        let dir = root.join(name);
        for part in ["data", "home", "cache", "config", "state", "run", "tmp"] {
            fs::create_dir_all(dir.join(part)).expect("the lab's directory is writable");
        }
        fs::set_permissions(dir.join("run"), fs::Permissions::from_mode(0o700)).expect("own directory");
        Self {
            name: name.to_owned(),
            namespace,
            v4,
            v6,
            ssh_port: 2201 + u16::from(index),
            dir,
            switch_port: port,
            switch: switch.to_owned(),
            own_root: None,
            sshd: Mutex::new(None),
        }
    }

    /// A program on this host, with its home and cache.
    pub fn run(&self, program: impl Into<OsString>) -> Run {
        if let Some(own_root) = &self.own_root {
            let words = own_root.words();
            return Run::new(&words[0]).args(&words[1..]).arg(program.into()).in_namespace(&self.namespace);
        }
        self.environment()
            .into_iter()
            .fold(Run::new(program), |run, (name, value)| run.env(name, value))
            .in_namespace(&self.namespace)
    }

    /// `haul` on this host.
    pub fn haul(&self) -> Run {
        self.run(crate::binary::find().expect("a test that runs haul has asked for it with needs!(Haul)"))
    }

    /// The host's cache directory.
    pub fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 6] {
        [
            ("HOME", self.dir.join("home")),
            ("XDG_CACHE_HOME", self.cache()),
            ("XDG_CONFIG_HOME", self.dir.join("config")),
            ("XDG_STATE_HOME", self.dir.join("state")),
            ("XDG_RUNTIME_DIR", self.dir.join("run")),
            ("TMPDIR", self.dir.join("tmp")),
        ]
    }

    /// Restarts this host's sshd with further lines of configuration.
    pub fn restart_sshd(&self, more_lines: &str) {
        self.stop_sshd();
        eventually("the old sshd has left its port", READY_LIMIT, || !self.listens_on(self.ssh_port));
        self.start_sshd(more_lines);
    }

    fn start_sshd(&self, more_lines: &str) {
        let dir = self.dir.display();
        let setenv = match &self.own_root {
            None => self.environment().map(|(name, value)| format!("{name}={}", value.display())).join(" "),
            Some(_) => format!("HOME={}", own_root::HOME_DIR),
        };
        let text = format!(
            "{more_lines}\nPort {}\nHostKey {dir}/host_key\nPidFile none\nAuthorizedKeysFile {dir}/authorized_keys\n\
             StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nMaxStartups 100:30:200\nMaxSessions 100\nPrintMotd no\nUseDNS no\n\
             Subsystem sftp internal-sftp\nLogLevel VERBOSE\nSetEnv {setenv}\n",
            self.ssh_port,
        );
        let config = self.dir.join("sshd_config");
        fs::write(&config, text).expect("the lab's directory is writable");
        // sshd insists on this directory.
        fs::create_dir_all("/run/sshd").expect("root can make /run/sshd");
        let log = fs::File::options().create(true).append(true).open(self.dir.join("sshd.log")).expect("own directory");
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .args(self.own_root.iter().flat_map(OwnRoot::words))
            .arg(tool("sshd").expect("needs!(Namespaces) looked for sshd"))
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ip can be run");
        *self.sshd.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let ready = settle(READY_LIMIT, || self.listens_on(self.ssh_port));
        assert!(ready, "sshd on {} does not listen; its log:\n{}", self.name, self.sshd_log());
    }

    /// Ends the listening sshd; sessions go on.
    pub fn stop_sshd(&self) {
        if let Some(mut child) = self.sshd.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The host's sshd log.
    pub fn sshd_log(&self) -> String {
        fs::read_to_string(self.dir.join("sshd.log")).unwrap_or_default()
    }

    /// Unplugs this host: packets vanish silently.
    pub fn unplug(&self) {
        ip(&["-n", &self.switch, "link", "set", &self.switch_port, "down"]);
    }

    /// Plugs it in again.
    pub fn plug(&self) {
        ip(&["-n", &self.switch, "link", "set", &self.switch_port, "up"]);
    }

    /// Adds an IPv4 address.
    pub fn add_address(&self, address: Ipv4Addr) {
        ip(&["-n", &self.namespace, "addr", "add", &format!("{address}/24"), "dev", "eth0"]);
    }

    /// Changes the IPv4 address: packets to the old one reach nobody.
    pub fn change_address(&self, to: Ipv4Addr) {
        for (what, address) in [("del", self.v4), ("add", to)] {
            ip(&["-n", &self.namespace, "addr", what, &format!("{address}/24"), "dev", "eth0"]);
        }
    }

    /// Runs `work` in this host's network namespace.
    #[track_caller]
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                enter(&self.namespace).unwrap_or_else(|error| panic!("cannot enter {}: {error}", self.namespace));
                work()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The listening TCP ports.
    pub fn listening_ports(&self) -> Vec<u16> {
        self.inside(listening_ports_here)
    }

    /// Whether a program listens on this TCP port.
    pub fn listens_on(&self, port: u16) -> bool {
        self.listening_ports().contains(&port)
    }

    /// Process ids in this host's namespace.
    pub fn processes(&self) -> Vec<u32> {
        processes_in(&self.namespace)
    }

    /// The haul processes, also copies under other names.
    pub fn haul_processes(&self) -> Vec<u32> {
        haul_processes_in(&self.namespace)
    }

    /// SIGKILL for this host's hauls, as in a power failure.
    pub fn kill_haul(&self) {
        self.signal_haul(Signal::KILL);
    }

    /// A signal for this host's hauls.
    pub fn signal_haul(&self, signal: Signal) {
        for pid in self.haul_processes() {
            send(pid, signal);
        }
    }

    /// Processes with this program name, as the kernel knows it.
    pub fn processes_named(&self, program: &str) -> Vec<u32> {
        let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.processes().into_iter().filter(|pid| name(pid).trim_end() == program).collect()
    }

    /// SIGKILL for one process.
    pub fn kill(&self, pid: u32) {
        send(pid, Signal::KILL);
    }

    /// Waits until this host has no haul left.
    #[track_caller]
    pub fn expect_no_haul_left(&self, limit: Duration) {
        let gone = settle(limit, || self.haul_processes().is_empty());
        let left: Vec<String> = self.haul_processes().into_iter().map(command_line).collect();
        assert!(gone, "after {limit:?} {} still runs {left:?}", self.name);
    }

    /// The address, for commands that take no alias.
    pub fn address(&self) -> IpAddr {
        self.v4.into()
    }
}

pub(crate) fn enter(namespace: &str) -> io::Result<()> {
    let file = fs::File::open(Path::new("/run/netns").join(namespace))?;
    Ok(rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?)
}

pub(crate) fn listening_ports_here() -> Vec<u16> {
    const LISTEN: &str = "0A";
    let mut ports = Vec::new();
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let mut columns = line.split_ascii_whitespace().skip(1);
            let (Some(local), Some(_), Some(state)) = (columns.next(), columns.next(), columns.next()) else {
                continue;
            };
            let port = local.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok());
            if let (LISTEN, Some(port)) = (state, port) {
                ports.push(port);
            }
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// `HOST:PATH`.
pub fn at(host: &str, path: impl AsRef<OsStr>) -> OsString {
    let mut text = OsString::from(format!("{host}:"));
    text.push(path.as_ref());
    text
}

/// `PATH/`: a directory's contents.
pub fn contents_of(path: &Path) -> OsString {
    let mut text = path.as_os_str().to_owned();
    text.push("/");
    text
}

/// Makes an Ed25519 key pair without passphrase.
pub fn keygen(path: &Path) {
    Run::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "haul-e2e", "-f"]).arg(path).run().expect(0);
}

#[track_caller]
fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {error}", args.join(" "));
}

fn processes_in(namespace: &str) -> Vec<u32> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).output().expect("ip can be run");
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.trim().parse().ok()).collect()
}

pub(crate) fn haul_processes_in(namespace: &str) -> Vec<u32> {
    processes_in(namespace).into_iter().filter(|&pid| is_haul(pid)).collect()
}

fn kill_all_in(namespace: &str) {
    // A process may fork between listing and killing.
    let empty = settle(READY_LIMIT, || {
        let left = processes_in(namespace);
        left.iter().for_each(|&pid| send(pid, Signal::KILL));
        left.is_empty()
    });
    if !empty {
        eprintln!("processes in {namespace} survive SIGKILL");
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// By file name and arguments: a cached copy may have any name.
fn is_haul(pid: u32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let under_test = crate::binary::find().unwrap_or_default();
    exe == under_test || exe.to_string_lossy().contains("/cache/haul")
}

fn command_line(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

/// Removes killed test processes' namespaces.
fn remove_labs_of_dead_tests() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse().ok());
        let Some(pid) = pid else { continue };
        let pid: u32 = pid;
        if !Path::new(&format!("/proc/{pid}")).exists() {
            kill_all_in(&name);
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}

/// The permit of a test's thread for labs, returned with the last one.
#[derive(Debug)]
struct Place;

static PLACES_TAKEN: Mutex<u32> = Mutex::new(0);
static PLACE_FREE: Condvar = Condvar::new();

thread_local! {
    static LABS_OF_THIS_TEST: Cell<u32> = const { Cell::new(0) };
}

impl Place {
    fn take() -> Self {
        let labs = LABS_OF_THIS_TEST.get();
        LABS_OF_THIS_TEST.set(labs + 1);
        if labs == 0 {
            let mut taken = PLACES_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            while *taken >= TESTS_AT_ONCE {
                taken = PLACE_FREE.wait(taken).unwrap_or_else(PoisonError::into_inner);
            }
            *taken += 1;
        }
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let labs = LABS_OF_THIS_TEST.get() - 1;
        LABS_OF_THIS_TEST.set(labs);
        if labs == 0 {
            *PLACES_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            PLACE_FREE.notify_one();
        }
    }
}

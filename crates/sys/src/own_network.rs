//! Networks of a test's own, with their devices, addresses and routes.

use std::fs::File;
use std::io;
use std::process::Command;
use std::sync::mpsc::{self, Sender};

use rustix::thread::LinkNameSpaceType;

use crate::condition::unmet;
use crate::namespace;

/// A network namespace with loopback up.
pub struct OwnNetwork {
    namespace: File,
    thread: i32,
    /// The thread that keeps the number valid ends with this.
    _end: Sender<()>,
}

impl OwnNetwork {
    /// `None`, reported, without the right or ip(8).
    pub fn new() -> Option<OwnNetwork> {
        match OwnNetwork::make() {
            Ok(network) => Some(network),
            Err(error) => {
                unmet(format_args!("no network of its own for a test: {error}"));
                None
            }
        }
    }

    fn make() -> io::Result<OwnNetwork> {
        let (end, over) = mpsc::channel();
        let (tells, told) = mpsc::channel();
        std::thread::spawn(move || {
            let made = namespace::new_network().and_then(|()| File::open("/proc/thread-self/ns/net"));
            let _ = tells.send(made.map(|file| (file, rustix::thread::gettid().as_raw_nonzero().get())));
            let _: Result<(), _> = over.recv();
        });
        let (namespace, thread) = told.recv().map_err(io::Error::other)??;
        let network = OwnNetwork { namespace, thread, _end: end };
        network.enter(|| Command::new("ip").args(["link", "set", "lo", "up"]).status())?;
        Ok(network)
    }

    /// The number for `ip link set dev DEVICE netns NUMBER`.
    pub fn id(&self) -> i32 {
        self.thread
    }

    /// Runs a scenario in it, with its threads and sockets.
    pub fn enter<T: Send>(&self, scenario: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&self.namespace),
                    Some(LinkNameSpaceType::Network),
                )
                .expect("the namespace is ours");
                scenario()
            });
            runs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs ip(8) in it.
    pub fn ip(&self, words: &str) {
        self.run("ip", words);
    }

    /// Runs a command in it.
    pub fn run(&self, command: &str, words: &str) {
        self.try_run(command, words).unwrap_or_else(|error| panic!("{error}"));
    }

    /// [`OwnNetwork::run`] of an optional command.
    pub fn try_run(&self, command: &str, words: &str) -> io::Result<()> {
        let output = self.enter(|| Command::new(command).args(words.split_whitespace()).output())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{command} {words}: {said}")))
    }

    /// Connects two by a cable from `near` to `far`, both down.
    pub fn connect(&self, near: &str, other: &OwnNetwork, far: &str) {
        self.ip(&format!("link add {near} type veth peer name {far} netns {}", other.id()));
    }
}

/// Runs a scenario in its own network, with ip(8).
pub fn in_own_network(scenario: impl FnOnce(&dyn Fn(&str)) + Send) {
    if let Some(network) = OwnNetwork::new() {
        network.enter(|| scenario(&|words| network.ip(words)));
    }
}

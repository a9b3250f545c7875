//! Where commands run: a running lab of any engine.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};

use super::intervals::{self, ByteCounters};
use crate::topology::Topology;

/// A running lab, as an experiment sees it.
pub trait Testbed {
    /// Starts a command on a host, with the names of all hosts resolving.
    ///
    /// The child must be the command itself, without a wrapper that waits for it: its process group can be killed, and
    /// `/proc/PID/net` shows the network of the host.
    fn spawn(&self, host: &str, command: Command) -> io::Result<Child>;

    /// The host's own address; `None` if there is no such host.
    fn address(&self, host: &str) -> Option<Ipv4Addr>;

    /// The reason why samples since the last call are invalid, such as an emulator short of processor time; `None` if
    /// they are valid.
    fn fault(&self) -> Option<String>;

    /// Notes that the tool begins: the times of the network's events count from now. A second call changes nothing.
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Bytes that the TCP connections of others have carried so far; `None` if there are no others.
    fn bytes_of_others(&self) -> Option<u64> {
        None
    }

    /// The counters of bytes that a host receives; `None` if there is no such host.
    fn counters(&self, host: &str) -> Option<ByteCounters>;

    /// `emulated`, `virtual` or `uml`, as shown beside every result.
    fn engine(&self) -> &str;
}

/// Why a lab could not be set up; shown to the user unchanged.
pub type TestbedError = Box<dyn std::error::Error + Send + Sync>;

/// Sets a lab up, one for each point of a sweep. Dropping the testbed takes it down.
pub type TestbedFactory<'a> = dyn FnMut(&Topology) -> Result<Box<dyn Testbed + 'a>, TestbedError> + 'a;

/// This machine as it is: no namespaces, every host is loopback. For trials of adapters, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Testbed for Here {
    fn spawn(&self, _host: &str, mut command: Command) -> io::Result<Child> {
        command.spawn()
    }

    fn address(&self, _host: &str) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::LOCALHOST)
    }

    fn fault(&self) -> Option<String> {
        None
    }

    fn counters(&self, _host: &str) -> Option<ByteCounters> {
        Some(intervals::of_loopback())
    }

    fn engine(&self) -> &str {
        "loopback"
    }
}

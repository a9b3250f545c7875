//! A running lab of any engine, where commands run.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};

use super::intervals::{self, ByteCounters};
use crate::topology::Topology;

/// A running lab, as an experiment sees it.
pub trait Testbed {
    /// Starts a command on a host, with all hosts' names.
    ///
    /// The child must be the command itself: its process group can be killed, and `/proc/PID/net` shows the host's network.
    fn spawn(&self, host: &str, command: Command) -> io::Result<Child>;

    /// The host's own address, if the host exists.
    fn address(&self, host: &str) -> Option<Ipv4Addr>;

    /// Why samples since the last call are invalid.
    fn fault(&self) -> Option<String>;

    /// The tool begins: events count from the first call.
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Bytes of others' TCP connections so far, if there are others.
    fn bytes_of_others(&self) -> Option<u64> {
        None
    }

    /// A host's counters of received bytes, if the host exists.
    fn counters(&self, host: &str) -> Option<ByteCounters>;

    /// `emulated`, `virtual` or `uml`, shown beside results.
    fn engine(&self) -> &str;
}

/// Why a lab could not be set up, shown unchanged.
pub type TestbedError = Box<dyn std::error::Error + Send + Sync>;

/// Makes a lab for each point; dropping the testbed removes it.
pub type TestbedFactory<'a> = dyn FnMut(&Topology) -> Result<Box<dyn Testbed + 'a>, TestbedError> + 'a;

/// The machine without namespaces, every host loopback: for trials and tests.
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

//! Runs a command in a User Mode Linux kernel's network, in virtual or real time.
//!
//! ```text
//! haul-lab run --engine virtual   boot: private directory, job file, kernel process ------------------.
//!   |                                                                                                 v
//!   |                                            guest, process 1: mounts, modules, output, power off
//!   |                                            guest, its child: lab: namespaces, wires, the command
//!   '--- copies stdout and stderr, reads the status <--- files of the private directory, over hostfs
//! ```
//!
//! The guest sees the host's file system with its user's rights; only `/run`, `/dev` and `/dev/shm` are its own. It has no
//! network to the outside.

pub mod boot;
mod error;
pub mod guest;
pub mod job;
pub mod kernel;
mod lab;
mod modules;
mod private;
mod run;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::limits;
use crate::request::Request;
use crate::topology::Topology;
use crate::units::Size;

pub use error::UmlError;
pub use job::{GuestJob, GuestStatus};
pub use run::{Clock, RunInUml};

impl RunInUml {
    /// A lab in `kernel`, or in one that is found.
    pub fn of_request(request: &Request, kernel: Option<PathBuf>, clock: Clock) -> Result<RunInUml, UmlError> {
        let topology = Topology::parse(&request.topology)
            .map_err(|error| UmlError::Refused { what: "the network".into(), why: error.to_string() })?;
        let found = kernel::find(&kernel::Places::of_user(kernel), clock != Clock::Real)?;
        let program = std::env::current_exe().map_err(UmlError::io("find our own program"))?;
        // Files may fill 80 % of the guest's memory.
        let files = request.file_bytes.saturating_mul(5) / 4;
        let memory = memory_for(&topology, available_memory().bytes).bytes.saturating_add(files);
        let job = GuestJob::of_request(&program, request);
        Ok(RunInUml {
            kernel: found.path,
            program,
            clock,
            memory: Size { bytes: memory },
            job,
            limit: boot::DEFAULT_LIMIT,
        })
    }
}

/// Boots the kernel, runs the job and passes output through, until signals set `stop`.
pub fn run(
    what: &RunInUml,
    stop: &AtomicBool,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<GuestStatus, UmlError> {
    boot::run(what, stop, stdout, stderr)
}

/// Four times the bytes of queues and links (both ends' buffers, and some 2 bytes of kernel memory for each), a small system,
/// and files on `/run` and `/dev/shm`.
pub fn memory_for(topology: &Topology, host_bytes: u64) -> Size {
    Size { bytes: memory_wanted(topology).clamp(limits::MIN_UML_BYTES, most_memory(host_bytes)) }
}

/// Warns if the guest gets less memory than its network needs.
pub fn memory_warning(topology: &Topology, host_bytes: u64) -> Option<String> {
    let (wanted, most) = (memory_wanted(topology), most_memory(host_bytes));
    (wanted > most).then(|| {
        let [wanted, most] = [wanted, most].map(|bytes| Size { bytes });
        format!("full queues and links of this network want {wanted} of memory, the guest gets {most}: flows may be slower than the path")
    })
}

fn most_memory(host_bytes: u64) -> u64 {
    limits::MAX_UML_BYTES.min(host_bytes / 4 * 3).max(limits::MIN_UML_BYTES)
}

fn memory_wanted(topology: &Topology) -> u64 {
    let mut held = 0u64;
    for link in &topology.links {
        for direction in [link.forth(), link.back()] {
            let on_the_way = direction.rate.map_or(0, |rate| rate.bytes_in(link.rtt().0));
            held = held.saturating_add(direction.queue_bytes(link.rtt())).saturating_add(on_the_way);
        }
    }
    limits::UML_BASE_BYTES.saturating_add(held.saturating_mul(limits::UML_BYTES_PER_BYTE_HELD))
}

/// `MemAvailable` of this machine.
pub fn available_memory() -> Size {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    Size { bytes: kib * 1024 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(rate: &str) -> Topology {
        let text = format!(
            "hosts = {{ a = {{}}, b = {{}} }}\nlinks = [{{ ends = ['a', 'b'], rate = '{rate}', rtt = '100ms' }}]"
        );
        Topology::parse(&text).unwrap()
    }

    fn memory(rate: &str, host: u64) -> u64 {
        memory_for(&network(rate), host).bytes
    }

    #[test]
    fn a_network_that_does_not_fit_is_told() {
        let words = "full queues and links of this network want 21.074 GB of memory, the guest gets 12.885 GB: flows may be slower than \
                     the path";
        assert_eq!(memory_warning(&network("100Gbit"), 16 << 30).as_deref(), Some(words));
        assert_eq!(memory_warning(&network("10Gbit"), 16 << 30), None);
    }

    #[test]
    fn memory_grows_with_what_is_on_the_way_and_stays_below_the_hosts() {
        let host = 64 << 30;
        assert_eq!(memory("1Gbit", host), 2 << 30);
        // 125 MB on the way and 125 MB waiting, twice, times 4, over 1 GiB.
        assert_eq!(memory("10Gbit", host), (1 << 30) + 2_000_000_000);
        assert_eq!(memory("100Gbit", 16 << 30), 12 << 30);
        assert_eq!(memory("100Gbit", 1 << 30), 2 << 30);
    }
}

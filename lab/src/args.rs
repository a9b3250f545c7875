//! The command line of `haul-lab`, with topologies of its flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::lab::Engine;
use crate::limits;
use crate::request::LabJob;
use crate::units::{Probability, Rate, Size, Time};

/// A network in a box: runs any command in an emulated network.
#[derive(Debug, Parser)]
#[command(name = "haul-lab", version, max_term_width = 100)]
pub struct Typed {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run a command (a shell when none is given) on a host of an emulated network
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run a command on a host of a running lab
    Exec(ExecArgs),
    /// Measure the lab itself: compare delay, rate, loss, queue and fairness of every link with the values asked for
    Calibrate(CalibrateArgs),
    /// Run an experiment: tools compared on the same path; without a name, list the experiments
    Experiment(ExperimentArgs),
    /// Build a kernel for --engine virtual from the distribution's packaged source
    Kernel {
        /// Only print the commands
        #[arg(long)]
        dry: bool,
    },
    /// Show the abilities of this machine for labs, and what is missing
    Doctor,
    /// Process 1 of a lab (started by the lab itself)
    #[command(hide = true)]
    Inside {
        /// The request.
        request: PathBuf,
    },
    /// The lab (started by process 1)
    #[command(hide = true)]
    Lab {
        /// The request.
        request: PathBuf,
    },
    /// The lab in a guest kernel (started by process 1 there)
    #[command(hide = true)]
    GuestLab {
        /// The request itself.
        request: String,
    },
    /// Becomes a kernel (started by the lab itself)
    #[command(hide = true)]
    UmlKernel {
        /// The clock, the directory, the kernel and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Process 1 of a guest kernel, and its child
    #[command(hide = true)]
    UmlGuest {
        /// The directory, and the arguments of the kernel.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

const RUN_EXAMPLES: &str = "Examples:
  haul-lab run --rate 1Gbit --rtt 228ms --with 'server=iperf3 -s' -- iperf3 -c server
  haul-lab run --rate 100Mbit --rtt 50ms --loss 1e-4          a shell on the client
  haul-lab exec server -- iperf3 -s                           in another terminal
  haul-lab run topology.toml --on beta -- ./job

The hosts `client` and `server` find each other by name. All hosts see this machine's files.";

/// The engine that carries the packets.
#[derive(Debug, Default, Args)]
pub struct EngineArgs {
    /// The engine that carries the packets [default: emulated, or the engine of the experiment]
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,
    /// The kernel for the engines virtual and uml [default: $HAUL_LAB_KERNEL, or the kernel that `haul-lab kernel`
    /// built; for uml also the kernel of the package user-mode-linux]
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,
}

/// Networks to measure.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// A topology; without it, two hosts and the link that the flags describe
    #[arg(value_name = "TOPOLOGY.toml", conflicts_with_all = LINK_FLAGS)]
    pub topology: Option<PathBuf>,
    /// Bits per second, both ways; several rates are combined with each round trip and each loss
    #[arg(long, value_delimiter = ',', value_name = "RATE,...")]
    pub rate: Vec<Rate>,
    /// Round-trip times
    #[arg(long, value_delimiter = ',', value_name = "TIME,...")]
    pub rtt: Vec<Time>,
    /// Shares of packets lost at random, each way
    #[arg(long, value_delimiter = ',', value_name = "SHARE,...")]
    pub loss: Vec<Probability>,
    /// The rest of the link.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The engine that carries the packets: emulated, virtual, uml; several engines are compared with each other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "emulated", value_name = "ENGINE,...")]
    pub engine: Vec<Engine>,
    /// The kernel for the engines virtual and uml [default: as for run]
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,
    /// Measure a lab at most so many times until its values are right
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=limits::MAX_CALIBRATIONS.into()))]
    pub tries: u32,
    /// Print a line of JSON for each lab instead of a table
    #[arg(long)]
    pub json: bool,
}

/// An experiment.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// One of ours by its name, or a file
    #[arg(value_name = "NAME|FILE.toml")]
    pub experiment: Option<String>,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Where results go: NAME/DATE-HOST below this
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Continue an interrupted run
    #[arg(long = "continue", value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Directory for data and copies, best in memory [default: a directory in /dev/shm, in a guest kernel too]. Removed
    /// at the end
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Overrides the file
    #[arg(long, value_name = "N")]
    pub repeat: Option<u32>,
    /// Only this tool (may be repeated)
    #[arg(long, value_name = "TOOL")]
    pub only: Vec<String>,
    /// Overrides the file: bytes of each file
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// With --size: the number of files
    #[arg(long, value_name = "N", default_value_t = 1, requires = "size")]
    pub files: u64,
    /// The haul to measure, if it is not the one on the PATH
    #[arg(long, value_name = "PATH")]
    pub haul: Option<PathBuf>,
    /// A directory with further adapters
    #[arg(long, value_name = "DIR")]
    pub rivals: Option<PathBuf>,
}

/// A command in a network.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The host that the command runs on
    #[arg(long, value_name = "HOST", default_value = "client")]
    pub on: String,
    /// Start this on a host first (by `sh -c`). The command begins when a TCP port is open there, or after two seconds
    #[arg(long, value_name = "HOST=COMMAND", value_parser = parse_with)]
    pub with: Vec<(String, String)>,
    /// Write the packets of a link to a file that tcpdump and Wireshark read (link `wan` when only a file is given)
    #[arg(long, value_name = "[LINK=]FILE", value_parser = parse_capture)]
    pub capture: Vec<(String, PathBuf)>,
    /// At the end, print the counters of each link
    #[arg(long)]
    pub figures: bool,
    /// Other packets at this rate, from the client to the server
    #[arg(long, value_name = "RATE")]
    pub cross: Option<Rate>,
    /// The command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A command in a running network.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The lab, by its name or the process id of its hosts; optional if only one runs
    #[arg(long)]
    pub lab: Option<String>,
    /// The host
    pub host: String,
    /// The command; a shell when none is given
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A network: a file, or two hosts and a link.
#[derive(Debug, Default, Args)]
pub struct NetworkArgs {
    /// A topology; without it, the hosts client and server and the link that the flags describe
    #[arg(value_name = "TOPOLOGY.toml", conflicts_with_all = LINK_FLAGS)]
    pub topology: Option<PathBuf>,
    /// Bits per second, both ways [default: as fast as the emulator]
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Round-trip time
    #[arg(long, value_name = "TIME")]
    pub rtt: Option<Time>,
    /// Share of packets lost at random, each way
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<Probability>,
    /// The rest of the link.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Further properties of a link, and of its hosts.
#[derive(Clone, Debug, Default, Args)]
pub struct LinkArgs {
    /// Bytes that may wait at each end [default: what the link carries in 100 ms or one round trip]
    #[arg(long, value_name = "SIZE")]
    pub queue: Option<Size>,
    /// Up to this much is added to each delay, at random
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<Time>,
    /// Share of packets that are overtaken
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<Probability>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<Probability>,
    /// Share of packets in which a bit is changed
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<Probability>,
    /// Bytes of the largest IP packet
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Settings of hosts as distributions ship them (cubic, ordinary buffers) instead of this machine's
    #[arg(long)]
    pub stock: bool,
    /// A setting of all hosts, as in sysctl(8)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub sysctl: Vec<(String, String)>,
    /// Seed of all random choices: the same seed, the same losses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Flags that a topology file replaces.
const LINK_FLAGS: [&str; 10] =
    ["rate", "rtt", "loss", "queue", "jitter", "reorder", "duplicate", "corrupt", "mtu", "stock"];

impl CalibrateArgs {
    /// All combinations of rates, round trips and losses.
    pub fn grid(&self) -> Vec<LabJob> {
        fn each<T: Copy>(values: &[T]) -> Vec<Option<T>> {
            if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
        }
        let mut labs = Vec::new();
        for rate in each(&self.rate) {
            for rtt in each(&self.rtt) {
                for loss in each(&self.loss) {
                    let network = NetworkArgs { topology: None, rate, rtt, loss, link: self.link.clone() };
                    let words = [
                        rate.map(|rate| rate.to_string()),
                        rtt.map(|rtt| rtt.to_string()),
                        loss.map(|loss| format!("loss {loss}")),
                    ];
                    let asked = words.into_iter().flatten().collect();
                    labs.push(LabJob { asked, topology: network.to_toml(None) });
                }
            }
        }
        labs
    }
}

impl NetworkArgs {
    /// The topology of the flags, as TOML.
    pub fn to_toml(&self, cross: Option<Rate>) -> String {
        let more = &self.link;
        let mut link: Vec<String> = vec!["name = 'wan'".into(), "ends = ['client', 'server']".into()];
        if let Some(rate) = self.rate {
            link.push(format!("rate = '{}bit'", rate.bits_per_s()));
        }
        for (name, time) in [("rtt", self.rtt), ("jitter", more.jitter)] {
            link.extend(time.map(|time| format!("{name} = '{}ns'", time.0.as_nanos())));
        }
        let shares =
            [("loss", self.loss), ("reorder", more.reorder), ("duplicate", more.duplicate), ("corrupt", more.corrupt)];
        for (name, share) in shares {
            link.extend(share.map(|share| format!("{name} = '{}'", share.share())));
        }
        link.extend(more.queue.map(|queue| format!("queue = {}", queue.bytes)));
        link.extend(more.mtu.map(|mtu| format!("mtu = {mtu}")));
        let settings: BTreeMap<&str, &str> =
            more.sysctl.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name:?} = {value:?}")).collect();
        let preset = if more.stock { "preset = 'stock', " } else { "" };
        let host = format!("{{ {preset}sysctl = {{ {} }} }}", settings.join(", "));
        let traffic = cross.map_or(String::new(), |rate| {
            let rate = rate.bits_per_s();
            format!("\n[[traffic]]\nkind = 'udp'\nfrom = 'client'\nto = 'server'\nrate = '{rate}bit'\n")
        });
        format!(
            "name = 'wan'\nseed = {}\nhosts = {{ client = {host}, server = {host} }}\n\n[[links]]\n{}\n{traffic}",
            more.seed,
            link.join("\n")
        )
    }
}

fn parse_capture(text: &str) -> Result<(String, PathBuf), String> {
    let (link, file) = text.split_once('=').unwrap_or(("wan", text));
    if file.is_empty() { Err("a file is missing".into()) } else { Ok((link.to_owned(), file.into())) }
}

fn parse_with(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((host, command)) if !command.trim().is_empty() => Ok((host.to_owned(), command.to_owned())),
        _ => Err("write it like 'server=iperf3 -s'".into()),
    }
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if name.contains('.') => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write it like net.ipv4.tcp_congestion_control=bbr".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn flags_make_a_topology() {
        let line = "haul-lab run --rate 1Gbit --rtt 228ms --loss 1e-4 --queue 14MB --jitter 1ms --stock --cross 16Mbit \
                    --sysctl net.ipv4.tcp_congestion_control=bbr -- true";
        let typed = Typed::try_parse_from(line.split_whitespace()).unwrap();
        let Action::Run(run) = typed.action else { panic!("run") };
        let topology = Topology::parse(&run.network.to_toml(run.cross)).unwrap();
        let link = topology.links[0].forth();
        assert_eq!(link.rate.unwrap().to_string(), "1 Gbit/s");
        assert_eq!(topology.links[0].rtt().to_string(), "228 ms");
        assert_eq!((link.loss.unwrap().share(), link.queue_bytes(Time::default())), (1e-4, 14_000_000));
        assert_eq!(topology.hosts["server"].sysctl.len(), 1);
        assert_eq!(topology.traffic.len(), 1);
    }

    #[test]
    fn a_grid_has_every_rate_with_every_round_trip_and_loss() {
        let grid = |line: &str| {
            let typed = Typed::try_parse_from(line.split_whitespace()).unwrap();
            let Action::Calibrate(calibrate) = typed.action else { panic!("calibrate") };
            calibrate.grid()
        };
        let labs = grid("haul-lab calibrate --rate 10Mbit,1Gbit --rtt 2ms,228ms --loss 0,1e-3 --queue 1MB");
        let asked: Vec<String> = labs.iter().map(|lab| lab.asked.join(" x ")).collect();
        assert_eq!(asked.len(), 8);
        assert_eq!((&*asked[1], &*asked[7]), ("10 Mbit/s x 2 ms x loss 0.001", "1 Gbit/s x 228 ms x loss 0.001"));
        let link = Topology::parse(&labs[7].topology).unwrap().links[0].forth();
        assert_eq!((link.loss.unwrap().share(), link.queue_bytes(Time::default())), (1e-3, 1_000_000));
        assert_eq!(grid("haul-lab calibrate").len(), 1);
        let engines = Typed::try_parse_from(["haul-lab", "calibrate", "--engine", "emulated,virtual"]).unwrap();
        let Action::Calibrate(calibrate) = engines.action else { panic!("calibrate") };
        assert_eq!(calibrate.engine, [Engine::Emulated, Engine::Virtual]);
        assert!(Typed::try_parse_from(["haul-lab", "calibrate", "--tries", "0"]).is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;

        Typed::command().debug_assert();
    }
}

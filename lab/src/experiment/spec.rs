//! An experiment's file.
//!
//! ```toml
//! name = "stock-1g-228ms"
//! title = "500 MB over 1 Gbit/s x 228 ms"
//! repeat = 3
//! timeout = "5min"
//! topology = """
//! hosts = { client = {}, server = {} }
//! links = [{ ends = ["client", "server"], rate = "1Gbit", rtt = "228ms", loss = {loss} }]
//! """
//! sweep = { loss = [0, 1e-4] }
//! data = { files = 1, size = "500MB" }
//!
//! [[tools]]
//! rival = "aria2"
//! label = "aria2 -x 16"
//! vars = { streams = 16 }
//!
//! [[plots]]
//! kind = "bar"
//! y = "rate"
//! title = "500 MB over 1 Gbit/s x 228 ms"
//!
//! [[figures]]                     # what somebody else got, to stand beside ours
//! tool = "aria2 -x 16"
//! at = { loss = 0 }
//! rate = "558Mbit"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{ExperimentError, file, wrong};
use super::matrix::{self, Point};
use super::rival::{Check, Need};
use super::scalar::Scalar;
use crate::limits;
use crate::topology::Topology;
use crate::units::{Rate, Size, Time};

/// An experiment.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSpec {
    /// Name for directories and the command line: lower-case letters, digits, `-`.
    pub name: String,
    /// The title.
    pub title: String,
    /// The source of the figures, and where ours must differ.
    #[serde(default)]
    pub paper: String,
    /// The intended engine; the caller decides.
    #[serde(default)]
    pub engine: Option<String>,
    /// Seeds the tools' order and the files' content.
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default)]
    topology: Option<String>,
    /// The topology's file instead, relative to this one.
    #[serde(default)]
    topology_file: Option<PathBuf>,
    /// Values by parameter; each combination is a point.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<Scalar>>,
    /// The files to copy.
    pub data: DataSpec,
    /// The host with the data. Tools that send run here, and servers to fetch from.
    #[serde(default = "client")]
    pub from: String,
    /// The host that gets the data.
    #[serde(default = "server")]
    pub to: String,
    /// Commands that prepare each point.
    #[serde(default)]
    pub setup: Vec<SetupSpec>,
    /// The tools to compare.
    pub tools: Vec<ToolSpec>,
    /// Samples of each tool at each point, besides warm-ups.
    pub repeat: u32,
    /// Samples before those, left out of the summary.
    #[serde(default)]
    pub warm_up: u32,
    /// When a tool is killed.
    pub timeout: Time,
    /// How long others' traffic has the network before each tool.
    #[serde(default)]
    pub lead: Time,
    /// Reads the target host's received bytes at these intervals.
    #[serde(default)]
    pub intervals: Option<Time>,
    /// The plots.
    #[serde(default)]
    pub plots: Vec<PlotSpec>,
    /// The figures of others.
    #[serde(default)]
    pub figures: Vec<FigureSpec>,
}

/// Incompressible files of one size, equal for the same seed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// The number of files.
    #[serde(default = "one_file")]
    pub files: u32,
    /// Bytes of each.
    pub size: Size,
}

impl DataSpec {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        u64::from(self.files).saturating_mul(self.size.bytes)
    }

    /// Checks the bounds; `what` names the owner of the data.
    pub(super) fn check(&self, what: &str) -> Result<(), ExperimentError> {
        bounded(what, "the number of files", self.files.into(), limits::MAX_FILES.into())?;
        bounded(what, "the bytes of all files", self.bytes(), limits::MAX_DATA_BYTES)
    }
}

/// A command before the first tool of a point.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupSpec {
    /// The host.
    pub host: String,
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
}

/// A tool to compare.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The adapter.
    pub rival: String,
    #[serde(default)]
    label: Option<String>,
    /// Variables for adapter and server; placeholders are allowed.
    #[serde(default)]
    pub vars: BTreeMap<String, Scalar>,
    /// Arguments for the adapter's `{args}`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Words before client and server: `["mptcpize", "run"]`.
    #[serde(default)]
    pub wrap: Vec<String>,
    /// Programs of the wrapper.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Replaces the adapter's check.
    #[serde(default)]
    pub check: Option<Check>,
}

/// A plot.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// Lines or bars.
    pub kind: PlotKind,
    /// Parameter of the sweep; bars without one compare tools.
    #[serde(default)]
    pub x: Option<String>,
    /// The x axis's title.
    #[serde(default)]
    pub x_title: Option<String>,
    /// The shown number.
    pub y: Metric,
    /// The plot's title.
    pub title: String,
    /// Even steps mean a doubling.
    #[serde(default)]
    pub log_x: bool,
    /// Only points with these values; over time, one for each parameter.
    #[serde(default)]
    pub at: BTreeMap<String, Scalar>,
    /// Statements of others in words.
    #[serde(default)]
    pub bands: Vec<BandSpec>,
}

/// A statement about a part of the x axis.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandSpec {
    /// The first value.
    pub from: Scalar,
    /// The last value.
    pub until: Scalar,
    /// The words.
    pub label: String,
}

/// How a plot shows values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A line for each series.
    Line,
    /// A bar for each series.
    Bar,
    /// A line for each tool over seconds, from its median sample.
    Time,
}

/// A number of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Mbit/s of payload.
    Rate,
    /// Seconds of the whole command.
    Seconds,
    /// Processor seconds of both sides for each gigabyte.
    Cpu,
}

/// Somebody else's figure.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureSpec {
    /// The tool's label; a tool that we lack is shown, too.
    pub tool: String,
    /// The parameters that it holds for.
    #[serde(default)]
    pub at: BTreeMap<String, Scalar>,
    /// Mean rate.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Seconds of the whole command.
    #[serde(default)]
    pub seconds: Option<f64>,
}

impl ExperimentSpec {
    /// Reads an experiment from text.
    pub fn parse(text: &str) -> Result<ExperimentSpec, ExperimentError> {
        ExperimentSpec::parse_in("the experiment", text, Path::new("."))
    }

    /// Reads an experiment's file and its topology's.
    pub fn load(path: &Path) -> Result<ExperimentSpec, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(file("read", path))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        ExperimentSpec::parse_in(&path.display().to_string(), &text, dir)
    }

    fn parse_in(what: &str, text: &str, dir: &Path) -> Result<ExperimentSpec, ExperimentError> {
        let mut spec: ExperimentSpec = toml::from_str(text)
            .map_err(|error| ExperimentError::Syntax { what: what.to_owned(), why: error.to_string() })?;
        match (&spec.topology, spec.topology_file.take()) {
            (None, Some(name)) => {
                let path = dir.join(name);
                spec.topology = Some(std::fs::read_to_string(&path).map_err(file("read", &path))?);
            }
            (Some(_), None) => {}
            _ => return Err(wrong(what, "give either topology or topology_file")),
        }
        spec.check()?;
        Ok(spec)
    }

    /// The topology at one point, as TOML.
    pub fn topology_text_at(&self, point: &Point) -> Result<String, ExperimentError> {
        point.scope().fill(self.topology_text()).map_err(|error| wrong(self.topology_name(point), error.to_string()))
    }

    pub(super) fn topology_at(&self, point: &Point) -> Result<Topology, ExperimentError> {
        let text = self.topology_text_at(point)?;
        Topology::parse(&text).map_err(|error| wrong(self.topology_name(point), error.to_string()))
    }

    fn topology_name(&self, point: &Point) -> String {
        format!("the topology of {} at {point}", self.name)
    }

    pub(super) fn topology_text(&self) -> &str {
        self.topology.as_deref().unwrap_or_default()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let what = format!("experiment {}", self.name);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > limits::MAX_NAME_BYTES || !self.name.chars().all(is_name) {
            let why = format!("a name has 1 to {} lower-case letters, digits and '-'", limits::MAX_NAME_BYTES);
            return Err(wrong(format!("experiment {:?}", self.name), why));
        }
        bounded(&what, "repeat", self.repeat.into(), limits::MAX_REPEAT.into())?;
        bounded(&what, "warm_up + 1", u64::from(self.warm_up) + 1, limits::MAX_REPEAT.into())?;
        bounded(&what, "the number of tools", self.tools.len() as u64, limits::MAX_TOOLS as u64)?;
        bounded(&what, "the timeout in seconds", self.timeout.0.as_secs(), limits::MAX_TIMEOUT.as_secs())?;
        if self.lead.0 > limits::MAX_LEAD {
            return Err(wrong(what, format!("lead may be at most {}", Time(limits::MAX_LEAD))));
        }
        self.data.check(&what)?;
        matrix::check(&what, &self.sweep)?;
        for (at, tool) in self.tools.iter().enumerate() {
            if self.tools[..at].iter().any(|other| other.label() == tool.label()) {
                return Err(wrong(what, format!("two tools are called {:?}: give one a label", tool.label())));
            }
        }
        for plot in &self.plots {
            match &plot.x {
                Some(x) if !self.sweep.contains_key(x) => {
                    return Err(wrong(what, format!("the plot {:?} is over {x:?}, which is not swept", plot.title)));
                }
                Some(_) if plot.kind == PlotKind::Time => {
                    return Err(wrong(what, format!("the plot {:?} is over time and takes no x", plot.title)));
                }
                None if plot.kind == PlotKind::Line => {
                    return Err(wrong(what, format!("the plot {:?} has lines and needs an x", plot.title)));
                }
                _ => {}
            }
            if let Some(name) = plot.at.keys().find(|name| !self.sweep.contains_key(*name)) {
                return Err(wrong(what, format!("the plot {:?} is at {name:?}, which is not swept", plot.title)));
            }
            if plot.kind == PlotKind::Time && (self.intervals.is_none() || plot.y != Metric::Rate) {
                return Err(wrong(
                    what,
                    format!("the plot {:?} is over time and needs intervals and y = \"rate\"", plot.title),
                ));
            }
        }
        if let Some(every) = self.intervals.filter(|every| every.0 < limits::LEAST_INTERVAL) {
            return Err(wrong(
                what,
                format!("intervals of {every} are too short: at least {}", Time(limits::LEAST_INTERVAL)),
            ));
        }
        for figure in &self.figures {
            if let Some(name) = figure.at.keys().find(|name| !self.sweep.contains_key(*name)) {
                return Err(wrong(what, format!("a figure of {} is at {name:?}, which is not swept", figure.tool)));
            }
            if figure.rate.is_some() == figure.seconds.is_some() {
                return Err(wrong(what, format!("a figure of {} needs either a rate or seconds", figure.tool)));
            }
        }
        for point in matrix::points(&self.sweep) {
            let topology = self.topology_at(&point)?;
            let setup = self.setup.iter().map(|setup| &setup.host);
            for host in [&self.from, &self.to].into_iter().chain(setup) {
                if !topology.hosts.contains_key(host) {
                    return Err(wrong(what, format!("its topology has no host {host:?}")));
                }
            }
        }
        Ok(())
    }
}

impl ToolSpec {
    /// Name in tables and plots.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.rival)
    }
}

fn one() -> u64 {
    1
}

fn bounded(what: &str, thing: &str, value: u64, most: u64) -> Result<(), ExperimentError> {
    match (1..=most).contains(&value) {
        true => Ok(()),
        false => Err(wrong(what, format!("{thing} must be 1 to {most}, not {value}"))),
    }
}

fn one_file() -> u32 {
    1
}

fn client() -> String {
    "client".to_owned()
}

fn server() -> String {
    "server".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "x"
        title = "X"
        repeat = 2
        timeout = "5s"
        topology = """
        hosts = { client = {}, server = {} }
        links = [{ ends = ["client", "server"], rate = "{rate}", loss = {loss} }]
        """
        sweep = { rate = ["1Gbit"], loss = [0, 1e-4] }
        data = { size = "1MB" }
        [[tools]]
        rival = "scp"
        [[figures]]
        tool = "scp"
        at = { loss = 1e-4 }
        rate = "3Mbit"
    "#;

    #[test]
    fn a_good_file_is_read() {
        let spec = ExperimentSpec::parse(GOOD).unwrap();
        assert_eq!(spec.sweep["loss"][1], Scalar("1e-4".into()));
        assert_eq!((spec.from.as_str(), spec.to.as_str(), spec.data.bytes()), ("client", "server", 1_000_000));
        assert_eq!(spec.topology_at(&matrix::points(&spec.sweep)[1]).unwrap().links[0].name(), "client-server");
    }

    #[test]
    fn a_bad_file_is_refused_with_its_reason() {
        let cases: [(&str, &str, &str); 10] = [
            ("repeat = 2", "repeat = 0", "experiment x: repeat must be 1 to 100, not 0"),
            ("repeat = 2", "repaet = 2", "unknown field `repaet`"),
            ("\"x\"", "\"X/..\"", "experiment \"X/..\": a name has 1 to 32 lower-case letters, digits and '-'"),
            ("loss = {loss}", "loss = {lost}", "there is no value for {lost}; there is loss, rate"),
            ("\"1Gbit\"", "\"fast\"", "the topology of x at loss 0, rate fast: cannot read the topology"),
            ("rival = \"scp\"", "rival = \"scp\"\n[[tools]]\nrival = \"scp\"", "two tools are called \"scp\""),
            ("rate = \"3Mbit\"", "", "a figure of scp needs either a rate or seconds"),
            ("at = { loss", "at = { lost", "a figure of scp is at \"lost\", which is not swept"),
            ("size = \"1MB\"", "size = \"big\"", "\"big\" is no size: write it like 14MB, 64KiB or 1500"),
            ("title = \"X\"", "title = \"X\"\nfrom = \"moon\"", "experiment x: its topology has no host \"moon\""),
        ];
        for (from, to, why) in cases {
            let error = ExperimentSpec::parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}\n  should say: {why}");
        }
    }
}

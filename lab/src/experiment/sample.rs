//! Raw results, one JSON line for each measurement.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{ExperimentError, file};
use super::intervals::Interval;
use super::matrix::Point;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Values of the swept parameters.
    pub point: Point,
    /// The tool's label.
    pub tool: String,
    /// The repetition, from 0; warm-ups count.
    pub repetition: u32,
    /// Kept, but not in the summary.
    pub warm_up: bool,
    /// `emulated`, `virtual`, `uml` or `loopback`.
    pub engine: String,
    /// The beginning, in seconds since 1970.
    pub unix_s: u64,
    /// The whole command's time, or the printed one. `None`: it could not start.
    pub seconds: Option<f64>,
    /// Bytes of all source files.
    pub bytes: u64,
    /// Payload by time, or the printed rate (iperf3).
    pub rate_mbit_per_s: Option<f64>,
    /// The rate of others' TCP connections meanwhile, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_mbit_per_s: Option<f64>,
    /// Bytes reported as sent with a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_mb: Option<f64>,
    /// Share of the source host's segments sent again, if its kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_again: Option<f64>,
    /// Reported changes of service class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_changes: Vec<ClassChange>,
    /// Processor seconds of the tool and helpers, to 10 ms.
    pub cpu_client_s: Option<f64>,
    /// The server's processor seconds meanwhile, to 10 ms.
    pub cpu_server_s: Option<f64>,
    /// Whether the copy equals the source; `None` without a comparison.
    pub verified: Option<bool>,
    /// Exit status.
    pub exit: Option<i32>,
    /// Whether the summary counts it.
    pub valid: bool,
    /// Why it does not count.
    pub why: Option<String>,
    /// Received bytes meanwhile, if the experiment asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The end of a failed tool's and server's output.
    pub output: Option<String>,
}

/// A tool changed its service class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassChange {
    /// Seconds since its start.
    pub at_s: f64,
    /// The class from then on; `normal` has no mark.
    pub class: String,
    /// The reported reason, if any; earlier versions had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Sample {
    pub(super) fn key(&self) -> (&Point, &str, u32) {
        (&self.point, &self.tool, self.repetition)
    }
}

pub(super) struct SampleFile {
    path: std::path::PathBuf,
    file: File,
}

impl SampleFile {
    /// Opens and reads the file, without a last line cut off by a crash.
    pub(super) fn open(path: &Path) -> Result<(SampleFile, Vec<Sample>), ExperimentError> {
        let mut present = Vec::new();
        if path.exists() {
            let text = fs::read_to_string(path).map_err(file("read", path))?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            present = parse(path, &text[..whole])?;
            if whole < text.len() {
                let shorten = || OpenOptions::new().write(true).open(path)?.set_len(whole as u64);
                shorten().map_err(file("mend", path))?;
            }
        }
        let opened = OpenOptions::new().create(true).append(true).open(path).map_err(file("write", path))?;
        Ok((SampleFile { path: path.to_owned(), file: opened }, present))
    }

    pub(super) fn append(&mut self, sample: &Sample) -> Result<(), ExperimentError> {
        let mut line = serde_json::to_string(sample).expect("a sample has only texts and finite numbers");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(file("write", &self.path))
    }
}

/// A directory's samples, in order, without a cut-off last line.
pub fn read_samples(dir: &Path) -> Result<Vec<Sample>, ExperimentError> {
    let path = dir.join(SAMPLES);
    let text = fs::read_to_string(&path).map_err(file("read", &path))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    parse(&path, &text[..whole])
}

pub(super) const SAMPLES: &str = "samples.jsonl";

fn parse(path: &Path, text: &str) -> Result<Vec<Sample>, ExperimentError> {
    let mut samples = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let sample = serde_json::from_str(line).map_err(|error| ExperimentError::Syntax {
            what: format!("{} line {}", path.display(), number + 1),
            why: error.to_string(),
        })?;
        samples.push(sample);
    }
    Ok(samples)
}

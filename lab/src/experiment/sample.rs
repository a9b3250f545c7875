//! Raw results: one line of JSON for each measurement, appended as it comes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{ExperimentError, file};
use super::intervals::Interval;
use super::matrix::Point;

/// One measurement, good or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Values of the swept parameters.
    pub point: Point,
    /// Label of the tool.
    pub tool: String,
    /// The repetition, from 0; warm-ups count.
    pub repetition: u32,
    /// The sample is kept, but not part of the summary.
    pub warm_up: bool,
    /// The engine: `emulated`, `virtual`, `uml`, `loopback`.
    pub engine: String,
    /// When it began, in seconds since 1970.
    pub unix_s: u64,
    /// The time of the whole command with its login, or the time that the tool printed. `None` if the tool could not be
    /// started.
    pub seconds: Option<f64>,
    /// The bytes of all files of the source.
    pub bytes: u64,
    /// Payload by time, or the rate that the tool printed (iperf3).
    pub rate_mbit_per_s: Option<f64>,
    /// The rate of others' TCP connections while the tool ran; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_mbit_per_s: Option<f64>,
    /// The bytes that the tool reports as sent with a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_mb: Option<f64>,
    /// The share of the source host's segments that were sent again; `None` if its kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_again: Option<f64>,
    /// The tool's changes of its service class, as it reports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_changes: Vec<ClassChange>,
    /// Processor seconds of the tool and its helpers, to 10 ms.
    pub cpu_client_s: Option<f64>,
    /// Processor seconds of the server while the tool ran, to 10 ms.
    pub cpu_server_s: Option<f64>,
    /// Whether the copy equals the source; `None` without a copy, or without a comparison.
    pub verified: Option<bool>,
    /// Exit status.
    pub exit: Option<i32>,
    /// The sample counts in the summary.
    pub valid: bool,
    /// The reason why it does not count.
    pub why: Option<String>,
    /// The received bytes while the tool ran; empty unless the experiment asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The end of the output of a failed tool and its server.
    pub output: Option<String>,
}

/// A tool changed its service class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassChange {
    /// Seconds since the tool was started.
    pub at_s: f64,
    /// The class from then on; `normal` has no mark.
    pub class: String,
    /// The reported reason; empty if there is none, and in samples of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Sample {
    /// The key of a measurement. The same key is not measured twice.
    pub(super) fn key(&self) -> (&Point, &str, u32) {
        (&self.point, &self.tool, self.repetition)
    }
}

pub(super) struct SampleFile {
    path: std::path::PathBuf,
    file: File,
}

impl SampleFile {
    /// Opens the file, and reads its samples. A last line that a crash cut off is removed.
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

/// The samples of a directory of results, in order. A cut-off last line is left out.
pub fn read_samples(dir: &Path) -> Result<Vec<Sample>, ExperimentError> {
    let path = dir.join(SAMPLES);
    let text = fs::read_to_string(&path).map_err(file("read", &path))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    parse(&path, &text[..whole])
}

/// Name of the file with the samples.
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

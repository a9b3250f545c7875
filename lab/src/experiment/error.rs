//! Why an experiment cannot be run. A failed measurement is not such an error: it is a sample.

use std::io;
use std::path::{Path, PathBuf};

/// The failed act, its object, the cause, and advice.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A file or directory could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// As a verb: `read`, `write`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The text is not TOML of the expected form.
    #[error("cannot read {what}: {why}")]
    Syntax {
        /// Which file or adapter.
        what: String,
        /// Line, column and what was expected.
        why: String,
    },
    /// The text is well formed, but makes no sense.
    #[error("{what}: {why}")]
    Spec {
        /// The part and the file.
        what: String,
        /// The mistake, and the correct form.
        why: String,
    },
    /// The lab of one point could not be set up.
    #[error("the lab for {point} did not start: {source}")]
    Testbed {
        /// The point of the sweep.
        point: String,
        /// The message of the engine.
        source: super::TestbedError,
    },
    /// A command that prepares a point failed.
    #[error("setup on {host} failed: {command}: {why}\n  hint: it runs once for each point, before the first tool")]
    Setup {
        /// Where it ran.
        host: String,
        /// The command line.
        command: String,
        /// Exit status or error, with the end of its output.
        why: String,
    },
    /// No tool is left to compare.
    #[error("none of the tools of {experiment} is installed:\n{missing}")]
    NoTools {
        /// Which experiment.
        experiment: String,
        /// One tool a line, with the packages that have it.
        missing: String,
    },
    /// The run to continue was made by another version of the experiment.
    #[error(
        "{} holds samples of another version of {experiment}\n  hint: start a new run without --continue; {} says what \
         was measured there", dir.display(), dir.join("experiment.txt").display()
    )]
    Changed {
        /// Which experiment.
        experiment: String,
        /// The directory of results.
        dir: PathBuf,
    },
    /// A plot could not be drawn.
    #[error("cannot draw {}: {why}", path.display())]
    Plot {
        /// The file of the plot.
        path: PathBuf,
        /// The message of the drawing library.
        why: String,
    },
}

pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExperimentError {
    let path = path.to_owned();
    move |source| ExperimentError::File { action, path, source }
}

pub(super) fn wrong(what: impl Into<String>, why: impl Into<String>) -> ExperimentError {
    ExperimentError::Spec { what: what.into(), why: why.into() }
}

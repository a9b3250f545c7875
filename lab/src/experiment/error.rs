//! Why an experiment cannot run. A failed measurement is a sample instead.

use std::io;
use std::path::{Path, PathBuf};

/// The failed act, its object, cause and advice.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A file or directory is unusable.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// A verb: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The text is not TOML of the expected form.
    #[error("cannot read {what}: {why}")]
    Syntax {
        /// The file or adapter.
        what: String,
        /// Line, column and what was expected.
        why: String,
    },
    /// The text makes no sense.
    #[error("{what}: {why}")]
    Spec {
        /// The part and file.
        what: String,
        /// The mistake and the correct form.
        why: String,
    },
    /// A point's lab could not be set up.
    #[error("the lab for {point} did not start: {source}")]
    Testbed {
        /// The point.
        point: String,
        /// The engine's message.
        source: super::TestbedError,
    },
    /// A preparing command failed.
    #[error("setup on {host} failed: {command}: {why}\n  hint: it runs once for each point, before the first tool")]
    Setup {
        /// The host.
        host: String,
        /// The command line.
        command: String,
        /// Exit status or error, and the end of its output.
        why: String,
    },
    /// No tool is left.
    #[error("none of the tools of {experiment} is installed:\n{missing}")]
    NoTools {
        /// The experiment.
        experiment: String,
        /// One tool a line, with its packages.
        missing: String,
    },
    /// The run to continue has another version of the experiment.
    #[error(
        "{} holds samples of another version of {experiment}\n  hint: start a new run without --continue; {} says what \
         was measured there", dir.display(), dir.join("experiment.txt").display()
    )]
    Changed {
        /// The experiment.
        experiment: String,
        /// The directory of results.
        dir: PathBuf,
    },
    /// A plot could not be drawn.
    #[error("cannot draw {}: {why}", path.display())]
    Plot {
        /// The plot's file.
        path: PathBuf,
        /// The drawing library's message.
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

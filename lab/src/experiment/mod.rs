//! Experiments as files: every tool over the same path, raw samples, a table, plots.
//!
//! Each point gets a running lab ([`Testbed`]), where each tool runs in turn with its real server. A run gives a sample, one
//! JSON line. Failed or doubtful ones are kept with their reason, outside the median.

mod attempt;
mod builtin;
mod commands;
mod data;
mod error;
mod identity;
mod intervals;
mod matrix;
mod plot;
mod process;
mod report;
mod rival;
mod rivals;
mod run;
mod sample;
mod scalar;
mod sent_again;
mod server;
mod spec;
mod summary;
mod template;
mod testbed;

#[cfg(test)]
#[path = "../../tests/unit/experiment_scenarios.rs"]
mod scenarios;

pub use builtin::EXPERIMENTS;
pub use error::ExperimentError;
pub use intervals::{ByteCounters, Course, Interval, longest_pause_s};
pub use matrix::{Point, points};
pub use plot::draw;
pub use report::{Report, report};
pub use rival::{Check, Need, RivalSpec, ServerSpec};
pub use rivals::{MissingTool, Rivals};
pub use run::{Outcome, RunEvent, RunOptions, run};
pub use sample::{Sample, read_samples};
pub use scalar::Scalar;
pub use spec::{DataSpec, ExperimentSpec, FigureSpec, Metric, PlotKind, PlotSpec, SetupSpec, ToolSpec};
pub use summary::{Row, Spread, Summary};
pub use testbed::{Here, Testbed, TestbedError, TestbedFactory};

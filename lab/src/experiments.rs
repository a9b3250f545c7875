//! Runs an experiment, in a calibrated lab for each point.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::ending::{EXIT_INTERRUPTED, EXIT_INVALID, Ended, LabError, os};
use crate::experiment::{self, DataSpec, ExperimentSpec, Here, Rivals, RunOptions, Testbed, TestbedError};
use crate::lab::{Engine, Lab};
use crate::progress::Progress;
use crate::request::ExperimentJob;
use crate::topology::Topology;
use crate::units::Size;

/// Runs the experiment or its rest. `names` lies over `/etc/hosts`; `columns` is the terminal's.
pub fn run(
    engine: Engine,
    columns: Option<u16>,
    job: &ExperimentJob,
    names: &Path,
    interrupted: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Ended, LabError> {
    let (spec, rivals) = (prepare(job)?, adapters(job)?);
    let options = RunOptions {
        results: job.results.clone(),
        resume: job.resume.clone(),
        work: job.work.clone(),
        cancelled: Arc::clone(interrupted),
    };
    fs::create_dir_all(&job.work).map_err(|cause| os("make the directory for data", cause))?;
    let calibrations = job.work.join("calibration.md");
    let _ = fs::remove_file(&calibrations);
    let loopback = spec.engine.as_deref() == Some(LOOPBACK);
    let mut left_out = BTreeSet::new();
    let mut testbed = |topology: &Topology| -> Result<Box<dyn Testbed>, TestbedError> {
        if loopback {
            return Ok(Box::new(Here));
        }
        let mut lab = Lab::make(topology, engine, &BTreeMap::new(), names)?;
        let table = lab.calibrate(interrupted)?;
        let mut file = OpenOptions::new().create(true).append(true).open(&calibrations)?;
        writeln!(
            file,
            "{}: engine {}\n\n{}{}",
            topology.name,
            engine.word(),
            table.text(),
            not_as_asked(lab.left_out())
        )?;
        left_out.extend(lab.left_out().iter().cloned());
        lab.start_traffic()?;
        Ok(Box::new(lab))
    };
    let mut progress = Progress::new(columns, engine != Engine::Virtual, tell);
    let outcome = experiment::run(&spec, &rivals, &options, &mut testbed, &mut |event| progress.event(event))?;
    drop(progress);
    if calibrations.exists() {
        let kept = outcome.dir.join("calibration.md");
        fs::copy(&calibrations, &kept).map_err(|cause| os("keep the calibration", cause))?;
    }
    let report = experiment::report(&spec, &outcome.samples, &outcome.missing, &outcome.dir)?;
    let valid = outcome.samples.iter().any(|sample| sample.valid);
    let mut text = report.markdown;
    text.push_str(&not_as_asked(&left_out));
    text.push_str(&format!("\nresults: {}\n", outcome.dir.display()));
    if outcome.cancelled {
        text.push_str(&format!("interrupted; go on with --continue {}\n", outcome.dir.display()));
    }
    let code = match (outcome.cancelled, valid) {
        (true, _) => ExitCode::from(EXIT_INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(EXIT_INVALID),
    };
    Ok(Ended { code, text, figures: Vec::new() })
}

fn not_as_asked<'a>(left_out: impl IntoIterator<Item = &'a String>) -> String {
    let lines: String = left_out.into_iter().map(|line| format!("- {line}\n")).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\nHosts are not all that was asked for:\n\n{lines}"),
    }
}

/// The experiment with the command line's overrides; fails early outside the lab.
pub fn prepare(job: &ExperimentJob) -> Result<ExperimentSpec, LabError> {
    let mut spec = ExperimentSpec::find(&job.experiment)?;
    if let Some(repeat) = job.repeat {
        spec.set_repeat(repeat)?;
    }
    if !job.tools.is_empty() {
        spec.keep_tools(&job.tools)?;
    }
    if let Some((files, bytes)) = job.data {
        let files = u32::try_from(files).unwrap_or(u32::MAX);
        spec.set_data(DataSpec { files, size: Size { bytes } })?;
    }
    Ok(spec)
}

/// The first point's topology as TOML, for a guest's size.
pub fn first_topology(spec: &ExperimentSpec) -> Result<String, LabError> {
    let points = experiment::points(&spec.sweep);
    let first = points.first().expect("an empty sweep has one point");
    Ok(spec.topology_text_at(first)?)
}

fn adapters(job: &ExperimentJob) -> Result<Rivals, LabError> {
    let mut rivals = Rivals::built_in()?;
    if let Some(directory) = &job.rivals {
        rivals.add_dir(directory)?;
    }
    if let Some(haul) = &job.haul {
        rivals.set_program("haul", haul.clone());
    }
    Ok(rivals)
}

/// An engine without a network, for experiments on one machine.
const LOOPBACK: &str = "loopback";

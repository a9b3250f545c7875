//! Runs an experiment. Repetitions are the outer loop: a machine that slows down hits all tools alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::attempt::Attempt;
use super::commands::{command_line, run_setup};
use super::data::{self, DataSet};
use super::error::{ExperimentError, file, wrong};
use super::identity::Identity;
use super::matrix::{self, Point};
use super::rival::{Check, RivalSpec, ServerSpec};
use super::rivals::{MissingTool, Rivals};
use super::sample::{SAMPLES, Sample, SampleFile};
use super::spec::{DataSpec, ExperimentSpec, ToolSpec};
use super::testbed::{Testbed, TestbedFactory};
use crate::limits;
use crate::shape::{Chance, Purpose};

/// Directories and options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// `results`; a run gets `<experiment>/<date>-<host>` below it.
    pub results: PathBuf,
    /// Continues the run in this directory.
    pub resume: Option<PathBuf>,
    /// The directory for data, copies and servers; other users must reach it, so not below `/root`.
    pub work: PathBuf,
    /// True kills the tool and ends the run.
    pub cancelled: Arc<AtomicBool>,
}

impl ExperimentSpec {
    /// Sets the repetitions. Fails outside 1 to [`limits::MAX_REPEAT`].
    pub fn set_repeat(&mut self, repeat: u32) -> Result<(), ExperimentError> {
        if !(1..=limits::MAX_REPEAT).contains(&repeat) {
            return Err(wrong("repeat", format!("must be 1 to {}, not {repeat}", limits::MAX_REPEAT)));
        }
        self.repeat = repeat;
        Ok(())
    }

    /// Sets the data, for a quick look. Fails for none, or above the limits.
    pub fn set_data(&mut self, data: DataSpec) -> Result<(), ExperimentError> {
        data.check("data")?;
        self.data = data;
        Ok(())
    }

    /// Keeps tools with these labels or adapters. Fails if there is none.
    pub fn keep_tools(&mut self, names: &[String]) -> Result<(), ExperimentError> {
        for name in names {
            if !self.tools.iter().any(|tool| tool.label() == name || tool.rival == *name) {
                let known: Vec<&str> = self.tools.iter().map(ToolSpec::label).collect();
                return Err(wrong(format!("tool {name:?}"), format!("{} compares {}", self.name, known.join(", "))));
            }
        }
        self.tools.retain(|tool| names.iter().any(|name| tool.label() == name || tool.rival == *name));
        Ok(())
    }
}

/// Events for a progress display.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// A tool takes no part.
    Missing(&'a MissingTool),
    /// All is ready.
    Started {
        /// The directory of results.
        dir: &'a Path,
        /// All measurements.
        samples: usize,
        /// Measurements of an earlier run.
        present: usize,
    },
    /// A lab is being set up.
    Point(&'a Point),
    /// A tool starts.
    Running {
        /// The tool's label.
        tool: &'a str,
        /// The point.
        point: &'a Point,
        /// The repetition, from 0.
        repetition: u32,
    },
    /// The tool ended.
    Finished(&'a Sample),
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The directory of results.
    pub dir: PathBuf,
    /// All samples, earlier ones too.
    pub samples: Vec<Sample>,
    /// Tools that took no part.
    pub missing: Vec<MissingTool>,
    /// The user ended it; `--continue` goes on.
    pub cancelled: bool,
}

type Entrant<'a> = (&'a ToolSpec, &'a RivalSpec, Option<&'a ServerSpec>);

/// Runs an experiment or its rest. Failures of tools are samples, not errors.
pub fn run(
    spec: &ExperimentSpec,
    rivals: &Rivals,
    options: &RunOptions,
    factory: &mut TestbedFactory<'_>,
    progress: &mut dyn FnMut(&RunEvent<'_>),
) -> Result<Outcome, ExperimentError> {
    let (entrants, missing) = entrants(spec, rivals);
    for tool in &missing {
        progress(&RunEvent::Missing(tool));
    }
    if entrants.is_empty() {
        let lines: Vec<String> = missing.iter().map(|tool| format!("  {}: {}", tool.label, tool.why)).collect();
        return Err(ExperimentError::NoTools { experiment: spec.name.clone(), missing: lines.join("\n") });
    }
    // Tools run in directories of their own.
    let work = std::path::absolute(&options.work).map_err(file("find", &options.work))?;
    fs::create_dir_all(&work).map_err(file("make", &work))?;
    let copied = entrants.iter().any(|(_, rival, _)| rival.check != Check::None);
    data::check_room(&work, &spec.data, copied)?;
    let dir = results_dir(spec, options)?;
    let (mut out, mut samples) = SampleFile::open(&dir.join(SAMPLES))?;
    let data = DataSet::make(&work, &spec.data, spec.seed)?;
    let points = matrix::points(&spec.sweep);
    let repetitions = spec.warm_up + spec.repeat;
    let total = points.len() * entrants.len() * repetitions as usize;
    progress(&RunEvent::Started { dir: &dir, samples: total, present: samples.len() });

    let cancelled = || options.cancelled.load(Ordering::Relaxed);
    for (number, point) in points.iter().enumerate() {
        let todo = order(spec, &entrants, number as u64, repetitions);
        let todo: Vec<(Entrant<'_>, u32)> = todo
            .into_iter()
            .filter(|((tool, ..), repetition)| {
                !samples.iter().any(|sample| sample.key() == (point, tool.label(), *repetition))
            })
            .collect();
        if todo.is_empty() {
            continue;
        }
        if cancelled() {
            return Ok(Outcome { dir, samples, missing, cancelled: true });
        }
        let topology = spec.topology_at(point)?;
        // Each tool meets the network's events from the first on.
        let is_one_for_each = !topology.events.is_empty();
        let mut standing = None;
        for ((tool, rival, server), repetition) in todo {
            if cancelled() {
                return Ok(Outcome { dir, samples, missing, cancelled: true });
            }
            if is_one_for_each {
                // The old network frees its names.
                standing = None;
            }
            let (testbed, identity) = match &standing {
                Some(standing) => standing,
                None => {
                    progress(&RunEvent::Point(point));
                    let made = match factory(&topology) {
                        Ok(testbed) => stand_up(spec, point, testbed, rivals, &dir)?,
                        Err(_) if cancelled() => return Ok(Outcome { dir, samples, missing, cancelled: true }),
                        Err(source) => {
                            return Err(ExperimentError::Testbed { point: point.to_string(), source });
                        }
                    };
                    standing.insert(made)
                }
            };
            progress(&RunEvent::Running { tool: tool.label(), point, repetition });
            let attempt = Attempt {
                spec,
                rivals,
                rival,
                server,
                tool,
                point,
                repetition,
                data: &data,
                testbed: testbed.as_ref(),
                identity,
                work: work.join(format!("run-{}", std::process::id())),
            };
            let Some(sample) = attempt.measure(&cancelled) else {
                return Ok(Outcome { dir, samples, missing, cancelled: true });
            };
            out.append(&sample)?;
            progress(&RunEvent::Finished(&sample));
            samples.push(sample);
        }
    }
    Ok(Outcome { dir, samples, missing, cancelled: false })
}

fn entrants<'a>(spec: &'a ExperimentSpec, rivals: &'a Rivals) -> (Vec<Entrant<'a>>, Vec<MissingTool>) {
    let mut entrants = Vec::new();
    let mut missing = Vec::new();
    for tool in &spec.tools {
        match rivals.of_tool(tool, spec.data.files) {
            Ok((rival, server)) => entrants.push((tool, rival, server)),
            Err(tool) => missing.push(tool),
        }
    }
    (entrants, missing)
}

/// The seed decides the order.
fn order<'a>(spec: &ExperimentSpec, entrants: &[Entrant<'a>], point: u64, repetitions: u32) -> Vec<(Entrant<'a>, u32)> {
    let mut chance = Chance::new(spec.seed.wrapping_add(point), Purpose::Order);
    let mut order = Vec::new();
    for repetition in 0..repetitions {
        let mut round: Vec<Entrant<'a>> = entrants.to_vec();
        // Fisher and Yates.
        for last in (1..round.len()).rev() {
            round.swap(last, chance.up_to(last as u64) as usize);
        }
        order.extend(round.into_iter().map(|entrant| (entrant, repetition)));
    }
    order
}

fn stand_up<'a>(
    spec: &ExperimentSpec,
    point: &Point,
    testbed: Box<dyn Testbed + 'a>,
    rivals: &Rivals,
    dir: &Path,
) -> Result<(Box<dyn Testbed + 'a>, Identity), ExperimentError> {
    let identity = Identity::ask(testbed.as_ref(), &spec.to)
        .map_err(|source| ExperimentError::Testbed { point: point.to_string(), source: source.into() })?;
    set_up(spec, point, testbed.as_ref(), rivals, dir)?;
    Ok((testbed, identity))
}

fn set_up(
    spec: &ExperimentSpec,
    point: &Point,
    testbed: &dyn Testbed,
    rivals: &Rivals,
    dir: &Path,
) -> Result<(), ExperimentError> {
    let log = dir.join("setup.log");
    for setup in &spec.setup {
        let run = || -> Result<(), String> {
            let words = point.scope().fill_command(&setup.command, &[]).map_err(|error| error.to_string())?;
            let command: Command = command_line(&words, &[], rivals)?;
            run_setup(testbed, &setup.host, command, &log)
        };
        run().map_err(|why| ExperimentError::Setup {
            host: setup.host.clone(),
            command: setup.command.join(" "),
            why,
        })?;
    }
    Ok(())
}

fn results_dir(spec: &ExperimentSpec, options: &RunOptions) -> Result<PathBuf, ExperimentError> {
    let essence = essence(spec);
    if let Some(dir) = &options.resume {
        let path = dir.join(ESSENCE);
        let earlier = fs::read_to_string(&path).map_err(file("read", &path))?;
        return match earlier == essence {
            true => Ok(dir.clone()),
            false => Err(ExperimentError::Changed { experiment: spec.name.clone(), dir: dir.clone() }),
        };
    }
    let parent = options.results.join(&spec.name);
    fs::create_dir_all(&parent).map_err(file("make", &parent))?;
    let base = format!("{}-{}", date(SystemTime::now()), host_name());
    for number in 1..=limits::MAX_RUNS_PER_DAY {
        let dir = match number {
            1 => parent.join(&base),
            _ => parent.join(format!("{base}-{number}")),
        };
        match fs::create_dir(&dir) {
            Ok(()) => {
                let path = dir.join(ESSENCE);
                fs::write(&path, &essence).map_err(file("write", &path))?;
                return Ok(dir);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(file("make", &dir)(error)),
        }
    }
    Err(wrong(parent.display().to_string(), "it has too many runs of today: move some away"))
}

/// The text that identifies an experiment, without tools, repetitions and plots.
fn essence(spec: &ExperimentSpec) -> String {
    let sweep: BTreeMap<&String, Vec<&str>> =
        spec.sweep.iter().map(|(name, values)| (name, values.iter().map(|value| value.0.as_str()).collect())).collect();
    let setup: Vec<(&str, String)> =
        spec.setup.iter().map(|setup| (setup.host.as_str(), setup.command.join(" "))).collect();
    format!(
        "experiment {}\nfrom {} to {}\nseed {}\nwarm-up {}\ntimeout {}\n{}data {} x {} bytes\nsweep {sweep:?}\nsetup \
         {setup:?}\ntopology\n{}\n",
        spec.name,
        spec.from,
        spec.to,
        spec.seed,
        spec.warm_up,
        spec.timeout,
        if spec.lead.0.is_zero() { String::new() } else { format!("lead {}\n", spec.lead) },
        spec.data.files,
        spec.data.size.bytes,
        spec.topology_text(),
    )
}

const ESSENCE: &str = "experiment.txt";

/// `2026-11-21`, in UTC.
pub(super) fn date(time: SystemTime) -> String {
    let days = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    // Howard Hinnant's days-to-civil: eras of 400 years begin on 1 March.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match name.is_empty() {
        true => "host".into(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let on = |seconds: u64| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(
            (on(0), on(951_782_400), on(1_795_219_200)),
            ("1970-01-01".into(), "2000-02-29".into(), "2026-11-21".into())
        );
    }
}

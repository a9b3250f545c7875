//! From samples to numbers: median, spread, and figures of others.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::intervals::{Course, Interval, longest_pause_s};
use super::matrix::{self, Point};
use super::rivals::MissingTool;
use super::sample::{ClassChange, Sample};
use super::spec::{ExperimentSpec, FigureSpec, Metric, ToolSpec};

/// All numbers of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The experiment's name.
    pub experiment: String,
    /// Engines; a continued run may have several.
    pub engines: Vec<String>,
    /// Point by point, with tools in the file's order.
    pub rows: Vec<Row>,
    /// Tools that took no part.
    pub missing: Vec<MissingTool>,
}

/// One tool at one point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Values of the swept parameters.
    pub point: Point,
    /// The tool's label.
    pub tool: String,
    /// Seconds of the whole command; `None` without a valid sample.
    pub seconds: Option<Spread>,
    /// Mbit/s of payload.
    pub rate_mbit_per_s: Option<Spread>,
    /// Processor seconds of both sides for each gigabyte.
    pub cpu_s_per_gb: Option<Spread>,
    /// The copies' course, if asked for; see [`Course`].
    pub ramp_s: Option<Spread>,
    /// Mbit/s at the interface, between ramp and end.
    pub steady_mbit_per_s: Option<Spread>,
    /// Coefficient of variation of those intervals.
    pub variation: Option<Spread>,
    /// Their last quarter's rate by that of all.
    pub last_quarter: Option<Spread>,
    /// Seconds without data mid-copy, see [`longest_pause_s`].
    pub longest_pause_s: Option<Spread>,
    /// Mbit/s of others' TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_mbit_per_s: Option<Spread>,
    /// Percent of the source host's segments sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_again_percent: Option<Spread>,
    /// MB sent with a mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked_mb: Option<Spread>,
    /// Intervals of the copy with the median rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Changes of service class in that copy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_changes: Vec<ClassChange>,
    /// Invalid samples, without warm-ups.
    pub invalid: usize,
    /// Why samples are invalid, each reason once.
    pub reasons: Vec<String>,
    /// Somebody else's rate, in Mbit/s.
    pub elsewhere_mbit_per_s: Option<f64>,
    /// Somebody else's seconds.
    pub elsewhere_seconds: Option<f64>,
}

/// A median and its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Samples.
    pub n: usize,
    /// The middle value, or the mean of two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[half],
            _ => (values[half - 1] + values[half]) / 2.0,
        };
        Some(Spread { n: values.len(), median, min, max })
    }
}

impl Summary {
    /// Sums up all samples.
    pub fn of(spec: &ExperimentSpec, samples: &[Sample], missing: &[MissingTool]) -> Summary {
        let mut engines: Vec<String> = samples.iter().map(|sample| sample.engine.clone()).collect();
        engines.sort();
        engines.dedup();
        let mut rows = Vec::new();
        for point in matrix::points(&spec.sweep) {
            for tool in spec.tools.iter().map(ToolSpec::label) {
                let mine: Vec<&Sample> = samples
                    .iter()
                    .filter(|sample| sample.point == point && sample.tool == tool && !sample.warm_up)
                    .collect();
                let figure = spec.figures.iter().find(|figure| figure.tool == tool && point.matches(&figure.at));
                // A missing tool gets a row for somebody else's figure.
                if !mine.is_empty() || figure.is_some() {
                    rows.push(Row::of(&point, tool, &mine, figure));
                }
            }
        }
        Summary { experiment: spec.name.clone(), engines, rows, missing: missing.to_vec() }
    }

    /// The table and remarks, as Markdown.
    pub fn markdown(&self, spec: &ExperimentSpec) -> String {
        let mut text = format!("# {}\n\n", spec.title);
        if !spec.paper.is_empty() {
            let _ = writeln!(text, "{}\n", spec.paper.trim());
        }
        let data = match spec.data.files {
            1 => format!("1 file of {}", spec.data.size),
            files => format!("{files} files of {}", spec.data.size),
        };
        let engine = match self.engines.as_slice() {
            [] => "none yet".into(),
            engines => engines.join(", "),
        };
        let _ =
            writeln!(text, "Experiment `{}`, engine {engine}, {data}. Median (min..max) of n samples.\n", spec.name);
        text.push_str(&self.table(spec));
        if let Some(every) = spec.intervals {
            let _ = writeln!(
                text,
                "\nSteady: from the end of the ramp until 99 % had arrived, as the interfaces of {} count it, read every {every}. \
                 Variation: standard deviation of those readings by their mean. Last quarter: its mean by theirs. Pause: the \
                 longest time with next to no data between data.",
                spec.to
            );
        }
        let changed: Vec<String> = self.rows.iter().filter_map(Row::classes).collect();
        if !changed.is_empty() {
            let _ = write!(text, "\nClass, by the second:\n\n{}", changed.concat());
        }
        let strangers: Vec<String> = spec
            .figures
            .iter()
            .filter(|figure| !self.rows.iter().any(|row| row.tool == figure.tool && row.point.matches(&figure.at)))
            .map(|figure| format!("- {}\n", figure_line(figure)))
            .collect();
        if !strangers.is_empty() {
            let _ = write!(text, "\nMeasured elsewhere, and not here:\n\n{}", strangers.concat());
        }
        if !self.missing.is_empty() {
            text.push_str("\nMissing:\n\n");
            for tool in &self.missing {
                let _ = writeln!(text, "- {}: {}", tool.label, tool.why);
            }
        }
        if self.rows.iter().any(|row| row.invalid > 0) {
            text.push_str("\nSamples that do not count:\n\n");
            for row in self.rows.iter().filter(|row| row.invalid > 0) {
                let at = if row.point.values.is_empty() { String::new() } else { format!(" at {}", row.point) };
                let _ = writeln!(text, "- {}{at}: {} ({})", row.tool, row.invalid, row.reasons.join("; "));
            }
        }
        text
    }

    fn table(&self, spec: &ExperimentSpec) -> String {
        let mut head: Vec<String> = spec.sweep.keys().cloned().collect();
        head.extend(["tool", "n", "seconds", "Mbit/s", "cpu-s/GB"].map(str::to_owned));
        if spec.intervals.is_some() {
            head.extend(["ramp s", "steady Mbit/s", "variation", "last quarter", "pause s"].map(str::to_owned));
        }
        let has_others = self.rows.iter().any(|row| row.others_mbit_per_s.is_some());
        if has_others {
            head.push("others Mbit/s".into());
        }
        let has_sent_again = self.rows.iter().any(|row| row.sent_again_percent.is_some());
        if has_sent_again {
            head.push("again %".into());
        }
        let has_marked = self.rows.iter().any(|row| row.marked_mb.is_some());
        if has_marked {
            head.push("marked MB".into());
        }
        head.push("elsewhere".into());
        let mut rows = vec![head];
        for row in &self.rows {
            let mut cells: Vec<String> = row.point.values.values().cloned().collect();
            cells.push(row.tool.clone());
            cells.push(row.seconds.map_or(0, |seconds| seconds.n).to_string());
            cells.push(row.seconds.map_or("-".into(), spread));
            cells.push(row.rate_mbit_per_s.map_or("-".into(), spread));
            cells.push(row.cpu_s_per_gb.map_or("-".into(), |cpu| figures(cpu.median)));
            if spec.intervals.is_some() {
                let course = [row.ramp_s, row.steady_mbit_per_s, row.variation, row.last_quarter, row.longest_pause_s];
                cells.extend(course.map(|value| value.map_or("-".into(), spread)));
            }
            if has_others {
                cells.push(row.others_mbit_per_s.map_or("-".into(), spread));
            }
            if has_sent_again {
                cells.push(row.sent_again_percent.map_or("-".into(), spread));
            }
            if has_marked {
                cells.push(row.marked_mb.map_or("-".into(), spread));
            }
            cells.push(match (row.elsewhere_mbit_per_s, row.elsewhere_seconds) {
                (Some(rate), _) => format!("{} Mbit/s", figures(rate)),
                (None, Some(seconds)) => format!("{} s", figures(seconds)),
                (None, None) => String::new(),
            });
            rows.push(cells);
        }
        align(&rows, spec.sweep.len() + 1)
    }
}

impl Row {
    fn of(point: &Point, tool: &str, samples: &[&Sample], figure: Option<&FigureSpec>) -> Row {
        let valid: Vec<&&Sample> = samples.iter().filter(|sample| sample.valid).collect();
        let spread = |value: &dyn Fn(&Sample) -> Option<f64>| {
            Spread::of(valid.iter().filter_map(|sample| value(sample)).collect())
        };
        let invalid: Vec<&&Sample> = samples.iter().filter(|sample| !sample.valid).collect();
        let mut reasons: Vec<String> = Vec::new();
        for why in invalid.iter().filter_map(|sample| sample.why.as_deref()) {
            let first = why.lines().next().unwrap_or_default().to_owned();
            if !reasons.contains(&first) {
                reasons.push(first);
            }
        }
        let elsewhere_mbit_per_s = figure.and_then(|figure| figure.rate).map(|rate| rate.bits_per_s() as f64 / 1e6);
        let elsewhere_seconds = figure.and_then(|figure| figure.seconds);
        let course =
            |value: &dyn Fn(&Course) -> f64| spread(&|sample| Course::of(&sample.intervals).as_ref().map(value));
        let mut by_rate: Vec<&&&Sample> = valid.iter().filter(|sample| sample.rate_mbit_per_s.is_some()).collect();
        by_rate
            .sort_by(|one, other| one.rate_mbit_per_s.unwrap_or(0.0).total_cmp(&other.rate_mbit_per_s.unwrap_or(0.0)));
        let middle = by_rate.get(by_rate.len() / 2);
        Row {
            point: point.clone(),
            tool: tool.to_owned(),
            ramp_s: course(&|course| course.ramp_s),
            steady_mbit_per_s: course(&|course| course.steady_mbit_per_s),
            variation: course(&|course| course.variation),
            last_quarter: course(&|course| course.last_quarter),
            longest_pause_s: spread(&|sample| longest_pause_s(&sample.intervals)),
            others_mbit_per_s: spread(&|sample| sample.others_mbit_per_s),
            sent_again_percent: spread(&|sample| sample.sent_again.map(|share| share * 100.0)),
            marked_mb: spread(&|sample| sample.marked_mb),
            intervals: middle.map_or_else(Vec::new, |sample| sample.intervals.clone()),
            class_changes: middle.map_or_else(Vec::new, |sample| sample.class_changes.clone()),
            seconds: spread(&|sample| sample.seconds),
            rate_mbit_per_s: spread(&|sample| sample.rate_mbit_per_s),
            cpu_s_per_gb: spread(&|sample| {
                // iperf3 ignores the size of the data, so the rate gives the bytes.
                let gigabytes = sample.rate_mbit_per_s? * sample.seconds? / 8e3;
                Some((sample.cpu_client_s? + sample.cpu_server_s.unwrap_or(0.0)) / gigabytes)
            }),
            invalid: invalid.len(),
            reasons,
            elsewhere_mbit_per_s,
            elsewhere_seconds,
        }
    }

    fn classes(&self) -> Option<String> {
        let changes = self.class_changes.iter().map(|change| format!("{:.1} {}", change.at_s, change.class));
        let changes: Vec<String> = changes.collect();
        let at = if self.point.values.is_empty() { String::new() } else { format!(" at {}", self.point) };
        (!changes.is_empty()).then(|| format!("- {}{at}: {}\n", self.tool, changes.join(", ")))
    }

    /// The numbers of one metric.
    pub fn metric(&self, metric: Metric) -> Option<Spread> {
        match metric {
            Metric::Rate => self.rate_mbit_per_s,
            Metric::Seconds => self.seconds,
            Metric::Cpu => self.cpu_s_per_gb,
        }
    }
}

fn figure_line(figure: &FigureSpec) -> String {
    let at: BTreeMap<String, String> = figure.at.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
    let at = if at.is_empty() { String::new() } else { format!(" at {}", Point { values: at }) };
    match (figure.rate, figure.seconds) {
        (Some(rate), _) => format!("{}{at}: {rate}", figure.tool),
        (None, seconds) => format!("{}{at}: {} s", figure.tool, figures(seconds.unwrap_or_default())),
    }
}

/// Three significant digits: `7.62`, `63.1`, `558`.
pub(super) fn figures(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

fn spread(spread: Spread) -> String {
    match spread.n {
        1 => figures(spread.median),
        _ => format!("{} ({}..{})", figures(spread.median), figures(spread.min), figures(spread.max)),
    }
}

fn align(rows: &[Vec<String>], left_columns: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3))
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text.push('|');
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            match column < left_columns {
                true => drop(write!(text, " {cell:<width$} |")),
                false => drop(write!(text, " {cell:>width$} |")),
            }
        }
        text.push('\n');
        if number == 0 {
            text.push('|');
            for (column, &width) in widths.iter().enumerate() {
                match column < left_columns {
                    true => drop(write!(text, "-{}-|", "-".repeat(width))),
                    false => drop(write!(text, "-{}:|", "-".repeat(width))),
                }
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_middle_and_its_ends() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![3.0, 1.0, 9.0]), Some(Spread { n: 3, median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(vec![4.0, 2.0]).unwrap().median, 3.0);
    }

    #[test]
    fn numbers_have_three_figures() {
        assert_eq!([figures(557.9), figures(63.14), figures(7.624), figures(0.02)], ["558", "63.1", "7.62", "0.02"]);
    }
}

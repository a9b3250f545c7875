//! Writes `summary.md`, `summary.json`, `intervals.tsv` and the plots beside the samples.

use std::path::{Path, PathBuf};

use haul_sys::whole_file::{self, Mode};

use super::error::{ExperimentError, file};
use super::intervals;
use super::plot;
use super::rivals::MissingTool;
use super::run::date;
use super::sample::Sample;
use super::spec::ExperimentSpec;
use super::summary::Summary;

/// The written files.
#[derive(Debug)]
pub struct Report {
    /// The numbers.
    pub summary: Summary,
    /// The table and remarks, also for the terminal.
    pub markdown: String,
    /// Plots, as SVG and PNG.
    pub plots: Vec<PathBuf>,
}

/// Sums up and draws, also an incomplete run.
pub fn report(
    spec: &ExperimentSpec,
    samples: &[Sample],
    missing: &[MissingTool],
    dir: &Path,
) -> Result<Report, ExperimentError> {
    let summary = Summary::of(spec, samples, missing);
    let markdown = summary.markdown(spec);
    let newest = samples.iter().map(|sample| sample.unix_s).max().unwrap_or_default();
    let date = date(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(newest));
    let mut plots = Vec::new();
    let mut page = markdown.clone();
    for (number, wanted) in spec.plots.iter().enumerate() {
        let drawn = plot::draw(spec, wanted, &summary, &date, &dir.join(format!("plot-{}", number + 1)))?;
        if !drawn.is_empty() {
            page.push_str(&format!("\n![{}](plot-{}.svg)\n", wanted.title, number + 1));
        }
        plots.extend(drawn);
    }
    if spec.intervals.is_some() {
        let path = dir.join("intervals.tsv");
        let copies = samples.iter().map(|sample| {
            let at = if sample.point.values.is_empty() { String::new() } else { format!(" {}", sample.point) };
            (format!("{}{at} #{}", sample.tool, sample.repetition), &sample.intervals[..])
        });
        whole_file::write(&path, intervals::table(copies).as_bytes(), Mode::AsBefore).map_err(file("write", &path))?;
    }
    let path = dir.join("summary.md");
    whole_file::write(&path, page.as_bytes(), Mode::AsBefore).map_err(file("write", &path))?;
    let path = dir.join("summary.json");
    let mut json = serde_json::to_string_pretty(&summary).expect("a summary has only texts and finite numbers");
    json.push('\n');
    whole_file::write(&path, json.as_bytes(), Mode::AsBefore).map_err(file("write", &path))?;
    Ok(Report { summary, markdown, plots })
}

//! Calibrates a table of rate x delay x loss.
//!
//! Measuring a lab again with the same seed removes only errors of a busy machine, not a loss that is off by chance.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::{Figure, Row, Table};
use crate::request::{CalibrateJob, LabJob};

/// All labs of one engine.
#[derive(Debug)]
pub struct Grid {
    /// The engine.
    pub engine: String,
    /// One cell for each lab.
    pub cells: Vec<GridCell>,
    /// True if the user ended it early.
    pub interrupted: bool,
}

/// The last measurement of one lab.
#[derive(Debug, Serialize, Deserialize)]
pub struct GridCell {
    /// The engine.
    pub engine: String,
    /// Rate, round trip and loss, as asked for.
    pub asked: Vec<String>,
    /// The number of measurements.
    pub measured: u32,
    /// Whether the measured values are those asked for.
    pub holds: bool,
    /// The result.
    #[serde(flatten)]
    pub table: Table,
}

impl Grid {
    /// Measures each lab at most [`CalibrateJob::tries`] times. After an interruption, errors of `measure` mean nothing.
    pub fn run<E>(
        engine: &str,
        job: &CalibrateJob,
        interrupted: &AtomicBool,
        measure: &mut dyn FnMut(&LabJob) -> Result<Table, E>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Grid, E> {
        let mut grid = Grid { engine: engine.to_owned(), cells: Vec::new(), interrupted: false };
        for (number, lab) in job.labs.iter().enumerate() {
            let mut measured = 0;
            let table = loop {
                if interrupted.load(Ordering::Relaxed) {
                    grid.interrupted = true;
                    return Ok(grid);
                }
                let table = match measure(lab) {
                    Err(_) if interrupted.load(Ordering::Relaxed) => continue,
                    table => table?,
                };
                measured += 1;
                if job.labs.len() > 1 || !table.holds() {
                    let state = if table.holds() { "ok".to_owned() } else { table.complaints().join("; ") };
                    tell(&format!("{} of {}, {}: {state}", number + 1, job.labs.len(), lab.asked.join(" x ")));
                }
                if table.holds() || measured >= job.tries {
                    break table;
                }
            };
            let holds = table.holds();
            grid.cells.push(GridCell { engine: engine.to_owned(), asked: lab.asked.clone(), measured, holds, table });
        }
        Ok(grid)
    }

    /// Reads the output of [`Grid::json`].
    pub fn from_json(engine: &str, lines: &str, interrupted: bool) -> Result<Grid, serde_json::Error> {
        let cells = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Grid { engine: engine.to_owned(), cells, interrupted })
    }

    /// Whether all labs have the values asked for.
    pub fn holds(&self) -> bool {
        !self.interrupted && self.cells.iter().all(|cell| cell.holds)
    }

    /// One line of JSON for each lab.
    pub fn json(&self) -> String {
        let line = |cell: &GridCell| {
            let line = serde_json::to_string(cell).expect("a table has only texts and numbers");
            format!("{line}\n")
        };
        self.cells.iter().map(line).collect()
    }

    /// Markdown, with a verdict as the last line.
    pub fn text(&self) -> String {
        if let [cell] = &self.cells[..]
            && !self.interrupted
        {
            return cell.table.text();
        }
        let mut text = format!("Engine {}: asked, measured, off by; the worse of both directions.\n\n", self.engine);
        text.push_str(&head());
        for cell in &self.cells {
            let figures: Vec<String> =
                Figure::ALL.iter().map(|figure| cell.table.worst(*figure).map_or("-".into(), in_a_cell)).collect();
            let state = match (cell.holds, cell.measured) {
                (true, 1) => "ok".to_owned(),
                (true, times) => format!("ok, measured {times} times"),
                (false, times) => format!("**invalid**, measured {times} times"),
            };
            let _ = writeln!(text, "| {} | {} | {state} |", cell.asked.join(" x "), figures.join(" | "));
        }
        text.push('\n');
        for cell in self.cells.iter().filter(|cell| !cell.holds) {
            let _ = writeln!(text, "- {}: {}", cell.asked.join(" x "), cell.table.complaints().join("; "));
        }
        if !self.cells.iter().all(|cell| cell.holds) {
            text.push('\n');
        }
        let holding = self.cells.iter().filter(|cell| cell.holds).count();
        let verdict = match (self.interrupted, self.holds()) {
            (true, _) => "interrupted",
            (false, true) => "calibrated",
            (false, false) => "invalid",
        };
        let _ = writeln!(text, "{verdict}: {holding} of {} labs are what was asked for", self.cells.len());
        text
    }
}

pub(super) fn head() -> String {
    let words: Vec<&str> = Figure::ALL.iter().map(|figure| figure.word()).collect();
    format!("| asked | {} | |\n|---|{}---|\n", words.join(" | "), "---|".repeat(words.len()))
}

fn in_a_cell(row: &Row) -> String {
    let (asked, measured) = (row.show(row.asked), row.show(row.measured));
    let text = match (row.figure, row.interval()) {
        (Figure::Fairness, _) => measured,
        (_, Some([least, most])) => format!("{asked}, {measured} ({} to {})", row.show(least), row.show(most)),
        (_, None) => format!("{asked}, {measured}, {}", row.off()),
    };
    if row.holds { text } else { format!("**{text}**") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(measured: f64) -> Table {
        let row = Row::new("wan client to server", Figure::Rate, [1e9, measured, 1e7], [1000, 900]);
        Table { rows: vec![row], fault: None }
    }

    fn job(tries: u32) -> CalibrateJob {
        let lab = |rate: &str| LabJob { asked: vec![rate.to_owned(), "50 ms".into()], topology: rate.to_owned() };
        CalibrateJob { labs: vec![lab("10 Mbit/s"), lab("1 Gbit/s")], tries }
    }

    fn run(job: &CalibrateJob) -> (Grid, Vec<String>) {
        let mut rates = vec![0.9e9, 0.95e9, 1e9];
        let mut told = Vec::new();
        let mut measure = |lab: &LabJob| -> Result<Table, String> {
            match lab.topology.as_str() {
                "1 Gbit/s" => Ok(table(1.001e9)),
                _ => Ok(table(rates.remove(0))),
            }
        };
        let grid =
            Grid::run("emulated", job, &AtomicBool::new(false), &mut measure, &mut |line| told.push(line.into()));
        (grid.unwrap(), told)
    }

    #[test]
    fn a_lab_that_is_off_is_measured_again() {
        let job = job(3);
        let (grid, told) = run(&job);
        assert!(grid.holds());
        insta::assert_snapshot!(grid.text(), @r"
        Engine emulated: asked, measured, off by; the worse of both directions.

        | asked | delay | rate | loss | queue | fairness | |
        |---|---|---|---|---|---|---|
        | 10 Mbit/s x 50 ms | - | 1 Gbit/s, 1 Gbit/s, +0.00 % | - | - | - | ok, measured 3 times |
        | 1 Gbit/s x 50 ms | - | 1 Gbit/s, 1.001 Gbit/s, +0.10 % | - | - | - | ok |

        calibrated: 2 of 2 labs are what was asked for
        ");
        insta::assert_snapshot!(told.join("\n"), @r"
        1 of 2, 10 Mbit/s x 50 ms: wan client to server: rate 900 Mbit/s instead of 1 Gbit/s (-10.00 %)
        1 of 2, 10 Mbit/s x 50 ms: wan client to server: rate 950 Mbit/s instead of 1 Gbit/s (-5.00 %)
        1 of 2, 10 Mbit/s x 50 ms: ok
        2 of 2, 1 Gbit/s x 50 ms: ok
        ");
    }

    #[test]
    fn and_stays_invalid_when_it_is_off_each_time() {
        let job = job(2);
        let (grid, _) = run(&job);
        assert!(!grid.holds());
        insta::assert_snapshot!(grid.text(), @r"
        Engine emulated: asked, measured, off by; the worse of both directions.

        | asked | delay | rate | loss | queue | fairness | |
        |---|---|---|---|---|---|---|
        | 10 Mbit/s x 50 ms | - | **1 Gbit/s, 950 Mbit/s, -5.00 %** | - | - | - | **invalid**, measured 2 times |
        | 1 Gbit/s x 50 ms | - | 1 Gbit/s, 1.001 Gbit/s, +0.10 % | - | - | - | ok |

        - 10 Mbit/s x 50 ms: wan client to server: rate 950 Mbit/s instead of 1 Gbit/s (-5.00 %)

        invalid: 1 of 2 labs are what was asked for
        ");
        let line: serde_json::Value = serde_json::from_str(grid.json().lines().next().unwrap()).unwrap();
        assert_eq!(line["holds"], false);
        assert_eq!(line["rows"][0]["measured"], 0.95e9);
        assert_eq!(Grid::from_json("emulated", &grid.json(), false).unwrap().text(), grid.text());
    }

    #[test]
    fn an_interrupted_grid_says_what_it_has() {
        let job = job(1);
        let grid = Grid::run("emulated", &job, &AtomicBool::new(true), &mut |_| Err("not asked"), &mut |_| {}).unwrap();
        assert!(grid.interrupted && !grid.holds());
        assert!(grid.text().ends_with("interrupted: 0 of 0 labs are what was asked for\n"), "{}", grid.text());
    }
}

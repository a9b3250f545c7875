//! Compares two engines, lab by lab.
//!
//! Both measure the same labs with the same probes.

use std::fmt::Write as _;

use serde::Serialize;

use super::grid::head;
use super::{Figure, Grid, GridCell, Row};

/// Two engines side by side.
#[derive(Debug)]
pub struct Comparison {
    engines: [String; 2],
    labs: Vec<ComparedLab>,
    whole: bool,
}

#[derive(Debug, Serialize)]
struct ComparedLab {
    compared: [String; 2],
    asked: Vec<String>,
    /// Both engines met their own values and differ within the allowance.
    holds: bool,
    rows: Vec<ComparedRow>,
}

#[derive(Debug, Serialize)]
struct ComparedRow {
    link: String,
    figure: Figure,
    one: f64,
    other: f64,
    allowed: f64,
    holds: bool,
}

impl Comparison {
    /// Compares lab by lab.
    pub fn of(one: &Grid, other: &Grid) -> Comparison {
        let engines = [one.engine.clone(), other.engine.clone()];
        let labs = one.cells.iter().zip(&other.cells);
        let labs = labs.map(|(one, other)| ComparedLab::of(engines.clone(), one, other)).collect();
        Comparison { engines, labs, whole: one.cells.len() == other.cells.len() }
    }

    /// Whether the engines agree on all labs.
    pub fn holds(&self) -> bool {
        self.whole && self.labs.iter().all(|lab| lab.holds)
    }

    /// One line of JSON for each lab.
    pub fn json(&self) -> String {
        let line = |lab: &ComparedLab| {
            let line = serde_json::to_string(lab).expect("a comparison has only texts and numbers");
            format!("{line}\n")
        };
        self.labs.iter().map(line).collect()
    }

    /// Markdown: a line for each lab, and the verdict.
    pub fn text(&self) -> String {
        let [one, other] = &self.engines;
        let mut text =
            format!("Engines {one} and {other}: one, the other, differing by; the worse of both directions.\n\n");
        text.push_str(&head());
        for lab in &self.labs {
            let cells: Vec<String> = Figure::ALL.iter().map(|figure| lab.in_a_cell(*figure)).collect();
            let state = if lab.holds { "ok" } else { "**differ**" };
            let _ = writeln!(text, "| {} | {} | {state} |", lab.asked.join(" x "), cells.join(" | "));
        }
        let agreeing = self.labs.iter().filter(|lab| lab.holds).count();
        let verdict = if self.holds() { "agree" } else { "differ" };
        let _ = writeln!(text, "\n{one} and {other} {verdict}: {agreeing} of {} labs are alike", self.labs.len());
        text
    }
}

impl ComparedLab {
    fn of(compared: [String; 2], one: &GridCell, other: &GridCell) -> ComparedLab {
        let partner = |row: &Row| other.table.rows.iter().find(|its| its.link == row.link && its.figure == row.figure);
        let pairs = one.table.rows.iter().filter_map(|row| Some((row, partner(row)?)));
        let rows: Vec<ComparedRow> = pairs.map(|(row, its)| ComparedRow::of(row, its)).collect();
        // A lab without a comparable figure does not count as equal.
        let alike = !rows.is_empty() && rows.iter().all(|row| row.holds);
        let holds = alike && one.holds && other.holds;
        ComparedLab { compared, asked: one.asked.clone(), holds, rows }
    }

    fn in_a_cell(&self, figure: Figure) -> String {
        let rows = self.rows.iter().filter(|row| row.figure == figure);
        let Some(row) = rows.max_by(|one, other| one.share_of_allowed().total_cmp(&other.share_of_allowed())) else {
            return "-".to_owned();
        };
        let off = figure.off([row.one, row.other, row.allowed], "");
        let text = format!("{}, {}, {off}", figure.show(row.one), figure.show(row.other));
        if row.holds { text } else { format!("**{text}**") }
    }
}

impl ComparedRow {
    fn of(one: &Row, other: &Row) -> ComparedRow {
        let allowed = match one.figure {
            // Losses are independent, so their variances add up.
            Figure::Loss => one.allowed.hypot(other.allowed),
            _ => one.allowed.max(other.allowed),
        };
        let holds = (other.measured - one.measured).abs() <= allowed;
        ComparedRow {
            link: one.link.clone(),
            figure: one.figure,
            one: one.measured,
            other: other.measured,
            allowed,
            holds,
        }
    }

    fn share_of_allowed(&self) -> f64 {
        (self.other - self.one).abs() / self.allowed.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    fn grid(engine: &str, rows: &[(Figure, [f64; 3])]) -> Grid {
        let rows =
            rows.iter().map(|(figure, numbers)| Row::new("wan client to server", *figure, *numbers, [2000, 1980]));
        let table = Table { rows: rows.collect(), fault: None };
        let cell = GridCell {
            engine: engine.to_owned(),
            asked: vec!["20 Mbit/s".into(), "40 ms".into()],
            measured: 1,
            holds: table.holds(),
            table,
        };
        Grid { engine: engine.to_owned(), cells: vec![cell], interrupted: false }
    }

    const LOSS: [f64; 3] = [0.01, 0.012, 0.006];

    #[test]
    fn engines_that_agree_stand_in_a_table() {
        let ours = grid("emulated", &[(Figure::Delay, [0.020, 0.0201, 2e-4]), (Figure::Loss, LOSS)]);
        let netem = grid("uml", &[(Figure::Delay, [0.020, 0.020_15, 2e-4]), (Figure::Loss, [0.01, 0.009, 0.006])]);
        let compared = Comparison::of(&ours, &netem);
        assert!(compared.holds());
        insta::assert_snapshot!(compared.text(), @r"
        Engines emulated and uml: one, the other, differing by; the worse of both directions.

        | asked | delay | rate | loss | queue | fairness | |
        |---|---|---|---|---|---|---|
        | 20 Mbit/s x 40 ms | 20.1 ms, 20.15 ms, +0.050 ms | - | 1.20e-2, 9.00e-3, -1.1 sigma | - | - | ok |

        emulated and uml agree: 1 of 1 labs are alike
        ");
    }

    #[test]
    fn each_may_be_near_enough_to_what_was_asked_and_yet_far_from_the_other() {
        let ours = grid("emulated", &[(Figure::Rate, [20e6, 19.85e6, 0.2e6])]);
        let netem = grid("uml", &[(Figure::Rate, [20e6, 20.15e6, 0.2e6])]);
        assert!(ours.holds() && netem.holds());
        let compared = Comparison::of(&ours, &netem);
        assert!(!compared.holds());
        assert!(compared.text().contains("**19.85 Mbit/s, 20.15 Mbit/s, +1.51 %**"), "{}", compared.text());
        assert!(compared.json().contains(r#""compared":["emulated","uml"]"#), "{}", compared.json());
    }

    #[test]
    fn what_was_not_measured_is_not_alike() {
        let ours = grid("emulated", &[(Figure::Loss, LOSS)]);
        let mut netem = grid("uml", &[]);
        assert!(!Comparison::of(&ours, &netem).holds());
        netem.cells.clear();
        assert!(!Comparison::of(&ours, &netem).holds());
        let mut off = grid("uml", &[(Figure::Loss, LOSS)]);
        assert!(Comparison::of(&ours, &off).holds());
        off.cells[0].holds = false;
        assert!(!Comparison::of(&ours, &off).holds(), "an invalid lab is like nothing");
    }
}

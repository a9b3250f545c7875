//! The result of a calibration, by figure and direction.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Rate, Size, Time};

/// The result of one lab.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// One row for each figure of each direction.
    pub rows: Vec<Row>,
    /// Why the result is invalid.
    pub fault: Option<String>,
}

/// One figure of one direction, in the unit of [`Figure`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The link, and its hosts in the direction of the packets.
    pub link: String,
    /// The measured figure.
    pub figure: Figure,
    /// The value of the topology.
    pub asked: f64,
    /// The measured value.
    pub measured: f64,
    /// The allowed difference.
    pub allowed: f64,
    /// Whether the difference is allowed.
    pub holds: bool,
    /// Probes sent.
    pub packets: u64,
}

/// The measured quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Median one-way delay of single packets in seconds (uml: [`super::Effort::UML`]).
    Delay,
    /// Bits per second on the wire in a flood.
    Rate,
    /// Share of packets.
    Loss,
    /// The most bytes that wait.
    Queue,
    /// Jain's index of equal floods: 1 if all get the same.
    Fairness,
}

impl Row {
    /// Holds if the difference is allowed and any probe arrived.
    pub(super) fn new(link: &str, figure: Figure, [asked, measured, allowed]: [f64; 3], packets: [u64; 2]) -> Row {
        let [sent, received] = packets;
        let holds = received > 0 && (measured - asked).abs() <= allowed;
        Row { link: link.to_owned(), figure, asked, measured, allowed, holds, packets: sent }
    }

    pub(super) fn show(&self, value: f64) -> String {
        self.figure.show(value)
    }

    pub(super) fn off(&self) -> String {
        self.figure.off([self.asked, self.measured, self.allowed], &format!(" of {} packets", self.packets))
    }

    /// The interval of true shares for a measured loss (E. B. Wilson, 1927).
    pub(super) fn interval(&self) -> Option<[f64; 2]> {
        if self.figure != Figure::Loss || self.packets == 0 {
            return None;
        }
        let z2 = LOSS_SIGMAS * LOSS_SIGMAS;
        let packets = z2 * self.asked * (1.0 - self.asked) / (self.allowed * self.allowed).max(f64::MIN_POSITIVE);
        let (share, scale) = (self.measured, 1.0 + z2 / packets);
        let middle = share + z2 / (2.0 * packets);
        let half = (z2 * (share * (1.0 - share) / packets + z2 / (4.0 * packets * packets))).sqrt();
        Some([((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)])
    }

    fn share_of_allowed(&self) -> f64 {
        match self.holds {
            true => (self.measured - self.asked).abs() / self.allowed.max(f64::MIN_POSITIVE),
            // Without any probe the values may look close.
            false => f64::INFINITY,
        }
    }
}

impl Figure {
    /// All figures, as columns.
    pub const ALL: [Figure; 5] = [Figure::Delay, Figure::Rate, Figure::Loss, Figure::Queue, Figure::Fairness];

    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Figure::Delay => "delay",
            Figure::Rate => "rate",
            Figure::Loss => "loss",
            Figure::Queue => "queue",
            Figure::Fairness => "fairness",
        }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Figure::Delay => Time(Duration::try_from_secs_f64(value).unwrap_or_default()).to_string(),
            Figure::Rate => Rate::from_bits_per_s(value as u64).map_or("nothing".into(), |rate| rate.to_string()),
            Figure::Loss => format!("{value:.2e}"),
            Figure::Queue => Size { bytes: value as u64 }.to_string(),
            Figure::Fairness => format!("{value:.4}"),
        }
    }

    /// The difference of the first two, in words; the third is allowed. `of` names the whole of a loss.
    pub(super) fn off(self, [one, other, allowed]: [f64; 3], of: &str) -> String {
        let difference = other - one;
        match self {
            Figure::Delay => format!("{:+.3} ms", difference * 1e3),
            Figure::Rate | Figure::Queue => format!("{:+.2} %", difference / one.max(f64::MIN_POSITIVE) * 100.0),
            Figure::Loss => format!("{:+.1} sigma{of}", difference / allowed.max(f64::MIN_POSITIVE) * LOSS_SIGMAS),
            Figure::Fairness => format!("{difference:+.4}"),
        }
    }
}

impl Table {
    /// Whether all figures are near enough, undisturbed.
    pub fn holds(&self) -> bool {
        self.fault.is_none() && self.rows.iter().all(|row| row.holds)
    }

    /// The direction with the larger difference; `None` if not measured.
    pub fn worst(&self, figure: Figure) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.figure == figure);
        rows.max_by(|one, other| one.share_of_allowed().total_cmp(&other.share_of_allowed()))
    }

    /// The errors, one line each.
    pub fn complaints(&self) -> Vec<String> {
        let off = self.rows.iter().filter(|row| !row.holds);
        let lines = off.map(|row| {
            let (asked, measured) = (row.show(row.asked), row.show(row.measured));
            format!("{}: {} {measured} instead of {asked} ({})", row.link, row.figure.word(), row.off())
        });
        self.fault.iter().cloned().chain(lines).collect()
    }

    /// Markdown, with a verdict as the last line.
    pub fn text(&self) -> String {
        let mut text = String::from("| link | figure | asked | measured | off by | |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let (asked, measured) = (row.show(row.asked), row.show(row.measured));
            let holds = if row.holds { "ok" } else { "**off**" };
            let (link, figure, off) = (&row.link, row.figure.word(), row.off());
            let _ = writeln!(text, "| {link} | {figure} | {asked} | {measured} | {off} | {holds} |");
        }
        let verdict = match (&self.fault, self.holds()) {
            (Some(fault), _) => format!("invalid: {fault}"),
            (None, true) => "calibrated: the lab is what was asked for".to_owned(),
            (None, false) => "invalid: the lab is not what was asked for".to_owned(),
        };
        let _ = writeln!(text, "\n{verdict}");
        text
    }
}

/// Allowed standard deviations of a measured loss: 0.3 % of good labs fail.
pub(super) const LOSS_SIGMAS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: Figure, numbers: [f64; 3]) -> Row {
        Row::new("wan client to server", figure, numbers, [20_000, 19_000])
    }

    #[test]
    fn figures_have_their_units_and_the_worse_direction_counts() {
        let rows = vec![
            row(Figure::Delay, [0.114, 0.114_031, 0.0002]),
            row(Figure::Delay, [0.114, 0.113_9, 0.0002]),
            row(Figure::Rate, [1e9, 1.002e9, 1e7]),
            row(Figure::Queue, [28_500_000.0, 28_400_000.0, 1e6]),
            row(Figure::Fairness, [1.0, 0.9999, 0.02]),
        ];
        let table = Table { rows, fault: None };
        assert!(table.holds());
        assert_eq!(table.worst(Figure::Delay).unwrap().off(), "-0.100 ms");
        assert!(table.worst(Figure::Loss).is_none());
        insta::assert_snapshot!(table.text(), @r"
        | link | figure | asked | measured | off by | |
        |---|---|---|---|---|---|
        | wan client to server | delay | 114 ms | 114.031 ms | +0.031 ms | ok |
        | wan client to server | delay | 114 ms | 113.9 ms | -0.100 ms | ok |
        | wan client to server | rate | 1 Gbit/s | 1.002 Gbit/s | +0.20 % | ok |
        | wan client to server | queue | 28.5 MB | 28.4 MB | -0.35 % | ok |
        | wan client to server | fairness | 1.0000 | 0.9999 | -0.0001 | ok |

        calibrated: the lab is what was asked for
        ");
    }

    #[test]
    fn what_is_off_or_was_disturbed_is_not_calibrated() {
        let off = Table { rows: vec![row(Figure::Rate, [1e9, 0.98e9, 1e7])], fault: None };
        assert!(!off.holds());
        assert_eq!(off.complaints(), ["wan client to server: rate 980 Mbit/s instead of 1 Gbit/s (-2.00 %)"]);
        let disturbed = Table { rows: vec![], fault: Some("short of processor time".into()) };
        assert_eq!((disturbed.holds(), disturbed.complaints()), (false, vec!["short of processor time".to_owned()]));
        let silent = Row::new("wan", Figure::Delay, [0.0001, 0.0, 0.0002], [200, 0]);
        assert!(!silent.holds, "nothing came, which is not a short delay");
    }

    #[test]
    fn a_loss_holds_where_its_interval_has_what_was_asked() {
        let packets = 20_000.0f64;
        for lost in 1..60 {
            let (asked, measured) = (1e-3f64, f64::from(lost) / packets);
            let allowed = LOSS_SIGMAS * (asked * (1.0 - asked) / packets).sqrt();
            let row = row(Figure::Loss, [asked, measured, allowed]);
            let [least, most] = row.interval().unwrap();
            assert_eq!(row.holds, (least..=most).contains(&asked), "{lost} lost: {least} to {most}");
        }
    }
}

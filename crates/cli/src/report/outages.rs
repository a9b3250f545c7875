//! Times in which nothing came from the other end.

use std::time::Duration;

use haul_job::{Outage, Outages};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::json::values::seconds;
use crate::text::figures::{counted, duration};
use crate::text::printable::printable;
use crate::text::rows::row;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OutageLines {
    #[serde(default)]
    pub outage_times: Vec<OutageLine>,
    /// The number of later ones.
    #[serde(default)]
    pub outage_times_more: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OutageLine {
    pub began: String,
    pub length_s: f64,
}

pub fn of_outages(outages: &Outages) -> OutageLines {
    let of = |outage: &Outage| OutageLine {
        began: began(outage).map_or_else(String::new, |at| at.to_string()),
        length_s: seconds(Duration::from_micros(outage.us)),
    };
    OutageLines { outage_times: outages.first.iter().map(of).collect(), outage_times_more: outages.more }
}

fn began(outage: &Outage) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(outage.began_us / 1_000).ok()?).ok()
}

pub fn rows(text: &mut String, outages: &OutageLines, zone: &TimeZone) {
    let mut labels = std::iter::once("nothing came").chain(std::iter::repeat(""));
    let mut add = |words: &str| row(text, labels.next().unwrap_or_default(), words);
    for outage in &outages.outage_times {
        let at = match outage.began.parse::<Timestamp>() {
            Ok(at) => at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => printable(&outage.began),
        };
        let long = Duration::try_from_secs_f64(outage.length_s.max(0.0)).unwrap_or_default();
        add(&format!("{at}, for {}", duration(long)));
    }
    if outages.outage_times_more > 0 {
        add(&format!("and {}", counted(outages.outage_times_more.into(), "more time", "more times")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outage_has_its_clock_time_and_its_length() {
        let outage = |s: u64, us| Outage { began_us: s * 1_000_000 + 300_900, us };
        let first = vec![outage(1_700_000_000, 7_250_000), outage(1_700_003_600, 185_000_000)];
        let lines = of_outages(&Outages { first, more: 2 });
        assert_eq!(lines.outage_times[0], OutageLine { began: "2023-11-14T22:13:20.3Z".to_owned(), length_s: 7.25 });
        let mut text = String::new();
        rows(&mut text, &lines, &TimeZone::fixed(jiff::tz::offset(2)));
        insta::assert_snapshot!(text, @r"
          nothing came          2023-11-15 00:13:20, for 7.25 s
                                2023-11-15 01:13:20, for 3 min 05 s
                                and 2 more times
        ");
    }

    #[test]
    fn a_report_without_outages_has_no_row_and_an_edited_one_drives_no_terminal() {
        let mut text = String::new();
        rows(&mut text, &OutageLines::default(), &TimeZone::UTC);
        assert_eq!(text, "");
        let edited = OutageLine { began: "\x1b[2J".to_owned(), length_s: f64::NAN };
        let edited = OutageLines { outage_times: vec![edited], outage_times_more: 0 };
        rows(&mut text, &edited, &TimeZone::UTC);
        assert!(!text.contains('\x1b') && text.contains("0.00 s"), "{text}");
    }
}

//! `haul rate`: shows or changes the rate limit of a detached copy.
//!
//! The wish is a file of the record, which the copy's process reads twice a second. So only the record's user can ask,
//! and later tries keep the wish.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use haul_job::timetable::Timetable;
use haul_job::{Error, Fault};
use serde::Serialize;

use crate::detached::commands::{is_over, one};
use crate::detached::flags::Rate;
use crate::detached::record::{RateSaid, Record};
use crate::json::line::to_line;
use crate::process::{ending, output};
use crate::text::figures::bits;
use crate::text::printable::printable;

pub fn run(typed: &Rate) -> ExitCode {
    match said(typed) {
        Ok(said) => {
            output::say(said);
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn said(typed: &Rate) -> Result<String, Error> {
    let id = typed.id;
    let (record, copy) = one(id)?;
    if is_over(&record) {
        return Err(Error::new(Fault::Usage, format!("copy {id} has ended"))
            .try_this("the same 'haul cp' command with another --rate goes on where it stopped"));
    }
    let (rate, heard) = match &typed.rate {
        None => (copy.rate.unwrap_or_else(none), true),
        Some(asked) => asked_for(&record, id, asked)?,
    };
    if typed.json {
        return Ok(to_line(&Shown { event: "rate", id, heard, rate }));
    }
    Ok(text(id, &rate, typed.rate.is_some(), heard))
}

/// Asks the process, and waits a while. False: it has not answered.
fn asked_for(record: &Record, id: u32, asked: &Timetable) -> Result<(RateSaid, bool), Error> {
    let failed = |why| Error::new(Fault::FileIo, format!("cannot change the rate of copy {id}")).because(why);
    record.ask_rate(asked).map_err(failed)?;
    let until = Instant::now() + ANSWER;
    loop {
        let copy = record.read().map_err(failed)?;
        if let Some(rate) = copy.rate.filter(|rate| rate.asked == asked.text()) {
            return Ok((rate, true));
        }
        if Instant::now() >= until || is_over(record) {
            return Ok((RateSaid { asked: asked.text().to_owned(), limit_bytes_per_s: None }, false));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn none() -> RateSaid {
    RateSaid { asked: String::new(), limit_bytes_per_s: None }
}

fn text(id: u32, rate: &RateSaid, is_new: bool, heard: bool) -> String {
    let asked = printable(rate.asked.as_bytes());
    if !heard {
        return format!(
            "copy {id}: {asked} is noted, and holds when the copy goes on; it has not answered within {} s\n",
            ANSWER.as_secs()
        );
    }
    let limit = rate.limit_bytes_per_s.map_or("no limit".to_owned(), |limit| format!("at most {}", bits(limit as f64)));
    let since = if is_new { " from now on" } else { "" };
    let table =
        if rate.asked.contains(',') || rate.asked.contains(':') { format!(" ({asked})") } else { String::new() };
    format!("copy {id}: {limit}{since}{table}\n")
}

#[derive(Serialize)]
struct Shown {
    event: &'static str,
    id: u32,
    /// The copy's process has taken it.
    heard: bool,
    #[serde(flatten)]
    rate: RateSaid,
}

/// A process that is busy, or whose storage hangs, looks later.
const ANSWER: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use haul_job::timetable::parse_timetable;

    use super::*;
    use crate::detached::record::Records;
    use crate::detached::record::tests::copy;

    #[test]
    fn the_limit_has_its_line() {
        let rate = |asked: &str, limit| RateSaid { asked: asked.to_owned(), limit_bytes_per_s: limit };
        let lines = [
            text(3, &none(), false, true),
            text(3, &rate("none", None), true, true),
            text(3, &rate("200Mbit", Some(25_000_000)), true, true),
            text(3, &rate("", Some(1_000_000)), false, true),
            text(3, &rate("08:00-18:00 200Mbit, else 5Gbit", Some(25_000_000)), false, true),
            text(3, &rate("200Mbit", None), true, false),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        copy 3: no limit
        copy 3: no limit from now on
        copy 3: at most 200 Mbit/s from now on
        copy 3: at most 8.00 Mbit/s
        copy 3: at most 200 Mbit/s (08:00-18:00 200Mbit, else 5Gbit)
        copy 3: 200Mbit is noted, and holds when the copy goes on; it has not answered within 5 s
        ");
    }

    #[test]
    fn a_wish_is_read_back_from_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let (record, _) = Records::at(&dir.path().join("copies")).claim(copy(1), 1).unwrap();
        assert_eq!(record.asked_rate().unwrap(), None);
        let asked = parse_timetable("08:00-18:00 200Mbit, else 5Gbit").unwrap();
        record.ask_rate(&asked).unwrap();
        assert_eq!(record.asked_rate().unwrap(), Some(asked));
        std::fs::write(record.path().join("rate"), "fast").unwrap();
        assert!(record.asked_rate().is_err(), "what is no rate changes nothing");
    }
}

//! `haul probe --classes`: what each service class gets on a path.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use haul_job::{AskedClass, Carriage, Error, Observer, Service};
use haul_transfer::Surroundings;
use haul_transfer::probe::{self, Found, Request, Way};

use crate::probe::flags::Probe;
use crate::probe::json;
use crate::probe::request::request;
use crate::process::{ending, output};
use crate::report::class::arrival;
use crate::text::figures::{bits, latency, parts};

/// In turn, from the most modest up.
const CLASSES: [(AskedClass, &str); 3] =
    [(AskedClass::Background, "background"), (AskedClass::Normal, "normal"), (AskedClass::Priority, "priority")];

pub fn run(typed: &Probe, observer: Arc<dyn Observer>) -> ExitCode {
    let request = match request(typed) {
        Ok(request) => request,
        Err(error) => return ending::failed(&error, typed.json),
    };
    let mut results = Vec::new();
    for (class, name) in CLASSES {
        let service = Service { class, ..Service::default() };
        let carriage = Carriage { service, ..request.carriage.clone() };
        let asked = Request { carriage, ..request.clone() };
        match (probe::run(&asked, &Surroundings::of_process(), Arc::clone(&observer)), class) {
            // Without a mark, only the path itself can be to blame.
            (Err(error), AskedClass::Normal) => return ending::failed(&error, typed.json),
            (result, _) => results.push((name, result)),
        }
        if observer.interrupted() {
            break;
        }
    }
    let said = if typed.json { lines(&results) } else { table(&results) };
    output::say(said);
    ExitCode::SUCCESS
}

fn lines(results: &[(&str, Result<Found, Error>)]) -> String {
    results.iter().filter_map(|(_, result)| result.as_ref().ok()).map(json::object).collect()
}

fn table(results: &[(&str, Result<Found, Error>)]) -> String {
    let mut text = String::from("the rate of each class, one after the other\n");
    for (name, result) in results {
        match result {
            Ok(found) => {
                for (direction, way) in [("there", &found.there), ("back", &found.back)] {
                    let _ = writeln!(text, "  {name:<11} {direction:<6} {}", of_way(way));
                }
            }
            Err(error) => {
                let _ = writeln!(text, "  {name:<11} nothing got through with its mark: {}", error.what);
            }
        }
    }
    text
}

/// `94.1 Mbit/s, RTT 10.2 ms, 0.40 ms in queues, 0 % sent again; marked EF here, and arrives so`
fn of_way(way: &Way) -> String {
    let mut words = bits(way.bytes_per_s as f64);
    if way.path.rtt_min_us > 0 {
        let (rtt, queues) = (latency(way.path.rtt_min_us), latency(way.path.queueing_us));
        let _ = write!(words, ", RTT {rtt}, {queues} in queues, {} sent again", parts(way.path.resent_ppm));
    }
    match (way.path.service.arrives, way.path.service.marked_bytes) {
        (Some(arrives), _) => words.push_str(&format!("; {}", arrival(arrives))),
        (None, 0) => {}
        (None, _) => words.push_str("; nobody saw how its mark arrives"),
    }
    words
}

#[cfg(test)]
mod tests {
    use haul_job::{Arrival, Fault, PathService};

    use super::*;
    use crate::probe::tests::found;

    #[test]
    fn each_class_has_its_rate_and_what_became_of_its_mark() {
        let mut marked = found();
        let arrives = Some(Arrival { sent: 46, arrived: 0 });
        marked.there.path.service = PathService { mark: 46, marked_bytes: 1, arrives, ..PathService::default() };
        let dropped = Error::new(Fault::Network, "no data connection could be made");
        let text = table(&[("background", Err(dropped)), ("normal", Ok(found())), ("priority", Ok(marked))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[1].contains("nothing got through"), "{text}");
        assert!(lines[4].ends_with("marked EF here, arrives as best effort: cleared on the way"), "{text}");
    }
}

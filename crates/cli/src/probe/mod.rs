//! `haul probe`: what the path to a host carries, both ways, and what should change.

mod classes;
pub mod flags;
mod json;
mod request;
mod text;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::{Event, Observer, PathNow};
use haul_transfer::Surroundings;
use haul_transfer::probe;

use crate::probe::flags::Probe;
use crate::probe::request::request;
use crate::process::{ending, output, signals};
use crate::text::figures::{bits, bytes, latency};
use crate::text::printable::printable;

pub fn run(typed: &Probe) -> ExitCode {
    haul_transfer::hide_memory();
    let person = Person {
        interrupted: signals::watch(),
        // For a program, standard error has warnings only.
        tells_progress: !typed.quiet && !typed.json && std::io::stderr().is_terminal(),
        quiet: typed.quiet,
    };
    if typed.classes {
        return classes::run(typed, Arc::new(person));
    }
    match request(typed).and_then(|request| probe::run(&request, &Surroundings::of_process(), Arc::new(person))) {
        Ok(found) => {
            let said = if typed.json { json::object(&found) } else { text::table(&found) };
            output::say(said);
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

struct Person {
    interrupted: Arc<AtomicBool>,
    tells_progress: bool,
    quiet: bool,
}

impl Observer for Person {
    fn on_event(&self, event: &Event) {
        let line = match event {
            Event::Warning { text } if !self.quiet => format!("warning: {}", printable(text)),
            Event::Connecting { place } if self.tells_progress => format!("reaching {}", printable(place)),
            Event::Installing { place, bytes: size } if self.tells_progress => {
                format!("putting haul on {} ({})", printable(place), bytes(*size))
            }
            Event::Path(path) if self.tells_progress => path_line(path),
            _ => return,
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// `94.2 Mbit/s, RTT 41.2 ms, held by capacity`
fn path_line(path: &PathNow) -> String {
    let held = path.held_by.map(|cause| format!(", held by {}", cause.name())).unwrap_or_default();
    format!("  {}, RTT {}{held}", bits(path.rate_bytes_per_s as f64), latency(path.rtt_us))
}

#[cfg(test)]
pub mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use clap::CommandFactory as _;
    use haul_job::{
        Buffer, Carriage, Cause, End, Far, Host, HostLimits, LanePath, Limit, PathSummary, Remedy, SshOptions,
    };
    use haul_transfer::probe::{Found, Request, SILENCE, Way};

    use super::*;
    use crate::commands::{Command, Typed};

    fn typed(line: &[&str]) -> Result<Request, String> {
        let args = ["haul", "probe"].iter().chain(line).map(OsString::from);
        let (typed, _) = Typed::parse_from(args).map_err(|error| error.to_string())?;
        let Command::Probe(probe) = typed.command else { panic!("not a probe") };
        request(&probe).map_err(|error| format!("{error}; {}", error.cause.as_deref().unwrap_or_default()))
    }

    #[test]
    fn a_host_is_named_as_in_a_copy_and_without_a_path() {
        let ssh = |user: Option<&str>, host: &str, port| Far::Ssh {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        };
        let haul = |host: &str, port| Far::Haul { host: host.to_owned(), port };
        for (text, place) in [
            ("alpha", ssh(None, "alpha", None)),
            ("alpha:", ssh(None, "alpha", None)),
            ("me@alpha", ssh(Some("me"), "alpha", None)),
            ("[fe80::1]", ssh(None, "fe80::1", None)),
            ("ssh://me@alpha:2222", ssh(Some("me"), "alpha", Some(2222))),
            ("haul://alpha", haul("alpha", 7632)),
            ("haul://[::1]:99/", haul("::1", 99)),
        ] {
            assert_eq!(typed(&[text]).unwrap().place, place, "{text}");
        }
        for (text, why) in [
            ("alpha:data", "no path"),
            ("ssh://alpha/data", "no path"),
            ("haul://alpha/data", "no path"),
            ("./alpha", "local name"),
            ("", "empty"),
            ("-oProxyCommand=x", "<HOST>"),
            ("rsync://alpha", "does not speak"),
            ("fe80::1", "daemon"),
        ] {
            let refused = typed(&[text]).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn flags_mean_what_they_mean_in_a_copy() {
        let got = typed(&["h", "--time", "60", "--lanes", "8", "--cc", "bbr", "--port-range", "5-7", "-6", "-P22"]);
        let got = got.unwrap();
        assert_eq!(got.time, Duration::from_secs(60));
        let expected = Carriage {
            lanes: Some(8),
            congestion_control: Some("bbr".into()),
            port_range: Some((5, 7)),
            family: Some(haul_job::Family::V6),
            timeout: SILENCE,
            ..Carriage::default()
        };
        assert_eq!((got.carriage, got.ssh), (expected, SshOptions { port: Some(22), ..SshOptions::default() }));
        assert_eq!(typed(&["h"]).unwrap().time, Duration::from_secs(5));
        for bad in ["0", "61", "-1", "1.5", "x", "65537"] {
            assert!(typed(&["h", "--time", bad]).unwrap_err().contains("--time"), "{bad}");
        }
        assert_eq!(Duration::from_secs(60), probe::TIME_MAX);
        Typed::command().debug_assert();
    }

    /// 1 Gbit/s x 228 ms. There the far receive window limits, back the link is full.
    pub fn found() -> Found {
        let host = |place: &str| {
            let limits = HostLimits {
                rmem_max_bytes: 212_992,
                wmem_max_bytes: 212_992,
                tcp_rmem_max_bytes: 6_291_456,
                tcp_wmem_max_bytes: 4_194_304,
                congestion_control: "cubic".into(),
                allowed_congestion_controls: vec!["reno".into(), "cubic".into()],
            };
            Host { place: place.into(), cpus: 2, limits }
        };
        let cause = Cause::ReceiveWindow;
        let path = PathSummary {
            rtt_min_us: 228_000,
            queueing_us: 3_100,
            resent_ppm: 120,
            capacity_bytes_per_s: 125_000_000,
            window_bytes: 3_100_000,
            lanes: 8,
            congestion_control: "cubic".into(),
            rate_variation_permille: 45,
            ..PathSummary::default()
        };
        let buffer = Buffer {
            at: End::Target,
            grants_bytes: 3_100_000,
            path_bytes: Some(28_500_000),
            capacity_bytes_per_s: 125_000_000,
            rtt_us: 228_000,
            setting_bytes: 64 << 20,
        };
        let there = Way {
            arrived_bytes: 400_000_000,
            bytes_per_s: 101_000_000,
            path: path.clone(),
            paths: Vec::new(),
            jitter_us: 900,
            mtu_bytes: 1_500,
            segment_bytes: 1_448,
            time: [(cause, 0.71), (Cause::Capacity, 0.29)].into_iter().collect(),
            limit: Some(Limit { cause, share: 0.71 }),
            remedies: vec![Remedy::Buffer(buffer), Remedy::Lanes { lanes: 16, instead_of: 8, cause }],
        };
        let capacity_bytes_per_s = 117_500_000;
        let back = Way {
            arrived_bytes: 520_000_000,
            bytes_per_s: capacity_bytes_per_s,
            path: PathSummary { capacity_bytes_per_s, queueing_us: 41_000, resent_ppm: 0, window_bytes: 0, ..path },
            paths: Vec::new(),
            jitter_us: 2_500,
            time: [(Cause::Capacity, 1.0)].into_iter().collect(),
            limit: Some(Limit { cause: Cause::Capacity, share: 1.0 }),
            remedies: vec![Remedy::Compress { capacity_bytes_per_s }],
            ..there.clone()
        };
        Found {
            here: host("this machine"),
            far: host("host-b"),
            lane_path: LanePath::Direct,
            cipher: "AES-128-GCM".into(),
            time: Duration::from_secs(5),
            there,
            back,
        }
    }
}

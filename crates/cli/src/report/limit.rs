//! Words for a copy's limit and remedies, from one table.

use std::time::Duration;

use haul_job::{Buffer, Cause, End, Host, LanePath, Limit, Remedy, Report, Shares};
use haul_transfer::probe::{Found, Way};

use crate::text::figures::{bits, bytes, counted, duration, latency, parts, percent, rate};
use crate::text::printable::printable;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemedyText {
    pub words: String,
    /// For the host that the words name, typed as it is.
    pub command: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    limit: Option<Limit>,
    remedies: &'a [Remedy],
    source: &'a Host,
    target: &'a Host,
    time: &'a Shares,
    connected: Duration,
    elapsed: Duration,
    server: Option<End>,
}

impl<'a> From<&'a Report> for Case<'a> {
    fn from(report: &'a Report) -> Self {
        let Report { limit, remedies, source, target, time, connected, elapsed, lane_path, .. } = report;
        let connected = connected.unwrap_or_default();
        let server = lane_path.and_then(LanePath::server);
        Self { limit: *limit, remedies, source, target, time, connected, elapsed: *elapsed, server }
    }
}

impl<'a> Case<'a> {
    pub fn there(found: &'a Found) -> Self {
        Self::way(&found.there, &found.here, &found.far, found.time)
    }

    pub fn back(found: &'a Found) -> Self {
        Self::way(&found.back, &found.far, &found.here, found.time)
    }

    fn way(way: &'a Way, source: &'a Host, target: &'a Host, elapsed: Duration) -> Self {
        let Way { limit, remedies, time, .. } = way;
        Self { limit: *limit, remedies, source, target, time, connected: Duration::ZERO, elapsed, server: None }
    }
}

/// The words after "limited by"; `None` if no data moved.
pub fn limited_by<'a>(case: impl Into<Case<'a>>) -> Option<String> {
    let case = case.into();
    let cause = case.limit?.cause;
    if let Some(words) = case.server.as_ref().and_then(|server| by_server(cause, server)) {
        return Some(words.to_owned());
    }
    let words = match cause {
        Cause::SourceStorage => "source storage",
        Cause::SourceCpu => "source CPU",
        Cause::Ramp => "the ramp to full speed",
        Cause::Capacity => "the capacity of the link",
        Cause::Contention => "others on the link",
        Cause::ReceiveWindow => return Some(format!("the receive window of {}", printable(&case.target.place))),
        Cause::SendBuffer => return Some(format!("the send buffer of {}", printable(&case.source.place))),
        Cause::Loss => "loss on the path",
        Cause::Jitter => "jitter: packets overtake each other and count as lost",
        Cause::Outage => "outages of the network",
        Cause::Latency => "round trips",
        Cause::Network => "network",
        Cause::TargetCpu => "target CPU",
        Cause::TargetStorage => "target storage",
        Cause::RateLimit => "rate limit",
        Cause::Work => "waiting for work",
        Cause::Start => "login and connecting",
        Cause::Flush => "the final flush",
    };
    Some(words.to_owned())
}

/// A copy with a server is seen from this side alone.
fn by_server(cause: Cause, server: &End) -> Option<&'static str> {
    match (cause, server) {
        (Cause::SourceStorage, End::Source) | (Cause::TargetStorage | Cause::Flush, End::Target) => Some("the server"),
        (Cause::SourceCpu | Cause::TargetCpu, _) => Some("the processors of this machine"),
        (Cause::Capacity, _) => Some("the path or the server: more connections gained nothing"),
        (Cause::Latency, _) => Some("what each connection brings, by its window or by the server"),
        (Cause::Network, _) => Some("the path or the server"),
        _ => None,
    }
}

pub fn remedies<'a>(case: impl Into<Case<'a>>) -> Vec<RemedyText> {
    let case = case.into();
    let mut texts = Vec::new();
    // Both ends may need the same words.
    for text in case.remedies.iter().map(|remedy| text(remedy, &case)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

fn text(remedy: &Remedy, case: &Case<'_>) -> RemedyText {
    let place = |at: &End| match at {
        End::Source => printable(&case.source.place),
        End::Target => printable(&case.target.place),
    };
    let words = match remedy {
        Remedy::Buffer(buffer) => return raise(buffer, &place(&buffer.at)),
        Remedy::WithoutWindow { bytes: asked } => {
            format!("Leave out --window, or ask for more than {}.", bytes(*asked))
        }
        Remedy::Lanes { lanes, instead_of, cause } => {
            let why = match cause {
                Cause::Jitter => "a late packet slows only its own connection",
                Cause::Loss => "a loss slows only its own connection",
                Cause::SourceCpu | Cause::TargetCpu => "a lane is one thread at each end",
                _ => "each connection has a window of its own",
            };
            format!("--lanes {lanes} instead of {instead_of}: {why}.")
        }
        Remedy::CongestionControl { name, allow: None } => {
            format!("--cc {name}: it does not treat a loss as a full link.")
        }
        Remedy::CongestionControl { name, allow: Some(names) } => {
            let source = place(&End::Source);
            let words = format!("--cc {name} does not treat a loss as a full link. Allow it on {source} first:");
            let command = format!(
                "modprobe tcp_{name}; sysctl -w net.ipv4.tcp_allowed_congestion_control='{}'",
                printable(names)
            );
            return RemedyText { words, command: Some(command) };
        }
        Remedy::FindLoss { resent_ppm } => format!(
            "{} of the bytes were sent again although there was no queue: a damaged cable or optic, or a device that \
             polices the rate. Ask those who run the network.",
            parts(*resent_ppm)
        ),
        Remedy::AskForPriority => "Others use the link, too, and nothing here can be tuned: ask those who run the \
                                   network for priority, or copy at a quieter hour."
            .to_owned(),
        Remedy::Compress { capacity_bytes_per_s } => {
            format!("The link is full{}. -z helps when the data compresses.", carrying(*capacity_bytes_per_s))
        }
        Remedy::FasterLink { capacity_bytes_per_s } => {
            format!("The link is full{}, and the data is already compressed.", carrying(*capacity_bytes_per_s))
        }
        Remedy::OneCommand { cause } => one_command(*cause, case),
        Remedy::WithoutChecksum => {
            "-c reads every file at both ends before anything moves; without it, size and time decide.".to_owned()
        }
        Remedy::FasterStorage { at, bytes_per_s } => {
            let does = if *at == End::Source { "gives" } else { "takes" };
            let speed = rate(*bytes_per_s as f64);
            format!("The storage of {} {does} {speed}: use faster disks, or spread the tree over several.", place(at))
        }
        Remedy::NoFlush => format!(
            "--no-flush does not wait until the storage of {} holds the data; a power cut can then lose files that were \
             reported as copied.",
            place(&End::Target)
        ),
        Remedy::WithoutCipher => {
            "Leave out --cipher: both ends then take the fastest cipher of their processors.".to_owned()
        }
        Remedy::WithoutCompression => "Leave out -z: compression costs the source more than anything else.".to_owned(),
        Remedy::FasterProcessors { at, cpus } => match cpus {
            0 => format!("More or faster processors for {}.", place(at)),
            n => format!(
                "{} lets haul use {}: give it more of them, or faster ones.",
                place(at),
                counted((*n).into(), "processor", "processors")
            ),
        },
        Remedy::HigherRate { bytes_per_s } => {
            format!("Raise the rate limit of {}, or leave it out.", bits(*bytes_per_s as f64))
        }
        Remedy::OpenPort => {
            "The data runs inside ssh, which allows 2 MiB in flight for each session. Open ports between the \
                             hosts and name them: --port-range 50000-50020."
                .to_owned()
        }
        Remedy::DirectPath => {
            "The data runs through this machine. Without -3, and with ports between the two hosts that \
                               are open (--port-range 50000-50020), it goes directly."
                .to_owned()
        }
        Remedy::LookAtPath => {
            "Nothing was measured on the path. 'haul cp --live' shows it while a longer copy runs.".to_owned()
        }
        Remedy::LookAtLink { times, us } => {
            let long = duration(Duration::from_micros(*us));
            let often = if *times > 1 { format!("{times} times, for {long} in all") } else { format!("for {long}") };
            format!("The network passed nothing {often}: look at the link itself, its cable, radio, switch or tunnel.")
        }
    };
    RemedyText { words, command: None }
}

fn raise(buffer: &Buffer, place: &str) -> RemedyText {
    let needs = match buffer.path_bytes {
        Some(path_bytes) => format!(
            "this path needs {} ({} x {})",
            bytes(path_bytes),
            bits(buffer.capacity_bytes_per_s as f64),
            latency(buffer.rtt_us)
        ),
        None => "haul has never seen this path full".to_owned(),
    };
    let setting = match buffer.at {
        End::Source => "net.ipv4.tcp_wmem",
        End::Target => "net.ipv4.tcp_rmem",
    };
    // The host keeps its first two values (minimum and default).
    let values = format!("$(sysctl -n {setting} | awk '{{print $1, $2, {}}}')", buffer.setting_bytes);
    RemedyText {
        words: format!(
            "{place} allows one connection {} in flight; {needs}. Raise it there, as root, or with 'haul tune':",
            bytes(buffer.grants_bytes)
        ),
        command: Some(format!("sysctl -w {setting}=\"{values}\"")),
    }
}

fn one_command(cause: Cause, case: &Case<'_>) -> String {
    let share = percent(case.time.of(cause));
    match cause {
        Cause::Start => format!(
            "{} of {} passed before the first connection: put many copies into one command, which logs in once.",
            duration(case.connected),
            duration(case.elapsed)
        ),
        Cause::Ramp => {
            format!(
                "The job is short for this path: the ramp to full speed took {share} of the time. A larger job has the ramp only once."
            )
        }
        Cause::Latency => {
            format!("{share} of the time were round trips without data: put many small jobs into one command.")
        }
        _ => format!(
            "{share} of the time the lanes waited for something to send: listing, comparing, round trips. Put many small \
             jobs into one command."
        ),
    }
}

fn carrying(capacity_bytes_per_s: u64) -> String {
    match capacity_bytes_per_s {
        0 => String::new(),
        n => format!(": {} of it carry data", bits(n as f64)),
    }
}

#[cfg(test)]
mod tests {
    use haul_job::Limit;

    use super::*;
    use crate::cp::closing_lines::tests::report;

    fn buffer(at: End) -> Buffer {
        Buffer {
            at,
            grants_bytes: 3_100_000,
            path_bytes: Some(28_500_000),
            capacity_bytes_per_s: 125_000_000,
            rtt_us: 228_000,
            setting_bytes: 64 << 20,
        }
    }

    #[test]
    fn more_lanes_for_the_processors_of_both_ends_are_said_once() {
        let lanes = |cause| Remedy::Lanes { lanes: 4, instead_of: 1, cause };
        let both = haul_job::Report { remedies: [Cause::SourceCpu, Cause::TargetCpu].map(lanes).to_vec(), ..report() };
        assert_eq!(remedies(&both).len(), 1);
    }

    #[test]
    fn every_remedy_has_its_words_and_numbers() {
        let lanes = |cause| Remedy::Lanes { lanes: 16, instead_of: 2, cause };
        let remedies = vec![
            Remedy::Buffer(buffer(End::Target)),
            Remedy::Buffer(Buffer { path_bytes: None, ..buffer(End::Source) }),
            Remedy::WithoutWindow { bytes: 4 << 20 },
            lanes(Cause::ReceiveWindow),
            lanes(Cause::Loss),
            lanes(Cause::Jitter),
            lanes(Cause::TargetCpu),
            Remedy::CongestionControl { name: "bbr", allow: None },
            Remedy::CongestionControl { name: "bbr", allow: Some("reno cubic bbr".into()) },
            Remedy::FindLoss { resent_ppm: 120 },
            Remedy::AskForPriority,
            Remedy::Compress { capacity_bytes_per_s: 117_600_000 },
            Remedy::FasterLink { capacity_bytes_per_s: 0 },
            Remedy::OneCommand { cause: Cause::Start },
            Remedy::OneCommand { cause: Cause::Ramp },
            Remedy::OneCommand { cause: Cause::Latency },
            Remedy::OneCommand { cause: Cause::Work },
            Remedy::WithoutChecksum,
            Remedy::FasterStorage { at: End::Source, bytes_per_s: 180_000_000 },
            Remedy::FasterStorage { at: End::Target, bytes_per_s: 180_000_000 },
            Remedy::NoFlush,
            Remedy::WithoutCipher,
            Remedy::WithoutCompression,
            Remedy::FasterProcessors { at: End::Target, cpus: 2 },
            Remedy::FasterProcessors { at: End::Source, cpus: 0 },
            Remedy::HigherRate { bytes_per_s: 62_500_000 },
            Remedy::OpenPort,
            Remedy::DirectPath,
            Remedy::LookAtPath,
            Remedy::LookAtLink { times: 1, us: 10_200_000 },
            Remedy::LookAtLink { times: 3, us: 92_000_000 },
        ];
        let told = super::remedies(&haul_job::Report { remedies, ..report() });
        let text: String = told
            .iter()
            .map(|remedy| match &remedy.command {
                Some(command) => format!("{}\n    {command}\n", remedy.words),
                None => format!("{}\n", remedy.words),
            })
            .collect();
        insta::assert_snapshot!("remedies", text);
    }

    #[test]
    fn every_cause_has_its_words() {
        let others = [Cause::Start, Cause::Flush];
        let words: Vec<String> = Cause::OF_LANE_TIME
            .into_iter()
            .chain(others)
            .map(|cause| {
                let limit = Some(Limit { cause, share: 0.5 });
                format!("{}: {}\n", cause.name(), limited_by(&haul_job::Report { limit, ..report() }).unwrap())
            })
            .collect();
        insta::assert_snapshot!(words.concat());
        assert_eq!(limited_by(&haul_job::Report { limit: None, ..report() }), None);
    }
}

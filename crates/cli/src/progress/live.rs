//! `--live`: a line each second, in measuring tools' form.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use haul_job::{PathNow, Progress, Subflow};

use crate::report::class::{class_name, mark_name};
use crate::text::figures::{bits, bytes, counted, latency, parts, rate, whole_seconds};

#[derive(Debug, Default)]
pub struct Live {
    /// Each path's last state, and how many lines showed it.
    paths: BTreeMap<u16, (PathNow, u32)>,
    last: Option<(Duration, u64)>,
}

impl Live {
    pub fn on_path(&mut self, path: PathNow) {
        self.paths.insert(path.path, (path, 0));
    }

    pub fn on_progress(&mut self, now: Duration, progress: &Progress) -> Option<String> {
        let (from, moved_before) = *self.last.get_or_insert((Duration::ZERO, 0));
        if now.saturating_sub(from) < LINE_EVERY {
            return None;
        }
        self.last = Some((now, progress.bytes_moved));
        // States come about once a second, so now and then a line has no new one.
        self.paths.retain(|_, (_, shown)| *shown < PATH_SHOWN_MAX);
        self.paths.values_mut().for_each(|(_, shown)| *shown += 1);
        let paths: Vec<PathNow> = self.paths.values().map(|(path, _)| path.clone()).collect();
        let mut line = line(
            from,
            now,
            progress.bytes_moved.saturating_sub(moved_before),
            progress.lanes,
            together(&paths).as_ref(),
        );
        if let Some(silent_for) = progress.no_data_for {
            line.push_str(&format!("  no data for {}", whole_seconds(silent_for.as_secs())));
        }
        if paths.len() > 1 {
            let each = paths.iter().map(|path| format!("path {}: {}", path.path, bits(path.rate_bytes_per_s as f64)));
            line.push_str(&format!("  ({})", each.collect::<Vec<_>>().join(", ")));
        }
        let subflows: Vec<String> = paths.iter().flat_map(|path| &path.subflows).map(subflow).collect();
        if !subflows.is_empty() {
            line.push_str(&format!("  [{}]", subflows.join(", ")));
        }
        Some(line)
    }
}

/// `10.0.1.5 to 192.0.2.7: 240 Mbit/s, RTT 21.0 ms`
fn subflow(of: &Subflow) -> String {
    let [local, remote] = [of.local, of.remote].map(IpAddr::from);
    format!("{local} to {remote}: {}, RTT {}", bits(of.rate_bytes_per_s as f64), latency(of.rtt_us))
}

fn together(paths: &[PathNow]) -> Option<PathNow> {
    let quickest = paths.iter().max_by_key(|path| path.rate_bytes_per_s)?;
    Some(PathNow {
        rate_bytes_per_s: paths.iter().map(|path| path.rate_bytes_per_s).sum(),
        lanes: paths.iter().map(|path| path.lanes).sum(),
        marked_lanes: paths.iter().map(|path| path.marked_lanes).sum(),
        ..quickest.clone()
    })
}

/// `12.0-13.0 s    118 MiB  118 MiB/s (990 Mbit/s)  8 lanes  RTT 231 ms, 3.10 ms in queues  0.012 % sent again  held by loss`
fn line(from: Duration, to: Duration, moved: u64, lanes: u16, path: Option<&PathNow>) -> String {
    let (from_s, to_s) = (from.as_secs_f64(), to.as_secs_f64());
    // Verified bytes come in whole chunks; the path counts them as they leave.
    let bytes_per_s = match path {
        Some(path) if path.rate_bytes_per_s > 0 => path.rate_bytes_per_s as f64,
        _ => moved as f64 / (to_s - from_s).max(1e-3),
    };
    let lanes = path.map(|path| path.lanes).filter(|lanes| *lanes > 0).unwrap_or(lanes);
    let mut fields = vec![
        format!("{from_s:5.1}-{to_s:.1} s"),
        format!("{:>8}", bytes(moved)),
        rate(bytes_per_s),
        counted(lanes.into(), "lane", "lanes"),
    ];
    if let Some(path) = path {
        if path.rtt_us > 0 {
            fields.push(format!("RTT {}, {} in queues", latency(path.rtt_us), latency(path.queueing_us)));
        }
        fields.push(format!("{} sent again", parts(path.resent_ppm)));
        fields.extend(path.held_by.map(|cause| format!("held by {}", cause.name())));
        if path.marked_lanes > 0 {
            let lanes = counted(path.marked_lanes.into(), "lane", "lanes");
            fields.push(format!("{} ({lanes} marked {})", class_name(path.mark), mark_name(path.mark)));
        }
    }
    fields.join("  ")
}

const PATH_SHOWN_MAX: u32 = 2;

/// Progress comes ten times a second.
const LINE_EVERY: Duration = Duration::from_millis(950);

#[cfg(test)]
mod tests {
    use haul_job::Cause;

    use super::*;

    fn moved(bytes_moved: u64) -> Progress {
        Progress { bytes_moved, lanes: 4, ..Progress::default() }
    }

    #[test]
    fn a_line_tells_what_each_of_several_paths_carries() {
        let mut live = Live::default();
        for (path, rate_bytes_per_s) in [(0, 50_000_000), (1, 60_000_000)] {
            live.on_path(PathNow { path, rate_bytes_per_s, lanes: 2, ..PathNow::default() });
        }
        let line = live.on_progress(Duration::from_secs(1), &moved(100 << 20)).unwrap();
        assert!(line.contains("105 MiB/s (880 Mbit/s)  4 lanes"), "{line}");
        assert!(line.ends_with("(path 0: 400 Mbit/s, path 1: 480 Mbit/s)"), "{line}");
    }

    #[test]
    fn a_line_tells_what_each_subflow_of_mptcp_carries() {
        let mut live = Live::default();
        let subflow = |net: u8, rate_bytes_per_s| Subflow {
            local: IpAddr::from([10, 0, net, 5]).into(),
            remote: IpAddr::from([192, 0, 2, 7]).into(),
            rate_bytes_per_s,
            delivered_bytes: 1 << 30,
            rtt_us: 21_000,
            resent_ppm: 0,
        };
        let subflows = vec![subflow(0, 50_000_000), subflow(1, 60_000_000)];
        live.on_path(PathNow { rate_bytes_per_s: 110_000_000, subflows, ..PathNow::default() });
        let line = live.on_progress(Duration::from_secs(1), &moved(100 << 20)).unwrap();
        let told = "[10.0.0.5 to 192.0.2.7: 400 Mbit/s, RTT 21.0 ms, 10.0.1.5 to 192.0.2.7: 480 Mbit/s, RTT 21.0 ms]";
        assert!(line.ends_with(told), "{line}");
    }

    #[test]
    fn a_line_comes_each_second_with_what_moved_in_it() {
        let mut live = Live::default();
        let at = Duration::from_millis;
        assert_eq!(live.on_progress(at(100), &moved(1 << 20)), None);
        assert_eq!(
            live.on_progress(at(1_000), &moved(100 << 20)).unwrap(),
            "  0.0-1.0 s   100 MiB  100 MiB/s (839 Mbit/s)  4 lanes"
        );
        assert_eq!(live.on_progress(at(1_100), &moved(110 << 20)), None);
        live.on_path(PathNow {
            path: 0,
            rate_bytes_per_s: 123_750_000,
            rtt_us: 231_100,
            rtt_min_us: 228_000,
            queueing_us: 3_100,
            resent_ppm: 120,
            lanes: 8,
            pacing_bytes_per_s: 0,
            held_by: Some(Cause::ReceiveWindow),
            ..PathNow::default()
        });
        assert_eq!(
            live.on_progress(at(2_050), &moved(220 << 20)).unwrap(),
            "  1.0-2.0 s   120 MiB  118 MiB/s (990 Mbit/s)  8 lanes  RTT 231 ms, 3.10 ms in queues  0.012 % sent again  \
             held by receive window"
        );
        assert!(live.on_progress(at(3_050), &moved(220 << 20)).unwrap().ends_with("held by receive window"));
        assert_eq!(
            live.on_progress(at(4_050), &moved(220 << 20)).unwrap(),
            "  3.0-4.0 s       0 B  0 B/s (0.00 kbit/s)  4 lanes"
        );
    }
}

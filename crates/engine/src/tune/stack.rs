//! The rest of TCP: what it may use, how it starts and restarts, congestion control, and the host's queues.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::figures::{rate_text, rtt_text, size_text};
use super::finding::{Finding, Matters};
use super::host::{Host, PACKET_BYTES, Setting, Wanted};
use super::reach::UNSCALED_WINDOW_BYTES;

pub(super) fn findings(host: &Host, wanted: Wanted) -> Vec<Finding> {
    let mut findings: Vec<Finding> = switches(wanted).into_iter().map(|switch| switch.finding(host)).collect();
    findings.extend([
        congestion_control(host, wanted),
        allowed_congestion_controls(host, wanted),
        default_queue(host),
        backlog(host, wanted),
        option_memory(host),
    ]);
    findings
}

struct Switch {
    name: &'static str,
    on: bool,
    matters: Matters,
    why: String,
}

impl Switch {
    fn finding(self, host: &Host) -> Finding {
        let Some((setting, number)) =
            host.settings.get(self.name).and_then(|s| Some((s, s.value.parse::<u64>().ok()?)))
        else {
            return Finding::not_told(self.name, self.why);
        };
        match (number > 0) == self.on {
            true => Finding::fine(self.name, &*setting.value, self.why),
            false => Finding::sysctl(self.name, setting, u8::from(self.on).to_string(), self.matters, self.why),
        }
    }
}

fn switches(wanted: Wanted) -> [Switch; 6] {
    let far = if wanted.is_far() { Matters::Yes } else { Matters::WouldHelp };
    let under_way = wanted.under_way_bytes();
    let wrap_ms = u128::from(1_u64 << 32) * 1_000 / u128::from(wanted.rate_bytes_per_s.max(1));
    let rounds = rounds_to_grow(under_way);
    [
        Switch {
            name: "net.ipv4.tcp_window_scaling",
            on: true,
            matters: if under_way > UNSCALED_WINDOW_BYTES { Matters::Yes } else { Matters::WouldHelp },
            why: format!("Without it windows stay below 64 KiB; {} are needed.", size_text(under_way)),
        },
        Switch {
            name: "net.ipv4.tcp_sack",
            on: true,
            matters: far,
            why: "Without it a sender finds one lost packet of a window per round trip, and sends all later packets again."
                .into(),
        },
        Switch {
            name: "net.ipv4.tcp_timestamps",
            on: true,
            matters: if wrap_ms < OLD_PACKET_MS { Matters::Yes } else { Matters::WouldHelp },
            why: format!(
                "At {} sequence numbers come round after {}; timestamps tell old packets from new ones (RFC 7323).",
                rate_text(wanted.rate_bytes_per_s),
                rtt_text(u64::try_from(wrap_ms).unwrap_or(u64::MAX).saturating_mul(1_000))
            ),
        },
        Switch {
            name: "net.ipv4.tcp_slow_start_after_idle",
            on: false,
            matters: Matters::WouldHelp,
            why: format!(
                "With it a connection that waited for a disk starts again at 10 packets: {rounds} round trips, {}, to be back at {}.",
                rtt_text(wanted.rtt_us.saturating_mul(rounds)),
                size_text(under_way)
            ),
        },
        Switch {
            name: "net.ipv4.tcp_no_metrics_save",
            on: true,
            matters: Matters::WouldHelp,
            why: "Without it a loss at the end of one connection makes the next ones to that host begin slowly.".into(),
        },
        Switch {
            name: "net.ipv4.tcp_mtu_probing",
            on: true,
            matters: Matters::WouldHelp,
            why: "A router that drops large packets without a word then costs a second instead of the connection."
                .into(),
        },
    ]
}

fn rounds_to_grow(bytes: u64) -> u64 {
    let windows = bytes.div_ceil(10 * PACKET_BYTES).max(1);
    u64::from(windows.next_power_of_two().ilog2())
}

fn congestion_control(host: &Host, wanted: Wanted) -> Finding {
    let name = "net.ipv4.tcp_congestion_control";
    let Some(setting) = host.settings.get(name) else {
        return Finding::not_told(name, "Who decides how fast a connection goes.");
    };
    let word = match wanted.is_far() {
        true => "On a long path with losses that no queue causes, bbr holds its rate; cubic and reno slow down.",
        false => "On a short path cubic and reno need less processor time than bbr.",
    };
    Finding::fine(
        name,
        &*setting.value,
        format!(
            "{word} This is the default of every program here and stays; haul chooses for each of its lanes (--cc)."
        ),
    )
}

fn allowed_congestion_controls(host: &Host, wanted: Wanted) -> Finding {
    let name = "net.ipv4.tcp_allowed_congestion_control";
    let Some(setting) = host.settings.get(name) else {
        return Finding::not_told(name, "Those that a program without rights may choose.");
    };
    let available: Vec<&str> = words(host.settings.get("net.ipv4.tcp_available_congestion_control"));
    let allowed: Vec<&str> = setting.value.split_whitespace().collect();
    let missing: Vec<&str> = ["bbr", "cubic"].into_iter().filter(|name| !allowed.contains(name)).collect();
    let bbr_matters = if wanted.is_far() { Matters::Yes } else { Matters::WouldHelp };
    let with = |names: &[&str]| [&allowed[..], names].concat().join(" ");
    let why = "Those that a program without rights may choose for its path: bbr for long ones, cubic for short ones.";
    if missing.is_empty() {
        return Finding::fine(name, &*setting.value, why);
    }
    if missing.contains(&"bbr") && !available.contains(&"bbr") {
        // The kernel takes only loaded names.
        let advised = with(&["bbr"]);
        let command = format!("modprobe tcp_bbr && sysctl -w {name}='{advised}'");
        let why = format!("{why} bbr is not loaded; for each start put tcp_bbr into /etc/modules-load.d/haul.conf.");
        return Finding::by_hand(name, &*setting.value, Some(advised), bbr_matters, why).command(command);
    }
    let addable: Vec<&str> = missing.into_iter().filter(|name| available.contains(name)).collect();
    if addable.is_empty() {
        return Finding::fine(name, &*setting.value, why);
    }
    let matters = if addable.contains(&"bbr") { bbr_matters } else { Matters::WouldHelp };
    Finding::sysctl(name, setting, with(&addable), matters, format!("{why} Missing: {}.", addable.join(", ")))
}

fn default_queue(host: &Host) -> Finding {
    let name = "net.core.default_qdisc";
    let why = "Programs and bbr send at a pace; fq keeps it, while without fq each connection has a timer of its own \
               (measured on loopback with bbr: 3 to 8 times the processor time).";
    let Some(setting) = host.settings.get(name) else {
        return Finding::not_told(name, why);
    };
    if setting.value == "fq" {
        return Finding::fine(name, "fq", why);
    }
    let why = format!("{why} Devices that are up keep their queue until it is replaced (tc, or a restart).");
    let mut finding = Finding::sysctl(name, setting, "fq".into(), Matters::WouldHelp, why);
    for interface in host.interfaces.iter().filter(|interface| interface.driver.is_some()) {
        // mq gives each queue the default; a single fq would be one lock.
        let kind = if interface.transmit_queues > 1 { "mq" } else { "fq" };
        finding = finding.command(format!("tc qdisc replace dev {} root {kind}", interface.name));
    }
    finding
}

fn backlog(host: &Host, wanted: Wanted) -> Finding {
    let name = "net.core.netdev_max_backlog";
    let Some((setting, now)) = host.settings.get(name).and_then(|s| Some((s, s.value.parse::<u64>().ok()?))) else {
        return Finding::not_told(name, "Packets that wait for a processor.");
    };
    let packet = host.interfaces.iter().filter_map(|interface| interface.mtu_bytes).max().unwrap_or(PACKET_BYTES);
    let per_s = wanted.rate_bytes_per_s / packet.max(PACKET_BYTES);
    let needed = per_s * BACKLOG_MS / 1_000;
    let why = format!(
        "Packets that wait for a processor when they are spread in software (RPS) or come from a virtual device: \
         {per_s} a second, {needed} in {BACKLOG_MS} ms."
    );
    let advised = needed.next_power_of_two().min(BACKLOG_MAX);
    if now >= needed {
        return Finding::fine(name, &*setting.value, why);
    }
    if now >= advised {
        let why = format!("{why} More than {BACKLOG_MAX} is not advised: the packets would take too much memory.");
        return Finding::by_hand(name, &*setting.value, None, Matters::WouldHelp, why);
    }
    Finding::sysctl(name, setting, advised.to_string(), Matters::WouldHelp, why)
}

fn option_memory(host: &Host) -> Finding {
    let name = "net.core.optmem_max";
    let why = "Bounds zero-copy sends (MSG_ZEROCOPY); haul does not use them.";
    match host.number(name) {
        Some(bytes) => Finding::fine(name, bytes.to_string(), why),
        None => Finding::not_told(name, why),
    }
}

fn words(setting: Option<&Setting>) -> Vec<&str> {
    setting.map(|setting| setting.value.split_whitespace().collect()).unwrap_or_default()
}

/// Routers hold packets for seconds; RFC 9293's two minutes are theory.
const OLD_PACKET_MS: u128 = 60_000;

/// A few ticks of 4 ms.
const BACKLOG_MS: u64 = 10;

/// At most 1.2 GB for each processor with 9000 bytes.
const BACKLOG_MAX: u64 = 131_072;

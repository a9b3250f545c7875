//! The machine around TCP: network devices, where their interrupts go, processors, disk.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::figures::{rate_text, size_text};
use super::finding::{Finding, Matters};
use super::host::{Disk, Host, Interface, PACKET_BYTES, Processors, Wanted};

pub(super) fn findings(host: &Host, wanted: Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    if host.interfaces.is_empty() {
        findings.push(Finding::not_told("interfaces", "This host shows no network device that is up."));
    }
    for interface in &host.interfaces {
        findings.extend([
            speed(interface, wanted),
            packet_size(interface, wanted),
            queues(interface, &host.processors, wanted),
            interrupts(interface, &host.processors),
        ]);
    }
    findings.push(governor(&host.processors));
    findings.extend(host.disk.iter().flat_map(|disk| disk_rates(disk, wanted)));
    findings
}

fn speed(interface: &Interface, wanted: Wanted) -> Finding {
    let setting = format!("{} speed", interface.name);
    let wish = rate_text(wanted.rate_bytes_per_s);
    match interface.speed_bytes_per_s {
        None => Finding::not_told(&setting, "Virtual devices have no speed of their own."),
        Some(speed) if speed >= wanted.rate_bytes_per_s => {
            Finding::fine(&setting, rate_text(speed), format!("{wish} is wanted."))
        }
        Some(speed) => {
            let why = format!("{wish} is wanted: no setting makes this link faster.");
            Finding::by_hand(&setting, rate_text(speed), None, Matters::Yes, why)
        }
    }
}

fn packet_size(interface: &Interface, wanted: Wanted) -> Finding {
    let setting = format!("{} mtu", interface.name);
    let Some(mtu) = interface.mtu_bytes else { return Finding::not_told(&setting, "The largest packet.") };
    let per_s = wanted.rate_bytes_per_s / mtu.max(1);
    let why = format!("{per_s} packets a second at {}.", rate_text(wanted.rate_bytes_per_s));
    // Somebody, or a tunnel or cloud, chose them.
    if mtu != PACKET_BYTES || wanted.rate_bytes_per_s < FAST_BYTES_PER_S || interface.driver.is_none() {
        return Finding::fine(&setting, mtu.to_string(), why);
    }
    let why = format!(
        "{why} With 9000 bytes it is {}: only where every switch and host of the path has it.",
        per_s * mtu / JUMBO_BYTES
    );
    Finding::by_hand(&setting, mtu.to_string(), Some(JUMBO_BYTES.to_string()), Matters::WouldHelp, why)
        .command(format!("ip link set dev {} mtu {JUMBO_BYTES}", interface.name))
}

fn queues(interface: &Interface, processors: &Processors, wanted: Wanted) -> Finding {
    let setting = format!("{} receive queues", interface.name);
    let now = interface.receive_queues;
    match now {
        0 => Finding::not_told(&setting, "Each queue can have a processor of its own."),
        1 if wanted.rate_bytes_per_s >= FAST_BYTES_PER_S && processors.count > 1 && interface.driver.is_some() => {
            let advised = processors.count.min(QUEUES_MAX);
            let why = format!(
                "One queue means one of {} processors for all packets; at {} that is the limit. Not every driver can change it.",
                processors.count,
                rate_text(wanted.rate_bytes_per_s)
            );
            Finding::by_hand(&setting, "1", Some(advised.to_string()), Matters::WouldHelp, why)
                .command(format!("ethtool -L {} combined {advised}", interface.name))
        }
        _ => Finding::fine(&setting, now.to_string(), "Each queue can have a processor of its own."),
    }
}

fn interrupts(interface: &Interface, processors: &Processors) -> Finding {
    let setting = format!("{} interrupts", interface.name);
    if interface.interrupts.is_empty() {
        return Finding::not_told(&setting, "Which processors take the packets.");
    }
    let takers: BTreeSet<u32> = interface.interrupts.iter().flat_map(|i| i.processors.iter().copied()).collect();
    let now = format!("processors {}", ranges(&takers));
    let home = interface.node.and_then(|node| Some((node, processors.nodes.get(&node)?)));
    if let Some((node, near)) = home.filter(|_| processors.nodes.len() > 1) {
        let near: BTreeSet<u32> = near.iter().copied().collect();
        let near_text = ranges(&near);
        if !takers.is_subset(&near) {
            let why = format!(
                "The device is at node {node}; packets that other nodes take cross the link between the sockets. \
                 Run the data mover there, too: numactl --cpunodebind={node} --membind={node}."
            );
            let finding =
                Finding::by_hand(&setting, now, Some(format!("processors {near_text}")), Matters::WouldHelp, why);
            return interface
                .interrupts
                .iter()
                .filter(|i| i.processors.iter().any(|p| !near.contains(p)))
                .fold(finding, |finding, i| {
                    finding.command(format!("echo {near_text} > /proc/irq/{}/smp_affinity_list", i.number))
                });
        }
    }
    if takers.len() == 1 && interface.receive_queues > 1 && processors.count > 1 {
        let why =
            format!("One processor takes the packets of {} queues: give each queue its own.", interface.receive_queues);
        return Finding::by_hand(&setting, now, Some("one processor each".into()), Matters::WouldHelp, why)
            .command("systemctl enable --now irqbalance".into());
    }
    Finding::fine(&setting, now, "They are taken near the device.")
}

fn governor(processors: &Processors) -> Finding {
    let setting = "processor governor";
    let why = "A processor that sleeps between packets takes its time to wake.";
    if processors.governors.is_empty() {
        return Finding::not_told(setting, why);
    }
    let now = processors.governors.join(", ");
    match processors.governors.iter().all(|name| name == "performance") {
        true => Finding::fine(setting, now, why),
        false => Finding::by_hand(setting, now, Some("performance".into()), Matters::WouldHelp, why)
            .command("cpupower frequency-set -g performance".into()),
    }
}

fn disk_rates(disk: &Disk, wanted: Wanted) -> [Finding; 2] {
    [("writing", disk.write_bytes_per_s), ("reading", disk.read_bytes_per_s)].map(|(verb, rate)| {
        let setting = format!("{verb} {}", disk.directory);
        let now = format!("{}/s", size_text(rate));
        let how = if disk.direct { "past the page cache" } else { "through the page cache" };
        let why = format!(
            "{} {how}; {} is wanted, {}/s.",
            rate_text(rate),
            rate_text(wanted.rate_bytes_per_s),
            size_text(wanted.rate_bytes_per_s)
        );
        match rate >= wanted.rate_bytes_per_s {
            true => Finding::fine(&setting, now, why),
            false => {
                let why = format!("{why} The disk is slower than the path.");
                Finding::by_hand(&setting, now, None, Matters::Yes, why)
            }
        }
    })
}

fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// The common size of large frames.
const JUMBO_BYTES: u64 = 9_000;

/// More queues spread interrupts over processors that the disks need.
const QUEUES_MAX: usize = 16;

/// 10 Gbit/s: small packets and single queues need more than one processor.
const FAST_BYTES_PER_S: u64 = 1_250_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_written_as_the_kernel_writes_them() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8].into()), "0-3,8");
        assert_eq!(ranges(&[5].into()), "5");
    }
}

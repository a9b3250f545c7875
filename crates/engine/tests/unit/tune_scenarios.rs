//! Hosts as they are met, and what they are advised.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Debian 12 as installed, with 16 GiB.
fn stock() -> Host {
    let values = [
        ("net.core.default_qdisc", "pfifo_fast"),
        ("net.core.netdev_max_backlog", "1000"),
        ("net.core.optmem_max", "20480"),
        ("net.core.rmem_max", "212992"),
        ("net.core.wmem_max", "212992"),
        ("net.ipv4.tcp_allowed_congestion_control", "reno cubic"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_mem", "190000 253000 380000"),
        ("net.ipv4.tcp_mtu_probing", "0"),
        ("net.ipv4.tcp_no_metrics_save", "0"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "1"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ];
    let settings = values.map(|(name, value)| (name.to_owned(), Setting { value: value.into(), writable: true }));
    Host { settings: settings.into(), memory_bytes: Some(16 << 30), page_bytes: 4096, ..Host::default() }
}

fn set(host: &mut Host, name: &str, value: &str) {
    host.settings.get_mut(name).unwrap().value = value.into();
}

fn found<'a>(advice: &'a Advice, setting: &str) -> &'a Finding {
    advice
        .findings
        .iter()
        .find(|finding| finding.setting == setting)
        .unwrap_or_else(|| panic!("{setting}: {advice:#?}"))
}

fn advised(advice: &Advice) -> Vec<String> {
    advice.changes().map(|(finding, value)| format!("{}={value}", finding.setting)).collect()
}

const LONG: Wanted = Wanted { rate_bytes_per_s: 125_000_000, rtt_us: 228_000 };
const FAST: Wanted = Wanted { rate_bytes_per_s: 1_250_000_000, rtt_us: 100_000 };

#[test]
fn one_gbit_over_228_ms_on_a_stock_host() {
    let advice = advise(&stock(), LONG);
    assert_eq!(advice.under_way_bytes, 28_500_000);
    assert_eq!(
        advised(&advice),
        [
            "net.ipv4.tcp_rmem=4096 131072 67108864",
            "net.ipv4.tcp_wmem=4096 16384 67108864",
            "net.core.rmem_max=33554432",
            "net.core.wmem_max=33554432",
            "net.ipv4.tcp_slow_start_after_idle=0",
            "net.ipv4.tcp_no_metrics_save=1",
            "net.ipv4.tcp_mtu_probing=1",
            "net.core.default_qdisc=fq",
        ]
    );
    insta::assert_snapshot!(found(&advice, "net.ipv4.tcp_rmem").why, @"1 Gbit/s x 228 ms = 28.5 MB under way; about half of a receive buffer is window, the rest the kernel counts for itself: 2 x 28.5 MB = 57 MB. Now 3.15 MB of window hold one connection to 110 Mbit/s. Advised: up to 64 MiB.");
    insta::assert_snapshot!(found(&advice, "net.ipv4.tcp_wmem").why, @"1 Gbit/s x 228 ms = 28.5 MB under way; about 0.7 of a send buffer is data under way: 28.5 MB / 0.7 = 40.7 MB. Now 2.94 MB under way hold one connection to 103 Mbit/s. Advised: up to 64 MiB.");
    // Many lanes have what one connection lacks.
    assert_eq!(advice.now.sending_one.map(rate_text).as_deref(), Some("103 Mbit/s"));
    assert_eq!(advice.now.sending_lanes, Some(LONG.rate_bytes_per_s));
    assert_eq!(advice.then.sending_one, Some(LONG.rate_bytes_per_s));
    assert_eq!(advice.then.receiving_one, Some(LONG.rate_bytes_per_s));
    // Only a person can load bbr, which matters on this path.
    let allowed = found(&advice, "net.ipv4.tcp_allowed_congestion_control");
    assert_eq!((allowed.matters, allowed.remedy), (Matters::Yes, Remedy::ByHand));
    assert_eq!(
        allowed.commands,
        ["modprobe tcp_bbr && sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'"]
    );
}

fn uplink(device: &str, net: u8, leaves_by: &str) -> Uplink {
    Uplink {
        device: device.into(),
        local: [10, net, 0, 5].into(),
        prefix_len: 24,
        router: Some([10, net, 0, 1].into()),
        leaves_by: Some(leaves_by.into()),
        reverse_path_filter: Some(1),
    }
}

fn about_paths(host: &Host) -> String {
    let mut text = String::new();
    let others = advise(&Host { uplinks: Vec::new(), ..host.clone() }, LONG).findings;
    for finding in advise(host, LONG).findings.into_iter().filter(|finding| !others.contains(finding)) {
        let Finding { setting, now, advised, why, commands, .. } = finding;
        let now = now.unwrap_or_else(|| "not told".into());
        let advised = advised.map_or(String::new(), |advised| format!(" -> {advised}"));
        text.push_str(&format!("{setting}: {now}{advised}\n  {why}\n"));
        commands.iter().for_each(|command| text.push_str(&format!("  $ {command}\n")));
    }
    text
}

#[test]
fn a_host_with_two_uplinks_is_told_how_each_carries_its_own_packets_and_one_with_one_is_not() {
    let mut host = stock();
    host.settings.insert("net.mptcp.enabled".into(), Setting { value: "0".into(), writable: true });
    host.multipath = Some(Multipath { subflows: 2, accepted_addresses: 0, endpoints: Some(Vec::new()) });
    host.uplinks = vec![uplink("eth0", 1, "eth0")];
    assert_eq!(about_paths(&host), "");
    let without_router = Uplink { router: None, leaves_by: None, reverse_path_filter: None, ..uplink("eth2", 3, "") };
    let v6 = Uplink {
        local: "2001:db8:2::5".parse().unwrap(),
        prefix_len: 64,
        router: Some("fe80::1".parse().unwrap()),
        reverse_path_filter: None,
        ..uplink("eth1", 2, "eth0")
    };
    host.uplinks.extend([uplink("eth1", 2, "eth0"), v6, without_router]);
    insta::assert_snapshot!("several_uplinks", about_paths(&host));
}

#[test]
fn where_a_connection_has_no_floor_of_its_own_the_routes_of_own_networks_may() {
    let host = Host { uplinks: vec![uplink("eth0", 1, "eth0")], floor_by_connection: Some(false), ..stock() };
    let advice = advise(&host, LONG);
    assert_eq!(
        found(&advice, "retransmission timeout").commands,
        ["ip route change 10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5 rto_min 50ms"]
    );
    for grants in [Some(true), None] {
        let findings = advise(&Host { floor_by_connection: grants, ..host.clone() }, LONG).findings;
        assert!(findings.iter().all(|finding| finding.setting != "retransmission timeout"));
    }
}

#[test]
fn a_host_whose_uplinks_are_set_is_left_alone() {
    let mut host = stock();
    host.settings.insert("net.mptcp.enabled".into(), Setting { value: "1".into(), writable: true });
    let endpoints = Some(vec![[10, 1, 0, 5].into(), [10, 2, 0, 5].into()]);
    host.multipath = Some(Multipath { subflows: 2, accepted_addresses: 1, endpoints });
    host.uplinks = vec![uplink("eth0", 1, "eth0"), uplink("eth1", 2, "eth1")];
    let told = about_paths(&host);
    assert!(told.contains("packets from 10.2.0.5: leave by eth1\n") && !told.contains(" -> "), "{told}");
    // Without rights the endpoints are unknown.
    host.multipath = Some(Multipath { subflows: 8, accepted_addresses: 8, endpoints: None });
    let advice = advise(&host, LONG);
    assert_eq!(found(&advice, "ip mptcp endpoint").matters, Matters::NotTold);
    assert_eq!(found(&advice, "ip mptcp limits").matters, Matters::Fine);
}

#[test]
fn a_host_that_is_tuned_already_is_left_alone() {
    let mut host = stock();
    for (name, value) in [("available", "reno cubic bbr"), ("allowed", "reno cubic bbr")] {
        set(&mut host, &format!("net.ipv4.tcp_{name}_congestion_control"), value);
    }
    // One round of advice is enough, and higher values stay.
    let first = advise(&host, FAST);
    for (finding, value) in first.changes() {
        set(&mut host, &finding.setting, value);
    }
    assert_eq!(advised(&advise(&host, FAST)), [""; 0]);
    assert_eq!(advised(&advise(&host, LONG)), [""; 0]);
    assert!(advise(&host, FAST).findings.iter().all(|finding| finding.matters >= Matters::Fine));
}

#[test]
fn a_small_host_gets_no_more_than_a_sixteenth_of_its_memory_and_is_told_what_it_then_reaches() {
    let mut host = stock();
    host.memory_bytes = Some(1 << 30);
    set(&mut host, "net.ipv4.tcp_mem", "12288 16384 24576");
    let advice = advise(&host, FAST);
    let receive = found(&advice, "net.ipv4.tcp_rmem");
    assert_eq!(receive.advised.as_deref(), Some("4096 131072 67108864"));
    assert!(receive.why.contains("The limit is memory: a sixteenth of 1.07 GB is 64 MiB"), "{}", receive.why);
    assert!(receive.why.contains("One connection then reaches 2.68 Gbit/s"), "{}", receive.why);
    // The same memory holds all lanes: no setting is advised against it.
    let all = found(&advice, "net.ipv4.tcp_mem");
    assert_eq!((all.matters, all.advised.as_ref()), (Matters::Yes, None), "{all:#?}");
    assert_eq!(advice.then.receiving_lanes.map(rate_text).as_deref(), Some("2.68 Gbit/s"));
}

#[test]
fn memory_of_tcp_that_was_set_too_low_is_raised_to_what_the_kernel_chooses() {
    let mut host = stock();
    set(&mut host, "net.ipv4.tcp_mem", "1024 2048 4096");
    let advice = advise(&host, LONG);
    let all = found(&advice, "net.ipv4.tcp_mem");
    assert_eq!((all.matters, all.advised.as_deref()), (Matters::Yes, Some("196608 262144 393216")));
    assert!(advice.now.sending_lanes < advice.then.sending_lanes, "{advice:#?}");
}

#[test]
fn memory_of_tcp_that_is_partly_above_what_the_kernel_chooses_keeps_those_parts() {
    let mut host = stock();
    set(&mut host, "net.ipv4.tcp_mem", "100000 150000 1000000");
    let path = Wanted { rate_bytes_per_s: 12_500_000_000, rtt_us: 25_000 };
    let advised = found(&advise(&host, path), "net.ipv4.tcp_mem").advised.clone();
    assert_eq!(advised.as_deref(), Some("196608 262144 1000000"));
}

#[test]
fn a_queue_for_more_packets_than_memory_allows_is_advised_once_and_never_shortened() {
    let fastest = Wanted { rate_bytes_per_s: 25_000_000_000, rtt_us: 1_000 };
    for (now, advised) in [("1000", Some("131072")), ("131072", None), ("150000", None), ("166667", None)] {
        let mut host = stock();
        set(&mut host, "net.core.netdev_max_backlog", now);
        let advice = advise(&host, fastest);
        assert_eq!(found(&advice, "net.core.netdev_max_backlog").advised.as_deref(), advised, "{now}");
    }
}

/// Amounts of which more is never worse for a path.
const AMOUNTS: [&str; 6] = [
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// A size of any magnitude: as likely 7 as 7 billion.
fn any_amount(max: u64) -> impl Strategy<Value = u64> {
    (0_u32..=max.ilog2(), any::<u64>()).prop_map(move |(bits, random)| (random % (1 << bits)).clamp(1, max))
}

proptest! {
    #[test]
    fn nothing_is_lowered_and_nothing_is_advised_twice(
        amounts in proptest::collection::vec(any_amount(1 << 33), AMOUNTS.len() * 3),
        memory_bytes in any_amount(1 << 42),
        rate_bytes_per_s in any_amount(1 << 37),
        rtt_us in any_amount(10_000_000),
    ) {
        let mut host = stock();
        host.memory_bytes = Some(memory_bytes);
        for (name, amounts) in AMOUNTS.into_iter().zip(amounts.chunks_exact(3)) {
            let words = if name.starts_with("net.ipv4.") { 3 } else { 1 };
            let text: Vec<String> = amounts.iter().take(words).map(u64::to_string).collect();
            set(&mut host, name, &text.join(" "));
        }
        let wanted = Wanted { rate_bytes_per_s, rtt_us };
        let mut tuned = host.clone();
        for (finding, advised) in advise(&host, wanted).changes().filter(|(f, _)| AMOUNTS.contains(&&*f.setting)) {
            let now = host.settings[&finding.setting].numbers().unwrap();
            let then = Setting { value: advised.into(), writable: true }.numbers().unwrap();
            prop_assert_eq!(now.len(), then.len());
            prop_assert!(now.iter().zip(&then).all(|(now, then)| now <= then), "{finding:#?}");
            prop_assert!(now != then, "{finding:#?}");
            set(&mut tuned, &finding.setting, advised);
        }
        let again = advise(&tuned, wanted);
        let again: Vec<_> = again.changes().filter(|(f, _)| AMOUNTS.contains(&&*f.setting)).collect();
        prop_assert!(again.is_empty(), "{again:#?}");
    }
}

#[test]
fn a_host_that_tells_nothing_is_advised_nothing() {
    let advice = advise(&Host { page_bytes: 4096, ..Host::default() }, FAST);
    assert_eq!(advised(&advice), [""; 0]);
    assert!(advice.findings.iter().all(|finding| finding.matters == Matters::NotTold && finding.now.is_none()));
    assert_eq!((advice.now, advice.then), (Reach::default(), Reach::default()));
}

#[test]
fn window_scaling_that_is_off_holds_every_connection() {
    let mut host = stock();
    set(&mut host, "net.ipv4.tcp_window_scaling", "0");
    let advice = advise(&host, LONG);
    assert_eq!(found(&advice, "net.ipv4.tcp_window_scaling").matters, Matters::Yes);
    assert_eq!(advice.now.receiving_one.map(rate_text).as_deref(), Some("2.3 Mbit/s"));
    assert_eq!(advice.then.receiving_one, Some(LONG.rate_bytes_per_s));
}

#[test]
fn what_a_namespace_may_not_change_is_advised_for_its_host() {
    let mut host = stock();
    host.settings.get_mut("net.core.rmem_max").unwrap().writable = false;
    let advice = advise(&host, LONG);
    let finding = found(&advice, "net.core.rmem_max");
    assert_eq!(finding.remedy, Remedy::Sysctl { here: false });
    assert!(finding.why.ends_with("set it on the host."), "{}", finding.why);
}

#[test]
fn a_fast_card_at_the_other_node_with_one_queue_is_told_about() {
    let mut host = stock();
    host.processors = Processors {
        count: 8,
        nodes: [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])].into(),
        governors: vec!["schedutil".to_string()],
    };
    host.interfaces = vec![Interface {
        name: "ens1".into(),
        mtu_bytes: Some(1500),
        speed_bytes_per_s: Some(125_000_000),
        driver: Some("ice".into()),
        receive_queues: 1,
        transmit_queues: 8,
        node: Some(1),
        interrupts: vec![Interrupt { number: 77, processors: vec![0, 1] }],
    }];
    host.disk = Some(Disk {
        directory: "/data".into(),
        write_bytes_per_s: 400_000_000,
        read_bytes_per_s: 2_000_000_000,
        direct: true,
    });
    let advice = advise(&host, FAST);
    let commands: Vec<&str> =
        advice.findings.iter().flat_map(|finding| finding.commands.iter().map(String::as_str)).collect();
    for command in [
        "ip link set dev ens1 mtu 9000",
        "ethtool -L ens1 combined 8",
        "echo 4-7 > /proc/irq/77/smp_affinity_list",
        "cpupower frequency-set -g performance",
        "tc qdisc replace dev ens1 root mq",
    ] {
        assert!(commands.contains(&command), "{command}: {commands:#?}");
    }
    assert_eq!(found(&advice, "ens1 speed").matters, Matters::Yes);
    assert_eq!(found(&advice, "writing /data").matters, Matters::Yes);
    assert_eq!(found(&advice, "reading /data").matters, Matters::Fine);
}

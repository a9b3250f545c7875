//! The advice for a person, a shell and sysctl.d.

use std::fmt::Write as _;

use haul_workbench::tune::{Finding, LANES, Matters, Remedy, Step, rate_text, rtt_text, size_text};

use crate::text::printable::printable;
use crate::text::rows::{command, led, paragraph, table as table_rows};
use crate::tune::seen::{RateFrom, Seen};

/// Settings, values now and advised, with reasons, the most important first.
pub fn table(seen: &Seen) -> String {
    let mut text = heading(seen);
    let findings = &seen.advice.findings;
    for (matters, title) in [
        (Matters::Yes, "Matters: the rate is not reached as it is"),
        (Matters::WouldHelp, "Would help"),
        (Matters::Fine, "Fine"),
    ] {
        let rows: Vec<&Finding> = findings.iter().filter(|finding| finding.matters == matters).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{title}");
        let advised_title = if matters == Matters::Fine { "" } else { "advised" };
        let head = ["setting", "now", advised_title].map(str::to_owned);
        let advised = |row: &Finding| row.advised.as_deref().map(printable).unwrap_or_default();
        let cells = rows.iter().map(|row| [setting(row), now(row), advised(row)]);
        let cells: Vec<_> = std::iter::once(head).chain(cells).collect();
        table_rows(&mut text, "  ", &cells, |text, nth| {
            let Some(row) = nth.checked_sub(1).and_then(|nth| rows.get(nth)) else { return };
            led(text, "      ", &printable(&row.why));
            for of_row in &row.commands {
                command(text, "      $ ", &printable(of_row));
            }
        });
    }
    let untold: Vec<String> =
        findings.iter().filter(|finding| finding.matters == Matters::NotTold).map(setting).collect();
    if !untold.is_empty() {
        let _ = writeln!(text, "\nUnknown on this host");
        led(&mut text, "  ", &untold.join(", "));
    }
    text.push_str(&closing(seen));
    text
}

/// `sysctl -w`; other commands follow as comments, for a person to judge.
pub fn commands(seen: &Seen) -> String {
    let mut text = comment(seen);
    for (finding, value) in seen.advice.changes() {
        let _ = writeln!(text, "sysctl -w {}='{}'", finding.setting, printable(value));
    }
    let mut others = seen.advice.findings.iter().flat_map(|finding| &finding.commands).peekable();
    if others.peek().is_some() {
        text.push_str("# For you to judge:\n");
    }
    for command in others {
        let _ = writeln!(text, "# {}", printable(command));
    }
    text
}

pub fn sysctl(seen: &Seen) -> String {
    let mut text = comment(seen);
    for (finding, value) in seen.advice.changes() {
        text.push('\n');
        led(&mut text, "# ", &printable(&finding.why));
        let _ = writeln!(text, "{} = {}", finding.setting, printable(value));
    }
    text
}

pub fn steps(steps: &[Step], nothing: &str) -> String {
    if steps.is_empty() {
        return format!("{nothing}\n");
    }
    steps.iter().fold(String::new(), |mut text, step| {
        let _ = match step {
            Step::Set { name, from, to } => writeln!(text, "set {name}: {from} -> {to}"),
            Step::Lacking { name, value } => {
                writeln!(text, "left {name}: this kernel lacks the setting, or the value '{value}'")
            }
            Step::Wrote(path) => writeln!(text, "wrote {}", path.display()),
            Step::Removed(path) => writeln!(text, "removed {}", path.display()),
            Step::NotOurs(path) => writeln!(text, "left {}: haul has not written it", path.display()),
        };
        text
    })
}

pub fn left_by_hand(seen: &Seen) -> String {
    let mut text = String::new();
    let findings = seen.advice.findings.iter();
    for finding in findings.clone().filter(|finding| finding.remedy == (Remedy::Sysctl { here: false })) {
        let _ = writeln!(text, "left {}: it cannot be changed from this network namespace", finding.setting);
    }
    for command in findings.flat_map(|finding| &finding.commands) {
        let _ = writeln!(text, "for you to judge: {}", printable(command));
    }
    text
}

fn heading(seen: &Seen) -> String {
    let rate = match &seen.rate_from {
        RateFrom::Typed => "rate as asked".to_owned(),
        RateFrom::Device(name) => format!("rate of {}, the fastest device that is up", printable(name)),
        RateFrom::Default => "rate assumed: no device tells its speed (--rate)".to_owned(),
    };
    let rtt = if seen.rtt_typed { "round trip as asked" } else { "round trip assumed (--rtt)" };
    let under_way = size_text(seen.advice.under_way_bytes);
    let mut text = String::new();
    paragraph(&mut text, "", &format!("For {}: {under_way} are under way when the path is full", path(seen)));
    paragraph(&mut text, "", &format!("({rate}; {rtt})"));
    text
}

fn closing(seen: &Seen) -> String {
    let (now, then) = (&seen.advice.now, &seen.advice.then);
    let lanes = format!("{LANES} lanes");
    let rows = [
        ("one connection, sending", now.sending_one, then.sending_one),
        ("one connection, receiving", now.receiving_one, then.receiving_one),
        (&*format!("{lanes}, sending"), now.sending_lanes, then.sending_lanes),
        (&*format!("{lanes}, receiving"), now.receiving_lanes, then.receiving_lanes),
    ]
    .map(|(what, now, then)| format!("  {what:25}  {:>12}  {:>12}\n", reached(now), reached(then)));
    let mut text = format!("\n{:27}  {:>12}  {:>12}\n", "Within reach", "now", "as advised");
    text.extend(rows);
    text.push('\n');
    paragraph(
        &mut text,
        "",
        match seen.advice.changes().count() {
            0 => "Nothing is to be set.",
            _ => "Set it: haul tune --apply as root (--revert undoes it), or --format sysctl for a file, at both ends.",
        },
    );
    text
}

fn reached(rate: Option<u64>) -> String {
    rate.map_or_else(|| "not told".to_owned(), rate_text)
}

fn comment(seen: &Seen) -> String {
    let mut text = format!("# haul tune, for {}\n", path(seen));
    if seen.advice.changes().next().is_none() {
        text.push_str("# nothing is to be set\n");
    }
    text
}

fn path(seen: &Seen) -> String {
    format!("{} over {}", rate_text(seen.wanted.rate_bytes_per_s), rtt_text(seen.wanted.rtt_us))
}

fn setting(finding: &Finding) -> String {
    printable(&finding.setting)
}

fn now(finding: &Finding) -> String {
    finding.now.as_deref().map(printable).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use haul_workbench::tune::{Host, Interface, Wanted, advise};

    use super::*;
    use crate::text::rows::tests::fits;

    fn seen(settings: &[(&str, &str)]) -> Seen {
        let mut host = Host { page_bytes: 4096, memory_bytes: Some(16 << 30), ..Host::default() };
        for (name, value) in settings {
            let setting = haul_workbench::tune::Setting { value: (*value).to_owned(), writable: true };
            host.settings.insert((*name).to_owned(), setting);
        }
        host.interfaces = vec![Interface { name: "eth0".into(), mtu_bytes: Some(1500), ..Interface::default() }];
        let wanted = Wanted { rate_bytes_per_s: 125_000_000, rtt_us: 228_000 };
        let advice = advise(&host, wanted);
        Seen { wanted, rate_from: RateFrom::Typed, rtt_typed: false, host, advice }
    }

    const STOCK: [(&str, &str); 3] = [
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_sack", "1"),
    ];

    #[test]
    fn a_person_reads_what_matters_with_its_arithmetic() {
        fits(&table(&seen(&STOCK)));
        fits(&sysctl(&seen(&STOCK)));
        insta::assert_snapshot!("tune_table", table(&seen(&STOCK)));
    }

    #[test]
    fn a_shell_and_sysctl_read_lines() {
        insta::assert_snapshot!(commands(&seen(&STOCK)), @r"
        # haul tune, for 1 Gbit/s over 228 ms
        sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864'
        sysctl -w net.ipv4.tcp_wmem='4096 16384 67108864'
        ");
        insta::assert_snapshot!(sysctl(&seen(&STOCK[..1])), @r"
        # haul tune, for 1 Gbit/s over 228 ms

        # 1 Gbit/s x 228 ms = 28.5 MB under way; about half of a receive buffer is
        # window, the rest the kernel counts for itself: 2 x 28.5 MB = 57 MB. Now
        # 3.15 MB of window hold one connection to 110 Mbit/s. Advised: up to 64 MiB.
        net.ipv4.tcp_rmem = 4096 131072 67108864
        ");
        insta::assert_snapshot!(sysctl(&seen(&STOCK[2..])), @r"
        # haul tune, for 1 Gbit/s over 228 ms
        # nothing is to be set
        ");
    }

    #[test]
    fn commands_for_several_uplinks_are_for_a_person_to_judge() {
        let uplink = |device: &str, net: u8| haul_workbench::tune::Uplink {
            device: device.into(),
            local: [10, net, 0, 5].into(),
            prefix_len: 24,
            router: Some([10, net, 0, 1].into()),
            leaves_by: Some("eth0".into()),
            reverse_path_filter: Some(1),
        };
        let seen = seen(&[("net.mptcp.enabled", "1")]);
        let multipath = haul_workbench::tune::Multipath {
            subflows: 2,
            accepted_addresses: 0,
            endpoints: Some(vec![[10, 1, 0, 5].into()]),
        };
        let uplinks = vec![uplink("eth0", 1), uplink("eth1", 2)];
        let host = Host { uplinks, multipath: Some(multipath), ..seen.host };
        let advice = advise(&host, seen.wanted);
        insta::assert_snapshot!(commands(&Seen { host, advice, ..seen }), @r"
        # haul tune, for 1 Gbit/s over 228 ms
        # nothing is to be set
        # For you to judge:
        # ip route add 10.2.0.0/24 dev eth1 table 102
        # ip route add default via 10.2.0.1 dev eth1 table 102
        # ip rule add from 10.2.0.5 table 102
        # sysctl -w net/ipv4/conf/eth1/rp_filter=2
        # ip mptcp limits set subflows 2 add_addr_accepted 1
        # ip mptcp endpoint add 10.2.0.5 dev eth1 subflow signal
        ");
    }

    #[test]
    fn each_change_is_a_line() {
        let done = [
            Step::Set { name: "net.ipv4.tcp_sack".into(), from: "0".into(), to: "1".into() },
            Step::Lacking { name: "net.core.default_qdisc".into(), value: "fq".into() },
            Step::Wrote("/etc/sysctl.d/90-haul.conf".into()),
        ];
        insta::assert_snapshot!(steps(&done, "nothing"), @r"
        set net.ipv4.tcp_sack: 0 -> 1
        left net.core.default_qdisc: this kernel lacks the setting, or the value 'fq'
        wrote /etc/sysctl.d/90-haul.conf
        ");
        assert_eq!(steps(&[], "nothing"), "nothing\n");
    }
}

//! Several interfaces at once: does each carry its own packets, and may one connection use all of them (MPTCP)?
//!
//! A host with one uplink has nothing of this to set.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use super::finding::{Finding, Matters};
use super::host::{Host, Multipath, Uplink};

pub(super) fn findings(host: &Host) -> Vec<Finding> {
    let devices: BTreeSet<&str> = host.uplinks.iter().map(|uplink| uplink.device.as_str()).collect();
    if devices.len() < 2 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for uplink in &host.uplinks {
        let number = devices.iter().position(|device| *device == uplink.device).unwrap_or_default();
        findings.push(route(uplink, FIRST_TABLE + number));
        findings.extend(reverse_path(uplink));
    }
    findings.extend(multipath(host, devices.len()));
    findings
}

fn route(uplink: &Uplink, table: usize) -> Finding {
    let Uplink { device, local, prefix_len, .. } = uplink;
    let setting = format!("packets from {local}");
    let now = match &uplink.leaves_by {
        Some(by) => format!("leave by {by}"),
        None => "have no route".into(),
    };
    if !uplink.is_astray() {
        return Finding::fine(&setting, now, format!("{device} has this address."));
    }
    let mut why = format!(
        "{device} has this address. By another device its packets share that device's rate, and a router that checks \
         sources drops them. A table of its own routes them by their source."
    );
    let router = match uplink.router {
        Some(router) => router.to_string(),
        None => {
            why.push_str(&format!(
                " This host knows no router behind {device}: write its address for ROUTER. Without a router, {device} \
                 reaches its own network only."
            ));
            "ROUTER".into()
        }
    };
    let ip = if local.is_ipv4() { "ip" } else { "ip -6" };
    let network = network(*local, *prefix_len);
    Finding::by_hand(&setting, now, Some(format!("leave by {device}")), Matters::WouldHelp, why)
        .command(format!("{ip} route add {network} dev {device} table {table}"))
        .command(format!("{ip} route add default via {router} dev {device} table {table}"))
        .command(format!("{ip} rule add from {local} table {table}"))
}

/// Strict filters drop answers that tables send elsewhere.
fn reverse_path(uplink: &Uplink) -> Option<Finding> {
    let Uplink { device, local, .. } = uplink;
    let now = uplink.reverse_path_filter?;
    let setting = format!("net.ipv4.conf.{device}.rp_filter");
    if now != STRICT || !uplink.is_astray() {
        return Some(Finding::fine(&setting, now.to_string(), format!("Answers to {local} arrive at {device}.")));
    }
    let why = format!(
        "1 drops packets that arrive at {device} when the route back leads through another device (RFC 3704): no \
         connection from {local} over {device} gets an answer. 2 asks for any route back. The rule for packets from \
         {local} helps as well."
    );
    // Dots within a name become slashes (sysctl(8)).
    let command = format!("sysctl -w net/ipv4/conf/{device}/rp_filter={LOOSE}");
    Some(Finding::by_hand(&setting, now.to_string(), Some(LOOSE.to_string()), Matters::WouldHelp, why).command(command))
}

fn multipath(host: &Host, devices: usize) -> Vec<Finding> {
    let why = "MPTCP lets one connection use all interfaces (--transport mptcp), where a firewall allows only one.";
    let Some(setting) = host.settings.get(MPTCP) else {
        return Vec::from([Finding::not_told(MPTCP, why)]);
    };
    let switch = match host.number(MPTCP) {
        Some(0) => Finding::sysctl(MPTCP, setting, "1".into(), Matters::WouldHelp, why.into()),
        _ => Finding::fine(MPTCP, &*setting.value, why),
    };
    let Some(multipath) = &host.multipath else {
        return Vec::from([switch, Finding::not_told("ip mptcp limits", why)]);
    };
    Vec::from([switch, limits(multipath, devices), endpoints(multipath, &host.uplinks)])
}

fn limits(now: &Multipath, devices: usize) -> Finding {
    let others = u32::try_from(devices - 1).unwrap_or(u32::MAX).min(PATHS_MAX);
    let subflows = others.saturating_mul(2).min(PATHS_MAX).max(now.subflows);
    let accepted = others.max(now.accepted_addresses);
    let text = |subflows, accepted| format!("subflows {subflows}, add_addr_accepted {accepted}");
    let is = text(now.subflows, now.accepted_addresses);
    let why = format!(
        "--transport mptcp: {devices} interfaces here can add {others} to the first path of a connection, and a peer \
         with as many announces {others} more. The kernel allows {PATHS_MAX} at most."
    );
    match (subflows, accepted) == (now.subflows, now.accepted_addresses) {
        true => Finding::fine("ip mptcp limits", is, why),
        false => Finding::by_hand("ip mptcp limits", is, Some(text(subflows, accepted)), Matters::WouldHelp, why)
            .command(format!("ip mptcp limits set subflows {subflows} add_addr_accepted {accepted}")),
    }
}

fn endpoints(now: &Multipath, uplinks: &[Uplink]) -> Finding {
    let setting = "ip mptcp endpoint";
    let why = "--transport mptcp: connections add a path from each endpoint (subflow), and tell peers of it (signal).";
    let Some(endpoints) = &now.endpoints else {
        return Finding::not_told(setting, why);
    };
    let has_one = |device: &str| {
        let mut of_device = uplinks.iter().filter(|uplink| uplink.device == device);
        of_device.any(|uplink| endpoints.contains(&uplink.local))
    };
    let mut missing: Vec<&Uplink> = Vec::new();
    for uplink in uplinks {
        if !has_one(&uplink.device) && missing.iter().all(|other| other.device != uplink.device) {
            missing.push(uplink);
        }
    }
    let is = match endpoints.is_empty() {
        true => "none".into(),
        false => listed(endpoints),
    };
    if missing.is_empty() {
        return Finding::fine(setting, is, why);
    }
    let more: Vec<IpAddr> = missing.iter().map(|uplink| uplink.local).collect();
    let finding = Finding::by_hand(setting, is, Some(format!("also {}", listed(&more))), Matters::WouldHelp, why);
    missing.iter().fold(finding, |finding, Uplink { device, local, .. }| {
        finding.command(format!("ip mptcp endpoint add {local} dev {device} subflow signal"))
    })
}

impl Uplink {
    fn is_astray(&self) -> bool {
        self.leaves_by.as_deref() != Some(self.device.as_str())
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// `10.2.0.5` of 24 bits is in `10.2.0.0/24`.
pub(super) fn network(ip: IpAddr, prefix_len: u8) -> String {
    let first: IpAddr = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix_len.into())).unwrap_or(0);
            core::net::Ipv4Addr::from(u32::from(ip) & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix_len.into())).unwrap_or(0);
            core::net::Ipv6Addr::from(u128::from(ip) & mask).into()
        }
    };
    format!("{first}/{prefix_len}")
}

const MPTCP: &str = "net.mptcp.enabled";

/// MPTCP_PM_ADDR_MAX of the kernel.
const PATHS_MAX: u32 = 8;

/// The strict value of `rp_filter` (RFC 3704).
const STRICT: u8 = 1;
const LOOSE: u8 = 2;

/// 253 to 255 are the kernel's tables (ip-route(8)).
const FIRST_TABLE: usize = 101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_written_as_routes_have_it() {
        let of = |ip: &str, prefix_len| network(ip.parse().unwrap(), prefix_len);
        assert_eq!(of("10.2.3.5", 24), "10.2.3.0/24");
        assert_eq!(of("10.2.3.5", 32), "10.2.3.5/32");
        assert_eq!(of("10.2.3.5", 0), "0.0.0.0/0");
        assert_eq!(of("2001:db8:1::7", 64), "2001:db8:1::/64");
    }
}

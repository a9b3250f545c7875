//! The two hosts of a copy or probe, side by side.

use crate::report::json::HostLine;
use crate::text::figures::bytes;
use crate::text::printable::printable;
use crate::text::rows;

pub fn side_by_side(text: &mut String, label: &str, left: &HostLine, right: &HostLine, with_limits: bool) {
    let mut pair = |label: &str, of: &dyn Fn(&HostLine) -> String| {
        rows::pair(text, label, &[of(left), of(right)]);
    };
    let known = |n: u64, text: String| if n == 0 { "unknown".to_owned() } else { text };
    let size = |n: u64| known(n, bytes(n));
    pair(label, &|host| printable(&host.place));
    pair("processors", &|host| known(host.cpus.into(), host.cpus.to_string()));
    if !with_limits {
        return;
    }
    pair("tcp_rmem, largest", &|host| size(host.tcp_rmem_max_bytes));
    pair("tcp_wmem, largest", &|host| size(host.tcp_wmem_max_bytes));
    pair("rmem_max", &|host| size(host.rmem_max_bytes));
    pair("wmem_max", &|host| size(host.wmem_max_bytes));
    pair("congestion control", &|host| printable(&host.congestion_control));
    pair("others allowed", &|host| {
        let others = host.allowed_congestion_controls.iter().filter(|name| **name != host.congestion_control);
        let others: Vec<String> = others.map(printable).collect();
        if others.is_empty() { "none".to_owned() } else { others.join(" ") }
    });
}

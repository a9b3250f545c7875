//! The network classes for a person.

use std::fmt::Write as _;

use haul_transfer::networks_shown::{OneAddress, ShownValue, Table, ValueSource};

use crate::text::printable::printable;

pub fn table(table: &Table) -> String {
    let mut text = String::new();
    for class in &table.classes {
        let source = match &class.file {
            Some(file) => printable(file.as_os_str().as_encoded_bytes()),
            None => "built in".to_owned(),
        };
        let _ = writeln!(text, "{}  ({source})", class.name);
        let members = class.members.join(", ");
        let _ = writeln!(text, "  {:<24}{members}", "holds for");
        for ShownValue { key, value, .. } in &class.values {
            let _ = writeln!(text, "  {key:<24}{}", value.as_deref().unwrap_or_default());
        }
    }
    let own = if table.own_subnets.is_empty() { "none".to_owned() } else { table.own_subnets.join(", ") };
    let _ = writeln!(text, "the subnets of this host: {own}");
    text
}

pub fn address(shown: &OneAddress) -> String {
    let mut text = format!("{} is in class {} ({})\n", shown.address, shown.class, shown.fits);
    if shown.by_distance {
        text += "a measured round trip may put it into near or far: --rtt tells which\n";
    }
    for ShownValue { key, value, source, granted, short } in &shown.values {
        let value = value.as_deref().unwrap_or("-");
        let granted = match granted.as_deref() {
            Some(granted) if granted == value => "granted".to_owned(),
            Some(granted) => format!("kernel: {granted}"),
            None => String::new(),
        };
        let line = format!("  {key:<24}{value:<28}{granted:<28}{}", origin(source));
        let _ = writeln!(text, "{}", line.trim_end());
        if let Some(why) = short {
            let _ = writeln!(text, "  {:<24}{why}", "");
        }
    }
    if !shown.route.is_empty() {
        let words = shown.route.join(" ");
        let _ = writeln!(
            text,
            "only the route can do this: sudo ip route change ROUTE {words}\n  ROUTE is the line of `ip route` for {}",
            shown.address
        );
    }
    text
}

fn origin(source: &ValueSource) -> String {
    match source {
        ValueSource::File { class, file, line } => {
            format!("{}:{line} ({class})", printable(file.as_os_str().as_encoded_bytes()))
        }
        ValueSource::BuiltIn { class } => format!("built in ({class})"),
        ValueSource::Haul => "haul, for data".to_owned(),
        ValueSource::Kernel => "kernel".to_owned(),
    }
}

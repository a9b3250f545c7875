//! Shows a person the network classes of this host, and all that holds for one address.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use haul_net::policy::{ClassList, ClassValue, Fits, Found, NetworkClass, Networks};
use haul_net::{Policies, policy};

/// The host's classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Classes of operator, user, and built in.
    pub classes: Vec<ShownClass>,
    /// Own subnets.
    pub own_subnets: Vec<String>,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownClass {
    /// The name.
    pub name: String,
    /// The file; `None`: built in.
    pub file: Option<PathBuf>,
    /// Networks, interfaces, or a condition.
    pub members: Vec<String>,
    /// The values.
    pub values: Vec<ShownValue>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownValue {
    /// Key of a file, or option of a socket.
    pub key: String,
    /// Wanted value.
    pub value: Option<String>,
    /// The origin.
    pub source: ValueSource,
    /// Kernel's grant.
    pub granted: Option<String>,
    /// Reason for less.
    pub short: Option<String>,
}

/// A value's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A file of classes.
    File {
        /// The class.
        class: String,
        /// The path.
        file: PathBuf,
        /// The line.
        line: usize,
    },
    /// A built-in class.
    BuiltIn {
        /// The class.
        class: String,
    },
    /// Haul itself.
    Haul,
    /// The kernel.
    Kernel,
}

/// All that holds for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneAddress {
    /// The address.
    pub address: IpAddr,
    /// The class.
    pub class: String,
    /// The reason.
    pub fits: String,
    /// Whether round trips can change it.
    pub by_distance: bool,
    /// The values.
    pub values: Vec<ShownValue>,
    /// Words for `ip route change`.
    pub route: Vec<String>,
}

/// Makes the table.
pub fn table(networks: &Networks) -> Table {
    let of_list = |list: &ClassList| -> Vec<ShownClass> {
        list.classes().iter().map(|class| shown_class(class, list.members_of(&class.name))).collect()
    };
    let classes = networks.lists().iter().flat_map(of_list).collect();
    Table { classes, own_subnets: networks.own().subnets().iter().map(ToString::to_string).collect() }
}

fn shown_class(class: &NetworkClass, mut members: Vec<String>) -> ShownClass {
    members.extend(policy::class::holds_for(&class.name).map(str::to_owned));
    let shown = |value: ClassValue| ShownValue {
        source: source(class, value.key),
        key: value.key.to_owned(),
        value: Some(value.text),
        granted: None,
        short: None,
    };
    let values = class.values().into_iter().map(shown).collect();
    ShownClass { name: class.name.clone(), file: class.file.as_deref().map(PathBuf::from), members, values }
}

fn source(class: &NetworkClass, key: &str) -> ValueSource {
    match &class.file {
        Some(file) => ValueSource::File {
            class: class.name.clone(),
            file: PathBuf::from(&**file),
            line: class.line_of(key).unwrap_or_default(),
        },
        None => ValueSource::BuiltIn { class: class.name.clone() },
    }
}

/// Finds what holds, and what the kernel grants. `rtt_us`: a known round trip.
pub fn of_address(networks: Networks, address: IpAddr, rtt_us: Option<u32>) -> io::Result<OneAddress> {
    let policies = Policies::new(networks);
    let networks = policies.networks();
    let mut peer = networks.peer_at(address);
    peer.rtt_us = rtt_us;
    let found = networks.find(&peer);
    let tried = policies.tried(&found, address)?;
    let mut values = asked_values(&found);
    let mut route = Vec::new();
    for value in &mut values {
        let Some(option) = value.option else { continue };
        let Some(setting) = tried.settings.iter().find(|setting| setting.what == option) else { continue };
        value.shown.granted = Some(setting.granted.clone());
        let is_granted = !setting.refused;
        value.shown.short = (!is_granted).then(|| setting.reason.clone());
        if !is_granted && value.shown.key == "rto-min-ms" {
            route.push(format!("rto_min {}", setting.asked.replace(' ', "")));
        }
    }
    let named = |name: &str| values.iter().any(|value| value.option == Some(name));
    let of_haul = tried.settings.iter().filter(|setting| !named(setting.what)).map(|setting| ShownValue {
        key: setting.what.to_owned(),
        value: Some(setting.asked.clone()),
        source: ValueSource::Haul,
        granted: Some(setting.granted.clone()),
        short: setting.refused.then(|| setting.reason.clone()),
    });
    let asked_for = |name: &str| tried.settings.iter().any(|setting| setting.what == name);
    let of_kernel = tried.in_effect.iter().filter(|(name, _)| !asked_for(name)).map(|(name, value)| ShownValue {
        key: (*name).to_owned(),
        value: None,
        source: ValueSource::Kernel,
        granted: Some(value.clone()),
        short: None,
    });
    let rest: Vec<ShownValue> = of_haul.chain(of_kernel).collect();
    let window = found.classes().iter().find_map(|found| found.class.initial_window);
    route.extend(window.map(|segments| format!("initcwnd {segments}")));
    let first = found.first();
    Ok(OneAddress {
        address,
        class: first.map(|first| first.class.name.clone()).unwrap_or_default(),
        fits: first.map(|first| first.fits.to_string()).unwrap_or_default(),
        by_distance: rtt_us.is_none()
            && first.is_none_or(|first| first.fits == Fits::Rest)
            && networks.asks_for_distance(),
        values: values.into_iter().map(|value| value.shown).chain(rest).collect(),
        route,
    })
}

struct AskedValue {
    shown: ShownValue,
    option: Option<&'static str>,
}

/// The first class with a key counts; of limits, the narrowest.
fn asked_values(found: &Found) -> Vec<AskedValue> {
    let mut values: Vec<AskedValue> = Vec::new();
    let held = NetworkClass { terms: found.terms(), ..NetworkClass::default() }.values();
    for found in found.classes() {
        for ClassValue { key, text, option } in found.class.values() {
            let is_known = values.iter().any(|value| value.shown.key == key);
            let is_wider = option.is_none() && held.iter().any(|held| held.key == key && held.text != text);
            if !is_known && !is_wider {
                let source = source(&found.class, key);
                let (granted, short) = (None, None);
                let shown = ShownValue { key: key.to_owned(), value: Some(text), source, granted, short };
                values.push(AskedValue { shown, option });
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use haul_net::policy::OwnNetworks;

    use super::*;
    use crate::network_classes::parse;

    fn networks(texts: &[(&str, &str)]) -> Networks {
        let lists = texts.iter().map(|(name, text)| parse(text, Path::new(name)).unwrap()).collect();
        Networks::of(lists, OwnNetworks::default())
    }

    #[test]
    fn every_value_of_an_address_has_its_source_and_what_the_kernel_gave() {
        let site = "[class.inside]\nnetworks = [\"203.0.113.0/24\"]\nuser-timeout-s = 7\nconnections = 9\ninitial-window = 20\n";
        let own = "[class.mine]\nnetworks = [\"203.0.113.0/25\"]\nconnections = 3\nuser-timeout-s = 8\ndscp = 10\n";
        let shown =
            of_address(networks(&[("a.toml", site), ("b.toml", own)]), "203.0.113.5".parse().unwrap(), None).unwrap();
        assert_eq!((shown.class.as_str(), shown.fits.as_str()), ("inside", "203.0.113.0/24"));
        assert_eq!(shown.route, ["initcwnd 20"]);
        let of = |key: &str| {
            let value = shown.values.iter().find(|value| value.key == key).unwrap_or_else(|| panic!("{shown:#?}"));
            let file = match &value.source {
                ValueSource::File { file, line, .. } => format!("{}:{line}", file.display()),
                other => format!("{other:?}"),
            };
            (file, value.value.clone().unwrap_or_default(), value.granted.clone().unwrap_or_default())
        };
        let told = |file: &str, value: &str, granted: &str| (file.to_owned(), value.to_owned(), granted.to_owned());
        assert_eq!(of("user-timeout-s"), told("a.toml:3", "7000 ms", "7000 ms"));
        assert_eq!(of("connections"), told("b.toml:3", "3", ""), "the narrower");
        assert_eq!(of("dscp"), told("b.toml:5", "10", "10"));
        assert_eq!(of("keepalive").0, "Haul");
        assert_eq!(of("congestion control").0, "Kernel");
    }

    #[test]
    fn the_table_has_the_built_in_classes_last() {
        let table = table(&networks(&[("a.toml", "[class.far]\nwrite = false\n")]));
        let names: Vec<&str> = table.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["far", "loopback", "local", "rest"]);
        assert!(table.classes[0].members[0].contains("round trip"), "{table:?}");
    }
}

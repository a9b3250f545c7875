//! What a session, the keeper of its hooks, and the hooks say to each other: JSON, one object a line.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use haul_net::Way;
use serde::{Deserialize, Serialize};

/// From a session to the keeper of its hooks, and what is kept of it. It names no program: the policy in force does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The path, which the answer names.
    pub(crate) path: u16,
    pub(crate) request: Request,
}

/// What a hook reads from its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) event: Event,
    /// The class that is asked for, or given back.
    pub(crate) class: String,
    /// Number of the path in its session.
    pub(crate) path: u16,
    /// Addresses of the ends, the sender's first; empty: unknown.
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Null: as much as there is.
    pub(crate) rate_bytes_per_s: Option<u64>,
    /// Until so many seconds after the epoch; null: until it is released.
    pub(crate) until_unix_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    Raise,
    Release,
}

/// What a hook writes to its standard output. Nothing, and exit status 0, means: granted as asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) granted: bool,
    /// Another rate than was asked for.
    pub(crate) rate_bytes_per_s: Option<u64>,
    /// The address of this host to send from.
    pub(crate) local: Option<String>,
    /// Ports to send from, first and last.
    pub(crate) ports: Option<(u16, u16)>,
    /// For people.
    pub(crate) reason: Option<String>,
}

/// Where connections have to leave this host for what was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outlet {
    address: Option<IpAddr>,
    ports: Option<(u16, u16)>,
}

impl Answer {
    /// Where the connections have to leave. An error: what it says is no address.
    pub(crate) fn outlet(&self) -> Result<Outlet, String> {
        let parse = |text: &String| text.parse::<IpAddr>().map_err(|_| format!("'{text}' is no address to send from"));
        let address = self.local.as_ref().map(parse).transpose()?.map(|address| address.to_canonical());
        match self.ports {
            Some((first, last)) if first == 0 || first > last => {
                Err(format!("{first} to {last} are no ports to send from"))
            }
            ports => Ok(Outlet { address, ports }),
        }
    }
}

impl Outlet {
    /// Every connection leaves there.
    pub(crate) fn is_anywhere(&self) -> bool {
        *self == Self::default()
    }

    /// This way, but leaving there. Another address may be of another device.
    pub(crate) fn way(&self, way: &Way) -> Way {
        let keeps_device = self.address.is_none() || self.address == way.local;
        Way {
            local: self.address.or(way.local),
            ports: self.ports,
            device: way.device.clone().filter(|_| keeps_device),
            ..way.clone()
        }
    }

    /// A connection with this end here leaves there.
    pub(crate) fn has(&self, end: Option<SocketAddr>) -> bool {
        let is_address = |end: SocketAddr| self.address.is_none_or(|address| address == end.ip().to_canonical());
        let is_port = |end: SocketAddr| self.ports.is_none_or(|(first, last)| (first..=last).contains(&end.port()));
        self.is_anywhere() || end.is_some_and(|end| is_address(end) && is_port(end))
    }
}

impl fmt::Display for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.map_or_else(|| "any address".to_owned(), |address| address.to_string());
        match self.ports {
            Some((first, last)) => write!(f, "{address}, ports {first} to {last}"),
            None => f.write_str(&address),
        }
    }
}

/// From the keeper to the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) path: u16,
    pub(crate) event: Event,
    pub(crate) answer: Answer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_leave_where_the_grant_holds_are_told_from_others() {
        let outlet = |json: &str| serde_json::from_str::<Answer>(json).unwrap().outlet().unwrap();
        let end = |text: &str| Some(text.parse().unwrap());
        let anywhere = outlet(r#"{"granted":true}"#);
        assert!(anywhere.has(None) && anywhere.has(end("10.0.0.1:5")));
        let address = outlet(r#"{"granted":true,"local":"10.0.0.1"}"#);
        assert!(address.has(end("10.0.0.1:5")) && address.has(end("[::ffff:10.0.0.1]:5")));
        assert!(!address.has(end("10.0.0.2:5")) && !address.has(None));
        let both = outlet(r#"{"granted":true,"local":"2001:db8::1","ports":[50000,50010]}"#);
        assert!(both.has(end("[2001:db8::1]:50010")) && !both.has(end("[2001:db8::1]:50011")));
        assert_eq!(both.to_string(), "2001:db8::1, ports 50000 to 50010");
        let nonsense = serde_json::from_str::<Answer>(r#"{"granted":true,"local":"vlan7"}"#).unwrap();
        assert_eq!(nonsense.outlet(), Err("'vlan7' is no address to send from".to_owned()));
        let nonsense = serde_json::from_str::<Answer>(r#"{"granted":true,"ports":[9,8]}"#).unwrap();
        assert_eq!(nonsense.outlet(), Err("9 to 8 are no ports to send from".to_owned()));
    }

    #[test]
    fn a_way_leaves_where_the_grant_holds_and_by_the_device_of_that_address() {
        let outlet = |json: &str| serde_json::from_str::<Answer>(json).unwrap().outlet().unwrap();
        let device = Some("eth1".parse().unwrap());
        let way = Way { local: Some("10.0.0.1".parse().unwrap()), device, ..Way::default() };
        let ports = outlet(r#"{"granted":true,"ports":[50000,50010]}"#).way(&way);
        assert_eq!(ports, Way { ports: Some((50_000, 50_010)), ..way.clone() });
        let other = outlet(r#"{"granted":true,"local":"10.0.0.7"}"#).way(&way);
        assert_eq!(other, Way { local: Some("10.0.0.7".parse().unwrap()), ..Way::default() });
    }
}

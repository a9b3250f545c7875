//! Defines the messages of a session, its keeper of hooks, and hooks: JSON, one object a line.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use haul_net::Way;
use serde::{Deserialize, Serialize};

/// A session's order, which the keeper keeps. Only the policy in force names programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The path.
    pub path: u16,
    /// The request.
    pub request: Request,
}

/// A hook's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The call.
    pub event: Event,
    /// The class.
    pub class: String,
    /// The path.
    pub path: u16,
    /// Sender's address; empty: unknown.
    pub local: String,
    /// Far end, as typed.
    pub remote: String,
    /// Rate; null: no limit.
    pub rate_bytes_per_s: Option<u64>,
    /// End in seconds after the epoch; null: until released.
    pub until_unix_s: Option<u64>,
}

/// A hook's two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// Asks for the class.
    Raise,
    /// Gives the class back.
    Release,
}

/// A hook's standard output. None and exit status 0: granted as asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Whether the class is granted.
    pub granted: bool,
    /// The granted rate, if another.
    pub rate_bytes_per_s: Option<u64>,
    /// The address to send from.
    pub local: Option<String>,
    /// Ports to send from.
    pub ports: Option<(u16, u16)>,
    /// The reason, for people.
    pub reason: Option<String>,
}

/// Where connections leave with the grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    address: Option<IpAddr>,
    ports: Option<(u16, u16)>,
}

impl Answer {
    /// Tells where they leave.
    ///
    /// # Errors
    /// The answer's address or ports are invalid.
    pub fn outlet(&self) -> Result<Outlet, String> {
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
    /// Whether any place will do.
    pub fn is_anywhere(&self) -> bool {
        *self == Self::default()
    }

    /// Makes a way leave there. Another address may belong to another device.
    pub fn way(&self, way: &Way) -> Way {
        let keeps_device = self.address.is_none() || self.address == way.local;
        Way {
            local: self.address.or(way.local),
            ports: self.ports,
            device: way.device.clone().filter(|_| keeps_device),
            ..way.clone()
        }
    }

    /// Whether a connection leaves there.
    pub fn has(&self, end: Option<SocketAddr>) -> bool {
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

/// The keeper's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The path.
    pub path: u16,
    /// The call.
    pub event: Event,
    /// The answer.
    pub answer: Answer,
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

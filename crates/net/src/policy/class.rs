//! One network class: how connections of some networks are treated.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::options::{
    CongestionControl, DelayedAckMax, Dscp, Keepalive, Pacing, RtoMax, RtoMin, Setting as _, UserTimeout,
};
use super::values::Policy;
use crate::cipher::Cipher;

/// The options and terms of some networks. `None` leaves a value to the next list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkClass {
    /// The name.
    pub name: String,
    /// The options of its connections.
    pub policy: Policy,
    /// The terms of its connections.
    pub terms: Terms,
    /// Segments of a first flight, for the route.
    pub initial_window: Option<u16>,
    /// The file that has it; `None`: built in.
    pub file: Option<Arc<Path>>,
    /// The line of each key in that file.
    pub lines: Vec<(&'static str, usize)>,
}

/// The terms of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// A session's data connections.
    pub lanes: Option<u16>,
    /// The weakest protection of data.
    pub cipher: Option<CipherFloor>,
    /// The rate of the whole class.
    pub rate_bytes_per_s: Option<u64>,
    /// The rate of one address.
    pub rate_per_address_bytes_per_s: Option<u64>,
    /// Connections at once.
    pub connections: Option<u32>,
    /// Connections of one address at once.
    pub connections_per_address: Option<u32>,
    /// Files of this host may be read.
    pub read: Option<bool>,
    /// Files of this host may be written.
    pub write: Option<bool>,
}

/// The weakest protection of data that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CipherFloor {
    /// Data may go in clear, if the client's key allows it, too.
    Clear,
    /// Any cipher of TLS 1.3.
    Any,
    /// A key of 256 bits.
    Bits256,
}

impl CipherFloor {
    /// Each value with its word.
    pub const WORDS: [(&'static str, CipherFloor); 3] =
        [("none", CipherFloor::Clear), ("any", CipherFloor::Any), ("256", CipherFloor::Bits256)];

    /// Whether this cipher, or none, is strong enough.
    pub fn allows(self, cipher: Option<Cipher>) -> bool {
        match self {
            CipherFloor::Clear => true,
            CipherFloor::Any => cipher.is_some(),
            CipherFloor::Bits256 => matches!(cipher, Some(Cipher::Aes256Gcm | Cipher::Chacha20Poly1305)),
        }
    }
}

impl fmt::Display for CipherFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = CipherFloor::WORDS.iter().find(|(_, floor)| floor == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}

impl Terms {
    /// The terms that both allow.
    pub fn and(self, other: Terms) -> Terms {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Terms {
            lanes: least(self.lanes, other.lanes),
            cipher: self.cipher.max(other.cipher),
            rate_bytes_per_s: least(self.rate_bytes_per_s, other.rate_bytes_per_s),
            rate_per_address_bytes_per_s: least(self.rate_per_address_bytes_per_s, other.rate_per_address_bytes_per_s),
            connections: least(self.connections, other.connections),
            connections_per_address: least(self.connections_per_address, other.connections_per_address),
            read: least(self.read, other.read),
            write: least(self.write, other.write),
        }
    }

    /// Whether files of this host may be read.
    pub fn may_read(&self) -> bool {
        self.read != Some(false)
    }

    /// Whether files of this host may be written.
    pub fn may_write(&self) -> bool {
        self.write != Some(false)
    }
}

/// A value of a class, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassValue {
    /// The key in a file of classes.
    pub key: &'static str,
    /// The value with its unit.
    pub text: String,
    /// The socket option in reports, if it is one.
    pub option: Option<&'static str>,
}

impl NetworkClass {
    /// The line of a key in the file of this class.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        self.lines.iter().find(|(known, _)| *known == key).map(|(_, line)| *line)
    }

    /// All its values, in the order of the documentation.
    pub fn values(&self) -> Vec<ClassValue> {
        let Policy { rto_min, rto_max, delayed_ack_max, user_timeout, keepalive, .. } = &self.policy;
        let Policy { congestion_control, pacing, dscp, .. } = &self.policy;
        let terms = &self.terms;
        let mut values = Vec::new();
        let mut add = |key, option, text: Option<String>| {
            values.extend(text.map(|text| ClassValue { key, text, option }));
        };
        let rate = |rate: Option<u64>| rate.map(|rate| format!("at most {rate} bytes/s"));
        let yes_or_no = |yes: Option<bool>| yes.map(|yes| if yes { "yes" } else { "no" }.to_owned());
        let count = |count: Option<u32>| count.map(|count| count.to_string());
        add("rto-min-ms", Some(RtoMin::NAME), rto_min.map(|value| value.to_string()));
        add("rto-max-ms", Some(RtoMax::NAME), rto_max.map(|value| value.to_string()));
        add("delayed-ack-max-ms", Some(DelayedAckMax::NAME), delayed_ack_max.map(|value| value.to_string()));
        add("user-timeout-s", Some(UserTimeout::NAME), user_timeout.map(|value| value.to_string()));
        add("keepalive-s", Some(Keepalive::NAME), keepalive.map(|value| value.to_string()));
        add("initial-window", None, self.initial_window.map(|segments| format!("{segments} segments")));
        add(
            "congestion-control",
            Some(CongestionControl::NAME),
            congestion_control.as_ref().map(|value| value.to_string()),
        );
        add("pacing-mbit", Some(Pacing::NAME), pacing.map(|value| value.to_string()));
        add("dscp", Some(Dscp::NAME), dscp.map(|value| value.to_string()));
        add("lanes", None, terms.lanes.map(|lanes| lanes.to_string()));
        add("cipher", None, terms.cipher.map(|floor| floor.to_string()));
        add("rate-mbit", None, rate(terms.rate_bytes_per_s));
        add("rate-per-address-mbit", None, rate(terms.rate_per_address_bytes_per_s));
        add("connections", None, count(terms.connections));
        add("connections-per-address", None, count(terms.connections_per_address));
        add("read", None, yes_or_no(terms.read));
        add("write", None, yes_or_no(terms.write));
        values
    }

    /// The classes without a file: a host's own networks send again sooner.
    pub(super) fn built_in() -> [NetworkClass; 3] {
        let of = |name: &str, policy| NetworkClass { name: name.to_owned(), policy, ..NetworkClass::default() };
        let soon = Policy { rto_min: Some(RtoMin(NEAR_RTO_MIN)), ..Policy::default() };
        [of(LOOPBACK, soon.clone()), of(LOCAL, soon), of(REST, Policy::default())]
    }
}

/// Linux delays an acknowledgement by 40 ms or more (`TCP_DELACK_MIN`), in jiffies of up to 10 ms. A shorter floor would
/// send again what has arrived.
const NEAR_RTO_MIN: Duration = Duration::from_millis(50);

/// The class of this host.
pub const LOOPBACK: &str = "loopback";
/// The class of the subnets of this host's interfaces.
pub const LOCAL: &str = "local";
/// The class of short round trips.
pub const NEAR: &str = "near";
/// The class of long round trips.
pub const FAR: &str = "far";
/// The class of all others.
pub const REST: &str = "rest";

/// Describes a built-in class's networks.
pub fn holds_for(name: &str) -> Option<&'static str> {
    match name {
        LOOPBACK => Some("this host itself"),
        LOCAL => Some("the subnets of this host"),
        NEAR => Some("in no list, with a short round trip"),
        FAR => Some("in no list, with a long round trip"),
        REST => Some("in no other class"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_terms_the_narrower_holds() {
        let one = Terms {
            lanes: Some(8),
            connections: Some(3),
            cipher: Some(CipherFloor::Any),
            write: Some(false),
            ..Terms::default()
        };
        let other = Terms {
            lanes: Some(2),
            rate_bytes_per_s: Some(9),
            cipher: Some(CipherFloor::Bits256),
            write: Some(true),
            ..Terms::default()
        };
        let both = one.and(other);
        assert_eq!(both, other.and(one));
        assert_eq!((both.lanes, both.connections, both.rate_bytes_per_s), (Some(2), Some(3), Some(9)));
        assert_eq!((both.cipher, both.may_read(), both.may_write()), (Some(CipherFloor::Bits256), true, false));
    }

    #[test]
    fn a_floor_of_ciphers_lets_stronger_ones_pass() {
        let allowed = |floor: CipherFloor| {
            [None, Some(Cipher::Aes128Gcm), Some(Cipher::Aes256Gcm)].map(|cipher| floor.allows(cipher))
        };
        assert_eq!(allowed(CipherFloor::Clear), [true, true, true]);
        assert_eq!(allowed(CipherFloor::Any), [false, true, true]);
        assert_eq!(allowed(CipherFloor::Bits256), [false, false, true]);
    }
}

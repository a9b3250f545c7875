//! Reads the network classes of a host: `/etc/haul/networks.toml`, and the user's own file, which can only narrow it.
//! docs/operate/networks.md has the format.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_net::Policies;
use haul_net::policy::class::{FAR, LOCAL, LOOPBACK, NEAR, REST};
use haul_net::policy::{
    CipherFloor, ClassList, CongestionControl, DelayedAckMax, Dscp, Keepalive, NetworkClass, Networks, OwnNetworks,
    Pacing, Policy, Prefix, RtoMax, RtoMin, Terms, UserTimeout,
};
use haul_wire::limits::MAX_LANES;
use serde::Deserialize;
use toml::Spanned;

use super::policy_file::{self, BadPolicy};
use super::toml_words;

pub(crate) const SYSTEM_FILE: &str = "/etc/haul/networks.toml";

/// The name stands in lines of logs.
const MAX_NAME_BYTES: usize = 32;

/// Reads these files, before built-in classes.
pub fn load(files: &[PathBuf]) -> Result<Networks, BadPolicy> {
    let lists: Result<Vec<_>, _> = files.iter().filter_map(|path| read(path).transpose()).collect();
    Ok(Networks::of(lists?, OwnNetworks::of_host()))
}

/// Tunes our connections. A wrong file is an error: it may forbid something.
pub fn policies(files: &[PathBuf]) -> Result<Arc<Policies>, Error> {
    let networks = load(files).map_err(|why| {
        Error::new(Fault::Usage, why.to_string())
            .try_this("haul networks judges the file; haul-networks(5) has the keys")
    })?;
    Ok(Arc::new(Policies::new(networks)))
}

/// Reads one file, if there.
pub fn read(path: &Path) -> Result<Option<ClassList>, BadPolicy> {
    let Some(text) = policy_file::read(path)? else { return Ok(None) };
    parse(&text, path).map(Some).map_err(|why| BadPolicy::of(path, why))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    near_ms: Option<Spanned<f64>>,
    class: BTreeMap<Spanned<String>, Class>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Class {
    networks: Vec<Spanned<String>>,
    interfaces: Vec<Spanned<String>>,
    rto_min_ms: Option<Spanned<f64>>,
    rto_max_ms: Option<Spanned<f64>>,
    delayed_ack_max_ms: Option<Spanned<f64>>,
    user_timeout_s: Option<Spanned<f64>>,
    keepalive_s: Option<Spanned<f64>>,
    keepalive_interval_s: Option<Spanned<f64>>,
    initial_window: Option<Spanned<i64>>,
    congestion_control: Option<Spanned<String>>,
    pacing_mbit: Option<Spanned<f64>>,
    dscp: Option<Spanned<i64>>,
    lanes: Option<Spanned<i64>>,
    cipher: Option<Spanned<String>>,
    rate_mbit: Option<Spanned<f64>>,
    rate_per_address_mbit: Option<Spanned<f64>>,
    connections: Option<Spanned<i64>>,
    connections_per_address: Option<Spanned<i64>>,
    read: Option<Spanned<bool>>,
    write: Option<Spanned<bool>>,
}

/// Parses classes. The error names `path` and line.
pub fn parse(text: &str, path: &Path) -> Result<ClassList, String> {
    let file: File = toml::from_str(text).map_err(|error| toml_words::why(&error, text))?;
    let mut list = ClassList::default();
    let mut near = Values::new(text, "the file".into());
    if let Some(ms) = near.time("near-ms", &file.near_ms, 0.001, Duration::from_secs(10))? {
        list.near_below_us(u32::try_from(ms.as_micros()).unwrap_or(u32::MAX));
    }
    for (name, class) in &file.class {
        let at = |span: Range<usize>, why: String| format!("line {}: {why}", line_of(text, span.start));
        let failed = |why: &str| at(name.span(), format!("class {}: {why}", name.get_ref()));
        let (name, values) = (name.get_ref(), Values::new(text, format!("class {}", name.get_ref())));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(failed("a name has at most 32 letters, digits, '-' and '_'"));
        }
        let needs_no_network = [LOOPBACK, LOCAL, NEAR, FAR, REST].contains(&name.as_str());
        if class.networks.is_empty() && class.interfaces.is_empty() && !needs_no_network {
            return Err(failed(
                "it has neither networks nor interfaces; loopback, local, near, far and rest need none",
            ));
        }
        let prefix = |prefix: &Spanned<String>| {
            let read = prefix.get_ref().parse::<Prefix>();
            read.map_err(|why| at(prefix.span(), format!("class {name}: {why}")))
        };
        let prefixes = class.networks.iter().map(prefix).collect::<Result<Vec<_>, _>>()?;
        let interfaces: Vec<String> = class.interfaces.iter().map(|name| name.get_ref().clone()).collect();
        let class = values.class(name, class, path)?;
        list.add(class, &prefixes, &interfaces).map_err(|why| failed(&why.to_string()))?;
    }
    Ok(list)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

struct Values<'a> {
    text: &'a str,
    whose: String,
    lines: Vec<(&'static str, usize)>,
}

impl<'a> Values<'a> {
    fn new(text: &'a str, whose: String) -> Self {
        Self { text, whose, lines: Vec::new() }
    }

    fn class(mut self, name: &str, class: &Class, path: &Path) -> Result<NetworkClass, String> {
        const MINUTES: Duration = Duration::from_secs(120);
        const DAY: Duration = Duration::from_secs(86_400);
        let policy = Policy {
            rto_min: self.time("rto-min-ms", &class.rto_min_ms, 0.001, MINUTES)?.map(RtoMin),
            rto_max: self.time("rto-max-ms", &class.rto_max_ms, 0.001, MINUTES)?.map(RtoMax),
            delayed_ack_max: self
                .time("delayed-ack-max-ms", &class.delayed_ack_max_ms, 0.001, MINUTES)?
                .map(DelayedAckMax),
            user_timeout: self.time("user-timeout-s", &class.user_timeout_s, 1.0, DAY)?.map(UserTimeout),
            keepalive: self.keepalive(class, DAY)?,
            congestion_control: self.congestion_control(class)?,
            pacing: self.rate("pacing-mbit", &class.pacing_mbit)?.map(|bytes_per_s| Pacing { bytes_per_s }),
            dscp: self.number("dscp", &class.dscp, 0, 63)?.and_then(Dscp::new),
            ..Policy::default()
        };
        let most = i64::from(u32::MAX);
        let terms = Terms {
            lanes: self.number("lanes", &class.lanes, 1, MAX_LANES.into())?,
            cipher: self.cipher(class)?,
            rate_bytes_per_s: self.rate("rate-mbit", &class.rate_mbit)?,
            rate_per_address_bytes_per_s: self.rate("rate-per-address-mbit", &class.rate_per_address_mbit)?,
            connections: self.number("connections", &class.connections, 1, most)?,
            connections_per_address: self.number("connections-per-address", &class.connections_per_address, 1, most)?,
            read: self.noted("read", &class.read).copied(),
            write: self.noted("write", &class.write).copied(),
        };
        let initial_window = self.number("initial-window", &class.initial_window, 1, 1000)?;
        let file = Some(Arc::from(path));
        Ok(NetworkClass { name: name.to_owned(), policy, terms, initial_window, file, lines: self.lines })
    }

    fn keepalive(&mut self, class: &Class, most: Duration) -> Result<Option<Keepalive>, String> {
        let idle = self.time("keepalive-s", &class.keepalive_s, 1.0, most)?;
        let interval = self.time("keepalive-interval-s", &class.keepalive_interval_s, 1.0, most)?;
        match (idle, interval) {
            (None, None) => Ok(None),
            (Some(idle), interval) => {
                Ok(Some(Keepalive { idle, interval: interval.unwrap_or(haul_net::limits::KEEPALIVE_INTERVAL) }))
            }
            (None, Some(_)) => Err(self.failed("keepalive-interval-s", "needs keepalive-s")),
        }
    }

    fn congestion_control(&mut self, class: &Class) -> Result<Option<CongestionControl>, String> {
        let Some(name) = self.noted("congestion-control", &class.congestion_control) else { return Ok(None) };
        // The kernel takes 15 bytes (TCP_CA_NAME_MAX).
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match (1..16).contains(&name.len()) && name.chars().all(is_name) {
            true => Ok(Some(CongestionControl::named(name))),
            false => Err(self.failed("congestion-control", "is a name of the kernel, such as cubic")),
        }
    }

    fn cipher(&mut self, class: &Class) -> Result<Option<CipherFloor>, String> {
        let Some(word) = self.noted("cipher", &class.cipher) else { return Ok(None) };
        let found = CipherFloor::WORDS.iter().find(|(known, _)| known == word);
        match found {
            Some((_, floor)) => Ok(Some(*floor)),
            None => Err(self.failed("cipher", "is \"none\", \"any\" or \"256\"")),
        }
    }

    fn noted<'v, T>(&mut self, key: &'static str, value: &'v Option<Spanned<T>>) -> Option<&'v T> {
        let value = value.as_ref()?;
        self.lines.push((key, line_of(self.text, value.span().start)));
        Some(value.get_ref())
    }

    fn time(
        &mut self,
        key: &'static str,
        value: &Option<Spanned<f64>>,
        least: f64,
        most: Duration,
    ) -> Result<Option<Duration>, String> {
        let Some(number) = self.noted(key, value) else { return Ok(None) };
        let unit = if key.ends_with("-ms") { 1e3 } else { 1.0 };
        let most = most.as_secs_f64() * unit;
        match (least..=most).contains(number) {
            true => Ok(Some(Duration::from_micros((number / unit * 1e6).round() as u64))),
            false => Err(self.failed(key, &format!("is a number from {least} to {most}"))),
        }
    }

    fn rate(&mut self, key: &'static str, value: &Option<Spanned<f64>>) -> Result<Option<u64>, String> {
        let Some(mbit) = self.noted(key, value) else { return Ok(None) };
        // Less would stop a connection.
        match (0.008..=1e7).contains(mbit) {
            true => Ok(Some((mbit * 1e6 / 8.0) as u64)),
            false => Err(self.failed(key, "is a number from 0.008 to 10000000")),
        }
    }

    fn number<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        value: &Option<Spanned<i64>>,
        least: i64,
        most: i64,
    ) -> Result<Option<T>, String> {
        let Some(number) = self.noted(key, value) else { return Ok(None) };
        let read = (least..=most).contains(number).then(|| T::try_from(*number).ok()).flatten();
        match read {
            Some(read) => Ok(Some(read)),
            None => Err(self.failed(key, &format!("is a whole number from {least} to {most}"))),
        }
    }

    fn failed(&self, key: &str, why: &str) -> String {
        let line = self.lines.iter().find(|(known, _)| *known == key).map_or(0, |(_, line)| *line);
        format!("line {line}: {}: {key} {why}", self.whose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ClassList, String> {
        parse(text, Path::new("networks.toml"))
    }

    #[test]
    fn each_value_is_read_and_knows_its_line() {
        let list = parsed(
            "near-ms = 5\n[class.inside]\nnetworks = [\"10.0.0.0/8\", \"fd00::/8\"]\ninterfaces = [\"eth1\"]\n\
             rto-min-ms = 20\nrto-max-ms = 5000\ndelayed-ack-max-ms = 40\nuser-timeout-s = 20\nkeepalive-s = 30\n\
             initial-window = 20\ncongestion-control = \"cubic\"\npacing-mbit = 100\ndscp = 10\nlanes = 4\n\
             cipher = \"256\"\nrate-mbit = 80\nrate-per-address-mbit = 8.0\nconnections = 100\n\
             connections-per-address = 10\nread = true\nwrite = false\n",
        )
        .unwrap();
        let [class] = list.classes() else { panic!("{list:?}") };
        let told: Vec<String> = class
            .values()
            .iter()
            .map(|value| format!("{} {} {}", class.line_of(value.key).unwrap_or(0), value.key, value.text))
            .collect();
        assert_eq!(
            told,
            [
                "5 rto-min-ms 20 ms",
                "6 rto-max-ms 5000 ms",
                "7 delayed-ack-max-ms 40 ms",
                "8 user-timeout-s 20000 ms",
                "9 keepalive-s after 30 s, then each 5 s",
                "10 initial-window 20 segments",
                "11 congestion-control cubic",
                "12 pacing-mbit at most 12500000 bytes/s",
                "13 dscp 10",
                "14 lanes 4",
                "15 cipher 256",
                "16 rate-mbit at most 10000000 bytes/s",
                "17 rate-per-address-mbit at most 1000000 bytes/s",
                "18 connections 100",
                "19 connections-per-address 10",
                "20 read yes",
                "21 write no",
            ]
        );
        assert_eq!(list.members_of("inside"), ["10.0.0.0/8", "fd00::/8", "interface eth1"]);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_its_line_and_reason() {
        for (text, why) in [
            ("[class.a]\nnetworks = [\"10.1.2.3/8\"]\n", "line 2: class a: 10.1.2.3/8 has bits"),
            ("[class.a]\nnetworks = [\"10.0.0.0/8\"]\nrto-minms = 5\n", "rto-minms"),
            ("[class.a]\nnetworks = [\"10.0.0.0/8\"]\nrto-minms = 5\n", "line 3"),
            ("[class.rest]\n\nrto-min-ms = 0\n", "line 3: class rest: rto-min-ms is a number from 0.001 to 120000"),
            ("[class.rest]\ndscp = 64\n", "line 2: class rest: dscp is a whole number from 0 to 63"),
            ("[class.rest]\nlanes = 0\n", "line 2: class rest: lanes"),
            ("[class.rest]\ncipher = \"aes\"\n", "line 2: class rest: cipher is \"none\""),
            ("[class.rest]\nconnections = 0\n", "connections is a whole number from 1"),
            ("[class.rest]\nkeepalive-interval-s = 3\n", "line 2: class rest: keepalive-interval-s needs keepalive-s"),
            ("[class.rest]\nrate-mbit = nan\n", "line 2: class rest: rate-mbit"),
            ("[class.rest]\ncongestion-control = \"no such one\"\n", "line 2: class rest: congestion-control"),
            ("\n[class.a]\nlanes = 2\n", "line 2: class a: it has neither networks nor interfaces"),
            ("[class.\"a b\"]\nnetworks = [\"10.0.0.0/8\"]\n", "a name has at most"),
            ("[class.a]\nnetworks = [\"::/0\"]\n[class.b]\nnetworks = [\"::/0\"]\n", "line 3: class b: ::/0 stands in"),
            ("near-ms = 0\n", "line 1: the file: near-ms"),
            ("[classes.a]\n", "classes"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn files_that_are_not_there_leave_the_built_in_classes() {
        let networks = load(&["/not-there/networks.toml".into()]).unwrap();
        let found = networks.find(&networks.peer_at("127.0.0.1".parse().unwrap()));
        assert_eq!(found.name(), Some(LOOPBACK));
    }
}

//! The paths of a copy or probe, for programs.

use std::net::IpAddr;
use std::time::Duration;

use haul_job::{Address, OnePath, PathState, PathSummary, Report, Subflow, limit_of_path};
use serde::{Deserialize, Serialize};

use crate::json::values::{seconds, share};
use crate::report::class::{ClassLine, of_service};

/// All paths as the sender saw them; 0: unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PathLine {
    pub rtt_min_us: u32,
    pub queueing_us: u32,
    pub resent_ppm: u32,
    pub capacity_bytes_per_s: u64,
    pub window_bytes: u64,
    pub lanes: u16,
    pub congestion_control: String,
    pub rate_variation_permille: u32,
    /// Times in which nothing came through, and their length together.
    #[serde(default)]
    pub outages: u32,
    #[serde(default)]
    pub outage_s: f64,
    #[serde(flatten)]
    pub class: ClassLine,
}

pub fn of_path(path: &PathSummary) -> PathLine {
    PathLine {
        rtt_min_us: path.rtt_min_us,
        queueing_us: path.queueing_us,
        resent_ppm: path.resent_ppm,
        capacity_bytes_per_s: path.capacity_bytes_per_s,
        window_bytes: path.window_bytes,
        lanes: path.lanes,
        congestion_control: path.congestion_control.clone(),
        rate_variation_permille: path.rate_variation_permille,
        outages: path.outages.count,
        outage_s: seconds(Duration::from_micros(path.outages.us)),
        class: of_service(&path.service),
    }
}

/// One path, as its sender saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OnePathLine {
    pub number: u16,
    /// The far end's host, if several are that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The interface of this machine; between two others, the source's.
    pub device: String,
    /// Both addresses; empty: unknown.
    pub local: String,
    pub remote: String,
    /// `carries`, `rests` or `lost`.
    pub state: String,
    pub bytes: u64,
    pub share: f64,
    pub rate_bytes_per_s: u64,
    /// The largest cause of waiting for the network; empty: unknown.
    #[serde(default)]
    pub limit: String,
    #[serde(default)]
    pub limit_share: f64,
    /// Parts of its lanes, over MPTCP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subflows: Vec<SubflowLine>,
    #[serde(flatten)]
    pub path: PathLine,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SubflowLine {
    pub local: String,
    pub remote: String,
    pub bytes: u64,
    pub rate_bytes_per_s: u64,
    pub rtt_us: u32,
    pub resent_ppm: u32,
}

pub fn of_subflows(subflows: &[Subflow]) -> Vec<SubflowLine> {
    let of = |subflow: &Subflow| SubflowLine {
        local: IpAddr::from(subflow.local).to_string(),
        remote: IpAddr::from(subflow.remote).to_string(),
        bytes: subflow.delivered_bytes,
        rate_bytes_per_s: subflow.rate_bytes_per_s,
        rtt_us: subflow.rtt_us,
        resent_ppm: subflow.resent_ppm,
    };
    subflows.iter().map(of).collect()
}

pub fn of_each_path(report: &Report) -> Vec<OnePathLine> {
    let moving = report.last_byte.unwrap_or(report.elapsed).saturating_sub(report.first_byte.unwrap_or_default());
    let mut paths =
        of_paths(report.paths.iter(), |path| (path.delivered_bytes as f64 / moving.as_secs_f64().max(1e-3)) as u64);
    for path in &mut paths {
        path.host = report.hosts.iter().find(|(number, _)| *number == path.number).map(|(_, host)| host.clone());
    }
    paths
}

/// All paths by number; `rate` is one path's.
pub fn of_paths<'a>(
    paths: impl Iterator<Item = &'a OnePath> + Clone,
    rate: impl Fn(&OnePath) -> u64,
) -> Vec<OnePathLine> {
    let all: u64 = paths.clone().fold(0, |sum, path| sum.saturating_add(path.delivered_bytes));
    let address =
        |address: Option<Address>| address.map_or_else(String::new, |address| IpAddr::from(address).to_string());
    let of = |path: &OnePath| {
        let limit = limit_of_path(&path.summary.time);
        OnePathLine {
            number: path.number,
            host: None,
            device: path.device.clone(),
            local: address(path.local),
            remote: address(path.remote),
            state: match path.state {
                PathState::Carries => "carries",
                PathState::Rests => "rests",
                PathState::Lost => "lost",
            }
            .to_owned(),
            bytes: path.delivered_bytes,
            share: share(path.delivered_bytes as f64 / all.max(1) as f64),
            rate_bytes_per_s: rate(path),
            limit: limit.map_or_else(String::new, |limit| limit.cause.name().to_owned()),
            limit_share: share(limit.map_or(0.0, |limit| limit.share)),
            subflows: of_subflows(&path.subflows),
            path: of_path(&path.summary),
        }
    };
    paths.map(of).collect()
}

//! A copy's report as JSON, promised in `docs/use/json.md` and pinned by a test.
//!
//! Types are converted by hand: an internal change must not change the output.

use haul_job::{Host, Report};
use serde::{Deserialize, Serialize};

use crate::json::values::{Named, hex, named, seconds, share};
use crate::report::class::{ClassChangeLine, of_class_change};
use crate::report::limit;
use crate::report::outages::{OutageLines, of_outages};
use crate::report::paths::{OnePathLine, PathLine, of_each_path, of_path};
use crate::report::time::{TimeLine, of_shares};
use crate::text::failure;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ReportLine {
    pub exit_code: u8,
    pub result: String,
    pub dry_run: bool,
    pub files_found: u64,
    pub files_moved: u64,
    pub files_kept: u64,
    #[serde(default)]
    pub files_linked: u64,
    #[serde(default)]
    pub files_copied_there: u64,
    pub others_made: u64,
    pub deleted: u64,
    pub skipped: u64,
    #[serde(default)]
    pub left_out: u64,
    #[serde(default)]
    pub removed: u64,
    pub failed: u64,
    pub vanished: u64,
    pub unverified: u64,
    pub bytes_found: u64,
    pub bytes_moved: u64,
    pub bytes_again: u64,
    // Missing in reports of earlier versions.
    #[serde(default)]
    pub bytes_reread: u64,
    #[serde(default)]
    pub proof: String,
    /// The kinds of server's sums that every file has; empty: not all were compared.
    #[serde(default)]
    pub server_sums: Vec<String>,
    #[serde(default)]
    pub chunks_repaired: u64,
    #[serde(default)]
    pub bytes_read_again: u64,
    #[serde(default)]
    pub bytes_trusted: u64,
    pub bytes_kept: u64,
    #[serde(default)]
    pub bytes_matched: u64,
    #[serde(default)]
    pub bytes_holes: u64,
    pub elapsed_s: f64,
    pub connected_s: Option<f64>,
    pub first_byte_s: Option<f64>,
    pub last_byte_s: Option<f64>,
    pub rate_bytes_per_s: u64,
    pub lanes: u16,
    pub lane_path: String,
    pub cipher: String,
    #[serde(default)]
    pub earlier_tries: u32,
    #[serde(default)]
    pub earlier_bytes_moved: u64,
    #[serde(default)]
    pub earlier_elapsed_s: f64,
    #[serde(default)]
    pub only_blake3: Option<String>,
    pub root_blake3: String,
    pub root_files: u64,
    pub limit: String,
    pub limit_share: f64,
    pub limited_by: Option<String>,
    pub time: TimeLine,
    pub path: PathLine,
    #[serde(default)]
    pub paths: Vec<OnePathLine>,
    #[serde(flatten)]
    pub outages: OutageLines,
    #[serde(default)]
    pub class_changes: Vec<ClassChangeLine>,
    pub source: HostLine,
    pub target: HostLine,
    pub remedies: Vec<RemedyLine>,
    pub failures: Vec<Failure>,
}

/// One end, and its connections' limits; 0 and empty: unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HostLine {
    pub place: String,
    pub cpus: u16,
    pub rmem_max_bytes: u64,
    pub wmem_max_bytes: u64,
    pub tcp_rmem_max_bytes: u64,
    pub tcp_wmem_max_bytes: u64,
    pub congestion_control: String,
    pub allowed_congestion_controls: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemedyLine {
    pub text: String,
    pub command: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Failure {
    #[serde(flatten)]
    pub path: Named,
    pub why: String,
}

pub fn of_report(r: &Report, exit_code: u8) -> ReportLine {
    ReportLine {
        exit_code,
        result: failure::name_of_code(exit_code).to_owned(),
        dry_run: r.dry_run,
        files_found: r.files_found,
        files_moved: r.files_moved,
        files_kept: r.files_kept,
        files_linked: r.files_linked,
        files_copied_there: r.files_copied_there,
        others_made: r.others_made,
        deleted: r.deleted,
        skipped: r.skipped,
        left_out: r.left_out,
        removed: r.removed,
        failed: r.failed,
        vanished: r.vanished,
        unverified: r.unverified,
        bytes_found: r.bytes_found,
        bytes_moved: r.bytes_moved,
        bytes_again: r.bytes_again,
        bytes_reread: r.bytes_reread,
        proof: r.proof.name().to_owned(),
        server_sums: r.verified_by_server().unwrap_or_default().iter().map(|kind| kind.name().to_owned()).collect(),
        chunks_repaired: r.chunks_repaired,
        bytes_read_again: r.bytes_read_again,
        bytes_trusted: r.bytes_trusted,
        bytes_matched: r.bytes_matched,
        bytes_kept: r.bytes_kept,
        bytes_holes: r.bytes_holes,
        elapsed_s: seconds(r.elapsed),
        connected_s: r.connected.map(seconds),
        first_byte_s: r.first_byte.map(seconds),
        last_byte_s: r.last_byte.map(seconds),
        rate_bytes_per_s: (r.bytes_moved as f64 / r.elapsed.as_secs_f64().max(1e-9)) as u64,
        lanes: r.lanes,
        lane_path: r.lane_path.map_or_else(String::new, |path| path.name().to_owned()),
        cipher: r.cipher.clone(),
        earlier_tries: r.earlier.tries,
        earlier_bytes_moved: r.earlier.bytes_moved,
        earlier_elapsed_s: seconds(r.earlier.elapsed),
        only_blake3: r.only_blake3.map(|hash| hex(&hash)),
        root_blake3: hex(&r.root_blake3),
        root_files: r.root_files,
        limit: r.limit.map_or("nothing moved", |limit| limit.cause.name()).to_owned(),
        limit_share: share(r.limit.map_or(0.0, |limit| limit.share)),
        limited_by: limit::limited_by(r),
        time: of_shares(&r.time),
        path: of_path(&r.path),
        paths: of_each_path(r),
        outages: of_outages(&r.outages),
        source: of_host(&r.source),
        target: of_host(&r.target),
        remedies: limit::remedies(r)
            .into_iter()
            .map(|remedy| RemedyLine { text: remedy.words, command: remedy.command })
            .collect(),
        class_changes: r.class_changes.iter().map(|change| of_class_change(change, seconds(change.at))).collect(),
        failures: r.failures.iter().map(|(path, why)| Failure { path: named(path), why: why.clone() }).collect(),
    }
}

pub fn of_host(host: &Host) -> HostLine {
    let limits = &host.limits;
    HostLine {
        place: host.place.clone(),
        cpus: host.cpus,
        rmem_max_bytes: limits.rmem_max_bytes,
        wmem_max_bytes: limits.wmem_max_bytes,
        tcp_rmem_max_bytes: limits.tcp_rmem_max_bytes,
        tcp_wmem_max_bytes: limits.tcp_wmem_max_bytes,
        congestion_control: limits.congestion_control.clone(),
        allowed_congestion_controls: limits.allowed_congestion_controls.clone(),
    }
}

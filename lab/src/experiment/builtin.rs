//! Adapters and experiments that are part of the program.

/// The directory `experiments`: name and text.
pub const EXPERIMENTS: &[(&str, &str)] = &[
    ("background", include_str!("../../../experiments/background.toml")),
    ("cable", include_str!("../../../experiments/cable.toml")),
    ("changing-rate", include_str!("../../../experiments/changing-rate.toml")),
    ("contended", include_str!("../../../experiments/contended.toml")),
    ("contended-course", include_str!("../../../experiments/contended-course.toml")),
    ("dav-1g-228ms", include_str!("../../../experiments/dav-1g-228ms.toml")),
    ("contended-ftp", include_str!("../../../experiments/contended-ftp.toml")),
    ("deadline", include_str!("../../../experiments/deadline.toml")),
    ("fat-10g-100ms", include_str!("../../../experiments/fat-10g-100ms.toml")),
    ("foreign-1g-228ms", include_str!("../../../experiments/foreign-1g-228ms.toml")),
    ("ftp-1g-228ms", include_str!("../../../experiments/ftp-1g-228ms.toml")),
    ("ftp-many-small", include_str!("../../../experiments/ftp-many-small.toml")),
    ("gridftp-1g-228ms", include_str!("../../../experiments/gridftp-1g-228ms.toml")),
    ("gridftp-many-small", include_str!("../../../experiments/gridftp-many-small.toml")),
    ("fq-codel", include_str!("../../../experiments/fq-codel.toml")),
    ("full-uplink", include_str!("../../../experiments/full-uplink.toml")),
    ("iperf-1g-228ms", include_str!("../../../experiments/iperf-1g-228ms.toml")),
    ("lan-rto", include_str!("../../../experiments/lan-rto.toml")),
    ("lan-rto-today", include_str!("../../../experiments/lan-rto-today.toml")),
    ("long-1g-228ms", include_str!("../../../experiments/long-1g-228ms.toml")),
    ("loss-1g-100ms", include_str!("../../../experiments/loss-1g-100ms.toml")),
    ("many-small", include_str!("../../../experiments/many-small.toml")),
    ("multipath", include_str!("../../../experiments/multipath.toml")),
    ("multipath-gridftp", include_str!("../../../experiments/multipath-gridftp.toml")),
    ("multipath-gridftp-down", include_str!("../../../experiments/multipath-gridftp-down.toml")),
    ("policer", include_str!("../../../experiments/policer.toml")),
    ("politeness", include_str!("../../../experiments/politeness.toml")),
    ("radio-200m-50ms", include_str!("../../../experiments/radio-200m-50ms.toml")),
    ("routes", include_str!("../../../experiments/routes.toml")),
    ("s3-1g-228ms", include_str!("../../../experiments/s3-1g-228ms.toml")),
    ("short-queue-10g-100ms", include_str!("../../../experiments/short-queue-10g-100ms.toml")),
    ("still-readers", include_str!("../../../experiments/still-readers.toml")),
    ("stock-1g-228ms", include_str!("../../../experiments/stock-1g-228ms.toml")),
    ("thirty-paths", include_str!("../../../experiments/thirty-paths.toml")),
    ("tuned-100g-10ms", include_str!("../../../experiments/tuned-100g-10ms.toml")),
    ("two-hosts", include_str!("../../../experiments/two-hosts.toml")),
    ("two-hosts-pull", include_str!("../../../experiments/two-hosts-pull.toml")),
    ("two-paths-both-cut", include_str!("../../../experiments/two-paths-both-cut.toml")),
    ("two-paths-cut", include_str!("../../../experiments/two-paths-cut.toml")),
    ("two-paths-long", include_str!("../../../experiments/two-paths-long.toml")),
    ("two-paths-unequal", include_str!("../../../experiments/two-paths-unequal.toml")),
    ("two-ways-one-bottleneck", include_str!("../../../experiments/two-ways-one-bottleneck.toml")),
    ("wan-copy", include_str!("../../../experiments/wan-copy.toml")),
    ("zero-copy", include_str!("../../../experiments/zero-copy.toml")),
];

pub(super) const RIVALS: &[(&str, &str)] = &[
    ("aria2", include_str!("../../rivals/aria2.toml")),
    ("aria2-https", include_str!("../../rivals/aria2-https.toml")),
    ("bbcp", include_str!("../../rivals/bbcp.toml")),
    ("curl", include_str!("../../rivals/curl.toml")),
    ("curl-discard", include_str!("../../rivals/curl-discard.toml")),
    ("escp", include_str!("../../rivals/escp.toml")),
    ("flow-beside", include_str!("../../rivals/flow-beside.toml")),
    ("flow-first", include_str!("../../rivals/flow-first.toml")),
    ("globus-url-copy", include_str!("../../rivals/globus-url-copy.toml")),
    ("globus-url-copy-from", include_str!("../../rivals/globus-url-copy-from.toml")),
    ("ftplib", include_str!("../../rivals/ftplib.toml")),
    ("haul", include_str!("../../rivals/haul.toml")),
    ("haul-bench", include_str!("../../rivals/haul-bench.toml")),
    ("haul-class", include_str!("../../rivals/haul-class.toml")),
    ("haul-daemon", include_str!("../../rivals/haul-daemon.toml")),
    ("haul-deadline", include_str!("../../rivals/haul-deadline.toml")),
    ("haul-from-ftp", include_str!("../../rivals/haul-from-ftp.toml")),
    ("haul-from-gridftp", include_str!("../../rivals/haul-from-gridftp.toml")),
    ("haul-ftp-class", include_str!("../../rivals/haul-ftp-class.toml")),
    ("haul-from-https", include_str!("../../rivals/haul-from-https.toml")),
    ("haul-from-web", include_str!("../../rivals/haul-from-web.toml")),
    ("haul-from-s3", include_str!("../../rivals/haul-from-s3.toml")),
    ("haul-hosts", include_str!("../../rivals/haul-hosts.toml")),
    ("haul-hosts-pull", include_str!("../../rivals/haul-hosts-pull.toml")),
    ("haul-to-dav", include_str!("../../rivals/haul-to-dav.toml")),
    ("haul-to-ftp", include_str!("../../rivals/haul-to-ftp.toml")),
    ("haul-to-ftp-unlocked", include_str!("../../rivals/haul-to-ftp-unlocked.toml")),
    ("haul-to-gridftp", include_str!("../../rivals/haul-to-gridftp.toml")),
    ("haul-to-s3", include_str!("../../rivals/haul-to-s3.toml")),
    ("haul-to-sftp", include_str!("../../rivals/haul-to-sftp.toml")),
    ("hpnscp", include_str!("../../rivals/hpnscp.toml")),
    ("iperf3", include_str!("../../rivals/iperf3.toml")),
    ("iperf3-size", include_str!("../../rivals/iperf3-size.toml")),
    ("lftp", include_str!("../../rivals/lftp.toml")),
    ("lftp-from", include_str!("../../rivals/lftp-from.toml")),
    ("mscp", include_str!("../../rivals/mscp.toml")),
    ("path-alone", include_str!("../../rivals/path-alone.toml")),
    ("rclone", include_str!("../../rivals/rclone.toml")),
    ("rclone-to-dav", include_str!("../../rivals/rclone-to-dav.toml")),
    ("rsync", include_str!("../../rivals/rsync.toml")),
    ("rsyncd", include_str!("../../rivals/rsyncd.toml")),
    ("scp", include_str!("../../rivals/scp.toml")),
    ("sftp", include_str!("../../rivals/sftp.toml")),
    ("short-beside", include_str!("../../rivals/short-beside.toml")),
    ("still-readers", include_str!("../../rivals/still-readers.toml")),
    ("wdt", include_str!("../../rivals/wdt.toml")),
    ("web-readers", include_str!("../../rivals/web-readers.toml")),
    ("xrdcp", include_str!("../../rivals/xrdcp.toml")),
];

pub(super) const SERVERS: &[(&str, &str)] = &[
    ("gridftp", include_str!("../../rivals/servers/gridftp.toml")),
    ("haul", include_str!("../../rivals/servers/haul.toml")),
    ("haul-hosts", include_str!("../../rivals/servers/haul-hosts.toml")),
    ("haul-hosts-pull", include_str!("../../rivals/servers/haul-hosts-pull.toml")),
    ("haul-web", include_str!("../../rivals/servers/haul-web.toml")),
    ("iperf3", include_str!("../../rivals/servers/iperf3.toml")),
    ("nginx", include_str!("../../rivals/servers/nginx.toml")),
    ("nginx-dav", include_str!("../../rivals/servers/nginx-dav.toml")),
    ("nginx-tls", include_str!("../../rivals/servers/nginx-tls.toml")),
    ("rsyncd", include_str!("../../rivals/servers/rsyncd.toml")),
    ("sshd", include_str!("../../rivals/servers/sshd.toml")),
    ("versitygw", include_str!("../../rivals/servers/versitygw.toml")),
    ("vsftpd", include_str!("../../rivals/servers/vsftpd.toml")),
    ("vsftpd-read", include_str!("../../rivals/servers/vsftpd-read.toml")),
    ("vsftpd-unlocked", include_str!("../../rivals/servers/vsftpd-unlocked.toml")),
    ("wdt", include_str!("../../rivals/servers/wdt.toml")),
    ("xrootd", include_str!("../../rivals/servers/xrootd.toml")),
];

impl super::ExperimentSpec {
    /// Finds one of ours by name, or a file by path.
    pub fn find(name_or_path: &str) -> Result<super::ExperimentSpec, super::ExperimentError> {
        match EXPERIMENTS.iter().find(|(name, _)| *name == name_or_path) {
            Some((_, text)) => super::ExperimentSpec::parse(text),
            None if std::path::Path::new(name_or_path).exists() => {
                super::ExperimentSpec::load(std::path::Path::new(name_or_path))
            }
            None => {
                let known: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
                let why = format!("no experiment or file has this name; the experiments are {}", known.join(", "));
                Err(super::error::wrong(format!("experiment {name_or_path:?}"), why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{ExperimentSpec, Rivals};

    #[test]
    fn every_experiment_can_be_read_and_knows_its_rivals() {
        let rivals = Rivals::built_in().unwrap();
        for (name, text) in EXPERIMENTS {
            let spec = ExperimentSpec::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(spec.name, *name);
            for tool in &spec.tools {
                assert!(rivals.iter().any(|rival| rival.name == tool.rival), "{name} wants {}", tool.rival);
            }
            for figure in &spec.figures {
                let meets = crate::experiment::points(&spec.sweep).iter().any(|point| point.matches(&figure.at));
                assert!(meets, "{name}: a figure of {} is at no point", figure.tool);
            }
        }
    }
}

//! Processors, the nodes they stand in, and memory.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Roots, line, list, names};
use crate::limits;

/// The processors of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// Processors that this process may use.
    pub count: usize,
    /// NUMA nodes with their processors.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// The frequency governors in use, each once.
    pub governors: Vec<String>,
}

/// Reads them.
pub fn processors(roots: &Roots) -> Processors {
    let system = roots.sys.join("devices/system");
    let nodes = numbered(&system.join("node"), "node")
        .into_iter()
        .filter_map(|node| Some((node, list(&line(&system.join(format!("node/node{node}/cpulist")))?))));
    let mut governors: Vec<String> = numbered(&system.join("cpu"), "cpu")
        .into_iter()
        .take(limits::MAX_PROCESSORS)
        .filter_map(|cpu| line(&system.join(format!("cpu/cpu{cpu}/cpufreq/scaling_governor"))))
        .collect();
    governors.sort();
    governors.dedup();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Processors { count, nodes: nodes.collect(), governors }
}

/// All memory in bytes.
pub fn memory_bytes(roots: &Roots) -> Option<u64> {
    let text = line(&roots.proc.join("meminfo"))?;
    let words = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    words.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn numbered(directory: &Path, prefix: &str) -> Vec<u32> {
    names(directory).iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_their_governors_and_memory() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "schedutil\n"),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
            ("proc/meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().join("sys"), ..Roots::default() };
        let found = processors(&roots);
        assert_eq!(found.nodes, [(0, vec![0, 1]), (1, vec![2, 3])].into());
        assert_eq!(found.governors, ["schedutil"]);
        assert_eq!(memory_bytes(&roots), Some(25_276_502_016));
    }

    #[test]
    fn a_host_that_shows_nothing() {
        let roots = Roots { proc: "/nonexistent".into(), sys: "/nonexistent".into(), ..Roots::default() };
        let found = processors(&roots);
        assert!(found.nodes.is_empty() && found.governors.is_empty() && found.count > 0);
        assert_eq!(memory_bytes(&roots), None);
    }
}

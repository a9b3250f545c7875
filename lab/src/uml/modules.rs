//! Loads a packaged kernel's modules without modprobe. Our own kernel has them built in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The lab's networks; congestion controls, queues and TLS for commands.
const WANTED: [&str; 23] = [
    "ipv6",
    "veth",
    "bridge",
    "tun",
    "sch_netem",
    "sch_htb",
    "sch_tbf",
    "sch_prio",
    "sch_fq",
    "sch_fq_codel",
    "sch_ingress",
    "cls_u32",
    "act_mirred",
    "tcp_bbr",
    "tls",
    "gf128mul",
    "ctr",
    "ghash-generic",
    "gcm",
    "chacha_generic",
    "poly1305_generic",
    "chacha20poly1305",
    "tcp_diag",
];

/// Loads existing modules, and returns a line for each refused one.
pub(super) fn load() -> Vec<String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let homes = ["/usr/lib/uml/modules", "/lib/modules"].map(|home| Path::new(home).join(&release));
    let Some(home) = homes.iter().find(|home| home.join("modules.dep").exists()) else { return Vec::new() };
    let dependencies = fs::read_to_string(home.join("modules.dep")).unwrap_or_default();
    let mut loaded = BTreeSet::new();
    let mut refused = Vec::new();
    for name in WANTED {
        for file in in_order(&dependencies, name) {
            if loaded.insert(file.clone())
                && let Err(error) = load_one(&home.join(&file))
                && error != rustix::io::Errno::EXIST
            {
                refused.push(format!("module {}: {error}", file.display()));
            }
        }
    }
    refused
}

fn load_one(path: &Path) -> rustix::io::Result<()> {
    let file = fs::File::open(path).map_err(|_| rustix::io::Errno::NOENT)?;
    rustix::system::finit_module(&file, c"", 0)
}

/// Files of a module, needed ones first. A line is `FILE: NEEDED NEEDED ...`, the nearest first.
fn in_order(dependencies: &str, name: &str) -> Vec<PathBuf> {
    let file_name = format!("{name}.ko");
    for line in dependencies.lines() {
        let Some((file, needed)) = line.split_once(':') else { continue };
        if Path::new(file).file_name().is_some_and(|last| last == file_name.as_str()) {
            let mut files: Vec<PathBuf> = needed.split_whitespace().rev().map(PathBuf::from).collect();
            files.push(PathBuf::from(file));
            return files;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it() {
        let text =
            "kernel/a/llc.ko:\nkernel/a/stp.ko: kernel/a/llc.ko\nkernel/b/bridge.ko: kernel/a/stp.ko kernel/a/llc.ko\n";
        let names = in_order(text, "bridge");
        let names: Vec<&str> = names.iter().filter_map(|file| file.to_str()).collect();
        assert_eq!(names, ["kernel/a/llc.ko", "kernel/a/stp.ko", "kernel/b/bridge.ko"]);
        assert!(in_order(text, "absent").is_empty());
    }
}

//! Paths of programs, and listening ports.

use std::fs;
use std::path::{Path, PathBuf};

/// The path, and daemons' directories, which a user's path often lacks.
pub fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).collect()
}

/// Finds a program by name.
pub fn find(name: &str) -> Option<PathBuf> {
    directories().into_iter().map(|directory| directory.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Listening TCP ports of a process's network namespace, by its `/proc` directory (proc(5), net/tcp). Some servers accept
/// only one client, so no probe.
pub fn listening_ports(process: &str) -> Vec<u16> {
    const LISTEN: &str = "0A";
    let mut ports = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("{process}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
            if let [_, local, _, LISTEN] = fields[..]
                && let Some(Ok(port)) = local.rsplit(':').next().map(|hex| u16::from_str_radix(hex, 16))
            {
                ports.push(port);
            }
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen_and_a_shell_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listening_ports("/proc/self").contains(&listener.local_addr().unwrap().port()));
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program"), None);
    }
}

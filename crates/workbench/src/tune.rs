//! Tells what to set on this host, from its facts (`net`, `store`) by `engine`.
//!
//! `look` -> facts -> `advise` -> findings -> `apply` (all or nothing, remembered) -> `revert`.

use std::path::Path;

use haul_engine::tune::SETTINGS;
pub use haul_engine::tune::{
    Advice, Disk, Finding, Host, Interface, Interrupt, LANES, Matters, Multipath, Processors, Reach, Remedy, Setting,
    Uplink, Wanted, advise, rate_text, rtt_text, size_text,
};
pub use haul_net::host::Roots;
use haul_net::host::kept::{self, Change, Refused};
pub use haul_net::host::kept::{Step, saved_file, start_file};
use haul_net::host::{devices, processors, settings, uplinks};
use haul_sys::process;

use haul_job::{Error, Fault};

/// Reads this host; a directory's disk is measured, for some seconds and up to 1 GiB.
pub fn look(roots: &Roots, disk: Option<&Path>) -> Result<Host, Error> {
    let settings = SETTINGS.iter().filter_map(|name| {
        let settings::Setting { value, writable } = settings::read(roots, name)?;
        Some(((*name).to_owned(), Setting { value, writable }))
    });
    Ok(Host {
        settings: settings.collect(),
        interfaces: devices::up(roots).into_iter().map(interface).collect(),
        processors: processors_of(processors::processors(roots)),
        memory_bytes: processors::memory_bytes(roots),
        page_bytes: process::page_bytes(),
        disk: disk.map(measure).transpose()?,
        uplinks: uplinks_of(roots),
        multipath: uplinks::multipath().filter(|_| is_this_host(roots)).map(multipath),
        floor_by_connection: is_this_host(roots).then(haul_net::floor_by_connection).flatten(),
    })
}

/// The kernel knows only this host's routes.
fn is_this_host(roots: &Roots) -> bool {
    *roots == Roots::default()
}

/// Without routes there is no advice about uplinks.
fn uplinks_of(roots: &Roots) -> Vec<Uplink> {
    let found = if is_this_host(roots) { uplinks::uplinks(roots).unwrap_or_default() } else { Vec::new() };
    found.into_iter().map(uplink).collect()
}

fn uplink(found: uplinks::Uplink) -> Uplink {
    Uplink {
        device: found.device,
        local: found.local,
        prefix_len: found.prefix_len,
        router: found.router,
        leaves_by: found.leaves_by,
        reverse_path_filter: found.reverse_path_filter,
    }
}

fn multipath(found: uplinks::Multipath) -> Multipath {
    Multipath { subflows: found.subflows, accepted_addresses: found.accepted_addresses, endpoints: found.endpoints }
}

fn interface(device: devices::Device) -> Interface {
    let interrupts = device.interrupts.into_iter().map(|(number, processors)| Interrupt { number, processors });
    Interface {
        name: device.name,
        mtu_bytes: device.mtu_bytes,
        speed_bytes_per_s: device.speed_bytes_per_s,
        driver: device.driver,
        receive_queues: device.receive_queues,
        transmit_queues: device.transmit_queues,
        node: device.node,
        interrupts: interrupts.collect(),
    }
}

fn processors_of(found: processors::Processors) -> Processors {
    Processors { count: found.count, nodes: found.nodes, governors: found.governors }
}

fn measure(directory: &Path) -> Result<Disk, Error> {
    let rate = haul_store::disk_rate(directory).map_err(|error| {
        let fault = match error.kind() {
            std::io::ErrorKind::StorageFull => Fault::Space,
            _ => Fault::FileIo,
        };
        Error::new(fault, format!("cannot measure the disk of {}", directory.display())).because(error)
    })?;
    Ok(Disk {
        directory: directory.display().to_string(),
        write_bytes_per_s: rate.write_bytes_per_s,
        read_bytes_per_s: rate.read_bytes_per_s,
        direct: rate.direct,
    })
}

/// The fastest device that is up.
pub fn fastest(host: &Host) -> Option<(&str, u64)> {
    let told = host.interfaces.iter().filter_map(|device| Some((device.name.as_str(), device.speed_bytes_per_s?)));
    told.max_by_key(|(_, speed)| *speed)
}

/// Sets the advice now and for each start. All or nothing.
pub fn apply(roots: &Roots, advice: &Advice) -> Result<Vec<Step>, Error> {
    let here = advice.changes().filter(|(finding, _)| finding.remedy == Remedy::Sysctl { here: true });
    let changes: Vec<Change> =
        here.map(|(finding, value)| Change { name: finding.setting.clone(), value: value.to_owned() }).collect();
    kept::apply(roots, &changes).map_err(told)
}

/// Undoes [`apply`]. All or nothing.
pub fn revert(roots: &Roots) -> Result<Vec<Step>, Error> {
    kept::revert(roots).map_err(told)
}

fn told(refused: Refused) -> Error {
    let Refused { what, error, left } = refused;
    let failed = format!("cannot change {what}");
    let failed = match left.as_slice() {
        [] => Error::new(Fault::FileIo, format!("{failed}; what was changed before that is undone")),
        left => Error::new(Fault::FileIo, format!("{failed}, and could not undo {}", left.join(", "))),
    };
    let failed = failed.because(&error);
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => failed.try_this("move it away; it would be overwritten"),
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            failed.try_this("in a container or user namespace this belongs to the host: run it there")
        }
        std::io::ErrorKind::InvalidData => failed.try_this("look at it, then move it away or correct it"),
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scene() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            ("proc/meminfo", "MemTotal: 16777216 kB\n"),
            ("sys/class/net/ens1/flags", "0x1003\n"),
            ("sys/class/net/ens1/operstate", "up\n"),
            ("sys/class/net/ens1/speed", "25000\n"),
            ("etc/empty", ""),
            ("lib/empty", ""),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let at = |name: &str| dir.path().join(name);
        let roots = Roots { proc: at("proc"), sys: at("sys"), etc: at("etc"), var_lib: at("lib") };
        (dir, roots)
    }

    #[test]
    fn a_host_is_read_tuned_found_in_order_and_put_back() {
        let (_dir, roots) = scene();
        let wanted = Wanted { rate_bytes_per_s: 125_000_000, rtt_us: 228_000 };
        let before = look(&roots, None).unwrap();
        assert_eq!(fastest(&before), Some(("ens1", 3_125_000_000)));
        let advice = advise(&before, wanted);
        assert_eq!(apply(&roots, &advice).unwrap().len(), 4);

        let after = advise(&look(&roots, None).unwrap(), wanted);
        assert_eq!(after.changes().count(), 0, "{after:#?}");
        assert_eq!(after.now, advice.then);
        assert_eq!(apply(&roots, &after).unwrap(), []);

        assert_eq!(revert(&roots).unwrap().len(), 4);
        assert_eq!(look(&roots, None).unwrap(), before);
    }

    #[test]
    fn what_is_refused_is_named_with_what_became_of_the_rest() {
        let (_dir, roots) = scene();
        fs::write(roots.etc.join("sysctl.d"), "in the way").unwrap();
        let before = look(&roots, None).unwrap();
        let advice = advise(&before, Wanted { rate_bytes_per_s: 125_000_000, rtt_us: 228_000 });
        let error = apply(&roots, &advice).unwrap_err();
        assert_eq!(error.fault, Fault::FileIo);
        assert!(error.what.ends_with("90-haul.conf; what was changed before that is undone"), "{error:?}");
        assert_eq!(look(&roots, None).unwrap(), before);
    }

    #[test]
    fn a_directory_that_is_not_there_cannot_be_measured() {
        let error = look(&Roots::default(), Some(Path::new("/nonexistent"))).unwrap_err();
        assert_eq!((error.fault, error.what.as_str()), (Fault::FileIo, "cannot measure the disk of /nonexistent"));
    }
}

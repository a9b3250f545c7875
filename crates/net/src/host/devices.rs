//! Network devices that are up, by `/sys/class/net`; `None`: not shown.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Roots, line, list, names, parsed};
use crate::limits;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `eth0`
    pub name: String,
    /// The largest packet.
    pub mtu_bytes: Option<u64>,
    /// The rate of the link, if not virtual.
    pub speed_bytes_per_s: Option<u64>,
    /// The driver, if not software.
    pub driver: Option<String>,
    /// Queues for incoming packets.
    pub receive_queues: usize,
    /// Queues for outgoing packets.
    pub transmit_queues: usize,
    /// The NUMA node of its slot.
    pub node: Option<u32>,
    /// Interrupt lines with their possible processors.
    pub interrupts: Vec<(u32, Vec<u32>)>,
}

/// The devices that are up, without loopback.
pub fn up(roots: &Roots) -> Vec<Device> {
    let class = roots.sys.join("class/net");
    // /sys shows the network namespace of its mount, /proc that of the reader.
    let ours = fs::read_to_string(roots.proc.join("net/dev")).ok();
    let is_ours = |name: &str| {
        let mut lines = ours.iter().flat_map(|text| text.lines());
        ours.is_none()
            || lines.any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
    };
    let up = names(&class).into_iter().filter(|name| is_ours(name) && is_up(&class.join(name)));
    up.take(limits::MAX_DEVICES).map(|name| device(roots, &class.join(&name), name)).collect()
}

fn is_up(directory: &Path) -> bool {
    let flags = line(&directory.join("flags"))
        .and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or_default();
    // Devices without a carrier say "unknown" and work.
    let state = line(&directory.join("operstate")).unwrap_or_default();
    flags & IFF_UP != 0 && flags & IFF_LOOPBACK == 0 && (state == "up" || state == "unknown")
}

fn device(roots: &Roots, directory: &Path, name: String) -> Device {
    let queues = names(&directory.join("queues"));
    let count = |prefix: &str| queues.iter().filter(|queue| queue.starts_with(prefix)).count();
    let hardware = hardware(directory);
    Device {
        mtu_bytes: parsed(&directory.join("mtu")),
        // In Mbit/s; -1 means unknown.
        speed_bytes_per_s: parsed::<u64>(&directory.join("speed")).filter(|mbit| *mbit > 0).map(|mbit| mbit * 125_000),
        driver: fs::read_link(directory.join("device/driver"))
            .ok()
            .and_then(|link| Some(link.file_name()?.to_str()?.to_owned())),
        receive_queues: count("rx-"),
        transmit_queues: count("tx-"),
        // -1 on machines with one node.
        node: hardware.as_deref().and_then(|hardware| parsed(&hardware.join("numa_node"))),
        interrupts: hardware.map(|hardware| interrupts(roots, &hardware)).unwrap_or_default(),
        name,
    }
}

/// The device on its bus: virtio hangs below the PCI device with its interrupts.
fn hardware(directory: &Path) -> Option<PathBuf> {
    let device = fs::canonicalize(directory.join("device")).ok()?;
    let above = device.ancestors().take(2).find(|path| path.join("msi_irqs").is_dir()).map(Path::to_owned);
    above.or(Some(device))
}

fn interrupts(roots: &Roots, hardware: &Path) -> Vec<(u32, Vec<u32>)> {
    let numbers = names(&hardware.join("msi_irqs")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    let taken = numbers.take(limits::MAX_INTERRUPTS).filter_map(|number| {
        let processors = line(&roots.proc.join(format!("irq/{number}/smp_affinity_list")))?;
        Some((number, list(&processors)))
    });
    taken.collect()
}

/// netdevice(7)
const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_card_and_a_virtual_device_are_found_and_what_is_down_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().join("sys"), ..Roots::default() };
        write(
            dir.path(),
            &[
                ("sys/class/net/ens1/flags", "0x1003\n"),
                ("sys/class/net/ens1/operstate", "up\n"),
                ("sys/class/net/ens1/mtu", "9000\n"),
                ("sys/class/net/ens1/speed", "25000\n"),
                ("sys/class/net/ens1/queues/rx-0/rps_cpus", "0\n"),
                ("sys/class/net/ens1/queues/tx-0/xps_cpus", "0\n"),
                ("sys/class/net/ens1/queues/tx-1/xps_cpus", "0\n"),
                ("sys/devices/pci0/numa_node", "1\n"),
                ("sys/devices/pci0/msi_irqs/77", "msix\n"),
                ("sys/devices/pci0/virtio0/features", "0\n"),
                ("proc/irq/77/smp_affinity_list", "4-5\n"),
                ("sys/class/net/veth0/flags", "0x1003\n"),
                ("sys/class/net/veth0/operstate", "unknown\n"),
                ("sys/class/net/veth0/speed", "-1\n"),
                ("proc/net/dev", " face |bytes\n    lo: 0\n  ens1: 0\n veth0: 0\n  ifb0: 0\n"),
                ("sys/class/net/elsewhere/flags", "0x1003\n"),
                ("sys/class/net/elsewhere/operstate", "up\n"),
                ("sys/class/net/ifb0/flags", "0x82\n"),
                ("sys/class/net/ifb0/operstate", "down\n"),
                ("sys/class/net/lo/flags", "0x9\n"),
                ("sys/class/net/lo/operstate", "unknown\n"),
            ],
        );
        std::os::unix::fs::symlink("/drivers/virtio_net", dir.path().join("sys/devices/pci0/virtio0/driver")).unwrap();
        std::os::unix::fs::symlink("../../../devices/pci0/virtio0", dir.path().join("sys/class/net/ens1/device"))
            .unwrap();
        let card = Device {
            name: "ens1".into(),
            mtu_bytes: Some(9000),
            speed_bytes_per_s: Some(3_125_000_000),
            driver: Some("virtio_net".into()),
            receive_queues: 1,
            transmit_queues: 2,
            node: Some(1),
            interrupts: vec![(77, vec![4, 5])],
        };
        let virtual_device = Device { name: "veth0".into(), ..Device::default() };
        assert_eq!(up(&roots), [card, virtual_device]);
    }

    #[test]
    fn a_host_that_shows_nothing_has_no_devices() {
        assert_eq!(up(&Roots { sys: "/nonexistent".into(), ..Roots::default() }), []);
    }
}

//! TUN devices: the kernel routes IP packets into the device, and a descriptor reads them; packets written to it arrive
//! from the device.
//!
//! Source: Documentation/networking/tuntap.rst, linux/if_tun.h, and the virtio specification (5.1.6) for the header.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// One TUN device, read and written a packet at a time. It never waits: `WouldBlock` means that there is no packet.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

/// The work that the kernel leaves to the reader of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Packets of at most the MTU with their checksums, without a header.
    None,
    /// A header of [`VNET_HEADER_BYTES`] in front; checksums are not computed where both ends of an emulated link are
    /// one machine's memory.
    Checksum,
    /// Like `Checksum`, and TCP and UDP segments of up to 64 KiB come whole (TSO, USO where the kernel has it).
    Segmentation,
}

/// Length of `struct virtio_net_hdr`.
pub const VNET_HEADER_BYTES: usize = 10;

impl Tun {
    /// Makes a device in the network namespace of the calling thread. It vanishes when the last descriptor is closed.
    ///
    /// Needs CAP_NET_ADMIN in that namespace and the right to open `/dev/net/tun`.
    pub fn create(name: &str, offload: Offload) -> io::Result<Tun> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        // SAFETY: all zeros is a valid `ifreq`: numbers, bytes and null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a device has at most 15 bytes"));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte.cast_signed();
        }
        let header = if offload == Offload::None { 0 } else { libc::IFF_VNET_HDR };
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | header) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives through the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let tun = Tun { fd };
        match offload {
            Offload::None => {}
            Offload::Checksum => tun.set_offload(libc::TUN_F_CSUM)?,
            Offload::Segmentation => {
                let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
                // Linux before 6.2 knows no USO and refuses the whole set.
                tun.set_offload(tcp | TUN_F_USO4 | TUN_F_USO6).or_else(|_| tun.set_offload(tcp))?;
            }
        }
        Ok(tun)
    }

    fn set_offload(&self, features: libc::c_uint) -> io::Result<()> {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features)) })
    }

    /// Plugs the device in or pulls its cable: without a carrier its host sends nothing through it, and is told so by
    /// rtnetlink. It has a carrier from the start. Linux 5.0 and later.
    pub fn set_carrier(&self, has_carrier: bool) -> io::Result<()> {
        let mut value = libc::c_int::from(has_carrier);
        // SAFETY: TUNSETCARRIER reads one `int`, which lives through the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNSETCARRIER, &raw mut value) })
    }

    /// Takes one packet, with its header if the device has one. A packet that does not fit is cut: give 64 KiB.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer))?)
    }

    /// Puts one packet into the device's host.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, packet))?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether this process may open the file to make TUN devices; the capability shows only when it tries.
pub fn openable() -> io::Result<()> {
    File::options().read(true).write(true).open("/dev/net/tun").map(drop)
}

// From linux/if_tun.h; libc lacks them.
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

//! TUN devices: a descriptor reads and writes IP packets that the kernel routes there. Source:
//! Documentation/networking/tuntap.rst, linux/if_tun.h, virtio specification (5.1.6).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// One TUN device, a packet at a time. `WouldBlock`: there is no packet.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

/// The work that the kernel leaves to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Whole packets of at most the MTU, without a header.
    None,
    /// A header of [`VNET_HEADER_BYTES`], no checksums: both ends of an emulated link are one memory.
    Checksum,
    /// Like `Checksum`, with whole TCP and UDP segments up to 64 KiB (TSO, USO if possible).
    Segmentation,
}

/// The bytes of `struct virtio_net_hdr`.
pub const VNET_HEADER_BYTES: usize = 10;

impl Tun {
    /// Makes a device in this thread's network namespace, until the last close. Needs CAP_NET_ADMIN and `/dev/net/tun`.
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

    /// Plugs the cable in, as at the start, or out (Linux 5.0): its host then sends nothing, as rtnetlink reports.
    pub fn set_carrier(&self, has_carrier: bool) -> io::Result<()> {
        let mut value = libc::c_int::from(has_carrier);
        // SAFETY: TUNSETCARRIER reads one `int`, which lives through the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNSETCARRIER, &raw mut value) })
    }

    /// Takes one packet, and its header. A longer one is cut: give 64 KiB.
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

/// Whether `/dev/net/tun` may be opened. The capability shows later.
pub fn openable() -> io::Result<()> {
    File::options().read(true).write(true).open("/dev/net/tun").map(drop)
}

// From linux/if_tun.h.
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

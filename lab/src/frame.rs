//! A packet in the emulator, or a large segment of many packets.

use haul_sys::tun::VNET_HEADER_BYTES;

/// Bytes of a device.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    /// Bytes of the virtio header: 0 or [`VNET_HEADER_BYTES`].
    header: usize,
}

impl Frame {
    /// Takes a device's bytes into a buffer for reuse.
    pub fn from_device(read: &[u8], has_header: bool, mut buffer: Vec<u8>) -> Frame {
        buffer.clear();
        buffer.extend_from_slice(read);
        Frame { bytes: buffer, header: if has_header { VNET_HEADER_BYTES } else { 0 } }
    }

    /// Bytes for a device.
    pub fn device_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The IP packet.
    pub fn ip(&self) -> &[u8] {
        self.bytes.get(self.header..).unwrap_or_default()
    }

    /// Returns the buffer.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// 4 or 6; other numbers are not IP.
    pub fn version(&self) -> u8 {
        self.ip().first().map_or(0, |first| first >> 4)
    }

    /// DiffServ code point (RFC 2474); 0 if not IP.
    pub fn dscp(&self) -> u8 {
        match (self.version(), self.ip()) {
            (4, [_, tos, ..]) => tos >> 2,
            (6, [first, second, ..]) => ((first & 0x0f) << 2) | (second >> 6),
            _ => 0,
        }
    }

    /// Packets on the wire, by the header's segment size (virtio 1.2, 5.1.6.2).
    pub fn packets(&self) -> u32 {
        let header = &self.bytes[..self.header.min(self.bytes.len())];
        let &[_, kind, hdr_low, hdr_high, size_low, size_high, ..] = header else { return 1 };
        let (headers, size) = (u16::from_le_bytes([hdr_low, hdr_high]), u16::from_le_bytes([size_low, size_high]));
        if kind == 0 || size == 0 {
            return 1;
        }
        let payload = self.ip().len().saturating_sub(usize::from(headers));
        u32::try_from(payload.div_ceil(usize::from(size)).max(1)).unwrap_or(u32::MAX)
    }

    /// Bytes of all its packets with their headers.
    pub fn ip_bytes(&self) -> u32 {
        let one = u32::try_from(self.ip().len()).unwrap_or(u32::MAX);
        match self.packets() {
            1 => one,
            packets => {
                let headers = u32::from(u16::from_le_bytes([self.bytes[2], self.bytes[3]]));
                one.saturating_add((packets - 1).saturating_mul(headers))
            }
        }
    }

    /// Flips a bit behind the IP header, covered by TCP's or UDP's checksum.
    pub fn flip_bit(&mut self, nth: u64) {
        let header = self.header + if self.version() == 6 { 40 } else { 20 };
        if let Some(body) = self.bytes.get_mut(header..)
            && !body.is_empty()
        {
            let bit = nth % (body.len() as u64 * 8);
            body[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// The wire's number and that on it, from the destination. `None` outside the lab.
    pub fn destination(&self) -> Option<(usize, usize)> {
        match (self.version(), self.ip()) {
            (4, [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 10, 99, wire, number, ..]) => {
                Some(((*wire).into(), (*number).into()))
            }
            (6, packet) if packet.len() >= 40 && packet[24..26] == [0xfd, 0x99] => {
                Some((packet[31].into(), packet[39].into()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(tos: u8, total: usize) -> Vec<u8> {
        let mut packet = vec![0; total];
        packet[..2].copy_from_slice(&[0x45, tos]);
        packet[16..20].copy_from_slice(&[10, 99, 3, 2]);
        packet
    }

    #[test]
    fn a_packet_is_one_packet_and_knows_where_it_goes() {
        let frame = Frame::from_device(&v4(46 << 2, 1500), false, Vec::new());
        assert_eq!((frame.packets(), frame.ip_bytes(), frame.dscp(), frame.destination()), (1, 1500, 46, Some((3, 2))));
    }

    #[test]
    fn a_large_segment_counts_the_headers_of_all_its_packets() {
        let mut bytes = vec![1, 1, 52, 0, 0xa8, 0x05, 0, 0, 0, 0];
        bytes.extend(v4(0, 52 + 14_480));
        let frame = Frame::from_device(&bytes, true, Vec::new());
        assert_eq!((frame.packets(), frame.ip_bytes()), (10, 15_000));
    }

    #[test]
    fn a_changed_bit_is_one_bit_behind_the_header() {
        let mut frame = Frame::from_device(&v4(0, 100), false, Vec::new());
        frame.flip_bit(u64::MAX);
        let changed: u32 = frame.ip().iter().zip(v4(0, 100)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(changed, 1);
        assert_eq!(frame.ip()[..20], v4(0, 100)[..20]);
        Frame::from_device(&[], false, Vec::new()).flip_bit(3);
    }
}

//! A packet for tests, and short times.

use super::{Nanos, Payload};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub id: u64,
    pub bytes: u32,
    pub packets: u32,
    pub dscp: u8,
    pub is_flipped: bool,
}

impl Packet {
    pub fn new(id: u64, bytes: u32) -> Packet {
        Packet { id, bytes, packets: 1, dscp: 0, is_flipped: false }
    }
}

impl Payload for Packet {
    fn ip_bytes(&self) -> u32 {
        self.bytes
    }

    fn packets(&self) -> u32 {
        self.packets
    }

    fn dscp(&self) -> u8 {
        self.dscp
    }

    fn flip_bit(&mut self, _nth: u64) {
        self.is_flipped = true;
    }
}

pub(super) fn ms(time: u64) -> Nanos {
    Nanos(time * 1_000_000)
}

pub(super) fn us(time: u64) -> Nanos {
    Nanos(time * 1000)
}

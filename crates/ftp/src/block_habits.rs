//! What is known of a server's extended block mode (MODE E, GridFTP), for all control connections to it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use haul_foreign::Reach;
use haul_net::Way;

/// How a server of GridFTP is spoken to.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// The ports at which this host may wait for a server that sends (`GLOBUS_TCP_PORT_RANGE`).
    pub ports: Option<(u16, u16)>,
    /// Bytes that are going to be written there, as far as is known: so many connections are dialled ahead.
    pub foreseen_bytes: u64,
    /// Data connections of uploads take these ways in turn. Empty: they take that of all connections.
    pub ways: Vec<Way>,
}

/// What is known of the blocks of a server.
#[derive(Debug, Default)]
pub(crate) struct BlockHabits {
    pub(crate) ports: Option<(u16, u16)>,
    ways: Vec<Way>,
    /// Data connections of uploads so far.
    turns: AtomicUsize,
    /// The server is one of GridFTP.
    pub(crate) is_grid: bool,
    /// Files are asked for in blocks.
    asks_for_them: AtomicBool,
    /// The server has reached a port of this host.
    reaches_us: AtomicBool,
    /// The server has refused or dropped commands that came during a transfer.
    takes_no_more: AtomicBool,
}

impl BlockHabits {
    pub(crate) fn new(grid: Option<&Grid>) -> BlockHabits {
        BlockHabits {
            is_grid: grid.is_some(),
            ports: grid.and_then(|grid| grid.ports),
            ways: grid.map(|grid| grid.ways.clone()).unwrap_or_default(),
            turns: AtomicUsize::new(0),
            asks_for_them: AtomicBool::new(grid.is_some()),
            reaches_us: AtomicBool::new(false),
            takes_no_more: AtomicBool::new(false),
        }
    }

    /// How the next data connection of an upload goes to the server, and how else if it cannot.
    pub(crate) fn reaches(&self, usual: &Reach, to: IpAddr) -> Vec<Reach> {
        let mut ways: Vec<&Way> = self.ways.iter().filter(|way| way.fits(to)).collect();
        let Some(count) = std::num::NonZero::new(ways.len()) else { return vec![usual.clone()] };
        ways.rotate_left(self.turns.fetch_add(1, Ordering::Relaxed) % count);
        ways.into_iter().map(|way| Reach { way: way.clone(), ..usual.clone() }).collect()
    }

    pub(crate) fn asks_for_them(&self) -> bool {
        self.asks_for_them.load(Ordering::Relaxed)
    }

    /// No file is asked for in blocks any more. True: it is news.
    pub(crate) fn give_up(&self) -> bool {
        self.asks_for_them.swap(false, Ordering::Relaxed)
    }

    /// The server takes commands while a transfer ends, as far as is known.
    pub(crate) fn takes_more(&self) -> bool {
        !self.takes_no_more.load(Ordering::Relaxed)
    }

    pub(crate) fn takes_no_more(&self) {
        self.takes_no_more.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reaches_us(&self) -> bool {
        self.reaches_us.load(Ordering::Relaxed)
    }

    pub(crate) fn reached_us(&self) {
        self.reaches_us.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_connections_take_the_ways_in_turn_and_the_others_stand_by() {
        let way = |local: [u8; 4]| Way { local: Some(local.into()), ..Way::default() };
        let v6 = Way { local: Some(std::net::Ipv6Addr::LOCALHOST.into()), ..Way::default() };
        let ways = vec![way([10, 0, 0, 1]), v6, way([10, 0, 1, 1])];
        let habits = BlockHabits::new(Some(&Grid { ways, ..Grid::default() }));
        let next = |habits: &BlockHabits| -> Vec<Option<IpAddr>> {
            let reaches = habits.reaches(&Reach::default(), IpAddr::from([192, 0, 2, 1]));
            reaches.into_iter().map(|reach| reach.way.local).collect()
        };
        let [one, two] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(|local| Some(IpAddr::from(local)));
        assert_eq!([next(&habits), next(&habits), next(&habits)], [[one, two], [two, one], [one, two]]);
        assert_eq!(next(&BlockHabits::new(Some(&Grid::default()))), [None]);
    }
}

//! What is known of a server's extended block mode (MODE E, GridFTP), for all control connections to it.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_foreign::Reach;
use haul_net::Way;

/// How a server of GridFTP is spoken to.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// The ports at which this host may wait for a server that sends (`GLOBUS_TCP_PORT_RANGE`).
    pub ports: Option<(u16, u16)>,
    /// Bytes that are going to be written there, as far as is known: so many connections are dialled ahead.
    pub foreseen_bytes: u64,
    /// Data connections take these ways in turn: of a download the server makes them, to the addresses of these ways. Empty: they take
    /// that of all connections.
    pub ways: Vec<Way>,
}

/// What is known of the blocks of a server.
#[derive(Debug, Default)]
pub(crate) struct BlockHabits {
    pub(crate) ports: Option<(u16, u16)>,
    ways: Vec<Way>,
    /// Data connections so far.
    turns: AtomicUsize,
    /// The addresses of this host at which data of a server is waited for.
    own_addresses: Vec<OwnAddress>,
    /// One of them was just found to be of no use.
    has_barred: AtomicBool,
    /// The server is one of GridFTP.
    pub(crate) is_grid: bool,
    /// Files are asked for in blocks.
    asks_for_them: AtomicBool,
    /// The server has reached a port of this host.
    reaches_us: AtomicBool,
    /// The server has refused or dropped commands that came during a transfer.
    takes_no_more: AtomicBool,
    /// Where a striped server has its files, as it has named it: an address for each stripe.
    data_nodes: Mutex<Arc<[IpAddr]>>,
    /// Transfers go over all data nodes.
    uses_stripes: AtomicBool,
    /// Why they no longer do, until it was told.
    why_no_stripes: Mutex<Option<String>>,
}

/// An address of this host that the server is told of.
#[derive(Debug)]
struct OwnAddress {
    address: IpAddr,
    state: AtomicU8,
}

const UNTRIED: u8 = 0;
const REACHED: u8 = 1;
const BARRED: u8 = 2;

impl BlockHabits {
    pub(crate) fn new(grid: Option<&Grid>) -> BlockHabits {
        BlockHabits {
            is_grid: grid.is_some(),
            ports: grid.and_then(|grid| grid.ports),
            ways: grid.map(|grid| grid.ways.clone()).unwrap_or_default(),
            turns: AtomicUsize::new(0),
            own_addresses: grid.map(own_addresses).unwrap_or_default(),
            has_barred: AtomicBool::new(false),
            asks_for_them: AtomicBool::new(grid.is_some()),
            reaches_us: AtomicBool::new(false),
            takes_no_more: AtomicBool::new(false),
            data_nodes: Mutex::default(),
            uses_stripes: AtomicBool::new(true),
            why_no_stripes: Mutex::default(),
        }
    }

    /// The server has named its data nodes.
    pub(crate) fn note_data_nodes(&self, nodes: Vec<IpAddr>) {
        *self.data_nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes.into();
    }

    /// The hosts at which data of the server may come and go, beside that of its control connection.
    pub(crate) fn data_nodes(&self) -> Arc<[IpAddr]> {
        Arc::clone(&self.data_nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn has_data_nodes(&self) -> bool {
        !self.data_nodes().is_empty()
    }

    /// Transfers go over several data nodes.
    pub(crate) fn is_striped(&self) -> bool {
        self.uses_stripes.load(Ordering::Relaxed) && self.data_nodes().len() > 1
    }

    /// Which of so many data nodes carries the next upload.
    pub(crate) fn next_stripe(&self, count: usize) -> usize {
        if count > 1 { self.turns.fetch_add(1, Ordering::Relaxed) % count } else { 0 }
    }

    /// From now on each transfer goes over one data node, the one that the server chooses.
    pub(crate) fn give_up_stripes(&self, why: &io::Error) {
        if self.uses_stripes.swap(false, Ordering::Relaxed) {
            *self.why_no_stripes.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
        }
    }

    /// Why stripes were given up, once.
    pub(crate) fn take_why_no_stripes(&self) -> Option<String> {
        self.why_no_stripes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How the next data connection of an upload goes to the server, and how else if it cannot.
    pub(crate) fn reaches(&self, usual: &Reach, to: IpAddr) -> Vec<Reach> {
        let mut ways: Vec<&Way> = self.ways.iter().filter(|way| way.fits(to)).collect();
        let Some(count) = std::num::NonZero::new(ways.len()) else { return vec![usual.clone()] };
        ways.rotate_left(self.turns.fetch_add(1, Ordering::Relaxed) % count);
        ways.into_iter().map(|way| Reach { way: way.clone(), ..usual.clone() }).collect()
    }

    /// The address at which the next data of the server is waited for, and its number: that of the control connection has none.
    pub(crate) fn waits_at(&self, usual: IpAddr) -> (IpAddr, Option<usize>) {
        let is_open =
            |own: &OwnAddress| own.address.is_ipv4() == usual.is_ipv4() && own.state.load(Ordering::Relaxed) != BARRED;
        let open: Vec<usize> = (0..self.own_addresses.len()).filter(|at| is_open(&self.own_addresses[*at])).collect();
        let Some(count) = std::num::NonZero::new(open.len()) else { return (usual, None) };
        let at = open[self.turns.fetch_add(1, Ordering::Relaxed) % count];
        let address = self.own_addresses[at].address;
        (address, Some(at).filter(|_| address != usual))
    }

    /// The server does not reach this address. Data comes to the others.
    pub(crate) fn bars(&self, number: usize) {
        if self.own_addresses[number].state.swap(BARRED, Ordering::Relaxed) != BARRED {
            self.has_barred.store(true, Ordering::Relaxed);
        }
    }

    /// True once, when an address was barred.
    pub(crate) fn has_barred(&self) -> bool {
        self.has_barred.swap(false, Ordering::Relaxed)
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

    pub(crate) fn reaches_us(&self, number: Option<usize>) -> bool {
        match number {
            Some(number) => self.own_addresses[number].state.load(Ordering::Relaxed) == REACHED,
            None => self.reaches_us.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn reached_us(&self, number: Option<usize>) {
        match number {
            Some(number) => self.own_addresses[number].state.store(REACHED, Ordering::Relaxed),
            None => self.reaches_us.store(true, Ordering::Relaxed),
        }
    }
}

/// A single way is that of the control connection.
fn own_addresses(grid: &Grid) -> Vec<OwnAddress> {
    let locals = grid.ways.iter().filter_map(|way| way.local);
    let own: Vec<OwnAddress> = locals.map(|address| OwnAddress { address, state: AtomicU8::new(UNTRIED) }).collect();
    if own.len() > 1 { own } else { Vec::new() }
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

    #[test]
    fn data_is_waited_for_at_the_named_addresses_in_turn_but_at_none_that_the_server_does_not_reach() {
        let locals = [[10, 0, 0, 1], [10, 0, 1, 1], [10, 0, 2, 1]].map(IpAddr::from);
        let ways = locals.map(|local| Way { local: Some(local), ..Way::default() }).to_vec();
        let habits = BlockHabits::new(Some(&Grid { ways, ..Grid::default() }));
        let next = || habits.waits_at(locals[0]);
        assert_eq!([next(), next(), next()], [(locals[0], None), (locals[1], Some(1)), (locals[2], Some(2))]);
        assert!(!habits.has_barred());
        habits.bars(1);
        assert!(habits.has_barred() && !habits.has_barred());
        assert_eq!([next(), next()].map(|(address, _)| address), [locals[2], locals[0]]);
        habits.reached_us(Some(2));
        assert!(habits.reaches_us(Some(2)) && !habits.reaches_us(None));
        let one = Grid { ways: vec![Way { local: Some(locals[1]), ..Way::default() }], ..Grid::default() };
        assert_eq!(
            BlockHabits::new(Some(&one)).waits_at(locals[0]),
            (locals[0], None),
            "it is where the server sees us"
        );
    }
}

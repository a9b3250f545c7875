//! What is known of a server's extended block mode (MODE E, GridFTP), for all control connections to it.

use std::sync::atomic::{AtomicBool, Ordering};

/// How a server of GridFTP is spoken to.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// The ports at which this host may wait for a server that sends (`GLOBUS_TCP_PORT_RANGE`).
    pub ports: Option<(u16, u16)>,
    /// Bytes that are going to be written there, as far as is known: so many connections are dialled ahead.
    pub foreseen_bytes: u64,
}

/// What is known of the blocks of a server.
#[derive(Debug, Default)]
pub(crate) struct BlockHabits {
    pub(crate) ports: Option<(u16, u16)>,
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
            asks_for_them: AtomicBool::new(grid.is_some()),
            reaches_us: AtomicBool::new(false),
            takes_no_more: AtomicBool::new(false),
        }
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

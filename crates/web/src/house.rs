//! What all connections share, and who is connected.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use haul_net::Policies;

use crate::access::Access;
use crate::answer::Shared;
use crate::limits::Limits;
use crate::token::Secret;

/// Takes a line for the log: its text, and whether it matters to an operator who reads only warnings.
pub type Tell = Arc<dyn Fn(&str, bool) + Send + Sync>;

pub(crate) struct House {
    pub(crate) access: Arc<dyn Access>,
    pub(crate) secret: Option<Secret>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) limits: Limits,
    /// `None`: requests are not logged.
    pub(crate) tell: Option<Tell>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) present: Mutex<Present>,
}

/// Who is connected.
#[derive(Default)]
pub(crate) struct Present {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// A connection that is counted.
pub(crate) struct Seat {
    pub(crate) house: Arc<House>,
    pub(crate) from: SocketAddr,
}

impl Seat {
    pub(crate) fn take(house: &Arc<House>, from: SocketAddr) -> Option<Seat> {
        let source = from.ip().to_canonical();
        let mut present = house.present.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = present.by_source.get(&source).copied().unwrap_or(0);
        if present.all >= house.limits.connections || of_source >= house.limits.connections_per_source {
            return None;
        }
        present.all += 1;
        present.by_source.insert(source, of_source + 1);
        drop(present);
        Some(Seat { house: Arc::clone(house), from: SocketAddr::new(source, from.port()) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut present = self.house.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.all -= 1;
        let source = self.from.ip();
        if let Some(count) = present.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                present.by_source.remove(&source);
            }
        }
    }
}

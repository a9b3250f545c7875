//! What all connections share, and who is connected.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haul_net::Policies;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Access;
use crate::answer::Shared;
use crate::limits::{Limits, TOLD_EVERY, TURNED_AWAY_AT_ONCE};
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
    pub(crate) turning_away: TurningAway,
}

/// Those who find no room.
pub(crate) struct TurningAway {
    places: Arc<Semaphore>,
    counted: Mutex<(usize, Option<Instant>)>,
}

impl Default for TurningAway {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)), counted: Mutex::default() }
    }
}

impl House {
    /// For a connection without a seat. With a place, it hears why; in a crowd it is closed without a word. The log has
    /// a line from time to time.
    pub(crate) fn turn_away(&self, from: SocketAddr) -> Option<OwnedSemaphorePermit> {
        let mut counted = self.turning_away.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        counted.0 += 1;
        if counted.1.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_EVERY)
            && let Some(tell) = &self.tell
        {
            tell(&format!("web: no room for {from}; connections turned away so far: {}", counted.0), true);
            counted.1 = Some(now);
        }
        drop(counted);
        Arc::clone(&self.turning_away.places).try_acquire_owned().ok()
    }
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

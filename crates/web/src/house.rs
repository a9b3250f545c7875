//! The state that all connections share, and their seats.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haul_net::policy::OverLimit;
use haul_net::{Membership, Policies};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Access;
use crate::answer::Shared;
use crate::cors::Cors;
use crate::limits::{Limits, TOLD_EVERY, TURNED_AWAY_AT_ONCE};
use crate::reader_log::ReaderLog;
use crate::token::Secret;

pub(crate) struct House {
    pub(crate) access: Arc<dyn Access>,
    pub(crate) secret: Option<Secret>,
    pub(crate) cors: Option<Cors>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) limits: Limits,
    pub(crate) log: ReaderLog,
    pub(crate) shared: Arc<Shared>,
    pub(crate) turning_away: TurningAway,
}

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
    /// Turns away a connection without a seat, with an answer if there is a place for that. The log gets a line from time to
    /// time.
    pub(crate) fn turn_away(&self, from: SocketAddr, over: &OverLimit) -> Option<OwnedSemaphorePermit> {
        let mut counted = self.turning_away.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        counted.0 += 1;
        if counted.1.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_EVERY) {
            let count = counted.0;
            self.log.warn(&format!("web: no room for {from}: {over}; connections turned away so far: {count}"));
            counted.1 = Some(now);
        }
        drop(counted);
        Arc::clone(&self.turning_away.places).try_acquire_owned().ok()
    }
}

/// The place of a connection, counted with all other ports.
pub(crate) struct Seat {
    pub(crate) house: Arc<House>,
    pub(crate) from: SocketAddr,
    pub(crate) member: Membership,
}

impl Seat {
    pub(crate) fn take(house: &Arc<House>, stream: &TcpStream, from: SocketAddr) -> Result<Seat, OverLimit> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let member = house.policies.enters(house.policies.class_of(stream), from.ip());
        match member.over_limit() {
            Some(over) => Err(over.clone()),
            None => Ok(Seat { house: Arc::clone(house), from, member: member.watching(stream) }),
        }
    }
}

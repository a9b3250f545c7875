//! The class of data that goes to a server which is no haul: the connections that send are sampled, paced and marked as lanes are.
//!
//! ```text
//!   connections that send -> lanes of one path -> tuning -> class -> their marks, now and for the next -> what is told
//! ```
//! The server asks the network for nothing, and nothing is known of what it sends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_channel::foreseen::Foreseen;
use haul_channel::lane_addresses::LaneAddresses;
use haul_job::Subject;
use haul_kept::class_policy::Permits;
use haul_net::Outbound;
use haul_net::outbound::OPEN_MAX;
use haul_wire::control::{AskedClass, Carriage, Notice, Service};
use haul_wire::summary::PathService;

use crate::hooks::Hooks;
use crate::service;
use crate::tuning::{Ending, Left, Tuning, Work};

/// The class of the data to one server.
pub struct ToServer {
    tuning: Tuning,
    outbound: Arc<Outbound>,
    /// The lanes' numbers by those of their connections. Each file has a connection of its own: a lane counts those in its place together.
    lanes: BTreeMap<u64, u16>,
    looked_at: Option<Instant>,
}

impl ToServer {
    /// Begins, if the job asks for a class.
    pub fn new(
        outbound: Arc<Outbound>,
        carriage: &Carriage,
        foreseen: Foreseen,
        permits: Permits,
        hooks: Option<Hooks>,
    ) -> Option<Self> {
        if carriage.service == Service::default() {
            return None;
        }
        // Files decide how many connections there are; one that yields is alone.
        let is_background = carriage.service.class == AskedClass::Background;
        let lanes = if is_background { 1 } else { CONNECTIONS_MAX };
        let carriage = Carriage { lanes: carriage.lanes.or(Some(lanes)), path: None, ..carriage.clone() };
        let (of_first, has_hooks) = ((carriage.clone(), permits.clone()), hooks.is_some());
        outbound.begin(Box::new(move |peer| service::first_mark(&of_first.0, &of_first.1, has_hooks, peer)));
        let tuning = Tuning::new(&carriage, foreseen).permitted(&carriage, permits, hooks).of_outbound();
        Some(Self { tuning, outbound, lanes: BTreeMap::new(), looked_at: None })
    }

    /// Time until the next turn.
    pub fn tick(&self) -> Duration {
        self.tuning.tick()
    }

    /// Sets the limit of the rate.
    pub fn limit_rate(&mut self, bytes_per_s: Option<u64>) {
        self.tuning.limit_rate(bytes_per_s);
    }

    /// Looks, when it is time, and marks. Returns what to tell.
    pub fn turn(&mut self, work: &dyn Work) -> Vec<Notice> {
        let now = Instant::now();
        if self.looked_at.is_some_and(|looked_at| now.duration_since(looked_at) < self.tick()) {
            return Vec::new();
        }
        self.looked_at = Some(now);
        self.begin();
        self.follow_connections();
        let turn = self.tuning.turn(&WholeFiles(work));
        for order in turn.moves {
            self.tuning.lanes_moved(order.path, Err("a server's data connections are not dialled again".into()));
        }
        if let Some(mark) = self.tuning.mark_of_next(PATH) {
            self.outbound.mark_next(mark);
        }
        turn.notices.into_iter().filter(is_of_network).collect()
    }

    fn begin(&mut self) {
        if let Some((local, peer)) = self.outbound.first_between() {
            self.tuning.outbound_begins(PATH, LaneAddresses { local, peer });
        }
    }

    /// What is untold when the copy ends, which may be before the first look.
    pub fn untold(&mut self) -> Vec<Notice> {
        self.begin();
        self.tuning.untold()
    }

    fn follow_connections(&mut self) {
        let open = self.outbound.open();
        let gone = self.lanes.extract_if(.., |number, _| !open.iter().any(|connection| connection.number == *number));
        gone.for_each(|(_, lane)| self.tuning.outbound_down(lane));
        for connection in open {
            if !self.lanes.contains_key(&connection.number)
                && let Some(lane) = (0..LANES).find(|lane| !self.lanes.values().any(|used| used == lane))
            {
                self.lanes.insert(connection.number, lane);
                self.tuning.outbound_up(lane, connection);
            }
        }
    }

    /// The class and its effect, for the report.
    pub fn service(&self) -> PathService {
        let service = self.tuning.outbound_service(PATH);
        let marked_bytes = service.marked_bytes.saturating_add(self.outbound.unsampled_marked_bytes());
        PathService { marked_bytes, ..service }
    }

    /// Gives back what was asked of the network.
    pub fn release(&mut self) {
        self.tuning.release();
    }
}

/// A connection carries a file to its end, so none leaves its rest to another.
struct WholeFiles<'a>(&'a dyn Work);

impl Work for WholeFiles<'_> {
    fn waiting_bytes(&self) -> u64 {
        self.0.waiting_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        self.0.unit_bytes()
    }

    fn left(&self) -> Left {
        self.0.left()
    }

    fn ending(&self, _lanes: &[u16], _carrying: usize) -> Option<Ending> {
        None
    }
}

/// The target tells how many connections there are.
fn is_of_network(notice: &Notice) -> bool {
    match notice {
        Notice::Chose { what, .. } => {
            matches!(Subject::named(what), Subject::Class | Subject::CongestionControl)
        }
        notice => matches!(notice, Notice::Warning { .. }),
    }
}

/// All lead to one host.
const PATH: u16 = 0;

/// One path's lanes.
const LANES: u16 = OPEN_MAX;

/// The most that any target opens: `CONNECTIONS_MAX` of FTP, 64 of WebDAV.
const CONNECTIONS_MAX: u16 = 64;

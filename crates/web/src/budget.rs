//! Shares something bounded among all readers, in turn: places of a pool, or memory.
//!
//! ```text
//! ask      a request asks for a share before any work is done for it
//! bounds   the total, one source (an address, see haul-net), and one connection each have a bound
//! turn     first the source that was served longest ago, then its connection
//! scarce   while others wait, a connection whose reader takes nothing is ended, if that helps
//! ```
//! So a connection with a hundred streams waits for itself.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::limits::MAX_STREAMS;
use crate::transport::line::Line;
use crate::transport::line::watchdog::Watched as _;

#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) source: IpAddr,
    pub(crate) line: Arc<Line>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) all: usize,
    pub(crate) per_source: usize,
    pub(crate) per_connection: usize,
    /// One more request replaces the newest of the source with the most.
    pub(crate) waiting: usize,
}

#[derive(Debug)]
pub(crate) struct Budget {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    waiting: usize,
    turns: u64,
    cut_at: Option<Instant>,
    sources: HashMap<IpAddr, Source>,
}

#[derive(Debug, Default)]
struct Source {
    held: usize,
    waiting: usize,
    last_turn: u64,
    connections: HashMap<ConnectionId, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    line: Weak<Line>,
    held: usize,
    with_reader: usize,
    last_turn: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    amount: usize,
    tells: oneshot::Sender<Share>,
}

/// The address of its line, which lives while a share is held or awaited.
type ConnectionId = usize;

/// A part of the budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    claimant: Claimant,
    amount: usize,
    is_with_reader: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoShare {
    Late,
    /// Too many wait, or so much is never granted.
    TooMany,
}

impl Claimant {
    fn id(&self) -> ConnectionId {
        Arc::as_ptr(&self.line).addr()
    }
}

impl Budget {
    pub(crate) fn new(bounds: Bounds) -> Arc<Budget> {
        Arc::new(Budget { bounds, state: Mutex::default() })
    }

    /// Whether less than half is left in total, or for its source or connection.
    pub(crate) fn is_scarce_for(&self, claimant: &Claimant) -> bool {
        let state = self.lock();
        let (of_source, of_connection) = state.held_of(claimant.source, claimant.id());
        state.held * 2 > self.bounds.all
            || of_source * 2 > self.bounds.per_source
            || of_connection * 2 > self.bounds.per_connection
    }

    pub(crate) fn try_take(self: &Arc<Self>, claimant: &Claimant, amount: usize) -> Option<Share> {
        let mut state = self.lock();
        let has_room = state.waiting == 0 && state.has_room(&self.bounds, claimant.source, claimant.id(), amount);
        has_room.then(|| {
            state.take(claimant, amount);
            Share::new(self, claimant.clone(), amount)
        })
    }

    pub(crate) async fn take(
        self: &Arc<Self>,
        claimant: &Claimant,
        amount: usize,
        patience: Duration,
    ) -> Result<Share, NoShare> {
        if let Some(share) = self.try_take(claimant, amount) {
            return Ok(share);
        }
        let mut turn = self.queue(claimant, amount).ok_or(NoShare::TooMany)?;
        let begun = Instant::now();
        loop {
            let left = patience.checked_sub(begun.elapsed()).ok_or(NoShare::Late)?;
            match tokio::time::timeout(left.min(SCARCE_AFTER), &mut turn).await {
                Ok(share) => return share.map_err(|_| NoShare::TooMany),
                Err(_) => self.cut_one_that_stands_still(claimant, amount),
            }
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().waiting > 0
    }

    pub(crate) fn wait(self: &Arc<Self>, claimant: &Claimant, amount: usize) -> Option<Share> {
        match self.try_take(claimant, amount) {
            Some(share) => Some(share),
            None => self.queue(claimant, amount)?.blocking_recv().ok(),
        }
    }

    fn queue(self: &Arc<Self>, claimant: &Claimant, amount: usize) -> Option<oneshot::Receiver<Share>> {
        if amount > self.bounds.per_connection.min(self.bounds.per_source).min(self.bounds.all) {
            return None;
        }
        let (tells, turn) = oneshot::channel();
        let mut state = self.lock();
        if state.waiting >= self.bounds.waiting {
            state.forget_who_left();
        }
        let evicted = if state.waiting >= self.bounds.waiting { Some(state.evict(claimant)?) } else { None };
        state.waiting += 1;
        let source = state.sources.entry(claimant.source).or_default();
        source.waiting += 1;
        let connection = source.connection(claimant);
        let gone = connection.forget_who_left();
        connection.waiting.push_back(Waiting { amount, tells });
        source.waiting -= gone;
        state.waiting -= gone;
        drop(state);
        drop(evicted);
        self.serve();
        Some(turn)
    }

    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some((tells, claimant, amount)) = state.next(&self.bounds) else { return };
            drop(state);
            // A request that has left gives it back.
            let share = Share::new(self, claimant, amount);
            if let Err(unwanted) = tells.send(share) {
                unwanted.give_back();
            }
        }
    }

    /// Ends a connection that has taken nothing for a while, if its share helps: the one with the most, of the source with the
    /// most.
    fn cut_one_that_stands_still(&self, waits: &Claimant, amount: usize) {
        let mut state = self.lock();
        let (of_source, of_connection) = state.held_of(waits.source, waits.id());
        let is_next = state.held + amount <= self.bounds.all && of_source + amount <= self.bounds.per_source;
        if is_next || of_connection + amount > self.bounds.per_connection {
            return;
        }
        // The last ended connection's share is handed out first.
        if state.cut_at.is_some_and(|at| at.elapsed() < CUT_EVERY) {
            return;
        }
        let is_of_source = of_source + amount > self.bounds.per_source;
        let sources = state.sources.iter().filter(|(address, _)| !is_of_source || **address == waits.source);
        let mut sources: Vec<&Source> = sources.map(|(_, source)| source).filter(|source| source.held > 0).collect();
        sources.sort_by_key(|source| std::cmp::Reverse(source.held));
        let cut = sources.into_iter().find_map(|source| {
            let lines = source.connections.values().filter(|connection| connection.with_reader > 0);
            let still = lines.filter_map(|connection| Some((connection.held, connection.line.upgrade()?)));
            still.filter(|(_, line)| line.stands_still()).max_by_key(|(held, _)| *held).map(|(_, line)| line)
        });
        state.cut_at = cut.is_some().then(Instant::now).or(state.cut_at);
        drop(state);
        if let Some(line) = cut {
            line.cut();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self, bounds: &Bounds, source: IpAddr, connection: ConnectionId, amount: usize) -> bool {
        let (of_source, of_connection) = self.held_of(source, connection);
        self.held + amount <= bounds.all
            && of_source + amount <= bounds.per_source
            && of_connection + amount <= bounds.per_connection
    }

    fn held_of(&self, source: IpAddr, connection: ConnectionId) -> (usize, usize) {
        let Some(source) = self.sources.get(&source) else { return (0, 0) };
        (source.held, source.connections.get(&connection).map_or(0, |it| it.held))
    }

    fn take(&mut self, claimant: &Claimant, amount: usize) {
        self.held += amount;
        self.turns += 1;
        let turns = self.turns;
        let source = self.sources.entry(claimant.source).or_default();
        source.held += amount;
        source.last_turn = turns;
        let connection = source.connection(claimant);
        connection.held += amount;
        connection.last_turn = turns;
    }

    fn give_back(&mut self, claimant: &Claimant, amount: usize, is_with_reader: bool) {
        self.held -= amount;
        let Some(source) = self.sources.get_mut(&claimant.source) else { return };
        source.held -= amount;
        if let Some(connection) = source.connections.get_mut(&claimant.id()) {
            connection.held -= amount;
            connection.with_reader -= if is_with_reader { amount } else { 0 };
        }
        self.tidy(claimant.source, claimant.id());
    }

    fn tidy(&mut self, source: IpAddr, connection: ConnectionId) {
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        let is_over = |it: &Connection| it.held == 0 && it.waiting.is_empty();
        if of_source.connections.get(&connection).is_some_and(is_over) {
            of_source.connections.remove(&connection);
        }
        if of_source.connections.is_empty() {
            self.sources.remove(&source);
        }
    }

    fn next(&mut self, bounds: &Bounds) -> Option<(oneshot::Sender<Share>, Claimant, usize)> {
        loop {
            let (_, _, source, id) = self
                .sources
                .iter()
                .filter(|(_, source)| source.waiting > 0 && source.held < bounds.per_source)
                .flat_map(|(address, source)| {
                    let waiting = source.connections.iter().filter(|(_, it)| !it.waiting.is_empty());
                    waiting.map(|(id, it)| (source.last_turn, it.last_turn, *address, *id))
                })
                .filter(|(_, _, address, id)| {
                    let first = self.sources[address].connections[id].waiting.front();
                    first.is_some_and(|first| self.has_room_but_for_all(bounds, *address, *id, first.amount))
                })
                .min()?;
            let of_source = self.sources.get_mut(&source)?;
            let connection = of_source.connections.get_mut(&id)?;
            let first = connection.waiting.front()?;
            let (amount, has_left) = (first.amount, first.tells.is_closed());
            let line = connection.line.upgrade().filter(|_| !has_left);
            // Overtaking a request that needs more than is free now would starve it.
            if line.is_some() && self.held + amount > bounds.all {
                return None;
            }
            let first = connection.waiting.pop_front()?;
            of_source.waiting -= 1;
            self.waiting -= 1;
            match line {
                Some(line) => {
                    let claimant = Claimant { source, line };
                    self.take(&claimant, amount);
                    return Some((first.tells, claimant, amount));
                }
                None => self.tidy(source, id),
            }
        }
    }

    fn has_room_but_for_all(&self, bounds: &Bounds, source: IpAddr, connection: ConnectionId, amount: usize) -> bool {
        self.has_room(&Bounds { all: usize::MAX, ..*bounds }, source, connection, amount)
    }

    fn forget_who_left(&mut self) {
        let mut gone = 0;
        for source in self.sources.values_mut() {
            for connection in source.connections.values_mut() {
                let before = connection.waiting.len();
                connection.waiting.retain(|waiting| !waiting.tells.is_closed());
                let left = before - connection.waiting.len();
                source.waiting -= left;
                gone += left;
            }
            source.connections.retain(|_, it| it.held > 0 || !it.waiting.is_empty());
        }
        self.sources.retain(|_, source| !source.connections.is_empty());
        self.waiting -= gone;
    }

    /// Removes the newest request of the connection with the most, of the source with the most. `None`: the newcomer.
    fn evict(&mut self, newcomer: &Claimant) -> Option<Waiting> {
        let (address, most) = self.sources.iter().max_by_key(|(_, source)| source.waiting)?;
        let (address, most) = (*address, most.waiting);
        let of_newcomer = self.sources.get(&newcomer.source);
        let of_connection = of_newcomer.and_then(|source| source.connections.get(&newcomer.id()));
        let (of_newcomer, of_connection) =
            (of_newcomer.map_or(0, |source| source.waiting), of_connection.map_or(0, |it| it.waiting.len()));
        let address = if most <= of_newcomer + 1 { newcomer.source } else { address };
        let source = self.sources.get_mut(&address)?;
        let (id, connection) = source.connections.iter_mut().max_by_key(|(_, it)| it.waiting.len())?;
        if address == newcomer.source && connection.waiting.len() <= of_connection + 1 {
            return None;
        }
        let (id, evicted) = (*id, connection.waiting.pop_back()?);
        source.waiting -= 1;
        self.waiting -= 1;
        self.tidy(address, id);
        Some(evicted)
    }
}

impl Connection {
    /// Removes abandoned requests, or repeated asking would leave a crowd.
    fn forget_who_left(&mut self) -> usize {
        let before = self.waiting.len();
        if before >= MAX_STREAMS as usize {
            self.waiting.retain(|waiting| !waiting.tells.is_closed());
        }
        before - self.waiting.len()
    }
}

impl Source {
    fn connection(&mut self, claimant: &Claimant) -> &mut Connection {
        let connection = self.connections.entry(claimant.id()).or_default();
        if connection.line.strong_count() == 0 {
            connection.line = Arc::downgrade(&claimant.line);
        }
        connection
    }
}

impl Share {
    fn new(budget: &Arc<Budget>, claimant: Claimant, amount: usize) -> Share {
        Share { budget: Arc::clone(budget), claimant, amount, is_with_reader: false }
    }

    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    pub(crate) fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        if less > 0 {
            self.amount -= less;
            self.budget.lock().give_back(&self.claimant, less, self.is_with_reader);
            self.budget.serve();
        }
    }

    /// Marks that the share waits only for the reader.
    pub(crate) fn with_reader(mut self) -> Share {
        self.waits_for_reader(true);
        self
    }

    pub(crate) fn waits_for_reader(&mut self, waits: bool) {
        if std::mem::replace(&mut self.is_with_reader, waits) == waits {
            return;
        }
        let mut state = self.budget.lock();
        let source = state.sources.get_mut(&self.claimant.source);
        if let Some(connection) = source.and_then(|source| source.connections.get_mut(&self.claimant.id())) {
            match waits {
                true => connection.with_reader += self.amount,
                false => connection.with_reader -= self.amount,
            }
        }
    }

    /// Gives back without serving the next.
    fn give_back(mut self) {
        self.budget.lock().give_back(&self.claimant, self.amount, self.is_with_reader);
        self.amount = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.budget.lock().give_back(&self.claimant, self.amount, self.is_with_reader);
            self.budget.serve();
        }
    }
}

/// A request that waited this long shows scarcity: a connection that stands still is ended for it.
const SCARCE_AFTER: Duration = Duration::from_millis(500);

/// The least time between two connections ended for others.
const CUT_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::net::Ipv4Addr;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::limits::Limits;
    use crate::transport::line::watchdog::Watchdog;

    fn claimants<const N: usize>(last: [u8; N]) -> [Claimant; N] {
        let watchdog = Arc::new(Watchdog::new(Limits::default()));
        last.map(|last| Claimant { source: Ipv4Addr::new(192, 0, 2, last).into(), line: Line::new(&watchdog, false) })
    }

    fn bounds(all: usize) -> Bounds {
        Bounds { all, per_source: all, per_connection: all, waiting: 100 }
    }

    type Turn = oneshot::Receiver<Share>;

    fn is_served(turn: &mut Turn) -> Option<Share> {
        match Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share.expect("it is not evicted")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn sources_and_their_connections_take_turns() {
        let budget = Budget::new(bounds(1));
        let [flood, flood_too, other] = claimants([1, 1, 2]);
        let mut held = Some(budget.try_take(&flood, 1).expect("it is free"));
        let mut turns: Vec<(&str, Turn)> = Vec::new();
        for _ in 0..3 {
            turns.push(("flood", budget.queue(&flood, 1).unwrap()));
        }
        turns.push(("flood, too", budget.queue(&flood_too, 1).unwrap()));
        for _ in 0..2 {
            turns.push(("other", budget.queue(&other, 1).unwrap()));
        }
        let mut order = Vec::new();
        while let Some(ended) = held.take() {
            drop(ended);
            let found = turns.iter_mut().enumerate().find_map(|(at, (_, turn))| Some((at, is_served(turn)?)));
            if let Some((at, share)) = found {
                order.push(turns.remove(at).0);
                held = Some(share);
            }
        }
        assert_eq!(order, ["other", "flood, too", "other", "flood", "flood", "flood"]);
        assert!(budget.lock().sources.is_empty(), "nothing is remembered of who has left");
    }

    #[test]
    fn a_source_and_a_connection_have_only_so_much() {
        let budget = Budget::new(Bounds { all: 10, per_source: 6, per_connection: 4, waiting: 100 });
        let [one, two, three, other] = claimants([1, 1, 1, 2]);
        let held = budget.try_take(&one, 4).unwrap();
        assert!(budget.try_take(&one, 1).is_none(), "its connection has enough");
        let more = budget.try_take(&two, 2).unwrap();
        assert!(budget.try_take(&three, 1).is_none(), "its address has enough");
        let mut waits = budget.queue(&three, 4).unwrap();
        assert!(is_served(&mut waits).is_none());
        let mut others = budget.queue(&other, 4).unwrap();
        let others = is_served(&mut others).expect("there is room for another address");
        drop(held);
        let share = is_served(&mut waits).expect("its turn has come");
        assert_eq!(budget.lock().held, 10);
        drop((more, others, share));
        assert_eq!(budget.lock().held, 0);
        assert!(budget.queue(&one, 5).is_none(), "that much is never given");
    }

    #[test]
    fn who_left_is_passed_over_and_a_crowd_makes_way_for_others() {
        let budget = Budget::new(Bounds { waiting: 3, ..bounds(1) });
        let [flood, other, third] = claimants([1, 2, 3]);
        let held = budget.try_take(&third, 1).unwrap();
        let turns: Vec<Turn> = (0..3).map(|_| budget.queue(&flood, 1).unwrap()).collect();
        assert!(budget.queue(&flood, 1).is_none(), "it waits often enough");
        let others = budget.queue(&other, 1).expect("one of the crowd makes way");
        let mut turns = turns.into_iter();
        let (left, stays, mut evicted) = (turns.next(), turns.next().unwrap(), turns.next().unwrap());
        assert!(evicted.try_recv().is_err_and(|why| why == oneshot::error::TryRecvError::Closed));
        drop(left);
        drop(held);
        let mut turns = vec![stays, others];
        for _ in 0..2 {
            let served = turns.iter_mut().enumerate().find_map(|(at, turn)| Some((at, is_served(turn)?)));
            let (at, share) = served.expect("somebody is served");
            turns.remove(at);
            drop(share);
        }
        let state = budget.lock();
        assert_eq!((state.waiting, state.held), (0, 0));
    }

    #[test]
    fn a_connection_of_the_crowds_own_address_has_its_place_too() {
        let budget = Budget::new(Bounds { waiting: 3, ..bounds(1) });
        let [flood, other] = claimants([1, 1]);
        let _held = budget.try_take(&flood, 1).unwrap();
        let mut turns: Vec<Turn> = (0..3).map(|_| budget.queue(&flood, 1).unwrap()).collect();
        let _others = budget.queue(&other, 1).expect("the newest of the crowd makes way");
        assert!(turns.pop().unwrap().try_recv().is_err_and(|why| why == oneshot::error::TryRecvError::Closed));
        assert!(budget.queue(&other, 1).is_none() && budget.queue(&flood, 1).is_none(), "each has enough");
    }

    #[test]
    fn what_stands_still_is_ended_for_those_whom_it_keeps_waiting_alone() {
        let budget = Budget::new(Bounds { all: 10, per_source: 4, per_connection: 3, waiting: 100 });
        let watchdog = Arc::new(Watchdog::new(Limits::default()));
        let [own, flood, other, third] = [1, 1, 2, 3]
            .map(|last| Claimant { source: Ipv4Addr::new(192, 0, 2, last).into(), line: Line::new(&watchdog, false) });
        let holds = |of: &Claimant, amount| budget.try_take(of, amount).unwrap().with_reader();
        let _held = [holds(&own, 1), holds(&flood, 3), holds(&other, 3)];
        watchdog.look(Instant::now() + 2 * crate::limits::STANDS_STILL);
        let cut = || [&own, &flood, &other].map(|claimant| claimant.line.is_cut());
        budget.cut_one_that_stands_still(&third, 1);
        assert_eq!(cut(), [false; 3], "there is enough for it");
        budget.cut_one_that_stands_still(&other, 1);
        assert_eq!(cut(), [false; 3], "it waits for its own connection");
        budget.cut_one_that_stands_still(&own, 1);
        assert_eq!(cut(), [false, true, false], "it waits for its own address");
    }

    #[test]
    fn a_share_that_shrinks_serves_the_next() {
        let budget = Budget::new(bounds(10));
        let [one, two] = claimants([1, 2]);
        let mut share = budget.try_take(&one, 10).unwrap();
        let mut waits = budget.queue(&two, 6).unwrap();
        share.shrink_to(5);
        assert!(is_served(&mut waits).is_none());
        share.shrink_to(4);
        assert!(is_served(&mut waits).is_some());
    }
}

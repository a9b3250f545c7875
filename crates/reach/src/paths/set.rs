//! Holds the paths of a session, and the dialler of each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::paths::Way;
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_PATHS;

use crate::dialler::Dialler;
use crate::redial::Redialler;
use haul_channel::channel::{Channel, LinkId};
use haul_channel::lane_threads::LaneKeeper;
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;

/// The pause of a path that stood. An attempt takes up to 3 s, with a second SYN after 1 s: a healed path is used at most 2 s
/// later.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// The first pause of a way that never worked; doubles up to [`NEVER_PAUSE_MAX`].
const NEVER_PAUSE: Duration = Duration::from_secs(4);

const NEVER_PAUSE_MAX: Duration = Duration::from_secs(64);

/// A session's paths. Brings lanes back.
#[derive(Clone)]
pub struct PathSet {
    state: Arc<Mutex<State>>,
    channel: Channel,
    paths_max: u16,
    wakes: SyncSender<()>,
}

#[derive(Default)]
struct State {
    paths: BTreeMap<u16, Path>,
    /// More than one path stood: each is then bound to its way.
    is_several: bool,
}

struct Path {
    way: Way,
    stage: Stage,
    dialler: Option<Arc<Dialler>>,
    redialler: Option<Redialler>,
    link: Option<LinkId>,
    /// The host once had its way. Kernels do not tell of some, such as link-local ones.
    was_there: bool,
    stood: bool,
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Tried,
    Up,
    /// The path is down until the next attempt at this time.
    Down(Instant),
}

pub(super) struct Due {
    pub(super) number: u16,
    pub(super) way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Vain {
    First,
    Again,
}

impl PathSet {
    pub(super) fn with_first(
        way: Way,
        dialler: Arc<Dialler>,
        lanes: u16,
        channel: Channel,
        wakes: SyncSender<()>,
    ) -> Self {
        let set = Self { state: Arc::default(), channel, paths_max: MAX_PATHS, wakes };
        let redialler = Some(Redialler::new(Arc::clone(&dialler), lanes));
        // The kernel chose both the link's way and the lanes': most likely the same.
        let link = Some(LinkId::FIRST);
        let dialler = Some(dialler);
        let path = Path { dialler, redialler, link, stood: true, ..Path::new(&way, Stage::Up) };
        lock(&set.state).paths.insert(0, path);
        set
    }

    pub(super) fn adopt(&self, number: u16, way: &Way, dialler: &Arc<Dialler>) {
        let path = Path { dialler: Some(Arc::clone(dialler)), ..Path::new(way, Stage::Tried) };
        lock(&self.state).paths.insert(number, path);
    }

    pub(super) fn at_most(self, paths_max: u16) -> Self {
        Self { paths_max, ..self }
    }

    pub(super) fn up(&self) -> Vec<(u16, Way)> {
        let state = lock(&self.state);
        let up = state.paths.iter().filter(|(_, path)| path.stage == Stage::Up);
        up.map(|(number, path)| (*number, path.way.clone())).collect()
    }

    pub(super) fn has_reached(&self, remote: IpAddr) -> bool {
        lock(&self.state).paths.values().any(|path| path.stood && path.way.remote == remote)
    }

    pub(super) fn in_vain(&self) -> Vec<Way> {
        let state = lock(&self.state);
        let is_in_vain = |path: &&Path| !path.stood && path.tries > 0 && matches!(path.stage, Stage::Down(_));
        state.paths.values().filter(is_in_vain).map(|path| path.way.clone()).collect()
    }

    /// Adds ways, with a free number or that of an unwanted path that is down.
    pub(super) fn want(&self, ways: Vec<Way>, now: Instant) {
        let mut state = lock(&self.state);
        for way in &ways {
            if state.paths.values().any(|path| path.way == *way) {
                continue;
            }
            let is_idle = |path: &Path| matches!(path.stage, Stage::Down(_)) && !ways.contains(&path.way);
            let free = (0..self.paths_max).find(|number| !state.paths.contains_key(number));
            let number = free.or_else(|| state.paths.iter().find(|(_, path)| is_idle(path)).map(|(number, _)| *number));
            let Some(number) = number else { return };
            state.paths.insert(number, Path::new(way, Stage::Down(now)));
        }
    }

    /// Takes due paths that `can_be` dialled, as tried.
    pub(super) fn due(&self, now: Instant, can_be: impl Fn(&Way) -> bool) -> Vec<Due> {
        let mut state = lock(&self.state);
        let due = state.paths.iter_mut().filter(|(_, path)| match path.stage {
            Stage::Down(at) => at <= now && can_be(&path.way),
            Stage::Tried | Stage::Up => false,
        });
        due.map(|(number, path)| {
            path.stage = Stage::Tried;
            Due { number: *number, way: path.way.clone() }
        })
        .collect()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let due = state.paths.values().filter_map(|path| match path.stage {
            Stage::Down(at) => Some(at),
            Stage::Tried | Stage::Up => None,
        });
        due.min()
    }

    pub(super) fn try_now(&self, now: Instant) {
        for path in lock(&self.state).paths.values_mut() {
            if let Stage::Down(at) = &mut path.stage {
                (*at, path.tries) = ((*at).min(now), 0);
            }
        }
        wake(&self.wakes);
    }

    pub(super) fn tries(&self, number: u16, dialler: &Arc<Dialler>) {
        if let Some(path) = lock(&self.state).paths.get_mut(&number) {
            path.dialler = Some(Arc::clone(dialler));
            path.redialler = None;
        }
    }

    pub(super) fn stands(&self, number: u16, lanes: u16) {
        let mut state = lock(&self.state);
        let Some(path) = state.paths.get_mut(&number) else { return };
        let Some(dialler) = path.dialler.clone() else { return };
        if lock(&dialler.connected).is_empty() {
            path.goes_down(&self.channel);
        } else {
            (path.stage, path.stood, path.tries) = (Stage::Up, true, 0);
            path.redialler = Some(Redialler::new(dialler, lanes));
        }
        state.is_several = true;
        drop(state);
        wake(&self.wakes);
    }

    pub(super) fn has_link(&self, number: u16, link: Option<LinkId>) {
        if let Some(path) = lock(&self.state).paths.get_mut(&number) {
            path.link = link;
        }
    }

    pub(super) fn failed(&self, number: u16) -> Vain {
        let mut state = lock(&self.state);
        let Some(path) = state.paths.get_mut(&number) else { return Vain::Again };
        let vain = if path.stood || path.tries > 0 { Vain::Again } else { Vain::First };
        path.goes_down(&self.channel);
        drop(state);
        wake(&self.wakes);
        vain
    }

    pub(super) fn was_there(&self, number: u16) {
        if let Some(path) = lock(&self.state).paths.get_mut(&number) {
            path.was_there = true;
        }
    }

    /// Returns false for a path that was not up, or whose way this host never told.
    pub(super) fn is_gone(&self, number: u16) -> bool {
        let mut state = lock(&self.state);
        let path = state.paths.get_mut(&number).filter(|path| path.stage == Stage::Up && path.was_there);
        path.map(|path| path.goes_down(&self.channel)).is_some()
    }
}

impl Path {
    fn new(way: &Way, stage: Stage) -> Self {
        Self {
            way: way.clone(),
            stage,
            dialler: None,
            redialler: None,
            link: None,
            was_there: false,
            stood: false,
            tries: 0,
        }
    }

    fn goes_down(&mut self, channel: &Channel) {
        if let Some(link) = self.link.take() {
            channel.avoid(link);
        }
        if let Some(dialler) = self.dialler.take() {
            dialler.give_up();
        }
        self.redialler = None;
        let pause = match self.stood {
            true => LOST_PAUSE,
            false => (NEVER_PAUSE * 2u32.pow(self.tries.min(4))).min(NEVER_PAUSE_MAX),
        };
        self.tries = self.tries.saturating_add(1);
        self.stage = Stage::Down(Instant::now() + pause);
    }
}

impl LaneKeeper for PathSet {
    fn lane_lost(&mut self, lane: u16) {
        let mut state = lock(&self.state);
        let is_several = state.is_several;
        let Some(path) = state.paths.get_mut(&path_of(lane)) else { return };
        let is_last = path.dialler.as_ref().is_some_and(|dialler| {
            let connected = lock(&dialler.connected);
            connected.len() == 1 && connected.contains_key(&lane)
        });
        match &mut path.redialler {
            // Without a lane the path may not work. The first new lane finds out.
            _ if is_several && is_last => {
                path.goes_down(&self.channel);
                drop(state);
                wake(&self.wakes);
            }
            Some(redialler) => redialler.lane_lost(lane),
            None => {
                if let Some(dialler) = &path.dialler {
                    lock(&dialler.connected).remove(&lane);
                }
            }
        }
    }

    fn want(&mut self, path: u16, lanes: u16) -> bool {
        let mut state = lock(&self.state);
        if let Some(redialler) = state.paths.get_mut(&path).and_then(|path| path.redialler.as_mut()) {
            redialler.want(lanes);
        }
        true
    }

    fn shrink(&mut self, path: u16, segment_bytes: u16) -> bool {
        let state = lock(&self.state);
        let Some(dialler) = state.paths.get(&path).and_then(|path| path.dialler.as_ref()) else { return false };
        dialler.shrink(segment_bytes);
        true
    }

    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool {
        let state = lock(&self.state);
        let Some(dialler) = state.paths.get(&path).and_then(|path| path.dialler.as_ref()) else { return false };
        dialler.leave_from(outlet, lanes)
    }
}

pub(super) fn wake(wakes: &SyncSender<()>) {
    let _ = wakes.try_send(());
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc::{Receiver, sync_channel};

    use haul_net::Stream;
    use haul_wire::lane::lane_of;

    use super::*;
    use crate::dial_threads::DialThreadsOwner;
    use crate::lane_terms::LaneTerms;
    use haul_channel::channel::{Events, PING_EVERY};

    fn way(interface: &str, net: u8) -> Way {
        let ip = |host| IpAddr::from([10, net, 0, host]);
        Way { interface: interface.into(), local: ip(1), remote: ip(2) }
    }

    struct Trial {
        set: PathSet,
        terms: LaneTerms,
        woken: Receiver<()>,
        _dial_owner: DialThreadsOwner,
        _events: Events,
        _peer: Stream,
    }

    impl Trial {
        fn new() -> Self {
            let (near, peer) = Stream::plain_pair().unwrap();
            let (events, dial_owner) = (Events::new(), DialThreadsOwner::new());
            let channel = Channel::open(near, events.sender(), PING_EVERY).unwrap();
            let terms = LaneTerms::towards_nobody(&events, dial_owner.threads());
            let (wakes, woken) = sync_channel(1);
            let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
            let dialler = Arc::new(Dialler::new(terms.clone(), vec![nowhere]));
            lock(&dialler.connected).insert(0, Instant::now());
            let set = PathSet::with_first(way("eth0", 0), dialler, 1, channel, wakes);
            Self { set, terms, woken, _dial_owner: dial_owner, _events: events, _peer: peer }
        }

        fn comes_up(&self, number: u16) {
            let dialler = self.dialler(number);
            self.set.tries(number, &dialler);
            lock(&dialler.connected).insert(lane_of(number, 0), Instant::now());
            self.set.stands(number, 1);
        }

        fn dialler(&self, number: u16) -> Arc<Dialler> {
            let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
            Arc::new(Dialler::on_path(self.terms.clone(), number, haul_net::Way::default(), vec![nowhere]))
        }

        fn up(&self) -> Vec<u16> {
            self.set.up().into_iter().map(|(number, _)| number).collect()
        }

        fn due(&self, at: Instant) -> Vec<u16> {
            self.set.due(at, |_| true).into_iter().map(|due| due.number).collect()
        }
    }

    #[test]
    fn a_path_that_was_dialled_together_with_the_first_is_not_dialled_twice() {
        let trial = Trial::new();
        let (now, dialler) = (Instant::now(), trial.dialler(1));
        trial.set.adopt(1, &way("eth1", 1), &dialler);
        trial.set.want(vec![way("eth0", 0), way("eth1", 1), way("eth2", 2)], now);
        assert_eq!((trial.up(), trial.due(now)), (vec![0], vec![2]));
        lock(&dialler.connected).insert(lane_of(1, 0), Instant::now());
        trial.set.stands(1, 1);
        assert_eq!(trial.up(), [0, 1]);
        trial.set.adopt(3, &way("eth3", 3), &trial.dialler(3));
        trial.set.failed(3);
        let later = trial.set.next_due().unwrap();
        assert_eq!(trial.due(later), [3]);
    }

    #[test]
    fn a_path_that_loses_its_last_lane_is_down_and_is_dialled_again() {
        let mut trial = Trial::new();
        let now = Instant::now();
        trial.set.want(vec![way("eth0", 0), way("eth1", 1)], now);
        assert_eq!((trial.up(), trial.due(now)), (vec![0], vec![1]), "the first path has its way already");
        assert_eq!(trial.due(now), Vec::<u16>::new(), "somebody is dialling it");
        trial.comes_up(1);
        assert_eq!(trial.up(), [0, 1]);
        let _ = trial.woken.try_recv();
        trial.set.lane_lost(0);
        assert_eq!(trial.up(), [1]);
        assert!(trial.woken.try_recv().is_ok(), "whoever brings paths is woken");
        assert_eq!(trial.due(Instant::now()), Vec::<u16>::new(), "a moment later");
        assert_eq!(trial.due(Instant::now() + LOST_PAUSE), [0]);
    }

    #[test]
    fn a_first_path_that_is_alone_has_its_lanes_dialled_one_by_one_as_ever() {
        let mut trial = Trial::new();
        trial.set.lane_lost(0);
        assert_eq!(trial.up(), [0], "it may be the lane and not the path");
    }

    #[test]
    fn a_lane_that_is_lost_before_its_path_counts_as_up_takes_the_path_down() {
        let mut trial = Trial::new();
        let now = Instant::now();
        trial.set.want(vec![way("eth1", 1)], now);
        assert_eq!(trial.due(now), [1]);
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let dialler = Arc::new(Dialler::on_path(trial.terms.clone(), 1, haul_net::Way::default(), vec![nowhere]));
        trial.set.tries(1, &dialler);
        lock(&dialler.connected).insert(lane_of(1, 0), Instant::now());
        trial.set.lane_lost(lane_of(1, 0));
        trial.set.stands(1, 1);
        assert_eq!(trial.up(), [0]);
    }

    #[test]
    fn a_way_of_which_this_host_never_told_is_not_taken_for_gone() {
        let trial = Trial::new();
        assert!(!trial.set.is_gone(0), "a link-local address, for one");
        trial.set.was_there(0);
        assert!(trial.set.is_gone(0));
        assert_eq!(trial.up(), Vec::<u16>::new());
        assert!(!trial.set.is_gone(0), "it is down already");
    }

    #[test]
    fn a_way_that_never_led_anywhere_is_tried_ever_less_often_until_the_network_changes() {
        let trial = Trial::new();
        let now = Instant::now();
        trial.set.want(vec![way("docker0", 7)], now);
        let mut pauses = Vec::new();
        for attempt in 0..7 {
            let at = trial.set.next_due().unwrap().max(now);
            assert_eq!(trial.due(at), [1]);
            let vain = trial.set.failed(1);
            assert_eq!(vain == Vain::First, attempt == 0, "the user hears of it once");
            pauses.push(trial.set.next_due().unwrap().saturating_duration_since(Instant::now()).as_secs_f64().round());
        }
        assert_eq!(pauses, [4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]);
        assert_eq!(trial.set.in_vain(), [way("docker0", 7)], "and others of its interface may be tried");
        trial.set.try_now(Instant::now());
        assert_eq!(trial.due(Instant::now()), [1]);
    }

    #[test]
    fn there_are_never_more_paths_than_a_session_has_and_a_way_that_is_idle_makes_room() {
        let trial = Trial::new();
        let now = Instant::now();
        trial.set.want((1..40).map(|net| way("eth1", net)).collect(), now);
        let due = trial.due(now);
        assert_eq!(due, (1..MAX_PATHS).collect::<Vec<_>>());
        trial.comes_up(3);
        trial.set.failed(5);
        trial.set.want(vec![way("wlan0", 99)], now);
        let due = trial.set.due(now, |_| true);
        assert_eq!(due.iter().map(|due| (due.number, due.way.interface.as_str())).collect::<Vec<_>>(), [(5, "wlan0")]);
    }
}

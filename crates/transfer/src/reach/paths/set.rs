//! The paths of a session, and who brings the lanes of each.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::paths::Way;
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_PATHS;

use crate::reach::dialler::Dialler;
use crate::reach::redial::Redialler;
use crate::session::channel::{Channel, LinkId};
use crate::session::lane_threads::LaneKeeper;
use crate::sync::lock;

/// A path that stood is tried again after this pause. An attempt takes up to three seconds, and within it the kernel asks again after
/// one: what heals is used two seconds later at most.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// A way that never led anywhere is tried again after this pause, which doubles up to [`NEVER_PAUSE_MAX`].
const NEVER_PAUSE: Duration = Duration::from_secs(4);

/// See [`NEVER_PAUSE`].
const NEVER_PAUSE_MAX: Duration = Duration::from_secs(64);

/// The paths of a session, by their numbers. It brings their lanes back.
#[derive(Clone)]
pub(crate) struct PathSet {
    state: Arc<Mutex<State>>,
    channel: Channel,
    /// Wakes the thread that brings paths.
    wakes: SyncSender<()>,
}

#[derive(Default)]
struct State {
    paths: BTreeMap<u16, Path>,
    /// More than one path has stood: each is bound to its way from then on.
    is_several: bool,
}

struct Path {
    way: Way,
    stage: Stage,
    dialler: Option<Arc<Dialler>>,
    redialler: Option<Redialler>,
    /// The link of the control channel that takes this way.
    link: Option<LinkId>,
    /// It has stood.
    stood: bool,
    /// Attempts in vain since it last stood.
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Somebody is dialling it.
    Tried,
    /// It has lanes.
    Up,
    /// It has none, and is tried then.
    Down(Instant),
}

/// A path that is to be dialled now.
pub(super) struct Due {
    pub(super) number: u16,
    pub(super) way: Way,
}

/// What an attempt in vain means for the user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Vain {
    /// The first one on a way that never led anywhere.
    First,
    /// He has heard of it.
    Again,
}

impl PathSet {
    /// With the first path of a session, to which `lanes` were dialled.
    pub(super) fn with_first(
        way: Way,
        dialler: Arc<Dialler>,
        lanes: u16,
        channel: Channel,
        wakes: SyncSender<()>,
    ) -> Self {
        let set = Self { state: Arc::default(), channel, wakes };
        let redialler = Some(Redialler::new(Arc::clone(&dialler), lanes));
        // The first link most likely takes the way that the first lanes take: both are the kernel's choice.
        let link = Some(LinkId::FIRST);
        let path = Path { way, stage: Stage::Up, dialler: Some(dialler), redialler, link, stood: true, tries: 0 };
        lock(&set.state).paths.insert(0, path);
        set
    }

    /// The ways of the paths that have lanes, by their numbers.
    pub(super) fn up(&self) -> Vec<(u16, Way)> {
        let state = lock(&self.state);
        let up = state.paths.iter().filter(|(_, path)| path.stage == Stage::Up);
        up.map(|(number, path)| (*number, path.way.clone())).collect()
    }

    /// From now on these ways are wanted. Those that are new get a number; when none is left, that of a path which is down and not wanted.
    pub(super) fn want(&self, ways: Vec<Way>, now: Instant) {
        let mut state = lock(&self.state);
        for way in ways {
            if state.paths.values().any(|path| path.way == way) {
                continue;
            }
            let free = (0..MAX_PATHS).find(|number| !state.paths.contains_key(number));
            let path = Path {
                way,
                stage: Stage::Down(now),
                dialler: None,
                redialler: None,
                link: None,
                stood: false,
                tries: 0,
            };
            let is_idle = |path: &Path| matches!(path.stage, Stage::Down(_));
            let number = free.or_else(|| state.paths.iter().find(|(_, path)| is_idle(path)).map(|(number, _)| *number));
            if let Some(number) = number {
                state.paths.insert(number, path);
            }
        }
    }

    /// The paths that are to be dialled now and that `can_be`; they count as tried.
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

    /// When the next path is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let due = state.paths.values().filter_map(|path| match path.stage {
            Stage::Down(at) => Some(at),
            Stage::Tried | Stage::Up => None,
        });
        due.min()
    }

    /// Every path that is down is tried at once: the network has changed.
    pub(super) fn try_now(&self, now: Instant) {
        for path in lock(&self.state).paths.values_mut() {
            if let Stage::Down(at) = &mut path.stage {
                (*at, path.tries) = ((*at).min(now), 0);
            }
        }
        wake(&self.wakes);
    }

    /// Somebody begins to dial a path with this.
    pub(super) fn tries(&self, number: u16, dialler: &Arc<Dialler>) {
        if let Some(path) = lock(&self.state).paths.get_mut(&number) {
            path.dialler = Some(Arc::clone(dialler));
            path.redialler = None;
        }
    }

    /// So many lanes of a path were dialled, and its first one stands.
    pub(super) fn stands(&self, number: u16, lanes: u16) {
        let mut state = lock(&self.state);
        let Some(path) = state.paths.get_mut(&number) else { return };
        let Some(dialler) = path.dialler.clone() else { return };
        // They may have gone meanwhile.
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

    /// The control channel has this link on a path.
    pub(super) fn has_link(&self, number: u16, link: Option<LinkId>) {
        if let Some(path) = lock(&self.state).paths.get_mut(&number) {
            path.link = link;
        }
    }

    /// An attempt was in vain.
    pub(super) fn failed(&self, number: u16) -> Vain {
        let mut state = lock(&self.state);
        let Some(path) = state.paths.get_mut(&number) else { return Vain::Again };
        let vain = if path.stood || path.tries > 0 { Vain::Again } else { Vain::First };
        path.goes_down(&self.channel);
        drop(state);
        wake(&self.wakes);
        vain
    }

    /// A path whose way does not exist any more. False: it was not up.
    pub(super) fn is_gone(&self, number: u16) -> bool {
        let mut state = lock(&self.state);
        let path = state.paths.get_mut(&number).filter(|path| path.stage == Stage::Up);
        path.map(|path| path.goes_down(&self.channel)).is_some()
    }
}

impl Path {
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
            // Without a lane nobody knows whether the path still leads anywhere. The first lane finds out.
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
}

/// Wakes the thread that brings paths. It may be awake, or have somebody's word already.
pub(super) fn wake(wakes: &SyncSender<()>) {
    let _ = wakes.try_send(());
}

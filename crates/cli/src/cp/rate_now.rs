//! The limit of the rate at this moment, by flags or a later 'haul rate'.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_job::timetable::Timetable;

use crate::cp::flags::Cp;
use crate::cp::job;
use crate::cp::on_end::OnEnd;
use crate::cp::wall_clock;

pub struct RateNow {
    shared: Arc<Shared>,
    /// Without a record only the clock counts, and the asker looks.
    has_thread: bool,
}

struct Shared {
    on_end: Arc<OnEnd>,
    state: Mutex<State>,
}

struct State {
    asked: Timetable,
    limit: Option<u64>,
    looked: Instant,
}

impl RateNow {
    /// The flags' limit, until the record has another. A thread looks, because a disk with records may not answer.
    pub fn of(typed: &Cp, on_end: &Arc<OnEnd>) -> Self {
        let asked = job::asked_rate(typed);
        let limit = asked.at(wall_clock::minute());
        let state = State { asked, limit, looked: Instant::now() };
        let shared = Arc::new(Shared { on_end: Arc::clone(on_end), state: Mutex::new(state) });
        shared.look();
        let looks = Arc::downgrade(&shared);
        let look = move || {
            while let Some(shared) = looks.upgrade() {
                shared.look();
                drop(shared);
                thread::park_timeout(LOOK_EVERY);
            }
        };
        let has_thread = on_end.is_detached() && thread::Builder::new().name("rate".into()).spawn(look).is_ok();
        Self { shared, has_thread }
    }

    /// Bytes per second; `None`: no limit. May be as old as [`LOOK_EVERY`].
    pub fn limit(&self) -> Option<u64> {
        if !self.has_thread && self.shared.state().looked.elapsed() >= LOOK_EVERY {
            self.shared.look();
        }
        self.shared.state().limit
    }
}

impl Shared {
    fn look(&self) {
        let asked = self.on_end.asked_rate();
        let mut state = self.state();
        state.asked = asked.unwrap_or_else(|| state.asked.clone());
        state.limit = state.asked.at(wall_clock::minute());
        state.looked = Instant::now();
        let (asked, limit) = (state.asked.clone(), state.limit);
        drop(state);
        self.on_end.rate_is(&asked, limit);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 'haul rate' is heard within a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

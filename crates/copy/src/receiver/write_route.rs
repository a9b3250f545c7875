//! Chooses for each file system of a job whether large files are written past the page cache.
//!
//! The file system says whether it can -> what an earlier job has measured there -> else a trial, once -> told once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use haul_job::Subject;
use haul_store::{Part, WriteRoute};
use haul_wire::control::Notice;

use haul_channel::convert;
use haul_channel::disk_watch::Storage;
use haul_kept::known_routes::KnownRoutes;
use haul_kept::sync::lock;

/// Further file systems are written through the page cache.
const MAX_FILE_SYSTEMS: usize = 64;

pub(super) struct WriteRoutes {
    asked: Option<WriteRoute>,
    known: KnownRoutes,
    chosen: Mutex<Vec<(Option<u64>, WriteRoute)>>,
    refusal_said: AtomicBool,
}

impl WriteRoutes {
    /// The caller makes it before it gives up the right to open files.
    pub(super) fn new(asked: Option<WriteRoute>, known: KnownRoutes) -> Self {
        Self { asked, known, chosen: Mutex::default(), refusal_said: AtomicBool::new(false) }
    }

    /// Whether even the smallest chunked file goes past the page cache.
    pub(super) fn is_forced(&self) -> bool {
        self.asked == Some(WriteRoute::Direct)
    }

    /// Notes missing or refused direct writes. Returns what to tell.
    pub(super) fn refused(&self) -> Option<Notice> {
        if self.is_forced() && !self.refusal_said.swap(true, Ordering::Relaxed) {
            let text = "--write-route direct: the file system of the target has no direct writes: it is written through the page cache";
            return Some(Notice::Warning { text: text.to_owned() });
        }
        None
    }

    /// Chooses the part's route. The first thread that asks measures, and the others wait. `tell` hears of it once.
    pub(super) fn choose(&self, part: &Part, storage: &Storage, tell: impl FnOnce(Notice)) -> WriteRoute {
        let id = part.file_system_id();
        let mut chosen = lock(&self.chosen);
        if let Some((_, route)) = chosen.iter().find(|(known, _)| *known == id) {
            return *route;
        }
        if chosen.len() >= MAX_FILE_SYSTEMS {
            return WriteRoute::Copy;
        }
        let (route, reason) = match self.asked {
            Some(route) => (route, "asked for".to_owned()),
            None => self.find_or_measure(id, part, storage),
        };
        chosen.push((id, route));
        let (what, choice) = (Subject::WriteRoute, route.name().to_owned());
        tell(convert::chose(what, choice, reason));
        route
    }
}

impl WriteRoutes {
    fn find_or_measure(&self, id: Option<u64>, part: &Part, storage: &Storage) -> (WriteRoute, String) {
        let now = SystemTime::now();
        if let Some(route) = id.and_then(|id| self.known.find(id, now)) {
            return (route, "measured on this file system by an earlier job".to_owned());
        }
        let (route, reason) = measure(part, storage);
        if let Some(id) = id {
            self.known.keep(id, route, now);
        }
        (route, reason)
    }
}

fn measure(part: &Part, storage: &Storage) -> (WriteRoute, String) {
    match storage.during(|| part.try_routes()) {
        Ok(trial) => {
            let [direct_ms, copy_ms] = [trial.direct, trial.copy].map(|took| took.as_secs_f64() * 1e3);
            let compared = format!("a trial took {direct_ms:.1} ms past the page cache, {copy_ms:.1} ms through it");
            (trial.choice(), compared)
        }
        Err(error) => (WriteRoute::Copy, error.to_string()),
    }
}

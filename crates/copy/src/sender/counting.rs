//! Counts the sources ahead of the walk, which waits for its window, to tell how long a copy still takes.
//!
//! the walk is behind the data -> tell which share of the names it has seen, now and then
//! the window is full for once  -> walk the sources once more, keep nothing but two sums, tell them now and then
//!
//! The second walk is cheap: the first then finds in memory what it looked at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_store::{EntryKind, Found, ItemSource, SourceTree, WalkOptions};
use haul_wire::control::Counted;

use haul_kept::files::sparse;

use super::state::Shared;

pub(super) struct Counting<'a> {
    shared: &'a Arc<Shared>,
    count: Option<(WalkOptions, Arc<dyn SourceTree>)>,
    sums: Sums,
}

struct Sums {
    files: u64,
    data_bytes: u64,
    told: Instant,
}

impl Sums {
    fn new() -> Self {
        Self { files: 0, data_bytes: 0, told: Instant::now() }
    }

    fn add(&mut self, data_bytes: u64) {
        self.files += 1;
        self.data_bytes = self.data_bytes.saturating_add(data_bytes);
    }

    fn counted(&self, share: f64) -> Counted {
        let share_ppm = (share.clamp(0.0, 1.0) * f64::from(Counted::WHOLE_PPM)) as u32;
        Counted { files: self.files, data_bytes: self.data_bytes, share_ppm }
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.told.elapsed() >= TELL_EVERY;
        if is_due {
            self.told = Instant::now();
        }
        is_due
    }
}

impl<'a> Counting<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, count: (WalkOptions, Arc<dyn SourceTree>)) -> Self {
        Self { shared, count: Some(count), sums: Sums::new() }
    }

    pub(super) fn found(&mut self, data_bytes: u64, items: &dyn ItemSource) {
        self.sums.add(data_bytes);
        if self.count.is_none() {
            return;
        }
        if self.shared.walk_is_ahead() {
            if let Some((options, sources)) = self.count.take() {
                begin(Arc::clone(self.shared), options, sources);
            }
        } else if self.sums.is_due()
            && let Some(share) = items.share()
        {
            // The walk is not over, whatever the names say.
            let counted = self.sums.counted(share);
            self.shared.counted(Counted { share_ppm: counted.share_ppm.min(Counted::WHOLE_PPM - 1), ..counted });
        }
    }
}

/// Without a thread there is no figure.
fn begin(shared: Arc<Shared>, options: WalkOptions, sources: Arc<dyn SourceTree>) {
    let _ = std::thread::Builder::new().name("count".into()).spawn(move || {
        let _ = haul_sys::affinity::set_niceness(LEAST_URGENT);
        count(&shared, options, sources);
    });
}

fn count(shared: &Shared, options: WalkOptions, sources: Arc<dyn SourceTree>) {
    let mut sums = Sums::new();
    let mut items = sources.items(options);
    while let Some(found) = items.next() {
        if shared.is_over() {
            return;
        }
        let Found::Entry(entry) = found else { continue };
        if matches!(entry.kind, EntryKind::File { .. }) {
            sums.add(data_bytes(entry.stat.size, sparse::hole_bytes(&entry.stat)));
        }
        if sums.is_due()
            && let Some(share) = items.share()
        {
            let counted = sums.counted(share);
            shared.counted(Counted { share_ppm: counted.share_ppm.min(Counted::WHOLE_PPM - 1), ..counted });
        }
    }
    shared.counted(sums.counted(1.0));
}

/// Opens no file. A file of an eighth of its size has holes; one that takes less than its size may be compressed.
fn data_bytes(size: u64, hole_bytes: u64) -> u64 {
    if hole_bytes > size / 8 * 7 { size - hole_bytes } else { size }
}

const TELL_EVERY: Duration = Duration::from_millis(500);

/// Gives way to the lanes: setpriority(2).
const LEAST_URGENT: i32 = 19;

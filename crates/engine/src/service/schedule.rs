//! The class of a job that shall be done by a time: `--by`, `--within`.
//!
//! ```text
//!   ahead        on the straight line from start to deadline, or before it   -> Background: what nobody else wants
//!   behind       it                                                          -> Normal: a fair share
//!   far behind   all the path can give from now on is needed                 -> Priority, as far as it is allowed
//! ```
//! Priority comes when all of the path, to the deadline, is just enough: before, others may still leave; after, each second with
//! less is lost.
//!
//! The path can give its best ten seconds so far, or its rate with priority. If both are unknown, the highest allowed class shows
//! it. If that is too little, the deadline cannot be met.

use alloc::collections::VecDeque;
use core::fmt;

use super::ServiceClass;

/// Keeps a job to its deadline.
#[derive(Clone, Debug)]
pub struct Schedule {
    deadline_us: u64,
    /// Most that the job may send (`--rate`).
    ceiling_bytes_per_s: Option<u64>,
    started_us: Option<u64>,
    looked: Option<Mark>,
    seconds: VecDeque<Second>,
    /// The best of each quarter of an hour.
    best: VecDeque<Best>,
    /// Policies may allow less than all of the path.
    priority_bytes_per_s: Option<f64>,
    normal_bytes_per_s: Option<f64>,
    class: ServiceClass,
    class_since_us: u64,
    /// The straight line from now to the deadline.
    line: Line,
    is_missed: bool,
    cannot: bool,
}

/// The done part and the rest of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived.
    pub done_bytes: u64,
    /// Files that are done.
    pub done_files: u64,
    /// Bytes known to be left.
    pub left_bytes: u64,
    /// Files known to be left.
    pub left_files: u64,
    /// The class that the lanes have now.
    pub class: ServiceClass,
    /// The highest allowed class now.
    pub allowed_most: ServiceClass,
}

/// The class and rate that the schedule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The class, which is allowed.
    pub class: ServiceClass,
    /// The rate needed from now on.
    pub needed_bytes_per_s: u64,
    /// The news for whoever watches.
    pub news: Option<News>,
}

/// The news about a deadline, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Ahead: only what nobody else wants.
    Ahead {
        /// Needed rate.
        needed: u64,
    },
    /// Behind: a fair share.
    Behind {
        /// Needed rate.
        needed: u64,
    },
    /// Far behind: all of the path.
    FarBehind {
        /// Needed rate.
        needed: u64,
        /// The path's rate.
        path: u64,
    },
    /// The path is too slow for the deadline.
    CannotBeMet {
        /// Needed rate.
        needed: u64,
        /// The path's rate.
        path: u64,
    },
    /// The deadline can be met after all.
    CanBeMet {
        /// Needed rate.
        needed: u64,
        /// The path's rate.
        path: u64,
    },
    /// The deadline has passed.
    Missed {
        /// The remaining bytes.
        left_bytes: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    done_bytes: u64,
    done_files: u64,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    us: u64,
    bytes: u64,
    files: u64,
    class: ServiceClass,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    from_us: u64,
    bytes_per_s: f64,
    files_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    all_bytes: u64,
    all_files: u64,
}

/// The need in shares of the path's rate.
#[derive(Clone, Copy, Debug)]
struct Need {
    bytes_per_s: f64,
    /// 0: unknown.
    path_bytes_per_s: f64,
    share: f64,
    /// The share of the job behind the line.
    behind: f64,
}

impl Schedule {
    /// Begins a job with so much time.
    #[must_use]
    pub fn new(at_us: u64, time_left_us: u64) -> Self {
        Self {
            deadline_us: at_us.saturating_add(time_left_us),
            ceiling_bytes_per_s: None,
            started_us: None,
            looked: None,
            seconds: VecDeque::new(),
            best: VecDeque::new(),
            priority_bytes_per_s: None,
            normal_bytes_per_s: None,
            class: ServiceClass::Normal,
            class_since_us: at_us,
            line: Line::default(),
            is_missed: false,
            cannot: false,
        }
    }

    /// Sets the job's highest rate, in bytes per second.
    #[must_use]
    pub fn with_ceiling(self, ceiling_bytes_per_s: Option<u64>) -> Self {
        Self { ceiling_bytes_per_s, ..self }
    }

    /// Takes a moment of the job in, at any time: one look a second.
    pub fn on_sample(&mut self, at_us: u64, progress: Progress) -> Wanted {
        let started_us = *self.started_us.get_or_insert(at_us);
        let mark = Mark { at_us, done_bytes: progress.done_bytes, done_files: progress.done_files };
        let looked = *self.looked.get_or_insert(mark);
        self.class = self.class.min(progress.allowed_most);
        if at_us.saturating_sub(looked.at_us) >= LOOK_US {
            self.looked = Some(mark);
            self.remember(looked, mark, progress.class);
            self.line = Line {
                all_bytes: progress.done_bytes.saturating_add(progress.left_bytes),
                all_files: progress.done_files.saturating_add(progress.left_files),
            };
            let need = self.need(at_us, started_us, progress);
            let news = self.decide(at_us, progress, need);
            return Wanted { class: self.class, needed_bytes_per_s: need.bytes_per_s as u64, news };
        }
        let need = self.need(at_us, started_us, progress);
        Wanted { class: self.class, needed_bytes_per_s: need.bytes_per_s as u64, news: None }
    }

    fn remember(&mut self, from: Mark, to: Mark, class: ServiceClass) {
        let second = Second {
            us: to.at_us.saturating_sub(from.at_us).max(1),
            bytes: to.done_bytes.saturating_sub(from.done_bytes),
            files: to.done_files.saturating_sub(from.done_files),
            class,
        };
        self.seconds.push_back(second);
        if self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
        let at_us = to.at_us;
        if self.seconds.len() == SECONDS {
            let us: u64 = self.seconds.iter().map(|second| second.us).sum();
            let per_s = |sum: u64| sum as f64 * 1e6 / us as f64;
            let bytes_per_s = per_s(self.seconds.iter().map(|second| second.bytes).sum());
            let files_per_s = per_s(self.seconds.iter().map(|second| second.files).sum());
            match self.best.back_mut() {
                Some(best) if at_us < best.from_us.saturating_add(BEST_US) => {
                    best.bytes_per_s = best.bytes_per_s.max(bytes_per_s);
                    best.files_per_s = best.files_per_s.max(files_per_s);
                }
                _ => self.best.push_back(Best { from_us: at_us, bytes_per_s, files_per_s }),
            }
            if self.best.len() > BESTS {
                self.best.pop_front();
            }
        }
        // The first seconds show the time before.
        let latest = self.seconds.iter().rev().take(SETTLED - 1);
        if latest.clone().all(|second| second.class == ServiceClass::Normal) && self.seconds.len() >= SETTLED {
            self.normal_bytes_per_s = Some(second.bytes as f64 * 1e6 / second.us as f64);
        }
        let settled = self.seconds.iter().rev().take(SETTLED).all(|second| second.class == ServiceClass::Priority);
        if settled && self.seconds.len() >= SETTLED {
            self.priority_bytes_per_s = Some(second.bytes as f64 * 1e6 / second.us as f64);
        }
    }

    fn best(&self, of: impl Fn(&Best) -> f64) -> f64 {
        self.best.iter().map(of).fold(0.0, f64::max)
    }

    fn need(&self, at_us: u64, started_us: u64, progress: Progress) -> Need {
        let all_us = self.deadline_us.saturating_sub(started_us).max(1);
        // Flushing and the last files take time.
        let reserve_us = (all_us / 100).min(RESERVE_US_MAX);
        let left_us = self.deadline_us.saturating_sub(at_us).saturating_sub(reserve_us).max(LOOK_US) as f64;
        let bytes_per_s = progress.left_bytes as f64 * 1e6 / left_us;
        let files_per_s = progress.left_files as f64 * 1e6 / left_us;
        let best = self.best(|best| best.bytes_per_s);
        let path_bytes_per_s = match self.priority_bytes_per_s {
            Some(priority) if progress.allowed_most == ServiceClass::Priority => priority,
            _ => best,
        };
        let of_bytes = if path_bytes_per_s > 0.0 { bytes_per_s / path_bytes_per_s } else { 0.0 };
        // Few files tell no rate.
        let best_files = self.best(|best| best.files_per_s);
        let counts_files = progress.done_files >= FILES_MIN && best_files > 0.0;
        let of_files = if counts_files { files_per_s / best_files } else { 0.0 };
        let line = (self.deadline_us.saturating_sub(at_us) as f64 / all_us as f64).min(1.0);
        let share_left = |left: u64, all: u64| if all > 0 { left as f64 / all as f64 } else { 0.0 };
        let files = if counts_files { share_left(progress.left_files, self.line.all_files) } else { 0.0 };
        let left = share_left(progress.left_bytes, self.line.all_bytes).max(files);
        Need { bytes_per_s, path_bytes_per_s, share: of_bytes.max(of_files), behind: left - line }
    }

    fn decide(&mut self, at_us: u64, progress: Progress, need: Need) -> Option<News> {
        let (needed, path) = (need.bytes_per_s as u64, need.path_bytes_per_s as u64);
        if progress.left_bytes == 0 && progress.left_files == 0 {
            return None;
        }
        if at_us >= self.deadline_us {
            // Priority is of no use any more.
            self.turn(at_us, ServiceClass::Normal.min(progress.allowed_most));
            let is_new = !core::mem::replace(&mut self.is_missed, true);
            return is_new.then_some(News::Missed { left_bytes: progress.left_bytes });
        }
        let class = self.class_for(at_us, progress, need);
        let is_new = self.turn(at_us, class);
        if let Some(news) = self.possible(at_us, progress, need) {
            return Some(news);
        }
        let news = match class {
            ServiceClass::Background => News::Ahead { needed },
            ServiceClass::Normal => News::Behind { needed },
            ServiceClass::Priority => News::FarBehind { needed, path },
        };
        is_new.then_some(news)
    }

    fn class_for(&self, at_us: u64, progress: Progress, need: Need) -> ServiceClass {
        let has_priority = self.class == ServiceClass::Priority;
        let since_us = at_us.saturating_sub(self.class_since_us);
        let is_settled = since_us >= DWELL_US;
        let wanted = if need.path_bytes_per_s == 0.0 {
            ServiceClass::Normal
        } else if has_priority && since_us >= LOOK_EVERY_US && progress.allowed_most == ServiceClass::Priority {
            // Only without the mark it shows whether others have gone.
            return ServiceClass::Normal;
        } else if need.share >= self.far_from(need) && (has_priority || since_us >= LOOK_FOR_US) {
            ServiceClass::Priority
        } else if need.behind < if self.class == ServiceClass::Background { 0.0 } else { -AHEAD } {
            ServiceClass::Background
        } else {
            ServiceClass::Normal
        };
        let wanted = wanted.min(progress.allowed_most);
        // A class must have had time to show its effect.
        if wanted < self.class && !is_settled { self.class } else { wanted }
    }

    /// The share from which priority is asked for. Priority gains what others take: so it comes sooner if that is nearly all.
    fn far_from(&self, need: Need) -> f64 {
        let has = self.normal_bytes_per_s.map_or(1.0, |normal| normal / need.path_bytes_per_s.max(1.0));
        let far = FAR_SOONEST + (FAR_FROM - FAR_SOONEST) * (has / CHEAP).min(1.0);
        if self.class == ServiceClass::Priority { far - FAR_LESS } else { far }
    }

    fn turn(&mut self, at_us: u64, class: ServiceClass) -> bool {
        let is_new = self.class != class;
        if is_new {
            (self.class, self.class_since_us) = (class, at_us);
        }
        is_new
    }

    /// Tells that the deadline cannot be met, or can again, once the class had time.
    fn possible(&mut self, at_us: u64, progress: Progress, need: Need) -> Option<News> {
        let (needed, path) = (need.bytes_per_s as u64, need.path_bytes_per_s as u64);
        // A ceiling below the need suffices: the walk only adds to it.
        if let Some(ceiling) = self.ceiling_bytes_per_s.filter(|ceiling| need.bytes_per_s > *ceiling as f64 * CANNOT)
            && !self.cannot
        {
            self.cannot = true;
            return Some(News::CannotBeMet { needed, path: if path == 0 { ceiling } else { path.min(ceiling) } });
        }
        let is_top = self.class == progress.allowed_most || self.class == ServiceClass::Priority;
        let has_shown = self.class_since_us.saturating_add(SHOWN_US) <= at_us && need.path_bytes_per_s > 0.0;
        if !self.cannot && is_top && has_shown && need.share > CANNOT {
            self.cannot = true;
            return Some(News::CannotBeMet { needed, path });
        }
        let is_within = self.ceiling_bytes_per_s.is_none_or(|ceiling| need.bytes_per_s <= ceiling as f64);
        if self.cannot && is_within && need.path_bytes_per_s > 0.0 && need.share < FAR_FROM {
            self.cannot = false;
            return Some(News::CanBeMet { needed, path });
        }
        None
    }
}

impl News {
    /// True if the news is a warning.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        matches!(self, Self::CannotBeMet { .. } | Self::Missed { .. })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ahead { needed } => {
                write!(f, "ahead of its schedule, which needs {}: only what nobody else wants", Rate(needed))
            }
            Self::Behind { needed } => write!(f, "behind its schedule, which needs {}: its fair share", Rate(needed)),
            Self::FarBehind { needed, path } => {
                write!(f, "the deadline needs {}, and the path carries {} at most", Rate(needed), Rate(path))
            }
            Self::CannotBeMet { needed, path } => {
                write!(f, "the deadline cannot be met: it needs {}, and the path carries {}", Rate(needed), Rate(path))
            }
            Self::CanBeMet { needed, path } => {
                write!(
                    f,
                    "the deadline can be met after all: it needs {}, and the path carries {}",
                    Rate(needed),
                    Rate(path)
                )
            }
            Self::Missed { left_bytes } => write!(f, "the deadline has passed with {left_bytes} bytes left"),
        }
    }
}

struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64 * 8.0;
        match bits {
            1e9.. => write!(f, "{:.2} Gbit/s", bits / 1e9),
            1e6.. => write!(f, "{:.1} Mbit/s", bits / 1e6),
            _ => write!(f, "{:.0} kbit/s", bits / 1e3),
        }
    }
}

/// Doubled, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const LOOK_US: u64 = 1_000_000;
/// A mean of fewer seconds may be a filling buffer. Doubled, the scenario `what_cannot_be_met_is_said_within_ten_seconds` fails.
const SECONDS: usize = 4;
/// Seconds that show what a raise brought. Doubled, the scenario
/// `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const SETTLED: usize = 3;
/// An hour, with [`BESTS`]: yesterday is no promise.
const BEST_US: u64 = 900_000_000;
const BESTS: usize = 4;
/// Most that flushing and the last files take.
const RESERVE_US_MAX: u64 = 20_000_000;
const FILES_MIN: u64 = 100;
/// Priority comes when this share of the path is needed. Twice as far from 1, the scenario
/// `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const FAR_FROM: f64 = 0.96;
/// Twice as far from 1, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const FAR_SOONEST: f64 = 0.75;
/// Priority goes at a lower share than it came, and so does not flap.
const FAR_LESS: f64 = 0.02;
/// Above it others take so much that priority gains most of what it marks.
const CHEAP: f64 = 0.8;
/// Halved, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const LOOK_EVERY_US: u64 = 120_000_000;
/// Doubled, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const LOOK_FOR_US: u64 = 4_000_000;
/// Even all of the path would not do.
const CANNOT: f64 = 1.02;
/// Background may wait long. Halved, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be`
/// fails.
const AHEAD: f64 = 0.02;
/// Time to show its effect.
const DWELL_US: u64 = 10_000_000;
/// Doubled, the scenario `what_cannot_be_met_is_said_within_ten_seconds` fails.
const SHOWN_US: u64 = 5_000_000;

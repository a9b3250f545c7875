//! The class of a job that shall be done by a time: `--by`, `--within`.
//!
//! ```text
//!   ahead        on the straight line from start to deadline, or before it   -> Background: what nobody else wants
//!   behind       it                                                          -> Normal: a fair share
//!   far behind   all the path can give from now on is needed                 -> Priority, as far as it is allowed
//! ```
//! Priority comes as late as it can: when all of the path, from now to the deadline, is just enough. Until then others may still leave, and
//! nothing is lost that priority could not make up for; from then on each second with less is lost for good. So a mark is never set that
//! turns out to have been unnecessary, but for the few percent that are kept for the end.
//!
//! What all of the path is was seen before: the most that it carried for ten seconds, or what it carried with priority. When nothing is
//! known, or too little was seen, the highest class that is allowed shows what there is. If that is too little, the deadline cannot be met.

use alloc::collections::VecDeque;
use core::fmt;

use super::ServiceClass;

/// Keeps a job to its deadline.
#[derive(Clone, Debug)]
pub struct Schedule {
    deadline_us: u64,
    /// The most that the job may send, whatever the path carries (`--rate`).
    ceiling_bytes_per_s: Option<u64>,
    started_us: Option<u64>,
    /// When it was last looked at, and what was done then.
    looked: Option<Mark>,
    seconds: VecDeque<Second>,
    /// The most of each quarter of an hour.
    best: VecDeque<Best>,
    /// The rate that the path carried the last time with priority: a policy may allow less than all of it.
    priority_bytes_per_s: Option<f64>,
    /// The rate that it carried the last time without it.
    normal_bytes_per_s: Option<f64>,
    class: ServiceClass,
    class_since_us: u64,
    /// The straight line from now to the deadline, of the job as it is known now.
    line: Line,
    is_missed: bool,
    cannot: bool,
}

/// The done and the remaining part of a job, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived.
    pub done_bytes: u64,
    /// Files that are done.
    pub done_files: u64,
    /// Bytes that are known to be left.
    pub left_bytes: u64,
    /// Files that are known to be left.
    pub left_files: u64,
    /// The class that the lanes have now.
    pub class: ServiceClass,
    /// The highest class that may be asked for now.
    pub allowed_most: ServiceClass,
}

/// The class and rate that the schedule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The class, which is one that is allowed.
    pub class: ServiceClass,
    /// The rate that is needed from now on.
    pub needed_bytes_per_s: u64,
    /// The news for whoever watches.
    pub news: Option<News>,
}

/// The news about a deadline. Rates are bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The job is ahead of its schedule: it uses what nobody else wants.
    Ahead {
        /// Rate that is needed.
        needed: u64,
    },
    /// The job is behind its schedule: it takes its fair share.
    Behind {
        /// Rate that is needed.
        needed: u64,
    },
    /// The job needs all that the path can give.
    FarBehind {
        /// Rate that is needed.
        needed: u64,
        /// The rate that the path carries.
        path: u64,
    },
    /// With what the path carries the deadline cannot be met.
    CannotBeMet {
        /// Rate that is needed.
        needed: u64,
        /// The rate that the path carries.
        path: u64,
    },
    /// The deadline can be met after all.
    CanBeMet {
        /// Rate that is needed.
        needed: u64,
        /// The rate that the path carries.
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

/// A second of the job.
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

/// The needed rate, in shares of what the path can give.
#[derive(Clone, Copy, Debug)]
struct Need {
    bytes_per_s: f64,
    /// The rate that the path can give; 0: not known.
    path_bytes_per_s: f64,
    share: f64,
    /// Behind the straight line by so much of the job.
    behind: f64,
}

impl Schedule {
    /// For a job that has so much time.
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

    /// With a rate that it never exceeds, in bytes per second.
    #[must_use]
    pub fn with_ceiling(self, ceiling_bytes_per_s: Option<u64>) -> Self {
        Self { ceiling_bytes_per_s, ..self }
    }

    /// Takes a moment of the job in. It may come as often as it likes: once a second is looked.
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
        // The first seconds after a change still show what was before.
        let latest = self.seconds.iter().rev().take(SETTLED - 1);
        if latest.clone().all(|second| second.class == ServiceClass::Normal) && self.seconds.len() >= SETTLED {
            self.normal_bytes_per_s = Some(second.bytes as f64 * 1e6 / second.us as f64);
        }
        let settled = self.seconds.iter().rev().take(SETTLED).all(|second| second.class == ServiceClass::Priority);
        if settled && self.seconds.len() >= SETTLED {
            self.priority_bytes_per_s = Some(second.bytes as f64 * 1e6 / second.us as f64);
        }
    }

    /// The most that the path was seen to carry.
    fn best(&self, of: impl Fn(&Best) -> f64) -> f64 {
        self.best.iter().map(of).fold(0.0, f64::max)
    }

    fn need(&self, at_us: u64, started_us: u64, progress: Progress) -> Need {
        let all_us = self.deadline_us.saturating_sub(started_us).max(1);
        // The end takes its time: flushing, the last files.
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
        // Few files say nothing about how many are done in a second.
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
            // Nothing is won by priority any more.
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
            // Nothing was seen yet.
            ServiceClass::Normal
        } else if has_priority && since_us >= LOOK_EVERY_US && progress.allowed_most == ServiceClass::Priority {
            // Others may have gone: nothing but doing without it shows that.
            return ServiceClass::Normal;
        } else if need.share >= self.far_from(need) && (has_priority || since_us >= LOOK_FOR_US) {
            ServiceClass::Priority
        } else if need.behind < if self.class == ServiceClass::Background { 0.0 } else { -AHEAD } {
            ServiceClass::Background
        } else {
            ServiceClass::Normal
        };
        let wanted = wanted.min(progress.allowed_most);
        // Down only after a while: what was asked for must have had time to show.
        if wanted < self.class && !is_settled { self.class } else { wanted }
    }

    /// From which share of the path on priority is asked for. A byte with priority gains what the path carries beyond what we have without: so
    /// it comes sooner while others take nearly all, and later while they take little.
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

    /// The highest class that is allowed has had time to show what the path carries, and that is too little.
    fn possible(&mut self, at_us: u64, progress: Progress, need: Need) -> Option<News> {
        let (needed, path) = (need.bytes_per_s as u64, need.path_bytes_per_s as u64);
        // Nothing has to be tried to know that. What the walk has not found yet only adds to it.
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
    /// True if the news is told as a warning.
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

/// Bytes per second, in the bits that networks count in.
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
/// The seconds whose mean is what a path carries: less may be a buffer that filled.
/// Doubled, the scenario `what_cannot_be_met_is_said_within_ten_seconds` fails.
const SECONDS: usize = 4;
/// The last of these seconds, which show after a raise what it brought.
/// Doubled, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const SETTLED: usize = 3;
/// An hour: a path that carried more yesterday is no promise.
const BEST_US: u64 = 900_000_000;
/// Four quarters of an hour.
const BESTS: usize = 4;
/// Flushing and the last files take so long at most.
const RESERVE_US_MAX: u64 = 20_000_000;
/// Fewer files tell no rate.
const FILES_MIN: u64 = 100;
/// Priority comes when so much of the path is needed from now to the deadline, and goes when less is.
/// Twice as far from the whole, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const FAR_FROM: f64 = 0.96;
/// Twice as far from the whole, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const FAR_SOONEST: f64 = 0.75;
/// Priority goes at a lower share than it came, so that it does not flap.
const FAR_LESS: f64 = 0.02;
/// Above this share others take so much that priority gains most of what it marks.
const CHEAP: f64 = 0.8;
/// The interval of looks whether others are still there.
/// Halved, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const LOOK_EVERY_US: u64 = 120_000_000;
/// Doubled, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const LOOK_FOR_US: u64 = 4_000_000;
/// More than this: not even all of it would do.
const CANNOT: f64 = 1.02;
/// Background waits for others, and may wait long: it begins only with so much of the job ahead.
/// Halved, the scenario `a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be` fails.
const AHEAD: f64 = 0.02;
/// A class has this time to show what it brings.
const DWELL_US: u64 = 10_000_000;
/// Doubled, the scenario `what_cannot_be_met_is_said_within_ten_seconds` fails.
const SHOWN_US: u64 = 5_000_000;

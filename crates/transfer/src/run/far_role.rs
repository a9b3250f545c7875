//! One job of a far side: the role that a start gives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_engine::remedy::Asked;
use haul_job::{Error, Fault};
use haul_store::{FileList, FileListBuilder, printable};
use haul_wire::control::{self as wire, Control, Role, Start};
use haul_wire::limits::{MAX_LANES, MAX_LISTED_BYTES};

use crate::faults;
use crate::kept::class_policy::Permits;
use crate::kept::surroundings::Surroundings;
use crate::place;
use crate::run::probe;
use crate::session::channel::{self, Events, SessionEvent};
use crate::session::clock::{START_DEADLINE, TICK};
use crate::session::farewell::Ending;
use crate::session::grant::{Grant, Visit};
use crate::session::hooks::Hooks;
use crate::session::movers::Movers;
use crate::session::receiver::{self, ReceiverJob, Target};
use crate::session::reporter::Ends;
use crate::session::sender::{self, SenderJob, Sources};
use crate::session::stalls::Progress;
use crate::session::wiring::Wiring;
use crate::session::{convert, farewell, rights};

/// Receives the list of `--files-from`. Other events wait for the session. Fails if next to nothing of the list comes for
/// `limit`.
fn await_list(
    selection: &wire::Selection,
    events: &Events,
    visit: Option<&dyn Visit>,
    limit: Duration,
) -> Result<Option<Arc<FileList>>, Error> {
    if selection.listed == wire::Listed::Nothing {
        return Ok(None);
    }
    let (mut list, mut early) = (FileListBuilder::default(), Vec::new());
    let mut progress = Progress::new(None, Instant::now());
    loop {
        let listed_bytes = u64::try_from(list.weight_bytes()).unwrap_or(u64::MAX);
        if progress.is_stalled(true, listed_bytes, 0, Instant::now(), limit) {
            return Err(Error::new(Fault::Timeout, "the initiator did not say all that it wants"));
        }
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Listed(paths))) if paths.is_empty() => break,
            Some(SessionEvent::Control(Control::Listed(paths))) => {
                for path in paths {
                    list.add(&path).map_err(|fault| {
                        Error::broke_the_protocol(format!("it lists {}: {fault}", printable(&path)))
                    })?;
                }
                if list.weight_bytes() > MAX_LISTED_BYTES {
                    return Err(Error::broke_the_protocol("it lists more than agreed"));
                }
                if visit.is_some_and(|visit| !visit.on_list(list.weight_bytes())) {
                    return Err(Error::new(Fault::Busy, "the daemon has no room for so long a list of files")
                        .because("other sessions of it hold lists, too")
                        .try_this("copy directories whole, or try again later"));
                }
            }
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            // One that is too many is closed here, and may be dialled again later.
            Some(event) if early.len() < usize::from(MAX_LANES) => early.push(event),
            Some(_) | None => {}
        }
    }
    events.put_back(early);
    Ok(Some(Arc::new(list.finish(selection.listed == wire::Listed::Trees))))
}

/// Where a far side works, and what it may ask of networks.
pub(super) struct Served<'a> {
    pub(super) surroundings: &'a Surroundings,
    pub(super) permits: Permits,
    pub(super) hooks: Option<Hooks>,
}

/// Carries out what a start asks for, as far as the key may.
pub(super) fn run_role(
    start: Start,
    grant: &Grant,
    served: &Served<'_>,
    visit: Option<&dyn Visit>,
    wiring: Wiring<'_>,
) -> Result<(), Error> {
    let Served { surroundings, permits, hooks } = served;
    let (permits, hooks) = (permits.clone(), hooks.clone());
    let Start { role, selection, carriage, .. } = start;
    let (channel, watch) = (wiring.channel, wiring.watch);
    let refused = |error: Error, events: &Events| {
        let result: Result<(), Error> = Err(error);
        farewell::end(channel, &result, Ending::of(&result, events));
        result
    };
    if carriage.clear && !grant.clear {
        let error = Error::new(Fault::Authentication, "the daemon encrypts all data connections of this key")
            .try_this("leave --cipher none out, or ask its operator for `clear` beside your key");
        return refused(error, &wiring.events);
    }
    let result = match role {
        Role::Sender { .. } | Role::SourceMover { .. } if grant.unreadable => {
            return refused(reads_nothing(grant), &wiring.events);
        }
        Role::Sender { .. } | Role::SourceMover { .. } if grant.read_only && selection.remove_source_files => {
            let error = only_reads(grant)
                .because("--remove-source-files removes what was copied")
                .try_this("leave the flag out, or ask its operator for `rw` beside your key");
            return refused(error, &wiring.events);
        }
        Role::Sender { .. } | Role::SourceMover { .. } => {
            let is_mover = matches!(role, Role::SourceMover { .. });
            let (Role::Sender { sources } | Role::SourceMover { sources }) = role else {
                unreachable!("one of the two")
            };
            let confine = grant.root.clone();
            let sources = Sources::Paths(sources);
            // A mover is told each file by its leader.
            let selection = wire::Selection {
                listed: if is_mover { wire::Listed::Nothing } else { selection.listed },
                ..selection
            };
            let listed = match await_list(&selection, &wiring.events, visit, START_DEADLINE) {
                Ok(listed) => listed,
                Err(error) => return refused(error, &wiring.events),
            };
            let (expand_globs, remembers, far) = (true, None, true);
            let direct_from_bytes = haul_store::DIRECT_FROM_BYTES;
            let job = SenderJob {
                sources,
                listed,
                confine,
                expand_globs,
                remembers,
                home: surroundings.home.clone(),
                direct_from_bytes,
                far,
                early: None,
                movers: Movers::default(),
                is_mover,
                selection,
                carriage,
                permits,
                hooks,
            };
            if is_mover { sender::mover::run(job, wiring) } else { sender::run(job, wiring) }
        }
        Role::Receiver { .. } | Role::Mover { .. } if grant.read_only => {
            return refused(only_reads(grant), &wiring.events);
        }
        Role::Place { question } if grant.read_only && question.writes() => {
            return refused(only_reads(grant), &wiring.events);
        }
        Role::Place { question } if grant.unreadable && !question.writes() => {
            return refused(reads_nothing(grant), &wiring.events);
        }
        Role::Place { question } => {
            return place::serve(&question, carriage.timeout_ms, (grant, surroundings), wiring);
        }
        // A key that may only read may probe both ways, too: what it sends goes nowhere, and its time is bounded.
        Role::Probe { time_ms } => {
            rights::stay_within(&[], false, false);
            return probe::serve(time_ms, carriage, permits, wiring);
        }
        role @ (Role::Receiver { .. } | Role::Mover { .. }) => {
            let leads = matches!(role, Role::Receiver { .. });
            let (Role::Receiver { target } | Role::Mover { target }) = role else { unreachable!("one of the two") };
            let (target, confine) = (Target::Path(target), grant.root.clone());
            let bounds = receiver::Bounds::default();
            let (asked_for, far) = (None, true);
            let job = ReceiverJob {
                target,
                confine,
                asked_for,
                far,
                selection,
                carriage,
                bounds,
                movers: Movers::default(),
                surroundings: (*surroundings).clone(),
            };
            if leads { receiver::run(job, wiring) } else { receiver::mover::run(job, wiring) }
        }
    };
    match result {
        Ok((sender, receiver)) => {
            watch.report(&Ends { sender, receiver, ..Ends::default() }, Asked::default(), false);
            Ok(())
        }
        Err(error) => {
            watch.tell_progress();
            Err(error)
        }
    }
}

fn reads_nothing(grant: &Grant) -> Error {
    Error::new(Fault::Authentication, format!("the daemon lets {} read nothing", grant.whom())).try_this(ask(grant))
}

fn only_reads(grant: &Grant) -> Error {
    Error::new(Fault::Authentication, format!("the daemon lets {} only read", grant.whom())).try_this(ask(grant))
}

/// Who may change what it is not let to do.
fn ask(grant: &Grant) -> &'static str {
    match grant.network {
        Some(_) => "ask its operator: haul networks there shows the class of your address",
        None => "ask its operator for `rw` beside your key",
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::control::Selection;

    use super::*;

    /// Longer than any of this takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Says this again and again until a far side that awaits its list ends, and how that was.
    fn ends_while(limit: Duration, say: impl Fn() -> SessionEvent + Send) -> Result<Option<Arc<FileList>>, Error> {
        let events = Events::new();
        let sender = events.sender();
        let selection = Selection { listed: wire::Listed::Paths, ..Selection::default() };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let begun = Instant::now();
                while sender.send(say()).is_ok() {
                    assert!(begun.elapsed() < PATIENCE, "it listens for ever");
                    std::thread::sleep(limit / 5);
                }
            });
            let result = await_list(&selection, &events, None, limit);
            drop(events);
            result
        })
    }

    #[test]
    fn lanes_that_come_before_the_list_is_told_are_bounded() {
        let events = Events::new();
        let sender = events.sender();
        let selection = Selection { listed: wire::Listed::Paths, ..Selection::default() };
        let brings = std::thread::spawn(move || {
            // What belongs to a lane and takes no descriptor.
            (0..2 * MAX_LANES).for_each(|_| sender.send(SessionEvent::FallsShort(Vec::new())).unwrap());
            sender.send(SessionEvent::Control(Control::Listed(vec![b"data".to_vec()]))).unwrap();
            sender.send(SessionEvent::Control(Control::Listed(Vec::new()))).unwrap();
        });
        assert!(await_list(&selection, &events, None, PATIENCE).unwrap().is_some());
        brings.join().unwrap();
        let kept = std::iter::from_fn(|| events.next(Duration::ZERO)).count();
        assert_eq!(kept, usize::from(MAX_LANES));
    }

    #[test]
    fn a_list_that_does_not_come_is_not_waited_for_whatever_else_does() {
        const LIMIT: Duration = Duration::from_millis(500);
        let error = ends_while(LIMIT, || SessionEvent::FallsShort(Vec::new())).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
        // A name now and then is no list either.
        let error = ends_while(LIMIT, || SessionEvent::Control(Control::Listed(vec![b"x".to_vec()]))).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    }
}

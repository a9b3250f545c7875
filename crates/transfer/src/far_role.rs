//! Runs one job of a far side, in the role that a start gives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_engine::remedy::Asked;
use haul_job::{Error, Fault};
use haul_store::{FileList, FileListBuilder, printable};
use haul_wire::control::{self as wire, Control, Role, Selection, Start};
use haul_wire::limits::{MAX_LANES, MAX_LISTED_BYTES};

use crate::probe;
use haul_channel::channel::{self, Events, SessionEvent};
use haul_channel::clock::{START_DEADLINE, TICK};
use haul_channel::farewell::Ending;
use haul_channel::grant::{Grant, Visit};
use haul_channel::reporter::Ends;
use haul_channel::role_context::RoleContext;
use haul_channel::stalls::Progress;
use haul_channel::{convert, farewell};
use haul_copy::receiver::{self, ReceiverJob, Target};
use haul_copy::rights;
use haul_copy::sender::{self, SenderJob, Sources};
use haul_govern::hooks::Hooks;
use haul_kept::class_policy::Permits;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_striping::movers::Movers;

/// Fails if next to nothing of the list of `--files-from` comes for `limit`. Other events wait.
fn await_list(
    listed: wire::Listed,
    events: &Events,
    visit: Option<&dyn Visit>,
    limit: Duration,
) -> Result<Option<Arc<FileList>>, Error> {
    if listed == wire::Listed::Nothing {
        return Ok(None);
    }
    let (mut list, mut early) = (FileListBuilder::default(), Vec::new());
    let mut progress = Progress::new(Instant::now());
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
            // A surplus lane may be dialled again later.
            Some(event) if early.len() < usize::from(MAX_LANES) => early.push(event),
            Some(_) | None => {}
        }
    }
    events.put_back(early);
    Ok(Some(Arc::new(list.finish(listed == wire::Listed::Trees))))
}

pub(crate) struct Served<'a> {
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) permits: Permits,
    pub(crate) hooks: Option<Hooks>,
}

pub(crate) fn run_role(
    start: Start,
    grant: &Grant,
    served: &Served<'_>,
    visit: Option<&dyn Visit>,
    context: RoleContext<'_>,
) -> Result<(), Error> {
    let Served { surroundings, permits, hooks } = served;
    let (permits, hooks) = (permits.clone(), hooks.clone());
    let Start { role, selection, listed, hash_kept, carriage, .. } = start;
    let (channel, watch) = (context.channel, context.watch);
    let refused = |error: Error, events: &Events| {
        let result: Result<(), Error> = Err(error);
        farewell::end(channel, &result, Ending::of(&result, events));
        result
    };
    if carriage.clear && !grant.clear {
        let error = Error::new(Fault::Authentication, "the daemon encrypts all data connections of this key")
            .try_this("leave --cipher none out, or ask its operator for `clear` beside your key");
        return refused(error, &context.events);
    }
    let result = match role {
        Role::Sender { .. } | Role::SourceMover { .. } if grant.unreadable => {
            return refused(reads_nothing(grant), &context.events);
        }
        Role::Sender { .. } | Role::SourceMover { .. } if grant.read_only && selection.remove_source_files => {
            let error = only_reads(grant)
                .because("--remove-source-files removes what was copied")
                .try_this("leave the flag out, or ask its operator for `rw` beside your key");
            return refused(error, &context.events);
        }
        Role::Sender { .. } | Role::SourceMover { .. } => {
            let is_mover = matches!(role, Role::SourceMover { .. });
            let (Role::Sender { sources } | Role::SourceMover { sources }) = role else {
                unreachable!("one of the two")
            };
            let confine = grant.root.clone();
            let sources = Sources::Paths(sources);
            // The leader tells a mover each file.
            let listed = if is_mover { wire::Listed::Nothing } else { listed };
            let listed = match await_list(listed, &context.events, visit, START_DEADLINE) {
                Ok(listed) => listed,
                Err(error) => return refused(error, &context.events),
            };
            let (expand_globs, remembers, far) = (true, None, true);
            let direct_from_bytes = haul_store::DIRECT_FROM_BYTES;
            let job = SenderJob {
                hand_over: None,
                outbound: None,
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
            if is_mover { sender::mover::run(job, context) } else { sender::run(job, context) }
        }
        Role::Receiver { .. } | Role::Mover { .. } if grant.read_only => {
            return refused(only_reads(grant), &context.events);
        }
        Role::Place { question } if grant.read_only && question.writes() => {
            return refused(only_reads(grant), &context.events);
        }
        Role::Place { question } if grant.unreadable && !question.writes() => {
            return refused(reads_nothing(grant), &context.events);
        }
        Role::Place { question } => {
            return haul_places::serve(&question, carriage.timeout_ms, (grant, surroundings), context);
        }
        // A key that may only read may probe both ways: the data is dropped, and its time is bounded.
        Role::Probe { time_ms } => {
            rights::stay_within(&[], false, false);
            return probe::serve(time_ms, carriage, permits, context);
        }
        role @ (Role::Receiver { .. } | Role::Mover { .. }) => {
            let leads = matches!(role, Role::Receiver { .. });
            let (Role::Receiver { target } | Role::Mover { target }) = role else { unreachable!("one of the two") };
            let (target, confine) = (Target::Path(target), grant.root.clone());
            let bounds = receiver::Bounds::default();
            let (asked_for, far) = (None, true);
            // Pieces of what stands here would tell a peer what it may not read.
            let selection = Selection { whole_file: selection.whole_file || grant.unreadable, ..selection };
            let job = ReceiverJob {
                hand_over: None,
                sums: None,
                target,
                confine,
                asked_for,
                far,
                selection,
                listed,
                hash_kept,
                carriage,
                bounds,
                movers: Movers::default(),
                surroundings: (*surroundings).clone(),
            };
            if leads { receiver::run(job, context) } else { receiver::mover::run(job, context) }
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

fn ask(grant: &Grant) -> &'static str {
    match grant.network {
        Some(_) => "ask its operator: haul networks there shows the class of your address",
        None => "ask its operator for `rw` beside your key",
    }
}

#[cfg(test)]
mod tests {

    use haul_channel::channel::LaneEvent;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn ends_while(limit: Duration, say: impl Fn() -> SessionEvent + Send) -> Result<Option<Arc<FileList>>, Error> {
        let events = Events::new();
        let sender = events.sender();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let begun = Instant::now();
                while sender.send(say()).is_ok() {
                    assert!(begun.elapsed() < PATIENCE, "it listens for ever");
                    std::thread::sleep(limit / 5);
                }
            });
            let result = await_list(wire::Listed::Paths, &events, None, limit);
            drop(events);
            result
        })
    }

    #[test]
    fn lanes_that_come_before_the_list_is_told_are_bounded() {
        let events = Events::new();
        let sender = events.sender();
        let brings = std::thread::spawn(move || {
            (0..2 * MAX_LANES)
                .for_each(|_| sender.send(SessionEvent::Lane(LaneEvent::FallsShort(Vec::new()))).unwrap());
            sender.send(SessionEvent::Control(Control::Listed(vec![b"data".to_vec()]))).unwrap();
            sender.send(SessionEvent::Control(Control::Listed(Vec::new()))).unwrap();
        });
        assert!(await_list(wire::Listed::Paths, &events, None, PATIENCE).unwrap().is_some());
        brings.join().unwrap();
        let kept = std::iter::from_fn(|| events.next(Duration::ZERO)).count();
        assert_eq!(kept, usize::from(MAX_LANES));
    }

    #[test]
    fn a_list_that_does_not_come_is_not_waited_for_whatever_else_does() {
        const LIMIT: Duration = Duration::from_millis(500);
        let error = ends_while(LIMIT, || SessionEvent::Lane(LaneEvent::FallsShort(Vec::new()))).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
        let error = ends_while(LIMIT, || SessionEvent::Control(Control::Listed(vec![b"x".to_vec()]))).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    }
}

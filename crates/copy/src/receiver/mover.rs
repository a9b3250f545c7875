//! Another host of the receiver's end: it writes chunks into drafts that the leading host has made.
//!
//! ```text
//!   loop           SharedRoot -> the same file is found here -> SameRoot
//!                  OpenDraft -> the draft is opened here
//!   lane threads   data -> hash, draft -> verified
//!   flush thread   verified -> flushed -> Moved -> initiator -> leader: receipt, journal
//! ```
//! Its failure costs the job this host, and nothing else.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use haul_job::{Error, Fault};
use haul_net::Stream;
use haul_store::{Draft, LocalTree, StoreError, TargetOptions};
use haul_wire::control::{Control, MovedChunk, Notice, OpenDraft, ReceiverSummary, SenderSummary, SharedRoot};
use haul_wire::limits::MAX_BATCH_ITEMS;

use haul_channel::channel::{self, LaneEnd, LaneEvent, SessionEvent};
use haul_channel::clock::{Clock, START_DEADLINE, TICK};
use haul_channel::lane_role::{self, LaneRole};
use haul_channel::lane_threads::{Lanes, NoKeeper};
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, farewell};
use haul_kept::faults;

use super::begin::{BEGIN_DEADLINE, await_begin};
use super::destination::Destination;
use super::incoming::Incoming;
use super::job::{ReceiverJob, Target};
use super::lane;
use super::state::Shared;

/// Runs a mover's session to its end.
pub fn run(job: ReceiverJob, context: RoleContext<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let clock = Clock::new(job.carriage.timeout_ms);
    let channel = context.channel;
    let result = run_session(job, context, clock);
    farewell::close(channel, &result);
    result
}

fn run_session(
    job: ReceiverJob,
    context: RoleContext<'_>,
    mut clock: Clock,
) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let single_file = await_begin(
        &context.events,
        context.channel,
        context.watch,
        &mut clock,
        BEGIN_DEADLINE,
        context.on_other_message,
    )?;
    let root = await_root(&context, &mut clock)?;
    let RoleContext { events, channel, watch, on_other_message, .. } = context;
    let tree = open(&job, single_file, &root)?;
    let outbox = Arc::clone(channel.outbox());
    let to = Destination::new(Arc::new(tree), None, Vec::new(), &job.selection);
    let shared = Shared::new(to, job, outbox, Arc::clone(watch), events.sender())?;
    let shared = Arc::new(shared.of_mover());
    // Before the threads that work on files.
    if let Some(notice) = shared.give_up_rights() {
        shared.notice(notice);
    }
    let flusher =
        start_flusher(&shared).map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
    channel.outbox().send(Control::SameRoot);
    let lanes = Lanes::new(events.sender(), Arc::clone(watch));
    let mut mover = Mover { shared: Arc::clone(&shared), lanes };
    let mut until_bye = || -> Result<SenderSummary, Error> {
        loop {
            clock.turn(watch, channel, &shared.failure)?;
            mover.lanes.check(false, clock.timeout())?;
            check_storage(&shared, &clock)?;
            match events.next(TICK) {
                Some(SessionEvent::Control(Control::Bye(summary))) => return Ok(summary),
                Some(SessionEvent::Control(message)) => mover.on_message(message, on_other_message)?,
                Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
                Some(SessionEvent::Lane(event)) => lane_role::carry_on(&mut mover, event, channel, &mut NoKeeper)?,
                Some(SessionEvent::Moved(..) | SessionEvent::Wake) | None => {}
            }
        }
    };
    let sender = until_bye();
    if let Err(error) = &sender {
        shared.failure.set(error.clone());
        mover.lanes.cut_all();
    }
    shared.drafts().end();
    drop(events);
    mover.lanes.join();
    if shared.disk.storage.waits_since().is_none() {
        let _ = flusher.join();
    }
    let summary = shared.summary();
    sender.map(|sender| (sender, summary))
}

struct Mover {
    shared: Arc<Shared>,
    lanes: Lanes,
}

impl Mover {
    fn on_message(
        &mut self,
        message: Control,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match message {
            Control::OpenDraft(draft) => adopt(&self.shared, &draft)?,
            Control::CloseDraft { index } => self.shared.drafts().close(index),
            Control::PathLost { path } => self.lanes.cut_path(path),
            Control::LaneLost { lane } => self.lanes.cut(lane),
            Control::Abort(abort) => return Err(convert::error_of(abort)),
            Control::WantLanes { .. } | Control::SmallerSegments { .. } | Control::PathNow(_) => {}
            other => on_other_message(other)?,
        }
        Ok(())
    }
}

impl LaneRole for Mover {
    fn host(&self) -> &'static str {
        "a receiving host"
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn lane_up(&mut self, lane: u16, stream: Stream) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let carry = move |stream| lane::carry(lane::Arriving::new(stream), lane, &shared);
        self.lanes.start(stream, lane, carry)
    }

    fn lane_down(&mut self, _end: &LaneEnd, _is_newest: bool) {}

    fn notice(&self, notice: Notice) {
        self.shared.notice(notice);
    }
}

fn await_root(context: &RoleContext<'_>, clock: &mut Clock) -> Result<SharedRoot, Error> {
    let failure = haul_channel::failure::Failure::default();
    let start = Instant::now();
    let mut early = Vec::new();
    loop {
        clock.turn(context.watch, context.channel, &failure)?;
        match context.events.next(TICK) {
            Some(SessionEvent::Control(Control::SharedRoot(root))) => {
                context.events.put_back(early);
                return Ok(root);
            }
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(Control::Bye(_))) => return Err(channel::ended(None)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(SessionEvent::Lane(LaneEvent::Up(..))) | None => {}
            Some(event) if early.is_empty() => early.push(event),
            Some(_) => {}
        }
        if start.elapsed() > START_DEADLINE {
            return Err(Error::new(Fault::Timeout, "the leading host did not say where it writes"));
        }
    }
}

/// Opens the target, if it is the leader's: it has a file that nobody else can have made.
fn open(job: &ReceiverJob, single_file: bool, root: &SharedRoot) -> Result<LocalTree, Error> {
    let Target::Path(path) = &job.target else { unreachable!("a mover has a path") };
    let options = TargetOptions {
        confine: job.confine.clone(),
        home: job.surroundings.home.clone(),
        make: false,
        single_file,
        dry_run: false,
        xattrs: job.selection.xattrs,
        acls: job.selection.acls,
        read_only: false,
        keep_dirlinks: false,
    };
    let another = |why: &dyn std::fmt::Display| {
        Error::new(Fault::Usage, "this host does not have the files of the leading host at the target")
            .because(why)
            .try_this("mount the same file system on both hosts, at the same path")
    };
    let (tree, _) = LocalTree::open(path, &options).map_err(|error| another(&error))?;
    let found = tree.share_part(&root.path, root.inode).map_err(|error| another(&error))?;
    let mut token = [0; 32];
    let read = found.read_at(&mut token, 0).map_err(|error| another(&error))?;
    if read != token.len() || token != root.token {
        return Err(another(&"a file of the same name and number has other contents"));
    }
    Ok(tree)
}

fn adopt(shared: &Shared, draft: &OpenDraft) -> Result<(), Error> {
    let tree = shared.to.tree().local().ok_or_else(|| Error::broke_the_protocol("it shares drafts of no disk"))?;
    let part = tree.share_part(&draft.path, draft.inode).map_err(|error| faults::store_error(&error))?;
    let incoming = Incoming::shared(draft, Draft::Local(part)).map_err(Error::broke_the_protocol)?;
    match shared.drafts().open(draft.index, Arc::new(incoming)) {
        true => Ok(()),
        false => Err(Error::broke_the_protocol("it shares more drafts than agreed")),
    }
}

/// A disk that does not answer here shall not end the job: the other hosts can do without this one.
fn check_storage(shared: &Shared, clock: &Clock) -> Result<(), Error> {
    match shared.disk.storage.waits_since() {
        Some(since) if since.elapsed() > clock.timeout() / 2 => {
            Err(Error::new(Fault::Storage, shared.disk.storage.has_not_answered_for(since.elapsed())))
        }
        _ => Ok(()),
    }
}

fn start_flusher(shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("flush".into()).spawn(move || {
        while let Some(chunks) = shared.drafts().next() {
            let mut flushed: Vec<MovedChunk> = Vec::with_capacity(chunks.len());
            let mut last: Option<Arc<Incoming>> = None;
            for (incoming, moved) in chunks {
                if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &incoming))
                    && let Err(error) = flush(&shared, &incoming)
                {
                    return shared.failure.set(faults::store_error(&error));
                }
                flushed.push(moved);
                last = Some(incoming);
            }
            shared.drafts().flushed(&flushed);
            for batch in flushed.chunks(MAX_BATCH_ITEMS) {
                shared.outbox.send(Control::Moved(batch.to_vec()));
            }
        }
    })
}

fn flush(shared: &Shared, incoming: &Incoming) -> Result<(), StoreError> {
    let part = incoming.part(shared.to.tree())?;
    shared.disk.storage.during(|| part.map_or(Ok(()), |part| part.flush()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use haul_striping::token::Token;

    use super::*;
    use crate::receiver::state::tests::job_into;

    fn tree(at: &Path) -> LocalTree {
        LocalTree::open(at.as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap().0
    }

    fn finds(at: &Path, root: &SharedRoot) -> bool {
        open(&job_into(at), false, root).is_ok()
    }

    #[test]
    fn only_the_token_of_this_job_at_its_place_proves_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
        std::fs::create_dir(&ours).unwrap();
        std::fs::create_dir(&other).unwrap();
        let (token, root) = Token::make(&tree(&ours), true).unwrap().unwrap();
        let (_standing, of_other) = Token::make(&tree(&other), true).unwrap().unwrap();
        assert!(finds(&ours, &root));
        let with = |path: &[u8]| SharedRoot { path: path.to_vec(), ..root.clone() };
        let refused = [
            ("another host's directory", &other, root.clone()),
            ("the token of another job", &ours, of_other.clone()),
            ("another inode", &ours, SharedRoot { inode: root.inode + 1, ..root.clone() }),
            ("other contents", &ours, SharedRoot { token: [7; 32], ..root.clone() }),
            ("no file", &ours, with(b"gone")),
            ("out of the tree", &ours, with(&[b"../ours/", &root.path[..]].concat())),
            ("an absolute path", &ours, with(&[ours.as_os_str().as_encoded_bytes(), b"/", &root.path[..]].concat())),
            ("the tree itself", &ours, with(b"")),
        ];
        for (what, at, root) in refused {
            assert!(!finds(at, &root), "{what}");
        }
        // A link to the file is a way that somebody else may have laid.
        let name = std::fs::read_dir(&other).unwrap().next().unwrap().unwrap().file_name();
        std::os::unix::fs::symlink(other.join(&name), ours.join(&name)).unwrap();
        assert!(!finds(&ours, &of_other), "through a link");
        token.discard();
        assert!(!finds(&ours, &root), "it is replayed after its job");
    }
}

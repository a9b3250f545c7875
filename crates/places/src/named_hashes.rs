//! Hashes files named one by one, here or at another host ([`haul_wire::hashed`]).
//!
//! The caller asks while there is room, and takes answers in any order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use haul_job::{Error, Far, Fault, Here, Place, Proof};
use haul_store::place::NodeKind;
use haul_store::{LocalTree, StoreError, TargetOptions};
use haul_wire::control::Control;
use haul_wire::hashed::{FileFound, MAX_WANTED_BYTES, MAX_WANTED_FILES, WantedFile};
use haul_wire::place::{MAX_PAGE_LINES, PAGE_BYTES, PlaceWord, Question, Told};

use super::asking::begin;
use super::hash_of::THREADS_ELSEWHERE;
use super::hash_pool::{Files, HashPool};
use super::request::Request;
use super::ways::Ways;
use haul_channel::channel::{self, Channel, Events, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::failure::Failure;
use haul_channel::reporter::Watch;
use haul_channel::{convert, farewell, host_facts};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_reach::remote::Remote;
use haul_reach::ssh::SshChild;

pub struct Hashes {
    end: End,
    proof: Proof,
    next: u64,
    open: std::collections::BTreeMap<u64, usize>,
    open_bytes: usize,
}

enum End {
    Here { pool: HashPool, answers: Receiver<(u64, FileFound)> },
    There(Box<There>),
}

impl End {
    fn here(files: Files, threads: usize) -> Result<Self, Error> {
        let (told, answers) = channel();
        let done = move |number, found| drop(told.send((number, found)));
        Ok(End::Here { pool: HashPool::start(files, threads, Box::new(done))?, answers })
    }
}

impl Hashes {
    /// The request's verb is [`haul_wire::place::Verb::HashNamed`].
    pub fn open(request: &Request, threads: usize, ways: &Ways, watch: &Arc<Watch>) -> Result<Self, Error> {
        let (end, proof) = match (ways.end_of(&request.place), &request.place) {
            (Some(end), _) => Self::elsewhere(&end, request, ways, watch)?,
            (None, Place::Far(far)) => match There::open(request, far, &ways.surroundings, watch) {
                Err(error) => match ways.instead(far, &error, watch) {
                    Some(end) => Self::elsewhere(&end, request, ways, watch)?,
                    None => return Err(error),
                },
                there => (End::There(Box::new(there?)), Proof::BothEnds),
            },
            (None, Place::Here(_)) => {
                let tree = open_tree(&request.question, &TargetOptions::default())?;
                (End::here(Files::Here(Box::new(tree)), threads)?, Proof::BothEnds)
            }
        };
        Ok(Self { end, proof, next: 0, open: std::collections::BTreeMap::new(), open_bytes: 0 })
    }

    fn elsewhere(end: &Here, request: &Request, ways: &Ways, watch: &Arc<Watch>) -> Result<(End, Proof), Error> {
        let tree = ways.open(end, request, watch)?;
        let directory = request.question.paths.first().cloned().unwrap_or_default();
        let shown = haul_store::printable(&directory);
        let facts = tree.facts(&directory, true);
        let facts =
            facts.map_err(|error| faults::store_error(&StoreError::new("check the tree", &directory, error)))?;
        if facts.kind != NodeKind::Directory {
            return Err(Error::new(Fault::FileIo, format!("{shown} is no directory")));
        }
        Ok((End::here(Files::Elsewhere { tree, directory }, THREADS_ELSEWHERE)?, end.proof_of_reading()))
    }

    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// A path takes less than the half that is left.
    pub fn has_room(&self) -> bool {
        self.open.len() < MAX_WANTED_FILES && self.open_bytes < MAX_WANTED_BYTES / 2
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn want(&mut self, wanted: WantedFile) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open_bytes += wanted.weight_bytes();
        self.open.insert(number, wanted.weight_bytes());
        match &mut self.end {
            End::Here { pool, .. } => pool.put(number, wanted),
            End::There(there) => there.want(wanted),
        }
        number
    }

    pub fn flush(&mut self) {
        if let End::There(there) = &mut self.end {
            there.flush();
        }
    }

    pub fn next(&mut self, limit: Duration) -> Result<Option<(u64, FileFound)>, Error> {
        let answer = match &mut self.end {
            End::Here { answers, pool } => match answers.recv_timeout(limit) {
                Ok(answer) => {
                    pool.check()?;
                    Some(answer)
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::new(Fault::FileIo, "the hashing has ended")),
            },
            End::There(there) => there.next(limit)?,
        };
        if let Some((number, _)) = &answer {
            let weight = self.open.remove(number);
            self.open_bytes -= weight.ok_or_else(|| Error::broke_the_protocol("it tells of what was not asked for"))?;
        }
        Ok(answer)
    }

    pub fn bytes(&self) -> u64 {
        match &self.end {
            End::Here { pool, .. } => pool.bytes(),
            End::There(there) => there.bytes,
        }
    }

    pub fn close<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        match self.end {
            End::Here { .. } => result,
            End::There(there) => there.close(result),
        }
    }
}

struct There {
    remote: Remote,
    child: Option<SshChild>,
    clock: Clock,
    watch: Arc<Watch>,
    page: Vec<WantedFile>,
    page_bytes: usize,
    waiting: VecDeque<(u64, FileFound)>,
    bytes: u64,
    has_ended: bool,
    far: Far,
}

impl There {
    fn open(request: &Request, far: &Far, surroundings: &Surroundings, watch: &Arc<Watch>) -> Result<Self, Error> {
        let mut remote = begin(request, far, surroundings, watch)?;
        let child = remote.take_child();
        let clock = Clock::new(u32::try_from(request.carriage.timeout.as_millis()).unwrap_or(u32::MAX));
        Ok(Self::of(remote, child, clock, Arc::clone(watch), far.clone()))
    }

    fn of(remote: Remote, child: Option<SshChild>, clock: Clock, watch: Arc<Watch>, far: Far) -> Self {
        Self {
            remote,
            child,
            clock,
            watch,
            page: Vec::new(),
            page_bytes: 0,
            waiting: VecDeque::new(),
            bytes: 0,
            has_ended: false,
            far,
        }
    }

    fn want(&mut self, wanted: WantedFile) {
        self.page_bytes += wanted.weight_bytes();
        self.page.push(wanted);
        if self.page.len() >= MAX_PAGE_LINES || self.page_bytes >= PAGE_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.page_bytes = 0;
        if !self.page.is_empty() {
            let page = std::mem::take(&mut self.page);
            self.remote.channel.outbox().send(Control::Place(PlaceWord::Wanted(page)));
        }
    }

    fn next(&mut self, limit: Duration) -> Result<Option<(u64, FileFound)>, Error> {
        // A waiting caller needs all its files under way.
        if !limit.is_zero() {
            self.flush();
        }
        if self.waiting.is_empty() {
            self.hear(limit).map_err(|error| error.at(&self.far))?;
        }
        Ok(self.waiting.pop_front())
    }

    fn hear(&mut self, limit: Duration) -> Result<(), Error> {
        self.clock.turn(&self.watch, &self.remote.channel, &Failure::default())?;
        match self.remote.events.next(limit) {
            Some(SessionEvent::Control(Control::Place(PlaceWord::Told(lines)))) => {
                for line in lines {
                    match line {
                        Told::Found { number, found } => self.waiting.push_back((number, found)),
                        Told::Hashed { bytes } => self.bytes = bytes,
                        _ => return Err(Error::broke_the_protocol("it says what was not asked for")),
                    }
                }
                Ok(())
            }
            Some(SessionEvent::Control(Control::Place(PlaceWord::End))) => {
                self.has_ended = true;
                Ok(())
            }
            Some(SessionEvent::Control(Control::AgentHello(hello))) => self.remote.far_end.on_hello(hello),
            Some(SessionEvent::Control(Control::Abort(abort))) => Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => Err(self.remote.far_end.explain(channel::ended(why))),
            Some(_) | None => Ok(()),
        }
    }

    fn close<T>(mut self, result: Result<T, Error>) -> Result<T, Error> {
        let result = result.and_then(|done| {
            self.remote.channel.outbox().send(Control::Place(PlaceWord::End));
            let until = Instant::now() + self.clock.silence_limit();
            while !self.has_ended && Instant::now() < until {
                self.hear(TICK).map_err(|error| error.at(&self.far))?;
            }
            Ok(done)
        });
        farewell::close(&self.remote.channel, &result);
        if let Some(child) = self.child.take() {
            child.end();
        }
        result
    }
}

fn open_tree(question: &Question, options: &TargetOptions) -> Result<LocalTree, Error> {
    let path = question.paths.first().map(Vec::as_slice).unwrap_or_default();
    let options = TargetOptions { read_only: true, ..options.clone() };
    match LocalTree::open(path, &options) {
        Ok((tree, None)) => Ok(tree),
        Ok((_, Some(_))) => Err(Error::new(Fault::FileIo, format!("{} is no directory", haul_store::printable(path)))),
        Err(error) => {
            let what = format!("cannot check the tree {}", haul_store::printable(path));
            Err(Error::new(Fault::FileIo, what).because(error.source))
        }
    }
}

const TELL_EVERY: Duration = Duration::from_millis(250);

/// Returns the bytes hashed.
pub fn serve(
    question: &Question,
    options: &TargetOptions,
    (events, channel, watch): (&Events, &Channel, &Watch),
    timeout_ms: u32,
) -> Result<u64, Error> {
    let outbox = Arc::clone(channel.outbox());
    let done = move |number, found| outbox.send(Control::Place(PlaceWord::Told(vec![Told::Found { number, found }])));
    let pool = HashPool::start(
        Files::Here(Box::new(open_tree(question, options)?)),
        host_facts::cpus().into(),
        Box::new(done),
    )?;
    let (mut clock, mut next, mut has_ended) = (Clock::new(timeout_ms), 0, false);
    let (mut told_at, mut told) = (Instant::now(), 0);
    loop {
        clock.turn(watch, channel, &Failure::default())?;
        if has_ended && pool.open().files == 0 {
            let bytes = pool.bytes();
            drop(pool);
            channel.outbox().send(Control::Place(PlaceWord::End));
            return Ok(bytes);
        }
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Place(PlaceWord::Wanted(files)))) if !has_ended => {
                for wanted in files {
                    pool.put(next, wanted);
                    next += 1;
                }
                let open = pool.open();
                if open.files > MAX_WANTED_FILES || open.bytes > MAX_WANTED_BYTES {
                    return Err(Error::broke_the_protocol("it wants more files than have room"));
                }
            }
            Some(SessionEvent::Control(Control::Place(PlaceWord::End))) => has_ended = true,
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(_) | None => {}
        }
        let bytes = pool.bytes();
        if bytes != told && told_at.elapsed() >= TELL_EVERY {
            (told, told_at) = (bytes, Instant::now());
            channel.outbox().send(Control::Place(PlaceWord::Told(vec![Told::Hashed { bytes }])));
        }
    }
}

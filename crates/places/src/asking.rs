//! Asks a place, here or at another host.

use std::ops::ControlFlow;
use std::sync::Arc;

use haul_job::{Endpoint, Error, Far, Fault, Job, Observer, Place};
use haul_net::Identity;
use haul_store::place::{Grounds, Site, SiteOptions, is_answer_to};
use haul_wire::control::{Control, Role};
use haul_wire::place::{MAX_ANSWER_BYTES, MAX_ANSWER_LINES, PlaceWord, Question, Told, Verb};

use super::answering::answer;
use super::arriving::Arriving;
use super::elsewhere::ask_elsewhere;
use super::hearer::{Hearer, Piece};
use super::request::{Answered, Request};
use super::ways::Ways;
use haul_channel::channel::{self, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::failure::Failure;
use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::Watch;
use haul_channel::{convert, farewell, host_facts};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_reach::connect;
use haul_reach::remote::{Assignment, Remote};

/// Each message costs a packet.
pub(crate) const TAKEN_AT_ONCE: u16 = 8;

/// Asks, and gives `take` each piece of the answer.
///
/// # Errors
/// The place cannot be reached, or broke off. An entry's failure is a line of the answer.
pub fn ask(
    request: &Request,
    ways: &Ways,
    observer: Arc<dyn Observer>,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<Answered, Error> {
    let watch = Arc::new(Watch::new(observer));
    let result = match (ways.end_of(&request.place), &request.place) {
        (Some(end), _) => ask_elsewhere(end, request, ways, &watch, take),
        (None, Place::Far(far)) => match ask_there(request, far, &ways.surroundings, &watch, take) {
            Err(error) => match ways.instead(far, &error, &watch) {
                Some(end) => ask_elsewhere(end, request, ways, &watch, take),
                None => Err(error),
            },
            answered => answered,
        },
        (None, Place::Here(_)) => ask_here(&request.question, &watch, take),
    };
    // Ctrl-C ends ssh as well.
    result.map_err(|error| if watch.interrupted() { interrupted() } else { error })
}

pub fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted")
}

struct NearHearer<'a> {
    watch: &'a Watch,
    take: &'a mut dyn FnMut(Piece) -> ControlFlow<()>,
}

impl NearHearer<'_> {
    fn piece(&mut self, piece: Piece) -> ControlFlow<()> {
        self.busy()?;
        (self.take)(piece)
    }
}

impl Hearer for NearHearer<'_> {
    fn line(&mut self, line: Told) -> ControlFlow<()> {
        self.piece(Piece::Line(line))
    }

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.piece(Piece::Data(bytes.to_vec()))
    }

    fn busy(&mut self) -> ControlFlow<()> {
        if self.watch.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn ask_here(
    question: &Question,
    watch: &Watch,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<Answered, Error> {
    let site = Site::open(SiteOptions::default()).map_err(|error| faults::store_error(&error))?;
    let flow = answer(question, Grounds::Disk(Box::new(site)), &mut NearHearer { watch, take });
    match flow {
        _ if watch.interrupted() => Err(interrupted()),
        ControlFlow::Break(()) => Ok(Answered::Enough),
        ControlFlow::Continue(()) => Ok(Answered::Whole),
    }
}

fn ask_there(
    request: &Request,
    far: &Far,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<Answered, Error> {
    let mut remote = begin(request, far, surroundings, watch)?;
    let child = remote.take_child();
    let clock = Clock::new(u32::try_from(request.carriage.timeout.as_millis()).unwrap_or(u32::MAX));
    let result = hear(&request.question, remote, (clock, watch), Bounds::default(), take);
    if let Some(child) = child {
        child.end();
    }
    result.map_err(|error| error.at(far))
}

pub fn begin(request: &Request, far: &Far, surroundings: &Surroundings, watch: &Arc<Watch>) -> Result<Remote, Error> {
    let job = Job { sources: vec![Endpoint { place: far.clone().into(), path: b".".to_vec() }], ..request.job() };
    let remote = connect::connect(far, &job, surroundings, watch, None, Foreseen::default())?;
    put(&job, &remote, &request.question, watch).map_err(|error| error.at(far))?;
    Ok(remote)
}

fn put(job: &Job, remote: &Remote, question: &Question, watch: &Watch) -> Result<(), Error> {
    // No lanes will prove this key.
    let identity = match &remote.identity {
        Some(identity) => identity.public(),
        None => Identity::generate().map_err(|error| faults::net_error(&error))?.public(),
    };
    let role = Role::Place { question: question.clone() };
    let (peer_session, cpus) = (remote.session, host_facts::cpus());
    let (peer_key, links, stays, path) = (identity, false, false, None);
    let assigned = Assignment { peer_session, peer_key, links, stays, role, path, cpus, others: 0 };
    remote.start(assigned, job, false, watch)
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub lines: u64,
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lines: MAX_ANSWER_LINES, bytes: MAX_ANSWER_BYTES }
    }
}

pub fn hear(
    question: &Question,
    remote: Remote,
    (mut clock, watch): (Clock, &Watch),
    bounds: Bounds,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<Answered, Error> {
    let mut hearing = Hearing { question, bounds, taken: 0, file: Arriving::default() };
    let channel = remote.channel.clone();
    let result = loop {
        if let Err(error) = clock.turn(watch, &channel, &Failure::default()) {
            break Err(error);
        }
        let word = match remote.events.next(TICK) {
            Some(SessionEvent::Control(Control::Place(word))) => word,
            Some(SessionEvent::Control(Control::AgentHello(hello))) => match remote.far_end.on_hello(hello) {
                Ok(()) => continue,
                Err(error) => break Err(error),
            },
            Some(SessionEvent::Control(Control::Abort(abort))) => break Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => break Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => break Err(remote.far_end.explain(channel::ended(why))),
            Some(_) | None => continue,
        };
        match hearing.word(word, take) {
            Ok(Some(answered)) => break Ok(answered),
            Ok(None) => {}
            Err(error) => break Err(error),
        }
        if hearing.taken >= TAKEN_AT_ONCE {
            let pages = std::mem::take(&mut hearing.taken);
            channel.outbox().send(Control::Place(PlaceWord::More { pages }));
        }
    };
    farewell::close(&channel, &result);
    result
}

struct Hearing<'a> {
    question: &'a Question,
    bounds: Bounds,
    taken: u16,
    file: Arriving,
}

impl Hearing<'_> {
    fn word(
        &mut self,
        word: PlaceWord,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<Option<Answered>, Error> {
        self.taken = self.taken.saturating_add(1);
        let too_long = || Error::broke_the_protocol("its answer is longer than any tree");
        let flow = match word {
            PlaceWord::Told(lines) => {
                self.bounds.lines = self.bounds.lines.checked_sub(lines.len() as u64).ok_or_else(too_long)?;
                lines.iter().try_for_each(|line| self.check(line))?;
                lines.into_iter().try_for_each(|line| take(Piece::Line(line)))
            }
            PlaceWord::Data { bytes, blake3 } if self.question.verb == Verb::Read => {
                self.bounds.bytes = self.bounds.bytes.checked_sub(bytes.len() as u64).ok_or_else(too_long)?;
                self.file.block(&bytes, &blake3)?;
                take(Piece::Data(bytes))
            }
            PlaceWord::End => return Ok(Some(Answered::Whole)),
            PlaceWord::Data { .. } | PlaceWord::Whole(_) | PlaceWord::Wanted(_) | PlaceWord::More { .. } => {
                return Err(Error::broke_the_protocol("it says what was not asked for"));
            }
        };
        Ok(flow.is_break().then_some(Answered::Enough))
    }

    fn check(&mut self, line: &Told) -> Result<(), Error> {
        let path = match line {
            Told::Operand { path } => path,
            Told::Whole(whole) => return std::mem::take(&mut self.file).end(whole),
            _ => return Ok(()),
        };
        self.file = Arriving::default();
        if self.question.paths.iter().any(|typed| is_answer_to(typed, path)) {
            return Ok(());
        }
        let path = haul_store::printable(path);
        Err(Error::broke_the_protocol(format!("it tells of {path}, which was not asked for")))
    }
}

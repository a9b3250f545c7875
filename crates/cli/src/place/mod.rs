//! `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`: a tree here, at a host or at a daemon, by hand.
//!
//! The paths are grouped by their place; each place is asked one question; what it tells is printed as it comes.

mod figures;
pub mod flags;
mod lines;
mod ls;
mod manifest;
mod names;
mod paper;
pub mod stream;
mod words;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::{Carriage, Endpoint, Error, Event, Family, Fault, Observer, Place, SshOptions};
use haul_transfer::Surroundings;
use haul_transfer::place::{self, Answered, List, Piece, Question, Request, Told, Verb};
use jiff::tz::TimeZone;

use crate::printable::printable;
use crate::reach::Reach;
use crate::{ending, endpoint, job, signals};
use flags::PlaceCommand;
use lines::{Changes, Contents, Hashes, Leftovers, Looks, Usage};
use ls::Listing;
use manifest::ManifestLines;
use paper::Paper;

/// Something of what was asked for failed: the exit code of coreutils.
const FAILED: u8 = 1;

/// ls: what was asked for itself failed.
const LS_FAILED: u8 = 2;

/// Prints what a place tells.
trait Printer {
    /// Where it is.
    fn at(&mut self) -> &mut Whereabouts;

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()>;

    /// No more comes. `is_whole`: all that was named was found, and all places have told all.
    fn end(&mut self, _paper: &mut Paper, _is_whole: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Why it broke off.
    fn refused(&mut self) -> Option<Error> {
        None
    }
}

/// What is being told of.
#[derive(Default)]
struct Whereabouts {
    place: Option<Place>,
    operand: Vec<u8>,
}

impl Whereabouts {
    /// A path beneath the operand, as at its place.
    fn path(&self, beneath: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.operand.ends_with(b"/") { b"" } else { b"/" };
        if beneath.is_empty() { self.operand.clone() } else { [&self.operand, slash, beneath].concat() }
    }

    /// The same as it can be typed here.
    fn full(&self, beneath: &[u8]) -> Vec<u8> {
        self.other(&self.path(beneath))
    }

    /// Another path of the place, as it can be typed here.
    fn other(&self, path: &[u8]) -> Vec<u8> {
        let place = self.place.clone().unwrap_or(Place::Local);
        endpoint::text(&Endpoint { place, path: path.to_vec() })
    }

    /// `None`: this machine.
    fn place_name(&self) -> Option<String> {
        self.place.as_ref().filter(|place| !place.is_here()).map(ToString::to_string)
    }
}

/// Runs one of the commands.
pub fn run(command: &PlaceCommand) -> ExitCode {
    haul_transfer::hide_memory();
    match command {
        PlaceCommand::Ls(typed) => {
            let list = List {
                recursive: typed.recursive,
                hidden: typed.all,
                itself: typed.directory,
                facts: typed.long || typed.json,
            };
            let is_wild = |path: &OsString| path.to_string_lossy().contains(['*', '?', '[']);
            let has_headings = typed.recursive || typed.paths.len() > 1 || typed.paths.iter().any(is_wild);
            let asked = Asked { verb: Verb::List(list), json: typed.json, reach: &typed.reach };
            run_on(&or_here(&typed.paths), asked, &mut Listing::new(typed, has_headings), LS_FAILED)
        }
        PlaceCommand::Du(typed) => {
            let asked = Asked { verb: Verb::Usage { each: !typed.summarize }, json: typed.json, reach: &typed.reach };
            run_on(&or_here(&typed.paths), asked, &mut Usage { typed, at: Whereabouts::default() }, FAILED)
        }
        PlaceCommand::Stat(typed) => {
            let asked = Asked { verb: Verb::Stat { follow: typed.dereference }, json: typed.json, reach: &typed.reach };
            let mut looks = Looks { json: typed.json, zone: TimeZone::system(), at: Whereabouts::default() };
            run_on(&typed.paths, asked, &mut looks, FAILED)
        }
        PlaceCommand::Mkdir(typed) => {
            let asked = Asked { verb: Verb::Make { parents: typed.parents }, json: false, reach: &typed.reach };
            run_on(&typed.paths, asked, &mut changes(typed.verbose, false), FAILED)
        }
        PlaceCommand::Mv(typed) => match new_name(&typed.paths) {
            Ok((paths, to)) => {
                let verb = Verb::Move { to, keep: typed.no_clobber };
                let asked = Asked { verb, json: false, reach: &typed.reach };
                run_on(paths, asked, &mut changes(typed.verbose, false), FAILED)
            }
            Err(error) => ending::failed(&error, false),
        },
        PlaceCommand::Rm(typed) => {
            let verb = Verb::Remove { trees: typed.recursive, force: typed.force, dry_run: typed.dry_run };
            let asked = Asked { verb, json: false, reach: &typed.reach };
            run_on(&typed.paths, asked, &mut changes(typed.verbose, typed.dry_run), FAILED)
        }
        PlaceCommand::Cat(typed) => {
            let asked = Asked { verb: Verb::Read, json: false, reach: &typed.reach };
            run_on(&typed.paths, asked, &mut Contents::default(), FAILED)
        }
        PlaceCommand::Hash(typed) if typed.manifest => match ManifestLines::new(typed) {
            Ok(mut lines) => {
                let verb = Verb::Hash { algorithm: typed.algorithm.into() };
                run_on(&typed.paths, Asked { verb, json: false, reach: &typed.reach }, &mut lines, FAILED)
            }
            Err(error) => ending::failed(&error, false),
        },
        PlaceCommand::Hash(typed) => {
            let algorithm = typed.algorithm.into();
            let asked = Asked { verb: Verb::Hash { algorithm }, json: typed.json, reach: &typed.reach };
            let (tag, at) = (typed.tag.then_some(algorithm), Whereabouts::default());
            run_on(&typed.paths, asked, &mut Hashes { json: typed.json, tag, at }, FAILED)
        }
        PlaceCommand::Clean(typed) => {
            let asked = Asked { verb: Verb::Clean { remove: typed.delete }, json: typed.json, reach: &typed.reach };
            let (json, removed, at) = (typed.json, typed.delete, Whereabouts::default());
            run_on(&typed.paths, asked, &mut Leftovers { json, removed, at }, FAILED)
        }
    }
}

fn changes(verbose: bool, dry_run: bool) -> Changes {
    Changes { verbose, dry_run, at: Whereabouts::default() }
}

/// The current directory where none is named.
fn or_here(paths: &[OsString]) -> Vec<OsString> {
    if paths.is_empty() { vec![OsString::from(".")] } else { paths.to_vec() }
}

/// What is moved, and the new name at the same place.
fn new_name(paths: &[OsString]) -> Result<(&[OsString], Vec<u8>), Error> {
    let (to, from) = paths.split_last().expect("clap asks for two");
    let to = one_host(to)?;
    for path in from {
        let place = one_host(path)?.place;
        if place != to.place {
            let what = format!("mv gives new names on one host, and these are on two: {place}, {}", to.place);
            return Err(Error::new(Fault::Usage, what).try_this("haul cp copies; then haul rm -r the source"));
        }
    }
    Ok((from, to.path))
}

/// What is asked of each place.
struct Asked<'a> {
    verb: Verb,
    json: bool,
    reach: &'a Reach,
}

fn run_on(paths: &[OsString], asked: Asked<'_>, printer: &mut dyn Printer, operand_failed: u8) -> ExitCode {
    let json = asked.json;
    let observer = Arc::new(Person { interrupted: signals::watch() });
    let requests = match requests(paths, &asked) {
        Ok(requests) => requests,
        Err(error) => return ending::failed(&error, json),
    };
    let (mut paper, mut code, mut is_whole) = (Paper::new(), 0, true);
    for request in requests {
        let place = request.place.clone();
        printer.at().place = Some(place.clone());
        let mut take = |piece| match piece {
            Piece::Data(bytes) => paper.put(&bytes),
            Piece::Line(Told::Operand { path }) => {
                printer.at().operand = path;
                ControlFlow::Continue(())
            }
            Piece::Line(Told::Failed { is_operand, why }) => {
                is_whole &= !is_operand;
                code = code.max(if is_operand { operand_failed } else { FAILED });
                let at = if place.is_here() { String::new() } else { format!("{}: ", printable(place.to_string())) };
                say(&format!("error: {at}{}", printable(why)));
                ControlFlow::Continue(())
            }
            Piece::Line(told) => printer.told(told, &mut paper),
        };
        let answered = place::ask(&request, &Surroundings::of_process(), observer.clone(), &mut take);
        match answered {
            Ok(Answered::Whole) => {}
            // The reader has enough.
            Ok(Answered::Enough) => {
                return printer.refused().map_or(ExitCode::from(code), |error| ending::failed(&error, json));
            }
            Err(error) => {
                // What came before is told.
                let _ = printer.end(&mut paper, false).is_continue() && paper.flush().is_continue();
                return ending::failed(&error, json);
            }
        }
    }
    let _ = printer.end(&mut paper, is_whole).is_continue() && paper.flush().is_continue();
    ExitCode::from(code)
}

/// One question for each place, in the order in which they are named.
fn requests(paths: &[OsString], asked: &Asked<'_>) -> Result<Vec<Request>, Error> {
    let (carriage, ssh) = ways(asked.reach)?;
    let mut requests: Vec<Request> = Vec::new();
    for path in paths {
        let Endpoint { place, path } = one_host(path)?;
        match requests.iter_mut().find(|request| request.place == place) {
            Some(request) => request.question.paths.push(path),
            None => {
                let question = Question { verb: asked.verb.clone(), paths: vec![path] };
                requests.push(Request { place, question, carriage: carriage.clone(), ssh: ssh.clone() });
            }
        }
    }
    Ok(requests)
}

/// How a place is reached.
pub fn ways(reach: &Reach) -> Result<(Carriage, SshOptions), Error> {
    let (ssh, ssh_family) = job::ssh_options(reach)?;
    let family = match (reach.ipv4, reach.ipv6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => ssh_family,
    };
    Ok((Carriage { family, ..Carriage::default() }, ssh))
}

/// A path as typed. Of several hosts with the same files the first one is asked.
pub fn one_host(typed: &OsString) -> Result<Endpoint, Error> {
    endpoint::parse_hosts(typed).map(|(first, _)| first)
}

/// A line on standard error, if there is one.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The user who waits for the answer.
pub struct Person {
    pub interrupted: Arc<AtomicBool>,
}

impl Observer for Person {
    fn on_event(&self, event: &Event) {
        if let Event::Warning { text } = event {
            say(&format!("warning: {}", printable(text)));
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

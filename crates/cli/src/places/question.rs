//! Asks each place once, for all its paths, and prints answers as they come.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use haul_job::{Endpoint, Error, Here, Place};
use haul_transfer::Surroundings;
use haul_transfer::place::{self, Answered, Piece, Question, Request, Told, Verb};

use crate::far_side::endpoint::one_host;
use crate::far_side::flags::Reach;
use crate::far_side::options::ways;
use crate::far_side::person::{Person, say};
use crate::far_side::web_url;
use crate::places::paper::Paper;
use crate::process::{ending, signals};
use crate::text::causes::{Causes, more_of, of_message};
use crate::text::figures;
use crate::text::printable::printable;
use crate::text::proof::as_read;

/// coreutils' exit code if something failed.
pub const FAILED: u8 = 1;

pub trait Printer {
    fn at(&mut self) -> &mut Whereabouts;

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()>;

    /// Ends the output. `is_whole`: all named paths were found, and all places told all.
    fn end(&mut self, _paper: &mut Paper, _is_whole: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn refused(&mut self) -> Option<Error> {
        None
    }
}

#[derive(Default)]
pub struct Whereabouts {
    pub place: Option<Place>,
    pub operand: Vec<u8>,
    /// The end through which this process looks at a place without haul.
    pub elsewhere: Option<Here>,
}

impl Whereabouts {
    pub fn path(&self, beneath: &[u8]) -> Vec<u8> {
        let operand = if self.is_web() { web_url::unescaped(&self.operand) } else { self.operand.clone() };
        let slash: &[u8] = if operand.is_empty() || operand.ends_with(b"/") { b"" } else { b"/" };
        if beneath.is_empty() { operand } else { [&operand, slash, beneath].concat() }
    }

    fn is_web(&self) -> bool {
        matches!(self.place, Some(Place::Here(Here::Web(_))))
    }

    pub fn full(&self, beneath: &[u8]) -> Vec<u8> {
        self.other(&self.path(beneath))
    }

    pub fn other(&self, path: &[u8]) -> Vec<u8> {
        let place = self.place.clone().unwrap_or(Here::Disk.into());
        let path = if self.is_web() { web_url::escaped(path) } else { path.to_vec() };
        Endpoint { place, path }.written()
    }

    pub fn place_name(&self) -> Option<String> {
        self.place.as_ref().filter(|place| **place != Place::Here(Here::Disk)).map(ToString::to_string)
    }
}

/// What stands in front of an error of a place. Errors of this host's disk name a path, which is enough.
pub fn beginning_of(place: &Place) -> String {
    if *place == Place::Here(Here::Disk) { String::new() } else { format!("{}: ", printable(place.to_string())) }
}

pub struct Asked<'a> {
    pub verb: Verb,
    pub json: bool,
    pub reach: &'a Reach,
}

/// Asks each place, prints the answers, and returns the exit code; `operand_failed` if a named path failed.
pub fn run_on(paths: &[OsString], asked: Asked<'_>, printer: &mut dyn Printer, operand_failed: u8) -> ExitCode {
    haul_transfer::hide_memory();
    let json = asked.json;
    let observer = Arc::new(Person { interrupted: signals::watch() });
    let requests = match requests(paths, &asked) {
        Ok(requests) => requests,
        Err(error) => return ending::failed(&error, json),
    };
    let ways = haul_transfer::ways(&Surroundings::of_process());
    let (mut paper, mut code, mut is_whole) = (Paper::new(), 0, true);
    for request in requests {
        let place = request.place.clone();
        let at = beginning_of(&place);
        *printer.at() = Whereabouts { place: Some(place), ..Whereabouts::default() };
        let (mut causes, mut hashed) = (Causes::default(), Hashed::default());
        let mut take = |piece| match piece {
            Piece::Data(bytes) => paper.put(&bytes),
            Piece::Line(Told::Operand { path }) => {
                printer.at().operand = path;
                ControlFlow::Continue(())
            }
            Piece::Line(Told::Failed { is_operand, why }) => {
                is_whole &= !is_operand;
                code = code.max(if is_operand { operand_failed } else { FAILED });
                if is_operand || causes.has_line(of_message(&why)) {
                    say(&format!("error: {at}{}", printable(why)));
                }
                ControlFlow::Continue(())
            }
            Piece::Line(told) => {
                hashed.count(&told);
                printer.told(told, &mut paper)
            }
            Piece::Elsewhere(end) => {
                printer.at().elsewhere = Some(end);
                ControlFlow::Continue(())
            }
        };
        let answered = place::ask(&request, &ways, observer.clone(), &mut take);
        causes.rest().for_each(|(cause, count)| say(&format!("error: {at}{}", more_of(&cause, count))));
        if let Some(end) = &printer.at().elsewhere {
            hashed.say(end);
        }
        match answered {
            Ok(Answered::Whole) => {}
            // The reader has enough.
            Ok(Answered::Enough) => {
                return printer.refused().map_or(ExitCode::from(code), |error| ending::failed(&error, json));
            }
            Err(error) => {
                let _ = printer.end(&mut paper, false).is_continue() && paper.flush().is_continue();
                return ending::failed(&error, json);
            }
        }
    }
    let _ = printer.end(&mut paper, is_whole).is_continue() && paper.flush().is_continue();
    ExitCode::from(code)
}

#[derive(Default)]
struct Hashed {
    files: u64,
    bytes: u64,
}

impl Hashed {
    fn count(&mut self, told: &Told) {
        if let Told::Hash { size, .. } = told {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(*size);
        }
    }

    /// A server without haul hashes nothing: it sent every byte.
    fn say(&self, end: &Here) {
        let Some(how) = as_read(end.proof_of_reading()).filter(|_| self.files > 0) else { return };
        let files = figures::counted(self.files, "file", "files");
        say(&format!("note: hashed {files}, {}, here, {how}: {end} sent every byte", figures::bytes(self.bytes)));
    }
}

pub fn requests(paths: &[OsString], asked: &Asked<'_>) -> Result<Vec<Request>, Error> {
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

pub fn or_here(paths: &[OsString]) -> Vec<OsString> {
    if paths.is_empty() { vec![OsString::from(".")] } else { paths.to_vec() }
}

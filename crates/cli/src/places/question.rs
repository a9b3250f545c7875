//! One question to each place: the paths are grouped by place, and what a place tells is printed as it comes.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use haul_job::{Endpoint, Error, Here, Place};
use haul_transfer::Surroundings;
use haul_transfer::place::{self, Answered, Piece, Question, Request, Told, Verb};

use crate::far_side::endpoint::{self, one_host};
use crate::far_side::flags::Reach;
use crate::far_side::options::ways;
use crate::far_side::person::{Person, say};
use crate::places::paper::Paper;
use crate::process::{ending, signals};
use crate::text::causes::{Causes, more_of, of_message};
use crate::text::printable::printable;

/// Something of what was asked for failed: the exit code of coreutils.
pub const FAILED: u8 = 1;

/// Prints what a place tells.
pub trait Printer {
    /// The place that the answer is about.
    fn at(&mut self) -> &mut Whereabouts;

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()>;

    /// Ends the output. `is_whole`: all named paths were found, and all places have told all.
    fn end(&mut self, _paper: &mut Paper, _is_whole: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// The error, if the printer refused to go on.
    fn refused(&mut self) -> Option<Error> {
        None
    }
}

/// The place and the operand that the answer is about.
#[derive(Default)]
pub struct Whereabouts {
    pub place: Option<Place>,
    pub operand: Vec<u8>,
}

impl Whereabouts {
    /// Writes a path beneath the operand as its place knows it.
    pub fn path(&self, beneath: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.operand.ends_with(b"/") { b"" } else { b"/" };
        if beneath.is_empty() { self.operand.clone() } else { [&self.operand, slash, beneath].concat() }
    }

    /// Writes a path beneath the operand as it can be typed here.
    pub fn full(&self, beneath: &[u8]) -> Vec<u8> {
        self.other(&self.path(beneath))
    }

    /// Writes a path of the place as it can be typed here.
    pub fn other(&self, path: &[u8]) -> Vec<u8> {
        let place = self.place.clone().unwrap_or(Here::Disk.into());
        endpoint::text(&Endpoint { place, path: path.to_vec() })
    }

    /// `None`: this machine.
    pub fn place_name(&self) -> Option<String> {
        self.place.as_ref().filter(|place| !place.is_here()).map(ToString::to_string)
    }
}

/// The question to each place.
pub struct Asked<'a> {
    pub verb: Verb,
    pub json: bool,
    pub reach: &'a Reach,
}

/// Asks each place, prints the answers, and gives the exit code. `operand_failed`: that of a path that was named and failed.
pub fn run_on(paths: &[OsString], asked: Asked<'_>, printer: &mut dyn Printer, operand_failed: u8) -> ExitCode {
    haul_transfer::hide_memory();
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
        let at = if place.is_here() { String::new() } else { format!("{}: ", printable(place.to_string())) };
        let mut causes = Causes::default();
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
            Piece::Line(told) => printer.told(told, &mut paper),
        };
        let answered = place::ask(&request, &Surroundings::of_process(), observer.clone(), &mut take);
        causes.rest().for_each(|(cause, count)| say(&format!("error: {at}{}", more_of(&cause, count))));
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

/// Takes the current directory if no path is named.
pub fn or_here(paths: &[OsString]) -> Vec<OsString> {
    if paths.is_empty() { vec![OsString::from(".")] } else { paths.to_vec() }
}

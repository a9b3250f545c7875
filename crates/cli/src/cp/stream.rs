//! `haul cp - DST` and `haul cp SRC -`: a verified stream of unknown length.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use haul_job::{Error, Fault, Proof};
use haul_transfer::Surroundings;
use haul_transfer::place::{self, Answered, Piece, Told, Verb, Whole};
use haul_transfer::standard_streams::Input;

use crate::cp::flags::Cp;
use crate::far_side::person::Person;
use crate::json::values::hex;
use crate::places::paper::Paper;
use crate::places::question::{Asked, beginning_of, requests};
use crate::process::{ending, output, signals};
use crate::text::figures;
use crate::text::printable::printable;
use crate::text::proof::as_read;

/// Carries it out, if the command line means a stream.
pub fn run(typed: &Cp) -> Option<ExitCode> {
    let is_stream = |path: &OsString| path == "-";
    if !typed.paths.iter().any(is_stream) {
        return None;
    }
    haul_transfer::hide_memory();
    let done = check(typed).and_then(|()| match &typed.paths[..] {
        [from, to] if is_stream(from) && !is_stream(to) => write(typed, to),
        [from, to] if is_stream(to) && !is_stream(from) => read(typed, from),
        _ => Err(Error::new(Fault::Usage, "a stream is one source or the target, and nothing beside it")
            .try_this("haul cp - host:file, or haul cp host:file -; a file of that name is ./-")),
    });
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ending::failed(&error, false),
    })
}

/// Refuses flags that a stream would silently lose.
fn check(typed: &Cp) -> Result<(), Error> {
    let flags = [
        (typed.json, "--json"),
        (typed.manifest_out.is_some(), "--manifest-out"),
        (typed.dry_run, "--dry-run"),
        (typed.rate.is_some() || typed.bwlimit.is_some() || typed.scp_limit.is_some(), "a rate"),
        (typed.inplace, "--inplace"),
        (typed.delete, "--delete"),
        (typed.files_from.is_some(), "--files-from"),
        (typed.compress, "--compress"),
        (typed.goes_on.detach, "--detach"),
        (typed.goes_on.notify.is_some(), "--notify"),
    ];
    match flags.iter().find(|(is_typed, _)| *is_typed) {
        None => Ok(()),
        Some((_, flag)) => Err(Error::new(Fault::Usage, format!("a stream is copied without {flag}"))
            .try_this("leave it out, or copy a file")),
    }
}

fn write(typed: &Cp, to: &OsString) -> Result<(), Error> {
    let asked = Asked { verb: Verb::Write, json: false, reach: &typed.reach };
    let request = requests(std::slice::from_ref(to), &asked)?.remove(0);
    let observer = Arc::new(Person { interrupted: signals::watch() });
    let input =
        Input::open().map_err(|error| Error::new(Fault::FileIo, "cannot read standard input").because(error))?;
    let whole = place::write(&request, input, &Surroundings::of_process(), observer)?;
    close(typed, &whole, Proof::BothEnds);
    Ok(())
}

fn read(typed: &Cp, from: &OsString) -> Result<(), Error> {
    let asked = Asked { verb: Verb::Read, json: false, reach: &typed.reach };
    let request = requests(std::slice::from_ref(from), &asked)?.remove(0);
    let observer = Arc::new(Person { interrupted: signals::watch() });
    let (mut paper, mut whole, mut failed, mut proof) = (Paper::new(), None, None, Proof::BothEnds);
    let answered =
        place::ask(&request, &haul_transfer::ways(&Surroundings::of_process()), observer, &mut |piece| match piece {
            Piece::Data(bytes) => paper.put(&bytes),
            Piece::Line(Told::Whole(told)) => {
                whole = Some(told);
                ControlFlow::Continue(())
            }
            Piece::Line(Told::Failed { why, .. }) => {
                failed = Some(why);
                ControlFlow::Break(())
            }
            Piece::Line(_) => ControlFlow::Continue(()),
            Piece::Elsewhere(end) => {
                proof = end.proof_of_reading();
                ControlFlow::Continue(())
            }
        })?;
    if let Some(why) = failed {
        return Err(Error::new(Fault::Missing, format!("{}{why}", beginning_of(&request.place))));
    }
    let is_written = answered == Answered::Whole && paper.flush().is_continue();
    match whole {
        // Each command tells at its end what else could not be written.
        _ if !is_written => Err(output::lost().unwrap_or_else(|| {
            Error::new(Fault::FileIo, "standard output was closed before all of the file was written")
        })),
        Some(whole) => {
            close(typed, &whole, proof);
            Ok(())
        }
        None => Err(Error::new(Fault::Verification, "the far side did not say what all of the file is")),
    }
}

/// Only the closing words say that all is there.
fn close(typed: &Cp, whole: &Whole, proof: Proof) {
    if !typed.quiet {
        let (size, hash) = (figures::bytes(whole.bytes), hex(&whole.blake3));
        let how = match as_read(proof) {
            Some(how) => format!("BLAKE3 {hash} {how}"),
            None => format!("verified, BLAKE3 {hash}"),
        };
        let _ = writeln!(io::stderr(), "copied {} as a stream, {how}", printable(size));
    }
}

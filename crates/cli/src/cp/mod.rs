//! `haul cp`: flags -> job -> run -> closing lines and exit code.

pub mod account_map;
pub mod batch;
pub mod carry;
pub mod chmod;
pub mod closing_lines;
pub mod deadline_flags;
pub mod detach;
pub mod flags;
pub mod foreign_flags;
pub mod help;
pub mod insist;
pub mod job;
pub mod json;
pub mod log_file;
pub mod manifest_out;
pub mod notify;
pub mod omitted_flags;
pub mod on_end;
pub mod per_file_cost;
pub mod rate_now;
pub mod relative;
pub mod retry;
pub mod rsync_flags;
pub mod service_flags;
pub mod stats;
pub mod stream;
pub mod view;
pub mod wall_clock;

use std::process::ExitCode;
use std::sync::Arc;

use haul_job::{Job, Selection};
use haul_transfer::Surroundings;

use crate::cp::carry::{Carry, carry_out};
use crate::cp::flags::Cp;
use crate::cp::on_end::OnEnd;
use crate::cp::view::View;
use crate::flags::filters::Filter;
use crate::process::{ending, output, signals};
use crate::text::failure;

/// `definitions` are the whole program's.
pub fn run(typed: &Cp, filters: &[Filter], definitions: fn() -> clap::Command) -> ExitCode {
    if typed.batch.batch.is_some() {
        return batch::run(typed, definitions);
    }
    if typed.human_readable && typed.paths.is_empty() {
        if let Some(cp) = definitions().find_subcommand_mut("cp") {
            output::note(cp.print_help());
        }
        return ExitCode::SUCCESS;
    }
    if let Some(code) = stream::run(typed) {
        return code;
    }
    if typed.goes_on.detach && typed.goes_on.detached_as.is_none() {
        return detach::begin(typed, filters);
    }
    haul_transfer::hide_memory();
    let on_end = match OnEnd::of(typed) {
        Ok(on_end) => Arc::new(on_end),
        Err(error) => return ending::failed(&error, typed.json),
    };
    let view = Arc::new(View::new(typed, None));
    let surroundings = Surroundings::of_process();
    let mut by_itself = |job: &Job, observer| haul_transfer::run(job, &surroundings, observer);
    let carried = job::from_typed(typed, filters).map_err(Box::new).and_then(|job| {
        let (interrupted, stops_at) = (signals::watch(), typed.stops.at()?);
        let mut carry = |job: &Job, view: &Arc<View>| {
            let (interrupted, run) = (Arc::clone(&interrupted), &mut by_itself);
            carry_out(job, view, Carry { typed, on_end: &on_end, interrupted, stops_at, known: false, run })
        };
        let done = carry(&job, &view)?;
        match &done.report {
            Some(report) if insist::asks_for_deletions(typed, report, &interrupted) => {
                let selection = Selection { force: true, ..job.selection.clone() };
                carry(&Job { selection, ..job }, &Arc::new(View::new(typed, None)))
            }
            _ => Ok(done),
        }
    });
    let code = match carried {
        Ok(done) => done.code,
        Err(error) => {
            view.close_with(&error);
            let code = failure::of_fault(error.fault).code;
            on_end.ended(Err(&error), code, None);
            code
        }
    };
    on_end.finish();
    ExitCode::from(code)
}

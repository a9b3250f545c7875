//! `haul tune`: advice on this host's settings for a path, in four formats, and applying it.

pub mod flags;
mod json;
mod seen;
mod text;

use std::process::ExitCode;

use haul_job::{Error, Fault};
use haul_workbench::tune::{self, Roots, Step};

use crate::process::{ending, output};
use crate::tune::flags::{Tune, TuneFormat};
use crate::tune::seen::Seen;

pub fn run(typed: &Tune) -> ExitCode {
    match carried_out(typed, &Roots::default()) {
        Ok(said) => {
            output::say(said);
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn carried_out(typed: &Tune, roots: &Roots) -> Result<String, Error> {
    if (typed.apply || typed.revert) && !haul_transfer::is_root() {
        let what = if typed.apply { "set" } else { "put back" };
        return Err(Error::new(Fault::FileIo, format!("only root can {what} settings of the kernel"))
            .try_this("sudo haul tune …, or haul tune --format sysctl for the administrator"));
    }
    if typed.revert {
        let steps = tune::revert(roots)?;
        return Ok(match typed.json {
            true => json::object(None, &steps),
            false => text::steps(&steps, "--apply has saved no values to put back"),
        });
    }
    let seen = Seen::look(typed, roots)?;
    let steps = if typed.apply { tune::apply(roots, &seen.advice)? } else { Vec::new() };
    Ok(match typed.format {
        _ if typed.json => json::object(Some(&seen), &steps),
        _ if typed.apply => applied(&seen, &steps),
        TuneFormat::Table => text::table(&seen),
        TuneFormat::Commands => text::commands(&seen),
        TuneFormat::Sysctl => text::sysctl(&seen),
    })
}

fn applied(seen: &Seen, steps: &[Step]) -> String {
    let mut said = text::steps(steps, "all settings that can be changed from here are as advised: nothing was changed");
    said.push_str(&text::left_by_hand(seen));
    said
}

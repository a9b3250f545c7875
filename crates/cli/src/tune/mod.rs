//! `haul tune`: advice on the settings of this host for a path, in four formats; and applying the advice.

pub mod flags;
mod json;
mod text;

use std::process::ExitCode;

use haul_job::{Error, Fault};
use haul_workbench::tune::{self, Advice, Host, Roots, Step, Wanted};

use crate::tune::flags::{Tune, TuneFormat};
use crate::{ending, output};

/// Looks, prints the advice, and on request applies or reverts it.
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

/// The request, the facts of the host, and the advice.
pub struct Seen {
    pub wanted: Wanted,
    /// The source of the rate.
    pub rate_from: RateFrom,
    /// Whether the round trip was typed.
    pub rtt_typed: bool,
    pub host: Host,
    pub advice: Advice,
}

/// The source of the rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateFrom {
    /// `--rate`
    Typed,
    /// The speed of this device.
    Device(String),
    /// No device tells its speed.
    Default,
}

impl Seen {
    fn look(typed: &Tune, roots: &Roots) -> Result<Self, Error> {
        let host = tune::look(roots, typed.disk.as_deref())?;
        let (rate_bytes_per_s, rate_from) = match (typed.rate, tune::fastest(&host)) {
            (Some(rate), _) => (rate, RateFrom::Typed),
            (None, Some((name, speed))) => (speed, RateFrom::Device(name.to_owned())),
            (None, None) => (DEFAULT_RATE_BYTES_PER_S, RateFrom::Default),
        };
        let wanted = Wanted { rate_bytes_per_s, rtt_us: typed.rtt.unwrap_or(DEFAULT_RTT_US) };
        let advice = tune::advise(&host, wanted);
        Ok(Self { wanted, rate_from, rtt_typed: typed.rtt.is_some(), host, advice })
    }
}

/// 10 Gbit/s, the usual link of a data mover.
const DEFAULT_RATE_BYTES_PER_S: u64 = 1_250_000_000;

/// The round trip across an ocean: settings for it are enough for shorter paths.
const DEFAULT_RTT_US: u64 = 100_000;

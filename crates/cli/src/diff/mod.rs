//! `haul diff A B`: what a copy of A to B would do, an entry a line.

pub mod flags;

use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_job::{Error, Fault, Observer, Proof};
use haul_transfer::Surroundings;
use haul_transfer::diff::{Aspect, Compared, DiffOptions, DiffReport, DiffWatcher, Metadata, diff};
use haul_transfer::place::Kind;
use serde::Serialize;

use crate::diff::flags::DiffArgs;
use crate::far_side::endpoint::one_host;
use crate::far_side::options::ways;
use crate::far_side::person::{Person, say};
use crate::flags::filter_rules;
use crate::flags::filters::Filter;
use crate::flags::lists::Lists;
use crate::json::line::to_line;
use crate::json::values::{Named, named, seconds};
use crate::process::{ending, output, signals};
use crate::text::causes::{Causes, more_of, of_message};
use crate::text::failure;
use crate::text::figures::{count, duration};
use crate::text::printable::printable;
use crate::text::proof::as_read;

/// diff(1)'s exit code for different trees.
const DIFFERS: u8 = 1;

/// diff(1)'s exit code for trees that cannot be compared, because 1 means different.
pub const TROUBLE: u8 = 2;

pub fn run(typed: &DiffArgs, filters: &[Filter]) -> ExitCode {
    haul_transfer::hide_memory();
    let options = match options(typed, filters) {
        Ok(options) => options,
        Err(error) => return failed(&error, typed.json),
    };
    let interrupted = signals::watch();
    let observer: Arc<dyn Observer> = Arc::new(Person { interrupted: Arc::clone(&interrupted) });
    let printer = Printer { typed, interrupted, causes: Mutex::default() };
    let report = diff(&options, &haul_transfer::ways(&Surroundings::of_process()), &observer, &printer);
    lock(&printer.causes).rest().for_each(|(cause, count)| say(&format!("error: {}", more_of(&cause, count))));
    let report = match report {
        Ok(report) => report,
        Err(error) => return failed(&error, typed.json),
    };
    if typed.json {
        output::say(to_line(&TotalsLine::of(&report)));
    } else if !typed.quiet {
        output::say(format!("{}\n", closing_line(&report)));
    }
    match &report {
        DiffReport { failed: 1.., .. } => ExitCode::from(failure::of_fault(Fault::FileIo).code),
        DiffReport { new: 0, extra: 0, changed: 0, .. } => ExitCode::SUCCESS,
        _ => ExitCode::from(DIFFERS),
    }
}

fn failed(error: &Error, json: bool) -> ExitCode {
    let code = ending::failed(error, json);
    if error.fault == Fault::Usage { ExitCode::from(TROUBLE) } else { code }
}

fn options(typed: &DiffArgs, filters: &[Filter]) -> Result<DiffOptions, Error> {
    let trees = [one_host(&typed.source)?, one_host(&typed.target)?];
    let (carriage, ssh) = ways(&typed.reach)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lists = Lists::default();
    let rules = filter_rules::rules(filters, false, false, &mut |flag, file| lists.read(flag, file))?;
    let metadata = match typed {
        DiffArgs { archive: true, .. } => Metadata::All,
        DiffArgs { perms: true, .. } => Metadata::Permissions,
        _ => Metadata::None,
    };
    Ok(DiffOptions { trees, contents: typed.checksum, metadata, rules, threads, carriage, ssh })
}

struct Printer<'a> {
    typed: &'a DiffArgs,
    interrupted: Arc<AtomicBool>,
    causes: Mutex<Causes>,
}

impl DiffWatcher for Printer<'_> {
    fn on_compared(&self, path: &[u8], compared: &Compared) {
        if matches!(compared, Compared::Same(_)) && !self.typed.verbose {
            return;
        }
        if self.typed.json {
            output::say(to_line(&EntryLine::of(path, compared)));
        } else if let Compared::Failed(why) = compared {
            if lock(&self.causes).has_line(of_message(why)) {
                say(&format!("error: {}", printable(why)));
            }
        } else if !self.typed.quiet {
            let path = if path == b"." { self.typed.source.as_bytes() } else { path };
            output::say(format!("{}\n", entry_line(path, compared)));
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn lock(causes: &Mutex<Causes>) -> MutexGuard<'_, Causes> {
    causes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry_line(path: &[u8], compared: &Compared) -> String {
    let slash = |kind: &Kind| if *kind == Kind::Directory { "/" } else { "" };
    let path = printable(path);
    match compared {
        Compared::New(kind) => format!("new: {path}{}", slash(kind)),
        Compared::Extra(kind) => format!("extra: {path}{}", slash(kind)),
        Compared::Same(kind) => format!("same: {path}{}", slash(kind)),
        Compared::Changed(kind, aspects) => {
            let words: Vec<&str> = aspects.iter().copied().map(word).collect();
            format!("changed: {path}{} ({})", slash(kind), words.join(", "))
        }
        Compared::Failed(why) => printable(why),
    }
}

fn word(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Kind => "kind",
        Aspect::Size => "size",
        Aspect::Time => "time",
        Aspect::Contents => "contents",
        Aspect::Target => "target",
        Aspect::Device => "device",
        Aspect::Permissions => "permissions",
        Aspect::Owner => "owner",
        Aspect::Group => "group",
    }
}

fn closing_line(report: &DiffReport) -> String {
    let DiffReport { new, extra, changed, same, failed, elapsed, untold, .. } = report;
    let (new, extra, changed, same) = (count(*new), count(*extra), count(*changed), count(*same));
    let failed = if *failed == 0 { String::new() } else { format!(", {} failed", count(*failed)) };
    let mut how: Vec<&str> = report.proofs.iter().filter_map(|proof| as_read(*proof)).collect();
    how.dedup();
    let how = if how.is_empty() { String::new() } else { format!(", contents {}", how.join(" and ")) };
    let untold = match untold.is_empty() {
        true => String::new(),
        false => {
            let words: Vec<&str> = untold.iter().copied().map(word).collect();
            format!("; not compared, because a server does not tell it: {}", words.join(", "))
        }
    };
    format!(
        "{new} new, {changed} changed, {extra} extra, {same} the same{failed}{how} in {}{untold}",
        duration(*elapsed)
    )
}

#[derive(Serialize)]
struct EntryLine {
    event: &'static str,
    #[serde(flatten)]
    path: Named,
    compared: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aspects: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl EntryLine {
    fn of(path: &[u8], compared: &Compared) -> Self {
        let (mut aspects, mut directory, mut why) = (Vec::new(), None, None);
        let compared = match compared {
            Compared::New(kind) => {
                directory = Some(*kind == Kind::Directory);
                "new"
            }
            Compared::Extra(kind) => {
                directory = Some(*kind == Kind::Directory);
                "extra"
            }
            Compared::Same(kind) => {
                directory = Some(*kind == Kind::Directory);
                "same"
            }
            Compared::Changed(kind, what) => {
                directory = Some(*kind == Kind::Directory);
                aspects = what.iter().copied().map(word).collect();
                "changed"
            }
            Compared::Failed(words) => {
                why = Some(words.clone());
                "failed"
            }
        };
        Self { event: "entry", path: named(path), compared, aspects, directory, why }
    }
}

#[derive(Serialize)]
struct TotalsLine {
    event: &'static str,
    new: u64,
    changed: u64,
    extra: u64,
    same: u64,
    failed: u64,
    bytes_hashed: [u64; 2],
    /// Readers of the contents, as in a copy's report.
    proofs: [&'static str; 2],
    /// Facts that a server does not tell were not compared.
    untold: Vec<&'static str>,
    elapsed_s: f64,
}

impl TotalsLine {
    fn of(report: &DiffReport) -> Self {
        let DiffReport { new, extra, changed, same, failed, bytes_hashed, elapsed, .. } = *report;
        let (proofs, elapsed_s) = (report.proofs.map(Proof::name), seconds(elapsed));
        let untold = report.untold.iter().copied().map(word).collect();
        Self { event: "compared", new, changed, extra, same, failed, bytes_hashed, proofs, untold, elapsed_s }
    }
}

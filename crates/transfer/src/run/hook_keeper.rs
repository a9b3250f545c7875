//! `haul agent --hooks`: runs the hooks of one session, and sees to it that release follows raise.
//!
//! ```text
//!   a line on standard input    an order: the record is written, then the hook runs; its answer is a line on standard output
//!   the input ends              the session is over, or its process died: what is raised is released
//!   start                       records of keepers that died themselves are released
//! ```
//! A hook runs without a shell, for a bounded time, and its output is bounded. All of its process group is killed afterwards.

use std::fs::{self, File};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use haul_sys::file::try_lock;
use haul_sys::process::kill_group;

use crate::kept::hook_words::{Answer, Answered, Event, Order};
use crate::session::hooks::raised;

/// What a hook may say.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Between two looks whether a hook has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Records of dead keepers that are released at a start.
const MAX_LEFT: usize = 100;

/// Releases are tried so often.
const RELEASES: u32 = 3;

/// Runs until its input ends. `state`: where records are kept; without it nothing survives this process.
pub fn keep_hooks(state: Option<&Path>) -> u8 {
    let directory = state.map(raised);
    if let Some(directory) = &directory {
        release_left(directory);
    }
    let mut keeper = Keeper { directory, raised: Vec::new() };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(order) = serde_json::from_str::<Order>(&line) else { break };
        let (path, event) = (order.path, order.request.event);
        let answer = keeper.carry_out(order);
        let answered = serde_json::to_string(&Answered { path, event, answer }).unwrap_or_default();
        let mut output = io::stdout().lock();
        if writeln!(output, "{answered}").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    keeper.release_all();
    0
}

struct Keeper {
    directory: Option<PathBuf>,
    raised: Vec<Raised>,
}

/// What has to be released.
struct Raised {
    order: Order,
    record: Option<Record>,
}

/// A file that is locked as long as its keeper lives.
struct Record {
    path: PathBuf,
    _file: File,
}

impl Keeper {
    fn carry_out(&mut self, order: Order) -> Answer {
        match order.request.event {
            Event::Raise => {
                let known = self.raised.iter().any(|raised| raised.order.path == order.path);
                if known {
                    return refused("it is raised already");
                }
                // Before the hook runs: it may have done half of its work when everything dies.
                let record = self.directory.as_deref().and_then(|directory| Record::write(directory, &order).ok());
                let raised = Raised { order, record };
                match run(&raised.order.commands.on_raise, &raised.order) {
                    Ok(answer) if answer.granted => {
                        self.raised.push(raised);
                        answer
                    }
                    Ok(answer) => {
                        raised.forget();
                        answer
                    }
                    // It may have done a part of its work.
                    Err(why) => {
                        raised.release();
                        refused(why)
                    }
                }
            }
            Event::Release => match self.raised.iter().position(|raised| raised.order.path == order.path) {
                Some(at) => self.raised.swap_remove(at).release(),
                None => refused("it is not raised"),
            },
        }
    }

    fn release_all(&mut self) {
        for raised in self.raised.drain(..) {
            raised.release();
        }
    }
}

impl Raised {
    fn release(mut self) -> Answer {
        match release(&mut self.order) {
            Ok(answer) => {
                self.forget();
                answer
            }
            Err(why) => refused(why),
        }
    }

    fn forget(self) {
        if let Some(record) = self.record {
            let _ = fs::remove_file(&record.path);
        }
    }
}

/// A release that fails is tried again; its record stays for the next start.
fn release(order: &mut Order) -> Result<Answer, String> {
    order.request.event = Event::Release;
    let mut outcome = Err("nobody tried".to_owned());
    for _ in 0..RELEASES {
        outcome = run(&order.commands.on_release, order);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl Record {
    fn write(directory: &Path, order: &Order) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{}-{}.json", std::process::id(), order.path));
        let mut file = File::create(&path)?;
        try_lock(file.as_fd())?;
        file.write_all(serde_json::to_string(order).unwrap_or_default().as_bytes())?;
        file.sync_all()?;
        Ok(Self { path, _file: file })
    }
}

fn release_left(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()).take(MAX_LEFT) {
        let Ok(file) = File::open(&path) else { continue };
        // Whoever holds the lock lives, and releases it.
        if !matches!(try_lock(file.as_fd()), Ok(true)) {
            continue;
        }
        let mut text = String::new();
        let is_read = (&file).take(MAX_ANSWER_BYTES).read_to_string(&mut text).is_ok();
        let order = serde_json::from_str::<Order>(&text).ok().filter(|_| is_read);
        // One that cannot be read was not written to its end: its hook did not run.
        if order.is_none_or(|mut order| release(&mut order).is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn refused(why: impl Into<String>) -> Answer {
    Answer { reason: Some(why.into()), ..Answer::default() }
}

/// Runs one hook to its end, at most for its time. An error: it failed, and nobody knows what it did.
fn run(command: &[String], order: &Order) -> Result<Answer, String> {
    let Some((program, arguments)) = command.split_first() else { return Err("there is no program".into()) };
    let mut hook = Command::new(program);
    hook.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // What the user has in the environment is no business of the operator's program.
    hook.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    hook.process_group(0);
    let mut hook = match hook.spawn() {
        Ok(hook) => hook,
        Err(error) => return Err(format!("{program} cannot be run: {error}")),
    };
    let deadline = Instant::now() + order.commands.time_limit();
    if let Some(mut input) = hook.stdin.take() {
        // It fits into the pipe, so that nobody waits; a hook need not read it.
        let _ = writeln!(input, "{}", serde_json::to_string(&order.request).unwrap_or_default());
    }
    let (says, said) = channel();
    if let Some(output) = hook.stdout.take() {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = output.take(MAX_ANSWER_BYTES + 1).read_to_end(&mut text);
            let _ = says.send(text);
        });
    }
    let mut output = None;
    let ended = loop {
        match hook.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= deadline => {
                break Err(format!("{program} took longer than {} s", order.commands.time_limit().as_secs_f64()));
            }
            // Who has said all that it may is nearly done; else it is looked at now and then.
            Ok(None) => output = output.or_else(|| said.recv_timeout(LOOK_EVERY).ok()),
            Err(error) => break Err(format!("{program} is lost: {error}")),
        }
        if output.is_some() {
            // Its output has ended, and its exit follows.
            std::thread::park_timeout(LOOK_EVERY);
        }
    };
    // Also what it left behind, which would hold its output open.
    let _ = kill_group(hook.id());
    let _ = hook.wait();
    let output = output.or_else(|| said.recv().ok()).unwrap_or_default();
    answer(program, ended?, &output)
}

fn answer(program: &str, status: ExitStatus, output: &[u8]) -> Result<Answer, String> {
    if output.len() as u64 > MAX_ANSWER_BYTES {
        return Err(format!("{program} said more than {} KiB", MAX_ANSWER_BYTES >> 10));
    }
    if !status.success() {
        return Err(format!("{program} failed: {status}"));
    }
    if output.trim_ascii().is_empty() {
        return Ok(Answer { granted: true, ..Answer::default() });
    }
    serde_json::from_slice(output).map_err(|error| format!("{program} did not answer in JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::hook_words::{Commands, Request};

    fn order(script: &str, time_limit_ms: u64) -> Order {
        let command = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
        let request = Request {
            event: Event::Raise,
            class: "priority".into(),
            path: 0,
            local: "192.0.2.1".into(),
            remote: "192.0.2.2".into(),
            rate_bytes_per_s: Some(1_000_000),
            until_unix_s: None,
        };
        let commands = Commands { on_raise: command.clone(), on_release: command, time_limit_ms };
        Order { path: 0, commands, request }
    }

    fn answer_of(script: &str) -> Result<Answer, String> {
        let order = order(script, 2_000);
        run(&order.commands.on_raise, &order)
    }

    #[test]
    fn a_hook_reads_the_request_and_its_answer_is_followed() {
        let granted =
            answer_of("grep -q '\"event\":\"raise\"' && echo '{\"granted\":true,\"rate_bytes_per_s\":5}'").unwrap();
        assert_eq!((granted.granted, granted.rate_bytes_per_s), (true, Some(5)));
        assert!(answer_of("exit 0").unwrap().granted, "silence is consent");
        let refused = answer_of("echo '{\"granted\":false,\"reason\":\"full\"}'").unwrap();
        assert_eq!((refused.granted, refused.reason.as_deref()), (false, Some("full")));
    }

    #[test]
    fn a_hook_that_fails_hangs_or_talks_without_end_grants_nothing() {
        let why = |script: &str| answer_of(script).unwrap_err();
        assert!(why("exit 3").contains("failed"));
        assert!(why("echo yes").contains("JSON"));
        assert!(why("sleep 1000").contains("took longer"));
        assert!(why("head -c 1000000000 /dev/zero").contains("KiB"));
        let begun = Instant::now();
        // What it leaves behind does not hold anybody up.
        assert!(answer_of("sleep 1000 & exit 0").unwrap().granted);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_a_dead_keeper_left_is_released_at_the_next_start_and_what_a_living_one_holds_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("said");
        let left = order(&format!("cat >> {}", said.display()), 2_000);
        let held = Record::write(dir.path(), &left).unwrap();
        release_left(dir.path());
        assert!(!said.exists() && held.path.exists(), "its keeper lives");
        let path = held.path.clone();
        drop(held);
        release_left(dir.path());
        assert!(fs::read_to_string(&said).unwrap().contains("\"event\":\"release\"") && !path.exists());
    }

    #[test]
    fn a_release_that_fails_leaves_its_record_for_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let failing = order("exit 1", 2_000);
        drop(Record::write(dir.path(), &failing).unwrap());
        release_left(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

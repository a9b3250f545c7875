//! Runs the hooks of one session (`haul agent --hooks`), and sees to it that release follows raise.
//!
//! ```text
//!   a line on standard input    an order: the record is written, then the hook runs; its answer is a line on standard output
//!   the input ends              the session is over, or its process died: what is raised is released
//!   start                       records of keepers that died themselves are released
//! ```
//! A record names the raised path; the policy in force names the programs. A hook runs without a shell, with bounded time and
//! output. Its whole process group is killed afterwards.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_sys::file::try_lock;
use haul_sys::own::OwnDirectory;
use haul_sys::process::kill_group;
use haul_sys::standard_streams::{Input, Output};

use haul_govern::hooks::raised;
use haul_kept::class_policy::{ClassPolicy, HookCommands};
use haul_kept::hook_words::{Answer, Answered, Event, Order};

const MAX_ANSWER_BYTES: u64 = 64 << 10;

const LOOK_EVERY: Duration = Duration::from_millis(5);

const MAX_LEFT: usize = 100;

const RELEASES: u32 = 3;

/// Runs until its input ends. Records lie in `state`; without it none survives this process.
pub fn keep_hooks(state: Option<&Path>, policy_files: &[PathBuf]) -> u8 {
    // Records that another user could have put there are not read, and none are made.
    let directory = state.and_then(|state| OwnDirectory::make(&raised(state)).ok()).map(Arc::new);
    let hooks = Hooks(policy_files.to_vec());
    if let Some(directory) = &directory {
        release_left(directory, &hooks);
    }
    let mut keeper = Keeper { directory, hooks, raised: Vec::new() };
    let Ok(input) = Input::open() else { return 0 };
    for line in BufReader::new(input).lines() {
        let Ok(line) = line else { break };
        let Ok(order) = serde_json::from_str::<Order>(&line) else { break };
        let (path, event) = (order.path, order.request.event);
        let answer = keeper.carry_out(order);
        let answered = serde_json::to_string(&Answered { path, event, answer }).unwrap_or_default();
        if Output.write_all(format!("{answered}\n").as_bytes()).is_err() {
            break;
        }
    }
    keeper.release_all();
    0
}

struct Hooks(Vec<PathBuf>);

impl Hooks {
    fn in_force(&self) -> Result<HookCommands, String> {
        ClassPolicy::load(&self.0).hooks().ok_or_else(|| "no policy in force names hooks".into())
    }

    fn raise(&self, order: &Order) -> Result<Answer, String> {
        let commands = self.in_force()?;
        run(&commands.on_raise, commands.time_limit, order)
    }

    /// After a failure the record stays for the next start.
    fn release(&self, order: &mut Order) -> Result<Answer, String> {
        order.request.event = Event::Release;
        let commands = self.in_force()?;
        let mut outcome = Err("nobody tried".to_owned());
        for _ in 0..RELEASES {
            outcome = run(&commands.on_release, commands.time_limit, order);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

struct Keeper {
    directory: Option<Arc<OwnDirectory>>,
    hooks: Hooks,
    raised: Vec<Raised>,
}

struct Raised {
    order: Order,
    record: Option<Record>,
}

/// The file is locked as long as its keeper lives.
struct Record {
    directory: Arc<OwnDirectory>,
    name: String,
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
                // The record comes first: the hook may have done half of its work when everything dies.
                let record = self.directory.as_ref().and_then(|directory| Record::write(directory, &order).ok());
                let raised = Raised { order, record };
                match self.hooks.raise(&raised.order) {
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
                        raised.release(&self.hooks);
                        refused(why)
                    }
                }
            }
            Event::Release => match self.raised.iter().position(|raised| raised.order.path == order.path) {
                Some(at) => self.raised.swap_remove(at).release(&self.hooks),
                None => refused("it is not raised"),
            },
        }
    }

    fn release_all(&mut self) {
        for raised in self.raised.drain(..) {
            raised.release(&self.hooks);
        }
    }
}

impl Raised {
    fn release(mut self, hooks: &Hooks) -> Answer {
        match hooks.release(&mut self.order) {
            Ok(answer) => {
                self.forget();
                answer
            }
            Err(why) => refused(why),
        }
    }

    fn forget(self) {
        if let Some(record) = self.record {
            let _ = record.directory.remove(&record.name);
        }
    }
}

impl Record {
    fn write(directory: &Arc<OwnDirectory>, order: &Order) -> io::Result<Self> {
        let name = format!("{}-{}.json", std::process::id(), order.path);
        let mut file = directory.make_file(&name)?;
        try_lock(file.as_fd())?;
        // A dead process of the same number may have left one.
        file.set_len(0)?;
        file.write_all(serde_json::to_string(order).unwrap_or_default().as_bytes())?;
        file.sync_all()?;
        Ok(Self { directory: Arc::clone(directory), name, _file: file })
    }
}

fn release_left(directory: &OwnDirectory, hooks: &Hooks) {
    for name in directory.names(MAX_LEFT).unwrap_or_default() {
        let Ok(file) = directory.file(&name) else { continue };
        // The lock's holder lives, and will release it.
        if !matches!(try_lock(file.as_fd()), Ok(true)) {
            continue;
        }
        let mut text = String::new();
        let is_read = (&file).take(MAX_ANSWER_BYTES).read_to_string(&mut text).is_ok();
        let order = serde_json::from_str::<Order>(&text).ok().filter(|_| is_read);
        // An unreadable record was cut short: its hook did not run.
        if order.is_none_or(|mut order| hooks.release(&mut order).is_ok()) {
            let _ = directory.remove(&name);
        }
    }
}

fn refused(why: impl Into<String>) -> Answer {
    Answer { reason: Some(why.into()), ..Answer::default() }
}

/// Runs one hook, within its time. After an error nobody knows what it did.
fn run(command: &[String], time_limit: Duration, order: &Order) -> Result<Answer, String> {
    let Some((program, arguments)) = command.split_first() else { return Err("there is no program".into()) };
    let mut hook = Command::new(program);
    hook.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // The operator's program must not depend on the user's environment.
    hook.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    hook.process_group(0);
    let mut hook = match hook.spawn() {
        Ok(hook) => hook,
        Err(error) => return Err(format!("{program} cannot be run: {error}")),
    };
    let deadline = Instant::now() + time_limit;
    if let Some(mut input) = hook.stdin.take() {
        // The request fits into the pipe; a hook need not read it.
        let _ = writeln!(input, "{}", serde_json::to_string(&order.request).unwrap_or_default());
    }
    let output = hook.stdout.take().map(|output| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = output.take(MAX_ANSWER_BYTES + 1).read_to_end(&mut text);
            text
        })
    });
    let ended = loop {
        match hook.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= deadline => {
                break Err(format!("{program} took longer than {} s", time_limit.as_secs_f64()));
            }
            Ok(None) => std::thread::park_timeout(LOOK_EVERY),
            Err(error) => break Err(format!("{program} is lost: {error}")),
        }
    };
    // Processes that it left would hold its output open.
    let _ = kill_group(hook.id());
    let _ = hook.wait();
    let output = output.and_then(|reader| reader.join().ok()).unwrap_or_default();
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
    use std::fs;

    use super::*;
    use haul_kept::hook_words::Request;

    const LIMIT: Duration = Duration::from_secs(2);

    fn order() -> Order {
        let request = Request {
            event: Event::Raise,
            class: "priority".into(),
            path: 0,
            local: "192.0.2.1".into(),
            remote: "192.0.2.2".into(),
            rate_bytes_per_s: Some(1_000_000),
            until_unix_s: None,
        };
        Order { path: 0, request }
    }

    fn place(script: &str) -> (tempfile::TempDir, Hooks, Arc<OwnDirectory>) {
        let dir = tempfile::tempdir().unwrap();
        let policy = dir.path().join("policy.toml");
        let hook = format!("['/bin/sh', '-c', '''{script}''']");
        fs::write(&policy, format!("[hooks]\non-raise = {hook}\non-release = {hook}\ntime-limit-s = 2\n")).unwrap();
        let directory = Arc::new(OwnDirectory::make(&dir.path().join("state/raised")).unwrap());
        (dir, Hooks(vec![policy]), directory)
    }

    fn answer_of(script: &str) -> Result<Answer, String> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        run(&command, LIMIT, &order())
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
        assert!(answer_of("sleep 1000 & exit 0").unwrap().granted);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_a_dead_keeper_left_is_released_at_the_next_start_and_what_a_living_one_holds_is_not() {
        let said_in = tempfile::tempdir().unwrap();
        let said = said_in.path().join("said");
        let (_dir, hooks, raised) = place(&format!("cat >> {}", said.display()));
        let held = Record::write(&raised, &order()).unwrap();
        release_left(&raised, &hooks);
        assert!(!said.exists() && raised.names(9).unwrap().len() == 1, "its keeper lives");
        drop(held);
        release_left(&raised, &hooks);
        assert!(fs::read_to_string(&said).unwrap().contains("\"event\":\"release\""));
        assert!(raised.names(9).unwrap().is_empty());
    }

    #[test]
    fn a_release_that_fails_leaves_its_record_for_the_next_start() {
        let (_dir, hooks, raised) = place("exit 1");
        drop(Record::write(&raised, &order()).unwrap());
        release_left(&raised, &hooks);
        assert_eq!(raised.names(9).unwrap().len(), 1);
        // No policy names the release now, but it may come back.
        release_left(&raised, &Hooks(Vec::new()));
        assert_eq!(raised.names(9).unwrap().len(), 1);
    }

    #[test]
    fn a_record_names_no_program_and_one_that_does_runs_none() {
        let (dir, _, raised) = place("exit 0");
        let said = dir.path().join("said");
        let command = ["/bin/sh", "-c", &format!("echo >> {}", said.display())].map(str::to_owned);
        let mut record = serde_json::to_value(order()).unwrap();
        record["commands"] = serde_json::json!({"on_raise": command, "on_release": command, "time_limit_ms": 2_000});
        fs::write(raised.path().join("1-0.json"), record.to_string()).unwrap();
        release_left(&raised, &Hooks(Vec::new()));
        assert!(!said.exists());
    }
}

//! Runs the hooks of a session: programs of the operator that ask a network for priority, and give it back.
//!
//! ```text
//!   session loop --orders--> thread --lines--> keeper process --> hook
//!                <-answers--        <-lines--
//! ```
//! If this process dies, the keeper's (`transfer/hook_keeper.rs`) input ends, and it gives everything back. The thread begins
//! while the session may still start programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use haul_sys::own::OwnDirectory;

use haul_kept::hook_words::{Answer, Answered, Event, Order, Request};
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;

/// Works even if our program's file is gone.
const SELF: &str = "/proc/self/exe";

/// The hooks of one session.
#[derive(Clone)]
pub struct Hooks(Arc<Desk>);

struct Desk {
    orders: Mutex<Sender<Order>>,
    answers: Mutex<Receiver<Answered>>,
}

impl Hooks {
    /// Starts the thread. `None`: nothing is asked for.
    pub fn begin(surroundings: &Surroundings) -> Option<Self> {
        let (orders, ordered) = channel::<Order>();
        let (says, answers) = channel();
        let keeper = Keeper::of(surroundings);
        let thread = std::thread::Builder::new().name("hooks".into());
        thread.spawn(move || carry(&ordered, &says, &keeper)).ok()?;
        let desk = Desk { orders: Mutex::new(orders), answers: Mutex::new(answers) };
        Some(Self(Arc::new(desk)))
    }

    /// Orders a hook, which answers later.
    pub fn order(&self, request: Request) {
        let order = Order { path: request.path, request };
        // A dead thread answers nothing.
        let _ = lock(&self.0.orders).send(order);
    }

    /// The next answer, if any.
    pub fn answered(&self) -> Option<Answered> {
        lock(&self.0.answers).try_recv().ok()
    }
}

/// Gives back what dead keepers have left raised.
pub fn give_back_what_is_left(surroundings: &Surroundings) {
    if !surroundings.state.as_deref().is_some_and(is_something_left) {
        return;
    }
    let mut command = Keeper::of(surroundings).command();
    if let Ok(mut keeper) = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
        let _ = std::thread::Builder::new().name("hooks-left".into()).spawn(move || drop(keeper.wait()));
    }
}

fn is_something_left(state: &Path) -> bool {
    OwnDirectory::open(&raised(state)).and_then(|raised| raised.names(1)).is_ok_and(|names| !names.is_empty())
}

/// The records of what is raised.
pub fn raised(state: &Path) -> PathBuf {
    state.join("raised")
}

struct Keeper {
    state: Option<PathBuf>,
    policy_files: Vec<PathBuf>,
}

impl Keeper {
    fn of(surroundings: &Surroundings) -> Self {
        Self { state: surroundings.state.clone(), policy_files: surroundings.policy_files.clone() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(SELF);
        command.args(["agent", "--hooks"]).arg0("haul");
        if let Some(state) = &self.state {
            command.arg("--state").arg(state);
        }
        for file in &self.policy_files {
            command.arg("--policy").arg(file);
        }
        // The terminal's signals must not end the keeper.
        command.process_group(0);
        command
    }
}

fn carry(orders: &Receiver<Order>, answers: &Sender<Answered>, keeper: &Keeper) {
    let Ok(mut next) = orders.recv() else { return };
    let failed = |order: &Order, why: String| Answered {
        path: order.path,
        event: order.request.event,
        answer: Answer { reason: Some(why), ..Answer::default() },
    };
    let mut command = keeper.command();
    let mut keeper = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(keeper) => keeper,
        Err(error) => {
            let why = format!("the keeper of the hooks cannot be started: {error}");
            let _ = answers.send(failed(&next, why));
            return;
        }
    };
    if let (Some(mut to), Some(from)) = (keeper.stdin.take(), keeper.stdout.take()) {
        let mut from = BufReader::new(from).lines();
        loop {
            let line = serde_json::to_string(&next).unwrap_or_default();
            let heard = writeln!(to, "{line}").ok().and_then(|()| from.next()).and_then(Result::ok);
            let answered = heard.and_then(|line| serde_json::from_str(&line).ok());
            let ended = answered.is_none();
            let answered = answered.unwrap_or_else(|| failed(&next, "the keeper of the hooks has ended".into()));
            if answers.send(answered).is_err() && next.request.event == Event::Raise {
                break;
            }
            match orders.recv() {
                Ok(order) if !ended => next = order,
                _ => break,
            }
        }
        // The keeper gives everything back.
    }
    let _ = keeper.wait();
}

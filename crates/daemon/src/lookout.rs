//! Warns of lines in the list that will let nobody in, or let somebody in as root.
//!
//! The decision falls when a session begins (`serve.rs`). A single thread warns, so a hanging file server holds up nothing else.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::authorized::{Authorized, BadLine, List};
use crate::log::escaped;
use crate::own_files::{FindAccount as FindInTurn, OwnPaths};

/// Takes a line for the log, and whether it is a warning.
pub type Say = Arc<dyn Fn(&str, bool) + Send + Sync>;

pub(crate) type FindAccount = Box<dyn Fn(&str) -> io::Result<Option<u32>> + Send + Sync>;

pub(crate) struct Lookout {
    own: Arc<OwnPaths>,
    list: PathBuf,
    find_account: FindAccount,
    say: Say,
    task: Mutex<Task>,
    told: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Task {
    /// The newest list replaces a waiting one.
    waiting: Option<Arc<List>>,
    is_looking: bool,
}

impl Lookout {
    pub(crate) fn new(own: Arc<OwnPaths>, list: PathBuf, find_account: FindAccount, say: Say) -> Arc<Lookout> {
        Arc::new(Lookout { own, list, find_account, say, task: Mutex::default(), told: Mutex::default() })
    }

    pub(crate) fn look_at(self: &Arc<Self>, list: Arc<List>) {
        let mut task = self.task();
        task.waiting = Some(list);
        if !task.is_looking {
            let lookout = Arc::clone(self);
            let started = thread::Builder::new().name("lookout".to_owned()).spawn(move || lookout.look());
            // Without the thread there are no warnings in advance.
            task.is_looking = started.is_ok();
        }
    }

    fn look(&self) {
        while let Some(list) = self.next() {
            let mut find_account = self.look_up_once();
            for bad in self.bad_lines(&list, &mut find_account) {
                (self.say)(&format!("{}: {bad}; this line lets nobody in", self.list.display()), true);
            }
            self.tell_new(warnings(&list, &mut find_account));
        }
    }

    pub(crate) fn warn_of(&self, list: &List) {
        self.tell_new(warnings(list, &mut self.look_up_once()));
    }

    fn tell_new(&self, warnings: Vec<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !told.contains(*warning)) {
            (self.say)(&format!("warning: {warning}"), true);
        }
        *told = warnings.into_iter().collect();
    }

    /// Looks up no account after the first failure, which may take seconds.
    fn look_up_once(&self) -> impl FnMut(&str) -> io::Result<Option<u32>> {
        let (mut found, mut silent) = (HashMap::new(), None);
        move |user: &str| {
            if let Some(kind) = silent {
                return Err(io::Error::from(kind));
            }
            if let Some(uid) = found.get(user) {
                return Ok(*uid);
            }
            let answer = (self.find_account)(user);
            match &answer {
                Ok(uid) => {
                    found.insert(user.to_owned(), *uid);
                }
                Err(error) => silent = Some(error.kind()),
            }
            answer
        }
    }

    fn next(&self) -> Option<Arc<List>> {
        let mut task = self.task();
        let list = task.waiting.take();
        task.is_looking = list.is_some();
        list
    }

    fn bad_lines(&self, list: &List, find_account: FindInTurn<'_>) -> Vec<BadLine> {
        let own = self.own.find();
        let mut lines: Vec<_> = list.grants().collect();
        lines.sort_by_key(|authorized| authorized.line);
        let judged = lines.into_iter().filter_map(|authorized| {
            let why = own.within_reach(&authorized.grant, find_account)?;
            Some(BadLine { line: authorized.line, why })
        });
        judged.collect()
    }

    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warnings(list: &List, find_account: FindInTurn<'_>) -> Vec<String> {
    let mut lines: Vec<_> = list.grants().collect();
    lines.sort_by_key(|authorized| authorized.line);
    let mut is_silent = false;
    let of_line = |authorized: &Authorized| {
        let root = authorized.grant.root.as_deref().unwrap_or(Path::new("/"));
        let name = escaped(root.as_os_str().as_encoded_bytes());
        let of_root = wrong_root(root).map(|why| format!("{name} {why}"));
        let user = authorized.grant.user.as_deref().filter(|_| !is_silent);
        let of_user = match user.map(|user| (user, find_account(user))) {
            None if authorized.grant.user.is_none() => unnamed_user(),
            None => None,
            Some((name, found)) => {
                is_silent = found.is_err();
                wrong_user(name, found)
            }
        };
        [of_root, of_user]
            .into_iter()
            .flatten()
            .map(|why| format!("{why}, for {}", authorized.comment))
            .collect::<Vec<_>>()
    };
    lines.into_iter().flat_map(of_line).collect()
}

/// A link on the way is refused: another key may be able to write where it stands.
fn wrong_root(root: &Path) -> Option<String> {
    match (haul_transfer::open_root(root), root.canonicalize()) {
        (Ok(_), _) => None,
        (Err(_), Ok(real)) if real.is_dir() && real != root => {
            let real = escaped(real.as_os_str().as_encoded_bytes());
            Some(format!("leads through a symbolic link, which is refused: name the directory itself, root={real}"))
        }
        (Err(_), _) => Some("is no directory (or out of reach)".into()),
    }
}

fn unnamed_user() -> Option<String> {
    haul_transfer::is_root().then(|| "without user=NAME its client acts as root within its directory".into())
}

fn wrong_user(name: &str, found: io::Result<Option<u32>>) -> Option<String> {
    let name = escaped(name.as_bytes());
    match found {
        Ok(Some(0)) => Some(format!("as {name} its client acts as root within its directory")),
        Ok(Some(uid)) if haul_transfer::is_root() || uid == haul_transfer::effective_user() => None,
        Ok(Some(_)) => Some(format!("only root can act as {name}")),
        Ok(None) => Some(format!("there is no user {name}")),
        Err(error) => Some(format!("the user {name} cannot be looked up: {error}")),
    }
}

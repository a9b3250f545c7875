//! Warns in advance of lines in the list that will let nobody in.
//!
//! The decision is made when a session begins (`serve.rs`); these warnings are for the log only. They come from a
//! single thread. So a file server or a directory of accounts that hangs holds up nothing else.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::authorized::{BadLine, List};
use crate::own_files::OwnFiles;

/// Takes a line for the log, and whether it is a warning.
pub type Say = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// Looks accounts up. Tests have their own; the daemon has `own_files::uid_of`.
pub(crate) type FindAccount = Box<dyn Fn(&str) -> io::Result<Option<u32>> + Send + Sync>;

pub(crate) struct Lookout {
    identity: PathBuf,
    list: PathBuf,
    find_account: FindAccount,
    say: Say,
    task: Mutex<Task>,
}

#[derive(Default)]
struct Task {
    /// The newest list. It replaces an older one that still waits.
    waiting: Option<Arc<List>>,
    is_looking: bool,
}

impl Lookout {
    pub(crate) fn new(identity: PathBuf, list: PathBuf, find_account: FindAccount, say: Say) -> Arc<Lookout> {
        Arc::new(Lookout { identity, list, find_account, say, task: Mutex::default() })
    }

    /// Has a list examined by the thread. Waits for nothing.
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
            for bad in self.bad_lines(&list) {
                (self.say)(&format!("{}: {bad}; this line lets nobody in", self.list.display()), true);
            }
        }
    }

    fn next(&self) -> Option<Arc<List>> {
        let mut task = self.task();
        let list = task.waiting.take();
        task.is_looking = list.is_some();
        list
    }

    fn bad_lines(&self, list: &List) -> Vec<BadLine> {
        let own = OwnFiles::find(&self.identity, &self.list);
        // Each account is looked up once. After the first failure no other is looked up.
        let (mut found, mut silent) = (HashMap::new(), None);
        let mut find_account = |user: &str| {
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
        };
        let mut lines: Vec<_> = list.grants().collect();
        lines.sort_by_key(|authorized| authorized.line);
        let judged = lines.into_iter().filter_map(|authorized| {
            let why = own.within_reach(&authorized.grant, &mut find_account)?;
            Some(BadLine { line: authorized.line, why })
        });
        judged.collect()
    }

    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Tells what the key of a session may do: when the session began, and anew for each further job.
//!
//! ```text
//!   session thread   acts as the key's user, behind the fence of the key's directory: it cannot read the list
//!   registrar        a thread that began before that, with the rights of the daemon --> the list, the daemon's own files
//! ```

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_transfer::Grant;

use crate::own_files::OwnFiles;

/// Time for a list on a file server. A session that waits longer gets no further job.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Standing {
    pub(crate) grant: Grant,
    pub(crate) own: OwnFiles,
}

pub(crate) struct Registrar {
    standing: Mutex<Standing>,
    questions: SyncSender<SyncSender<Option<Standing>>>,
}

impl Registrar {
    /// Starts with the session's first standing. `look` looks anew, with the caller's present rights; `None`: the key is not in
    /// the list. The thread ends with the registrar.
    pub(crate) fn start(standing: Standing, look: impl Fn() -> Option<Standing> + Send + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel::<SyncSender<Option<Standing>>>(1);
        let answer = move || {
            for asker in asked {
                // The asker may have stopped waiting.
                let _ = asker.try_send(look());
            }
        };
        std::thread::Builder::new().name("registrar".into()).spawn(answer)?;
        Ok(Self { standing: Mutex::new(standing), questions })
    }

    pub(crate) fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the key may do nothing, or the answer was late.
    pub(crate) fn ask_again(&self) -> Option<Grant> {
        let (says, answer) = sync_channel(1);
        self.questions.try_send(says).ok()?;
        let now = answer.recv_timeout(ANSWER_LIMIT).ok().flatten()?;
        let grant = now.grant.clone();
        *self.standing() = now;
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::own_files::OwnPaths;

    fn standing(grant: Grant) -> Standing {
        Standing { grant, own: OwnPaths::new("/not-there/key".as_ref(), "/not-there/list".as_ref()).find() }
    }

    #[test]
    fn a_key_has_for_its_next_job_what_the_list_says_then() {
        let list = Arc::new(Mutex::new(Some(Grant { read_only: true, ..Grant::default() })));
        let asked = Arc::clone(&list);
        let look = move || asked.lock().unwrap().clone().map(standing);
        let registrar = Registrar::start(standing(Grant::default()), look).unwrap();
        assert!(!registrar.standing().grant.read_only);
        assert!(registrar.ask_again().unwrap().read_only && registrar.standing().grant.read_only);
        *list.lock().unwrap() = None;
        assert_eq!(registrar.ask_again(), None);
        drop(registrar);
        while Arc::strong_count(&list) > 1 {
            std::thread::yield_now();
        }
    }
}

//! An answer that is still to come.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::in_flight::Recipient;
use crate::codec::Reply;

/// An answer that is still to come. Its connection sees to it that one comes, or an error.
pub(crate) struct Ticket(Arc<Answer>);

#[derive(Default)]
struct Answer {
    reply: Mutex<Option<io::Result<Reply>>>,
    came: Condvar,
}

impl Ticket {
    pub(crate) fn new() -> (Self, Recipient) {
        let answer = Arc::new(Answer::default());
        let for_recipient = Arc::clone(&answer);
        let recipient = move |reply| {
            *for_recipient.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            for_recipient.came.notify_all();
        };
        (Self(answer), Box::new(recipient))
    }

    /// Waits for the answer.
    pub(crate) fn wait(self) -> io::Result<Reply> {
        let reply = self.0.reply.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reply = self.0.came.wait_while(reply, |reply| reply.is_none()).unwrap_or_else(PoisonError::into_inner);
        reply.take().expect("it was waited for")
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

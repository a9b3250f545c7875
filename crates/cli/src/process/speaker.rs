//! Prints from a thread of its own. A paused terminal or pager may take nothing for hours, and threads that move bytes
//! must not wait: the far side would take this side for dead.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub trait Word: Send + 'static {
    fn bytes(&self) -> usize;

    fn replaces(&self, _before: &Self) -> bool {
        false
    }
}

pub struct Speaker<T> {
    queue: Arc<Queue<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// Signals a message taken, or the thread's end.
    taken: Condvar,
}

struct State<T> {
    words: VecDeque<T>,
    bytes: usize,
    /// No more messages are taken, or the thread has ended.
    is_over: bool,
    has_ended: bool,
}

/// Half a million names with `-v`; a sender of more waits.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Two kinds of figures come in turn.
const MAX_REPLACED: usize = 2;

/// How long an impatient caller waits at the end for the current message.
const LAST_WORD: Duration = Duration::from_secs(1);

const LOOK_EVERY: Duration = Duration::from_millis(50);

impl<T: Word> Speaker<T> {
    /// Starts the thread, which alone calls `say`, in order.
    pub fn start(mut say: impl FnMut(T) + Send + 'static) -> io::Result<Self> {
        let state = State { words: VecDeque::new(), bytes: 0, is_over: false, has_ended: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), filled: Condvar::new(), taken: Condvar::new() });
        let to_say = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("speaker".into()).spawn(move || {
            let _end = End(&to_say);
            while let Some(word) = to_say.next() {
                say(word);
            }
        })?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Queues a message. A full queue waits, or drops it once `hurries` is true. After [`Speaker::finish`] all are
    /// dropped.
    pub fn say(&self, word: T, hurries: impl Fn() -> bool) {
        let bytes = word.bytes();
        let mut state = self.queue.lock();
        while !state.is_over && state.bytes > 0 && state.bytes + bytes > MAX_WAITING_BYTES {
            if hurries() {
                return;
            }
            (state, _) = self.queue.taken.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
        state.push(word, bytes);
        drop(state);
        self.queue.filled.notify_one();
    }

    /// For callers that may never wait. False: the queue is full, and the message is lost.
    pub fn say_if_there_is_room(&self, word: T) -> bool {
        let bytes = word.bytes();
        let mut state = self.queue.lock();
        let has_room = state.bytes + bytes <= MAX_WAITING_BYTES;
        if has_room {
            state.push(word, bytes);
            drop(state);
            self.queue.filled.notify_one();
        }
        has_room
    }

    /// Waits until all is printed, or `hurries` is true. False: the listener takes nothing, and further messages are dropped.
    pub fn finish(&self, hurries: impl Fn() -> bool) -> bool {
        let mut state = self.queue.lock();
        state.is_over = true;
        self.queue.filled.notify_one();
        self.queue.taken.notify_all();
        let mut hurry = None;
        while !state.has_ended {
            if hurries() {
                let hurried = hurry.get_or_insert_with(Instant::now).elapsed();
                // A listener that reads gets all messages.
                if hurried > LAST_WORD {
                    state.words.clear();
                }
                if hurried > 2 * LAST_WORD {
                    return false;
                }
            }
            (state, _) = self.queue.taken.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(panic)) = thread.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        true
    }
}

/// Marks the thread's end, also after a panic.
struct End<'a, T>(&'a Queue<T>);

impl<T> Drop for End<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_over, state.has_ended) = (true, true);
        drop(state);
        self.0.taken.notify_all();
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Word> Queue<T> {
    /// `None`: no message will come.
    fn next(&self) -> Option<T> {
        let state = self.lock();
        let waits = |state: &mut State<T>| state.words.is_empty() && !state.is_over;
        let mut state = self.filled.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        let word = state.words.pop_front()?;
        state.bytes -= word.bytes();
        drop(state);
        self.taken.notify_all();
        Some(word)
    }
}

impl<T: Word> State<T> {
    fn push(&mut self, word: T, bytes: usize) {
        if self.is_over {
            return;
        }
        if let Some(before) = self.words.iter_mut().rev().take(MAX_REPLACED).find(|before| word.replaces(before)) {
            self.bytes = self.bytes - before.bytes() + bytes;
            *before = word;
            return;
        }
        self.bytes += bytes;
        self.words.push_back(word);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    impl Word for String {
        fn bytes(&self) -> usize {
            size_of::<Self>() + self.len()
        }
    }

    fn paused<T: Word>() -> (Speaker<T>, mpsc::Receiver<T>, mpsc::Sender<()>) {
        let (heard, hears) = mpsc::channel();
        let (permits, permitted) = mpsc::channel();
        let say = move |word| {
            let _ = permitted.recv();
            heard.send(word).unwrap();
        };
        (Speaker::start(say).unwrap(), hears, permits)
    }

    #[test]
    fn nobody_waits_for_a_listener_who_pauses_and_every_word_comes_in_its_order() {
        let (speaker, hears, gate) = paused();
        for number in 0..10_000 {
            speaker.say(number.to_string(), || false);
        }
        assert!(hears.try_recv().is_err(), "the listener pauses");
        drop(gate);
        assert!(speaker.finish(|| false));
        speaker.say("too late".to_owned(), || false);
        assert!(hears.iter().eq((0..10_000).map(|number: u32| number.to_string())));
    }

    #[test]
    fn figures_that_wait_are_replaced_by_newer_ones() {
        struct Figure(u32);
        impl Word for Figure {
            fn bytes(&self) -> usize {
                MAX_WAITING_BYTES
            }
            fn replaces(&self, _: &Self) -> bool {
                true
            }
        }
        let (speaker, hears, gate) = paused();
        speaker.queue.lock().push(Figure(0), MAX_WAITING_BYTES);
        for number in 1..100 {
            speaker.queue.lock().push(Figure(number), MAX_WAITING_BYTES);
        }
        drop(gate);
        assert!(speaker.finish(|| false));
        let heard: Vec<u32> = hears.iter().map(|figure| figure.0).collect();
        assert!(heard.len() <= 2 && heard.last() == Some(&99), "{heard:?}");
    }

    #[test]
    fn what_waits_is_bounded_and_who_may_never_wait_loses_a_word_instead() {
        let (speaker, hears, gate) = paused();
        let word = |letter: &str| letter.repeat(MAX_WAITING_BYTES / 3);
        for letter in ["a", "b", "c"] {
            speaker.say(word(letter), || false);
        }
        while speaker.queue.lock().words.len() > 2 {
            std::thread::yield_now();
        }
        assert!(!speaker.say_if_there_is_room(word("lost")));
        speaker.say(word("not heard"), || true);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| speaker.say(word("d"), || false));
            gate.send(()).unwrap();
            waits.join().unwrap();
        });
        drop(gate);
        assert!(speaker.finish(|| false));
        let heard: Vec<_> = hears.iter().map(|word: String| word[..1].to_owned()).collect();
        assert_eq!(heard, ["a", "b", "c", "d"]);
    }

    #[test]
    fn who_hurries_waits_for_no_listener() {
        let (speaker, hears, gate) = paused();
        (0..10).for_each(|number| speaker.say(number.to_string(), || false));
        while speaker.queue.lock().words.len() > 9 {
            std::thread::yield_now();
        }
        assert!(!speaker.finish(|| true), "it takes nothing");
        drop(gate);
        assert!(speaker.finish(|| false));
        assert_eq!(hears.iter().collect::<Vec<_>>(), ["0"]);
    }
}

//! What a watch tells its observer, and how often.

use std::sync::atomic::AtomicUsize;

use super::*;

#[derive(Default)]
struct Counting(AtomicUsize);

impl Observer for Counting {
    fn on_event(&self, event: &Event) {
        self.0.fetch_add(usize::from(matches!(event, Event::Path(_))), Ordering::Relaxed);
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn a_peer_that_talks_of_its_path_without_end_is_heard_now_and_then() {
    let counting = Arc::new(Counting::default());
    let observer: Arc<dyn Observer> = Arc::clone(&counting) as _;
    let watch = Watch::new(observer);
    let start = Instant::now();
    (0..1000).for_each(|_| watch.on_path(&PathNow::default()));
    let most = 1 + usize::try_from(start.elapsed().as_millis() / PATH_EVERY.as_millis()).unwrap();
    assert!((1..=most).contains(&counting.0.load(Ordering::Relaxed)));
}

#[derive(Default)]
struct Hearing(Mutex<Vec<Subject>>);

impl Observer for Hearing {
    fn on_event(&self, event: &Event) {
        if let Event::Chose { what, .. } = event {
            self.0.lock().unwrap().push(*what);
        }
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn where_a_file_goes_on_is_told_by_its_name_and_a_strangers_word_is_not_passed_on() {
    let hearing = Arc::new(Hearing::default());
    let watch = Watch::new(Arc::clone(&hearing) as Arc<dyn Observer>);
    watch.on_notice(convert::chose(Subject::Resume, "from the beginning of a file", "it changed"));
    let (choice, reason) = (String::new(), String::new());
    watch.on_notice(Notice::Chose { what: "\u{1b}[2J".to_owned(), choice, reason });
    assert_eq!(*hearing.0.lock().unwrap(), [Subject::Resume, Subject::Other]);
}

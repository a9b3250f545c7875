//! Further connections to a server: when they are dialled, and what goes over them.

mod servers;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_sftp::{Dial, Dials, OpenOptions, Pipe, Refused, Server, SftpTarget};
use haul_store::{Draft, TargetTree};
use servers::PATIENCE;

/// Logins that wait until the test says what becomes of them.
struct Logins {
    begun: Receiver<()>,
    outcomes: Sender<Result<Pipe, Refused>>,
    count: Arc<AtomicUsize>,
}

fn logins() -> (Logins, Dial) {
    let ((tell, begun), (outcomes, decided)) = (channel(), channel());
    let (count, decided) = (Arc::new(AtomicUsize::new(0)), Mutex::new(decided));
    let counter = Arc::clone(&count);
    let dial = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        tell.send(()).unwrap();
        decided.lock().unwrap().recv_timeout(PATIENCE).unwrap()
    };
    (Logins { begun, outcomes, count }, Box::new(dial))
}

impl Logins {
    fn await_next(&self) {
        self.begun.recv_timeout(PATIENCE).unwrap();
    }

    fn end(&self, outcome: Result<Pipe, Refused>) {
        self.outcomes.send(outcome).unwrap();
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

fn pipe(directory: &Path) -> Pipe {
    let mut command = servers::sftp_server();
    command.arg("-d").arg(directory);
    Pipe::to_program(command).unwrap()
}

fn dials(dial: Dial, most: usize, is_silent: bool) -> Arc<Dials> {
    Dials::new(dial, Box::new(|| None), most, is_silent, PATIENCE)
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never came to that");
        std::thread::yield_now();
    }
}

#[test]
fn a_server_that_wants_an_answer_sees_one_login_fail_and_no_more() {
    let (logins, dial) = logins();
    let dials = dials(dial, 12, false);
    dials.want(12);
    logins.await_next();
    logins.end(Err(Refused::ForGood));
    until(|| Arc::strong_count(&dials) == 1);
    dials.want(12);
    assert_eq!(logins.count(), 1);
}

#[test]
fn once_one_login_went_without_a_question_eight_more_are_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let (logins, dial) = logins();
    let dials = dials(dial, 12, false);
    dials.want(12);
    logins.await_next();
    assert_eq!(logins.count(), 1);
    logins.end(Ok(pipe(dir.path())));
    (0..8).for_each(|_| logins.await_next());
    assert_eq!(logins.count(), 9, "a server drops some from ten on");
    (0..11).for_each(|_| logins.end(Ok(pipe(dir.path()))));
    until(|| Arc::strong_count(&dials) == 1);
    assert_eq!(logins.count(), 12);
}

#[test]
fn a_connection_is_closed_at_once_though_somebody_holds_its_pipe() {
    const CLOSED: u32 = 10;
    let server = servers::sftp_server();
    let script = format!("sleep 5 & exec {} -e", server.get_program().to_string_lossy());
    let connect = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        Server::meet(Pipe::to_program(command).unwrap(), PATIENCE).unwrap()
    };
    let connections: Vec<_> = (0..CLOSED).map(connect).collect();
    let begun = Instant::now();
    drop(connections);
    // The reader of a connection looks around each 200 ms.
    assert!(begun.elapsed() < CLOSED * Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[test]
fn a_host_that_the_first_login_still_asks_about_is_tried_again_when_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (logins, dial) = logins();
    let dials = dials(dial, 3, false);
    dials.want(3);
    logins.await_next();
    logins.end(Err(Refused::HostUnknown));
    until(|| Arc::strong_count(&dials) == 1);
    dials.want(3);
    assert_eq!(logins.count(), 1, "the first login is not over");
    let pool = servers::pool(dir.path(), Some(Arc::clone(&dials)));
    dials.want(3);
    logins.await_next();
    logins.end(Ok(pipe(dir.path())));
    (0..2).for_each(|_| logins.end(Ok(pipe(dir.path()))));
    until(|| pool.servers().len() == 4);
}

#[test]
fn what_somebody_puts_in_the_place_of_a_draft_gets_no_data_over_a_further_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (logins, dial) = logins();
    let pool = servers::pool(dir.path(), Some(dials(dial, 1, true)));
    let options = OpenOptions { single_file: false, make: false, dry_run: false };
    let target = SftpTarget::open(Arc::clone(&pool), b"./", options, Box::new(drop)).unwrap().0;
    let draft = target.new_draft(b"file", false).unwrap();
    let Draft::Other(draft) = draft else { panic!("no draft of a server") };
    draft.reserve(30 << 20).unwrap();
    let block = vec![7; 256 << 10];
    let write = |from: u64, to: u64| {
        (from..to).for_each(|number| draft.write_at(&block, number * block.len() as u64).unwrap());
    };
    write(0, 40);
    draft.flush().unwrap();
    logins.await_next();
    let part = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let other = dir.path().join("other");
    std::fs::copy(&part, &other).unwrap();
    std::fs::OpenOptions::new().write(true).open(&other).unwrap().set_len(1 << 20).unwrap();
    std::fs::rename(&other, &part).unwrap();
    logins.end(Ok(pipe(dir.path())));
    until(|| pool.servers().len() == 2);
    write(40, 120);
    draft.flush().unwrap();
    assert_eq!(std::fs::metadata(&part).unwrap().len(), 1 << 20, "it is as it was put there");
    assert!(draft.give_name().unwrap_err().to_string().contains("another file"));
}

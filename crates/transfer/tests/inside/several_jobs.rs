//! Tests several jobs over one session: what stays between them, and what does not.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_job::{Error, Event, Far, Fault, Job, Observer, Place, Report};
use haul_net::{Door, Identity};
use haul_wire::control::Role;

use crate::links::Fate;
use crate::scenarios::{Bench, Witness};
use haul_channel::channel::Events;
use haul_channel::grant::{Grant, Visit};
use haul_channel::id;
use haul_channel::reporter::Watch;
use haul_kept::surroundings::Surroundings;
use haul_reach::lane_door;
use haul_reach::lane_rendezvous::LaneRendezvous;
use haul_reach::remote::Remote;
use haul_transfer::coordinate::carry_out;
use haul_transfer::joined::{Joined, Side};
use haul_transfer::order::Order;
use haul_transfer::serving::{Ports, serve_control};

/// The operator of a daemon, who may change a key's rights between two jobs.
#[derive(Default)]
struct Operator {
    grant: Mutex<Option<Grant>>,
    roles: Mutex<Vec<String>>,
    ends: Mutex<Vec<Option<Fault>>>,
    roots: Mutex<usize>,
}

impl Observer for Operator {
    fn on_event(&self, _: &Event) {}
}

impl Visit for Operator {
    fn on_root(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Error> {
        *self.roots.lock().unwrap() += 1;
        Ok(())
    }

    fn on_unfenced(&self, _: &str) {}

    fn on_role(&self, role: &Role) {
        self.roles.lock().unwrap().push(format!("{role:?}"));
    }

    fn on_path(&self, _: u16, _: IpAddr, _: IpAddr) {}

    fn on_path_gone(&self, _: u16) {}

    fn on_refused(&self, _: &str) {}

    fn on_list(&self, _: usize) -> bool {
        true
    }

    fn on_job_end(&self, error: Option<&Error>) {
        self.ends.lock().unwrap().push(error.map(|error| error.fault));
    }

    fn next_job(&self) -> Result<Grant, Error> {
        let grant = self.grant.lock().unwrap().clone();
        grant.ok_or_else(|| Error::new(Fault::Authentication, "the daemon does not let our key in any more"))
    }
}

struct Pair {
    joined: Joined,
    watch: Arc<Watch>,
    door: Option<Door>,
    fate: Fate,
    end: JoinHandle<Result<(), Error>>,
}

impl Pair {
    fn agent(side: Side) -> Self {
        Self::of(side, Grant { clear: true, ..Grant::default() }, None)
    }

    fn daemon(side: Side, root: &Path) -> (Self, Arc<Operator>) {
        let grant = Grant { root: Some(root.to_owned()), ..Grant::default() };
        let operator = Arc::new(Operator { grant: Mutex::new(Some(grant.clone())), ..Operator::default() });
        (Self::of(side, grant, Some(Arc::clone(&operator) as Arc<dyn Visit>)), operator)
    }

    fn of(side: Side, grant: Grant, visit: Option<Arc<dyn Visit>>) -> Self {
        let fate = Fate::default();
        let (near, far) = fate.link(usize::MAX);
        let (identity, rendezvous) = (Arc::new(Identity::generate().unwrap()), Arc::new(LaneRendezvous::default()));
        let door = lane_door::open_door(&identity, &rendezvous, None, Arc::default()).unwrap();
        let ports = Ports { open: door.port(), ..Ports::default() };
        let end = std::thread::spawn(move || {
            serve_control(far, &identity, &rendezvous, ports, &grant, &Surroundings::default(), visit)
        });
        let watch = Arc::new(Watch::silent());
        let place = Far::Ssh { user: None, host: "dtn".into(), port: None };
        let remote = Remote::meet(&place, near, id::random_id().unwrap(), Events::new(), &watch).unwrap();
        let joined = Joined::new(remote, side, None, &watch);
        Self { joined, watch, door: Some(door), fate, end }
    }

    fn run(&mut self, job: &Job) -> Result<Report, Error> {
        let watch = Arc::new(self.watch.of_job_for(Arc::<Witness>::default()));
        let joined = &mut self.joined;
        carry_out(job, &Surroundings::default(), (&watch, false), |order: Order<'_>, _: &Place, _: &Place| {
            joined.run(order, true)
        })
    }

    fn close_door(&mut self) {
        self.door = None;
    }

    fn close(self) {
        self.joined.close();
        self.end.join().unwrap().unwrap();
    }
}

fn job(bench: &Bench, from: &str, to: &str) -> Job {
    let path = |name: &str| bench.root().join(name).into_os_string().into_encoded_bytes();
    let mut job = bench.job();
    (job.sources[0].path, job.target.path) = (path(from), path(to));
    (job.carriage.lanes, job.carriage.timeout) = (Some(2), Duration::from_secs(20));
    job
}

fn tree() -> Bench {
    let bench = Bench::new();
    bench.write("one", 3_000_000);
    bench.write("two", 21_000_001);
    (0..40).for_each(|number| bench.write(&format!("many/small{number}"), 500 + number));
    bench
}

fn is_copied(bench: &Bench, from: &str, to: &str) -> bool {
    let read = |name: &str| std::fs::read(bench.root().join(name)).unwrap_or_default();
    read(from) == read(to) && !read(from).is_empty()
}

#[test]
fn three_jobs_go_over_one_session_and_the_lanes_of_the_first() {
    for side in [Side::Sender, Side::Receiver] {
        for clear in [false, true] {
            let bench = tree();
            let mut pair = Pair::agent(side);
            let run = |pair: &mut Pair, from: &str, to: &str| {
                let mut job = job(&bench, from, to);
                job.carriage.clear = clear;
                pair.run(&job).unwrap()
            };
            assert_eq!(run(&mut pair, "from/one", "to1").files_moved, 1);
            pair.close_door();
            assert_eq!(run(&mut pair, "from/two", "to2").files_moved, 1);
            assert_eq!(run(&mut pair, "from/many/", "to3").files_moved, 40);
            let again = run(&mut pair, "from/two", "to2");
            assert_eq!((again.files_moved, again.files_kept), (0, 1));
            assert!(is_copied(&bench, "from/one", "to1") && is_copied(&bench, "from/two", "to2"));
            assert!(is_copied(&bench, "from/many/small7", "to3/small7"));
            pair.close();
        }
    }
}

#[test]
fn a_job_that_fails_leaves_the_session_to_the_next() {
    for side in [Side::Sender, Side::Receiver] {
        let bench = tree();
        let mut pair = Pair::agent(side);
        std::fs::write(bench.root().join("file"), "x").unwrap();
        if side == Side::Receiver {
            let error = pair.run(&job(&bench, "from/not-there", "to")).unwrap_err();
            assert!(matches!(error.fault, Fault::FileIo | Fault::Missing), "{error:?}");
        }
        assert_eq!(pair.run(&job(&bench, "from/one", "to1")).unwrap().files_moved, 1);
        let error = pair.run(&job(&bench, "from/many", "file/beneath")).unwrap_err();
        assert_eq!(error.fault, Fault::FileIo, "{error:?}");
        assert!(!pair.joined.is_over());
        assert_eq!(pair.run(&job(&bench, "from/two", "to2")).unwrap().files_moved, 1);
        assert!(is_copied(&bench, "from/two", "to2"));
        pair.close();
    }
}

#[test]
fn a_source_that_is_missing_costs_no_lane() {
    let bench = tree();
    let mut pair = Pair::agent(Side::Receiver);
    assert_eq!(pair.run(&job(&bench, "from/one", "to1")).unwrap().files_moved, 1);
    pair.close_door();
    pair.run(&job(&bench, "from/not-there", "to")).unwrap_err();
    assert_eq!(pair.run(&job(&bench, "from/two", "to2")).unwrap().files_moved, 1);
    pair.close();
}

#[test]
fn each_job_has_the_rights_that_its_key_has_then() {
    let bench = tree();
    for name in ["here", "elsewhere"] {
        std::fs::create_dir(bench.root().join(name)).unwrap();
    }
    let root = bench.root().join("here");
    let (mut pair, operator) = Pair::daemon(Side::Sender, &root);
    let push = |pair: &mut Pair, to: &str| {
        let mut job = job(&bench, "from/one", "");
        job.target.path = to.as_bytes().to_vec();
        pair.run(&job)
    };
    assert_eq!(push(&mut pair, "first").unwrap().files_moved, 1);
    // A job opens no way for another one. An absolute path begins at the directory of the key.
    let outside = bench.root().join("elsewhere/file");
    assert_eq!(push(&mut pair, "/second").unwrap().files_moved, 1);
    assert!(push(&mut pair, "../elsewhere/file").is_err() && !outside.exists());
    let change = |change: &dyn Fn(&mut Grant)| change(operator.grant.lock().unwrap().as_mut().unwrap());
    change(&|grant| grant.read_only = true);
    let error = push(&mut pair, "third").unwrap_err();
    assert_eq!((error.fault, error.what.as_str()), (Fault::Authentication, "dtn: the daemon lets this key only read"));
    assert!(!pair.joined.is_over(), "a job that may be done can follow");
    let error = push(&mut pair, "first").unwrap_err();
    assert_eq!(error.what, "dtn: the daemon lets this key only read");
    // More rights than the session had at last need a new session.
    change(&|grant| grant.read_only = false);
    let error = push(&mut pair, "fourth").unwrap_err();
    assert_eq!(error.what, "dtn: the daemon's operator has changed the rights of our key");
    assert!(root.join("second").exists() && !root.join("third").exists() && !root.join("fourth").exists());
    assert!(operator.roots.lock().unwrap().eq(&5), "the directory was opened anew for each job");
    assert_eq!(operator.roles.lock().unwrap().len(), 5);
    assert_eq!(operator.ends.lock().unwrap()[..1], [None]);
    drop(pair.joined);
    assert_eq!(pair.end.join().unwrap().unwrap_err().fault, Fault::Authentication);
}

#[test]
fn a_key_that_has_left_the_list_or_has_another_directory_gets_no_further_job() {
    let other = |grant: &Grant| Some(Grant { root: Some("/".into()), ..grant.clone() });
    for change in [|_: &Grant| None, other] {
        let bench = tree();
        let (mut pair, operator) = Pair::daemon(Side::Receiver, &bench.root().join("from"));
        let pull = |pair: &mut Pair, to: &str| {
            let mut job = job(&bench, "", to);
            job.sources[0].path = b"one".to_vec();
            pair.run(&job)
        };
        assert_eq!(pull(&mut pair, "to1").unwrap().files_moved, 1);
        let mut grant = operator.grant.lock().unwrap();
        *grant = change(grant.as_ref().unwrap());
        drop(grant);
        assert_eq!(pull(&mut pair, "to2").unwrap_err().fault, Fault::Authentication);
        assert!(!bench.root().join("to2").exists());
        assert_eq!(pull(&mut pair, "to3").unwrap_err().fault, Fault::Network);
        assert!(pair.joined.is_over());
        pair.end.join().unwrap().unwrap_err();
    }
}

#[test]
fn a_session_that_is_lost_between_two_jobs_is_known_to_be_over() {
    let bench = tree();
    let mut pair = Pair::agent(Side::Sender);
    assert_eq!(pair.run(&job(&bench, "from/one", "to1")).unwrap().files_moved, 1);
    pair.close_door();
    pair.fate.cut();
    let error = pair.run(&job(&bench, "from/two", "to2")).unwrap_err();
    assert_eq!(error.fault, Fault::Network, "{error:?}");
    assert!(pair.joined.is_over());
    pair.joined.close();
    // Nothing was at stake there, or the next job was.
    let _ = pair.end.join().unwrap();
}

#[test]
fn a_session_may_lose_its_control_connection_between_two_jobs_if_another_can_be_dialled() {
    let bench = tree();
    let mut pair = Pair::agent(Side::Sender);
    assert_eq!(pair.run(&job(&bench, "from/one", "to1")).unwrap().files_moved, 1);
    pair.fate.cut();
    assert_eq!(pair.run(&job(&bench, "from/two", "to2")).unwrap().files_moved, 1);
    assert!(is_copied(&bench, "from/two", "to2"));
    pair.close();
}

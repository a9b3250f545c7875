//! Files that go from one server of GridFTP to another, of which one breaks the rules: no wrong file, and no silence.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use haul_ftp::{FtpServer, FtpSource, OpenOptions, Settings};
use haul_store::{Carried, FileToBring, Metadata, TargetTree as _, ThirdParty, Time};

use crate::grid::{LONG, data};
use crate::grid_server::{Fault, GridServer};

const CHANGED: Time = Time { s: 784_111_777, ns: 0 };

/// Two servers, and what was told of them.
struct Scene {
    from: GridServer,
    to: GridServer,
    told: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn of(size: usize, [from, to]: [Fault; 2]) -> Scene {
        let (from, to) = (GridServer::start(&[("/d/f", &data(size))], from), GridServer::start(&[("/f", b"old")], to));
        Scene { from, to, told: Arc::default() }
    }

    fn third_party(&self, journals: Option<&Path>) -> Option<Arc<dyn ThirdParty>> {
        let source = FtpSource::open(self.from.settings(), &[b"/d/f".to_vec()]).unwrap();
        let source = source.for_third_party().unwrap().downcast::<FtpSource>().unwrap();
        let hears = Arc::clone(&self.told);
        let tell = Box::new(move |text| hears.lock().unwrap().push(text));
        let journals = journals.map(Path::to_owned);
        let server = FtpServer::new(Settings { tell, journals, ..self.to.settings() });
        let (target, _) = server.open(b"/", OpenOptions::default()).unwrap();
        target.taking_from(Some(&source)).third_party()
    }

    fn bring_by(
        &self,
        third_party: &dyn ThirdParty,
        size: usize,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Result<Carried, String> {
        let file = FileToBring {
            source_path: b"f",
            path: b"f",
            size: size as u64,
            mtime: CHANGED,
            metadata: &Metadata { mtime: Some(CHANGED), ..Metadata::default() },
            is_over,
            moves: &|_| (),
        };
        third_party.bring(&file).map_err(|error| error.to_string())
    }

    fn bring(&self, size: usize) -> Result<Carried, String> {
        self.bring_by(&*self.third_party(None).unwrap(), size, &|| false)
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }
}

#[test]
fn a_file_goes_from_server_to_server_and_both_tell_the_same_sum() {
    for size in [0, 1, 1 << 20, LONG, (33 << 20) + 1] {
        let scene = Scene::of(size, [Fault::None; 2]);
        assert_eq!(scene.bring(size), Ok(Carried::BetweenServers), "{size}: {:?}", scene.told());
        assert!(scene.to.content("/f") == Some(data(size)), "{size}");
        assert_eq!((scene.to.paths(), scene.told()), (vec!["/f".to_owned()], vec![]), "{size}");
        let parallel = scene.from.count("OPTS RETR Parallelism=4,4,4;");
        assert_eq!(parallel, usize::from(size > 32 << 20), "a long file has as many connections as are allowed");
    }
}

#[test]
fn where_a_server_does_not_do_it_the_file_goes_through_this_host_which_is_told_once() {
    for (faults, word) in [
        ([Fault::NoPort, Fault::None], "500 Illegal PORT command"),
        ([Fault::Unreachable, Fault::None], "does not reach the other one"),
        ([Fault::SumsNoParts, Fault::None], "no Adler-32"),
        ([Fault::None, Fault::TellsOther], "waits for data at 192.0.2.1"),
        ([Fault::None, Fault::Markers], "marks of its progress without an end"),
    ] {
        let scene = Scene::of(LONG, faults);
        let third_party = scene.third_party(None).unwrap();
        for _ in 0..2 {
            let way = scene.bring_by(&*third_party, LONG, &|| false);
            assert_eq!(way, Ok(Carried::ThroughThisHost), "{faults:?}: {:?}", scene.told());
        }
        let told = scene.told();
        assert!(told.len() == 1 && told[0].contains(word), "{faults:?}: {told:?}");
        assert_eq!(scene.to.content("/f").unwrap(), b"old", "{faults:?}");
    }
}

#[test]
fn a_server_is_told_of_no_other_host_than_the_one_that_was_logged_in_to() {
    let scene = Scene::of(LONG, [Fault::None, Fault::TellsOther]);
    assert_eq!(scene.bring(LONG), Ok(Carried::ThroughThisHost));
    assert_eq!(scene.from.count("PORT"), 0, "{:?}", scene.from.seen.lock().unwrap());
}

#[test]
fn what_was_cut_goes_on_and_counts_by_its_sum_however_it_ended() {
    for faults in [[Fault::None, Fault::CutsOnce], [Fault::NoEnd, Fault::None], [Fault::None, Fault::Forgets226]] {
        let scene = Scene::of(LONG, faults);
        assert_eq!(scene.bring(LONG), Ok(Carried::BetweenServers), "{faults:?}: {:?}", scene.told());
        assert!(scene.to.content("/f") == Some(data(LONG)), "{faults:?}");
        let taken = scene.to.taken.load(Ordering::Relaxed);
        assert!(taken < LONG + (1 << 20), "{faults:?}: what has come is not sent again: {taken}");
    }
}

#[test]
fn what_differs_at_the_two_servers_gets_no_name_and_is_removed() {
    let scene = Scene::of(LONG, [Fault::None, Fault::Garbles]);
    assert_eq!(scene.bring(LONG), Ok(Carried::Differs), "{:?}", scene.told());
    assert_eq!((scene.to.content("/f").unwrap(), scene.to.paths()), (b"old".to_vec(), vec!["/f".to_owned()]));
}

#[test]
fn a_source_that_is_another_file_by_now_is_left_to_the_copy_through_this_host() {
    let scene = Scene::of(LONG, [Fault::None; 2]);
    let third_party = scene.third_party(None).unwrap();
    scene.from.files.lock().unwrap().insert("/d/f".to_owned(), data(LONG + 5));
    assert_eq!(scene.bring_by(&*third_party, LONG, &|| false), Ok(Carried::ThroughThisHost));
    assert_eq!((scene.to.content("/f").unwrap(), scene.to.paths()), (b"old".to_vec(), vec!["/f".to_owned()]));
}

#[test]
fn a_full_target_ends_it() {
    let scene = Scene::of(LONG, [Fault::None, Fault::Refuses]);
    let why = scene.bring(LONG).unwrap_err();
    assert!(why.contains("no room left"), "{why}");
}

#[test]
fn a_copy_that_was_interrupted_goes_on_with_what_has_the_sum_of_the_source() {
    const SIZE: usize = 40 << 20;
    let journals = tempfile::tempdir().unwrap();
    let scene = Scene::of(SIZE, [Fault::None; 2]);
    let taken = || scene.to.taken.load(Ordering::Relaxed);
    let third_party = scene.third_party(Some(journals.path())).unwrap();
    scene.bring_by(&*third_party, SIZE, &|| taken() > 20 << 20).unwrap_err();
    assert_eq!(scene.to.content("/f").unwrap(), b"old");
    let before = taken();
    let third_party = scene.third_party(Some(journals.path())).unwrap();
    assert_eq!(scene.bring_by(&*third_party, SIZE, &|| false), Ok(Carried::BetweenServers), "{:?}", scene.told());
    assert!(scene.to.content("/f") == Some(data(SIZE)));
    assert!(taken() - before <= SIZE - (16 << 20), "the first 16 MiB are there: {}", taken() - before);
    assert_eq!(scene.to.paths(), ["/f"]);
}

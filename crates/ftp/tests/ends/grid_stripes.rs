//! Striped servers of GridFTP: a front end, and data nodes at other addresses.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use haul_ftp::{FtpServer, FtpSource, OpenOptions, Settings};
use haul_store::{Access, Metadata, SourceTree, TargetTree};

use crate::grid::{data, plan, whole};
use crate::grid_server::{Fault, GridServer};

/// Worth all data nodes.
const STRIPED: usize = (9 << 20) + 17;

/// A server, and what was told of it.
struct Scene {
    server: GridServer,
    told: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn of(fault: Fault, size: usize) -> Scene {
        Scene { server: GridServer::start(&[("/f", &data(size))], fault), told: Arc::default() }
    }

    fn settings(&self) -> Settings {
        let hears = Arc::clone(&self.told);
        let tell = Box::new(move |text| hears.lock().unwrap().push(text));
        Settings { tell, ..self.server.settings() }
    }

    fn source(&self) -> Arc<dyn SourceTree> {
        FtpSource::open(self.settings(), &[b"/f".to_vec()]).unwrap()
    }

    fn read(&self, size: usize) -> std::io::Result<Vec<u8>> {
        whole(&self.source().open(0, b"f").unwrap(), size)
    }

    /// Two files at once, so that each data node has one to carry.
    fn write(&self, size: usize) {
        let to = FtpServer::new(self.settings());
        let (target, _) = to.open(b"/", OpenOptions::default()).unwrap();
        let drafts = [&b"f"[..], b"g"].map(|path| target.new_draft_of(path, &plan(size)).unwrap());
        for draft in &drafts {
            for (bytes, number) in data(size).chunks(1 << 20).zip(0_u64..) {
                draft.write_at(bytes, number << 20).unwrap();
            }
        }
        for draft in drafts {
            draft.commit(&Metadata::default(), true).unwrap();
        }
        assert!(["/f", "/g"].iter().all(|path| self.server.content(path) == Some(data(size))));
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }
}

#[test]
fn a_long_file_comes_from_all_data_nodes_in_order() {
    for fault in [Fault::Striped, Fault::StripeStranger] {
        let scene = Scene::of(fault, STRIPED);
        assert_eq!(scene.source().access(), Access::Sequential);
        assert!(scene.read(STRIPED).unwrap() == data(STRIPED), "{fault:?}");
        assert_eq!(["SPOR", "RETR", "ERET", "MODE S"].map(|verb| scene.server.count(verb)), [1, 1, 0, 0], "{fault:?}");
        assert_eq!(scene.told(), Vec::<String>::new());
    }
}

#[test]
fn a_short_file_and_a_part_come_from_one_data_node() {
    let scene = Scene::of(Fault::Striped, STRIPED);
    let file = scene.source().open(0, b"f").unwrap();
    let mut part = vec![0; 100_000];
    file.read_at(&mut part, 5 << 20).unwrap();
    assert!(part == data(STRIPED)[5 << 20..(5 << 20) + 100_000]);
    let short = Scene::of(Fault::Striped, 1000);
    assert!(short.read(1000).unwrap() == data(1000));
    for scene in [scene, short] {
        assert_eq!((scene.server.count("SPOR"), scene.told()), (0, vec![]));
    }
}

#[test]
fn what_data_nodes_leave_out_or_send_otherwise_comes_from_one_with_a_word() {
    for (fault, word) in [
        (Fault::StripeStaysAway, "out of its order"),
        (Fault::StripeSkips, "out of its order"),
        (Fault::StripeRepeats, "out of its order"),
    ] {
        let scene = Scene::of(fault, STRIPED);
        assert!(scene.read(STRIPED).unwrap() == data(STRIPED), "{fault:?}");
        let told = scene.told();
        assert!(matches!(&told[..], [text] if text.contains(word) && text.contains("over one data node")), "{told:?}");
        assert_eq!(scene.server.count("MODE S"), 0, "{fault:?}: blocks of one node are in order");
    }
}

#[test]
fn a_data_node_that_breaks_off_ends_no_file() {
    for (fault, word) in [(Fault::StripeIsCut, ""), (Fault::StripeCountsMore, "")] {
        let scene = Scene::of(fault, STRIPED);
        // What came counts, and the rest comes from one node.
        match scene.read(STRIPED) {
            Ok(content) => assert!(content == data(STRIPED), "{fault:?}"),
            Err(error) => assert!(error.to_string().contains(word), "{fault:?}: {error}"),
        }
    }
}

#[test]
fn uploads_spread_over_the_data_nodes_and_each_hears_its_own_end() {
    for size in [10, 1 << 20, STRIPED] {
        let scene = Scene::of(Fault::Striped, 1);
        scene.write(size);
        let nodes = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(*scene.server.came_from.lock().unwrap(), nodes.into(), "{size}");
        assert_eq!(scene.told(), Vec::<String>::new(), "{size}");
    }
}

#[test]
fn uploads_go_over_one_data_node_where_another_one_is_gone_which_is_told_once() {
    let scene = Scene::of(Fault::StripeIsGone, 1);
    scene.write(STRIPED);
    let told = scene.told();
    assert!(matches!(&told[..], [text] if text.contains("cannot be reached")), "{told:?}");
}

#[test]
fn hosts_that_a_server_may_not_name_get_no_data_which_is_told() {
    for (fault, word) in [
        (Fault::NamesOthers("224,0,0,1,200,1"), "may be another host"),
        (Fault::NamesOthers("0,0,0,0,200,1"), "may be another host"),
        (Fault::NamesOthers("127,0,0,2,0,25"), "another service"),
        (Fault::NamesOthers("here"), "names no data nodes"),
        (Fault::ManyStripes, "more than 16"),
    ] {
        let scene = Scene::of(fault, STRIPED);
        assert!(scene.read(STRIPED).unwrap() == data(STRIPED), "{fault:?}");
        scene.write(STRIPED);
        assert_eq!(["SPOR", "SPAS"].map(|verb| scene.server.count(verb)), [0, 2], "{fault:?}");
        let told = scene.told();
        // One line for each end.
        assert!(told.len() == 2 && told.iter().all(|text| text.contains(word)), "{fault:?}: {told:?}");
    }
}

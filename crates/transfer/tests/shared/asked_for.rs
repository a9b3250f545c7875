//! Makes requests for copies from another host, for the tests that check answers against them.

use haul_copy::asked_for::AskedFor;
use haul_job::{Carriage, Endpoint, Far, Here, Job, Place, Selection, SshOptions};

pub fn asked_for(source: &str, change: impl FnOnce(&mut Job)) -> AskedFor {
    let place = Far::Ssh { user: None, host: "there".into(), port: None };
    let sources = vec![Endpoint { place: place.into(), path: source.into() }];
    let target = Endpoint { place: Place::Here(Here::Disk), path: b"to".to_vec() };
    let mut job = Job {
        movers: Vec::new(),
        files_from: None,
        sources,
        target,
        selection: Selection::default(),
        carriage: Carriage::default(),
        ssh: SshOptions::default(),
    };
    change(&mut job);
    AskedFor::of(&job).unwrap()
}

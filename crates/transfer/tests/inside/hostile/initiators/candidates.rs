//! Tests initiators that have a daemon dial foreign addresses: dials are bounded, refused, and logged.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use haul_wire::limits::MAX_CANDIDATES;

use super::*;

#[derive(Default)]
struct LogBook(Mutex<Vec<String>>);

impl Observer for LogBook {
    fn on_event(&self, _: &Event) {}
}

impl Visit for LogBook {
    fn on_root(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn on_unfenced(&self, _: &str) {}

    fn on_role(&self, _: &Role) {}

    fn on_path(&self, _: u16, _: IpAddr, _: IpAddr) {}

    fn on_path_gone(&self, _: u16) {}

    fn on_refused(&self, why: &str) {
        self.0.lock().unwrap().push(why.to_owned());
    }

    fn on_list(&self, _: usize) -> bool {
        true
    }

    fn on_job_end(&self, _: Option<&Error>) {}

    fn next_job(&self) -> Result<Grant, Error> {
        Err(Error::new(Fault::Authentication, "there is one job"))
    }
}

fn daemon(book: &Arc<LogBook>) -> Peer {
    let carriage = wire::Carriage { ciphers: vec![1], ..carriage(20_000) };
    let role = Role::Receiver { target: b"target".to_vec() };
    watched(role, carriage, (bare(), wire::Listed::Nothing), Some(Arc::clone(book) as Arc<dyn Visit>))
}

fn at(address: [u8; 4], port: u16) -> Candidate {
    Candidate { address: Address::V4(address), port }
}

fn dial(candidates: Vec<Candidate>) -> Control {
    Control::Dial(Dial { candidates, lanes: 1, several_paths: true, timeout_ms: 1000 })
}

#[test]
fn addresses_that_lead_to_no_host_and_further_ports_are_refused_and_told() {
    let book = Arc::new(LogBook::default());
    let mut peer = daemon(&book);
    let (link_local, multicast, nobody) = ([169, 254, 169, 254], [239, 1, 1, 1], [0, 0, 0, 0]);
    let candidates = vec![at(link_local, 80), at(multicast, 80), at(nobody, 80), at([192, 0, 2, 1], 22)];
    peer.says(&dial(candidates));
    peer.hears(|message| matches!(message, Control::DialFailed { .. }).then_some(()));
    let told = book.0.lock().unwrap().clone();
    for (refused, of) in told.iter().zip(["169.254.169.254", "239.1.1.1", "0.0.0.0", "192.0.2.1:22"]) {
        assert!(refused.starts_with(of) && refused.contains("not dialled"), "{told:?}");
    }
    assert_eq!(told.len(), 4, "{told:?}");
}

#[test]
fn ten_thousand_addresses_end_the_session_and_none_is_dialled() {
    let count = 10_000;
    assert!(count > MAX_CANDIDATES);
    for many in
        [dial(vec![at([192, 0, 2, 1], 80); count]), Control::Addresses(vec![Address::V4([192, 0, 2, 1]); count])]
    {
        let book = Arc::new(LogBook::default());
        let mut peer = daemon(&book);
        peer.says(&many);
        let error = peer.ended().unwrap_err();
        assert_eq!(error.cause.as_deref(), Some("unreadable control message"), "{error:?}");
        assert!(book.0.lock().unwrap().is_empty());
    }
}

//! Tests whole jobs over lanes that the kernel seals, one of them damaged. `make guest` has a kernel with TLS.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use haul_job::{Event, Subject};
use haul_net::{Cipher, Identity, Stream};
use haul_pump::SendRoute;

use crate::scenarios::{Bench, copied_by, warnings};

/// Whether the kernel here seals. Under `make guest` it must.
pub fn kernel_seals() -> bool {
    let Err(error) = haul_net::seals_here() else { return true };
    assert!(std::env::var_os("HAUL_TEST_KERNEL_TLS").is_none(), "it was promised: {error}");
    eprintln!("skipped: {error}");
    false
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn encrypted(near: TcpStream, far: TcpStream) -> (Stream, Stream) {
    let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let server = thread::spawn(move || haul_net::server(far, &there, |_| true, &[Cipher::Aes128Gcm]));
    let near = haul_net::client(near, &here, |_| true, &[Cipher::Aes128Gcm]).unwrap().0;
    (near, server.join().unwrap().unwrap().0)
}

fn flipped(at: u64) -> ((Stream, Stream), JoinHandle<bool>) {
    let (near, carrier_in) = sockets();
    let (carrier_out, far) = sockets();
    let (back_in, back_out) = (carrier_out.try_clone().unwrap(), carrier_in.try_clone().unwrap());
    let carrier = thread::spawn(move || pass(carrier_in, carrier_out, at));
    thread::spawn(move || pass(back_in, back_out, u64::MAX));
    (encrypted(near, far), carrier)
}

fn pass(mut from: TcpStream, mut to: TcpStream, at: u64) -> bool {
    let mut block = vec![0; 10_000];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut block) {
        if (passed..passed + count as u64).contains(&at) {
            block[(at - passed) as usize] ^= 0x10;
        }
        passed += count as u64;
        if to.write_all(&block[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
    passed > at
}

#[test]
fn in_kernel_tls_every_route_copies_the_same_tree_although_a_bit_is_flipped() {
    if !kernel_seals() {
        return;
    }
    for (route, name) in SendRoute::ALL.into_iter().filter(|(route, _)| *route != SendRoute::Copy) {
        let bench = Bench::with_tree();
        let (near, far) = sockets();
        let (harmed, carrier) = flipped(300_000);
        let (report, events) = copied_by(route, &bench, vec![harmed, encrypted(near, far)]);
        bench.assert_equal();
        assert!(carrier.join().unwrap(), "{name}: nothing was flipped");
        assert_eq!((report.files_moved, report.failed, report.unverified), (201, 0, 0), "{name}");
        let told = warnings(&events);
        let sealed = events
            .iter()
            .any(|event| matches!(event, Event::Chose { what: Subject::Encryption, choice, .. } if choice == "by the kernel"));
        match route {
            SendRoute::RingSplice | SendRoute::RingCopy => {
                eprintln!("{name}: sealed by the kernel: {sealed}; {told:?}")
            }
            _ => assert!(sealed && !told.iter().any(|text| text.contains(name)), "{name}: {told:?}"),
        }
    }
}

//! A peer that shows somebody else's key.

use std::io::{self, Read};
use std::sync::mpsc;
use std::thread;

use crate::error::NetError;
use crate::identity::Identity;
use crate::public_key::PublicKey;
use crate::scenarios::{ALL_CIPHERS, tcp_pair};
use crate::tls;

/// Public keys are no secrets: different answers would tell which keys a server knows.
#[test]
fn of_a_key_that_is_shown_and_not_proved_nothing_is_said() {
    let answer_to = |is_listed: bool| {
        let (near, far) = tcp_pair();
        let (listed, server) = (Identity::generate().unwrap().public(), Identity::generate().unwrap());
        let shown = if is_listed { listed } else { Identity::generate().unwrap().public() };
        let poser = Identity::generate().unwrap().posing_as(shown);
        let (asks, asked) = mpsc::channel();
        let admit = move |key: &PublicKey| {
            asks.send(()).unwrap();
            *key == listed
        };
        let server = thread::spawn(move || tls::server(far, &server, admit, &ALL_CIPHERS).map(drop));
        let (mut near, _) = tls::client(near, &poser, |_| true, &ALL_CIPHERS).unwrap();
        let heard = near.read(&mut [0]).unwrap_err();
        let error = server.join().unwrap().unwrap_err();
        assert!(matches!(error, NetError::Unproved), "{error}");
        assert!(asked.try_recv().is_err(), "it is not looked at, which would take a time of its own");
        (heard.kind(), heard.to_string())
    };
    let listed = answer_to(true);
    assert_eq!(listed, answer_to(false));
    assert_ne!(listed.0, io::ErrorKind::PermissionDenied, "that the key is refused is no answer either");
    let (near, far) = tcp_pair();
    let (server, me) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let poser = Identity::generate().unwrap().posing_as(server.public());
    let thread = thread::spawn(move || tls::server(far, &poser, |_| true, &ALL_CIPHERS).map(drop));
    let error = tls::client(near, &me, |_| panic!("it was not proved"), &ALL_CIPHERS).unwrap_err();
    assert!(matches!(error, NetError::Unproved), "{error}");
    assert!(thread.join().unwrap().is_err());
}

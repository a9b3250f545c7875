//! Readers over TLS.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use haul_web::Limits;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::harness::{connect, serve, stand_in};

/// A reader that trusts the service of these tests.
fn reader() -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(stand_in("certificate.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// The service reads both at once, so nothing more comes to wake it.
#[test]
fn a_request_that_comes_with_the_end_of_the_handshake_is_answered() {
    let served = serve(Limits::default());
    let (mut socket, mut tls) = (connect(served.tls), reader());
    while tls.wants_write() {
        tls.write_tls(&mut socket).unwrap();
    }
    // Until our last words of the handshake are ready. A service that says nothing ends the test by the socket's time limit.
    while tls.is_handshaking() {
        assert!(tls.read_tls(&mut socket).unwrap() > 0);
        tls.process_new_packets().unwrap();
    }
    tls.writer().write_all(b"GET /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut segment = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut segment).unwrap();
    }
    socket.write_all(&segment).unwrap();
    let mut answer = Vec::new();
    rustls::Stream::new(&mut tls, &mut socket).read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"0123456789"), "{}", answer.escape_ascii());
}

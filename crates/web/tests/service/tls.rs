//! Readers over TLS.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use haul_net::policy::{CipherFloor, ClassList, NetworkClass, Terms};
use haul_net::{Cipher, Networks};
use haul_web::Limits;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::harness::{answers, connect, serve, stand_in};

fn reader() -> ClientConnection {
    reader_with(&ALL)
}

const ALL: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];

fn reader_with(ciphers: &[Cipher]) -> ClientConnection {
    let suites = ciphers.iter().map(|cipher| cipher.suite()).collect();
    reader_of(&rustls::version::TLS13, suites)
}

fn reader_of(version: &'static SupportedProtocolVersion, suites: Vec<SupportedCipherSuite>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(stand_in("certificate.pem")).unwrap()).unwrap();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = suites;
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// The service reads both at once: nothing more comes to wake it.
#[test]
fn a_request_that_comes_with_the_end_of_the_handshake_is_answered() {
    let served = serve(Limits::default());
    let (mut socket, mut tls) = (connect(served.tls), reader());
    while tls.wants_write() {
        tls.write_tls(&mut socket).unwrap();
    }
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

fn with_floor(cipher: CipherFloor) -> Networks {
    let class = NetworkClass {
        name: "loopback".into(),
        terms: Terms { cipher: Some(cipher), ..Terms::default() },
        ..NetworkClass::default()
    };
    let mut list = ClassList::default();
    list.add(class, &["127.0.0.0/8".parse().unwrap()], &[]).unwrap();
    Networks::only(vec![list])
}

/// The agreed cipher and the start of an answer. `None`: no connection.
fn agreed(service: SocketAddr, ciphers: &[Cipher]) -> Option<(CipherSuite, String)> {
    agreed_with(service, reader_with(ciphers))
}

fn agreed_with(service: SocketAddr, mut tls: ClientConnection) -> Option<(CipherSuite, String)> {
    let mut socket = connect(service);
    let mut answer = Vec::new();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ok()?;
    stream.read_to_end(&mut answer).ok()?;
    let status = String::from_utf8_lossy(&answer).chars().take("HTTP/1.1 200".len()).collect();
    Some((tls.negotiated_cipher_suite()?.suite(), status))
}

#[test]
fn a_class_that_wants_a_key_of_256_bits_gets_a_stronger_cipher_or_no_connection() {
    let served = serve(Limits::default());
    let likes_128 = |floor| {
        served.policies.replace(with_floor(floor));
        agreed(served.tls, &ALL).map(|(suite, status)| (suite, status == "HTTP/1.1 200"))
    };
    assert_eq!(likes_128(CipherFloor::Any), Some((CipherSuite::TLS13_AES_128_GCM_SHA256, true)));
    assert_eq!(likes_128(CipherFloor::Bits256), Some((CipherSuite::TLS13_AES_256_GCM_SHA384, true)));
    assert_eq!(agreed(served.tls, &[Cipher::Aes128Gcm]), None);
    let chacha = agreed(served.tls, &[Cipher::Chacha20Poly1305, Cipher::Aes128Gcm]).map(|agreed| agreed.0);
    assert_eq!(chacha, Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
}

#[test]
fn readers_of_tls_1_2_get_ciphers_that_are_as_strong() {
    let served = serve(Limits::default());
    let all = || rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
    let old = |floor| {
        served.policies.replace(with_floor(floor));
        agreed_with(served.tls, reader_of(&rustls::version::TLS12, all()))
            .map(|(suite, status)| (format!("{suite:?}"), status))
    };
    let (suite, status) = old(CipherFloor::Any).expect("a connection");
    assert!(suite.contains("ECDHE") && !suite.contains("CBC") && status.ends_with("200"), "{suite} {status}");
    let (suite, status) = old(CipherFloor::Bits256).expect("a connection");
    assert!(suite.contains("ECDHE") && !suite.contains("_128_") && status.ends_with("200"), "{suite} {status}");
}

#[test]
fn a_class_that_wants_a_cipher_is_answered_with_403_in_the_clear() {
    let served = serve(Limits::default());
    let status = |floor| {
        served.policies.replace(with_floor(floor));
        let request = b"GET /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        String::from_utf8_lossy(&answers(served.address, request))
            .chars()
            .take("HTTP/1.1 200".len())
            .collect::<String>()
    };
    assert_eq!(status(CipherFloor::Any), "HTTP/1.1 403");
    assert_eq!(status(CipherFloor::Bits256), "HTTP/1.1 403");
    assert_eq!(status(CipherFloor::Clear), "HTTP/1.1 200");
}

//! TLS for the web: the host's certificate, and readers' certificates if some are known.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use haul_net::policy::CipherFloor;
use haul_net::{Cipher, preferred_ciphers};
use haul_sys::own::{self, Weight};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite as suite;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use crate::access::Access;

/// The settings of TLS.
pub struct Config {
    any: TlsAcceptor,
    bits256: TlsAcceptor,
    current: Arc<Current>,
}

impl Config {
    /// Reads the files again, for later connections. If they do not match, the earlier ones stay.
    pub fn renew(&self, certificate: &Path, key: &Path) -> io::Result<()> {
        let pair = read(certificate, key)?;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(())
    }

    pub(crate) fn acceptor(&self, floor: Option<CipherFloor>) -> &TlsAcceptor {
        match floor {
            Some(CipherFloor::Bits256) => &self.bits256,
            Some(CipherFloor::Clear | CipherFloor::Any) | None => &self.any,
        }
    }
}

/// Reads a certificate with its chain, and its key, as PEM.
pub fn config(certificate: &Path, key: &Path, access: Arc<dyn Access>) -> io::Result<Arc<Config>> {
    let current = Arc::new(Current(RwLock::new(read(certificate, key)?)));
    let acceptor = |floor| acceptor(floor, Arc::clone(&current), Arc::clone(&access));
    let (any, bits256) = (acceptor(CipherFloor::Any)?, acceptor(CipherFloor::Bits256)?);
    Ok(Arc::new(Config { any, bits256, current }))
}

fn read(certificate: &Path, key: &Path) -> io::Result<Arc<CertifiedKey>> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(error, "certificate"))?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound, "certificate"));
    }
    let key = private_key(key)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(io::Error::other)
}

/// Refuses a key that other users may read: they could pose as this host.
fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    let mut text = Zeroizing::new(Vec::new());
    own::open(path, Weight::NamedSecret)?.take(MAX_KEY_BYTES).read_to_end(&mut text)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| unreadable(error, "private key"))
}

fn unreadable(error: pem::Error, what: &str) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        pem::Error::NoItemsFound => io::Error::other(format!("there is no {what} in PEM in it")),
        other => io::Error::other(other),
    }
}

/// A key with its chain takes a hundredth.
const MAX_KEY_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn acceptor(floor: CipherFloor, current: Arc<Current>, access: Arc<dyn Access>) -> io::Result<TlsAcceptor> {
    let ciphers = preferred_ciphers(None).into_iter().filter(|cipher| floor.allows(Some(*cipher)));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites =
        ciphers.flat_map(|cipher| [&[cipher.suite()], &suites_of_1_2(cipher)[..]].concat()).collect();
    let provider = Arc::new(provider);
    let verifier = Arc::new(ByFingerprint { provider: Arc::clone(&provider), access });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(current);
    // A client with other protocols only is refused in the handshake.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Suites of TLS 1.2, for older programs of data centres and instruments. They are as strong: ECDHE, and authenticated encryption
/// (RFC 9325, section 4.2).
fn suites_of_1_2(cipher: Cipher) -> [SupportedCipherSuite; 2] {
    match cipher {
        Cipher::Aes128Gcm => {
            [suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
        }
        Cipher::Aes256Gcm => {
            [suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]
        }
        Cipher::Chacha20Poly1305 => {
            [suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]
        }
    }
}

/// Accepts any certificate whose key is proved; the list of keys gives it its rights.
struct ByFingerprint {
    provider: Arc<CryptoProvider>,
    access: Arc<dyn Access>,
}

impl std::fmt::Debug for ByFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByFingerprint")
    }
}

impl ClientCertVerifier for ByFingerprint {
    fn offer_client_auth(&self) -> bool {
        self.access.knows_certificates()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

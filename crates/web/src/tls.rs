//! TLS for the web: a certificate of the host, and readers' certificates where some are known.

use std::io;
use std::path::Path;
use std::sync::Arc;

use haul_net::policy::CipherFloor;
use haul_net::{Cipher, preferred_ciphers};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;

/// How TLS is spoken.
pub struct Config {
    any: TlsAcceptor,
    /// For network classes that want a key of 256 bits.
    bits256: TlsAcceptor,
}

impl Config {
    /// For a reader whose class has this floor.
    pub(crate) fn acceptor(&self, floor: Option<CipherFloor>) -> &TlsAcceptor {
        match floor {
            Some(CipherFloor::Bits256) => &self.bits256,
            Some(CipherFloor::Clear | CipherFloor::Any) | None => &self.any,
        }
    }
}

/// Reads a certificate with its chain, and its key, both as PEM.
pub fn config(certificate: &Path, key: &Path, access: Arc<dyn Access>) -> io::Result<Arc<Config>> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let acceptor = |floor| acceptor(floor, chain.clone(), key.clone_key(), Arc::clone(&access));
    Ok(Arc::new(Config { any: acceptor(CipherFloor::Any)?, bits256: acceptor(CipherFloor::Bits256)? }))
}

fn acceptor(
    floor: CipherFloor,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    access: Arc<dyn Access>,
) -> io::Result<TlsAcceptor> {
    let ciphers = preferred_ciphers(None).into_iter().filter(|cipher| floor.allows(Some(*cipher)));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = ciphers.map(Cipher::suite).collect();
    let provider = Arc::new(provider);
    let verifier = Arc::new(ByFingerprint { provider: Arc::clone(&provider), access });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    // Whoever offers other protocols alone is refused in the handshake.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Any certificate may be shown, as long as its key is proved. The list of keys says what it is worth.
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken here".to_owned()))
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

//! TLS 1.3 with raw public keys at both ends. rustls shakes hands; `record` carries the bulk.
//!
//! The handshake keeps to the transport's deadline, without certificates, tickets, resumption or early data, and demands the
//! protocol `haul/1`. It refuses an unknown key: a stranger never reaches a parser of messages.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConnectionData, Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::kernel::KernelConnection;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ServerConnectionData, UnbufferedServerConnection,
};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConnectionTrafficSecrets, DigitallySignedStruct,
    DistinguishedName, ExtractedSecrets, PeerIncompatible, ServerConfig, SignatureScheme, SupportedCipherSuite,
};

use haul_sys::tcp_info;

use crate::cipher::Cipher;
use crate::control::{KeySchedule, NextSecrets};
use crate::error::NetError;
use crate::identity::Identity;
use crate::limits;
use crate::public_key::PublicKey;
use crate::record::{self, Opener, RecordKey, Sealer};
use crate::stream::{Stream, TagKeys};
use crate::transport::{Link, Transport};

/// Shakes hands as the end that connected. Returns the stream and the peer's proved key.
///
/// The client is done before the server has judged its key: a refusal is `PermissionDenied` in the first read.
pub fn client(
    transport: impl Into<Transport>,
    me: &Identity,
    expect: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ciphers: &[Cipher],
) -> Result<(Stream, PublicKey), NetError> {
    let link = Arc::new(Link::new(transport.into()));
    client_over(link, me, expect, ciphers, 0, limits::HANDSHAKE_DEADLINE)
}

/// [`client`] with a first flight that fills the congestion window, which its acknowledgement doubles. It is padded with
/// unknown application protocols, which a server ignores (RFC 7301, 3.2): rustls lacks RFC 7685.
pub fn client_padded(
    transport: impl Into<Transport>,
    me: &Identity,
    expect: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ciphers: &[Cipher],
) -> Result<(Stream, PublicKey), NetError> {
    let link = Arc::new(Link::new(transport.into()));
    let info = link.tcp().and_then(|tcp| tcp_info::tcp_info(tcp).ok());
    let window_bytes = info.map_or(0, |info| u64::from(info.snd_cwnd) * u64::from(info.snd_mss_bytes));
    let flight_bytes = usize::try_from(window_bytes).unwrap_or(usize::MAX);
    client_over(link, me, expect, ciphers, flight_bytes, limits::HANDSHAKE_DEADLINE)
}

/// Shakes hands as the end that accepted. Returns the stream and the peer's proved key.
pub fn server(
    transport: impl Into<Transport>,
    me: &Identity,
    admit: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ciphers: &[Cipher],
) -> Result<(Stream, PublicKey), NetError> {
    let link = Arc::new(Link::new(transport.into()));
    let done = server_over(Arc::clone(&link), me, admit, ciphers, limits::HANDSHAKE_DEADLINE)?;
    lift_deadline(&link)?;
    Ok(done)
}

pub(crate) fn client_over(
    link: Arc<Link>,
    me: &Identity,
    expect: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ciphers: &[Cipher],
    flight_bytes: usize,
    deadline: Duration,
) -> Result<(Stream, PublicKey), NetError> {
    let gate = Arc::new(Gate::new(expect));
    let mut config = ClientConfig::builder_with_provider(provider_with(ciphers))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(handshake_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Gate>::clone(&gate))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(me.certified())));
    config.alpn_protocols = std::iter::once(ALPN.to_vec()).chain(padding(flight_bytes)).collect();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.enable_secret_extraction = true;
    // The name is not sent: the key decides.
    let name = ServerName::try_from("haul").map_err(handshake_error)?;
    let mut connection = UnbufferedClientConnection::new(Arc::new(config), name).map_err(handshake_error)?;
    link.set_deadline(Some(deadline)).map_err(deadline_error)?;
    let early = shake_hands(&link, &mut connection, &gate, deadline)?;
    check_protocol(connection.alpn_protocol())?;
    let cipher = negotiated(connection.negotiated_cipher_suite())?;
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(handshake_error)?;
    lift_deadline(&link)?;
    established(link, &gate, secrets, Box::new(kernel), cipher, &early)
}

/// Names that bring a hello to so many bytes, in one record.
fn padding(flight_bytes: usize) -> impl Iterator<Item = Vec<u8>> {
    let bytes = flight_bytes.min(limits::RECORD_PLAIN_BYTES).saturating_sub(limits::HELLO_BYTES_MAX);
    std::iter::repeat_n(vec![b'-'; LONGEST_NAME_BYTES], bytes / (1 + LONGEST_NAME_BYTES))
}

pub(crate) fn server_over(
    link: Arc<Link>,
    me: &Identity,
    admit: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ciphers: &[Cipher],
    deadline: Duration,
) -> Result<(Stream, PublicKey), NetError> {
    let gate = Arc::new(Gate::new(admit));
    let mut config = ServerConfig::builder_with_provider(provider_with(ciphers))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(handshake_error)?
        .with_client_cert_verifier(Arc::<Gate>::clone(&gate))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(me.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A one-way sender never reads tickets: its close would be a reset, and truncate the last bytes.
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.enable_secret_extraction = true;
    let mut connection = UnbufferedServerConnection::new(Arc::new(config)).map_err(handshake_error)?;
    link.set_deadline(Some(deadline)).map_err(deadline_error)?;
    let early = shake_hands(&link, &mut connection, &gate, deadline)?;
    check_protocol(connection.alpn_protocol())?;
    let cipher = negotiated(connection.negotiated_cipher_suite())?;
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(handshake_error)?;
    established(link, &gate, secrets, Box::new(kernel), cipher, &early)
}

fn shake_hands(link: &Link, connection: &mut dyn Party, gate: &Gate, deadline: Duration) -> Result<Vec<u8>, NetError> {
    let mut input = Vec::new();
    let mut outgoing = Vec::new();
    let io_error = |cause: io::Error| match cause.kind() {
        io::ErrorKind::TimedOut => NetError::Timeout { what: "the TLS handshake", after: deadline },
        // Closing with our bytes unread causes a reset.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => NetError::HungUp,
        _ => NetError::Handshake { cause: cause.to_string() },
    };
    // rustls gets one record at a time: it would refuse clear bytes behind the handshake.
    let mut shown = 0;
    loop {
        let (discard, step) = connection.step(&mut input[..shown], &mut outgoing);
        input.drain(..discard);
        shown -= discard;
        match step {
            Ok(Step::Again) => {}
            Ok(Step::Send) => link.write_all(&std::mem::take(&mut outgoing)).map_err(io_error)?,
            Ok(Step::Receive) => {
                shown += loop {
                    if let Some(bytes) = record::first_to_judge(&input[shown..]) {
                        break bytes;
                    }
                    let start = input.len();
                    if start >= limits::HANDSHAKE_INPUT_BYTES {
                        return Err(handshake_error("the peer sends too much"));
                    }
                    input.resize(start + limits::HANDSHAKE_READ_BYTES, 0);
                    let received = link.read(&mut input[start..]).map_err(io_error)?;
                    input.truncate(start + received);
                    if received == 0 {
                        return Err(io_error(io::ErrorKind::UnexpectedEof.into()));
                    }
                };
            }
            Ok(Step::Done) => return Ok(input),
            Err(error) => {
                tell_alert(link, connection, &mut input[..shown], &error);
                return Err(judge(error, gate));
            }
        }
    }
}

/// Sends rustls' alert, if the peer is still there.
fn tell_alert(link: &Link, connection: &mut dyn Party, incoming: &mut [u8], error: &rustls::Error) {
    if matches!(error, rustls::Error::AlertReceived(_)) {
        return;
    }
    // The step takes the alert first, so rustls does not judge the same input twice.
    let mut alert = Vec::new();
    drop(connection.step(incoming, &mut alert));
    if !alert.is_empty() && link.write_all(&alert).is_ok() {
        // Unread input would make our close a reset, which may overtake the alert.
        drop(link.finish_write());
        drop(link.set_deadline(Some(ALERT_LINGER)));
        let mut rest = [0; 4096];
        for _ in 0..16 {
            if !matches!(link.read(&mut rest), Ok(1..)) {
                break;
            }
        }
    }
}

fn judge(error: rustls::Error, gate: &Gate) -> NetError {
    match gate.verdict() {
        Some(Verdict::Refused(got)) => return NetError::WrongKey { got },
        Some(Verdict::Unproved) => return NetError::Unproved,
        Some(Verdict::Admitted(_)) | None => {}
    }
    match error {
        rustls::Error::InvalidCertificate(cause) if cause == REFUSAL => {
            handshake_error("the peer's key is not an Ed25519 key")
        }
        rustls::Error::AlertReceived(AlertDescription::AccessDenied) => NetError::KeyRefused,
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | rustls::Error::NoApplicationProtocol => {
            handshake_error("the two ends speak different protocols; ours is haul/1")
        }
        rustls::Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            NetError::NoCommonCipher { said: "the two ends admit no common cipher" }
        }
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            NetError::NoCommonCipher { said: "the peer says that the two ends admit no common cipher or kind of key" }
        }
        rustls::Error::InvalidMessage(_) => handshake_error("the peer does not speak TLS"),
        error => handshake_error(error),
    }
}

fn established(
    link: Arc<Link>,
    gate: &Gate,
    secrets: ExtractedSecrets,
    kernel: Box<dyn NextSecrets>,
    cipher: Cipher,
    early: &[u8],
) -> Result<(Stream, PublicKey), NetError> {
    let Some(Verdict::Admitted(peer)) = gate.verdict() else {
        return Err(handshake_error("the peer showed no key"));
    };
    let schedule = KeySchedule::new(kernel);
    let tag_keys = TagKeys {
        send: RecordKey::tag_key(&secrets.tx.1).map_err(handshake_error)?,
        receive: RecordKey::tag_key(&secrets.rx.1).map_err(handshake_error)?,
    };
    let receive = RecordKey::new(secrets.rx).map_err(handshake_error)?;
    let send = RecordKey::new(secrets.tx).map_err(handshake_error)?;
    let opener = Opener::new(receive, Arc::clone(&schedule), early);
    let sealer = Sealer::new(send, schedule);
    Ok((Stream::over_tls(link, opener, sealer, cipher, tag_keys), peer))
}

enum Step {
    Again,
    Send,
    Receive,
    Done,
}

trait Party {
    fn step(&mut self, incoming: &mut [u8], outgoing: &mut Vec<u8>) -> (usize, Result<Step, rustls::Error>);
}

impl Party for UnbufferedClientConnection {
    fn step(&mut self, incoming: &mut [u8], outgoing: &mut Vec<u8>) -> (usize, Result<Step, rustls::Error>) {
        advance(self.process_tls_records(incoming), outgoing)
    }
}

impl Party for UnbufferedServerConnection {
    fn step(&mut self, incoming: &mut [u8], outgoing: &mut Vec<u8>) -> (usize, Result<Step, rustls::Error>) {
        advance(self.process_tls_records(incoming), outgoing)
    }
}

fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let discard = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let step = match state {
        ConnectionState::EncodeTlsData(mut message) => {
            let start = outgoing.len();
            let mut room = 0;
            loop {
                outgoing.resize(start + room, 0);
                match message.encode(&mut outgoing[start..]) {
                    Ok(_) => break,
                    Err(EncodeError::InsufficientSize(need)) => room = need.required_size,
                    Err(EncodeError::AlreadyEncoded) => break,
                }
            }
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Ok(Step::Send)
        }
        ConnectionState::BlockedHandshake => Ok(Step::Receive),
        ConnectionState::WriteTraffic(_) => Ok(Step::Done),
        _ => Err(rustls::Error::General("the peer ended the connection within the handshake".to_owned())),
    };
    (discard, step)
}

impl NextSecrets for KernelConnection<ClientConnectionData> {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }
}

impl NextSecrets for KernelConnection<ServerConnectionData> {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }
}

/// Judges the peer's key in the handshake. Unproved, every key gets the same answer.
struct Gate {
    admit: Box<dyn Fn(&PublicKey) -> bool + Send + Sync>,
    verdict: Mutex<Option<Verdict>>,
}

#[derive(Clone, Copy)]
enum Verdict {
    Unproved,
    Refused(PublicKey),
    Admitted(PublicKey),
}

impl Gate {
    fn new(admit: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Gate {
        Gate { admit: Box::new(admit), verdict: Mutex::new(None) }
    }

    fn look_at(spki: &CertificateDer<'_>) -> Result<PublicKey, rustls::Error> {
        Ok(PublicKey::from_spki(spki).ok_or(REFUSAL)?)
    }

    fn judge(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = Gate::look_at(spki)?;
        let proof = rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(spki.as_ref()),
            signature,
            &provider::default_provider().signature_verification_algorithms,
        );
        let verdict = match &proof {
            Err(_) => Verdict::Unproved,
            Ok(_) if (self.admit)(&key) => Verdict::Admitted(key),
            Ok(_) => Verdict::Refused(key),
        };
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        match verdict {
            Verdict::Refused(_) => Err(REFUSAL.into()),
            Verdict::Unproved | Verdict::Admitted(_) => proof,
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer is told `access_denied`.
const REFUSAL: CertificateError = CertificateError::ApplicationVerificationFailure;

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl ServerCertVerifier for Gate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Gate::look_at(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.judge(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Gate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Gate::look_at(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.judge(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

const ALPN: &[u8] = b"haul/1";
/// RFC 7301, 3.1.
const LONGEST_NAME_BYTES: usize = 255;
/// Lets the other end read an alert.
const ALERT_LINGER: Duration = Duration::from_millis(500);

pub(crate) fn provider_with(ciphers: &[Cipher]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: ciphers.iter().map(|cipher| cipher.suite()).collect(),
        ..provider::default_provider()
    })
}

fn check_protocol(negotiated: Option<&[u8]>) -> Result<(), NetError> {
    match negotiated {
        Some(ALPN) => Ok(()),
        _ => Err(handshake_error("the peer does not speak haul/1")),
    }
}

fn negotiated(suite: Option<SupportedCipherSuite>) -> Result<Cipher, NetError> {
    [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305]
        .into_iter()
        .find(|cipher| Some(cipher.suite()) == suite)
        .ok_or_else(|| handshake_error("an unknown cipher was agreed on"))
}

fn lift_deadline(link: &Link) -> Result<(), NetError> {
    link.set_deadline(None).map_err(deadline_error)
}

fn deadline_error(cause: io::Error) -> NetError {
    NetError::Io { what: "cannot set a time limit", cause }
}

fn handshake_error(cause: impl ToString) -> NetError {
    NetError::Handshake { cause: cause.to_string() }
}

#[cfg(test)]
pub(crate) fn admit_everybody() -> Arc<impl ServerCertVerifier + ClientCertVerifier> {
    Arc::new(Gate::new(|_| true))
}

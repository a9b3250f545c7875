//! Who an end is: an Ed25519 key pair. The public key is all a peer needs to know.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::error::NetError;

/// A private key. It is never printed, and its memory is cleared when it goes.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Makes a new key from the system's randomness.
    pub fn generate() -> Result<Identity, NetError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| key_error("the system gave no randomness"))?;
        Identity::from_pkcs8(document.as_ref())
    }

    /// Takes a key in PKCS #8 form, version 1 or 2.
    pub fn from_pkcs8(der: &[u8]) -> Result<Identity, NetError> {
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|rejected| key_error(&rejected.to_string()))?;
        let public = PublicKey(
            pair.public_key().as_ref().try_into().map_err(|_| key_error("its public half has a wrong length"))?,
        );
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der));
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private)
            .map_err(|error| key_error(&error.to_string()))?;
        // RFC 7250: the "certificate" of a raw key is its SubjectPublicKeyInfo.
        let spki = CertificateDer::from(public.to_spki());
        Ok(Identity {
            pkcs8: Zeroizing::new(der.to_vec()),
            public,
            certified: Arc::new(CertifiedKey::new(vec![spki], signer)),
        })
    }

    /// The key in PKCS #8 form, for a key file. Keep it secret.
    pub fn to_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        self.pkcs8.clone()
    }

    /// Takes the text of a key file.
    pub fn from_pem(text: &str) -> Result<Identity, NetError> {
        let body = text
            .split_once(PEM_BEGIN)
            .and_then(|(_, rest)| rest.split_once(PEM_END))
            .map(|(body, _)| body)
            .ok_or_else(|| key_error("no BEGIN and END PRIVATE KEY lines"))?;
        let der = base64_decode(body).map(Zeroizing::new).ok_or_else(|| key_error("its base64 is damaged"))?;
        Identity::from_pkcs8(&der)
    }

    /// The text of a key file. Keep it secret.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(base64_encode(&self.pkcs8, true));
        // A text that grew would leave what it was in memory.
        let bytes = PEM_BEGIN.len() + PEM_END.len() + 2 + body.len() + body.len().div_ceil(PEM_LINE_CHARS);
        let mut text = Zeroizing::new(String::with_capacity(bytes));
        text.push_str(PEM_BEGIN);
        text.push('\n');
        for line in body.as_bytes().chunks(PEM_LINE_CHARS) {
            text.extend(line.iter().map(|byte| char::from(*byte)));
            text.push('\n');
        }
        text.push_str(PEM_END);
        text.push('\n');
        debug_assert_eq!(text.len(), bytes, "it did not grow");
        text
    }

    /// The half that may be told to everybody.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Shows the key of another, and can only sign with its own.
    #[cfg(test)]
    pub(crate) fn posing_as(self, other: PublicKey) -> Identity {
        let signer = Arc::clone(&self.certified.key);
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(other.to_spki())], signer));
        Identity { certified, ..self }
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

/// A raw Ed25519 public key. As text it is one word: `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// A short name for people to compare, in the manner of ssh: `SHA256:` and base64 of the digest.
    pub fn fingerprint(&self) -> String {
        let digest = digest::digest(&digest::SHA256, &self.to_spki());
        format!("SHA256:{}", base64_encode(digest.as_ref(), false))
    }

    pub(crate) fn to_spki(self) -> Vec<u8> {
        [SPKI_PREFIX.as_slice(), &self.0].concat()
    }

    pub(crate) fn from_spki(der: &[u8]) -> Option<PublicKey> {
        let key = der.strip_prefix(&SPKI_PREFIX)?;
        Some(PublicKey(key.try_into().ok()?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TEXT_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = NetError;

    fn from_str(text: &str) -> Result<PublicKey, NetError> {
        let digits =
            text.strip_prefix(TEXT_PREFIX).ok_or_else(|| key_error("a public key begins with \"ed25519:\""))?;
        let digits = digits.as_bytes();
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() {
            return Err(key_error("a public key has 64 hexadecimal digits"));
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
                return Err(key_error("a public key has 64 hexadecimal digits"));
            };
            *byte = (high * 16 + low) as u8;
        }
        Ok(PublicKey(key))
    }
}

/// DER of "SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes }" up to the key itself (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const TEXT_PREFIX: &str = "ed25519:";
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
const PEM_LINE_CHARS: usize = 64;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn key_error(cause: &str) -> NetError {
    NetError::Key { cause: cause.to_owned() }
}

fn base64_encode(bytes: &[u8], pad: bool) -> String {
    // What is encoded may be secret: a text that grew would leave what it was in memory.
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(*group.get(at).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= group.len() {
                let value = bits >> (18 - 6 * digit) & 63;
                text.push(char::from(BASE64[value as usize]));
            } else if pad {
                text.push('=');
            }
        }
    }
    text
}

/// White space is skipped and padding may be missing; anything else that is not base64 is `None`.
fn base64_decode(text: &str) -> Option<Vec<u8>> {
    // As above; three bytes are four digits.
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut bit_count) = (0u32, 0);
    let digits = text.trim_end_matches(|c: char| c == '=' || c.is_ascii_whitespace());
    for digit in digits.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = BASE64.iter().position(|known| *known == digit)?;
        bits = bits << 6 | value as u32;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
            bits &= (1 << bit_count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file() {
        let identity = Identity::generate().unwrap();
        let again = Identity::from_pem(&identity.to_pem()).unwrap();
        assert_eq!(again.public(), identity.public());
        assert_eq!(again.to_pkcs8(), identity.to_pkcs8());
        assert!(Identity::from_pem("nothing").is_err());
        assert!(Identity::from_pkcs8(&[1, 2, 3]).is_err());
    }

    #[test]
    fn debug_shows_the_public_half_only() {
        let identity = Identity::generate().unwrap();
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.public()));
    }

    #[test]
    fn a_public_key_survives_its_text() {
        let key = Identity::generate().unwrap().public();
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        for wrong in ["", "ed25519:", "ed25519:zz", &key.to_string()[..71]] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong:?}");
        }
        assert!(format!("ed25519:{}", "é".repeat(32)).parse::<PublicKey>().is_err());
        assert_eq!(key.fingerprint().len(), "SHA256:".len() + 43);
    }

    #[test]
    fn base64_agrees_with_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64_encode(bytes.as_bytes(), true), text);
            assert_eq!(base64_decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(base64_decode("Zm-v"), None);
    }
}

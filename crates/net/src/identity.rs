//! Who an end is: an Ed25519 key pair, of which a peer needs the public key.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::base64;
use crate::error::NetError;
use crate::public_key::{BadKey, PublicKey};

/// A private key, never printed, and cleared when dropped.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Makes a new random key.
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
        // The "certificate" of a raw key is its SubjectPublicKeyInfo (RFC 7250).
        let spki = CertificateDer::from(public.to_spki());
        Ok(Identity {
            pkcs8: Zeroizing::new(der.to_vec()),
            public,
            certified: Arc::new(CertifiedKey::new(vec![spki], signer)),
        })
    }

    /// The key in PKCS #8 form. Keep it secret.
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
        let der = base64::decode(body).map(Zeroizing::new).ok_or_else(|| key_error("its base64 is damaged"))?;
        Identity::from_pkcs8(&der)
    }

    /// The text of a key file. Keep it secret.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(base64::encode(&self.pkcs8, true));
        // Growing would leave a copy of the key in memory.
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

    /// Derives a secret that shows nothing of the key.
    pub fn secret_for(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.pkcs8);
        let tag = hmac::sign(&key, purpose.as_bytes());
        Zeroizing::new(tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

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

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
const PEM_LINE_CHARS: usize = 64;

fn key_error(cause: &str) -> NetError {
    BadKey(cause.to_owned()).into()
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
}

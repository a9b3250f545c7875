//! The public half of a key: text, fingerprint, and form in TLS.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;

use crate::base64;

/// A raw Ed25519 public key; as text `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// A short name, as in ssh: `SHA256:` and base64 of the digest.
    pub fn fingerprint(&self) -> String {
        let digest = digest::digest(&digest::SHA256, &self.to_spki());
        format!("SHA256:{}", base64::encode(digest.as_ref(), false))
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
    type Err = BadKey;

    fn from_str(text: &str) -> Result<PublicKey, BadKey> {
        let digits =
            text.strip_prefix(TEXT_PREFIX).ok_or_else(|| BadKey::because("a public key begins with \"ed25519:\""))?;
        let digits = digits.as_bytes();
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() {
            return Err(BadKey::because("a public key has 64 hexadecimal digits"));
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
                return Err(BadKey::because("a public key has 64 hexadecimal digits"));
            };
            *byte = (high * 16 + low) as u8;
        }
        Ok(PublicKey(key))
    }
}

/// Why a key file or text is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a usable Ed25519 key: {0}")]
pub struct BadKey(pub(crate) String);

impl BadKey {
    fn because(cause: &str) -> BadKey {
        BadKey(cause.to_owned())
    }
}

/// DER of "SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes }" up to the key (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const TEXT_PREFIX: &str = "ed25519:";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

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
}

//! Base64 (RFC 4648) of keys, which may be secret, and of digests.

/// The text of bytes, padded.
pub fn encode_padded(bytes: &[u8]) -> String {
    encode(bytes, true)
}

pub(crate) fn encode(bytes: &[u8], pad: bool) -> String {
    // Growing would leave a copy of a secret in memory.
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

/// The bytes of base64 text. Skips white space; padding may be missing.
pub fn decode(text: &str) -> Option<Vec<u8>> {
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

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(bytes.as_bytes(), true), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("Zm-v"), None);
    }
}

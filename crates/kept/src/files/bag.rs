//! Reads the tag files of a bag (RFC 8493): `bagit.txt`, the names of its manifests, `Payload-Oxum`.

use haul_wire::hashed::Algorithm;

/// Makes a directory a bag.
pub const DECLARATION: &str = "bagit.txt";

/// Facts about the bag.
pub const INFO: &str = "bag-info.txt";

/// The payload's directory.
pub const PAYLOAD: &str = "data";

/// Most bytes of a tag file.
pub const MAX_TAG_BYTES: usize = 1 << 20;

/// A manifest of a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BagManifest {
    /// The file.
    pub name: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Whether it lists the payload.
    pub is_payload: bool,
}

/// Parses `manifest-sha256.txt` or `tagmanifest-md5.txt`.
pub fn manifest(name: &[u8]) -> Option<BagManifest> {
    let name = std::str::from_utf8(name).ok()?;
    let stem = name.strip_suffix(".txt")?;
    let (hash, is_payload) = match (stem.strip_prefix("manifest-"), stem.strip_prefix("tagmanifest-")) {
        (Some(hash), _) => (hash, true),
        (None, Some(hash)) => (hash, false),
        (None, None) => return None,
    };
    let algorithm = match hash.to_ascii_lowercase().as_str() {
        "blake3" => Algorithm::Blake3,
        "md5" => Algorithm::Md5,
        "sha1" => Algorithm::Sha1,
        "sha256" => Algorithm::Sha256,
        "sha512" => Algorithm::Sha512,
        _ => return None,
    };
    Some(BagManifest { name: name.to_owned(), algorithm, is_payload })
}

/// Whether `%25` in its manifests is a percent sign, as since version 1.0.
///
/// # Errors
/// The text is no declaration of a bag, or its names are not UTF-8.
pub fn escapes_percent(declaration: &[u8]) -> Result<bool, &'static str> {
    let declaration = declaration.strip_prefix(b"\xef\xbb\xbf").unwrap_or(declaration);
    let version = value(declaration, "BagIt-Version").ok_or("it has no line with BagIt-Version")?;
    let (major, minor) = version.split_once('.').ok_or("its version is no number")?;
    let major: u32 = major.parse().map_err(|_| "its version is no number")?;
    minor.parse::<u32>().map_err(|_| "its version is no number")?;
    let encoding = value(declaration, "Tag-File-Character-Encoding").ok_or("it does not say its encoding")?;
    match encoding.eq_ignore_ascii_case("UTF-8") {
        true => Ok(major >= 1),
        false => Err("its encoding is not UTF-8"),
    }
}

/// Reads `Payload-Oxum: bytes.files`, if any.
///
/// # Errors
/// The value is no pair of numbers.
pub fn payload(info: &[u8]) -> Result<Option<(u64, u64)>, &'static str> {
    let Some(oxum) = value(info, "Payload-Oxum") else { return Ok(None) };
    let pair = || {
        let (bytes, files) = oxum.split_once('.')?;
        Some((bytes.parse().ok()?, files.parse().ok()?))
    };
    pair().map(Some).ok_or("its Payload-Oxum is not of the form bytes.files")
}

fn value<'a>(text: &'a [u8], label: &str) -> Option<&'a str> {
    text.split(|byte| matches!(byte, b'\n' | b'\r')).find_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.trim().eq_ignore_ascii_case(label).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_is_known_by_its_words() {
        let text = |version: &str, encoding: &str| {
            format!("BagIt-Version: {version}\r\nTag-File-Character-Encoding: {encoding}\r\n").into_bytes()
        };
        assert_eq!(escapes_percent(&text("0.97", "UTF-8")), Ok(false));
        assert_eq!(escapes_percent(&text("1.0", "utf-8")), Ok(true));
        for bad in [text("1", "UTF-8"), text("1.0", "UTF-16"), b"words".to_vec()] {
            assert!(escapes_percent(&bad).is_err());
        }
        assert_eq!(payload(b"Source: x\nPayload-Oxum: 17.3\n"), Ok(Some((17, 3))));
        assert_eq!(payload(b"Source: x\n"), Ok(None));
        assert!(payload(b"Payload-Oxum: 17\n").is_err());
    }

    #[test]
    fn a_manifest_is_known_by_its_name() {
        let found = |name: &str| manifest(name.as_bytes()).map(|found| (found.algorithm, found.is_payload));
        assert_eq!(found("manifest-sha256.txt"), Some((Algorithm::Sha256, true)));
        assert_eq!(found("tagmanifest-MD5.txt"), Some((Algorithm::Md5, false)));
        for other in ["manifest-crc32.txt", "manifest-md5", "bagit.txt", "manifest-../md5.txt"] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}

//! What a server says that it can (FEAT, RFC 2389).

use haul_store::SumKind;

use crate::codec::reply::Reply;

/// The features that matter here. A server without FEAT has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// MLSD and MLST.
    pub(crate) lists_facts: bool,
    /// Times are set by MFMT.
    pub(crate) sets_times: bool,
    pub(crate) utf8: bool,
    pub(crate) tls: bool,
    /// Transfers begin at a byte that is asked for.
    pub(crate) restarts: bool,
    /// Parts of files are sent (ERET), and are taken (ESTO).
    pub(crate) sends_parts: bool,
    /// See above.
    pub(crate) takes_parts: bool,
    /// The command that tells the sum of a file, and its kind.
    pub(crate) sum: Option<(&'static str, SumKind)>,
}

/// Commands that tell a sum, the most welcome first. They read the whole file at the server, where SHA-1 and MD5 cost about as much as the
/// disk. XCRC has no like in haul.
const SUMS: [(&str, SumKind); 5] = [
    ("XSHA256", SumKind::Sha256),
    ("XSHA1", SumKind::Sha1),
    ("XSHA", SumKind::Sha1),
    ("XMD5", SumKind::Md5),
    ("XSHA512", SumKind::Sha512),
];

/// The sum of GridFTP. Adler-32 is the one that all its servers have, and parts of it that come in any order join.
pub(crate) const CKSM: &str = "CKSM";

impl Features {
    /// Globus has CKSM in its help alone.
    pub(crate) fn with_help(self, reply: &Reply) -> Features {
        let has_sum =
            reply.lines.iter().any(|line| line.split(u8::is_ascii_whitespace).any(|word| word == CKSM.as_bytes()));
        Features { sum: self.sum.or_else(|| has_sum.then_some((CKSM, SumKind::Adler32))), ..self }
    }

    pub(crate) fn of(reply: &Reply) -> Features {
        let mut features = Features::default();
        let mut sums = Vec::new();
        if reply.code != 211 {
            return features;
        }
        for line in &reply.lines {
            let line = String::from_utf8_lossy(line).trim().to_ascii_uppercase();
            let (name, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match name {
                "MLST" | "MLSD" => features.lists_facts = true,
                "MFMT" => features.sets_times = true,
                "UTF8" => features.utf8 = true,
                "REST" => features.restarts |= rest == "STREAM",
                "ERET" => features.sends_parts = true,
                "ESTO" => features.takes_parts = true,
                CKSM if rest.is_empty() || rest.to_ascii_uppercase().contains("ADLER32") => {
                    features.sum = Some((CKSM, SumKind::Adler32));
                }
                "AUTH" => features.tls |= rest.split([' ', ';', ',']).any(|kind| kind == "TLS"),
                // The star marks the sum that is told unless another one is asked for.
                "HASH" => {
                    let chosen = rest.split(';').find_map(|kind| kind.trim().strip_suffix('*'));
                    let kind = match chosen {
                        Some("SHA-256") => Some(SumKind::Sha256),
                        Some("SHA-512") => Some(SumKind::Sha512),
                        Some("SHA-1") => Some(SumKind::Sha1),
                        Some("MD5") => Some(SumKind::Md5),
                        _ => None,
                    };
                    features.sum = kind.map(|kind| ("HASH", kind));
                }
                _ => sums.extend(SUMS.iter().filter(|(verb, _)| *verb == name)),
            }
        }
        let best = || SUMS.iter().find(|sum| sums.contains(sum)).copied();
        features.sum = features.sum.or_else(best);
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Features {
        Features::of(&Reply { code: 211, lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect() })
    }

    #[test]
    fn features_of_known_servers() {
        let vsftpd = of(&[
            "Features:",
            " AUTH TLS",
            " EPRT",
            " EPSV",
            " MDTM",
            " PASV",
            " PBSZ",
            " REST STREAM",
            " UTF8",
            "End",
        ]);
        assert_eq!(vsftpd, Features { utf8: true, tls: true, restarts: true, ..Features::default() });
        let proftpd = of(&[
            " AUTH TLS",
            " MFMT",
            " MLST modify*;perm*;size*;type*;",
            " XMD5",
            " XSHA256",
            " HASH CRC32;MD5;SHA-1*;SHA-256;SHA-512",
        ]);
        assert_eq!(proftpd.sum, Some(("HASH", SumKind::Sha1)));
        assert!(proftpd.lists_facts && proftpd.sets_times);
        assert_eq!(of(&[" XMD5", " XSHA256"]).sum, Some(("XSHA256", SumKind::Sha256)));
        assert_eq!(of(&[" AUTH SSL"]), Features::default());
        let help =
            Reply { code: 214, lines: vec![b"Commands:".to_vec(), b"    RMD     DELE    CKSM    DCSC".to_vec()] };
        let globus = of(&[" ERET", " ESTO", " MFMT", " MLST Type*;Size*;"]).with_help(&help);
        assert!(globus.sends_parts && globus.takes_parts);
        assert_eq!(globus.sum, Some(("CKSM", SumKind::Adler32)));
        assert_eq!(of(&[" CKSM MD5:10;ADLER32:20"]).sum, Some(("CKSM", SumKind::Adler32)));
        assert_eq!(of(&[" CKSM MD5:10"]).sum, None);
    }
}

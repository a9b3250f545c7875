//! Values in JSON: paths of any bytes, hashes, times, shares.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A path as text, and in hexadecimal if that is not valid text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
}

pub fn named(path: &[u8]) -> Named {
    let path_hex = std::str::from_utf8(path).is_err().then(|| hex(path));
    Named { path: String::from_utf8_lossy(path).into_owned(), path_hex }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn seconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e3).round() / 1e3
}

/// Rounded to four digits; NaN and infinity become 0.
pub fn share(fraction: f64) -> f64 {
    if fraction.is_finite() { (fraction * 1e4).round() / 1e4 } else { 0.0 }
}

/// Rises when a field changes its meaning or goes, not for new ones. See docs/use/json.md.
pub const SCHEMA: u32 = 2;

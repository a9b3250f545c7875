//! A value in an experiment's file.

use serde::de::{Deserialize, Deserializer};

/// A value written as text, number or truth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Truth(bool),
            Whole(i64),
            Number(f64),
        }
        Ok(Scalar(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Truth(truth) => truth.to_string(),
            Written::Whole(number) => number.to_string(),
            // 1e-4 stays short and exact.
            Written::Number(number) if number != 0.0 && number.abs() < 1e-3 => format!("{number:e}"),
            Written::Number(number) => number.to_string(),
        }))
    }
}

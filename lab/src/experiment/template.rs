//! Texts with `{name}` in them: topologies, command lines, configuration files.
//!
//! A placeholder is one word in braces; other braces (`{ rate = 1 }`, `http { ... }`) stay. Values with units are also plain
//! numbers: `{buffer.bytes}`, `{rate.bits}`, `{delay.seconds}`.

use std::collections::BTreeMap;

use crate::units::{Probability, Rate, Size, Time};

#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    values: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no value for {{{name}}}; there is {known}")]
pub(super) struct Unknown {
    name: String,
    known: String,
}

impl Scope {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    pub(super) fn fill(&self, text: &str) -> Result<String, Unknown> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            filled.push_str(&rest[..start]);
            rest = &rest[start..];
            match placeholder(rest) {
                Some(name) => {
                    filled.push_str(&self.value(name).ok_or_else(|| self.unknown(name))?);
                    rest = &rest[name.len() + 2..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// A word that is `{args}` alone becomes all of `args`.
    pub(super) fn fill_command(&self, words: &[String], args: &[String]) -> Result<Vec<String>, Unknown> {
        let mut filled = Vec::new();
        for word in words {
            match word.as_str() {
                "{args}" => {
                    for arg in args {
                        filled.push(self.fill(arg)?);
                    }
                }
                _ => filled.push(self.fill(word)?),
            }
        }
        Ok(filled)
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some(value) = self.values.get(name) {
            return Some(value.clone());
        }
        let (name, unit) = name.split_once('.')?;
        number(self.values.get(name)?, unit)
    }

    fn unknown(&self, name: &str) -> Unknown {
        let known: Vec<&str> = self.values.keys().map(String::as_str).collect();
        Unknown { name: name.to_owned(), known: known.join(", ") }
    }
}

fn placeholder(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.split_once('}')?.0;
    let first = name.chars().next()?;
    let is_word = first.is_ascii_lowercase()
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.');
    is_word.then_some(name)
}

fn number(value: &str, unit: &str) -> Option<String> {
    match unit {
        "bytes" => value.parse::<Size>().ok().map(|size| size.bytes.to_string()),
        "bits" => value.parse::<Rate>().ok().map(|rate| rate.bits_per_s().to_string()),
        "seconds" => value.parse::<Time>().ok().map(|time| time.0.as_secs_f64().to_string()),
        "ms" => value.parse::<Time>().ok().map(|time| (time.0.as_secs_f64() * 1e3).to_string()),
        "us" => value.parse::<Time>().ok().map(|time| time.0.as_micros().to_string()),
        _ => None,
    }
}

/// A plain number in the unit of its kind; `None` for words.
pub(super) fn on_axis(value: &str) -> Option<f64> {
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
    let size = || value.parse::<Size>().ok().map(|size| size.bytes as f64);
    let rate = || value.parse::<Rate>().ok().map(|rate| rate.bits_per_s() as f64);
    let time = || value.parse::<Time>().ok().map(|time| time.0.as_secs_f64());
    let share = || value.parse::<Probability>().ok().map(Probability::share);
    number.or_else(size).or_else(rate).or_else(time).or_else(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.set("buffer", "2MiB");
        scope.set("port", "41000");
        scope
    }

    #[test]
    fn words_in_braces_are_replaced_and_other_braces_stay() {
        let filled = scope().fill("listen {port}; http { x = {buffer.bytes} } {} {\n}").unwrap();
        assert_eq!(filled, "listen 41000; http { x = 2097152 } {} {\n}");
    }

    #[test]
    fn a_misspelt_placeholder_names_what_there_is() {
        let error = scope().fill("{prot}").unwrap_err().to_string();
        assert_eq!(error, "there is no value for {prot}; there is buffer, port");
        assert!(scope().fill("{port.bytes}").is_ok(), "a plain number is a size");
        assert!(scope().fill("{buffer.bits}").is_err(), "a size is no rate");
    }

    #[test]
    fn args_become_several_words() {
        let words = ["tool".to_owned(), "{args}".to_owned(), "{port}".to_owned()];
        let filled = scope().fill_command(&words, &["-a".into(), "-b{port}".into()]).unwrap();
        assert_eq!(filled, ["tool", "-a", "-b41000", "41000"]);
    }
}

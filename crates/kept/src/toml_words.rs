//! Says in words of the file what is wrong with a TOML file, whose parser speaks of types of Rust:
//!
//! ```text
//!   invalid type: string "fast", expected a sequence   ->  "fast" stands where a list belongs
//! ```

/// Line and reason: `line 2: "fast" stands where a list belongs`.
pub fn why(error: &toml::de::Error, text: &str) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let line = 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    format!("line {line}: {}", in_words(error.message()))
}

fn in_words(message: &str) -> String {
    let message = message.trim_end();
    let (first, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    if let Some(found) = first.strip_prefix("invalid type: ").or_else(|| first.strip_prefix("invalid value: ")) {
        return format!("{} stands where {} belongs", value(found), kind(expected));
    }
    if let Some(name) = first.strip_prefix("unknown field ").or_else(|| first.strip_prefix("unknown variant ")) {
        let names = expected.trim_start_matches("one of ").replace('`', "").replace(" or ", ", ");
        let others = if names.is_empty() { String::new() } else { format!(", but {names}") };
        return format!("there is no '{}' here{others}", bare(name));
    }
    if let Some(name) = first.strip_prefix("missing field ") {
        return format!("'{}' is missing", bare(name));
    }
    message.replace('`', "'")
}

fn bare(name: &str) -> &str {
    name.trim_matches('`')
}

fn value(found: &str) -> String {
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => {
            let kinds = ["string ", "integer ", "floating point ", "boolean ", "datetime "];
            let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
            bare(value).to_owned()
        }
    }
}

fn kind(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "f64" | "f32" => "a number",
        "i64" | "i32" => "a whole number",
        "u64" | "u32" | "u16" => "a whole number, not below 0,",
        "u8" => "a whole number from 0 to 255",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.is_empty() => "something else",
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[allow(dead_code, reason = "only its types count")]
    struct Part {
        list: Option<Vec<String>>,
        number: Option<f64>,
        whole: Option<u64>,
        share: Option<u8>,
        signed: Option<i64>,
        yes: Option<bool>,
        word: Option<Word>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        Slow,
        Fast,
    }

    #[test]
    fn no_type_of_the_program_stands_in_the_words() {
        for (line, why_not) in [
            ("list = \"x\"", "line 2: \"x\" stands where a list belongs"),
            ("list = [1]", "line 2: 1 stands where text in quotes belongs"),
            ("number = \"x\"", "line 2: \"x\" stands where a number belongs"),
            ("whole = -3", "line 2: -3 stands where a whole number, not below 0, belongs"),
            ("whole = 1.5", "line 2: 1.5 stands where a whole number, not below 0, belongs"),
            ("share = 300", "line 2: 300 stands where a whole number from 0 to 255 belongs"),
            ("signed = []", "line 2: a list stands where a whole number belongs"),
            ("yes = \"no\"", "line 2: \"no\" stands where true or false belongs"),
            ("word = \"swift\"", "line 2: there is no 'swift' here, but slow, fast"),
            ("lists = 1", "line 2: there is no 'lists' here, but list, number, whole, share, signed, yes, word"),
            ("list = 1\nlist = 2", "line 3: duplicate key"),
            ("list = ", "line 2: string values must be quoted, expected literal string"),
        ] {
            let text = format!("[part]\n{line}\n");
            let error = toml::from_str::<BTreeMap<String, Part>>(&text).unwrap_err();
            let told = why(&error, &text);
            assert_eq!(told, why_not, "{}", error.message());
        }
        let error = toml::from_str::<BTreeMap<String, Part>>("part = 3\n").unwrap_err();
        assert_eq!(why(&error, "part = 3\n"), "line 1: 3 stands where a table belongs");
    }
}

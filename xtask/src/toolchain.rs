//! Checks that rust-toolchain.toml names the oldest compiler that Cargo.toml promises.

use std::path::Path;

pub fn check(root: &Path) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    compare(&read("Cargo.toml"), &read("rust-toolchain.toml"))
}

fn compare(manifest: &str, toolchain: &str) -> Vec<String> {
    let promised = value(manifest, "rust-version").unwrap_or_default();
    let built_with = value(toolchain, "channel").unwrap_or_default();
    let is_same = built_with == promised || built_with.strip_prefix(promised).is_some_and(|rest| rest.starts_with('.'));
    if is_same && !promised.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Cargo.toml: rust-version is {promised:?}, and rust-toolchain.toml builds with {built_with:?}: no check builds what is promised"
    )]
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_what_is_built_with() {
        let built_with = "[toolchain]\nchannel = \"1.95.0\"\n";
        assert_eq!(compare("rust-version = \"1.95\"\n", built_with), [""; 0]);
        assert_eq!(compare("rust-version = \"1.95.0\"\n", built_with), [""; 0]);
        assert_eq!(compare("rust-version = \"1.9\"\n", built_with).len(), 1);
        assert_eq!(compare("rust-version = \"1.88\"\n", built_with).len(), 1);
        assert_eq!(compare("edition = \"2024\"\n", built_with).len(), 1);
    }
}

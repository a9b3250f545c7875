//! Which crate may use which: ARCHITECTURE.md against the manifests.
//!
//! ````text
//! ```arrows
//! transfer -> engine net store sys wire (workbench)
//! wire ->
//! ```
//! ````
//! Names are directories. Only tests may use a crate in parentheses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Finds arrows and crates that ARCHITECTURE.md does not list.
pub fn check(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let Some(allowed) = parse(&text) else {
        return vec!["ARCHITECTURE.md: no block ```arrows, which lists the arrows between the crates".into()];
    };
    match metadata(root) {
        Ok(metadata) => compare(&allowed, &drawn(&metadata)),
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

/// `None`: the block is missing.
fn parse(text: &str) -> Option<Arrows> {
    let block = text.split("```arrows\n").nth(1)?.split("```").next()?;
    let mut arrows = Arrows::new();
    for (from, to) in block.lines().filter_map(|line| line.split_once("->")) {
        arrows.insert(from.trim().to_owned(), to.split_whitespace().map(str::to_owned).collect());
    }
    Some(arrows)
}

fn drawn(metadata: &Value) -> Arrows {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut arrows = Arrows::new();
    for package in packages {
        let of_workspace = |dependency: &&Value| dependency["path"].is_string();
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = dependencies.iter().filter(of_workspace).map(arrow_to);
        arrows.insert(short(&package["name"]), names.collect());
    }
    arrows
}

fn arrow_to(dependency: &Value) -> String {
    let name = short(&dependency["name"]);
    if dependency["kind"] == "dev" { format!("({name})") } else { name }
}

fn compare(allowed: &Arrows, drawn: &Arrows) -> Vec<String> {
    let mut findings = Vec::new();
    for (from, targets) in drawn {
        let Some(allowed) = allowed.get(from) else {
            findings.push(format!("ARCHITECTURE.md: the arrows do not mention the crate {from}"));
            continue;
        };
        let is_allowed_in_product = |to: &str| allowed.contains(to.trim_matches(['(', ')']));
        for to in targets.difference(allowed).filter(|to| !(to.starts_with('(') && is_allowed_in_product(to))) {
            findings.push(format!("crate {from} uses {to}, an arrow that ARCHITECTURE.md does not list"));
        }
    }
    for from in allowed.keys().filter(|from| !drawn.contains_key(*from)) {
        findings.push(format!("ARCHITECTURE.md: the arrows mention {from}, which is no crate of the workspace"));
    }
    findings
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix("haul-").unwrap_or(name).to_owned()
}

fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n```text\nx -> y\n```\n```arrows\nwire ->\nengine -> wire\nnet -> sys wire\n```\n";

    fn arrows(pairs: &[(&str, &[&str])]) -> Arrows {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|t| (*t).to_owned()).collect())).collect()
    }

    #[test]
    fn the_block_is_read() {
        let expected = arrows(&[("wire", &[]), ("engine", &["wire"]), ("net", &["sys", "wire"])]);
        assert_eq!(parse(TEXT), Some(expected));
        assert_eq!(parse("no block"), None);
    }

    #[test]
    fn arrows_that_are_not_listed_are_found() {
        let allowed = parse(TEXT).expect("it has a block");
        let fine = arrows(&[("wire", &[]), ("engine", &["wire"]), ("net", &["sys"])]);
        assert_eq!(compare(&allowed, &fine), [""; 0]);
        let wrong = arrows(&[("wire", &["engine"]), ("net", &["sys"]), ("new", &[])]);
        let found = compare(&allowed, &wrong);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("new") && found[1].contains("wire uses engine") && found[2].contains("engine"));
    }

    #[test]
    fn what_only_tests_may_use_the_product_may_not() {
        let allowed = parse("```arrows\nnet -> sys (wire)\n```\n").expect("it has a block");
        assert_eq!(compare(&allowed, &arrows(&[("net", &["sys", "(sys)", "(wire)"])])), [""; 0]);
        assert_eq!(compare(&allowed, &arrows(&[("net", &["sys", "wire"])])).len(), 1);
        assert_eq!(compare(&allowed, &arrows(&[("net", &["sys", "(store)"])])).len(), 1);
    }

    #[test]
    fn dependencies_of_the_workspace_are_told_from_others() {
        let metadata = serde_json::json!({"packages": [{"name": "haul-net", "dependencies": [
            {"name": "haul-sys", "path": "/x"}, {"name": "haul-wire", "path": "/y", "kind": "dev"}, {"name": "libc"}]}]});
        assert_eq!(drawn(&metadata), arrows(&[("net", &["sys", "(wire)"])]));
    }
}

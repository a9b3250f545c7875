//! Collects the findings of all checks and prints them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{arrows, circles, faults, findings, links, ratchet, rules, source, toolchain};

pub fn run() -> ExitCode {
    let findings = findings(&root());
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => ExitCode::SUCCESS,
        count => {
            eprintln!("tidy: {count} findings");
            ExitCode::FAILURE
        }
    }
}

fn findings(root: &Path) -> Vec<String> {
    let files = source::all(root);
    let mut findings = arrows::check(root);
    findings.extend(circles::check(root, &files));
    findings.extend(rules::check(&files));
    findings.extend(ratchet::check(root, &files));
    findings.extend(faults::check(root, &files));
    findings.extend(findings::check(root, &files));
    findings.extend(links::check(root, &files));
    findings.extend(toolchain::check(root));
    findings
}

pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository").to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let findings = super::findings(&super::root());
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}

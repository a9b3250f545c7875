//! Gives `haul --version` and the manual pages their commit and machine.

use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "no commit".to_owned());
    println!("cargo::rustc-env=HAUL_COMMIT={commit}");
    let date = git(&["log", "-1", "--format=%cs"]).unwrap_or_default();
    println!("cargo::rustc-env=HAUL_COMMIT_DATE={date}");
    println!("cargo::rustc-env=HAUL_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| std::path::Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

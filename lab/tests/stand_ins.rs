//! Adapters of unpackaged tools, with stand-ins on the PATH that take exactly their arguments and move the data.
//!
//! Needs a lab, perl and OpenSSH; a missing one fails under `CI`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const TOOLS: [&str; 4] = ["bbcp", "escp", "hpnscp", "wdt"];

/// A hang fails only its test.
const LIMIT_S: &str = "120";

fn possible() -> bool {
    let doctor = Command::new(env!("CARGO_BIN_EXE_haul-lab")).arg("doctor").output().unwrap();
    let perl = Command::new("perl").args(["-e", "1"]).status().is_ok_and(|status| status.success());
    if doctor.status.success() && perl {
        return true;
    }
    let words = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(std::env::var("CI").is_err(), "no lab is possible here, or perl (package perl-base) is missing:\n{words}");
    eprintln!("skipped: no lab is possible here, or perl (package perl-base) is missing:\n{words}");
    false
}

fn experiment(directory: &Path, path: &str, files: u32) -> (String, Vec<serde_json::Value>) {
    let tools: Vec<String> = TOOLS.iter().map(|tool| format!("{{ rival = '{tool}' }}")).collect();
    let text = format!(
        "name = 'stand-ins'\ntitle = 'Tools that few have'\nrepeat = 1\ntimeout = '20s'\n\
         topology = \"hosts = {{ client = {{}}, server = {{}} }}\\nlinks = [{{ ends = ['client', 'server'], rtt = '2ms' }}]\"\n\
         data = {{ files = {files}, size = '70kB' }}\ntools = [{}]\n",
        tools.join(", ")
    );
    let file = directory.join(format!("{files}.toml"));
    std::fs::write(&file, text).unwrap();
    let results = directory.join(format!("results-{files}"));
    let mut lab = Command::new("timeout");
    lab.args(["--kill-after=5", LIMIT_S, env!("CARGO_BIN_EXE_haul-lab"), "experiment"]).arg(&file);
    lab.arg("--results").arg(&results).arg("--work").arg(directory.join("work")).env("PATH", path);
    let output = lab.stdin(Stdio::null()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let runs = std::fs::read_dir(results.join("stand-ins")).into_iter().flatten().flatten();
    let lines: String = runs.filter_map(|run| std::fs::read_to_string(run.path().join("samples.jsonl")).ok()).collect();
    let samples = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (said, samples)
}

#[test]
fn tools_that_few_have_are_called_as_they_want_it() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // sshd refuses users whose files others may change; each login reads the target's programs.
    let programs = directory.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    for path in [directory.path(), &programs] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for tool in TOOLS {
        std::fs::copy("tests/stand-ins/stand-in", programs.join(tool)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    for files in [1, 3] {
        let (said, samples) = experiment(directory.path(), &path, files);
        for tool in TOOLS {
            let sample = samples.iter().find(|sample| sample["tool"] == tool);
            let sample = sample.unwrap_or_else(|| panic!("no sample of {tool} with {files} files:\n{said}"));
            assert_eq!(
                (&sample["exit"], &sample["verified"]),
                (&0.into(), &true.into()),
                "{tool}, {files} files: {sample}"
            );
        }
    }
}

#[test]
fn and_named_as_missing_with_where_they_come_from() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (said, samples) = experiment(directory.path(), &std::env::var("PATH").unwrap(), 1);
    for (tool, package) in TOOLS.into_iter().zip(["bbcp", "EScp", "hpnssh", "wdt"]) {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
            eprintln!("skipped: {tool} is installed here");
            continue;
        }
        assert!(said.contains(&format!("not installed: {tool} (in {package}, from its authors)")), "{said}");
        assert!(samples.iter().all(|sample| sample["tool"] != tool), "{samples:?}");
    }
}

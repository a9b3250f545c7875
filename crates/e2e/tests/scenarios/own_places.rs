//! Writing where haul keeps or finds its own files must not make anybody its user.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;
use haul_e2e::{Run, code, needs, plant, scratch};

/// Two ordinary users, unknown to any host.
const US: u32 = 12_001;
const SOMEBODY: u32 = 12_666;

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = scratch();
        plant::set_mode(dir.path(), 0o755);
        fs::copy(haul_e2e::binary::find().expect("asked for with needs!"), dir.path().join("haul")).expect("space");
        let stage = Self { dir };
        plant::text(&stage.at("file"), "words\n");
        for (name, user) in [("home", US), ("to", US), ("theirs", SOMEBODY)] {
            fs::create_dir(stage.at(name)).expect("own directory");
            stage.give(name, user);
        }
        plant::set_mode(&stage.at("theirs"), 0o755);
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn give(&self, name: &str, user: u32) {
        chown(self.at(name), Some(user), Some(user)).expect("root may");
    }

    /// Somebody else's tree below `theirs`, with this file.
    fn plant(&self, name: &str, text: &str) {
        let file = self.at("theirs").join(name);
        plant::text(&file, text);
        for path in file.ancestors().take_while(|path| *path != self.dir.path()) {
            chown(path, Some(SOMEBODY), Some(SOMEBODY)).expect("root may");
            plant::set_mode(path, if path.is_dir() { 0o755 } else { 0o644 });
        }
    }

    fn haul(&self, user: u32, words: &[&str]) -> Run {
        let ids = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()];
        let run = Run::new("setpriv").args(&ids).arg("--").arg(self.at("haul")).args(words);
        let home = if user == 0 { self.at("roots-home") } else { self.at("home") };
        let run = run.env("HOME", home).current_dir(self.dir.path());
        ["STATE", "CONFIG", "RUNTIME", "CACHE"].iter().fold(run, |run, name| {
            let variable = format!("XDG_{name}_{}", if *name == "RUNTIME" { "DIR" } else { "HOME" });
            run.env(&variable, "")
        })
    }

    fn copy(&self, user: u32) -> Run {
        self.haul(user, &["cp", "file", "to/"])
    }
}

/// A hook's record in the old form, which names programs that write to `said`.
fn record_with_programs(said: &Path) -> String {
    let said = format!("echo ran >> {}", said.display());
    format!(
        r#"{{"path":0,"commands":{{"on_raise":["/bin/sh","-c","{said}"],"on_release":["/bin/sh","-c","{said}"],"time_limit_ms":5000}},{REQUEST}}}"#
    )
}

const REQUEST: &str = r#""request":{"event":"raise","class":"priority","path":0,"local":"","remote":"","rate_bytes_per_s":null,"until_unix_s":null}"#;

fn policy(said: &Path) -> String {
    let hook = format!(r#"["/bin/sh", "-c", "echo ran >> {}"]"#, said.display());
    format!("[hooks]\non-raise = {hook}\non-release = {hook}\n")
}

/// The keeper of hooks runs beside the copy.
fn wait_for_hooks() {
    std::thread::sleep(std::time::Duration::from_millis(700));
}

#[test]
fn a_state_directory_that_somebody_else_made_is_neither_obeyed_nor_written() {
    needs!(Root, Haul, Tool("setpriv"));
    let stage = Stage::new();
    let said = stage.at("said");
    plant::text(&said, "");
    plant::set_mode(&said, 0o666);
    stage.plant("haul/raised/1-0.json", &record_with_programs(&said));
    stage.plant("haul/raised/2-0.json", &format!("{{\"path\":0,{REQUEST}}}"));
    stage.plant("haul/report-000000000000001-1.json", "{}");
    plant::text(&stage.at("home/.config/haul/policy.toml"), &policy(&said));
    plant::text(&stage.at("roots-home/.config/haul/policy.toml"), &policy(&said));
    for name in ["home/.config", "home/.config/haul", "home/.config/haul/policy.toml"] {
        stage.give(name, US);
    }
    // Open to everybody, so haul's rights are equal for any user.
    for open in ["theirs", "theirs/haul", "theirs/haul/raised"] {
        plant::set_mode(&stage.at(open), 0o777);
    }
    let before = names_below(&stage.at("theirs"));
    symlink(stage.at("theirs"), stage.at("home/way")).expect("own link");
    for state in [stage.at("theirs"), stage.at("home/way")] {
        for user in [US, 0] {
            let run = stage.copy(user).env("XDG_STATE_HOME", &state).run().expect(code::OK);
            run.says(&["nothing is remembered in", "belongs to somebody else (user 12"]);
            let why = stage.haul(user, &["why"]).env("XDG_STATE_HOME", &state).run().expect(code::FILE_IO);
            why.says(&["belongs to somebody else"]);
        }
    }
    wait_for_hooks();
    assert_eq!(fs::read_to_string(&said).expect("own file"), "", "a program of somebody else ran");
    assert_eq!(names_below(&stage.at("theirs")), before, "haul keeps nothing there");
}

#[test]
fn a_record_of_our_own_releases_with_what_the_policy_says_and_with_nothing_else() {
    needs!(Root, Haul, Tool("setpriv"));
    let stage = Stage::new();
    let (by_record, by_policy) = (stage.at("by-record"), stage.at("by-policy"));
    let own = |name: &str, text: &str| {
        plant::text(&stage.at("home").join(name), text);
        for path in stage.at("home").join(name).ancestors().take_while(|path| *path != stage.dir.path()) {
            chown(path, Some(US), Some(US)).expect("root may");
        }
    };
    for said in [&by_record, &by_policy] {
        plant::text(said, "");
        plant::set_mode(said, 0o666);
    }
    own(".local/state/haul/raised/1-0.json", &record_with_programs(&by_record));
    stage.copy(US).run().expect(code::OK);
    wait_for_hooks();
    let kept = || names_below(&stage.at("home/.local/state/haul/raised")).len();
    assert_eq!(kept(), 1, "without a policy nobody knows how to release it");
    own(".config/haul/policy.toml", &policy(&by_policy));
    stage.copy(US).run().expect(code::OK);
    wait_for_hooks();
    assert_eq!(kept(), 0);
    let said = |file: &Path| fs::read_to_string(file).expect("own file");
    assert_eq!((said(&by_record).as_str(), said(&by_policy).as_str()), ("", "ran\n"));
}

#[test]
fn settings_that_others_may_write_or_replace_are_refused_with_what_to_type() {
    needs!(Root, Haul, Tool("setpriv"));
    let stage = Stage::new();
    stage.plant("haul/config.toml", "[defaults]\nrsync-path = \"x\"\n");
    let config = stage.at("theirs");
    let foreign = stage.copy(US).env("XDG_CONFIG_HOME", &config).run().expect(code::USAGE);
    foreign.says(&["config.toml", "belongs to somebody else (user 12666", "chown"]);
    for name in ["theirs/haul/config.toml", "theirs/haul", "theirs"] {
        stage.give(name, US);
    }
    fs::write(stage.at("theirs/haul/config.toml"), "[defaults]\nlanes = 3\n").expect("own file");
    stage.copy(US).env("XDG_CONFIG_HOME", &config).run().expect(code::OK);
    stage.copy(0).env("XDG_CONFIG_HOME", &config).run().expect(code::USAGE).says(&["belongs to somebody else"]);
    for (name, mode) in [("theirs", 0o777), ("theirs/haul", 0o775), ("theirs/haul/config.toml", 0o666)] {
        plant::set_mode(&stage.at(name), mode);
        let refused = stage.copy(US).env("XDG_CONFIG_HOME", &config).run().expect(code::USAGE);
        refused.says(&["others may write it", &format!("chmod go-w {}", stage.at(name).display())]);
        plant::set_mode(&stage.at(name), if name.ends_with("toml") { 0o644 } else { 0o755 });
    }
    // Like /tmp/$USER, which we made.
    plant::set_mode(&stage.at(""), 0o1777);
    stage.copy(US).env("XDG_CONFIG_HOME", &config).run().expect(code::OK);
}

#[test]
fn a_policy_that_others_may_write_stops_a_daemon_and_runs_no_hook() {
    needs!(Root, Haul, Tool("setpriv"));
    let stage = Stage::new();
    let (said, file) = (stage.at("said"), stage.at("policy.toml"));
    plant::text(&file, &policy(&said));
    let check = || stage.haul(0, &["serve", "--check", "--policy"]).arg(&file).run();
    check().expect(code::OK);
    plant::set_mode(&file, 0o666);
    let remedy = format!("chmod go-w {}", file.display());
    check().expect(code::USAGE).says(&["policy.toml cannot be used", "others may write it", &remedy]);
    plant::set_mode(&file, 0o644);
    stage.give("policy.toml", SOMEBODY);
    check().expect(code::USAGE).says(&["belongs to somebody else"]);
}

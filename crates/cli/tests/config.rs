//! The built program with its user's settings.

use std::fs;
use std::process::{Command, Output, Stdio};

/// A home with a `config.toml`, a file to send, and a script for ssh.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(".config/haul");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("config.toml"), config).unwrap();
        fs::write(dir.path().join("file"), "words\n").unwrap();
        fs::write(dir.path().join("host"), "echo \"$@\" >arguments; exit 255").unwrap();
        Self { dir }
    }

    fn haul(&self, line: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(line).current_dir(self.dir.path()).env("HOME", self.dir.path()).stdin(Stdio::null());
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "COLUMNS"] {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    fn fails(&self, line: &[&str]) -> String {
        let output = self.haul(line);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap().replace(self.dir.path().to_str().unwrap(), "~")
    }

    fn says(&self, line: &[&str]) -> String {
        let output = self.haul(line);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap().replace(self.dir.path().to_str().unwrap(), "~")
    }

    fn ssh_arguments(&self) -> String {
        fs::read_to_string(self.dir.path().join("arguments")).unwrap()
    }
}

const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/ssh");

#[test]
fn a_named_end_is_its_place_with_the_path_beneath() {
    let scene = Scene::new("");
    let tape = scene.dir.path().join("tape");
    let config = format!("[ends]\ntape = \"{}\"\nfar = \"me@dtn:data\"\n", tape.display());
    fs::write(scene.dir.path().join(".config/haul/config.toml"), config).unwrap();
    scene.says(&["cp", "file", "tape:sub/"]);
    assert_eq!(fs::read(tape.join("sub/file")).unwrap(), b"words\n");
    scene.says(&["cp", "tape:/sub/file", "back"]);
    assert_eq!(fs::read(scene.dir.path().join("back")).unwrap(), b"words\n");
    scene.haul(&["cp", "-S", SSH, "file", "far:x"]);
    assert!(
        scene.ssh_arguments().contains("me@dtn") || scene.ssh_arguments().contains("dtn"),
        "{}",
        scene.ssh_arguments()
    );
    scene.haul(&["cp", "-S", SSH, "file", "ssh://tape/x"]);
    assert!(scene.ssh_arguments().contains("tape"), "{}", scene.ssh_arguments());
}

#[test]
fn settings_of_a_host_reach_ssh_and_typed_ones_win() {
    let config = format!("[host.\"h1\"]\nport = 2222\nssh-program = \"{SSH}\"\n[ends]\nbox = \"h1:x\"\n");
    let scene = Scene::new(&config);
    for target in ["h1:x", "box:"] {
        scene.haul(&["cp", "file", target]);
        assert!(scene.ssh_arguments().contains("2222"), "{target}: {}", scene.ssh_arguments());
    }
    scene.haul(&["cp", "-P", "2323", "file", "h1:x"]);
    assert!(scene.ssh_arguments().contains("2323") && !scene.ssh_arguments().contains("2222"));
    scene.haul(&["cp", "--no-config", "-S", SSH, "file", "h1:x"]);
    assert!(!scene.ssh_arguments().contains("2222"));
    scene.haul(&["probe", "h1"]);
    assert!(scene.ssh_arguments().contains("2222"));
}

#[test]
fn an_unknown_key_and_a_bad_value_stop_a_copy_with_file_and_line() {
    let scene = Scene::new("[defaults]\nlane = 4\n");
    insta::assert_snapshot!(scene.fails(&["cp", "file", "to"]), @r"
    error: ~/.config/haul/config.toml:2: there is no setting 'lane'
      hint:  a setting has the name of its flag: haul cp --help
    ");
    assert!(!scene.dir.path().join("to").exists());
    let scene = Scene::new("\n[defaults]\nretry = \"10\"\n");
    insta::assert_snapshot!(scene.fails(&["cp", "file", "to"]), @r"
    error: ~/.config/haul/config.toml:3: cannot use retry
      cause: invalid value '10' for '--retry <TIME>': a time with its unit, such as 90s, 10m, 2h, 1h30m; or forever, or 0
    ");
    let json = scene.haul(&["cp", "--json", "file", "to"]);
    assert!(json.stdout.starts_with(br#"{"event":"error","fault":"usage""#), "{json:?}");
    scene.says(&["cp", "--retry", "5s", "file", "to"]);
    scene.says(&["why", "--list"]);
}

#[test]
fn config_shows_each_value_and_where_it_comes_from() {
    let scene = Scene::new(
        "[defaults]\ncompress = true\n\n[host.\"dtn.example.org\"]\nwindow = \"64M\"\n\n[ends]\ntape = \"haul://dtn.example.org/archive\"\n",
    );
    insta::assert_snapshot!(scene.says(&["config", "tape"]), @r"
    file  ~/.config/haul/config.toml
    for   tape

    settings
      verify     wire  built in
      lanes      auto  built in
      paths      auto  built in
      transport  tcp   built in
      window     64M   ~/.config/haul/config.toml:5, host dtn.example.org
      compress   true  ~/.config/haul/config.toml:2

    ends (a name here wins over a host of the same name; ssh://NAME/ is the host)
      tape:  haul://dtn.example.org/archive  ~/.config/haul/config.toml:8
    ");
    let json = scene.says(&["config", "--json"]);
    assert!(json.contains(r#"{"name":"compress","value":"true","from":"~/.config/haul/config.toml:2"}"#), "{json}");
    assert!(scene.says(&["config", "--all"]).contains("ssh-option"));
}

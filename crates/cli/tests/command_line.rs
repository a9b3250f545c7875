//! The built program as a shell sees it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use haul_transfer::manifest_file::{Writer, parse_line};

fn haul(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_haul")).args(args).env_remove("COLUMNS").output().expect("the program starts")
}

fn code(args: &[&str]) -> i32 {
    haul(args).status.code().unwrap_or_else(|| panic!("{args:?} was killed"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_is_a_success_and_everything_misspelt_is_exit_1() {
    for args in [
        &["--help"][..],
        &["cp", "--help"],
        &["cp", "-h"],
        &["verify", "--help"],
        &["tune", "--help"],
        &["--version"],
        &["-V"],
    ] {
        let output = haul(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty() && !output.stdout.is_empty(), "{args:?}");
    }
    for args in [
        &[][..],
        &["copy"],
        &["cp"],
        &["cp", "only"],
        &["cp", "--nonsense", "a", "b"],
        &["cp", "--lanes", "0", "a", "b"],
        &["cp", "--rate", "99999999999Tbit", "a", "b"],
        &["cp", "-oProxyCommand=x", "-bad:host", "b"],
        &["cp", "--", "-bad:host", "b"],
        &["cp", "h1:a", "h2:b", "c"],
        &["cp", "", "b"],
        &["verify"],
        &["completions", "tcsh"],
        &["tune", "--rtt", "228"],
        &["tune", "--rate", "10"],
        &["tune", "--apply", "--revert"],
        &["tune", "--json", "--format", "sysctl"],
        &["tune", "extra"],
    ] {
        let output = haul(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn the_help_of_cp_is_as_reviewed() {
    insta::assert_snapshot!("help_cp", stdout(&haul(&["cp", "--help"])));
}

#[test]
fn the_help_of_tune_is_as_reviewed() {
    insta::assert_snapshot!("help_tune", stdout(&haul(&["tune", "--help"])));
}

#[test]
fn an_error_has_its_cause_and_hint() {
    insta::assert_snapshot!(stderr(&haul(&["cp", "ho\u{1b}st:a", "b"])), @r"
    error: cannot use 'ho\x1bst:a'
      cause: the host has a character that no host name has
      hint:  for a local name with a colon, put ./ in front
    ");
}

#[test]
fn a_store_tells_no_space_and_no_upload_of_today_is_old() {
    let output = haul(&["df", "s3://bucket/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("s3://bucket is a store, and tells no space"), "{}", stderr(&output));
    for age in ["0d", "7", "12h", "-1d"] {
        let output = haul(&["clean", &format!("--older={age}"), "s3://bucket/"]);
        assert!(stderr(&output).contains("--older"), "{age}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{age}");
    }
}

#[test]
fn with_json_an_error_is_a_line_too() {
    let output = haul(&["cp", "--json", "host::module", "b"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.starts_with(r#"{"event":"error","fault":"usage","what":"cannot use 'host::module'""#), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn the_agent_names_its_protocol() {
    let text = stdout(&haul(&["agent", "--protocol"]));
    let version = text.strip_prefix("haul-protocol ").unwrap().trim_end();
    // A far side that misnames its version gets our program each time, and is then refused.
    assert_eq!(version.parse(), Ok(haul_transfer::PROTOCOL_VERSION), "{text}");
}

#[test]
fn completions_and_manual_pages_know_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&haul(&["completions", shell]));
        assert!(script.contains(&format!("command haul complete {shell} --")), "{shell}");
        assert!(stdout(&haul(&["complete", shell, "--", "haul cp --files-f", "--files-f"])).starts_with("none\n"));
    }
    assert!(stdout(&haul(&["completions", "elvish"])).contains("files-from"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(code(&["man", dir.path().to_str().unwrap()]), 0);
    assert!(fs::read_to_string(dir.path().join("haul-cp.1")).unwrap().contains("TRAILING SLASH"));
    assert!(stdout(&haul(&["man"])).contains(".TH HAUL-VERIFY 1"));
    assert_eq!(code(&["man", "/nonexistent"]), 11);
}

fn scene(dir: &Path) -> [String; 3] {
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "hello").unwrap();
    let line = b"ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f  5 1.000000000 a";
    let mut manifest = Writer::start(fs::File::create(dir.join("manifest")).unwrap()).unwrap();
    manifest.add(&parse_line(line).unwrap()).unwrap();
    manifest.finish().unwrap();
    ["verify".to_owned(), dir.join("manifest").display().to_string(), tree.display().to_string()]
}

#[test]
fn verify_answers_with_its_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let args = scene(dir.path());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let good = haul(&args);
    assert_eq!(good.status.code(), Some(0), "{}", stderr(&good));
    assert!(stdout(&good).starts_with("verified 1 file, 5 B, root "), "{}", stdout(&good));

    fs::write(dir.path().join("tree/b"), "new").unwrap();
    assert_eq!(code(&args), 0);
    let extra = haul(&[args.as_slice(), &["--extra"]].concat());
    assert_eq!((extra.status.code(), stderr(&extra).lines().next()), (Some(25), Some("extra: b")));

    fs::write(dir.path().join("tree/a"), "hellO").unwrap();
    let altered = haul(&args);
    assert_eq!(altered.status.code(), Some(25));
    assert!(stderr(&altered).starts_with("altered: a\nerror: 1 of 1 file differs in "), "{}", stderr(&altered));
    assert!(altered.stdout.is_empty());

    let text = fs::read_to_string(dir.path().join("manifest")).unwrap();
    fs::write(dir.path().join("manifest"), text.rsplit_once("# files").unwrap().0).unwrap();
    let cut = haul(&args);
    assert_eq!(cut.status.code(), Some(25));
    assert!(stderr(&cut).contains("cut off"), "{}", stderr(&cut));
    assert_eq!(code(&["verify", "/nonexistent"]), 11);
}

/// The error is a plain message, and no panic.
#[test]
fn a_full_disk_behind_standard_output_is_an_error_and_a_closed_pipe_is_none() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    std::fs::write(root.join("file"), "text").unwrap();
    let commands: [&[&str]; 9] = [
        &["--help"],
        &["--version"],
        &["cp", "--help"],
        &["cp", "-h"],
        &["cp", "--json", "file", "copy/"],
        &["cp", "file", "copy2/"],
        &["cp", "--manifest-out", "-", "file", "copy3/"],
        &["tune", "--json", "--rate", "1Gbit", "--rtt", "10ms"],
        &["completions", "bash"],
    ];
    let command = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_haul"));
        command
            .args(args)
            .current_dir(root)
            .env("HOME", root)
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command
    };
    for args in commands {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let out = command(args).stdout(full).output().unwrap();
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(11), "{args:?}: {words}");
        assert!(
            words.contains("cannot write to standard output") && words.contains("No space left"),
            "{args:?}: {words}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out = command(args).stdout(writer).output().unwrap();
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{args:?}: {words}");
    }
    assert!(!root.join("copy").join("copy").exists());
    let out =
        command(&["why", "--json"]).stdout(std::fs::File::options().write(true).open("/dev/full").unwrap()).output();
    assert_eq!(out.unwrap().status.code(), Some(11));
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let out = command(&["why", "99"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(out.code(), Some(1));
}

/// A device, FIFO or link belongs to others.
#[test]
fn a_manifest_replaces_nothing_but_a_regular_file_and_can_go_to_standard_output() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    std::fs::write(root.join("file"), "text").unwrap();
    std::fs::write(root.join("victim"), "as it was").unwrap();
    std::os::unix::fs::symlink("victim", root.join("link")).unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(args).current_dir(root).env("HOME", root).env_remove("XDG_STATE_HOME").output().unwrap()
    };
    for name in ["link", "/dev/stdout", "none/m", "."] {
        let out = run(&["cp", "--manifest-out", name, "file", "refused"]);
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(11), "{name}: {words}");
        assert!(words.contains("hint:"), "{name}: {words}");
        assert!(!root.join("refused").exists(), "it is said before anything is copied");
    }
    assert_eq!(std::fs::read(root.join("victim")).unwrap(), b"as it was");
    let out = run(&["cp", "-v", "--manifest-out", "-", "file", "copy"]);
    assert_eq!(out.status.code(), Some(0));
    std::fs::write(root.join("m"), &out.stdout).unwrap();
    std::fs::create_dir(root.join("there")).unwrap();
    std::fs::rename(root.join("copy"), root.join("there/copy")).unwrap();
    assert_eq!(run(&["verify", "m", "there"]).status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(run(&["cp", "--json", "--manifest-out", "-", "file", "copy"]).status.code(), Some(1));
    // A manifest inside the copied tree is neither sent half written nor deleted.
    std::fs::create_dir(root.join("tree")).unwrap();
    std::fs::write(root.join("tree/file"), "text").unwrap();
    let out = run(&["cp", "--manifest-out", "tree/m", "tree/", "twin/"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(run(&["cp", "--delete", "--manifest-out", "twin/m", "tree/", "twin/"]).status.code(), Some(0));
    assert!(std::fs::read_to_string(root.join("twin/m")).unwrap().contains("# files"));
    let names = |dir: &str| std::fs::read_dir(root.join(dir)).unwrap().count();
    assert_eq!((names("tree"), names("twin")), (2, 2));
}

/// A stream that is closed, or open the wrong way, is no empty list and delivers nothing.
#[test]
fn closed_standard_streams_are_errors_of_every_command_that_needs_them() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    fs::create_dir(root.join("tree")).unwrap();
    fs::write(root.join("tree/file"), "text").unwrap();
    fs::write(root.join("file"), "as it was").unwrap();
    fs::write(root.join("list"), "").unwrap();
    let run = |args: &str, redirected: &str| {
        let out = Command::new("sh")
            .arg("-c")
            .arg(format!("exec \"$0\" {args} {redirected}"))
            .arg(env!("CARGO_BIN_EXE_haul"))
            .current_dir(root)
            .env("HOME", root)
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .unwrap();
        (out.status.code(), stderr(&out))
    };
    for args in ["cp -q tree/ copy", "cp -q --manifest-out m file copy2", "hash file > list"] {
        assert_eq!(run(args, "").0, Some(0));
    }
    for args in [
        "cp - file",
        "cp --files-from - tree/ file2",
        "cp --files-from /dev/stdin tree/ file2",
        "cp --files-from /dev/fd/0 tree/ file2",
        "cp --exclude-from - tree/ file2",
        "cp --batch -",
        "cp --batch /dev/stdin",
        "token --narrow -",
        "token --narrow /dev/stdin",
        "verify - tree",
        "record recorded",
        "agent",
    ] {
        for redirected in ["<&-", "0>>list"] {
            if redirected == "0>>list" && args.contains("/dev") {
                continue;
            }
            let (code, words) = run(args, redirected);
            assert!(code.is_some_and(|code| code != 0), "{args} {redirected}: {code:?} {words}");
            let is_why = ["Bad file descriptor", "No such device or address"].iter().any(|why| words.contains(why));
            assert!(is_why || args == "agent", "{args} {redirected}: {words}");
            assert_eq!(fs::read(root.join("file")).unwrap(), b"as it was", "{args} {redirected}");
            assert!(root.join("copy/file").exists() && !root.join("file2").exists(), "{args} {redirected}");
        }
    }
    for args in [
        "--help",
        "--version",
        "cp --help",
        "cp file -",
        "cp --json file copy3",
        "cp -v file copy3",
        "cp --manifest-out - file copy3",
        "cp -n tree/ copy4",
        "cp --list-only tree/",
        "cat file",
        "hash file",
        "hash -m tree",
        "ls",
        "ls -l tree",
        "du tree",
        "stat file",
        "diff tree copy",
        "diff tree tree2",
        "verify --json m .",
        "why",
        "why --json",
        "status",
        "status --json",
        "config",
        "networks",
        "networks --json",
        "completions bash",
        "man",
        "key",
        "clean -n .",
        "tune --json --rate 1Gbit --rtt 10ms",
    ] {
        for redirected in [">&-", "1<list", ">/dev/full"] {
            let (code, words) = run(args, redirected);
            assert!(code.is_some_and(|code| code != 0), "{args} {redirected}: {code:?} {words}");
        }
    }
}

#[test]
fn an_end_that_cannot_be_reached_is_named_as_it_was_typed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "data").unwrap();
    let here = dir.path().to_str().unwrap();
    let file = &format!("{here}/file");
    // Nothing accepts connections at port 1.
    let ends = ["s3://bucket", "dav://127.0.0.1:1", "ftp://127.0.0.1:1", "http://127.0.0.1:1"];
    for (server, end) in ends.into_iter().flat_map(|end| [(end, end.to_owned()), (end, format!("{end}/x"))]) {
        let commands = [&["ls", &end][..], &["cp", "-r", &end, here], &["cp", &end, "-"], &["cp", file, &end]];
        let is_target = !server.starts_with("http:");
        for args in commands.into_iter().take(if is_target { 4 } else { 3 }) {
            let output = Command::new(env!("CARGO_BIN_EXE_haul"))
                .args(args)
                .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
                .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")])
                .output()
                .unwrap();
            let told = stderr(&output);
            let is_named = told.contains(&format!("error: {server}: ")) || told.contains(&format!(" {end}"));
            assert!(!output.status.success() && is_named, "{args:?}: {told}");
        }
    }
}

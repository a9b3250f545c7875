//! Service classes with a server of FTP that knows none: what this host sends there has marks, and nothing else has.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use haul_e2e::{Boxed, Facets, Lab, Outcome, Run, Running, assert_same, code, contents_of, needs, plant, scratch};

use crate::classes::{Counted, PACKETS, marked_bytes, own_policy};

const PORT: u16 = 2121;

/// Writes the configuration of a server of anonymous uploads. `games` stands for anybody: every Debian has it and its home.
fn configure(dir: &Path) -> PathBuf {
    for name in ["home", "home/www", "empty"] {
        fs::create_dir(dir.join(name)).expect("own directory");
    }
    plant::set_mode(&dir.join("home/www"), 0o777);
    plant::set_mode(dir, 0o755);
    let (config, root) = (dir.join("vsftpd.conf"), dir.display());
    let text = format!(
        "listen=YES\nlisten_port={PORT}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nanon_root={root}/home\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_other_write_enable=YES\n\
         anon_world_readable_only=NO\nanon_umask=022\nftp_username=games\nsecure_chroot_dir={root}/empty\nseccomp_sandbox=NO\n\
         xferlog_enable=NO\n"
    );
    fs::write(&config, text).expect("own file");
    config
}

/// A client at `home`, and a server at `alpha`.
struct Served {
    lab: Lab,
    dir: tempfile::TempDir,
    _server: Running,
}

impl Served {
    fn begin() -> Self {
        let (lab, dir) = (Lab::pair(), scratch());
        let config = configure(dir.path());
        let mut server = lab.alpha().run("vsftpd").arg(config).start();
        let at = (lab.alpha().v4, PORT);
        server.when("it listens", |_| lab.home().inside(|| TcpStream::connect(at).is_ok()));
        Self { lab, dir, _server: server }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("home/www/tree")
    }

    fn url(&self) -> String {
        format!("ftp://{}:{PORT}/www/tree/", self.lab.alpha().v4)
    }

    fn cp(&self) -> Run {
        self.lab.home().haul().args(["cp", "--json", "--retry", "0"])
    }

    fn push(&self, flags: &[&str]) -> Outcome {
        let from = self.lab.data("home").join("from");
        let run = self.cp().args(flags).arg(contents_of(&from)).arg(self.url()).run().expect(code::OK);
        assert_same(&from, &self.tree(), Facets::CONTENTS);
        fs::remove_dir_all(self.tree()).expect("own directory");
        run
    }
}

/// 10 MiB: a file that is sampled while it goes, and many that are over before that.
fn plant_tree(lab: &Lab) {
    let from = lab.data("home").join("from");
    plant::many(&from, 20, 256 << 10, 1);
    plant::file(&from.join("large"), 5 << 20, 2);
}

#[test]
fn a_class_that_is_asked_for_marks_all_data_to_a_server_and_no_words() {
    needs!(Root, Haul, Nftables, Tool("vsftpd"));
    let served = Served::begin();
    plant_tree(&served.lab);
    for (flag, class) in [("--priority", "priority"), ("--background", "background")] {
        let counted = Counted::at(served.lab.alpha(), "input", PORT);
        let run = served.push(&[flag]);
        let marks = counted.marks();
        let (ours, other) = match class {
            "priority" => (marks.expedited, marks.lower_effort),
            _ => (marks.lower_effort, marks.expedited),
        };
        assert!(ours > PACKETS && other == 0 && marks.on_words == 0, "{flag}: {marks:?}\n{run}");
        assert!(marked_bytes(&run) >= 10 << 20, "{run}");
        assert_eq!(run.report()["path"]["class"], class, "{run}");
        assert!(run.events_named("warning").is_empty(), "{run}");
        served.lab.alpha().nft("delete table inet classes");
    }
}

#[test]
fn where_nobody_else_is_auto_marks_nothing_on_the_way_to_a_server() {
    needs!(Root, Haul, Nftables, Tool("vsftpd"));
    let served = Served::begin();
    plant_tree(&served.lab);
    let counted = Counted::at(served.lab.alpha(), "input", PORT);
    for flags in [&[][..], &["--class", "auto"], &["--floor", "1Mbit"]] {
        let run = served.push(flags);
        let marks = counted.marks();
        assert!(marks.plain > PACKETS, "{marks:?}");
        assert_eq!((marks.expedited, marks.lower_effort, marks.on_words), (0, 0, 0), "{flags:?}\n{run}");
        assert_eq!(marked_bytes(&run), 0, "{run}");
    }
}

#[test]
fn the_policy_of_the_host_holds_for_what_goes_to_a_server() {
    needs!(Root, Haul, Nftables, Tool("vsftpd"));
    let served = Served::begin();
    plant_tree(&served.lab);
    own_policy(served.lab.home(), "[default]\nclasses = [\"normal\"]\n");
    let counted = Counted::at(served.lab.alpha(), "input", PORT);
    for flag in ["--priority", "--background"] {
        let run = served.push(&[flag]);
        let marks = counted.marks();
        assert_eq!((marks.expedited, marks.lower_effort, marked_bytes(&run)), (0, 0, 0), "{flag}: {marks:?}\n{run}");
        run.says(&["is not allowed here"]);
    }
}

#[test]
fn a_copy_that_is_over_before_a_connection_is_sampled_tells_its_class_too() {
    needs!(Root, Haul, Tool("vsftpd"));
    let served = Served::begin();
    plant::file(&served.lab.data("home").join("from/one"), 1, 1);
    assert_eq!(served.push(&["--priority"]).report()["path"]["class"], "priority");
    own_policy(served.lab.home(), "[default]\nclasses = [\"normal\"]\n");
    let refused = served.push(&["--priority"]);
    assert_eq!(refused.report()["path"]["class"], "normal", "{refused}");
    refused.says(&["is not allowed here"]);
}

#[test]
fn what_a_server_sends_is_not_marked_and_that_is_said() {
    needs!(Root, Haul, Nftables, Tool("vsftpd"));
    let served = Served::begin();
    plant::file(&served.tree().join("large"), 5 << 20, 2);
    plant::set_mode(&served.tree(), 0o755);
    plant::set_mode(&served.tree().join("large"), 0o644);
    let counted = Counted::at(served.lab.home(), "input", PORT);
    let to = served.lab.data("home").join("to");
    let run = served.cp().arg("--priority").arg(served.url()).arg(&to).run().expect(code::OK);
    assert_eq!((counted.marks().expedited, counted.marks().on_words), (0, 0), "{run}");
    run.says(&["only the sender of data can mark it"]);
}

/// The published path: 25 Mbit/s, where marked packets go first.
fn path<'a>(start_server: &'a str, others: &'a str) -> Boxed<'a> {
    let link = "queue = \"100kB\"\ndiffserv = { ef_rate = \"24Mbit\" }";
    Boxed { rate: "25Mbit", rtt: "10ms", link, more: others, before_target: start_server, ..Boxed::default() }
}

const OTHERS: &str = "[[traffic]]\nkind = \"udp\"\nfrom = \"source\"\nto = \"target\"\nrate = \"24Mbit\"";

#[test]
fn beside_others_auto_raises_the_class_of_an_upload_that_goes_on_and_alone_it_does_not() {
    needs!(Root, Boxed, Tool("vsftpd"));
    let dir = scratch();
    let start_server = format!("vsftpd {} &", configure(dir.path()).display());
    let (from, to) = (scratch(), dir.path().join("home/www/from"));
    let from = from.path().join("from");
    plant::file(&from, 12 << 20, 1);
    for (others, is_contended) in [("", false), (OTHERS, true)] {
        let url = format!("ftp://target:{PORT}/www/from");
        let run = path(&start_server, others).push_to(&["--class", "auto"], &from, &url, &to).expect(code::OK);
        assert_same(&from, &to, Facets::CONTENTS);
        fs::remove_file(&to).expect("own file");
        let raises = run.report()["path"]["class_raises"].as_u64().unwrap_or_default();
        assert_eq!((raises > 0, marked_bytes(&run) > 6 << 20), (is_contended, is_contended), "{run}");
        // Best effort would have 1 Mbit/s, and take 100 s.
        assert!(!is_contended || run.report()["last_byte_s"].as_f64().is_some_and(|seconds| seconds < 50.0), "{run}");
    }
}

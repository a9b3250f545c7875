//! Copies from and to GridFTP: `globus-gridftp-server` with anonymous logins, and through ssh.

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Lab, Run, Running, assert_same, code, contents_of, needs, plant};

struct Grid {
    lab: Lab,
    scheme: &'static str,
    _server: Option<Running>,
}

const PORT: u16 = 2811;

impl Grid {
    /// The server runs as root, whose the lab's files are.
    fn of_anybody() -> Grid {
        let lab = Lab::pair();
        let address = lab.alpha().address().to_string();
        let mut server = lab
            .alpha()
            .run("globus-gridftp-server")
            .args(["-aa", "-allow-root", "-anonymous-user", "root", "-p", &PORT.to_string()])
            .args(["-data-interface", &address, "-log-level", "NONE"])
            .start();
        let reached = SocketAddr::new(lab.alpha().address(), PORT);
        server.when("it listens", |_| lab.home().inside(|| TcpStream::connect(reached).is_ok()));
        Grid { lab, scheme: "gsiftp", _server: Some(server) }
    }

    /// Globus makes this script for a user.
    fn through_ssh() -> Grid {
        let lab = Lab::pair();
        let home = lab.data("alpha").parent().expect("a host has a directory").join("home/.globus");
        fs::create_dir_all(&home).expect("own directory");
        let address = lab.alpha().address();
        let script = format!("#!/bin/sh\nexec globus-gridftp-server -ssh -auth-level 0 -data-interface {address}\n");
        fs::write(home.join("sshftp"), script).expect("own directory");
        plant::set_mode(&home.join("sshftp"), 0o755);
        Grid { lab, scheme: "sshftp", _server: None }
    }

    fn url(&self, path: impl AsRef<Path>) -> OsString {
        let host = match self._server {
            Some(_) => self.lab.alpha().address().to_string(),
            None => "alpha".to_owned(),
        };
        let mut url = OsString::from(format!("{}://{host}", self.scheme));
        url.push(path.as_ref());
        url
    }

    fn cp(&self) -> Run {
        self.lab.cp()
    }

    /// What stands in the server's directory.
    fn left(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.lab.data("alpha")).expect("own directory");
        names.map(|name| name.expect("it is listed").path()).collect()
    }
}

#[test]
fn a_name_that_the_server_would_change_fails_by_itself() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let grid = Grid::of_anybody();
    let (source, there, back) =
        (grid.lab.data("home").join("tree"), grid.lab.data("alpha").join("to"), grid.lab.data("home").join("back"));
    plant::text(&source.join("2"), "two");
    plant::text(&source.join("\u{e4}2"), "another");
    let run = grid.cp().arg(contents_of(&source)).arg(grid.url(there.join(""))).run().expect(code::PARTIAL);
    run.says(&["leaves all letters beyond ASCII out of names"]);
    assert_eq!(fs::read_to_string(there.join("2")).expect("it was copied"), "two");
    plant::text(&there.join("\u{e4}2"), "another");
    grid.cp().arg(grid.url(there.join(""))).arg(&back).run().expect(code::PARTIAL);
    assert_eq!(fs::read_to_string(back.join("2")).expect("it was copied"), "two");
    assert!(!back.join("\u{e4}2").exists());
}

/// The edges of blocks and chunks, and a file that is one hole.
const SIZES: [u64; 8] = [0, 1, 262_143, 262_144, 262_145, (1 << 20) - 1, (1 << 20) + 1, 33 << 20];

#[test]
fn files_of_all_sizes_go_there_and_back_in_blocks() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    for grid in [Grid::of_anybody(), Grid::through_ssh()] {
        let (source, there, back) =
            (grid.lab.data("home").join("tree"), grid.lab.data("alpha").join("to"), grid.lab.data("home").join("back"));
        for size in SIZES {
            plant::file(&source.join(size.to_string()), size, size);
        }
        plant::sparse(&source.join("sparse"), 300 << 20, &[(5 << 20, 5000)], 1);
        plant::many(&source.join("many"), 100, 300, 2);
        for name in ["a b", " leading", "100%", "#hash", "-dash", "'quote\"<>", "back\\slash"] {
            plant::text(&source.join("odd").join(name), name);
        }
        let up = || grid.cp().arg(contents_of(&source)).arg(grid.url(there.join("")));
        up().run().expect(code::OK);
        assert_same(&source, &there, Facets::CONTENTS);
        assert_eq!(up().run().expect(code::OK).count("files_moved"), 0, "it keeps times");
        let down = || grid.cp().arg(grid.url(there.join(""))).arg(&back);
        let run = down().run().expect(code::OK);
        assert!(!run.stderr_text().contains("as by FTP"), "{run}");
        assert_same(&source, &back, Facets::CONTENTS);
        assert_eq!(down().run().expect(code::OK).count("files_moved"), 0);
        plant::text(&source.join("odd/a b"), "another");
        fs::remove_file(source.join("odd/100%")).expect("own file");
        up().arg("--delete").run().expect(code::OK);
        assert_same(&source, &there, Facets::CONTENTS);
    }
}

/// A file whose copy is killed when two thirds of it are there.
const LARGE: u64 = 300 << 20;

/// A rate at which that takes seconds: the journal is written once in each.
const SLOW: [&str; 2] = ["--rate", "40MB"];

#[test]
fn a_copy_that_was_killed_leaves_nothing_under_a_name_and_goes_on_inside_the_file() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    for grid in [Grid::of_anybody(), Grid::through_ssh()] {
        let (source, there, back) =
            (grid.lab.data("home").join("f"), grid.lab.data("alpha").join("f"), grid.lab.data("home").join("back"));
        plant::file(&source, LARGE, 1);
        let up = || grid.cp().arg(&source).arg(grid.url(&there));
        let mut running = up().args(SLOW).start();
        running.when_moved(LARGE / 3 * 2);
        running.kill();
        assert!(!there.exists(), "half a file has no name");
        let again = up().run().expect(code::OK);
        let (moved, kept) = (again.count("bytes_moved"), again.count("bytes_kept"));
        assert!(kept > LARGE / 3 && moved + kept == LARGE, "it goes on with what the server has: {again}");
        assert_same(&source, &there, Facets::CONTENTS);
        assert_eq!(grid.left().len(), 1, "the second run took the name of the first");

        let down = || grid.cp().arg(grid.url(&there)).arg(&back);
        let mut running = down().args(SLOW).start();
        running.when_moved(50 << 20);
        running.kill();
        assert!(!back.exists());
        down().run().expect(code::OK);
        assert_same(&source, &back, Facets::CONTENTS);
    }
}

#[test]
fn an_upload_in_blocks_goes_on_only_with_what_is_of_the_same_file() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    let grid = Grid::of_anybody();
    let (source, there) = (grid.lab.data("home").join("f"), grid.lab.data("alpha").join("f"));
    let up = || grid.cp().arg(&source).arg(grid.url(&there));
    let clean = |flags: &[&str]| {
        let url = grid.url(grid.lab.data("alpha"));
        grid.lab.haul().arg("clean").args(flags).arg(url).run().expect(code::OK).stdout_text()
    };
    let killed = || {
        // Data that stands there would not be sent.
        let _ = fs::remove_file(&there);
        plant::file(&source, LARGE, 1);
        let mut running = up().args(SLOW).start();
        running.when_moved(LARGE / 3 * 2);
        running.kill();
        grid.left().pop().expect("a draft")
    };
    // Somebody else writes into the draft.
    let draft = fs::File::options().write(true).open(killed()).expect("own file");
    draft.write_all_at(b"another", 50 << 20).expect("own file");
    let again = up().run().expect(code::OK);
    assert!((1..LARGE / 3 * 2).contains(&again.count("bytes_moved")), "{again}");
    assert_same(&source, &there, Facets::CONTENTS);

    killed();
    plant::file(&source, LARGE, 2);
    let again = up().run().expect(code::OK);
    assert_eq!(again.count("bytes_moved"), LARGE, "the source is another: {again}");
    assert_same(&source, &there, Facets::CONTENTS);

    let draft = killed();
    assert_eq!(clean(&["-f"]), "", "it is of today");
    plant::set_mtime(&draft, 1_000_000_000, 0);
    assert!(clean(&["-f"]).contains(".haul-") && !draft.exists());
    assert_eq!(up().run().expect(code::OK).count("bytes_moved"), LARGE);
}

#[test]
fn a_server_that_cannot_reach_this_host_is_read_as_by_ftp() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"), Nftables);
    let grid = Grid::of_anybody();
    let (source, back) = (grid.lab.data("alpha").join("f"), grid.lab.data("home").join("back"));
    plant::file(&source, 40 << 20, 1);
    // home's firewall silently drops incoming connections.
    grid.lab.home().run("nft").arg("add table inet wall").run().expect(code::OK);
    let chain = "add chain inet wall in { type filter hook input priority 0; }";
    grid.lab.home().run("nft").arg(chain).run().expect(code::OK);
    let rule = "add rule inet wall in iifname eth0 tcp flags & (syn | ack) == syn drop";
    grid.lab.home().run("nft").arg(rule).run().expect(code::OK);
    let run = grid.cp().arg(grid.url(&source)).arg(&back).run().expect(code::OK);
    run.says(&["it is read as by FTP"]);
    assert_same(&source, &back, Facets::CONTENTS);
}

#[test]
fn places_of_gridftp_are_looked_at_and_changed() {
    needs!(Namespaces, Haul, Tool("globus-gridftp-server"));
    for grid in [Grid::of_anybody(), Grid::through_ssh()] {
        let there = grid.lab.data("alpha");
        plant::text(&there.join("file"), "words");
        let haul = |command: &str| grid.lab.haul().arg(command).arg("-F").arg(grid.lab.ssh_config());
        haul("ls").arg(grid.url(&there)).run().expect(code::OK).says(&["file"]);
        assert_eq!(haul("cat").arg(grid.url(there.join("file"))).run().expect(code::OK).stdout_text(), "words");
        haul("mkdir").arg(grid.url(there.join("new"))).run().expect(code::OK);
        haul("rm").arg("-r").arg(grid.url(there.join("new"))).run().expect(code::OK);
        assert!(!there.join("new").exists());
        haul("cp").arg(grid.url(there.join("missing"))).arg(grid.lab.data("home")).run().expect(code::PARTIAL);
    }
}

#[test]
fn a_host_without_a_server_of_gridftp_says_so() {
    needs!(Namespaces, Haul);
    let grid = Grid::through_ssh();
    let home = grid.lab.data("alpha").parent().expect("a host has a directory").join("home/.globus");
    fs::write(home.join("sshftp"), "#!/bin/sh\necho no server is here >&2; exit 3\n").expect("own directory");
    let run = grid.cp().arg(grid.url("/etc/passwd")).arg(grid.lab.data("home")).run();
    assert_ne!(run.code(), code::OK);
    run.says(&["no server is here"]);
}

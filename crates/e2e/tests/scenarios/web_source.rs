//! Copies from others' web servers: nginx and Python's.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Lab, Run, Running, assert_same, at, code, needs, plant, scratch};

pub struct Web {
    dir: tempfile::TempDir,
    server: Running,
    port: u16,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("it is bound").port()
}

impl Web {
    /// `start` gets the directory and a port; `listens` is awaited.
    pub fn begin(start: impl FnOnce(&Path, u16) -> Run, listens: impl Fn(&Path, u16) -> bool) -> Web {
        let dir = scratch();
        for name in ["www", "to", "tmp"] {
            fs::create_dir(dir.path().join(name)).expect("own directory");
        }
        // nginx's workers are another user.
        plant::set_mode(dir.path(), 0o755);
        let port = free_port();
        let server = start(dir.path(), port).start();
        let mut web = Web { dir, server, port };
        let at = web.dir.path().to_owned();
        web.server.when("it listens", |_| listens(&at, port));
        web
    }

    pub fn nginx(more: &str) -> Web {
        Self::nginx_in(more, Run::new("nginx"), |_, port| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    fn nginx_in(more: &str, nginx: Run, listens: impl Fn(&Path, u16) -> bool) -> Web {
        let start = |dir: &Path, port: u16| {
            let root = dir.display();
            let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|what| format!("{what}_temp_path {root}/tmp/{what}; "))
                .concat();
            let config = format!(
                "daemon off; worker_processes 2; pid {root}/tmp/pid; error_log {root}/tmp/error.log;\n\
                 events {{ worker_connections 256; }}\n\
                 http {{ access_log {root}/tmp/log; {paths}\n\
                 server {{ listen 127.0.0.1:{port}; root {root}/www; autoindex on; {more} }} }}\n"
            );
            fs::write(dir.join("nginx.conf"), config).expect("own file");
            nginx.arg("-e").arg(dir.join("tmp/error.log")).arg("-c").arg(dir.join("nginx.conf"))
        };
        Self::begin(start, listens)
    }

    /// Apache with four workers: further connections wait until one of these has ended.
    fn apache_of_four() -> Web {
        let start = |dir: &Path, port: u16| {
            let root = dir.display();
            let modules: String = ["mpm_prefork", "authz_core", "env", "ratelimit"]
                .map(|name| {
                    format!("<IfModule !{name}_module>\nLoadModule {name}_module modules/mod_{name}.so\n</IfModule>\n")
                })
                .concat();
            let config = format!(
                "ServerRoot /usr/lib/apache2\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/tmp/pid\n\
                 ErrorLog {root}/tmp/error.log\n{modules}User www-data\nGroup www-data\nDocumentRoot {root}/www\n\
                 StartServers 4\nServerLimit 4\nMaxRequestWorkers 4\nSetOutputFilter RATE_LIMIT\n\
                 SetEnv rate-limit 2000\nSetEnv rate-initial-burst 1\n"
            );
            fs::write(dir.join("apache.conf"), config).expect("own file");
            Run::new("apache2").arg("-DFOREGROUND").arg("-f").arg(dir.join("apache.conf"))
        };
        Self::begin(start, |_, port| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    pub fn python() -> Web {
        let start = |dir: &Path, port: u16| {
            let port = port.to_string();
            Run::new("python3")
                .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
                .arg(dir.join("www"))
                .arg(port)
        };
        Self::begin(start, |_, port| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    pub fn www(&self) -> PathBuf {
        self.dir.path().join("www")
    }

    pub fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server; files stay until the directory is dropped.
    pub fn stopped(self) -> tempfile::TempDir {
        self.server.kill();
        self.dir
    }

    pub fn haul(&self) -> Run {
        let run = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        run.env("HOME", self.dir.path().join("home"))
            .env("XDG_CACHE_HOME", OsString::from(self.dir.path().join("cache")))
    }

    fn cp(&self, path: &str) -> Run {
        self.haul().args(["cp", "--json"]).arg(self.url(path)).arg(self.to())
    }
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).expect("it is there") == fs::read(other).expect("it is there")
}

#[test]
fn a_file_comes_with_its_time_under_its_name_or_a_new_one() {
    needs!(Haul, Tool("nginx"));
    let web = Web::nginx("");
    let file = web.www().join("a b");
    plant::file(&file, 30_000_000, 1);
    plant::set_mtime(&file, 1_000_000_000, 0);
    let run = web.haul().arg("cp").arg(web.url("a b")).arg(web.to()).run().expect(code::OK);
    assert!(run.stdout_text().contains("size alone"), "{run}");
    assert!(same(&file, &web.to().join("a b")));
    assert_eq!(fs::metadata(web.to().join("a b")).expect("it is there").mtime(), 1_000_000_000);
    web.haul().arg("cp").arg(web.url("a%20b")).arg(web.to().join("new")).run().expect(code::OK);
    assert!(same(&file, &web.to().join("new")));
    assert_eq!(web.cp("a b").run().expect(code::OK).count("files_moved"), 0, "it is there already");
    // The other version's bytes never count as there.
    plant::file(&file, 30_000_000, 2);
    web.cp("a b").run().expect(code::OK);
    assert!(same(&file, &web.to().join("a b")));
}

#[test]
fn a_tree_comes_from_the_pages_of_nginx_and_python_and_from_lists_in_json() {
    needs!(Haul, Tool("nginx"), Tool("python3"));
    for web in [Web::nginx(""), Web::nginx("autoindex_format json;"), Web::python()] {
        let tree = web.www().join("tree");
        plant::many(&tree.join("many"), 200, 300, 1);
        plant::file(&tree.join("sub/large"), 5_000_000, 2);
        fs::create_dir_all(tree.join("sub/empty")).expect("own directory");
        for name in [
            "a b",
            "100%",
            "per%20cent",
            "#hash",
            "quest?ion",
            "semi;colon",
            "\u{e4}\u{f6}",
            "a&b",
            "plus+",
            "'quote\"",
        ] {
            plant::text(&tree.join("odd").join(name), name);
        }
        web.cp("tree/").run().expect(code::OK);
        assert_same(&tree, &web.to(), Facets::CONTENTS);
        let again = web.cp("tree/").run().expect(code::OK);
        assert_eq!((again.count("files_moved"), again.count("failed")), (0, 0));
        // Without the slash it keeps its name.
        let named = web.to().join("named");
        web.haul().arg("cp").arg(web.url("tree")).arg(&named).run().expect(code::OK);
        assert_same(&tree, &named.join("tree"), Facets::CONTENTS);
    }
}

#[test]
fn a_copy_that_was_killed_goes_on_inside_the_file() {
    needs!(Haul, Tool("nginx"), Tool("python3"));
    // A death costs at most 256 MiB.
    const SIZE: u64 = 420_000_000;
    const CUT_AT: u64 = 330_000_000;
    const AT_RISK: u64 = 256 << 20;
    for web in [Web::nginx(""), Web::python()] {
        plant::file(&web.www().join("file"), SIZE, 1);
        plant::set_mtime(&web.www().join("file"), 1_000_000_000, 0);
        let mut copy = web.cp("file").args(["--rate", "160MB"]).start();
        copy.when_moved(CUT_AT);
        copy.kill();
        assert!(!web.to().join("file").exists());
        let again = web.cp("file").run().expect(code::OK);
        let moved = again.count("bytes_moved");
        assert!(moved <= SIZE - CUT_AT + AT_RISK, "{moved}");
        assert!(same(&web.www().join("file"), &web.to().join("file")));
    }
}

#[test]
fn a_file_that_is_replaced_meanwhile_is_never_mixed() {
    needs!(Haul, Tool("nginx"), Tool("python3"));
    for web in [Web::nginx(""), Web::python()] {
        let file = web.www().join("file");
        plant::file(&file, 30_000_000, 1);
        plant::set_mtime(&file, 1_000_000_000, 0);
        let mut copy = web.cp("file").args(["--rate", "60Mbit"]).start();
        copy.when_moved(10_000_000);
        let new = web.www().join("new");
        plant::file(&new, 30_000_000, 2);
        plant::set_mtime(&new, 1_100_000_000, 0);
        fs::rename(&new, &file).expect("own file");
        copy.wait().expect_one_of(&[code::OK, code::PARTIAL]);
        // A name has one version; an open answer may end with the old.
        if web.to().join("file").exists() {
            plant::file(&new, 30_000_000, 1);
            let copied = web.to().join("file");
            assert!(same(&copied, &file) || same(&copied, &new));
        }
        web.cp("file").run().expect(code::OK);
        assert!(same(&web.to().join("file"), &file));
    }
}

#[test]
fn what_cannot_be_copied_is_refused_in_a_sentence() {
    needs!(Haul, Tool("nginx"));
    let web = Web::nginx("location = /secret { return 403; } location = /loop { return 302 /loop; }");
    plant::text(&web.www().join("file"), "words");
    let refused = |args: &[&str], wanted: i32, words: &[&str]| {
        let run = web.haul().arg("cp").args(args).current_dir(web.to()).run();
        run.expect(wanted).says(words);
    };
    let (there, none) = (web.url("file"), web.url("none"));
    refused(&[&none, "."], code::PARTIAL, &["404", "no such file"]);
    refused(&[&web.url("secret"), "."], code::AUTHENTICATION, &["403"]);
    refused(&[&web.url("loop"), "."], code::FILE_IO, &["circle"]);
    refused(&["file", &there], code::USAGE, &["no target", "haul serve"]);
    refused(&[&there, "http://127.0.0.1:1/x", "."], code::USAGE, &["one place"]);
    refused(&["--filter=dir-merge .rules", &there, "."], code::USAGE, &["dir-merge"]);
    refused(&["--remove-source-files", &there, "."], code::USAGE, &["nothing can be removed"]);
    let secret = format!("http://me:hush@127.0.0.1:{}/none?sig=hush", web.port);
    let run = web.haul().arg("cp").arg(&secret).arg(web.to()).run().expect(code::PARTIAL);
    assert!(!run.to_string().replace(&secret, "").contains("hush"), "{run}");
    refused(&[&there, "."], code::OK, &[]);
}

#[test]
fn files_of_a_web_server_go_on_to_another_host() {
    needs!(Namespaces, Haul, Tool("nginx"));
    let lab = Lab::pair();
    let web = Web::nginx_in("", lab.home().run("nginx"), |dir, _| dir.join("tmp/pid").exists());
    plant::file(&web.www().join("tree/file"), 20_000_000, 1);
    plant::text(&web.www().join("tree/small"), "words");
    let to = lab.data("alpha").join("to");
    lab.cp().arg(web.url("tree/")).arg(at("alpha", &to)).run().expect(code::OK);
    assert_same(&web.www().join("tree"), &to, Facets::CONTENTS);
}

#[test]
fn a_server_with_fewer_workers_than_lanes_gives_the_file_over_these() {
    needs!(Root, Haul, Tool("apache2"));
    let web = Web::apache_of_four();
    let file = web.www().join("file");
    // The four bring 8 MB/s, and the others would wait for longer than a server may be silent.
    plant::file(&file, 200_000_000, 1);
    let run = web.cp("file").args(["--lanes", "16"]).run().expect(code::OK);
    assert!(same(&file, &web.to().join("file")), "{run}");
}

//! Copies from and to others' WebDAV servers, and their sums: nginx, Apache, rclone, wsgidav, XRootD.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Lab, Run, Running, assert_same, at, code, needs, plant, scratch};

struct Dav {
    dir: tempfile::TempDir,
    _server: Running,
    port: u16,
}

const NGINX_DAV: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("it is bound").port()
}

fn answers(_: &Path, port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

impl Dav {
    fn begin(start: impl FnOnce(&Path, u16) -> Run, listens: impl Fn(&Path, u16) -> bool) -> Dav {
        let dir = scratch();
        for name in ["www", "from", "to", "tmp"] {
            fs::create_dir(dir.path().join(name)).expect("own directory");
            // Some servers' workers are another user.
            plant::set_mode(&dir.path().join(name), 0o777);
        }
        plant::set_mode(dir.path(), 0o755);
        let port = free_port();
        let mut server = start(dir.path(), port).start();
        server.when("it listens", |_| listens(dir.path(), port));
        Dav { dir, _server: server, port }
    }

    fn nginx() -> Dav {
        Self::nginx_in(Run::new("nginx"), answers)
    }

    fn nginx_in(nginx: Run, listens: impl Fn(&Path, u16) -> bool) -> Dav {
        let start = |dir: &Path, port: u16| {
            let root = dir.display();
            let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|what| format!("{what}_temp_path {root}/tmp/{what}; "))
                .concat();
            let config = format!(
                "load_module {NGINX_DAV}; daemon off; worker_processes 2; pid {root}/tmp/pid; error_log {root}/tmp/error.log;\n\
                 events {{ worker_connections 256; }}\n\
                 http {{ access_log {root}/tmp/log; client_max_body_size 0; {paths}\n\
                 server {{ listen 127.0.0.1:{port}; root {root}/www; dav_access all:rw;\n\
                 dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; }} }}\n"
            );
            fs::write(dir.join("nginx.conf"), config).expect("own file");
            nginx.arg("-e").arg(dir.join("tmp/error.log")).arg("-c").arg(dir.join("nginx.conf"))
        };
        Self::begin(start, listens)
    }

    fn apache() -> Dav {
        let start = |dir: &Path, port: u16| {
            let root = dir.display();
            let modules: String = ["mpm_event", "authz_core", "dav", "dav_fs", "dir", "unixd"]
                .map(|name| {
                    format!("<IfModule !{name}_module>\nLoadModule {name}_module modules/mod_{name}.so\n</IfModule>\n")
                })
                .concat()
                .replace("<IfModule !unixd_module>\nLoadModule unixd_module modules/mod_unixd.so\n</IfModule>\n", "");
            let config = format!(
                "ServerRoot /usr/lib/apache2\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/tmp/pid\n\
                 ErrorLog {root}/tmp/error.log\n{modules}User www-data\nGroup www-data\nDocumentRoot {root}/www\n\
                 DavLockDB {root}/tmp/locks\n<Directory {root}/www>\nDav On\nRequire all granted\n</Directory>\n"
            );
            fs::write(dir.join("apache.conf"), config).expect("own file");
            Run::new("apache2").arg("-DFOREGROUND").arg("-f").arg(dir.join("apache.conf"))
        };
        Self::begin(start, answers)
    }

    fn rclone() -> Dav {
        let start = |dir: &Path, port: u16| {
            Run::new("rclone")
                .args(["serve", "webdav", "--dir-cache-time", "0s", "--addr"])
                .arg(format!("127.0.0.1:{port}"))
                .arg(dir.join("www"))
                .env("RCLONE_CONFIG", dir.join("tmp/rclone.conf"))
        };
        Self::begin(start, answers)
    }

    fn wsgidav() -> Dav {
        let start = |dir: &Path, port: u16| {
            let config = format!(
                "host: 127.0.0.1\nport: {port}\nserver: cheroot\nprovider_mapping:\n  \"/\": \"{}\"\n\
                 simple_dc:\n  user_mapping: {{ \"*\": true }}\nmutable_live_props: [\"{{DAV:}}getlastmodified\"]\n\
                 property_manager: true\nverbose: 1\n",
                dir.join("www").display()
            );
            fs::write(dir.join("wsgidav.yaml"), config).expect("own file");
            Run::new("wsgidav").arg("--config").arg(dir.join("wsgidav.yaml"))
        };
        Self::begin(start, answers)
    }

    fn www(&self) -> PathBuf {
        self.dir.path().join("www")
    }

    fn from(&self) -> PathBuf {
        self.dir.path().join("from")
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    fn url(&self, path: &str) -> String {
        format!("dav://127.0.0.1:{}/{path}", self.port)
    }

    fn haul(&self) -> Run {
        let run = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        run.env("HOME", self.dir.path().join("home"))
            .env("XDG_CACHE_HOME", OsString::from(self.dir.path().join("cache")))
    }

    fn up(&self) -> Run {
        self.haul().args(["cp", "--json"]).arg(format!("{}/", self.from().display())).arg(self.url("tree/"))
    }

    /// Names of haul's unfinished files.
    fn drafts(&self) -> usize {
        let names = fs::read_dir(self.www().join("tree")).expect("it is there");
        names
            .filter(|name| name.as_ref().expect("it is listed").file_name().to_string_lossy().starts_with(".haul-"))
            .count()
    }
}

/// wsgidav cuts a name at it.
const QUESTION: &str = "quest?ion";

const ODD_NAMES: [&str; 10] =
    ["a b", "100%", "per%20cent", "#hash", QUESTION, "\u{e4}\u{f6}", "a&b", "plus+", "'quote\"<>", "back\\slash"];

fn fill(tree: &Path) {
    plant::many(&tree.join("many"), 200, 300, 1);
    plant::file(&tree.join("sub/deep/large"), 5_000_000, 2);
    plant::file(&tree.join("sub/empty"), 0, 3);
    fs::create_dir_all(tree.join("sub/none")).expect("own directory");
    for name in ODD_NAMES {
        plant::text(&tree.join("odd").join(name), name);
    }
}

#[test]
fn a_tree_goes_up_to_every_server_and_comes_back_as_it_was() {
    needs!(Root, Haul, Tool("nginx"), File(NGINX_DAV), Tool("apache2"), Tool("rclone"), Tool("wsgidav"));
    for (dav, cuts) in [(Dav::nginx(), 0), (Dav::apache(), 0), (Dav::rclone(), 0), (Dav::wsgidav(), 1)] {
        fill(&dav.from());
        if cuts > 0 {
            let run = dav.up().run().expect(code::PARTIAL);
            assert_eq!((run.count("failed"), run.count("files_moved")), (1, 211), "{run}");
            fs::remove_file(dav.from().join("odd").join(QUESTION)).expect("own file");
            fs::remove_dir_all(dav.www().join("tree")).expect("own directory");
        }
        let up = dav.up().run().expect(code::OK);
        assert!(up.stdout_text().contains("\"proof\":\"confirmed\""), "{up}");
        assert_eq!(dav.drafts(), 0);
        dav.haul().args(["cp", "--json"]).arg(dav.url("tree/")).arg(dav.to()).run().expect(code::OK);
        assert_same(&dav.from(), &dav.to(), Facets::CONTENTS);
        plant::text(&dav.from().join("odd/a b"), "another");
        fs::remove_file(dav.from().join("odd/100%")).expect("own file");
        fs::remove_dir_all(dav.from().join("sub/deep")).expect("own directory");
        let again = dav.up().args(["--size-only", "--delete"]).run().expect(code::OK);
        assert_eq!((again.count("files_moved"), again.count("deleted")), (1, 3), "{again}");
        dav.haul().args(["cp", "--delete"]).arg(dav.url("tree/")).arg(dav.to()).run().expect(code::OK);
        assert_same(&dav.from(), &dav.to(), Facets::CONTENTS);
    }
}

#[test]
fn a_server_that_keeps_times_has_nothing_to_copy_the_second_time_and_one_without_is_told_once() {
    needs!(Root, Haul, Tool("nginx"), File(NGINX_DAV), Tool("wsgidav"));
    let dav = Dav::wsgidav();
    plant::text(&dav.from().join("old"), "words");
    plant::set_mtime(&dav.from().join("old"), 1_000_000_000, 0);
    dav.up().run().expect(code::OK);
    assert_eq!(dav.up().run().expect(code::OK).count("files_moved"), 0);
    let dav = Dav::nginx();
    plant::many(&dav.from(), 20, 300, 1);
    let told = dav.haul().arg("cp").arg(dav.from()).arg(dav.url("")).run().expect(code::OK).to_string();
    assert_eq!(told.matches("keeps no times").count(), 1, "{told}");
}

#[test]
fn what_went_up_is_read_back_where_that_is_asked_for() {
    needs!(Root, Haul, Tool("nginx"), File(NGINX_DAV));
    let dav = Dav::nginx();
    plant::many(&dav.from(), 20, 300, 1);
    plant::file(&dav.from().join("large"), 20_000_000, 2);
    let run = dav.up().args(["--verify", "disk"]).run().expect(code::OK);
    assert!(run.count("bytes_reread") >= 20_000_000, "{run}");
    let run = dav.haul().arg("cp").arg(dav.from().join("large")).arg(dav.url("new")).run().expect(code::OK);
    assert!(run.stdout_text().contains("size only"), "{run}");
    assert_eq!(
        fs::read(dav.www().join("new")).expect("it is there"),
        fs::read(dav.from().join("large")).expect("own file")
    );
}

#[test]
fn a_copy_that_was_killed_leaves_nothing_under_a_final_name() {
    needs!(Root, Haul, Tool("nginx"), File(NGINX_DAV), Tool("apache2"), Tool("rclone"), Tool("wsgidav"));
    for dav in [Dav::nginx(), Dav::apache(), Dav::rclone(), Dav::wsgidav()] {
        plant::file(&dav.from().join("large"), 60_000_000, 1);
        plant::file(&dav.from().join("old"), 60_000_000, 2);
        fs::create_dir(dav.www().join("tree")).expect("own directory");
        plant::set_mode(&dav.www().join("tree"), 0o777);
        plant::text(&dav.www().join("tree/old"), "what was there");
        let mut copy = dav.up().args(["--rate", "30MB"]).start();
        copy.when_moved(20_000_000);
        copy.kill();
        assert!(!dav.www().join("tree/large").exists());
        assert_eq!(fs::read(dav.www().join("tree/old")).expect("it is there"), b"what was there");
        let again = dav.up().run().expect(code::OK);
        assert_eq!(again.count("files_moved"), 2, "{again}");
        assert_eq!(dav.drafts(), 0, "the second run took the names of the first");
    }
}

#[test]
fn what_webdav_has_not_is_refused_or_fails_by_itself() {
    needs!(Root, Haul, Tool("nginx"), File(NGINX_DAV));
    let dav = Dav::nginx();
    plant::text(&dav.from().join("file"), "words");
    std::os::unix::fs::symlink("file", dav.from().join("link")).expect("own directory");
    let run = dav.up().run().expect(code::PARTIAL);
    assert_eq!((run.count("files_moved"), run.count("failed")), (1, 1), "{run}");
    for flag in ["-H", "-X", "-A", "--append-verify", "--backup"] {
        dav.up().arg(flag).run().expect(code::USAGE);
    }
    let web = dav.url("tree/").replace("dav://", "http://");
    dav.haul().arg("cp").arg(dav.from().join("file")).arg(web).run().expect(code::USAGE).says(&["davs://"]);
}

#[test]
fn files_of_another_host_go_up_through_this_one() {
    needs!(Namespaces, Haul, Tool("nginx"), File(NGINX_DAV));
    let lab = Lab::pair();
    let dav = Dav::nginx_in(lab.home().run("nginx"), |dir, _| dir.join("tmp/pid").exists());
    let from = lab.data("alpha").join("tree");
    plant::many(&from, 100, 300, 1);
    plant::file(&from.join("large"), 20_000_000, 2);
    plant::file(&from.join("larger"), 30_000_000, 3);
    lab.cp().arg(at("alpha", from.join(""))).arg(dav.url("tree/")).run().expect(code::OK);
    assert_same(&from, &dav.www().join("tree"), Facets::CONTENTS);
}

#[test]
fn files_of_xrootd_have_the_adler32_that_it_gives() {
    needs!(Root, Haul, Tool("xrootd"));
    let start = |dir: &Path, port: u16| {
        let (root, other) = (dir.display(), free_port());
        let config = format!(
            "all.export /\noss.localroot {root}/www\nxrd.port {other}\nxrd.protocol http:{port} libXrdHttp.so\n\
             xrootd.chksum max 2 adler32 md5\nall.adminpath {root}/tmp\nall.pidpath {root}/tmp\n"
        );
        fs::write(dir.join("xrootd.cf"), config).expect("own file");
        Run::new("xrootd").args(["-R", "nobody", "-l"]).arg(dir.join("tmp/log")).arg("-c").arg(dir.join("xrootd.cf"))
    };
    let xrootd = Dav::begin(start, answers);
    plant::file(&xrootd.www().join("large"), 50_000_000, 1);
    plant::file(&xrootd.www().join("small"), 70_000, 2);
    let url = |name: &str| xrootd.url(name).replace("dav://", "http://");
    let run = xrootd.haul().arg("cp").args([url("large"), url("small")]).arg(xrootd.to()).run().expect(code::OK);
    assert!(run.stdout_text().contains("verified adler32 by the server"), "{run}");
    assert_same(&xrootd.www(), &xrootd.to(), Facets::CONTENTS);
}

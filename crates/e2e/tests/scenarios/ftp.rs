//! Copies from and to others' FTP servers: vsftpd without MLSD, proftpd with TLS and sums, pyftpdlib.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_e2e::memory::PeakWatch;
use haul_e2e::{Facets, Run, Running, assert_same, code, needs, plant, scratch};

struct Ftp {
    dir: tempfile::TempDir,
    _server: Running,
    port: u16,
    /// Stands in front of the host in a URL.
    login: &'static str,
    scheme: &'static str,
}

/// Debian installs one FTP server at a time; this one stands beside vsftpd.
const PROFTPD_MODULES: &str = "/usr/local/lib/proftpd/usr/lib/proftpd";
const MOD_TLS: &str = "/usr/local/lib/proftpd/usr/lib/proftpd/mod_tls.so";

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("it is bound").port()
}

impl Ftp {
    fn begin(login: &'static str, scheme: &'static str, start: impl FnOnce(&Path, u16) -> Run) -> Ftp {
        let dir = scratch();
        // vsftpd refuses a top that its user may write to.
        for name in ["home", "home/www", "from", "to", "tmp", "empty"] {
            fs::create_dir(dir.path().join(name)).expect("own directory");
        }
        // Sessions are another user's.
        plant::set_mode(&dir.path().join("home/www"), 0o777);
        plant::set_mode(dir.path(), 0o755);
        let port = free_port();
        let mut server = start(dir.path(), port).start();
        server.when("it listens", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Ftp { dir, _server: server, port, login, scheme }
    }

    /// `games` stands for anybody: every Debian has it and its home.
    fn vsftpd(more: &'static str, scheme: &'static str) -> Ftp {
        Self::begin("", scheme, |dir, port| {
            let root = dir.display();
            if !more.is_empty() {
                certificate(dir);
            }
            let config = format!(
                "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
                 anon_root={root}/home\nwrite_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
                 anon_other_write_enable=YES\nanon_world_readable_only=NO\nanon_umask=022\nftp_username=games\n\
                 secure_chroot_dir={root}/empty\nseccomp_sandbox=NO\nxferlog_enable=NO\n{}",
                more.replace("DIR", &root.to_string())
            );
            fs::write(dir.join("vsftpd.conf"), config).expect("own file");
            Run::new("vsftpd").arg(dir.join("vsftpd.conf"))
        })
    }

    fn vsftpd_plain() -> Ftp {
        Self::vsftpd("", "ftp")
    }

    /// TLS from the first byte; each data connection must continue its session.
    fn vsftpd_tls() -> Ftp {
        const TLS: &str = "ssl_enable=YES\nimplicit_ssl=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\nforce_anon_data_ssl=YES\n\
                           ssl_tlsv1=YES\nssl_ciphers=HIGH\nrequire_ssl_reuse=YES\nrsa_cert_file=DIR/cert.pem\nrsa_private_key_file=DIR/key.pem\n";
        Self::vsftpd(TLS, "ftps")
    }

    fn proftpd() -> Ftp {
        Self::begin("me:s%65cret@", "ftp", |dir, port| {
            let root = dir.display();
            certificate(dir);
            let hash = Run::new("openssl").args(["passwd", "-6", "secret"]).run().expect(code::OK).stdout_text();
            let users = format!("me:{}:5:60::{root}/home:/bin/sh\n", hash.trim());
            fs::write(dir.join("users"), users).expect("own file");
            plant::set_mode(&dir.join("users"), 0o600);
            let config = format!(
                "ServerType standalone\nPort {port}\nDefaultAddress 127.0.0.1\nSocketBindTight on\nUseIPv6 off\nUser games\nGroup games\n\
                 PidFile {root}/tmp/pid\nScoreboardFile {root}/tmp/score\nSystemLog {root}/tmp/log\nTransferLog none\nWtmpLog off\n\
                 DelayEngine off\nModulePath {PROFTPD_MODULES}\nLoadModule mod_digest.c\nLoadModule mod_tls.c\nAuthUserFile {root}/users\n\
                 AuthOrder mod_auth_file.c\nRequireValidShell off\nAllowOverwrite on\nAllowStoreRestart on\nDefaultRoot ~\nTLSEngine on\n\
                 TLSRSACertificateFile {root}/cert.pem\nTLSRSACertificateKeyFile {root}/key.pem\nDigestEngine on\n"
            );
            fs::write(dir.join("proftpd.conf"), config).expect("own file");
            Run::new("proftpd").arg("-n").arg("-c").arg(dir.join("proftpd.conf"))
        })
    }

    fn pyftpdlib() -> Ftp {
        Self::begin("", "ftp", |dir, port| {
            let port = port.to_string();
            Run::new("python3")
                .args(["-m", "pyftpdlib", "-i", "127.0.0.1", "-w", "-p", &port, "-d"])
                .arg(dir.join("home"))
        })
    }

    fn www(&self) -> PathBuf {
        self.dir.path().join("home/www")
    }

    fn from(&self) -> PathBuf {
        self.dir.path().join("from")
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}127.0.0.1:{}/www/{path}", self.scheme, self.login, self.port)
    }

    fn haul(&self) -> Run {
        let run = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        run.env("HOME", self.dir.path().join("home"))
            .env("XDG_CACHE_HOME", OsString::from(self.dir.path().join("cache")))
            .env("SSL_CERT_FILE", self.dir.path().join("cert.pem"))
    }

    fn up(&self) -> Run {
        self.haul().args(["cp", "--json"]).arg(format!("{}/", self.from().display())).arg(self.url("tree/"))
    }

    fn down(&self) -> Run {
        self.haul().args(["cp", "--json"]).arg(self.url("tree/")).arg(self.to())
    }

    /// Names of haul's unfinished files.
    fn drafts(&self) -> usize {
        let names = fs::read_dir(self.www().join("tree")).expect("it is there");
        names
            .filter(|name| name.as_ref().expect("it is listed").file_name().to_string_lossy().starts_with(".haul-"))
            .count()
    }
}

fn certificate(dir: &Path) {
    Run::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(dir.join("key.pem"))
        .arg("-out")
        .arg(dir.join("cert.pem"))
        .run()
        .expect(code::OK);
}

const ODD_NAMES: [&str; 11] = [
    "a b",
    " leading",
    "100%",
    "#hash",
    "quest?ion",
    "\u{e4}\u{f6}",
    "a -> b",
    "-dash",
    "'quote\"<>",
    "back\\slash",
    "[star*]",
];

fn fill(tree: &Path) {
    plant::many(&tree.join("many"), 200, 300, 1);
    plant::file(&tree.join("sub/deep/large"), 20_000_000, 2);
    plant::file(&tree.join("sub/empty"), 0, 3);
    plant::text(&tree.join(".hidden"), "words");
    fs::create_dir_all(tree.join("sub/none")).expect("own directory");
    for name in ODD_NAMES {
        plant::text(&tree.join("odd").join(name), name);
    }
    plant::set_mtime(&tree.join("sub/empty"), 1_000_000_000, 0);
}

#[test]
fn a_tree_goes_up_to_every_server_and_comes_back_as_it_was() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"));
    for ftp in [Ftp::vsftpd_plain(), Ftp::vsftpd_tls(), Ftp::proftpd(), Ftp::pyftpdlib()] {
        fill(&ftp.from());
        let up = ftp.up().run().expect(code::OK);
        assert!(up.stdout_text().contains("\"proof\":\"confirmed\""), "{up}");
        assert_eq!(ftp.drafts(), 0);
        ftp.down().run().expect(code::OK);
        assert_same(&ftp.from(), &ftp.to(), Facets::CONTENTS);
        assert_eq!(ftp.up().run().expect(code::OK).count("files_moved"), 0, "it keeps times");
        assert_eq!(ftp.down().run().expect(code::OK).count("files_moved"), 0);
        plant::text(&ftp.from().join("odd/a b"), "another");
        fs::remove_file(ftp.from().join("odd/100%")).expect("own file");
        fs::remove_dir_all(ftp.from().join("sub/deep")).expect("own directory");
        let again = ftp.up().arg("--delete").run().expect(code::OK);
        assert_eq!((again.count("files_moved"), again.count("deleted")), (1, 3), "{again}");
        ftp.down().arg("--delete").run().expect(code::OK);
        assert_same(&ftp.from(), &ftp.to(), Facets::CONTENTS);
    }
}

#[test]
fn the_connections_of_a_short_copy_are_counted_and_not_those_that_it_might_have_had() {
    needs!(Haul, Tool("python3"));
    let ftp = Ftp::pyftpdlib();
    plant::text(&ftp.from().join("f"), "short");
    let up = ftp.haul().args(["cp", "--json"]).arg(ftp.from().join("f")).arg(ftp.url("f")).run().expect(code::OK);
    assert_eq!(up.count("lanes"), 1, "{up}");
}

#[test]
fn files_have_the_sum_that_their_server_gives() {
    needs!(Root, Haul, Tool("proftpd"), File(MOD_TLS), Tool("openssl"));
    let ftp = Ftp::proftpd();
    plant::file(&ftp.www().join("large"), 50_000_000, 1);
    plant::file(&ftp.www().join("small"), 70_000, 2);
    for name in ["large", "small"] {
        plant::set_mode(&ftp.www().join(name), 0o644);
    }
    let run = ftp.haul().arg("cp").args([ftp.url("large"), ftp.url("small")]).arg(ftp.to()).run().expect(code::OK);
    assert!(run.stdout_text().contains("verified SHA-1 by the server"), "{run}");
    assert_same(&ftp.www(), &ftp.to(), Facets::CONTENTS);
}

#[test]
fn a_copy_that_was_killed_leaves_nothing_under_a_final_name_and_goes_on_inside_the_file() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"));
    for ftp in [Ftp::vsftpd_plain(), Ftp::vsftpd_tls(), Ftp::proftpd(), Ftp::pyftpdlib()] {
        plant::file(&ftp.from().join("large"), 60_000_000, 1);
        fs::create_dir(ftp.www().join("tree")).expect("own directory");
        plant::set_mode(&ftp.www().join("tree"), 0o777);
        let mut copy = ftp.up().args(["--rate", "30MB"]).start();
        copy.when_moved(30_000_000);
        copy.kill();
        assert!(!ftp.www().join("tree/large").exists());
        let again = ftp.up().run().expect(code::OK);
        assert_eq!((again.count("files_moved"), ftp.drafts()), (1, 0), "{again}");
        assert!(again.count("bytes_moved") < 45_000_000, "it goes on behind what the server has: {again}");
        let mut copy = ftp.down().args(["--rate", "30MB"]).start();
        copy.when_moved(30_000_000);
        copy.kill();
        assert!(!ftp.to().join("large").exists());
        let again = ftp.down().run().expect(code::OK);
        assert!(again.count("bytes_read_again") >= 5_000_000, "it goes on inside the file: {again}");
        assert_same(&ftp.from(), &ftp.to(), Facets::CONTENTS);
    }
}

#[test]
fn a_large_file_goes_up_in_ranges_where_the_server_takes_them_and_goes_on_inside_them() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"), Tool("curl"));
    let unlocked = || Ftp::vsftpd("lock_upload_files=NO\n", "ftp");
    for (ftp, takes_ranges) in
        [(unlocked(), true), (Ftp::vsftpd_plain(), false), (Ftp::proftpd(), false), (Ftp::pyftpdlib(), false)]
    {
        plant::file(&ftp.from().join("large"), 200_000_000, 1);
        fs::create_dir(ftp.www().join("tree")).expect("own directory");
        plant::set_mode(&ftp.www().join("tree"), 0o777);
        let mut copy = ftp.up().args(["--lanes", "8", "--rate", "60MB"]).start();
        copy.when_moved(80_000_000);
        copy.kill();
        let names = fs::read_dir(ftp.www().join("tree")).expect("it is there");
        let sizes = names.map(|name| name.expect("listed").metadata().expect("it is there").len());
        let reaches = sizes.max().expect("a draft");
        assert_eq!(reaches > 150_000_000, takes_ranges, "ranges reach further than what was moved: {reaches}");
        let again = ftp.up().args(["--lanes", "8"]).run().expect(code::OK);
        assert_eq!((again.count("files_moved"), ftp.drafts()), (1, 0), "{again}");
        assert!(again.count("bytes_moved") < 150_000_000, "it goes on inside the file: {again}");
        Run::new("curl")
            .args(["-sk", "-o"])
            .arg(ftp.to().join("large"))
            .arg(ftp.url("tree/large"))
            .run()
            .expect(code::OK);
        assert_same(&ftp.from(), &ftp.to(), Facets::CONTENTS);
    }
}

#[test]
fn a_draft_of_other_data_is_not_gone_on_with() {
    needs!(Root, Haul, Tool("vsftpd"));
    let ftp = Ftp::vsftpd_plain();
    plant::file(&ftp.from().join("large"), 60_000_000, 1);
    fs::create_dir(ftp.www().join("tree")).expect("own directory");
    plant::set_mode(&ftp.www().join("tree"), 0o777);
    let mut copy = ftp.up().args(["--rate", "30MB"]).start();
    copy.when_moved(30_000_000);
    copy.kill();
    let draft =
        fs::read_dir(ftp.www().join("tree")).expect("it is there").next().expect("a draft").expect("listed").path();
    // Another host began to send something else there.
    plant::file(&ftp.from().join("../other"), fs::metadata(&draft).expect("it is there").len(), 9);
    fs::copy(ftp.from().join("../other"), &draft).expect("own file");
    let again = ftp.up().run().expect(code::OK);
    assert!(again.count("bytes_moved") == 60_000_000, "{again}");
    ftp.down().run().expect(code::OK);
    assert_same(&ftp.from(), &ftp.to(), Facets::CONTENTS);
}

#[test]
fn a_server_that_allows_few_connections_is_read_over_those() {
    needs!(Root, Haul, Tool("vsftpd"));
    let ftp = Ftp::vsftpd("max_per_ip=2\n", "ftp");
    plant::file(&ftp.www().join("large"), 100_000_000, 1);
    plant::many(&ftp.www().join("many"), 100, 300, 2);
    ftp.haul().arg("cp").arg(ftp.url("")).arg(ftp.to()).run().expect(code::OK);
    assert_same(&ftp.www(), &ftp.to(), Facets::CONTENTS);
}

#[test]
fn what_ftp_has_not_is_refused_or_fails_by_itself() {
    needs!(Root, Haul, Tool("vsftpd"));
    let ftp = Ftp::vsftpd_plain();
    plant::text(&ftp.from().join("file"), "words");
    plant::text(&ftp.from().join("line\nbreak"), "words");
    std::os::unix::fs::symlink("file", ftp.from().join("link")).expect("own directory");
    let run = ftp.up().run().expect(code::PARTIAL);
    assert_eq!((run.count("files_moved"), run.count("failed")), (1, 2), "{run}");
    for flag in ["-H", "-X", "-A", "--append-verify", "--backup"] {
        ftp.up().arg(flag).run().expect(code::USAGE);
    }
    ftp.haul().arg("cp").arg(ftp.url("missing")).arg(ftp.to()).run().expect(code::PARTIAL);
}

#[test]
fn wildcards_are_expanded_at_the_server() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"));
    for ftp in [Ftp::vsftpd_plain(), Ftp::proftpd(), Ftp::pyftpdlib()] {
        for name in ["run1/a.vdif", "run1/b.vdif", "run1/c.txt", "run2/d.vdif", "other/e.vdif"] {
            plant::text(&ftp.www().join(name), name);
        }
        let run = ftp.haul().args(["cp", "--json"]).arg(ftp.url("run*/*.vdif")).arg(ftp.to()).run().expect(code::OK);
        assert_eq!(run.count("files_moved"), 3, "{run}");
        assert!(ftp.to().join("a.vdif").exists() && ftp.to().join("d.vdif").exists());
        ftp.haul().arg("cp").arg(ftp.url("run9*")).arg(ftp.to()).run().expect(code::PARTIAL);
        let listed = ftp.haul().args(["ls", "-d"]).arg(ftp.url("run?")).run().expect(code::OK).stdout_text();
        assert!(listed.contains("run1") && listed.contains("run2") && !listed.contains("other"), "{listed}");
    }
}

#[test]
fn places_of_ftp_are_looked_at_and_changed() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"));
    for ftp in [Ftp::vsftpd_plain(), Ftp::vsftpd_tls(), Ftp::proftpd(), Ftp::pyftpdlib()] {
        plant::text(&ftp.www().join("file"), "words");
        plant::set_mtime(&ftp.www().join("file"), 1_000_000_000, 0);
        for at in 0..20 {
            plant::file(&ftp.www().join(format!("dir/sub/{at}")), 300, at);
        }
        plant::text(&ftp.www().join("dir/.hidden"), "words");
        for path in ["file", "dir", "dir/sub"] {
            plant::set_mode(&ftp.www().join(path), if path == "file" { 0o644 } else { 0o777 });
        }
        let on =
            |command: &str, flags: &[&str], path: &str| ftp.haul().arg(command).args(flags).arg(ftp.url(path)).run();
        let listed = on("ls", &["-l"], "").expect(code::OK);
        assert!(listed.stdout_text().contains("2001") && listed.stdout_text().contains("file"), "{listed}");
        assert_eq!(on("cat", &[], "file").expect(code::OK).stdout_text(), "words");
        let sizes = on("du", &["-bs"], "dir").expect(code::OK);
        assert!(sizes.stdout_text().starts_with("6005\t"), "20 files and a hidden one: {sizes}");
        assert!(on("stat", &[], "file").expect(code::OK).stdout_text().contains("Size: 5"));
        let list = ftp.to().join("list");
        fs::write(&list, on("hash", &["-m"], "dir").expect(code::OK).stdout).expect("own file");
        ftp.haul().arg("verify").arg(&list).arg(ftp.url("dir")).run().expect(code::OK);
        let same = ftp.haul().args(["diff", "-c"]).arg(ftp.www().join("dir")).arg(ftp.url("dir")).run();
        same.expect(code::OK);
        plant::text(&ftp.www().join("dir/sub/new"), "more");
        let bad =
            ftp.haul().args(["verify", "--extra"]).arg(&list).arg(ftp.url("dir")).run().expect(code::VERIFICATION);
        bad.says(&["extra: sub/new"]);
        on("mkdir", &[], "new").expect(code::OK);
        ftp.haul().arg("mv").args([ftp.url("dir/sub/new"), ftp.url("new/moved")]).run().expect(code::OK);
        assert_eq!(on("cat", &[], "new/moved").expect(code::OK).stdout_text(), "more");
        on("rm", &["-r"], "new").expect(code::OK);
        assert!(!ftp.www().join("new").exists());
        on("df", &[], "").expect(code::USAGE);
    }
}

#[test]
fn clean_removes_old_drafts_and_no_others() {
    needs!(Root, Haul, Tool("vsftpd"), Tool("proftpd"), File(MOD_TLS), Tool("openssl"), Tool("python3"));
    for ftp in [Ftp::vsftpd_plain(), Ftp::proftpd(), Ftp::pyftpdlib()] {
        plant::file(&ftp.from().join("large"), 60_000_000, 1);
        fs::create_dir(ftp.www().join("tree")).expect("own directory");
        plant::set_mode(&ftp.www().join("tree"), 0o777);
        plant::text(&ftp.www().join("tree/file"), "words");
        let mut copy = ftp.up().args(["--rate", "30MB"]).start();
        copy.when_moved(20_000_000);
        copy.kill();
        let clean = |flags: &[&str]| ftp.haul().arg("clean").args(flags).arg(ftp.url("")).run().expect(code::OK);
        assert_eq!(clean(&["-f"]).stdout_text(), "", "it is of today");
        let names = fs::read_dir(ftp.www().join("tree")).expect("it is there");
        let paths = names.map(|name| name.expect("it is listed").path());
        let draft = paths.into_iter().find(|path| path.to_string_lossy().contains(".haul-")).expect("the draft");
        plant::set_mtime(&draft, 1_000_000_000, 0);
        plant::set_mtime(&ftp.www().join("tree/file"), 1_000_000_000, 0);
        assert!(clean(&[]).stdout_text().contains(".haul-") && draft.exists());
        assert!(clean(&["-f"]).stdout_text().contains(".haul-") && !draft.exists());
        assert!(ftp.www().join("tree/file").exists());
        assert_eq!(ftp.up().run().expect(code::OK).count("bytes_moved"), 60_000_000);
    }
}

#[test]
fn a_million_names_by_mlsd_need_no_more_memory_than_a_bound() {
    needs!(Haul, Tool("python3"));
    let dir = scratch();
    let script = dir.path().join("server.py");
    fs::write(&script, include_str!("million_names_ftp.py")).expect("own directory");
    let mut server = Run::new("python3").arg(&script).limit(Duration::from_secs(600)).start();
    server.when("it tells its port", |server| server.stdout_so_far().ends_with(b"\n"));
    let port = String::from_utf8(server.stdout_so_far()).expect("a number").trim().to_owned();
    let url = format!("ftp://127.0.0.1:{port}/d/");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("own directory");
    // The program, its buffers and 8 MiB of sorted names; `ls` sorts up to 64 MiB (`SiteBounds`).
    for (command, flags, target, most_bytes) in [
        ("cp", &["--dry-run", "-q"][..], Some(&empty), 128 << 20),
        ("ls", &[], None, 100 << 20),
        ("du", &["-b"], None, 40 << 20),
    ] {
        let haul = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        let run = haul.arg(command).args(flags).arg(&url).args(target).env("HOME", dir.path());
        let running = run.limit(Duration::from_secs(300)).start();
        let pid = running.id();
        let peak = PeakWatch::start(move || vec![pid]);
        let run = running.wait().expect(code::OK);
        let peak = peak.largest().expect("it was seen");
        assert!(command != "ls" || run.stdout.iter().filter(|byte| **byte == b'\n').count() == 1_000_000);
        assert!(peak < most_bytes, "{command} {flags:?}: {} MiB", peak >> 20);
    }
}

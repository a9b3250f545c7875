//! `haul serve --http --https`, as other programs read it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use haul_e2e::{Facets, Run, Running, assert_same, code, contents_of, eventually, needs, plant};

use crate::{Stage, said};

pub(crate) struct Web {
    pub(crate) stage: Stage,
    pub(crate) daemon: Running,
    pub(crate) http: String,
    pub(crate) https: String,
}

impl Web {
    pub(crate) fn new(lines: &str) -> Web {
        let mut stage = Stage::new("ro");
        drop(stage.daemon.take());
        fs::create_dir(stage.at("public")).expect("own directory");
        let (http, https) = (format!("{}:8080", stage.address.ip()), format!("{}:8443", stage.address.ip()));
        let (certificate, key) = (stage.at("cert.pem"), stage.at("key.pem"));
        let names = format!("subjectAltName=IP:{}", stage.address.ip());
        Run::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=haul", "-addext", &names, "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .run()
            .expect(0);
        stage.write_list(lines);
        let serve = |more: &[&str]| {
            stage
                .haul("server")
                .args(["serve", "--listen", &stage.host(), "--http", &http, "--https", &https, "--public"])
                .arg(stage.at("public"))
                .arg("--certificate")
                .arg(&certificate)
                .arg("--certificate-key")
                .arg(&key)
                .args(more)
        };
        serve(&["--check"]).run().expect(code::OK).says(&["the settings are good"]);
        assert!(TcpStream::connect(&http).is_err(), "a check opens nothing");
        let mut daemon = serve(&[]).start();
        daemon.when("it listens", |daemon| said(daemon, "Z listening on"));
        Web { stage, daemon, http, https }
    }

    pub(crate) fn curl(&self) -> Run {
        Run::new("curl")
            .args(["--silent", "--show-error", "--cacert"])
            .arg(self.stage.at("cert.pem"))
            .current_dir(self.stage.dir.path())
    }
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("it is there") == fs::read(b).expect("it is there")
}

/// No port for debugging, metrics or administration, and no socket of another kind.
#[test]
fn a_daemon_listens_at_the_ports_that_it_was_told_and_at_no_other() {
    needs!(Haul, Tool("openssl"), Tool("ss"));
    let web = Web::new("");
    let run = Run::new("ss").args(["-tuxlnpH"]).run().expect(0);
    let (listed, owner) = (run.stdout_text(), format!("pid={},", web.daemon.id()));
    let its_own = listed.lines().filter(|line| line.contains(&owner));
    // Kind, state, two queues, address. The web's port has a listener for each floor of the retransmission timeout.
    let found: BTreeSet<String> =
        its_own.map(|line| line.split_whitespace().step_by(4).take(2).collect::<Vec<_>>().join(" ")).collect();
    let told = [web.stage.host(), web.http.clone(), web.https.clone()].map(|address| format!("tcp {address}"));
    assert_eq!(found, BTreeSet::from(told), "{run}");
}

#[test]
fn curl_gets_parts_goes_on_and_asks_again_over_both_ports_and_both_versions() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let stage = &web.stage;
    plant::file(&stage.at("public/large"), 20 << 20, 1);
    plant::text(&stage.at("public/ü & 100%.txt"), "odd\n");
    let large = stage.at("public/large");
    for base in [format!("http://{}", web.http), format!("https://{}", web.https)] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let version =
                if base.starts_with("https") { version.trim_end_matches("-prior-knowledge") } else { version };
            let url = format!("{base}/large");
            let got = stage.at("got");
            web.curl().args([version, "-o", "got", &url]).run().expect(0);
            assert!(same(&got, &large), "{url} {version}");
            web.curl().args([version, "-r", "0-9999999", "-o", "got", &url]).run().expect(0);
            web.curl().args([version, "-C", "-", "-o", "got", &url]).run().expect(0);
            assert!(same(&got, &large), "{url} {version}");
        }
        let status = |args: &[&str]| {
            let run = web.curl().args(["-o", "got2", "-w", "%{http_code}"]).args(args).run().expect(0);
            run.stdout_text()
        };
        let url = format!("{base}/large");
        web.curl().args(["--etag-save", "etag", "-o", "got", &url]).run().expect(0);
        assert_eq!(status(&["--etag-compare", "etag", &url]), "304");
        assert_eq!(status(&["-z", "Fri, 01 Jan 2100 00:00:00 GMT", &url]), "304");
        assert_eq!(status(&["-r", "99999999-", &url]), "416");
        assert_eq!(status(&["--path-as-is", &format!("{base}/../../etc/passwd")]), "400");
        assert_eq!(status(&["-T", "cert.pem", &format!("{base}/new")]), "405");
        assert!(!stage.at("public/new").exists());
        let odd = web.curl().arg(format!("{base}/%C3%BC%20%26%20100%25.txt")).run().expect(0);
        assert_eq!(odd.stdout_text(), "odd\n");
    }
}

#[test]
fn wget_aria2_and_rclone_bring_the_whole_tree() {
    needs!(Haul, Tool("curl"), Tool("openssl"), Tool("wget"), Tool("aria2c"), Tool("rclone"));
    let web = Web::new("");
    let stage = &web.stage;
    let tree = stage.at("public");
    for (number, name) in ["a/b/one", "a/two", "three", "a b/ü%&#?"].into_iter().enumerate() {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("own directory");
        plant::file(&path, 3_000_000 + number as u64, number as u64);
    }
    let base = format!("http://{}/", web.http);
    let run = |program: &str| Run::new(program).current_dir(stage.dir.path());
    run("wget")
        .args(["-q", "-r", "-np", "-nH", "-R", "index.html*", "-P", "wgot", "--restrict-file-names=nocontrol", &base])
        .run()
        .expect(0);
    for name in ["a/b/one", "a/two", "three"] {
        assert!(same(&tree.join(name), &stage.at("wgot").join(name)), "{name}");
    }
    run("aria2c")
        .args(["-q", "-x", "16", "-s", "16", "-k", "1M", "-o", "aria", &format!("{base}three")])
        .run()
        .expect(0);
    assert!(same(&tree.join("three"), &stage.at("aria")));
    let remote = format!(":http,url='{base}':");
    run("rclone").args(["check", "--download", &remote]).arg(&tree).run().expect(0);
}

#[test]
fn haul_copies_from_it_as_from_any_other_server() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let (stage, tree) = (&web.stage, web.stage.at("public"));
    plant::many(&tree.join("tree/many"), 1_200, 10, 2);
    for name in ["sub:dir/a:b c", "100%", "#a?b&c;d", "...", "plus+\u{e9}"] {
        let path = tree.join("tree/odd").join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("own directory");
        plant::file(&path, 2_000_000, 3);
    }
    let cp = |url: String, to: &str| {
        let run = stage.haul("client").env("SSL_CERT_FILE", stage.at("cert.pem")).arg("cp").arg(url);
        run.arg(stage.at(to)).run().expect(code::OK)
    };
    cp(format!("http://{}/tree/", web.http), "plain");
    assert_same(&tree.join("tree"), &stage.at("plain"), Facets::CONTENTS);
    cp(format!("https://{}/tree", web.https), "tls");
    assert_same(&tree.join("tree"), &stage.at("tls/tree"), Facets::CONTENTS);
    let distrusted = stage.haul("client").arg("cp").arg(format!("https://{}/tree/", web.https)).arg(stage.at("none"));
    distrusted.run().expect(code::AUTHENTICATION).says(&["certificate", "SSL_CERT_FILE"]);
}

#[test]
fn a_manifest_of_the_web_is_one_that_verify_reads() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let stage = &web.stage;
    plant::mixed(&stage.at("public/tree"), 1);
    plant::text(&stage.at("public/tree/victim"), "as it was\n");
    web.curl().args(["-o", "manifest", &format!("http://{}/tree/?manifest", web.http)]).run().expect(0);
    stage.cp().arg(contents_of(&stage.at("public/tree"))).arg(stage.at("copy")).run().expect(code::OK);
    assert_same(&stage.at("public/tree"), &stage.at("copy"), Facets::CONTENTS);
    stage.haul("client").args(["verify", "manifest", "copy"]).run().expect(code::OK);
    plant::text(&stage.at("copy/victim"), "altered\n");
    assert_ne!(stage.haul("client").args(["verify", "manifest", "copy"]).run().code(), code::OK);
}

#[test]
fn names_that_look_like_schemes_or_numbers_or_lie_behind_links_come_with_every_program() {
    needs!(Haul, Tool("curl"), Tool("openssl"), Tool("wget"), Tool("rclone"));
    let web = Web::new("");
    let (stage, tree) = (&web.stage, web.stage.at("public"));
    let names =
        ["2026-11-25T10:00.fits", "sub:dir/a:b c", "http:/x", "100%", "file2", "file10", "#a?b&c;d", "...", "plus+é"];
    for name in names {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("own directory");
        plant::text(&path, name);
    }
    std::os::unix::fs::symlink("sub:dir", tree.join("linked")).expect("own directory");
    let base = format!("http://{}/", web.http);
    let run = |program: &str| Run::new(program).current_dir(stage.dir.path());
    let remote = format!(":http,url='{base}':");
    run("rclone").args(["copy", &remote]).arg(stage.at("cloned")).run().expect(0);
    run("wget")
        .args(["-q", "-r", "-np", "-nH", "-R", "index.html*", "-P", "wgot", "--restrict-file-names=nocontrol", &base])
        .run()
        .expect(0);
    for name in names {
        assert_eq!(fs::read_to_string(stage.at("cloned").join(name)).ok().as_deref(), Some(name), "rclone: {name}");
        assert_eq!(fs::read_to_string(stage.at("wgot").join(name)).ok().as_deref(), Some(name), "wget: {name}");
    }
    assert!(stage.at("cloned/linked/a:b c").exists());
    if haul_e2e::needs::tool("lftp").is_some() {
        let script = format!("mirror {base} {}", stage.at("mirrored").display());
        run("lftp").args(["-c", &script]).run().expect(0);
        for name in names {
            assert!(stage.at("mirrored").join(name).exists(), "lftp: {name}");
        }
    }
    let url = format!("{base}./2026-11-25T10:00.fits");
    let seen = web.curl().args(["--path-as-is", &url]).run().expect(0);
    assert_eq!(seen.stdout_text(), "2026-11-25T10:00.fits");
}

/// A data set of many years has more names than anybody reads at once.
#[test]
fn rclone_lists_every_name_of_a_long_directory() {
    needs!(Haul, Tool("openssl"), Tool("rclone"));
    let web = Web::new("");
    let many = web.stage.at("public/many");
    fs::create_dir(&many).expect("own directory");
    for number in 0..25_000 {
        fs::File::create(many.join(format!("f{number}"))).expect("own file");
    }
    let remote = format!(":http,url='http://{}/many/':", web.http);
    let listed = Run::new("rclone").args(["lsf", "--http-no-head", &remote]).run().expect(0).stdout_text();
    assert_eq!(listed.lines().count(), 25_000);
}

#[test]
fn a_renewed_certificate_holds_without_a_new_start_and_a_hangup_ends_nothing() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let mut web = Web::new("");
    plant::text(&web.stage.at("public/file"), "words\n");
    let print = |web: &Web| {
        let script = format!(
            "openssl s_client -connect {} </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256",
            web.https
        );
        Run::new("sh").args(["-c", &script]).run().stdout_text()
    };
    let first = print(&web);
    assert!(first.contains("Fingerprint="), "{first}");
    // With half of the change, the old pair holds.
    let (key, certificate) = (web.stage.at("key.pem"), web.stage.at("cert.pem"));
    let (new_key, new_certificate) = (web.stage.at("new-key.pem"), web.stage.at("new-cert.pem"));
    let names = format!("subjectAltName=IP:{}", web.stage.address.ip());
    Run::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3"])
        .args(["-subj", "/CN=haul", "-addext", &names, "-keyout"])
        .arg(&new_key)
        .arg("-out")
        .arg(&new_certificate)
        .run()
        .expect(0);
    fs::rename(&new_key, &key).expect("own file");
    web.daemon.signal(rustix::process::Signal::HUP);
    web.daemon.when("it looks", |daemon| said(daemon, "looking again at keys, certificate"));
    web.daemon.when("it is half", |daemon| said(daemon, "the one from before holds"));
    assert_eq!(print(&web), first);
    fs::rename(&new_certificate, &certificate).expect("own file");
    web.daemon.when("it is whole", |daemon| said(daemon, "was read again"));
    assert_ne!(print(&web), first);
    let got = web.curl().arg(format!("https://{}/file", web.https)).run().expect(0);
    assert_eq!(got.stdout_text(), "words\n");
    for (version, is_spoken) in [("1.2", true), ("1.1", false)] {
        let url = format!("https://{}/file", web.https);
        let run = web.curl().args([&format!("--tlsv{version}"), "--tls-max", version, &url]).run();
        assert_eq!(run.stdout_text() == "words\n", is_spoken, "{version}: {run}");
    }
}

#[test]
fn tokens_and_certificates_open_the_directories_of_their_lines_and_no_others() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let stage = &web.stage;
    for name in ["lab/runs", "bob"] {
        fs::create_dir_all(stage.at(name)).expect("own directory");
    }
    plant::text(&stage.at("lab/runs/data"), "lab\n");
    plant::text(&stage.at("bob/data"), "bob\n");
    Run::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=bob", "-keyout", "bob.key", "-out", "bob.pem"])
        .current_dir(stage.dir.path())
        .run()
        .expect(0);
    let print =
        Run::new("openssl").args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(stage.at("bob.pem")).run();
    let print = print.expect(0).stdout_text().trim().rsplit('=').next().expect("it has one").to_owned();
    let (lab, bob) = (stage.at("lab"), stage.at("bob"));
    stage.write_list(&format!(
        "ro root=\"{}\" token:lab\nro root=\"{}\" cert:{print} bob\n",
        lab.display(),
        bob.display()
    ));
    let https = format!("https://{}", web.https);
    let token = stage.haul("server").args(["token", "token:lab"]).run().expect(code::OK).stdout_text();
    fs::write(stage.at("token"), &token).expect("own file");
    let narrow = stage.haul("client").args(["token", "--narrow", "token", "--path", "/runs", "--expires", "1h"]);
    let narrow = narrow.current_dir(stage.dir.path()).run().expect(code::OK).stdout_text();
    let get = |token: &str, path: &str| {
        fs::write(stage.at("field"), format!("Authorization: Bearer {}\n", token.trim())).expect("own file");
        let run = web.curl().args(["-H", "@field", "-w", "%{http_code}", &format!("{https}{path}")]).run().expect(0);
        run.stdout_text()
    };
    assert_eq!(get(&token, "/runs/data"), "lab\n200");
    assert_eq!(get(&narrow, "/runs/data"), "lab\n200");
    assert_eq!(get(&narrow, "/"), "401 unauthorized because of the token: it is for another path\n401");
    let last = token.trim().chars().last().expect("it has digits");
    let forged = format!("{}{}", &token.trim()[..token.trim().len() - 1], if last == '0' { '1' } else { '0' });
    assert_eq!(get(&forged, "/runs/data"), "401 unauthorized\n401");
    let with_certificate = web.curl().args(["--cert", "bob.pem", "--key", "bob.key", &format!("{https}/data")]).run();
    assert_eq!(with_certificate.expect(0).stdout_text(), "bob\n");
    let without = web.curl().args(["-w", "%{http_code}", &format!("{https}/data")]).run().expect(0);
    assert_eq!(without.stdout_text(), "404 not found\n404");
    // One token ends with all narrowed from it; others hold.
    let other = stage.haul("server").args(["token", "token:lab"]).run().expect(code::OK).stdout_text();
    let shown = stage.haul("server").args(["token", "show", narrow.trim()]).run().expect(code::OK).stdout_text();
    assert!(
        shown.contains("/runs and what is beneath") && shown.contains("with the key of the daemon here"),
        "{shown}"
    );
    let number = shown.strip_prefix("number   ").and_then(|rest| rest.lines().next()).expect("it begins so").to_owned();
    stage.haul("server").args(["token", "revoke", &number]).run().expect(code::OK).says(&[]);
    let revoked = "401 unauthorized because of the token: it was revoked\n401";
    assert_eq!((get(&token, "/runs/data").as_str(), get(&narrow, "/runs/data").as_str()), (revoked, revoked));
    assert_eq!(get(&other, "/runs/data"), "lab\n200");
    eventually("the log tells of the revoked token", Duration::from_secs(10), || {
        let said = String::from_utf8_lossy(&web.daemon.stderr_so_far()).into_owned();
        said.contains(&format!("token {number}) ")) && said.contains("the token was refused: it was revoked")
    });
    let token = other;
    // Leaving the list ends all tokens.
    stage.write_list("");
    assert_eq!(get(&token, "/runs/data"), "403 forbidden\n403");
    let other = Run::new("openssl").args(["s_client", "-alpn", "ftp", "-connect", &web.https]).run();
    assert!(other.stderr_text().contains("alert") || other.stdout_text().contains("alert"), "{other}");
}

/// The case asks for silence after a line that is no preface; a port with HTTP/1.1 answers 400 (RFC 9112, section 3).
const ANSWERED_AS_HTTP1: &str = "Sends invalid connection preface";

#[test]
fn http2_is_spoken_as_h2spec_asks() {
    needs!(Haul, Tool("openssl"));
    if Command::new("h2spec").arg("--version").output().is_err() {
        println!("skipped: h2spec is not installed; scripts/setup-test.sh installs it where there is Go");
        return;
    }
    let web = Web::new("");
    plant::text(&web.stage.at("public/file"), "hello\n");
    for (port, is_tls) in [(&web.https, true), (&web.http, false)] {
        let (address, number) = port.rsplit_once(':').expect("it has a port");
        let tls: &[&str] = if is_tls { &["-t", "-k"] } else { &[] };
        let told = Run::new("h2spec").args(["-h", address, "-p", number, "-P", "/file", "-o", "5"]).args(tls).run();
        let text = told.stdout_text();
        assert!(text.contains("145 tests, "), "{text}");
        let failed = text.lines().filter(|line| line.trim_start().starts_with("\u{d7} "));
        let unexpected = failed.filter(|line| is_tls || !line.contains(ANSWERED_AS_HTTP1));
        assert_eq!(unexpected.count(), 0, "{text}");
    }
}

/// docs/proof/faults.md A19 and A21.
#[test]
fn no_port_takes_what_is_meant_for_another_and_nobody_falls_back_to_clear() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let stage = &web.stage;
    plant::text(&stage.at("public/file"), "hello\n");
    // 60: unknown certificate, other than 3 and 56.
    let stranger = Run::new("curl").args(["-sS", &format!("https://{}/file", web.https)]).run();
    assert_eq!((stranger.code(), stranger.stdout_text().as_str()), (60, ""), "{stranger}");
    let said_to = |address: &str, bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
        let _ = stream.write_all(bytes);
        let mut said = Vec::new();
        // The other end closes, at the latest after its deadline for strangers.
        let _ = stream.read_to_end(&mut said);
        said
    };
    let request = format!("GET /file HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", web.http);
    assert!(said_to(&web.http, request.as_bytes()).ends_with(b"hello\n"));
    for port in [web.https.as_str(), &stage.address.to_string()] {
        let said = said_to(port, request.as_bytes());
        let has = |text: &[u8]| said.windows(text.len()).any(|part| part == text);
        assert!(!has(b"hello") && !has(b"HTTP/1.1 200"), "{port}: {}", said.escape_ascii());
    }
    // TLS's greeting at the clear port, and haul's words at both.
    let hello = [&b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"[..], b"HAUL\r\n\r\n"].concat();
    for port in [&web.http, &web.https] {
        assert!(!said_to(port, &hello).windows(5).any(|part| part == b"hello"), "{port}");
    }
    let to_https = stage.haul("client").args(["ls", &format!("haul://{}/", web.https)]).run();
    assert_ne!(to_https.code(), code::OK, "{to_https}");
}

#[test]
fn own_files_are_neither_shown_nor_listed_and_a_key_that_others_may_read_is_refused() {
    needs!(Haul, Tool("openssl"), Tool("curl"));
    let web = Web::new("");
    let public = web.stage.at("public");
    for name in ["data", ".haul-0123456789abcdef.part", ".haul-0123456789abcdef.journal", ".data.haul-17"] {
        plant::text(&public.join(name), "words\n");
    }
    let get = |path: &str| web.curl().arg(format!("http://{}/{path}", web.http)).run().stdout_text();
    assert!(get("data").contains("words"));
    for name in [".haul-0123456789abcdef.part", ".haul-0123456789abcdef.journal", ".data.haul-17"] {
        assert!(!get(name).contains("words") && !get("").contains(name), "{name}");
    }
    // A list of keys in the directory is there for nobody; a key in it prevents the start.
    let (certificate, key) = (web.stage.at("cert.pem"), web.stage.at("key.pem"));
    let check = |key: &std::path::Path| {
        let serve = web.stage.haul("server").args(["serve", "--check", "--https", "127.0.0.1:0", "--public"]);
        serve.arg(&public).arg("--certificate").arg(&certificate).arg("--certificate-key").arg(key).run()
    };
    check(&key).expect(code::OK);
    plant::set_mode(&key, 0o644);
    let remedy = format!("chmod 600 {}", key.display());
    check(&key).expect(code::AUTHENTICATION).says(&["others may read it", &remedy]);
    plant::set_mode(&key, 0o600);
    fs::copy(&key, public.join("key.pem")).expect("space");
    check(&public.join("key.pem")).expect(code::FILE_IO).says(&["could read the daemon's own", "public/key.pem"]);
}

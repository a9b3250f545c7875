//! Network classes of a daemon, as the kernel's sockets show them.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use haul_e2e::{Outcome, Run, Running, code, eventually, needs, plant};
use serde_json::Value;

use crate::web::Web;
use crate::{Stage, said};

struct Site {
    stage: Stage,
    http: String,
}

impl Site {
    fn new(access: &str, classes: &str) -> Site {
        let mut stage = Stage::new(access);
        drop(stage.daemon.take());
        fs::create_dir(stage.at("public")).expect("own directory");
        let http = format!("{}:8080", stage.address.ip());
        let mut site = Site { stage, http };
        site.write(classes);
        let mut daemon = site.serve(&[]).start();
        daemon.when("it listens", |daemon: &Running| said(daemon, "Z listening on"));
        site.stage.daemon = Some(daemon);
        site
    }

    fn write(&self, classes: &str) {
        let new = self.stage.at("new_classes");
        fs::write(&new, classes).expect("own file");
        fs::rename(new, self.stage.at("networks.toml")).expect("own file");
    }

    fn serve(&self, more: &[&str]) -> Run {
        let (stage, public) = (&self.stage, self.stage.at("public"));
        let serve = stage.haul("server").args(["serve", "--listen", &stage.host(), "--http", &self.http, "--public"]);
        serve.arg(public).arg("--networks").arg(stage.at("networks.toml")).args(more)
    }

    /// Waits until `ss` shows this for a new connection, which the kernel establishes before the daemon accepts it.
    fn when_its_socket_has(&self, word: &str) {
        let _held = TcpStream::connect(self.stage.address).expect("it listens");
        eventually(word, Duration::from_secs(10), || {
            let address = self.stage.host();
            let run = Run::new("ss").args(["-tinH", "state", "established", "src", &address]).run().expect(0);
            run.stdout_text().contains(word)
        });
    }
}

const TWO: &str = "\
[class.wide]
networks = [\"127.0.0.0/8\"]
congestion-control = \"cubic\"

[class.narrow]
networks = [\"127.0.0.0/24\"]
congestion-control = \"reno\"
user-timeout-s = 7
";

#[test]
fn the_longest_prefix_wins_the_kernels_socket_shows_it_and_a_changed_file_holds_at_once() {
    needs!(Haul, Tool("ss"));
    let site = Site::new("rw", TWO);
    site.when_its_socket_has("reno");
    plant::text(&site.stage.at("file"), "words\n");
    let copy = || site.stage.cp().args(["file", &site.stage.url("file")]).run().expect(code::OK);
    copy();
    site.stage.eventually_logs("class narrow) writes to 'file'");
    // A wrong file changes nothing; its line is told.
    site.write(&TWO.replace("user-timeout-s = 7", "user-timeout = 7"));
    site.stage.eventually_logs("the network classes from before hold");
    assert!(site.stage.log().contains("line 8"), "{}", site.stage.log());
    site.when_its_socket_has("reno");
    site.serve(&["--check"]).run().expect(code::USAGE).says(&["networks.toml", "line 8", "user-timeout"]);
    site.write("[class.wide]\nnetworks = [\"127.0.0.0/8\"]\ncongestion-control = \"cubic\"\n");
    site.stage.eventually_logs("the network classes were read again");
    site.when_its_socket_has("cubic");
    site.serve(&["--check"]).run().expect(code::OK).says(&["network classes of", "the settings are good"]);
}

#[test]
fn networks_shows_the_class_of_an_address_with_the_source_of_each_value_and_what_the_kernel_gave() {
    needs!(Haul);
    let stage = Stage::new("ro");
    fs::write(stage.at("networks.toml"), TWO).expect("own file");
    let networks = |args: &[&str]| {
        let run = stage.haul("server").args(["networks", "--networks", "networks.toml"]).args(args);
        run.run().expect(code::OK)
    };
    let run = networks(&["--json", "127.0.0.9"]);
    let shown: Value = serde_json::from_str(&run.stdout_text()).expect("one object");
    assert_eq!((&shown["class"], &shown["because"]), (&"narrow".into(), &"127.0.0.0/24".into()), "{run}");
    let values = shown["values"].as_array().expect("values");
    let of = |key: &str| values.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("{key}: {run}"));
    let timeout = of("user-timeout-s");
    assert_eq!((&timeout["granted"], &timeout["line"]), (&"7000 ms".into(), &8.into()), "{run}");
    assert_eq!((&of("congestion-control")["granted"], &of("keepalive")["source"]), (&"reno".into(), &"haul".into()));
    assert_eq!(of("rto-min-ms")["source"], "built-in", "{run}");
    networks(&["127.1.0.9"]).says(&["is in class wide (127.0.0.0/8)", "networks.toml:3 (wide)"]);
    let own = stage.at("server/.config/haul/networks.toml");
    fs::write(own, "[class.mine]\nnetworks = [\"203.0.113.0/24\"]\nlanes = 2\nrto-min-ms = 999\n").expect("own file");
    networks(&["203.0.113.7"]).says(&["class mine", "lanes", "rto_min 999ms"]);
    networks(&[]).says(&["wide", "narrow", "mine", "loopback", "the subnets of this host"]);
    fs::write(stage.at("networks.toml"), "[class.x]\nlanes = 2\n").expect("own file");
    let wrong = stage.haul("server").args(["networks", "--networks", "networks.toml"]).run().expect(code::USAGE);
    wrong.says(&["line 1", "class x"]);
}

fn hold(site: &Site, count: usize) -> Vec<TcpStream> {
    let held = (0..count).map(|_| TcpStream::connect(site.stage.address).expect("it listens")).collect();
    // Connections are accepted in order.
    held
}

#[test]
fn over_the_limit_of_connections_a_client_and_a_reader_are_told_so() {
    needs!(Haul, Tool("curl"));
    let site = Site::new("rw", "[class.loopback]\nconnections-per-address = 4\n");
    plant::text(&site.stage.at("file"), "words\n");
    plant::text(&site.stage.at("public/page"), "words\n");
    let copy = || site.stage.cp().args(["--lanes", "2", "file", &site.stage.url("file")]).run();
    let status = || {
        let url = format!("http://{}/page", site.http);
        let run = Run::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url]).run().expect(0);
        run.stdout_text()
    };
    let held = hold(&site, 4);
    copy().expect(code::BUSY).says(&["no more connections of your network", "at most 4 connections of one address"]);
    assert_eq!(status(), "429");
    site.stage.eventually_logs("network class loopback has at most 4 connections of one address");
    drop(held);
    eventually("room", Duration::from_secs(20), || status() == "200");
    copy().expect(code::OK);
}

#[test]
fn a_class_may_be_kept_from_writing_or_reading_whatever_its_keys_may_do() {
    needs!(Haul, Tool("curl"));
    let site = Site::new("rw", "[class.loopback]\nwrite = false\n");
    plant::text(&site.stage.at("file"), "words\n");
    plant::text(&site.stage.at("offered/theirs"), "words\n");
    plant::text(&site.stage.at("public/page"), "words\n");
    let push = || site.stage.cp().args(["file", &site.stage.url("file")]).run();
    let pull = || site.stage.cp().args([&site.stage.url("theirs"), "back"]).run();
    let page = || {
        let url = format!("http://{}/page", site.http);
        Run::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url]).run().expect(0).stdout_text()
    };
    push().expect(code::AUTHENTICATION).says(&["lets network class loopback only read"]);
    pull().expect(code::OK);
    assert_eq!(page(), "200");
    site.write("[class.loopback]\nread = false\n");
    site.stage.eventually_logs("were read again");
    pull().expect(code::AUTHENTICATION).says(&["lets network class loopback read nothing"]);
    push().expect(code::OK);
    assert_eq!(page(), "403");
    // A class without reading must not learn what the target has, so a changed file is sent whole.
    let file = site.stage.at("file");
    plant::file(&file, 1 << 20, 1);
    push().expect(code::OK);
    plant::set_mtime(&file, 1_000_000_000, 0);
    let run = push().expect(code::OK);
    assert_eq!((run.count("bytes_moved"), run.count("bytes_matched")), (1 << 20, 0), "{run}");
}

#[test]
fn a_class_with_a_floor_for_ciphers_gets_a_stronger_one_or_nothing_at_every_port() {
    needs!(Haul, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let stage = &web.stage;
    stage.authorize("ro clear", &stage.at("offered"));
    plant::text(&stage.at("offered/theirs"), "words\n");
    plant::text(&stage.at("public/page"), "words\n");
    let read_again = || String::from_utf8_lossy(&web.daemon.stderr_so_far()).matches("classes were read again").count();
    let hold = |cipher: &str| {
        let before = read_again();
        fs::write(stage.at("new_classes"), format!("[class.loopback]\ncipher = \"{cipher}\"\n")).expect("own file");
        fs::rename(stage.at("new_classes"), stage.at("server/.config/haul/networks.toml")).expect("own file");
        eventually("the classes are read", Duration::from_secs(20), || read_again() > before);
    };
    let pull = |flags: &[&str]| stage.cp().args(flags).args([&stage.url("theirs"), "back"]).run();
    let cipher = |run: &Outcome| run.report()["cipher"].as_str().unwrap_or_default().to_owned();
    let read = |url: String, ciphers: &str| {
        let asks = ["-o", "/dev/null", "-w", "%{http_code}", "--tls13-ciphers", ciphers, &url];
        web.curl().args(asks).run().stdout_text()
    };
    let (clear, private) = (format!("http://{}/page", web.http), format!("https://{}/page", web.https));
    let (only_128, likes_128) = ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384");

    hold("none");
    assert_eq!(cipher(&pull(&["--cipher", "none"]).expect(code::OK)), "none (clear, authenticated)");
    assert_eq!((read(clear.clone(), only_128), read(private.clone(), only_128)), ("200".into(), "200".into()));

    hold("any");
    pull(&["--cipher", "none"]).expect(code::AUTHENTICATION).says(&["encrypts all data connections"]);
    assert_eq!(cipher(&pull(&["--cipher", "aes128-gcm"]).expect(code::OK)), "AES-128-GCM");
    assert_eq!((read(clear.clone(), only_128), read(private.clone(), only_128)), ("403".into(), "200".into()));

    hold("256");
    pull(&["--cipher", "none"]).expect(code::AUTHENTICATION).says(&["encrypts all data connections"]);
    pull(&["--cipher", "aes128-gcm"]).expect(code::NETWORK).says(&["no common cipher", "leave --cipher out"]);
    let stronger = pull(&[]).expect(code::OK);
    assert!(["AES-256-GCM", "ChaCha20-Poly1305"].contains(&cipher(&stronger).as_str()), "{stronger}");
    // 000: no answer.
    assert_eq!((read(clear, only_128), read(private.clone(), only_128)), ("403".into(), "000".into()));
    assert_eq!(read(private, likes_128), "200");
}

#[test]
fn a_class_has_its_rate_whichever_way_the_data_goes() {
    needs!(Haul);
    const BYTES: u64 = 8 << 20;
    // 4 MB/s.
    let site = Site::new("rw", "[class.loopback]\nrate-mbit = 32\n");
    plant::file(&site.stage.at("file"), BYTES, 1);
    let (to, back) = (site.stage.url("file"), "back".to_owned());
    for paths in [["file".to_owned(), to.clone()], [to.clone(), back]] {
        let begun = std::time::Instant::now();
        site.stage.cp().args(&paths).run().expect(code::OK);
        // A tenth of a second goes at once.
        assert!(begun.elapsed() > Duration::from_millis(1_800), "{paths:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn the_daemon_keeps_what_it_observed_of_each_class_and_networks_shows_it() {
    needs!(Haul, Tool("curl"));
    let mut site = Site::new("rw", "[class.inside]\nnetworks = [\"127.0.0.0/8\"]\n");
    plant::file(&site.stage.at("public/page"), 20_000, 1);
    for _ in 0..25 {
        Run::new("curl").args(["-s", "-o", "/dev/null", &format!("http://{}/page", site.http)]).run().expect(0);
    }
    site.stage.stop(rustix::process::Signal::TERM).expect(code::OK);
    let observed = || site.stage.haul("server").args(["networks", "--observed"]);
    observed().run().expect(code::OK).says(&["inside: 25 connections", "best floor      50 ms"]);
    let run = observed().arg("--json").run().expect(code::OK);
    let shown: Value = serde_json::from_str(&run.stdout_text()).expect("one object");
    assert_eq!(shown["classes"][0]["best"]["why"], "delayed-acknowledgements", "{run}");
}

#[test]
fn a_client_dials_no_more_lanes_than_its_own_class_has() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), 20 << 20, 1);
    let own = "[class.loopback]\nlanes = 2\n";
    fs::write(stage.at("client/.config/haul/networks.toml"), own).expect("own file");
    let run = stage.cp().args(["--lanes", "6", "file", &stage.url("file")]).run().expect(code::OK);
    let chosen: Vec<_> = run.events_named("chose").into_iter().filter(|event| event["what"] == "lanes").collect();
    assert!(chosen.iter().all(|event| event["choice"] == "2") && !chosen.is_empty(), "{run}");
    fs::write(stage.at("client/.config/haul/networks.toml"), own.replace("2", "0")).expect("own file");
    stage.cp().args(["file", &stage.url("file")]).run().expect(code::USAGE).says(&["line 2", "lanes", "haul networks"]);
}

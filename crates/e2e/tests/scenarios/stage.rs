//! The stage itself, proven with ssh, scp and cp before haul uses it.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use haul_e2e::firewall::Manner;
use haul_e2e::proxy::{Fate, Proxy};
use haul_e2e::stranger::Stranger;
use haul_e2e::{Facets, Lab, Run, SmallDisk, assert_same, at, differences, eventually, needs, plant, scratch};

#[test]
fn every_host_answers_over_ssh_on_both_families() {
    needs!(Namespaces);
    let lab = Lab::triangle();
    for host in ["alpha", "beta", "alpha-v6", "beta-v6"] {
        let said = lab.ssh(host, "echo $XDG_CACHE_HOME $HOME").run().expect(0).stdout_text();
        let dir = &lab.host(host.trim_end_matches("-v6")).dir;
        assert_eq!(said.trim(), format!("{0}/cache {0}/home", dir.display()));
    }
}

#[test]
fn scp_copies_between_hosts() {
    needs!(Namespaces, Tool("scp"));
    let lab = Lab::pair();
    let (source, target) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::file(&source.join("file"), 3_000_000, 1);
    lab.home().run("scp").args(["-rpF"]).arg(lab.ssh_config()).arg(&source).arg(at("alpha", &target)).run().expect(0);
    assert_same(&source, &target, Facets::CONTENTS);
}

#[test]
fn firewalls_and_cables_do_what_they_say() {
    needs!(Nftables);
    let lab = Lab::pair();
    let (home, alpha) = (lab.home(), lab.alpha());
    let reach = |port: u16| {
        home.inside(|| TcpStream::connect_timeout(&SocketAddr::new(alpha.address(), port), Duration::from_millis(400)))
    };
    assert!(reach(alpha.ssh_port).is_ok());
    let refused = reach(9).expect_err("nobody listens there");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    alpha.close_ports_but(&[alpha.ssh_port], Manner::Drop);
    assert!(reach(alpha.ssh_port).is_ok());
    assert_eq!(reach(9).expect_err("closed").kind(), std::io::ErrorKind::TimedOut);
    alpha.open_firewall();
    alpha.close_ports_but(&[9], Manner::Reject);
    assert_eq!(reach(alpha.ssh_port).expect_err("closed").kind(), std::io::ErrorKind::ConnectionRefused);
    alpha.open_firewall();

    alpha.unplug();
    assert!(reach(alpha.ssh_port).is_err());
    alpha.plug();
    eventually("the cable works again", Duration::from_secs(10), || reach(alpha.ssh_port).is_ok());
}

#[test]
fn a_stranger_is_there_first() {
    needs!(Namespaces);
    let lab = Lab::pair();
    let stranger = Stranger::lurk(lab.alpha(), lab.home(), b"hello");
    let words = lab.alpha().inside(|| {
        let listener = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a free port");
        let (mut stream, _) = listener.accept().expect("the stranger comes");
        let mut words = [0; 5];
        stream.read_exact(&mut words).expect("the stranger speaks");
        words
    });
    assert_eq!(&words, b"hello");
    assert!(stranger.leave().0 >= 1);
}

#[test]
fn a_proxy_starts_again_at_its_address_while_programs_are_started() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let (here, nobody) = (SocketAddr::from(([127, 118, high, low], 7632)), SocketAddr::from(([127, 0, 0, 1], 9)));
    let proxies = std::thread::spawn(move || (0..500).for_each(|_| drop(Proxy::start(here, nobody, |_| Fate::GOOD))));
    while !proxies.is_finished() {
        Run::new("true").run().expect(0);
    }
    proxies.join().expect("each of them started");
}

#[test]
fn a_small_disk_fills_up() {
    needs!(Root);
    let disk = SmallDisk::mount(2);
    let full = fs::write(disk.path().join("file"), vec![1; 3 << 20]).expect_err("2 MiB do not hold 3");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn everything_is_gone_afterwards() {
    needs!(Namespaces);
    let lab = Lab::pair();
    let (namespace, dir) = (lab.alpha().namespace.clone(), lab.alpha().dir.clone());
    let mut session = lab.ssh("alpha", "echo up; exec sleep 1000").start();
    session.when("the session is up", |running| running.stdout_so_far() == b"up\n");
    drop(lab);
    session.wait();
    assert!(!dir.exists());
    assert!(!std::path::Path::new("/run/netns").join(namespace).exists());
}

#[test]
fn a_deadline_kills_the_whole_group() {
    let result = std::panic::catch_unwind(|| {
        let limit = Duration::from_millis(200);
        Run::new("sh").args(["-c", "sleep 1000 & echo $!; wait"]).limit(limit).run()
    });
    let message = *result.expect_err("its time is over").downcast::<String>().expect("a panic with a message");
    let pid: u32 = message
        .lines()
        .find_map(|line| line.strip_prefix("stdout: "))
        .and_then(|pid| pid.trim().parse().ok())
        .unwrap_or_else(|| panic!("no pid in {message}"));
    eventually("the grandchild is dead", Duration::from_secs(5), || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
}

#[test]
fn equal_trees_have_no_differences() {
    needs!(Tool("cp"));
    let dir = scratch();
    let (source, target) = (dir.path().join("a"), dir.path().join("b"));
    plant::mixed(&source, 7);
    plant::hard_links(&source.join("hard"), 8);
    plant::extended_attributes(&source.join("attributes"));
    plant::access_lists(&source.join("lists"));
    plant::sparse(&source.join("sparse"), 50 << 20, &[(0, 10), (30 << 20, 100_000)], 9);
    plant::sparse(&source.join("vast"), 10 << 30, &[(5 << 30, 100_000)], 9);
    plant::date(&source, 7);
    Run::new("cp").args(["-a", "--sparse=always"]).arg(&source).arg(&target).run().expect(0);
    assert_same(&source, &target, Facets::ALL);
}

#[test]
fn every_kind_of_difference_is_found() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for root in [&a, &b] {
        plant::mixed(root, 7);
        plant::hard_links(&root.join("hard"), 8);
        plant::extended_attributes(&root.join("attributes"));
        plant::sparse(&root.join("sparse"), 50 << 20, &[], 9);
        plant::date(root, 3);
    }
    assert_same(&a, &b, Facets::ALL);

    let check = |expected: &str, change: &dyn Fn()| {
        change();
        let found = differences(&a, &b, Facets::ALL);
        assert!(found.iter().any(|line| line.contains(expected)), "{expected} not in {found:#?}");
    };
    check("sizes/4096: contents", &|| plant::file(&b.join("sizes/4096"), 4096, 99));
    check("sizes/512: size 512 became 513", &|| plant::file(&b.join("sizes/512"), 513, 99));
    check("modes/644: mode 644 became 600", &|| plant::set_mode(&b.join("modes/644"), 0o600));
    check("sizes/1: mtime", &|| plant::set_mtime(&b.join("sizes/1"), 1_000_000_000, 1));
    check("empty: mtime", &|| plant::set_mtime(&b.join("empty"), 1_000_000_000, 1));
    check("names/*: missing", &|| fs::remove_file(b.join("names/*")).expect("it is there"));
    check("names/extra: not at the source", &|| plant::text(&b.join("names/extra"), ""));
    check("sparse: 0 bytes on disk", &|| plant::file(&b.join("sparse"), 50 << 20, 1));
    check("hard links", &|| fs::remove_file(b.join("hard/c/far")).expect("it is there"));
    check("link target", &|| {
        fs::remove_file(b.join("links/to-file")).expect("it is there");
        std::os::unix::fs::symlink("folder", b.join("links/to-file")).expect("space");
    });
    check("attributes: user.comment", &|| {
        rustix::fs::lremovexattr(b.join("attributes/file"), "user.comment").expect("it is there");
    });
}

//! Examples of README.md and `docs`, typed as they stand, on hosts of those names.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use haul_e2e::page::{self, Step};
use haul_e2e::typist::Typist;
use haul_e2e::{Lab, code, eventually, needs, plant};

/// What no test types, and why.
const NOT_TYPED: [(&str, &str); 11] = [
    ("make demo", "it builds the program that is tested here"),
    ("make test", "it runs this test"),
    ("haul cp https://host/", "no host here has a certificate that others trust; web_source has a server of its own"),
    ("haul ls https://host/", "the same; foreign_places has servers of its own"),
    ("haul cp davs://host/", "the same; dav has servers of its own"),
    ("haul cp data/ davs://host/", "the same"),
    ("haul cp DATA s3://", "no store is here; store has one of its own"),
    ("haul cp s3://", "the same"),
    ("haul cp ftp://host/", "no server of FTP is here; ftp has its own"),
    ("haul cp data/ ftps://host/", "the same"),
    ("haul cp sshftp://host/", "no server of GridFTP is here; grid has its own"),
];

/// Smaller words for want of data, memory or time: on the page, here.
const IN_SMALL: [(&str, &str); 8] = [
    ("23,417 files, 1.82 TiB", "20 files, 3.81 MiB"),
    ("zero:10G", "zero:10M"),
    ("--reserve 100G", "--reserve 100M"),
    ("haul cp --detach …", "haul cp --detach --rate 4Mbit zero:4G host:slow/zeros"),
    ("haul cp --manifest-out run42.b3 …", "haul cp --manifest-out run42.b3 run42/ host:data/run42"),
    ("haul cp --verify disk …", "haul cp --verify disk DATA host:data/"),
    ("haul bench --source FILE", "haul bench --source FILE --time 1"),
    ("haul-lab run --rate 1Gbit --rtt 228ms", "echo exit | haul-lab run --rate 1Gbit --rtt 228ms"),
];

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(path).expect("it is in the repository")
}

/// The words to type, if any.
fn typed(text: &str, used: &mut BTreeSet<&str>) -> Option<String> {
    if let Some((command, _)) = NOT_TYPED.iter().find(|(command, _)| text.starts_with(command)) {
        used.insert(command);
        return None;
    }
    Some(IN_SMALL.iter().fold(text.to_owned(), |text, (there, here)| {
        if text.contains(there) {
            used.insert(there);
        }
        text.replace(there, here)
    }))
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn tree(dir: &Path) {
    for number in 0..20 {
        plant::file(&dir.join(format!("scan{number:02}.vdif")), 200_000, number);
    }
}

fn at_home(lab: &Lab, words: &[&str]) -> String {
    lab.home().run("haul").args(words).run().expect(code::OK).stdout_text()
}

/// `home` and the daemon of `there` know each other's keys.
fn acquaint(lab: &Lab, there: &str) {
    let key_of = |host: &str, file: &str| {
        lab.host(host).run("haul").args(["key", "generate", "--file", file]).run().expect(code::OK).stdout_text()
    };
    let (key, daemon) = (key_of("home", ".config/haul/id_ed25519"), key_of(there, ".config/haul/host_ed25519"));
    let list = lab.host(there).dir.join("home/.config/haul/authorized_keys");
    plant::text(&list, &format!("rw root=/data {key}ro root=/data/lab token:lab\n"));
    let daemon = daemon.split(' ').next().expect("a key is a word");
    at_home(lab, &["key", "trust", &format!("{there}:7632"), daemon]);
}

fn send_to_the_recorder(lab: &Lab) {
    let sent =
        lab.home().inside(|| TcpStream::connect(RECORDER).and_then(|mut stream| stream.write_all(&[7; 1 << 20])));
    sent.expect("the recorder listens");
    let file = lab.home().dir.join("home/scan.vdif");
    eventually("it is recorded", Duration::from_secs(10), || {
        fs::metadata(&file).is_ok_and(|file| file.len() == 1 << 20)
    });
}

const RECORDER: &str = "10.0.0.1:5000";

#[test]
fn the_examples_of_the_readme_run_as_printed() {
    needs!(Namespaces, Boxed, Tool("script"));
    let text = page("README.md");
    let lab = Lab::of_machines(
        &["host", "dtn.example.org", "hostA", "hostB", "dtn1", "dtn2"],
        &[("hostA", "host"), ("dtn1", "host"), ("dtn2", "host")],
    );
    let here = lab.home().dir.join("home");
    for name in ["survey", "run42", "src", "data", "DATA"] {
        tree(&here.join(name));
    }
    plant::file(&here.join("FILE"), 20 << 20, 1);
    fs::create_dir(here.join("DIR")).expect("own directory");
    tree(&lab.data("home").join("run42"));
    tree(&lab.data("host").join("run42"));
    for name in ["public", "lab"] {
        tree(&lab.data("host").join(name));
    }
    plant::file(&lab.data("host").join("big"), 20 << 20, 2);
    acquaint(&lab, "host");
    lab.home().run("ip").args(["addr", "add", "10.0.0.1/32", "dev", "lo"]).run().expect(0);

    let mut used = BTreeSet::new();
    let mut typist = Typist::at(&[("", lab.home()), ("there", lab.host("host"))]);
    let mut results = Vec::new();
    for step in page::steps(&text) {
        let shown = step.shown.iter().filter_map(|line| typed(line, &mut used)).collect();
        if let Some(command) = typed(&step.command, &mut used) {
            let step = Step { command, shown, ..step };
            results.push((step.clone(), typist.types(&step)));
        }
    }
    let mut failed = page::differences(&results);

    // Each command and flag of the table of daily uses.
    let help = at_home(&lab, &["cp", "--help"]);
    let uses = text.split("## Daily uses").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("it is a heading");
    let rows = uses.lines().filter_map(|line| line.split('|').nth(2));
    let mut commands = 0;
    for row in rows {
        for span in code_spans(row) {
            if span.starts_with("haul") {
                let host = if span.starts_with("haul serve") || span.starts_with("haul token") { "there" } else { "" };
                let Some(command) = typed(span, &mut used) else { continue };
                let step = Step { host: host.to_owned(), command, shown: Vec::new(), lines: (0, 0) };
                let seen = typist.types(&step);
                if seen.status != 0 {
                    failed.push_str(&format!(
                        "{} ends with {}\n{}\n",
                        step.command,
                        seen.status,
                        seen.lines.join("\n")
                    ));
                }
                commands += 1;
                if span.starts_with("haul record") {
                    send_to_the_recorder(&lab);
                }
            } else if let Some(flag) = span.split([' ', '=']).next().filter(|word| word.starts_with('-')) {
                assert!(help.contains(flag), "haul cp has no {flag}, which stands in the table of daily uses");
            }
        }
        typist.ends_daemons();
    }
    assert!(failed.is_empty(), "{failed}");
    assert!(commands > 20, "the table of daily uses has become {commands} commands");
    let unused = NOT_TYPED.iter().map(|(there, _)| there).chain(IN_SMALL.iter().map(|(there, _)| there));
    let unused: Vec<_> = unused.filter(|there| !used.contains(**there)).collect();
    assert!(unused.is_empty(), "no page has {unused:?}");
}

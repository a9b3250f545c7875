//! A silent file system behind one line of the list: the web serves all others.

use std::fs;

use haul_e2e::{OddDisk, Oddities, Running, code, needs, plant};

use crate::web::Web;

#[test]
fn a_dead_mount_hurts_its_own_holder_alone() {
    needs!(Haul, Fuse, Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    // It is dropped first: a server cannot end while a thread of it waits for a disk.
    let disk = OddDisk::mount(Oddities::default());
    plant::text(&disk.path().join("data"), "far\n");
    let stage = &web.stage;
    fs::create_dir(stage.at("lab")).expect("own directory");
    plant::text(&stage.at("lab/data"), "lab\n");
    plant::text(&stage.at("public/data"), "public\n");
    let roots = [("dead", disk.path().to_owned()), ("lab", stage.at("lab"))];
    let lines: String =
        roots.iter().map(|(name, root)| format!("ro root=\"{}\" token:{name}\n", root.display())).collect();
    stage.write_list(&lines);
    for (name, _) in &roots {
        let token = stage.haul("server").args(["token", &format!("token:{name}")]).run().expect(code::OK).stdout_text();
        fs::write(stage.at(name).with_extension("field"), format!("Authorization: Bearer {}\n", token.trim()))
            .expect("own file");
    }
    let ask = |who: &str, path: &str, seconds: &str| {
        let url = format!("https://{}{path}", web.https);
        let curl = web.curl().args(["--max-time", seconds, "-w", "%{http_code}", &url]);
        if who.is_empty() { curl } else { curl.args(["-H", &format!("@{who}.field")]) }
    };
    let others_are_served = || {
        for (who, expected) in [("lab", "lab\n200"), ("", "public\n200")] {
            assert_eq!(ask(who, "/data", "5").run().expect(0).stdout_text(), expected);
            assert!(ask(who, "/", "5").run().expect(0).stdout_text().ends_with("200"), "{who}");
        }
    };
    assert_eq!(ask("dead", "/data", "20").run().expect(0).stdout_text(), "far\n200");
    disk.answers(false);
    let crowd: Vec<Running> =
        (0..30).map(|number| ask("dead", ["/data", "/", "/?manifest"][number % 3], "60").start()).collect();
    for _ in 0..3 {
        others_are_served();
    }
    // Reopened after a second, and still nobody else waits.
    std::thread::park_timeout(std::time::Duration::from_secs(3));
    let later = ask("dead", "/data", "60").start();
    others_are_served();
    for running in crowd.into_iter().chain([later]) {
        let outcome = running.wait();
        assert!(outcome.stdout_text().ends_with("503"), "{outcome}");
    }
    others_are_served();
    disk.answers(true);
    let back = (0..20).any(|_| ask("dead", "/data", "20").run().stdout_text() == "far\n200");
    assert!(back, "it is served again when it answers");
}

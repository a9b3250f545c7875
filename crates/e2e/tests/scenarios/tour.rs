//! `docs/tour.md`, typed at a host with a real sshd: each command of it, and what comes.

use std::fs;
use std::path::Path;

use haul_e2e::{Lab, needs, plant};

/// A command of the page, and what stands beneath it.
struct Step {
    command: String,
    said: String,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        match line {
            "```console" => is_console = true,
            "```" => is_console = false,
            _ if !is_console => {}
            _ => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), said: String::new() }),
                (None, Some(step)) => step.said.push_str(&format!("{line}\n")),
                (None, None) => panic!("a command comes first: {line}"),
            },
        }
    }
    steps
}

/// Without what differs from host to host and from run to run: figures, hashes, and what limited a copy.
fn masked(text: &str) -> String {
    text.lines().map(|line| masked_line(line) + "\n").collect()
}

fn masked_line(line: &str) -> String {
    let mut rest = line.to_owned();
    if let Some(at) = rest.find(", limited by ") {
        let end = rest[at + 2..].find(", ").map_or(rest.len(), |end| at + 2 + end);
        rest.replace_range(at..end, "");
    }
    let words = rest.split_inclusive(' ').map(|word| {
        let bare = word.trim_matches([' ', ',', '(', ')', '…', ':']);
        let is_hash = bare.len() >= 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_figure = bare.starts_with(|c: char| c.is_ascii_digit()) && bare.bytes().all(|byte| b"0123456789.,".contains(&byte));
        let is_rate = bare.ends_with("B/s") || bare.ends_with("bit/s");
        let masked = match bare {
            _ if is_hash => "HASH",
            _ if is_figure => "N",
            _ if is_rate => "RATE",
            "lanes" => "lane",
            _ => bare,
        };
        if bare.is_empty() { word.to_owned() } else { word.replace(bare, masked) }
    });
    words.collect()
}

/// The page calls the host `host`: a name of the settings file, so that nothing lands in somebody's home directory.
fn settings(lab: &Lab, there: &Path) {
    let ssh_config = lab.data("home").join("ssh_config");
    let text = fs::read_to_string(lab.ssh_config()).expect("the lab made it");
    fs::write(&ssh_config, text.replacen("Host alpha\n", "Host alpha host\n", 1)).expect("own directory");
    let settings = format!(
        "[defaults]\nssh-config = {:?}\n\n[ends]\nhost = {:?}\n",
        ssh_config.to_str().expect("it is text"),
        format!("ssh://host/{}/", there.display()),
    );
    plant::text(&lab.data("home").join("config/haul/config.toml"), &settings);
}

#[test]
fn the_tour_goes_as_its_page_says() {
    needs!(Namespaces, Haul);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.md");
    let page = fs::read_to_string(page).expect("it is in the repository");
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("here"), lab.data("alpha"));
    settings(&lab, &there);
    plant::text(&here.join("run42/notes.txt"), "words\n");
    for number in 0..20 {
        plant::file(&here.join(format!("run42/raw/{number}")), 200_000 + number, number);
    }
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let programs = program.parent().expect("it lies in a directory").display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut wrong = String::new();
    for Step { command, said } in steps(&page) {
        let shell = lab.home().run("sh").env("PATH", &path).env("XDG_CONFIG_HOME", lab.data("home").join("config"));
        let run = shell.current_dir(&here).args(["-c", &format!("{{ {command}; }} 2>&1")]).run();
        if masked(&run.stdout_text()) != masked(&said) {
            wrong.push_str(&format!("$ {command}\n--- the page\n{said}--- the program\n{}\n", run.stdout_text()));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

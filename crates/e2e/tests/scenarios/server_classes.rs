//! Service classes with servers of WebDAV, S3 and GridFTP, which know none: what this host sends there has marks, and nothing else has.

use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use haul_e2e::{Facets, Host, Lab, Outcome, Run, Running, assert_same, code, contents_of, needs, plant};

use crate::classes::{Counted, PACKETS, marked_bytes};
use crate::store::{KEY, SECRET, bucket};

const PORT: u16 = 2811;

/// A client at `home`, and a server at `alpha`.
struct Served {
    lab: Lab,
    url: String,
    environment: Vec<(&'static str, String)>,
    _server: Running,
}

impl Served {
    /// The server serves the directory `served` of its host, which a tree of a copy is beneath.
    fn begin(scheme: &str, start: impl FnOnce(&Host, SocketAddr, PathBuf) -> Run) -> Served {
        let lab = Lab::pair();
        let (alpha, at) = (lab.alpha(), SocketAddr::new(lab.alpha().address(), PORT));
        let served = lab.data("alpha").join("served");
        fs::create_dir_all(&served).expect("own directory");
        let mut server = start(alpha, at, served).start();
        server.when("it listens", |_| lab.home().inside(|| TcpStream::connect(at).is_ok()));
        let url = format!("{scheme}://{at}/");
        let from = lab.data("home").join("from");
        // A file that is sampled while it goes, and many that are over before that.
        plant::many(&from, 20, 256 << 10, 1);
        plant::file(&from.join("large"), 5 << 20, 2);
        Served { lab, url, environment: Vec::new(), _server: server }
    }

    fn haul(&self, words: &[&str]) -> Run {
        let run = self.lab.home().haul().args(words.iter().copied());
        self.environment.iter().fold(run, |run, (name, value)| run.env(name, value))
    }

    fn cp(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Outcome {
        self.haul(&["cp", "--json", "--retry", "0", "--priority"]).arg(from).arg(to).run().expect(code::OK)
    }

    /// Uploads and downloads a tree. Data goes over any port but `words`.
    fn marks_what_it_sends(&self, words: u16) {
        let data = |name: &str| self.lab.data("home").join(name);
        let url = format!("{}tree/", self.url);
        let counted = Counted::at(self.lab.alpha(), "input", words);
        let up = self.cp(contents_of(&data("from")), &url);
        let marks = counted.marks();
        assert!(marks.expedited > PACKETS && marks.lower_effort == 0 && marks.on_words == 0, "{marks:?}\n{up}");
        assert!(marked_bytes(&up) >= 10 << 20, "{up}");
        let warnings = up.events_named("warning");
        assert!(!warnings.iter().any(|warning| warning.to_string().contains("priority")), "{up}");
        self.haul(&["why"]).run().expect(code::OK).says(&["priority at the end"]);
        self.lab.alpha().nft("delete table inet classes");

        let counted = Counted::at(self.lab.home(), "input", words);
        let down = self.cp(&url, data("to"));
        let marks = counted.marks();
        assert_eq!((marks.expedited, marks.lower_effort, marks.on_words), (0, 0, 0), "{marks:?}\n{down}");
        down.says(&["only the sender of data can mark it"]);
        assert_same(&data("from"), &data("to"), Facets::CONTENTS);
    }
}

/// Connections carry words and data by turns: none of them has a port of its own.
const NO_WORDS: u16 = 1;

#[test]
fn what_goes_to_a_server_of_gridftp_with_priority_is_marked_and_what_comes_is_not() {
    needs!(Namespaces, Haul, Nftables, Tool("globus-gridftp-server"));
    let mut served = Served::begin("gsiftp", |alpha, at, _| {
        let words = ["-aa", "-allow-root", "-anonymous-user", "root", "-log-level", "NONE"];
        let run = alpha.run("globus-gridftp-server").args(words).args(["-p", &at.port().to_string()]);
        run.args(["-data-interface", &at.ip().to_string()])
    });
    served.url = format!("{}{}/", served.url.trim_end_matches('/'), served.lab.data("alpha").display());
    served.marks_what_it_sends(PORT);
}

#[test]
fn what_goes_to_a_server_of_webdav_with_priority_is_marked_and_what_comes_is_not() {
    needs!(Namespaces, Haul, Nftables, Tool("rclone"));
    let served = Served::begin("dav", |alpha, at, directory| {
        let run = alpha.run("rclone").args(["serve", "webdav", "--dir-cache-time", "0s", "--addr", &at.to_string()]);
        run.arg(directory).env("RCLONE_CONFIG", "/dev/null")
    });
    served.marks_what_it_sends(NO_WORDS);
}

#[test]
fn what_goes_to_a_store_with_priority_is_marked_and_what_comes_is_not() {
    needs!(Namespaces, Haul, Nftables, Tool("curl"), ObjectStore);
    let mut served =
        Served::begin("s3", |alpha, at, directory| crate::store::server(|program| alpha.run(program), at, &directory));
    let endpoint = SocketAddr::new(served.lab.alpha().address(), PORT);
    bucket(|program| served.lab.home().run(program), &["-X", "PUT"], endpoint, "").run().expect(code::OK);
    served.url = "s3://bucket/".to_owned();
    served.environment = [
        ("AWS_ENDPOINT_URL", format!("http://{endpoint}")),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
    .into();
    served.marks_what_it_sends(NO_WORDS);
}

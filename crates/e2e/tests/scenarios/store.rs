//! Copies from and to others' S3 stores: versitygw where installed, else moto.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Run, Running, assert_same, code, needs, plant, scratch};

struct Store {
    dir: tempfile::TempDir,
    _server: Running,
    port: u16,
    /// The store compares sums of what arrives.
    compares: bool,
}

pub const KEY: &str = "key";
pub const SECRET: &str = "secret";

/// Asks for the bucket like an administrator; the sum is that of no body.
pub fn bucket(run: impl Fn(&str) -> Run, words: &[&str], at: SocketAddr, query: &str) -> Run {
    const NOTHING: &str = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let run = run("curl").args(["-sf", "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", NOTHING, "--user"]);
    run.arg(format!("{KEY}:{SECRET}")).args(words.iter().copied()).arg(format!("http://{at}/bucket{query}"))
}

fn curl(words: &[&str], port: u16, query: &str) -> Run {
    bucket(|program| Run::new(program), words, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), query)
}

/// A store that keeps its objects in a directory, with the log of requests beside it, or in memory.
pub fn server(run: impl Fn(&str) -> Run, at: SocketAddr, directory: &Path) -> Run {
    match haul_e2e::needs::tool("versitygw").is_some() {
        true => run("versitygw")
            .env("ROOT_ACCESS_KEY", KEY)
            .env("ROOT_SECRET_KEY", SECRET)
            .args(["--port", &at.to_string(), "--access-log"])
            .args([directory.with_file_name("log").as_os_str(), "posix".as_ref(), directory.as_os_str()]),
        false => run("moto_server").args(["-H", &at.ip().to_string(), "-p", &at.port().to_string()]),
    }
}

impl Store {
    fn start() -> Store {
        let (dir, compares) = (scratch(), haul_e2e::needs::tool("versitygw").is_some());
        for name in ["store", "from", "to"] {
            fs::create_dir(dir.path().join(name)).expect("own directory");
        }
        let port = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("it is bound").port();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = server(|program| Run::new(program), at, &dir.path().join("store")).start();
        server.when("it listens", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
        curl(&["-X", "PUT"], port, "").run().expect(code::OK);
        Store { dir, _server: server, port, compares }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn run(&self, run: Run) -> Run {
        run.env("HOME", self.at("home"))
            .env("XDG_CACHE_HOME", OsString::from(self.at("cache")))
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1")
    }

    fn cp(&self) -> Run {
        self.haul(&["cp"])
    }

    fn haul(&self, words: &[&str]) -> Run {
        let run = self.run(Run::new(haul_e2e::binary::find().expect("asked for with needs!")));
        run.current_dir(self.dir.path()).args(words.iter().copied())
    }

    fn rclone(&self, words: &[&str]) -> Run {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let run = self.run(Run::new("rclone")).args(words);
        run.args(["--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", &endpoint])
    }

    /// Empties the log of requests, and counts its requests for objects: those with content, and those without.
    fn requests(&self) -> (usize, usize) {
        let log = fs::read_to_string(self.at("log")).expect("versitygw writes it");
        fs::write(self.at("log"), "").expect("own file");
        (log.matches("s3_GetObject ").count(), log.matches("s3_HeadObject ").count())
    }

    fn uploads(&self) -> String {
        curl(&[], self.port, "?uploads=").run().expect(code::OK).stdout_text()
    }

    fn journals(&self) -> usize {
        fs::read_dir(self.at("home/.local/state/haul/uploads")).map_or(0, Iterator::count)
    }
}

#[test]
fn a_tree_comes_back_from_a_store_as_it_went_there() {
    needs!(Haul, Tool("curl"), ObjectStore);
    let store = Store::start();
    let tree = store.at("from/tree");
    plant::many(&tree.join("many"), 200, 300, 1);
    plant::file(&tree.join("sub/large"), 30_000_000, 2);
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
        "many.txt",
    ] {
        plant::text(&tree.join(name), name);
    }
    std::os::unix::fs::symlink("sub/large", tree.join("link")).expect("own directory");
    plant::set_mtime(&tree.join("sub/large"), 1_000_000_000, 123_456_789);
    let up = store.cp().arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    assert!(up.stdout_text().contains("all verified CRC64NVME by the store"), "{up}");
    let again = store.cp().arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    assert!(again.stdout_text().contains("nothing to copy"), "{again}");
    let down = store.cp().arg("s3://bucket/tree").arg(store.at("to")).run().expect(code::OK);
    if store.compares {
        assert!(down.stdout_text().contains("the CRC64NVME that the store keeps"), "{down}");
    }
    assert_same(&tree, &store.at("to/tree"), Facets::CONTENTS);
    let large = fs::metadata(store.at("to/tree/sub/large")).expect("it is there");
    assert_eq!((large.mtime(), large.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!(fs::read_link(store.at("to/tree/link")).expect("a link"), PathBuf::from("sub/large"));
    fs::remove_file(tree.join("many.txt")).expect("own file");
    store.cp().arg("--delete").arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    store.cp().arg("--delete").arg("s3://bucket/tree").arg(store.at("to")).run().expect(code::OK);
    assert_same(&tree, &store.at("to/tree"), Facets::CONTENTS);
}

#[test]
fn small_objects_cost_one_request_each_and_those_that_stand_there_no_content() {
    needs!(Haul, Tool("curl"), Tool("versitygw"));
    let store = Store::start();
    let tree = store.at("from/tree");
    plant::many(&tree.join("many"), 200, 300, 1);
    plant::file(&tree.join("large"), 300_000, 2);
    std::os::unix::fs::symlink("large", tree.join("link")).expect("own directory");
    fs::set_permissions(tree.join("many/d0000/f0000007"), fs::Permissions::from_mode(0o750)).expect("own file");
    store.cp().arg("-a").arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    let down = |more: &[&str]| {
        store.requests();
        store.cp().arg("-a").args(more).arg("s3://bucket/tree").arg(store.at("to")).run().expect(code::OK);
        let (with_content, without) = store.requests();
        format!("{with_content} {without}")
    };
    // A look at the named source comes first. The link has its text, and the large file its content, by a request of its own.
    assert_eq!(down(&["-n"]), "1 202");
    assert_eq!(down(&[]), "202 2");
    assert_same(&tree, &store.at("to/tree"), Facets::CONTENTS);
    let mode = fs::metadata(store.at("to/tree/many/d0000/f0000007")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(down(&[]), "1 202");
    // Only what is missing comes, at once.
    for name in ["f0000007", "f0000008", "f0000009"] {
        fs::remove_file(store.at("to/tree/many/d0000").join(name)).expect("own file");
    }
    assert_eq!(down(&[]), "4 199");
    assert_same(&tree, &store.at("to/tree"), Facets::CONTENTS);
}

#[test]
fn rclone_finds_nothing_to_do_behind_an_upload() {
    needs!(Haul, Tool("curl"), Tool("rclone"), ObjectStore);
    let store = Store::start();
    let tree = store.at("from/tree");
    plant::many(&tree.join("many"), 20, 300, 1);
    plant::file(&tree.join("large"), 20_000_000, 2);
    plant::set_mtime(&tree.join("large"), 1_000_000_000, 123_456_789);
    store.cp().arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    let from = tree.to_str().expect("a text").to_owned();
    store.rclone(&["check", "--download", &from, ":s3:bucket/tree"]).run().expect(code::OK);
    // Its times are the files': nothing differs.
    let sync = store.rclone(&["sync", "--dry-run", "-v", &from, ":s3:bucket/tree"]).run().expect(code::OK);
    assert!(!format!("{sync}").contains("Skipped copy"), "{sync}");
}

#[test]
fn an_upload_that_was_killed_goes_on_inside_the_file() {
    needs!(Haul, Tool("curl"), ObjectStore);
    const SIZE: u64 = 160 << 20;
    const PART: u64 = 8 << 20;
    let store = Store::start();
    let file = store.at("from/file");
    plant::file(&file, SIZE, 1);
    plant::set_mtime(&file, 1_000_000_000, 0);
    let cp = |more: &[&str]| store.cp().args(["--json", "--lanes", "2"]).args(more).arg(&file).arg("s3://bucket/");
    // Kills each once so much more has moved.
    for moved in [20 << 20, 50 << 20, 30 << 20] {
        let mut copy = cp(&["--rate", "80MB"]).start();
        copy.when_moved(moved);
        copy.kill();
        assert_eq!(store.journals(), 1);
    }
    let again = cp(&[]).run().expect(code::OK);
    // Only what was under way goes again: two parts, and what was told meanwhile.
    let moved = again.count("bytes_moved");
    assert!(moved <= SIZE - (100 << 20) + 3 * (2 * PART + (16 << 20)), "{moved}");
    assert_eq!(store.journals(), 0);
    store.cp().arg("s3://bucket/file").arg(store.at("to")).run().expect(code::OK);
    assert!(fs::read(&file).expect("it is there") == fs::read(store.at("to/file")).expect("it is there"));
    let left = store.uploads();
    assert!(!left.contains("<Upload>"), "{left}");
}

#[test]
fn a_tree_in_a_store_is_looked_at_compared_moved_and_removed() {
    needs!(Haul, Tool("curl"), ObjectStore);
    let store = Store::start();
    let tree = store.at("from/tree");
    plant::many(&tree.join("many"), 200, 300, 1);
    plant::file(&tree.join("sub/large"), 20_000_000, 2);
    for name in ["many.txt", "per%20cent", "a b", "\u{e4}", "plus+", "many-1"] {
        plant::text(&tree.join(name), name);
    }
    std::os::unix::fs::symlink("sub/large", tree.join("link")).expect("own directory");
    store.cp().arg(&tree).arg("s3://bucket/").run().expect(code::OK);
    let text = |words: &[&str]| store.haul(words).run().expect(code::OK).stdout_text();
    assert_eq!(
        text(&["ls", "-R", "s3://bucket/tree"]).replace("s3://bucket/", "from/"),
        text(&["ls", "-R", "from/tree"])
    );
    assert_eq!(text(&["hash", "s3://bucket/tree"]), text(&["hash", "from/tree"]).replace("from/tree", "tree"));
    assert_eq!(text(&["cat", "s3://bucket/tree/per%20cent"]), "per%20cent");
    assert_eq!(text(&["du", "-sb", "s3://bucket/tree/sub"]).split_whitespace().next(), Some("20000000"));
    assert!(text(&["ls", "-l", "s3://bucket/tree/link"]).trim_end().ends_with("link -> sub/large"));
    fs::write(store.at("list"), text(&["hash", "s3://bucket/tree"])).expect("own directory");
    assert!(text(&["verify", "list", "s3://bucket/"]).contains("verified 207 files"));
    for flags in [&[][..], &["-c"]] {
        let words = [&["diff"], flags, &["from/tree", "s3://bucket/tree"]].concat();
        assert!(text(&words).contains("0 new, 0 changed, 0 extra"), "{words:?}");
    }
    text(&["mkdir", "s3://bucket/new"]);
    store.haul(&["mkdir", "s3://bucket/new"]).run().expect(1);
    text(&["mv", "s3://bucket/tree/many.txt", "s3://bucket/new"]);
    text(&["mv", "s3://bucket/tree", "s3://bucket/new/moved"]);
    assert_eq!(text(&["ls", "s3://bucket/new"]), "many.txt\nmoved\n");
    fs::rename(tree.join("many.txt"), store.at("from/many.txt")).expect("own directory");
    assert!(text(&["diff", "-c", "from/tree", "s3://bucket/new/moved"]).contains("0 new, 0 changed, 0 extra"));
    let kept = store.haul(&["rm", "-rn", "s3://bucket/new/moved"]).run().expect(code::OK);
    assert!(kept.stdout_text().contains("many-1"), "{kept}");
    text(&["rm", "-r", "s3://bucket/new/moved"]);
    assert_eq!(text(&["ls", "-R", "s3://bucket/new"]), "s3://bucket/new:\nmany.txt\n");
    text(&["rm", "-r", "s3://bucket/new"]);
    let missing = store.haul(&["rm", "s3://bucket/new"]).run().expect(1);
    assert!(missing.stderr_text().contains("no such object"), "{missing}");
}

#[test]
fn clean_shows_and_ends_what_a_killed_upload_left() {
    needs!(Haul, Tool("curl"), ObjectStore);
    let store = Store::start();
    let file = store.at("from/file");
    plant::file(&file, 64 << 20, 1);
    let mut copy =
        store.cp().args(["--json", "--lanes", "2", "--rate", "40MB"]).arg(&file).arg("s3://bucket/d/").start();
    copy.when_moved(20 << 20);
    let clean = |words: &[&str]| store.haul(&["clean"]).args(words.iter().copied()).arg("s3://bucket/d");
    assert_eq!(clean(&["-f"]).run().expect(code::OK).stdout_text(), "", "a copy that lives is left alone");
    copy.kill();
    assert_eq!(store.journals(), 1);
    // Another user's journal says nothing here.
    let other = clean(&[]).env("HOME", store.at("other")).run().expect(code::OK);
    assert_eq!(other.stdout_text(), "");
    let left = clean(&[]).run().expect(code::OK).stdout_text();
    assert!(left.starts_with("left\t") && left.contains("s3://bucket/d/file"), "{left}");
    assert!(clean(&["-f"]).run().expect(code::OK).stdout_text().starts_with("removed\t"));
    assert!(!store.uploads().contains("<Upload>") && store.journals() == 0);
}

#[test]
fn a_journal_whose_upload_is_gone_goes_with_clean_and_with_the_next_copy() {
    needs!(Haul, Tool("curl"), ObjectStore);
    let store = Store::start();
    let file = store.at("from/file");
    plant::file(&file, 64 << 20, 1);
    let cp = |more: &[&str]| store.cp().args(["--json", "--lanes", "2"]).args(more).arg(&file).arg("s3://bucket/d/");
    let mut copy = cp(&["--rate", "40MB"]).start();
    copy.when_moved(20 << 20);
    copy.kill();
    let uploads = store.at("home/.local/state/haul/uploads");
    let journal = fs::read_dir(&uploads).expect("it is there").next().expect("a journal").expect("it is there").path();
    let kept = fs::read(&journal).expect("it is there");
    // Somebody else ended the upload, unknown to the journal.
    let clean = |words: &[&str]| store.haul(&["clean"]).args(words.iter().copied()).arg("s3://bucket/d");
    let put_back = || {
        fs::write(&journal, &kept).expect("own directory");
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).expect("own file");
    };
    clean(&["-f"]).run().expect(code::OK);
    put_back();
    assert!(clean(&[]).run().expect(code::OK).stdout_text().starts_with("left\t"));
    assert!(clean(&["-f"]).run().expect(code::OK).stdout_text().starts_with("removed\t"));
    assert_eq!(store.journals(), 0);
    cp(&[]).run().expect(code::OK);
    put_back();
    assert_eq!(cp(&[]).run().expect(code::OK).count("bytes_moved"), 0);
    assert_eq!(store.journals(), 0);
}

#[test]
fn what_a_store_cannot_keep_is_refused_in_a_sentence() {
    needs!(Haul);
    let refused = |words: &[&str], why: &str| {
        let run =
            Run::new(haul_e2e::binary::find().expect("asked for with needs!")).arg("cp").args(words.iter().copied());
        let run = run.run().expect(code::USAGE);
        assert!(run.stderr_text().contains(why), "{run}");
    };
    refused(&["--inplace", "/etc/hostname", "s3://bucket/"], "an object shows when it is complete");
    refused(&["--verify", "disk", "/etc/hostname", "s3://bucket/"], "CRC64NVME");
    refused(&["--remove-source-files", "s3://bucket/key", "/tmp/"], "nothing is removed");
    refused(&["s3:///key", "/tmp/"], "no bucket");
    for at in ["s3://bucket", "sftp://nowhere/~", "dav://nowhere", "ftp://nowhere"] {
        let (source, within) = (format!("{at}/d"), format!("{at}/d/e"));
        refused(&["-r", &source, &within], "into itself");
    }
    refused(&["-r", "ftp://nowhere/", "ftp://nowhere/d"], "cannot copy ftp://nowhere into itself");
}

#[test]
fn a_target_that_nobody_serves_is_a_fault_of_the_network() {
    needs!(Haul);
    let home = scratch();
    for target in ["s3://bucket/", "dav://127.0.0.1:1/", "ftp://127.0.0.1:1/", "dav://gone.invalid/"] {
        let run = Run::new(haul_e2e::binary::find().expect("asked for with needs!")).env("HOME", home.path());
        let run = run.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env("AWS_ACCESS_KEY_ID", KEY);
        let run = run.env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_REGION", "us-east-1");
        run.args(["cp", "--retry", "0", "/etc/hostname", target]).run().expect(code::NETWORK);
    }
}

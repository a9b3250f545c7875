//! Tests trees against lists of their hashes.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use haul_job::{Carriage, Endpoint, Error, Event, Fault, Here, ManifestLine, Observer, Place, SshOptions};
use haul_store::{LocalTree, TargetOptions};
use haul_wire::hashed::{Algorithm, MAX_WANTED_FILES};

use super::Ways;
use super::verify::*;
use haul_kept::files::hash_list;
use haul_kept::files::manifest_file::{HEADER, RootHasher, Trailer, Writer, escape, format_line};
use haul_kept::surroundings::Surroundings;

const BLOCK_BYTES: usize = 1 << 20;

struct Scene {
    dir: tempfile::TempDir,
    files: Vec<(&'static [u8], Vec<u8>)>,
}

#[derive(Default)]
struct Found {
    lines: Mutex<Vec<String>>,
    interrupt: bool,
}

impl VerifyWatcher for Found {
    fn on_finding(&self, path: &[u8], finding: &Finding) {
        self.lines.lock().unwrap().push(format!("{} {finding:?}", escape(path)));
    }
    fn on_progress(&self, _: &VerifyProgress) {}
    fn interrupted(&self) -> bool {
        self.interrupt
    }
}

struct Nobody;

impl Observer for Nobody {
    fn on_event(&self, _: &Event) {}
}

fn run(options: &VerifyOptions, found: &Found) -> Result<VerifyReport, Error> {
    let nobody: Arc<dyn Observer> = Arc::new(Nobody);
    verify(options, &Ways::to_hauls(&Surroundings::default()), &nobody, found)
}

fn options(list: ListAt, root: &Path) -> VerifyOptions {
    let tree = Endpoint { place: Place::Here(Here::Disk), path: root.as_os_str().as_encoded_bytes().to_vec() };
    let (carriage, ssh) = (Carriage::default(), SshOptions::default());
    VerifyOptions { list, tree, threads: 3, extra: false, algorithm: None, carriage, ssh }
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let big: Vec<u8> = (0..3 * BLOCK_BYTES + 17).map(|n| (n % 251) as u8).collect();
        let files: Vec<(&'static [u8], _)> =
            vec![(b"a.txt", b"hello".to_vec()), (b"sub/big.bin", big), (b"sub/odd\n\xffname", Vec::new())];
        let scene = Self { dir, files };
        fs::create_dir_all(scene.root().join("sub")).unwrap();
        for (path, data) in &scene.files {
            fs::write(scene.path(path), data).unwrap();
        }
        let mut writer = Writer::start(File::create(scene.manifest()).unwrap()).unwrap();
        for (path, data) in &scene.files {
            writer.add(&line(path, data)).unwrap();
        }
        writer.finish().unwrap();
        scene
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn manifest(&self) -> PathBuf {
        self.dir.path().join("manifest")
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.root().join(std::ffi::OsStr::from_bytes(path))
    }

    fn verify(&self, extra: bool) -> Result<(VerifyReport, Vec<String>), Error> {
        let watcher = Found::default();
        let options = VerifyOptions { extra, ..options(ListAt::Here(self.manifest()), &self.root()) };
        let report = run(&options, &watcher)?;
        let mut lines = watcher.lines.into_inner().unwrap();
        lines.sort();
        assert_eq!(report.differing + report.extra, lines.len() as u64);
        Ok((report, lines))
    }

    fn findings(&self) -> Vec<String> {
        self.verify(false).unwrap().1
    }
}

fn line(path: &[u8], data: &[u8]) -> ManifestLine {
    let blake3 = *blake3::hash(data).as_bytes();
    ManifestLine { path: path.to_vec(), size: data.len() as u64, mtime_s: 1, mtime_ns: 2, blake3 }
}

#[test]
fn an_untouched_tree_verifies_with_the_root_of_its_contents() {
    let scene = Scene::new();
    let (report, lines) = scene.verify(true).unwrap();
    assert!(lines.is_empty(), "{lines:?}");
    let mut root = RootHasher::default();
    for (path, data) in &scene.files {
        root.add(path, data.len() as u64, blake3::hash(data).as_bytes());
    }
    assert_eq!(report.root_blake3, Some(root.finish().1));
    assert_eq!((report.files, report.bytes), (3, 3 * BLOCK_BYTES as u64 + 22));
}

#[test]
fn one_flipped_bit_is_altered_and_a_lost_tail_is_another_size() {
    let scene = Scene::new();
    let mut data = scene.files[1].1.clone();
    *data.last_mut().unwrap() ^= 1;
    fs::write(scene.path(b"sub/big.bin"), data).unwrap();
    fs::write(scene.path(b"a.txt"), "hell").unwrap();
    assert_eq!(scene.findings(), ["a.txt Size { listed: 5, found: 4 }", "sub/big.bin Altered"]);
}

#[test]
fn missing_files_are_missing_one_by_one() {
    let scene = Scene::new();
    fs::remove_dir_all(scene.root().join("sub")).unwrap();
    assert_eq!(scene.findings(), ["sub/big.bin Missing", r"sub/odd\x0a\xffname Missing"]);
}

#[test]
fn no_link_is_followed_neither_at_the_end_nor_on_the_way() {
    let scene = Scene::new();
    let elsewhere = scene.dir.path().join("elsewhere");
    fs::rename(scene.root().join("sub"), &elsewhere).unwrap();
    symlink(&elsewhere, scene.root().join("sub")).unwrap();
    fs::rename(scene.path(b"a.txt"), scene.path(b"b.txt")).unwrap();
    symlink("b.txt", scene.path(b"a.txt")).unwrap();
    assert_eq!(scene.findings(), ["a.txt NotAFile", "sub/big.bin NotAFile", r"sub/odd\x0a\xffname NotAFile"]);
}

#[test]
fn a_directory_or_socket_in_place_of_a_file_is_not_a_file() {
    let scene = Scene::new();
    fs::remove_file(scene.path(b"a.txt")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scene.path(b"a.txt")).unwrap();
    fs::remove_file(scene.path(b"sub/big.bin")).unwrap();
    fs::create_dir(scene.path(b"sub/big.bin")).unwrap();
    assert_eq!(scene.findings(), ["a.txt NotAFile", "sub/big.bin NotAFile"]);
}

#[test]
fn extra_files_are_named_when_asked_but_never_the_manifest_itself() {
    let scene = Scene::new();
    fs::write(scene.path(b"sub/new"), "x").unwrap();
    fs::hard_link(scene.manifest(), scene.path(b"manifest")).unwrap();
    assert!(scene.findings().is_empty());
    let (report, lines) = scene.verify(true).unwrap();
    assert_eq!(lines, ["sub/new Extra"]);
    assert_eq!((report.differing, report.extra), (0, 1));
}

#[test]
fn an_extra_file_is_found_where_no_full_path_reaches() {
    let scene = Scene::new();
    let tree = LocalTree::open(scene.root().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap().0;
    // 41 times 100 bytes exceed PATH_MAX.
    let mut path = Vec::new();
    for _ in 0..41 {
        path.extend_from_slice(&[b'd'; 99]);
        tree.make_dir(&path).unwrap();
        path.push(b'/');
    }
    path.extend_from_slice(b"extra");
    tree.make_hard_link(&path, b"a.txt").unwrap();
    let (report, lines) = scene.verify(true).unwrap();
    assert_eq!(lines, [format!("{} Extra", escape(&path))]);
    assert_eq!((report.differing, report.extra), (0, 1));
    // The temporary directory's own removal fails, too.
    assert!(tree.delete_entry(&[b'd'; 99], &|_, _| false, false, &mut |_, _| {}).is_empty());
}

#[test]
fn a_cut_manifest_is_refused_before_anything_is_read() {
    let scene = Scene::new();
    let whole = fs::read(scene.manifest()).unwrap();
    for end in [0, 5, HEADER.len() + 1, whole.len() / 2, whole.len() - 1] {
        fs::write(scene.manifest(), &whole[..end]).unwrap();
        let error = scene.verify(false).unwrap_err();
        assert_eq!(error.fault, Fault::Verification, "cut at {end}");
    }
}

#[test]
fn a_manifest_without_one_of_its_lines_is_refused() {
    let scene = Scene::new();
    let text = fs::read_to_string(scene.manifest()).unwrap();
    let fewer: String = text.lines().enumerate().filter(|(n, _)| *n != 2).map(|(_, l)| format!("{l}\n")).collect();
    fs::write(scene.manifest(), fewer).unwrap();
    let error = scene.verify(false).unwrap_err();
    assert!(error.cause.unwrap().contains("altered"));
}

#[test]
fn a_hostile_path_ends_the_check_and_touches_nothing() {
    let scene = Scene::new();
    let secret = scene.dir.path().join("secret");
    fs::write(&secret, "hello").unwrap();
    for path in ["../secret", "/etc/passwd", "sub/../../secret"] {
        let mut root = RootHasher::default();
        let bad = line(path.as_bytes(), b"hello");
        root.add(&bad.path, bad.size, &bad.blake3);
        let (files, root) = root.finish();
        let mut out = File::create(scene.manifest()).unwrap();
        let trailer = Trailer { files, bytes: bad.size, root }.format();
        write!(out, "{HEADER}\n{}\n{trailer}\n", format_line(&bad)).unwrap();
        let error = scene.verify(false).unwrap_err();
        assert_eq!(error.fault, Fault::Verification);
        assert!(error.cause.unwrap().contains("line 2"), "{path}");
    }
}

#[test]
fn what_is_no_manifest_or_no_tree_is_said_so() {
    let scene = Scene::new();
    let options = |manifest: &Path, root: &Path| options(ListAt::Here(manifest.to_path_buf()), root);
    let fault = |options| run(&options, &Found::default()).unwrap_err();
    let error = fault(options(&scene.path(b"sub/big.bin"), &scene.root()));
    assert!(error.cause.unwrap().contains("line 1"));
    assert_eq!(fault(options(&scene.path(b"none"), &scene.root())).fault, Fault::FileIo);
    assert_eq!(fault(options(&scene.root(), &scene.root())).fault, Fault::FileIo);
    assert_eq!(fault(options(&scene.manifest(), &scene.path(b"none"))).fault, Fault::FileIo);
    assert_eq!(fault(options(&scene.manifest(), &scene.path(b"a.txt"))).fault, Fault::FileIo);
}

#[test]
fn an_interrupt_ends_the_check_without_a_verdict() {
    let scene = Scene::new();
    let options = VerifyOptions { extra: true, ..options(ListAt::Here(scene.manifest()), &scene.root()) };
    let error = run(&options, &Found { interrupt: true, ..Found::default() }).unwrap_err();
    assert_eq!(error.fault, Fault::Interrupted);
}

#[test]
fn a_manifest_longer_than_the_window_streams_through() {
    let scene = Scene::new();
    let mut writer = Writer::start(File::create(scene.manifest()).unwrap()).unwrap();
    for _ in 0..MAX_WANTED_FILES + 9 {
        writer.add(&line(b"a.txt", b"hello")).unwrap();
    }
    writer.finish().unwrap();
    let (report, lines) = scene.verify(false).unwrap();
    assert!(lines.is_empty());
    assert_eq!(report.files, MAX_WANTED_FILES as u64 + 9);
}

fn list(scene: &Scene, hash: impl Fn(&[u8]) -> Vec<u8>) -> PathBuf {
    let mut out = File::create(scene.dir.path().join("list")).unwrap();
    for (path, data) in &scene.files {
        out.write_all(&hash_list::format_line(&hash(data), path, None)).unwrap();
        out.write_all(b"\n").unwrap();
    }
    scene.dir.path().join("list")
}

#[test]
fn a_list_of_64_digits_shows_by_its_first_files_which_hash_it_has() {
    let scene = Scene::new();
    let sha256 = |data: &[u8]| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data).as_ref().to_vec();
    let blake3 = |data: &[u8]| blake3::hash(data).as_bytes().to_vec();
    let found = Found::default();
    let report = run(&options(ListAt::Here(list(&scene, sha256)), &scene.root()), &found).unwrap();
    assert_eq!((report.differing, report.algorithms), (0, [Algorithm::Sha256].into()));
    let list = list(&scene, blake3);
    let report = run(&options(ListAt::Here(list.clone()), &scene.root()), &found).unwrap();
    assert_eq!((report.differing, report.algorithms), (0, [Algorithm::Blake3].into()));
    assert_eq!((report.files, report.bytes), (3, 3 * BLOCK_BYTES as u64 + 22));
    let options = VerifyOptions { algorithm: Some(Algorithm::Sha256), ..options(ListAt::Here(list), &scene.root()) };
    assert_eq!(run(&options, &found).unwrap().differing, 3);
}

#[test]
fn a_bag_is_whole_only_with_all_of_its_payload_and_nothing_else() {
    let scene = Scene::new();
    let md5 = |data: &[u8]| md5::Digest::finalize(<md5::Md5 as md5::Digest>::new_with_prefix(data)).to_vec();
    let root = scene.root();
    fs::create_dir(root.join("data")).unwrap();
    fs::write(root.join("data/a%0Ab"), "x").unwrap();
    fs::rename(scene.path(b"a.txt"), root.join("data/a\nb")).unwrap();
    fs::write(root.join("bagit.txt"), "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n").unwrap();
    fs::write(root.join("bag-info.txt"), "Payload-Oxum: 6.2\n").unwrap();
    let hex = |data: &[u8]| md5(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = format!("{}  data/a%0Ab\n{}  data/a%250Ab\n", hex(b"hello"), hex(b"x"));
    fs::write(root.join("manifest-md5.txt"), &lines).unwrap();
    let check = || {
        let found = Found::default();
        let report = run(&options(ListAt::InBag, &root), &found).map_err(|error| error.cause.unwrap_or_default());
        report.map(|report| (report.files, found.lines.into_inner().unwrap()))
    };
    assert_eq!(check(), Ok((2, vec![])));
    fs::write(root.join("data/new"), "x").unwrap();
    assert_eq!(check(), Ok((2, vec!["data/new Extra".to_owned()])));
    fs::remove_file(root.join("data/new")).unwrap();
    fs::write(root.join("bag-info.txt"), "Payload-Oxum: 7.2\n").unwrap();
    assert!(check().unwrap_err().contains("7 bytes in 2 files"));
    fs::write(root.join("manifest-md5.txt"), format!("{lines}{}  sub/x\n", hex(b""))).unwrap();
    assert!(check().unwrap_err().contains("does not belong there"));
    fs::remove_file(root.join("manifest-md5.txt")).unwrap();
    assert!(check().is_err());
}

//! Checks a tree against a manifest: what `haul verify` runs.
//!
//! Read a line -> hand it to a free worker -> open the file beneath the root, following no link -> compare size and BLAKE3 ->
//! tell the watcher what differs. The manifest streams: a million files need no more memory than a thousand. Only the search
//! for extra files remembers something of each path, 16 bytes of hash.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault, ManifestLine};
use haul_store::{Kind, LocalTree, TargetOptions};

use crate::files::hash::{self, Found};
use crate::files::manifest_file::{ReadError, Reader, Trailer, escape};

/// What to check.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The manifest.
    pub manifest: PathBuf,
    /// The tree.
    pub root: PathBuf,
    /// Files read at the same time; at least 1.
    pub threads: usize,
    /// Look for files that the manifest does not list, too.
    pub extra: bool,
}

/// What is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Not there.
    Missing,
    /// Another size than listed.
    Size {
        /// In the manifest.
        listed: u64,
        /// In the tree.
        found: u64,
    },
    /// The right size, other contents.
    Altered,
    /// Not a regular file, or reached through a symbolic link.
    NotAFile,
    /// Could not be read: the system's words.
    Unreadable(String),
    /// In the tree, not in the manifest.
    Extra,
}

/// Watches a check. Called from several threads.
pub trait VerifyWatcher: Sync {
    /// A file differs.
    fn on_finding(&self, path: &[u8], finding: &Finding);

    /// Running totals, after each block that was read.
    fn on_progress(&self, progress: &VerifyProgress);

    /// Asked often; true ends the check with [`Fault::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Running totals of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Files checked.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files and bytes the manifest lists, when it can be known before its end is read.
    pub listed: Option<(u64, u64)>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files listed.
    pub files: u64,
    /// Their bytes as listed.
    pub bytes: u64,
    /// Listed files that are missing, differ or could not be read.
    pub differing: u64,
    /// Files in the tree that the manifest does not list, when looked for.
    pub extra: u64,
    /// Root hash of the manifest; the root of the tree as well when nothing differs.
    pub root_blake3: [u8; 32],
    /// The whole check.
    pub elapsed: Duration,
}

/// Checks `options.root` against `options.manifest`.
pub fn verify(options: &VerifyOptions, watcher: &dyn VerifyWatcher) -> Result<VerifyReport, Error> {
    let started = Instant::now();
    let name = escape(options.manifest.as_os_str().as_encoded_bytes());
    let manifest_error = |error: ReadError| manifest_error(&name, error);
    let mut manifest = File::open(&options.manifest).map_err(|e| manifest_error(e.into()))?;
    let metadata = manifest.metadata().map_err(|e| manifest_error(e.into()))?;
    let listed = trailer_ahead(&mut manifest, &metadata).map_err(manifest_error)?;
    let mut reader = Reader::start(BufReader::with_capacity(BLOCK_BYTES, manifest)).map_err(manifest_error)?;
    let tree = open_tree(&options.root)?;
    let check = Check {
        tree: &tree,
        watcher,
        stop: AtomicBool::new(false),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        differing: AtomicU64::new(0),
        listed: listed.map(|trailer| (trailer.files, trailer.bytes)),
    };

    let mut seen = options.extra.then(HashSet::new);
    let (lines, queue) = sync_channel(QUEUE_LINES);
    let queue = Mutex::new(queue);
    let fed = thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| check.work(&queue));
        }
        let fed = check.feed(&mut reader, &lines, seen.as_mut());
        if fed.is_err() {
            check.stop.store(true, Ordering::Relaxed);
        }
        // The closed queue ends the workers.
        drop(lines);
        fed
    });
    fed.map_err(manifest_error)?;
    if check.stopped() {
        return Err(Error::new(Fault::Interrupted, "interrupted before the whole tree was checked"));
    }

    let extra = match &seen {
        Some(seen) => check.find_extra(seen, (metadata.dev(), metadata.ino()))?,
        None => 0,
    };
    let Some(&Trailer { files, bytes, root }) = reader.trailer() else {
        return Err(manifest_error(ReadError::Truncated));
    };
    let differing = check.differing.into_inner();
    Ok(VerifyReport { files, bytes, differing, extra, root_blake3: root, elapsed: started.elapsed() })
}

/// One check as its threads share it.
struct Check<'a> {
    tree: &'a LocalTree,
    watcher: &'a dyn VerifyWatcher,
    stop: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    differing: AtomicU64,
    listed: Option<(u64, u64)>,
}

impl Check<'_> {
    /// Hands the lines out until the manifest ends or the check is stopped.
    fn feed(
        &self,
        reader: &mut Reader<BufReader<File>>,
        lines: &SyncSender<ManifestLine>,
        mut seen: Option<&mut HashSet<[u8; 16]>>,
    ) -> Result<(), ReadError> {
        while let Some(line) = reader.next_file()? {
            if self.stopped() {
                break;
            }
            if let Some(seen) = &mut seen {
                seen.insert(short_hash(&line.path));
            }
            // Fails only when every worker is gone, which only happens when one panicked; the scope passes that on.
            if lines.send(line).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn work(&self, queue: &Mutex<Receiver<ManifestLine>>) {
        let mut buffer = vec![0; BLOCK_BYTES];
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(line) = next else { return };
            // After a stop the queue is emptied, so that the feeding side never waits for room.
            if self.stopped() {
                continue;
            }
            match self.compare(&line, &mut buffer) {
                Ok(None) => {}
                Ok(Some(finding)) => self.tell(&line.path, &finding),
                Err(error) => self.tell(&line.path, &finding_of(&error)),
            }
            self.files.fetch_add(1, Ordering::Relaxed);
            self.progress();
        }
    }

    fn compare(&self, line: &ManifestLine, buffer: &mut [u8]) -> io::Result<Option<Finding>> {
        let file = self.tree.open_file(&line.path).map_err(|error| error.source)?;
        let differs = |found| Some(Finding::Size { listed: line.size, found });
        let found = file.stat()?.size;
        if found != line.size {
            return Ok(differs(found));
        }
        let read = hash::front_to_back(&file, line.size, buffer, |bytes| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.progress();
            !self.stopped()
        })?;
        Ok(match read {
            Found::Stopped => None,
            Found::OtherSize(found) => differs(found),
            Found::All(hash) => (hash != line.blake3).then_some(Finding::Altered),
        })
    }

    /// Walks the tree and tells every regular file whose path was not listed, except the manifest itself. Of what cannot be listed or
    /// looked at nobody knows whether it is extra: that is told, too.
    fn find_extra(&self, seen: &HashSet<[u8; 16]>, manifest: (u64, u64)) -> Result<u64, Error> {
        let mut extra = 0;
        let looked = self.tree.each_entry(|path, found| {
            if self.stopped() {
                return ControlFlow::Break(());
            }
            match found {
                Ok(stat) => {
                    let is_manifest = (stat.id.dev, stat.id.ino) == manifest;
                    if stat.kind == Kind::File && !seen.contains(&short_hash(path)) && !is_manifest {
                        extra += 1;
                        self.watcher.on_finding(path, &Finding::Extra);
                    }
                }
                Err(error) => {
                    let shown = if path.is_empty() { b"." } else { path };
                    self.tell(shown, &Finding::Unreadable(error.source.to_string()));
                }
            }
            ControlFlow::Continue(())
        });
        match looked {
            ControlFlow::Continue(()) => Ok(extra),
            ControlFlow::Break(()) => Err(Error::new(Fault::Interrupted, "interrupted while looking for extra files")),
        }
    }

    fn tell(&self, path: &[u8], finding: &Finding) {
        self.differing.fetch_add(1, Ordering::Relaxed);
        self.watcher.on_finding(path, finding);
    }

    fn progress(&self) {
        self.watcher.on_progress(&VerifyProgress {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            listed: self.listed,
        });
    }

    fn stopped(&self) -> bool {
        if self.watcher.interrupted() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }
}

/// The tree that is checked. Its files are opened beneath its root, and no symbolic link is followed on the way.
fn open_tree(root: &Path) -> Result<LocalTree, Error> {
    let (tree, _) = LocalTree::open(root.as_os_str().as_encoded_bytes(), &TargetOptions::default()).map_err(|e| {
        Error::new(Fault::FileIo, format!("cannot check the tree {}", tree_name(root))).because(e.source)
    })?;
    Ok(tree)
}

fn tree_name(root: &Path) -> String {
    escape(root.as_os_str().as_encoded_bytes())
}

/// The closing line, read from the end of a manifest that is a plain file: hours of hashing for a manifest that was cut off
/// are hours lost.
fn trailer_ahead(manifest: &mut File, metadata: &std::fs::Metadata) -> Result<Option<Trailer>, ReadError> {
    if !metadata.is_file() {
        return Ok(None);
    }
    // Only something that starts as a manifest is called cut off.
    let mut head = Vec::new();
    manifest.by_ref().take(MAX_TRAILER_BYTES).read_to_end(&mut head)?;
    Reader::start(head.as_slice())?;
    let mut tail = Vec::new();
    manifest.seek(SeekFrom::Start(metadata.len().saturating_sub(MAX_TRAILER_BYTES)))?;
    manifest.by_ref().take(MAX_TRAILER_BYTES).read_to_end(&mut tail)?;
    manifest.rewind()?;
    let body = tail.strip_suffix(b"\n").ok_or(ReadError::Truncated)?;
    let start = body.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    Trailer::parse(&body[start..]).map(Some).ok_or(ReadError::Truncated)
}

fn manifest_error(name: &str, error: ReadError) -> Error {
    match error {
        ReadError::Io(error) => Error::new(Fault::FileIo, format!("cannot read the manifest {name}")).because(error),
        other => Error::new(Fault::Verification, format!("the manifest {name} cannot be used")).because(other),
    }
}

fn finding_of(error: &io::Error) -> Finding {
    match error.kind() {
        io::ErrorKind::NotFound => Finding::Missing,
        // A component is a file or a link (which of the two errors comes depends on the kernel), the last one something
        // else than a file (refused by the store), or a socket (ENXIO).
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => Finding::NotAFile,
        _ if matches!(error.raw_os_error(), Some(ELOOP | ENXIO)) => Finding::NotAFile,
        _ => Finding::Unreadable(error.to_string()),
    }
}

/// Half of a BLAKE3 hash: two paths of a million share it with a chance of 2^-89.
fn short_hash(path: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    short
}

/// One read. Large enough that the system call does not count, small enough to stay in the cache of a core's neighbourhood.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Lines read ahead of the workers. 256 lines of the longest kind are 64 MiB; of the usual kind, 64 KiB.
const QUEUE_LINES: usize = 256;

/// `# files ` 20 ` bytes ` 20 ` root ` 64, rounded up.
const MAX_TRAILER_BYTES: u64 = 256;

/// Numbers of Linux errors that `std` has no name for; the same on every architecture that Rust supports but MIPS and SPARC.
const ELOOP: i32 = 40;
const ENXIO: i32 = 6;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::manifest_file::{HEADER, RootHasher, Writer, format_line};

    /// A tree of three files with its manifest beside it.
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
            let options = VerifyOptions { manifest: self.manifest(), root: self.root(), threads: 3, extra };
            let report = verify(&options, &watcher)?;
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
        assert_eq!(report.root_blake3, root.finish().1);
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
        let tree = open_tree(&scene.root()).unwrap();
        // 41 times 100 bytes: more than PATH_MAX.
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
        // For the temporary directory's own removal the paths are too long, too.
        assert!(tree.delete_entry(&[b'd'; 99], &|_, _| false, false, &mut |_| {}).is_empty());
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
        let options = |manifest: &Path, root: &Path| VerifyOptions {
            manifest: manifest.to_path_buf(),
            root: root.to_path_buf(),
            threads: 1,
            extra: false,
        };
        let fault = |options| verify(&options, &Found::default()).unwrap_err();
        let error = fault(options(&scene.path(b"sub/big.bin"), &scene.root()));
        assert!(error.cause.unwrap().contains("not a manifest"));
        assert_eq!(fault(options(&scene.path(b"none"), &scene.root())).fault, Fault::FileIo);
        assert_eq!(fault(options(&scene.root(), &scene.root())).fault, Fault::FileIo);
        assert_eq!(fault(options(&scene.manifest(), &scene.path(b"none"))).fault, Fault::FileIo);
        assert_eq!(fault(options(&scene.manifest(), &scene.path(b"a.txt"))).fault, Fault::FileIo);
    }

    #[test]
    fn an_interrupt_ends_the_check_without_a_verdict() {
        let scene = Scene::new();
        let options = VerifyOptions { manifest: scene.manifest(), root: scene.root(), threads: 2, extra: true };
        let error = verify(&options, &Found { interrupt: true, ..Found::default() }).unwrap_err();
        assert_eq!(error.fault, Fault::Interrupted);
    }

    #[test]
    fn a_manifest_longer_than_the_queue_streams_through() {
        let scene = Scene::new();
        let mut writer = Writer::start(File::create(scene.manifest()).unwrap()).unwrap();
        for _ in 0..4 * QUEUE_LINES {
            writer.add(&line(b"a.txt", b"hello")).unwrap();
        }
        writer.finish().unwrap();
        let (report, lines) = scene.verify(false).unwrap();
        assert!(lines.is_empty());
        assert_eq!(report.files, 4 * QUEUE_LINES as u64);
    }
}

//! Digests of files (RFC 9530; RFC 3230 for older programs), each computed once for a state of a file.

pub(crate) mod digest_file;
mod digests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest;
use haul_store::{LocalFile, Stat};
use http::HeaderMap;
use http::header::HeaderName;
use md5::{Digest as _, Md5};
use simd_adler32::Adler32;

use crate::limits::{
    BACKGROUND_WANTED, DIGEST_AT_ONCE_BYTES, DIGEST_FILE_BYTES_MIN, FRESH, HASHING_TURN_BYTES, MAX_DIGESTS_KEPT,
};
use crate::pools::{Client, Job, Pools};
use crate::request::condition::moment;
use digest_file::DigestFile;
use digests::state;
pub(crate) use digests::{Digests, State, Which};

#[derive(Default)]
pub(crate) struct Kept {
    known: Mutex<Known>,
    /// `None`: the next process computes them again.
    file: Option<Mutex<DigestFile>>,
    background: Mutex<Option<Background>>,
}

struct Background {
    of: (State, Which),
    asked: Instant,
    job: Weak<Job>,
}

#[derive(Default)]
struct Known {
    digests: HashMap<State, Digests>,
    /// The states by arrival; the oldest leaves first.
    order: VecDeque<State>,
}

impl Known {
    fn add(&mut self, state: State, mut digests: Digests) {
        digests.md5 = digests.md5.or(self.digests.get(&state).and_then(|known| known.md5));
        if self.digests.insert(state, digests).is_none() {
            self.order.push_back(state);
        }
        if self.order.len() > MAX_DIGESTS_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }
}

impl Kept {
    /// Opens the digests that an earlier process left, and keeps new ones there.
    pub(crate) fn in_file(path: &Path) -> io::Result<Kept> {
        let (file, earlier) = DigestFile::open(path, MAX_DIGESTS_KEPT)?;
        let mut known = Known::default();
        earlier.into_iter().for_each(|(state, digests)| known.add(state, digests));
        Ok(Kept { known: Mutex::new(known), file: Some(Mutex::new(file)), ..Kept::default() })
    }

    fn keep(&self, state: State, digests: Digests) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).add(state, digests);
        let (_, size, _) = state;
        let Some(file) = self.file.as_ref().filter(|_| size >= DIGEST_FILE_BYTES_MIN) else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not fail the reader.
        if file.add(&state, &digests).unwrap_or(false) {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let is_long = |(_, size, _): &&State| *size >= DIGEST_FILE_BYTES_MIN;
            let kept = known.order.iter().filter(is_long).filter_map(|state| Some((state, known.digests.get(state)?)));
            let _ = file.rewrite(kept);
        }
    }

    pub(crate) fn known(&self, stat: &Stat) -> Option<Digests> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).digests.get(&state(stat)).copied()
    }

    /// Finds the digests, or reads the whole file for them in turn with other jobs, while somebody wants them.
    pub(crate) fn of(&self, file: &LocalFile, stat: &Stat, which: Which, job: &Job) -> io::Result<Digests> {
        if let Some(known) = self.known(stat).filter(|known| known.has(which)) {
            return Ok(known);
        }
        let begun = SystemTime::now();
        let digests = compute(file, which, job)?;
        if state(&file.stat()?) != state(stat) {
            return Err(io::Error::other("the file changed while it was read"));
        }
        // A state younger than `FRESH` may have changed again and look the same.
        if begun.duration_since(moment(stat.version.changed())).is_ok_and(|age| age >= FRESH) {
            self.keep(state(stat), digests);
        }
        Ok(digests)
    }

    /// Returns the digests for a reader. `None`: they are being computed, or cannot be.
    pub(crate) async fn wanted(
        self: &Arc<Kept>,
        pools: &Arc<Pools>,
        client: &Client,
        (file, stat): (&Arc<LocalFile>, &Stat),
        which: Which,
    ) -> Option<Digests> {
        if let Some(known) = self.known(stat).filter(|known| known.has(which)) {
            return Some(known);
        }
        if stat.size > DIGEST_AT_ONCE_BYTES {
            self.begin_behind(pools, client, (file, stat), which);
            // Digests that need no reading are there already.
            return self.known(stat);
        }
        let share = pools.hash_jobs.take(&client.claimant, 1, DIGEST_DEADLINE).await.ok()?;
        let (kept, file, stat) = (Arc::clone(self), Arc::clone(file), stat.clone());
        let work = move |job: &Job| {
            let digests = kept.of(&file, &stat, which, job);
            drop(share);
            digests
        };
        pools.hashing.run(client, DIGEST_DEADLINE, work).await.ok()?.ok()
    }

    /// Computes digests one file at a time, in turn with jobs that readers wait for. A file not asked for lately makes way.
    fn begin_behind(
        self: &Arc<Kept>,
        pools: &Arc<Pools>,
        client: &Client,
        (file, stat): (&Arc<LocalFile>, &Stat),
        which: Which,
    ) {
        let (of, now) = ((state(stat), which), Instant::now());
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = background.as_mut()
            && let Some(job) = running.job.upgrade()
        {
            if running.of == of {
                running.asked = now;
                return;
            }
            if now.duration_since(running.asked) < BACKGROUND_WANTED {
                return;
            }
            job.leave();
        }
        let Some(thread) = client.threads.hashing.try_take(&client.claimant, 1) else { return };
        let job = pools.hashing.job(client.claimant.clone(), None);
        *background = Some(Background { of, asked: now, job: Arc::downgrade(&job) });
        let (kept, file, stat) = (Arc::clone(self), Arc::clone(file), stat.clone());
        drop(pools.hashing.begin(job, Some(thread), move |job| {
            job.resumes()?;
            kept.of(&file, &stat, which, job).map(drop)
        }));
    }
}

/// The reader gets the answer without a digest after this long, its turn included.
const DIGEST_DEADLINE: Duration = Duration::from_secs(60);

fn compute(file: &LocalFile, which: Which, job: &Job) -> io::Result<Digests> {
    let (mut sha256, mut blake3) = (digest::Context::new(&digest::SHA256), blake3::Hasher::new());
    let (mut adler32, mut md5) = (Adler32::new(), (which == Which::All).then(Md5::new));
    let mut block = vec![0; READ_BYTES];
    let (mut at, mut turn_ends) = (0, HASHING_TURN_BYTES);
    loop {
        let count = file.read_at(&mut block, at)?;
        if count == 0 {
            break;
        }
        adler32.write(&block[..count]);
        sha256.update(&block[..count]);
        blake3.update(&block[..count]);
        if let Some(md5) = &mut md5 {
            md5.update(&block[..count]);
        }
        at += count as u64;
        job.goes_on()?;
        if at >= turn_ends {
            job.takes_turns()?;
            turn_ends = at + HASHING_TURN_BYTES;
        }
    }
    let sha256 = sha256.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
    let (blake3, md5) = (*blake3.finalize().as_bytes(), md5.map(|md5| md5.finalize().into()));
    Ok(Digests { adler32: adler32.finish(), sha256, blake3, md5 })
}

const READ_BYTES: usize = 1 << 20;

/// RFC 9530, section 7.2, deprecates `md5`, so only RFC 3230 gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    sha256: bool,
    blake3: bool,
}

impl Wish {
    pub(crate) fn of(header: &HeaderMap) -> Wish {
        let mut wish = Wish::default();
        let values = header.get_all(WANT).iter().filter_map(|value| value.to_str().ok());
        for member in values.flat_map(|value| value.split(',')) {
            let (name, weight) = member.split_once('=').unwrap_or((member, "1"));
            // 0 is "not acceptable", 10 the highest (section 4).
            let is_wanted = weight.trim().parse::<u8>().is_ok_and(|weight| (1..=10).contains(&weight));
            match name.trim() {
                "sha-256" => wish.sha256 = is_wanted,
                "blake3" => wish.blake3 = is_wanted,
                _ => {}
            }
        }
        wish
    }

    pub(crate) fn is_any(self) -> bool {
        self.sha256 || self.blake3
    }

    pub(crate) fn field(self, digests: &Digests) -> String {
        let one = |name: &str, bytes: &[u8]| format!("{name}=:{}:", base64(bytes));
        let wanted = [(self.sha256, "sha-256", &digests.sha256), (self.blake3, "blake3", &digests.blake3)];
        let wanted = wanted.iter().filter(|(is_wanted, ..)| *is_wanted);
        wanted.map(|(_, name, bytes)| one(name, *bytes)).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) const WANT: HeaderName = HeaderName::from_static("want-repr-digest");
pub(crate) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The digests that `Want-Digest` asks for (RFC 3230): grids and their stores still use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldWish {
    adler32: bool,
    md5: bool,
    sha256: bool,
}

impl OldWish {
    pub(crate) fn of(header: &HeaderMap) -> OldWish {
        let mut wish = OldWish::default();
        let values = header.get_all(OLD_WANT).iter().filter_map(|value| value.to_str().ok());
        for member in values.flat_map(|value| value.split(',')) {
            let mut parts = member.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let is_wanted = weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0));
            match name.as_str() {
                "adler32" => wish.adler32 = is_wanted,
                "md5" => wish.md5 = is_wanted,
                "sha-256" => wish.sha256 = is_wanted,
                _ => {}
            }
        }
        wish
    }

    pub(crate) fn is_any(self) -> bool {
        self.adler32 || self.md5 || self.sha256
    }

    pub(crate) fn which(self) -> Which {
        if self.md5 { Which::All } else { Which::AllButMd5 }
    }

    pub(crate) fn field(self, digests: &Digests) -> String {
        let adler32 = self.adler32.then(|| format!("adler32={:08x}", digests.adler32));
        let sha256 = self.sha256.then(|| format!("sha-256={}", base64(&digests.sha256)));
        let md5 = digests.md5.filter(|_| self.md5).map(|md5| format!("md5={}", base64(&md5)));
        adler32.into_iter().chain(md5).chain(sha256).collect::<Vec<_>>().join(",")
    }
}

pub(crate) const OLD_WANT: HeaderName = HeaderName::from_static("want-digest");
pub(crate) const OLD_DIGEST: HeaderName = HeaderName::from_static("digest");

/// Base64 (RFC 4648), as in structured fields.
fn base64(bytes: &[u8]) -> String {
    haul_net::base64_text(bytes)
}

pub(crate) fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_follow_the_standard() {
        for (value, sha256, blake3) in [
            ("sha-256=1", true, false),
            ("sha-256=0", false, false),
            ("sha-256", true, false),
            ("unixsum=3, sha-256=10,blake3=5", true, true),
            ("sha-256=11", false, false),
            ("sha-256=x, md5=1", false, false),
            ("", false, false),
        ] {
            let header = HeaderMap::from_iter([(WANT, value.parse().unwrap())]);
            assert_eq!(Wish::of(&header), Wish { sha256, blake3 }, "{value}");
        }
        let digests = Digests { adler32: 0x3da_0195, sha256: [0; 32], blake3: [255; 32], md5: Some([0; 16]) };
        let both = Wish { sha256: true, blake3: true }.field(&digests);
        assert_eq!(both, format!("sha-256=:{}=:, blake3=:{}8=:", "A".repeat(43), "/".repeat(42)));
    }

    #[test]
    fn wishes_of_old_programs_are_heard() {
        let (sha256, md5) = (format!("sha-256={}=", "A".repeat(43)), format!("md5={}==", "A".repeat(22)));
        for (value, expected) in [
            ("adler32", "adler32=03da0195".to_owned()),
            ("ADLER32;q=0.5, md5", format!("adler32=03da0195,{md5}")),
            ("SHA-256;q=1, adler32; q=0, unixsum", sha256.clone()),
            ("sha-256,adler32", format!("adler32=03da0195,{sha256}")),
            ("md5;q=1", md5.clone()),
            ("MD5;q=0", String::new()),
            ("adler32;q=x", String::new()),
        ] {
            let header = HeaderMap::from_iter([(OLD_WANT, value.parse().unwrap())]);
            let wish = OldWish::of(&header);
            let digests = Digests { adler32: 0x3da_0195, sha256: [0; 32], blake3: [0; 32], md5: Some([0; 16]) };
            assert_eq!((wish.field(&digests), wish.is_any()), (expected.clone(), !expected.is_empty()), "{value}");
        }
    }

    #[test]
    fn the_next_process_knows_the_digest_of_a_long_file_and_computes_that_of_another_state() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let path = top.join("long");
        let published = haul_store::Published::open(&top).unwrap();
        let found = || match published.find(b"long", haul_store::Patience::ForDisk).unwrap() {
            haul_store::Opened::File(file, stat) => (file, stat),
            haul_store::Opened::Directory(_) => panic!("it is a file"),
        };
        std::fs::write(&path, vec![7; DIGEST_FILE_BYTES_MIN as usize]).unwrap();
        let job = Job::for_test();
        let (file, stat) = found();
        while SystemTime::now().duration_since(moment(stat.version.changed())).is_ok_and(|age| age < FRESH) {
            std::thread::park_timeout(FRESH / 4);
        }
        let digests = Kept::in_file(&top.join("digests")).unwrap().of(&file, &stat, Which::AllButMd5, &job).unwrap();
        let next = Kept::in_file(&top.join("digests")).unwrap();
        assert_eq!(next.known(&stat), Some(digests));
        assert_eq!(digests.md5, None, "nobody has asked for it");
        let with_md5 = next.of(&file, &stat, Which::All, &job).unwrap();
        assert_eq!(with_md5, Digests { md5: with_md5.md5, ..digests });
        assert!(with_md5.md5.is_some());
        let next = Kept::in_file(&top.join("digests")).unwrap();
        assert_eq!(next.known(&stat), Some(with_md5));
        std::fs::write(&path, vec![8; DIGEST_FILE_BYTES_MIN as usize]).unwrap();
        let (file, stat) = found();
        assert_eq!(next.known(&stat), None);
        assert_ne!(next.of(&file, &stat, Which::AllButMd5, &job).unwrap(), digests);
        assert_eq!(next.known(&stat), None, "it has just changed, and might change again and look alike");
    }
}

//! Hashes whole files for `haul hash`, in the order of their names.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use haul_kept::files::digest::Hasher;
use haul_kept::files::hash::{Found, front_to_back};
use haul_kept::files::sparse::is_sparse;
use haul_store::place::{Elsewhere, Operand};
use haul_store::{SourceFile, StoreError};
use haul_wire::place::{Algorithm, Moment};

/// Reading this much costs little beside hashing, and fits a processor's cache.
pub(crate) const HASHED_AT_ONCE: usize = 256 << 10;

/// `None`: unwanted by now.
pub(crate) fn hash_of(
    file: &SourceFile,
    algorithm: Algorithm,
    buffer: &mut [u8],
    busy: &mut dyn FnMut() -> ControlFlow<()>,
) -> io::Result<Option<(Vec<u8>, u64, Moment)>> {
    let mut hasher = Hasher::new(algorithm);
    let stat = file.stat()?;
    let modified = moment(stat.mtime);
    if algorithm == Algorithm::Blake3 && is_sparse(&stat) {
        match front_to_back(file, stat.size, buffer, |_| busy().is_continue())? {
            Found::All(hash) => return Ok(Some((hash.to_vec(), stat.size, modified))),
            Found::Stopped => return Ok(None),
            // The content at its end counts.
            Found::OtherSize(_) => {}
        }
    }
    let mut offset = 0;
    loop {
        let read = file.read_at(buffer, offset)?;
        if read == 0 {
            return Ok(Some((hasher.finish(), offset, modified)));
        }
        hasher.update(&buffer[..read]);
        offset += read as u64;
        if busy().is_break() {
            return Ok(None);
        }
    }
}

type Hashed = (Vec<u8>, u64, Moment);

/// Each file waits for some answers in turn. A web server is read over six connections; sftp answers many requests of one.
pub(crate) const THREADS_ELSEWHERE: usize = 8;

pub(crate) const FILES_TOGETHER: usize = 256;

pub(crate) fn hash_together(
    end: &Elsewhere,
    operand: &Operand,
    algorithm: Algorithm,
    paths: Vec<Vec<u8>>,
    tell: &mut dyn FnMut(Vec<u8>, Result<Hashed, StoreError>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, results) = channel();
    let paths = &paths;
    let work = |sender: std::sync::mpsc::Sender<_>| {
        let mut buffer = vec![0; HASHED_AT_ONCE];
        let mut goes_on = || match is_over.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        while !is_over.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(at) else { return };
            let hashed = end.open_beneath(operand, path).and_then(|file| {
                hash_of(&file, algorithm, &mut buffer, &mut goes_on).map_err(|error| {
                    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    end.read_failed(&[&operand.shown, slash, path].concat(), error)
                })
            });
            let _ = sender.send((at, hashed));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS_ELSEWHERE.min(paths.len()) {
            let sender = sender.clone();
            // Fewer threads only take longer.
            let _ = std::thread::Builder::new().name("hash".into()).spawn_scoped(scope, || work(sender));
        }
        drop(sender);
        let (mut waiting, mut told) = (BTreeMap::new(), 0);
        for (at, hashed) in results {
            waiting.insert(at, hashed);
            while let Some(hashed) = waiting.remove(&told) {
                let flow = match hashed {
                    Ok(Some(hashed)) => tell(paths[told].clone(), Ok(hashed)),
                    Ok(None) => ControlFlow::Break(()),
                    Err(error) if error.source.kind() == io::ErrorKind::NotFound && !paths[told].is_empty() => {
                        ControlFlow::Continue(())
                    }
                    Err(error) => tell(paths[told].clone(), Err(error)),
                };
                told += 1;
                if flow.is_break() {
                    is_over.store(true, Ordering::Relaxed);
                    return flow;
                }
            }
        }
        match told == paths.len() {
            true => ControlFlow::Continue(()),
            false => tell(
                Vec::new(),
                Err(StoreError::new("hash", &operand.shown, io::Error::from(io::ErrorKind::OutOfMemory))),
            ),
        }
    })
}

pub(crate) fn moment(time: haul_store::Time) -> Moment {
    Moment { s: time.s, ns: time.ns }
}

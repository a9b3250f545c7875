//! A file of at most one part: held in memory until verified, then one PUT.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use haul_store::{DraftPlan, FileToWrite, Journal, Metadata, Result, StoreError};
use http::{HeaderValue, Method};

use crate::http_client::outgoing::Content;
use crate::s3::kept::{BLAKE3, Kept};
use crate::s3::store::Request;
use crate::s3::sums::{crc64, text};
use crate::s3::target::standing::{Seen, Takes};
use crate::s3::target::tree::{Tree, changed_meanwhile};
use crate::s3::uploads::CRC64;

#[derive(Debug)]
pub(super) struct SmallDraft {
    tree: Arc<Tree>,
    path: Vec<u8>,
    key: Vec<u8>,
    plan: DraftPlan,
    number: u64,
    state: Mutex<State>,
    journal: NoJournal,
}

#[derive(Debug, Default)]
struct State {
    data: Vec<u8>,
    meta: Metadata,
    is_over: bool,
}

static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// The most of a file of unknown size.
const MAX_BYTES: u64 = 64 << 20;

impl SmallDraft {
    pub(super) fn new(tree: &Arc<Tree>, path: &[u8], plan: DraftPlan) -> io::Result<SmallDraft> {
        let key = tree.new_key(path)?;
        let (number, state) = (DRAFTS.fetch_add(1, Ordering::Relaxed), Mutex::default());
        Ok(SmallDraft {
            tree: Arc::clone(tree),
            path: path.to_vec(),
            key,
            plan,
            number,
            state,
            journal: NoJournal::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, data: Bytes, meta: &Metadata) -> io::Result<()> {
        let blake3 = blake3::hash(&data);
        let condition = self.tree.condition(&self.path, &self.key)?;
        let first = Takes { sums: self.tree.sums(), conditions: condition.is_some() };
        let mut takes = first;
        loop {
            let mut fields = self.tree.fields(&DraftPlan { mtime: meta.mtime.unwrap_or(self.plan.mtime), ..self.plan });
            fields.push((BLAKE3, HeaderValue::from_str(&blake3.to_hex()).expect("hex is a value")));
            if takes.sums {
                let sum = text(crc64(&data));
                fields.push((CRC64, HeaderValue::from_str(&sum).expect("base64 is a value")));
            }
            fields.extend(condition.clone().filter(|_| takes.conditions));
            let content = Content::Whole(data.clone());
            let request = Request { fields, content, ..Request::new(Method::PUT, &self.key) };
            match self.tree.store.ask(&request)? {
                Ok(answer) => {
                    self.tree.standing.enter(&self.path, Seen::Ours);
                    self.tree.store.client.give_back(answer.url.origin(), answer.body);
                    self.tree.learn(first, takes);
                    if !takes.sums {
                        self.tree.unsummed();
                    }
                    return Ok(());
                }
                Err(refusal) => {
                    if let Some(less) = takes.next(first).filter(|_| refusal.is_of_unknown_field()) {
                        takes = less;
                        continue;
                    }
                    // The answer to an earlier try may have been lost.
                    let is_of_condition = takes.conditions && refusal.is_of_condition();
                    let is_ours = is_of_condition
                        && self
                            .tree
                            .store
                            .head(&self.key)?
                            .is_some_and(|head| Kept::of(&head.headers).blake3 == Some(*blake3.as_bytes()));
                    return match (is_ours, takes.conditions && self.tree.is_of_change(&refusal)) {
                        (true, _) => Ok(()),
                        (false, true) => Err(changed_meanwhile()),
                        (false, false) => Err(refusal.as_io()),
                    };
                }
            }
        }
    }

    fn context<T>(&self, op: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| StoreError::new(op, &self.path, error))
    }
}

impl FileToWrite for SmallDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    /// A restart finds none of it.
    fn id(&self) -> (u64, u64) {
        (0, self.number)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut state = self.lock();
        let end = offset.saturating_add(data.len() as u64);
        if end > MAX_BYTES {
            return self.context("write", Err(ErrorKind::FileTooLarge.into()));
        }
        let (offset, end) = (offset as usize, end as usize);
        if state.data.capacity() == 0 {
            state.data.reserve_exact(usize::try_from(self.plan.size.min(MAX_BYTES)).unwrap_or(0).max(end));
        }
        if state.data.len() < end {
            state.data.resize(end, 0);
        }
        state.data[offset..end].copy_from_slice(data);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.lock();
        let rest = usize::try_from(offset).ok().and_then(|offset| state.data.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.lock().data.len() as u64)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        if size > MAX_BYTES {
            return self.context("write", Err(ErrorKind::FileTooLarge.into()));
        }
        self.lock().data.resize(size as usize, 0);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_metadata(&self, meta: &Metadata, _flush: bool) -> Result<()> {
        self.lock().meta = meta.clone();
        Ok(())
    }

    fn give_name(&self) -> Result<()> {
        let (data, meta) = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_over, true) {
                return self.context("write", Err(io::Error::new(ErrorKind::NotFound, "it was given up meanwhile")));
            }
            (Bytes::from(std::mem::take(&mut state.data)), std::mem::take(&mut state.meta))
        };
        self.context("write", self.put(data, &meta))?;
        self.tree.replace_link(&self.path);
        Ok(())
    }

    fn discard(&self) -> Result<()> {
        *self.lock() = State { is_over: true, ..State::default() };
        self.context("give up", self.journal.remove())
    }

    fn journal(&self) -> &dyn Journal {
        &self.journal
    }
}

/// Keeps nothing: such a file is stored whole or not at all.
#[derive(Debug, Default)]
struct NoJournal {
    is_over: AtomicBool,
}

impl Journal for NoJournal {
    fn begin(&self, _header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::NotFound, "its draft was given up meanwhile"));
        }
        begun();
        Ok(())
    }

    fn append(&self, _record: &[u8]) -> io::Result<()> {
        Err(io::Error::new(ErrorKind::Unsupported, "a file of one part has no journal"))
    }

    fn keep(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }
}

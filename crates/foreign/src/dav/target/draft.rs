//! A file being written at a server: a PUT under a temporary name beside its own, then a MOVE.
//!
//! ```text
//! short file: blocks gather -> one PUT            long file: blocks go up in their order
//!   -> the server's answer -> time -> size, time and sum compared (PROPFIND) -> MOVE onto the name
//! ```

use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_store::{DraftPlan, FileToRead as _, FileToWrite, Journal, Metadata, StoreError, SumKind, Time, part_name};
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderValue, Method, response};

use crate::dav::multistatus::Properties;
use crate::dav::target::answers;
use crate::dav::target::tree::{Times, Tree};
use crate::dav::target::upload::Upload;
use crate::http_client::client::lock;
use crate::http_client::client::{Answer, Ask, invalid};
use crate::http_client::outgoing::Content;
use crate::http_client::url::Url;
use crate::web::file::RemoteFile;
use crate::web::notes::Note;

type Result<T> = std::result::Result<T, StoreError>;

/// A file up to this size is gathered for one repeatable request; a lane has one at a time.
const GATHERED_BYTES: u64 = 1 << 20;

/// A lane waits for its turn: another may still write.
const ORDER_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct DavDraft {
    tree: Arc<Tree>,
    path: Vec<u8>,
    url: Url,
    /// The temporary name, or the final one with `--inplace`.
    draft_url: Url,
    plan: DraftPlan,
    number: (u64, u64),
    state: Mutex<State>,
    went_on: Condvar,
}

#[derive(Debug)]
struct State {
    body: Body,
    at: u64,
    /// The Adler-32 so far: some servers keep it.
    sum: u32,
    /// The first error, repeated for all later blocks.
    failed: Option<(ErrorKind, String)>,
    is_discarded: bool,
    /// The file as read back, at its first version.
    read_back: Option<Arc<RemoteFile>>,
}

#[derive(Debug)]
enum Body {
    Gathered(Vec<u8>),
    GoingUp(Upload),
    /// The server has all of it. True: with the time.
    Complete {
        has_time: bool,
    },
    Broken,
}

impl DavDraft {
    pub(super) fn new(tree: &Arc<Tree>, path: &[u8], plan: &DraftPlan) -> io::Result<DavDraft> {
        let url = tree.url(path)?;
        let draft_url = match plan.inplace {
            true => url.clone(),
            false => tree.url(&beside(path))?,
        };
        let body = Body::Gathered(Vec::new());
        let state = Mutex::new(State {
            body,
            at: 0,
            sum: simd_adler32::Adler32::new().finish(),
            failed: None,
            is_discarded: false,
            read_back: None,
        });
        Ok(DavDraft {
            tree: Arc::clone(tree),
            path: path.to_vec(),
            url,
            draft_url,
            plan: *plan,
            number: random()?,
            state,
            went_on: Condvar::new(),
        })
    }

    fn context<T>(&self, op: &'static str, done: impl FnOnce() -> io::Result<T>) -> Result<T> {
        done().map_err(|error| StoreError::new(op, &self.path, error))
    }

    /// Sends the file's time, one of the few attributes that servers take.
    fn fields(&self) -> Vec<(HeaderName, HeaderValue)> {
        let Time { s, .. } = self.plan.mtime;
        let mtime = (s >= 0).then(|| (X_OC_MTIME, HeaderValue::from(s)));
        // nginx needs the length of an empty body.
        let empty = (self.plan.size == 0).then_some((CONTENT_LENGTH, HeaderValue::from_static("0")));
        mtime.into_iter().chain(empty).collect()
    }

    fn write(&self, state: &mut State, data: &[u8]) -> io::Result<()> {
        if state.at + data.len() as u64 > self.plan.size {
            return Err(invalid("more comes of it than was announced".to_owned()));
        }
        if let Body::Gathered(gathered) = &mut state.body {
            if self.plan.size <= GATHERED_BYTES {
                gathered.extend_from_slice(data);
                return Ok(());
            }
            let fields = self.fields();
            let upload = Upload::begin(self.tree.client(), self.draft_url.clone(), self.plan.size, fields)?;
            state.body = Body::GoingUp(upload);
        }
        match &mut state.body {
            Body::GoingUp(upload) => upload.send(Bytes::copy_from_slice(data)),
            Body::Gathered(_) | Body::Complete { .. } | Body::Broken => Err(over()),
        }
    }

    fn append(&self, state: &mut State, data: &[u8]) -> io::Result<()> {
        if let Some((kind, why)) = &state.failed {
            return Err(io::Error::new(*kind, why.clone()));
        }
        if let Err(error) = self.write(state, data) {
            state.failed = Some((error.kind(), error.to_string()));
            state.body = Body::Broken;
            return Err(error);
        }
        let mut sum = simd_adler32::Adler32::from_checksum(state.sum);
        sum.write(data);
        state.sum = sum.finish();
        state.at += data.len() as u64;
        self.went_on.notify_all();
        Ok(())
    }

    /// Ends the upload, once.
    fn complete(&self, state: &mut State) -> io::Result<bool> {
        if let Some((kind, why)) = &state.failed {
            return Err(io::Error::new(*kind, why.clone()));
        }
        if state.is_discarded {
            return Err(over());
        }
        let head = match std::mem::replace(&mut state.body, Body::Broken) {
            Body::Complete { has_time } => {
                state.body = Body::Complete { has_time };
                return Ok(has_time);
            }
            _ if state.at != self.plan.size => Err(invalid("it is not complete".to_owned())),
            Body::Gathered(gathered) => self.put(gathered),
            Body::GoingUp(upload) => upload.finish(),
            Body::Broken => Err(over()),
        };
        let head = head.inspect_err(|error| state.failed = Some((error.kind(), error.to_string())))?;
        let accepted = head.headers.get(X_OC_MTIME).and_then(|value| value.to_str().ok());
        let has_time = accepted.is_some_and(|value| value.trim().eq_ignore_ascii_case("accepted"));
        state.body = Body::Complete { has_time };
        Ok(has_time)
    }

    fn put(&self, gathered: Vec<u8>) -> io::Result<response::Parts> {
        let content = Content::Whole(Bytes::from(gathered));
        let ask = Ask { fields: self.fields(), content, ..Ask::new(Method::PUT, &self.draft_url) };
        let Answer { head, body, url } = self.tree.client().ask(&ask)?;
        self.tree.client().give_back(url.origin(), body);
        if answers::is_success(&head) { Ok(head) } else { Err(answers::refusal(&head)) }
    }

    /// Sets a missing time, and compares the server's properties with what was sent.
    fn settle(&self, has_time: bool) -> io::Result<Properties> {
        let times = self.tree.times();
        let mut how = has_time.then_some(Times::OfUpload);
        if !has_time && times != Times::Lost {
            how = self.tree.set_time(&self.draft_url, self.plan.mtime).unwrap_or(None);
        }
        let shown = self.tree.look(&self.draft_url)?.ok_or_else(gone)?;
        match shown.size {
            Some(size) if size != self.plan.size => {
                return Err(invalid(format!("the server has {size} bytes of it, not {}", self.plan.size)));
            }
            _ => {}
        }
        let sum = lock(&self.state).sum.to_be_bytes();
        let of_server = shown.digests.iter().filter(|digest| digest.kind == SumKind::Adler32);
        if of_server.clone().any(|digest| digest.value != sum) {
            return Err(invalid("the server has another adler32 of it than it was sent".to_owned()));
        }
        if times != Times::Lost {
            let is_kept = shown.mtime().is_some_and(|shown| shown.s == self.plan.mtime.s);
            match how.filter(|_| is_kept) {
                Some(how) => self.tree.keeps_times(how),
                // A new file may have the right time by chance.
                None => self.tree.keeps_times(Times::Lost),
            }
        }
        Ok(shown)
    }
}

impl DavDraft {
    /// Looks up special names: servers have cut names at `;`, and rewritten others.
    fn check_name(&self) -> io::Result<()> {
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            return Ok(());
        }
        let shown = self.tree.look_named(&self.url)?.ok_or_else(gone)?;
        match shown.at.names.last() {
            Some(shown) if shown == name => Ok(()),
            shown => {
                let shown = haul_store::printable(shown.map_or(&b""[..], Vec::as_slice));
                Err(invalid(format!("the server has given it another name: {shown}")))
            }
        }
    }
}

fn gone() -> io::Error {
    invalid("the server has confirmed it, and does not have it".to_owned())
}

impl FileToWrite for DavDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        self.number
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.context("write", || {
            let state = lock(&self.state);
            let waits = |state: &mut State| state.failed.is_none() && !state.is_discarded && state.at < offset;
            let waited = self.went_on.wait_timeout_while(state, ORDER_PATIENCE, waits);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_discarded {
                return Err(over());
            }
            match state.at == offset || state.failed.is_some() {
                true => self.append(&mut state, data),
                false => Err(io::Error::new(ErrorKind::InvalidInput, NOT_IN_ORDER)),
            }
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.context("read back", || {
            let file = {
                let mut state = lock(&self.state);
                self.complete(&mut state)?;
                let file = || Arc::new(RemoteFile::noted(&self.tree.served, self.draft_url.clone(), Note::default()));
                Arc::clone(state.read_back.get_or_insert_with(file))
            };
            file.read_at(buffer, offset)
        })
    }

    fn size(&self) -> Result<u64> {
        Ok(lock(&self.state).at)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.context("set the size of", || {
            let mut state = lock(&self.state);
            let zeros = vec![0; ZEROS_BYTES];
            while state.at < size {
                let most = usize::try_from(size - state.at).unwrap_or(usize::MAX).min(zeros.len());
                self.append(&mut state, &zeros[..most])?;
            }
            if state.at > size { Err(io::Error::new(ErrorKind::InvalidInput, NOT_IN_ORDER)) } else { Ok(()) }
        })
    }

    /// A server makes no room ahead.
    fn extend(&self, _size: u64) -> Result<()> {
        Ok(())
    }

    /// Completes a whole upload: a server has no flush, and confirms only the end.
    fn flush(&self) -> Result<()> {
        self.context("write", || {
            let mut state = lock(&self.state);
            match state.at == self.plan.size {
                true => self.complete(&mut state).map(drop),
                false => Ok(()),
            }
        })
    }

    fn set_metadata(&self, _meta: &Metadata, _flush: bool) -> Result<()> {
        // The upload has the time; a server keeps nothing else.
        self.context("write", || self.complete(&mut lock(&self.state)).map(drop))
    }

    fn give_name(&self) -> Result<()> {
        self.context("finish", || {
            let has_time = self.complete(&mut lock(&self.state))?;
            let shown = self.settle(has_time)?;
            if self.draft_url != self.url {
                self.tree.rename(&self.draft_url, &self.url)?;
            }
            self.check_name()?;
            self.tree.listings.note(&self.path, Some(shown));
            Ok(())
        })
    }

    fn discard(&self) -> Result<()> {
        let has_something = {
            let mut state = lock(&self.state);
            state.is_discarded = true;
            let body = std::mem::replace(&mut state.body, Body::Broken);
            self.went_on.notify_all();
            matches!(body, Body::GoingUp(_) | Body::Complete { .. })
        };
        if !has_something || self.draft_url == self.url {
            return Ok(());
        }
        self.context("remove the unfinished", || self.tree.remove(&self.draft_url).map(drop))
    }

    fn journal(&self) -> &dyn Journal {
        &NoJournal
    }
}

/// Keeps nothing: no server keeps a partial upload.
#[derive(Debug)]
struct NoJournal;

impl Journal for NoJournal {
    fn begin(&self, _header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        begun();
        Ok(())
    }

    fn append(&self, _record: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn keep(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        Ok(())
    }
}

fn beside(path: &[u8]) -> Vec<u8> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => [&path[..=at], &part_name(&path[at + 1..])].concat(),
        None => part_name(path),
    }
}

fn random() -> io::Result<(u64, u64)> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
    let number = u128::from_le_bytes(bytes);
    Ok((number as u64, (number >> 64) as u64))
}

fn over() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it was given up")
}

/// The field by which ownCloud, Nextcloud and others take a time, in seconds.
const X_OC_MTIME: HeaderName = HeaderName::from_static("x-oc-mtime");

const NOT_IN_ORDER: &str = "its data came again, and what goes up cannot be taken back: copy it once more";

const ZEROS_BYTES: usize = 64 << 10;

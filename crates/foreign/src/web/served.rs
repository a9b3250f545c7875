//! The named sources of one server, and what is known of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use haul_store::{Access, Time};

use crate::http_client::client::Client;
use crate::http_client::url::Url;
use crate::web::bodies::Bodies;
use crate::web::file_sum::Sums;
use crate::web::limits::WORTH_PARTS_BYTES;
use crate::web::look::{Looked, look, sends_ranges};
use crate::web::notes::Notes;
use crate::web::version::Version;

#[derive(Debug)]
pub(crate) enum Top {
    File {
        url: Url,
        name: Vec<u8>,
        version: Version,
    },
    /// A directory under its own name.
    Directory {
        url: Url,
        name: Vec<u8>,
    },
    Contents(Url),
}

impl Top {
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Top::File { name, .. } | Top::Directory { name, .. } => name,
            Top::Contents(_) => b"",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) client: Arc<Client>,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) sources: Vec<Top>,
    /// The time of files without one.
    pub(crate) begun: Time,
    pub(crate) is_dav: bool,
    pub(crate) notes: Notes,
    pub(crate) sums: Arc<Sums>,
    ranges: Ranges,
    /// Whether lists tell the size and time of files; asked for one file.
    are_lists_exact: OnceLock<bool>,
}

/// Whether the server sends parts of files; asked once.
#[derive(Debug, Default)]
struct Ranges {
    is_known: AtomicBool,
    are_missing: AtomicBool,
}

impl Served {
    pub(crate) fn new(client: Arc<Client>, begun: Time, is_dav: bool) -> Served {
        let bodies = Bodies::new(client.settings.connections);
        Served {
            client,
            bodies,
            sources: Vec::new(),
            begun,
            is_dav,
            notes: Notes::default(),
            sums: Arc::default(),
            ranges: Ranges::default(),
            are_lists_exact: OnceLock::new(),
        }
    }

    /// Learns whether the server sends parts, by the first file that needs it.
    pub(crate) fn learn_ranges(&self, url: &Url, size: u64, said: Option<bool>) -> io::Result<()> {
        if size <= WORTH_PARTS_BYTES || self.ranges.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let are_sent = match said {
            Some(said) => said,
            None => sends_ranges(&self.client, url)?,
        };
        self.ranges.are_missing.store(!are_sent, Ordering::Relaxed);
        self.ranges.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a list's version can stand for an answer. A filter that packs files or replaces words changes their lengths.
    pub(crate) fn is_exact(&self, url: &Url, listed: &Version) -> bool {
        *self.are_lists_exact.get_or_init(|| match look(&self.client, url) {
            Ok(Looked::File { version, accepts_ranges }) => {
                // The error is told with the file that needs it.
                let _ = self.learn_ranges(url, version.size, accepts_ranges);
                version.tells_its_time() && listed.is_list_of(&version)
            }
            Ok(Looked::Directory(_)) | Err(_) => false,
        })
    }

    /// Redirects may have led the file's directory anywhere.
    pub(crate) fn path_of(&self, url: &Url) -> Vec<u8> {
        let is_far = url.origin() != self.client.typed();
        if is_far { url.to_string().into_bytes() } else { url.path().as_bytes().to_vec() }
    }

    pub(crate) fn url_of(&self, source: u32, source_path: &[u8]) -> Option<Url> {
        match self.sources.get(usize::try_from(source).ok()?)? {
            Top::File { url, name, .. } => (source_path == name).then(|| url.clone()),
            Top::Directory { url, .. } | Top::Contents(url) => url.join(source_path),
        }
    }

    pub(crate) fn access(&self) -> Access {
        match self.ranges.are_missing.load(Ordering::Relaxed) {
            true => Access::Sequential,
            false => Access::Runs { jump_bytes: u64::from(self.client.pool.rtt_us()) * JUMP_BYTES_PER_US },
        }
    }
}

/// A jump costs a round trip, and often a slow start. With 16 connections on 1 Gbit/s x 228 ms each brings 7 MB/s: a half below 4
/// MB costs more than it gains.
pub(crate) const JUMP_BYTES_PER_US: u64 = 18;

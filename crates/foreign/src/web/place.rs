//! The files of a web server, to look at one path at a time.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_store::place::{EntryFacts, Lacks, NodeKind};
use haul_store::{EachListed, Listed, PlaceTree, SourceFile, Time};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::http_client::client::{Client, Settings};
use crate::http_client::url::{Origin, Url};
use crate::web::bodies::Bodies;
use crate::web::collection;
use crate::web::file::RemoteFile;
use crate::web::index_page::{Entry, Index, Told, index_of};
use crate::web::limits::{LOOKS_AHEAD, LOOKS_AT_ONCE};
use crate::web::look::{Looked, exists, look};
use crate::web::tree::{Lists, now};
use crate::web::version::Version;

/// A web server, for `haul ls`, `cat`, `hash` and their like. A path is that of a URL, with escapes and query.
#[derive(Debug)]
pub struct WebPlace {
    client: Arc<Client>,
    bodies: Arc<Bodies>,
    begun: Time,
    lists: Lists,
}

impl WebPlace {
    /// Prepares a client without asking the server.
    pub fn new(origin: Origin, settings: Settings, lists: Lists) -> WebPlace {
        let connections = settings.connections;
        let client = Client::new(origin, settings);
        // With fewer, each body would wait a round trip for the one before.
        client.pool.spread_over(u16::try_from(connections).unwrap_or(u16::MAX));
        WebPlace { client: Arc::new(client), bodies: Bodies::new(connections), begun: now(), lists }
    }

    fn url(&self, path: &[u8]) -> io::Result<Url> {
        Url::new(self.client.typed().clone(), path)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "its URL is longer than 16 KiB"))
    }

    /// Names the server: messages have only the typed path.
    fn of_host(&self, error: io::Error) -> io::Error {
        let (host, text) = (self.client.typed().authority(), error.to_string());
        if text.contains(&host) { error } else { io::Error::new(error.kind(), format!("{host}: {text}")) }
    }

    fn look(&self, url: &Url) -> io::Result<Looked> {
        if matches!(self.lists, Lists::Dav) {
            return collection::look(&self.client, url).map_err(lost);
        }
        if !url.is_directory() {
            return look(&self.client, url).map_err(lost);
        }
        exists(&self.client, url).map_err(lost)?;
        Ok(Looked::Directory(url.clone()))
    }

    fn file(&self, path: &[u8]) -> io::Result<SourceFile> {
        let url = self.url(path)?;
        let Looked::File { version, .. } = self.look(&url)? else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is a directory"));
        };
        let (client, bodies) = (Arc::clone(&self.client), Arc::clone(&self.bodies));
        let file = RemoteFile::new(client, bodies, url, self.begun).of_version(version);
        Ok(SourceFile::Other(Arc::new(Reachable(file))))
    }

    fn list_with_facts(&self, index: Index, each: EachListed<'_>) -> ControlFlow<()> {
        let mut entries = index.entries.into_iter().peekable();
        while entries.peek().is_some() {
            let mut portion: Vec<(Vec<u8>, Option<io::Result<Listed>>)> = Vec::new();
            let mut to_look: Vec<(usize, Url)> = Vec::new();
            while to_look.len() < LOOKS_AHEAD && portion.len() < NAMES_AT_ONCE {
                let Some((name, entry)) = entries.next() else { break };
                let listed = match entry {
                    Entry::File(url, Told { size: None, .. }) => {
                        to_look.push((portion.len(), url));
                        None
                    }
                    entry => match listed_of(entry, true) {
                        None => continue,
                        listed => listed,
                    },
                };
                portion.push((name, listed));
            }
            for (at, listed) in self.look_at_all(&to_look) {
                portion[at].1 = Some(listed);
            }
            for (name, listed) in portion {
                if let Some(listed) = listed {
                    each(&name, listed)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn look_at_all(&self, to_look: &[(usize, Url)]) -> Vec<(usize, io::Result<Listed>)> {
        let threads = LOOKS_AT_ONCE.min(self.client.settings.connections).min(to_look.len());
        let (next, looked) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((at, url)) = to_look.get(next.fetch_add(1, Ordering::Relaxed)) {
                let listed = self.look(url).map(|looked| Listed::Facts(Box::new(facts_of(&looked))));
                looked.lock().unwrap_or_else(PoisonError::into_inner).push((*at, listed));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Fewer threads only take longer.
                let _ = std::thread::Builder::new().name("look".into()).spawn_scoped(scope, work);
            }
            work();
        });
        looked.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A portion of names whose facts cost nothing.
const NAMES_AT_ONCE: usize = 1024;

/// `None`: the entry is left out.
fn listed_of(entry: Entry, facts: bool) -> Option<io::Result<Listed>> {
    let (kind, told) = match entry {
        Entry::File(_, told) => (NodeKind::File, told),
        Entry::Seen(_, version, _) => (NodeKind::File, Told { size: Some(version.size), mtime: version.modified() }),
        Entry::Directory(_, mtime) => (NodeKind::Directory, Told { size: None, mtime }),
        Entry::NoFile => (NodeKind::Unknown, Told::default()),
        Entry::Bad(why) => return Some(Err(io::Error::new(ErrorKind::InvalidData, why))),
        // A link that leads deeper, or has a query, is no name of this directory.
        Entry::Skipped(_) => return None,
    };
    Some(Ok(if facts { Listed::Facts(Box::new(known(kind, told))) } else { Listed::Kind(kind) }))
}

fn facts_of(looked: &Looked) -> EntryFacts {
    match looked {
        Looked::File { version, .. } => of_version(version),
        Looked::Directory(_) => EntryFacts::of_kind(NodeKind::Directory),
    }
}

fn of_version(version: &Version) -> EntryFacts {
    known(NodeKind::File, Told { size: Some(version.size), mtime: version.modified() })
}

fn known(kind: NodeKind, told: Told) -> EntryFacts {
    let nothing = EntryFacts::of_kind(kind);
    let lacks = Lacks { size: told.size.is_none(), modified: told.mtime.is_none(), ..nothing.lacks };
    EntryFacts { size: told.size.unwrap_or(0), modified: told.mtime.unwrap_or(nothing.modified), lacks, ..nothing }
}

impl PlaceTree for WebPlace {
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        let directory = without_query(directory);
        let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
        [directory, slash, percent_encode(name, ESCAPED).to_string().as_bytes()].concat()
    }

    /// A query may be a signature.
    fn shown(&self, path: &[u8]) -> Vec<u8> {
        without_query(path).to_vec()
    }

    fn facts(&self, path: &[u8], _follow: bool) -> io::Result<EntryFacts> {
        let looked = self.url(path).and_then(|url| self.look(&url));
        Ok(facts_of(&looked.map_err(|error| self.of_host(error))?))
    }

    fn list(&self, path: &[u8], _follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        let url = self.url(path)?.as_directory();
        let index = match self.lists {
            Lists::Dav => collection::index_of(&self.client, &url),
            Lists::Pages => index_of(&self.client, &url),
        };
        let index = index.map_err(|error| self.of_host(lost(error)))?;
        if facts {
            return Ok(self.list_with_facts(index, each));
        }
        let names = index.entries.into_iter().filter_map(|(name, entry)| Some((name, listed_of(entry, false)?)));
        Ok(names.into_iter().try_for_each(|(name, listed)| each(&name, listed)))
    }

    fn open(&self, path: &[u8]) -> io::Result<SourceFile> {
        self.file(path).map_err(|error| self.of_host(error))
    }

    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile> {
        haul_store::check_path(path)?;
        let names = path.split(|byte| *byte == b'/');
        self.file(&names.fold(directory.to_vec(), |directory, name| self.join(&directory, name)))
    }
}

fn without_query(path: &[u8]) -> &[u8] {
    path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default()
}

/// RFC 3986, section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Tells by its errors whether the server can be reached.
#[derive(Debug)]
pub(crate) struct Reachable<F>(pub(crate) F);

impl<F: haul_store::FileToRead> haul_store::FileToRead for Reachable<F> {
    fn stat(&self) -> io::Result<haul_store::Stat> {
        self.0.stat().map_err(lost)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset).map_err(lost)
    }
}

/// An error beside the server's answers means, after all tries, that it cannot be reached.
pub(crate) fn lost(error: io::Error) -> io::Error {
    let is_of_network = matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
            | ErrorKind::UnexpectedEof
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    );
    if is_of_network { io::Error::new(ErrorKind::BrokenPipe, error.to_string()) } else { error }
}

//! Trees at a server, as a source.

mod file;
mod names;
mod root;
mod served;
mod sorted_names;
mod walk;

use std::any::Any;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use haul_store::{
    Access, AsCopied, Connections, ConnectionsNow, ItemSource, SourceFile, SourceTree, StoreError, SumCounts,
    WalkOptions, check_path,
};
use rustix::io::Errno;

pub(crate) use file::FtpFile;
pub(crate) use names::Names;
pub(crate) use served::Served;

use crate::account::Settings;
use crate::codec::listing::{EntryType, Facts};
use crate::entry;
use crate::limits::{CONNECTIONS_MAX, WORTH_PARTS_BYTES};
use crate::paths::{join, means_contents, without_slash};
use crate::server::Server;
use root::{Root, Roots, find};
use walk::Walk;

/// The sources of a job at one server.
#[derive(Debug)]
pub struct FtpSource {
    served: Arc<Served>,
    roots: Arc<[Root]>,
}

impl FtpSource {
    /// Finds the typed paths. A path without a slash in front begins where the server starts, mostly at the home.
    ///
    /// # Errors
    /// The server cannot be reached, or has no such entry; two paths have the same name; the contents of a directory were named beside
    /// another source.
    pub fn open(settings: Settings, typed: &[Vec<u8>]) -> Result<Arc<dyn SourceTree>, StoreError> {
        let served = Served::new(Server::new(settings));
        if let [path] = typed
            && !means_contents(path)
        {
            served.server.pool.foresees(u64::MAX);
            served.server.looks_first_at(without_slash(path));
        }
        let mut roots = Roots::default();
        for path in typed {
            let found = find(&served.server, path, typed.len() > 1, &mut roots);
            found.map_err(|error| StoreError::new("open", path, error))?;
        }
        let roots = roots.all;
        if let [Root { path, facts: Facts { kind: EntryType::File, size: Some(size), .. }, .. }] = &roots[..]
            && *size > WORTH_PARTS_BYTES
        {
            served.try_parts(path, *size).map_err(|error| StoreError::new("open", path, error))?;
        }
        let tree = Arc::new(FtpSource { served, roots: roots.into() });
        Ok(tree)
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.served.server
    }

    /// The first component of the paths of each source, and its number.
    pub(crate) fn first_names(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.roots.iter().zip(0..).map(|(root, number)| (&root.name[..], number))
    }

    /// The path at the server.
    pub(crate) fn path_of(&self, source: u32, source_path: &[u8]) -> io::Result<Vec<u8>> {
        check_path(source_path)?;
        let root = self.roots.get(source as usize).ok_or(Errno::INVAL)?;
        if root.name.is_empty() {
            return Ok(join(&root.path, source_path));
        }
        // A single file gives no right to its neighbours.
        match source_path.strip_prefix(&root.name[..]) {
            Some(b"") => Ok(root.path.clone()),
            Some([b'/', beneath @ ..]) if root.is_directory() => Ok(join(&root.path, beneath)),
            _ => Err(Errno::NOENT.into()),
        }
    }
}

impl SourceTree for FtpSource {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(Walk::new(Arc::clone(&self.served), Arc::clone(&self.roots), options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile, StoreError> {
        let opened = self.path_of(source, source_path).and_then(|path| FtpFile::open(&self.served, path));
        let opened = opened.map_err(|error| StoreError::new("open", source_path, error))?;
        Ok(SourceFile::Other(Arc::new(opened)))
    }

    fn is_single_file(&self) -> bool {
        matches!(&self.roots[..], [root] if root.facts.kind == EntryType::File)
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.roots.first().map_or(b"", |root| &root.name)
    }

    fn remove(&self, source: u32, source_path: &[u8], copied: &AsCopied) -> Result<bool, StoreError> {
        let removed = (|| {
            let path = self.path_of(source, source_path)?;
            let Some(now) = self.served.server.look(&path)? else { return Ok(false) };
            if AsCopied::of(&entry::stat(&path, &now, self.served.server.begun)) != *copied {
                return Err(io::Error::new(ErrorKind::InvalidData, "it has changed since it was copied"));
            }
            self.served.server.remove_file(&path).map(|()| true)
        })();
        removed.map_err(|error| StoreError::new("remove the source", source_path, error))
    }

    fn for_third_party(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self)
    }

    fn access(&self) -> Access {
        self.served.access()
    }

    fn connections(&self) -> Option<Arc<dyn Connections>> {
        let sizes = self.roots.iter().map(|root| root.facts.size.filter(|_| root.facts.kind == EntryType::File));
        Some(Arc::new(ServerConnections { server: Arc::clone(&self.served.server), foreseen_bytes: sizes.sum() }))
    }

    fn sums(&self) -> Option<SumCounts> {
        Some(self.served.sums.counter.counts())
    }
}

/// The connections to a server, as a session sees them.
#[derive(Debug)]
struct ServerConnections {
    server: Arc<Server>,
    /// The bytes of all that was named, where that is known.
    foreseen_bytes: Option<u64>,
}

impl Connections for ServerConnections {
    fn now(&self) -> ConnectionsNow {
        self.server.now()
    }

    fn foreseen_bytes(&self) -> Option<u64> {
        self.foreseen_bytes
    }

    /// Small files are worth more connections than a large one: each waits for five answers of the server.
    fn most(&self) -> Option<u16> {
        self.foreseen_bytes.is_none().then_some(CONNECTIONS_MAX)
    }

    fn allow(&self, count: u16) {
        self.server.pool.want(count.into());
    }

    fn gather_reads(&self, pause: Duration) {
        self.server.gather_reads(pause);
    }
}

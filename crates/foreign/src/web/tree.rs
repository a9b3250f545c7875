//! Files and directories of a web server as a source.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_store::{Access, Connections, ItemSource, SourceFile, SourceTree, StoreError, SumCounts, Time, WalkOptions};

use crate::http_client::client::{Client, Settings, invalid};
use crate::http_client::url::Url;
use crate::web::collection;
use crate::web::connections::ServerConnections;
use crate::web::file::RemoteFile;
use crate::web::look::{Looked, exists, look};
use crate::web::served::{Served, Top};
use crate::web::walk::Walk;

#[derive(Debug)]
struct WebTree(Arc<Served>);

/// A tree that was opened, with a warning.
pub struct Opened {
    /// The tree.
    pub tree: Arc<dyn SourceTree>,
    /// A word for the user.
    pub warning: Option<String>,
}

/// How a server's directories are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// By the page or JSON at their URL.
    Pages,
    /// By PROPFIND of WebDAV.
    Dav,
}

/// Finds what these URLs of one origin lead to. A URL that ends in a slash means the contents of a directory, as with paths.
///
/// # Errors
/// The server cannot be reached, or has no such file; two URLs have the same name; the contents of a directory were named beside
/// another source.
pub fn open(urls: &[Url], settings: Settings, lists: Lists) -> Result<Opened, StoreError> {
    let Some(first) = urls.first() else {
        return Err(StoreError::new("open", b"", invalid("no URL was named".to_owned())));
    };
    let mut served = Served::new(Arc::new(Client::new(first.origin().clone(), settings)), now(), lists == Lists::Dav);
    if let [url] = urls
        && !url.is_directory()
    {
        served.client.pool.foresees(u64::MAX);
    }
    for url in urls {
        let found = find(&served, url, urls.len() > 1);
        let top = found.map_err(|error| StoreError::new("open", url.to_string().as_bytes(), error))?;
        served.sources.push(top);
    }
    let tree = WebTree(Arc::new(served));
    let warning = (tree.is_single_file() && tree.access() == Access::Sequential)
        .then(|| format!("{} sends no parts of files: one connection reads from front to back", first.origin()));
    Ok(Opened { tree: Arc::new(tree), warning })
}

pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), ns: since.subsec_nanos() }
}

fn find(served: &Served, url: &Url, is_one_of_several: bool) -> io::Result<Top> {
    if url.is_directory() {
        if is_one_of_several {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the contents of a directory are the only source: leave out the slash at its end, or copy it alone",
            ));
        }
        match served.is_dav {
            true => drop(collection::look(&served.client, url)?),
            false => exists(&served.client, url)?,
        }
        return Ok(Top::Contents(url.clone()));
    }
    let name = url.name();
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(invalid("no file can have its name".to_owned()));
    }
    if served.sources.iter().any(|top| top.name() == name) {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "another source has the same name: copy them one after the other",
        ));
    }
    let found = if served.is_dav { collection::look(&served.client, url) } else { look(&served.client, url) };
    Ok(match found? {
        Looked::File { version, accepts_ranges } => {
            served.learn_ranges(url, version.size, accepts_ranges)?;
            Top::File { url: url.clone(), name, version }
        }
        Looked::Directory(url) => Top::Directory { url, name },
    })
}

impl SourceTree for WebTree {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(Walk::new(Arc::clone(&self.0), options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> haul_store::Result<SourceFile> {
        let url = self.0.url_of(source, source_path).ok_or_else(|| {
            StoreError::new("open", source_path, io::Error::new(ErrorKind::NotFound, "no such source"))
        })?;
        let file = RemoteFile::noted(&self.0, url, self.0.notes.of(source_path));
        Ok(SourceFile::Other(Arc::new(file)))
    }

    fn is_single_file(&self) -> bool {
        matches!(&self.0.sources[..], [Top::File { .. }])
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.0.sources.first().map_or(b"", Top::name)
    }

    fn connections(&self) -> Option<Arc<dyn Connections>> {
        let served = &self.0;
        let sizes = served.sources.iter().map(|top| match top {
            Top::File { version, .. } => Some(version.size),
            Top::Directory { .. } | Top::Contents(_) => None,
        });
        let (client, bodies) = (Arc::clone(&served.client), Arc::clone(&served.bodies));
        Some(Arc::new(ServerConnections { client, bodies, foreseen_bytes: sizes.sum() }))
    }

    fn sums(&self) -> Option<SumCounts> {
        Some(self.0.sums.counter.counts())
    }

    fn access(&self) -> Access {
        self.0.access()
    }
}

//! Opens the target of a job by cp's rule, as on a local disk.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{NO_DIRECTORY, StoreError, Time, check_new_path};
use http::header::ALLOW;
use http::{Method, StatusCode};

use crate::dav::multistatus::Properties;
use crate::dav::propfind::{method, resource};
use crate::dav::target::answers;
use crate::dav::target::tree::{Matter, Tell, Tree};
use crate::http_client::client::{Answer, Ask, Client};
use crate::http_client::url::Url;

/// How a typed target is understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// One file is copied, so the path may be its new name.
    pub single_file: bool,
    /// Missing directories of the path are made.
    pub make: bool,
    /// Makes nothing: a missing target is an empty tree.
    pub dry_run: bool,
    /// Files are written under their final names.
    pub in_place: bool,
    /// Files that get their names at once, beside the uploads.
    pub at_once: usize,
}

/// Implements [`super::DavServer::open`].
pub(super) fn open(
    client: Arc<Client>,
    url: &Url,
    options: OpenOptions,
    tell: Tell,
    begun: Time,
) -> Result<(Arc<Tree>, Option<Vec<u8>>), StoreError> {
    let fail = |op, error: io::Error| StoreError::new(op, url.to_string().as_bytes(), error);
    if url.has_query() {
        return Err(fail("use as target", io::Error::new(ErrorKind::InvalidInput, "a target has no query")));
    }
    let (found, name) = match look(&client, url).map_err(|error| fail("use as target", error))? {
        Some((there, found)) if there.is_collection == Some(true) => (Some(found.as_directory()), None),
        Some(_) if url.is_directory() || !options.single_file => {
            return Err(fail("use as target", io::Error::new(ErrorKind::NotADirectory, NO_DIRECTORY)));
        }
        None if url.is_directory() || !options.single_file => {
            let made = make(&client, url, options).map_err(|error| fail("make target directory", error))?;
            (made, None)
        }
        _ => {
            let name = url.name();
            check_new_path(&name).map_err(|error| fail("write", error))?;
            let parent = url.join(b".").ok_or_else(|| fail("write", ErrorKind::InvalidInput.into()))?;
            let made = make(&client, &parent, options).map_err(|error| fail("open target directory", error))?;
            (made, Some(name))
        }
    };
    if let Some(root) = &found
        && !options.dry_run
        && !options.in_place
        && !can_rename(&client, root)
    {
        let why = "the server has no MOVE, so a file that is not complete would show: --inplace writes so all the same";
        return Err(fail("use as target", io::Error::new(ErrorKind::Unsupported, why)));
    }
    let tree = Tree::new(client, found, tell, begun, options.at_once);
    if options.in_place {
        tree.tell(Matter::InPlace);
    }
    Ok((tree, name))
}

fn look(client: &Client, url: &Url) -> io::Result<Option<(Properties, Url)>> {
    // A server may know a directory only by its name with a slash.
    let found = match resource(client, url)? {
        None if !url.is_directory() => resource(client, &url.as_directory())?,
        found => found,
    };
    Ok(found.map(|(resource, url)| (resource.properties, url)))
}

/// Makes the directory and those above it. `None`: a dry run.
fn make(client: &Client, url: &Url, options: OpenOptions) -> io::Result<Option<Url>> {
    let url = url.as_directory();
    match look(client, &url)? {
        Some((there, found)) if there.is_collection == Some(true) => return Ok(Some(found.as_directory())),
        Some(_) => return Err(io::Error::new(ErrorKind::NotADirectory, NO_DIRECTORY)),
        None if options.dry_run => return Ok(None),
        None if !options.make => return Err(io::Error::new(ErrorKind::NotFound, "it is not there")),
        None => {}
    }
    // A path has few directories above the nearest existing one.
    let mut missing = vec![url.clone()];
    while let Some(above) = missing.last().and_then(Url::parent) {
        if look(client, &above)?.is_some() {
            break;
        }
        missing.push(above);
    }
    for url in missing.iter().rev() {
        let Answer { head, body, url: found } = client.ask(&Ask::new(method("MKCOL"), url))?;
        client.give_back(found.origin(), body);
        // Another client may make it at the same time.
        if !answers::is_success(&head) && head.status != StatusCode::METHOD_NOT_ALLOWED {
            return Err(answers::refusal(&head));
        }
    }
    Ok(Some(url))
}

/// Whether MOVE is worth a try: the server has it, or is silent.
fn can_rename(client: &Client, url: &Url) -> bool {
    let Ok(Answer { head, body, url }) = client.ask(&Ask::new(Method::OPTIONS, url)) else { return true };
    client.give_back(url.origin(), body);
    let fields = head.headers.get_all(ALLOW).into_iter().filter_map(|value| value.to_str().ok());
    let allowed: Vec<&str> = fields.flat_map(|value| value.split(',')).map(str::trim).collect();
    let lists_dav = allowed.contains(&"PROPFIND") || allowed.contains(&"PUT");
    !lists_dav || allowed.contains(&"MOVE")
}

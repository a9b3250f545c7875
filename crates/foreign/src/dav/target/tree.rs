//! The tree that is written, as its parts share it: URLs of paths, requests that change something, what the server keeps.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use haul_store::{Time, check_path};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::dav::href::escaped;
use crate::dav::multistatus::{self, Properties, Resource};
use crate::dav::propfind::{method, resource, xml_type};
use crate::dav::target::answers;
use crate::dav::target::listings::Listings;
use crate::http_client::client::{Answer, Ask, Client, lock};
use crate::http_client::outgoing::Content;
use crate::http_client::url::Url;
use crate::web::served::Served;

/// Tells the person a word about the server, once for each matter.
pub type Tell = Box<dyn Fn(String) + Send + Sync>;

/// The tree that is written.
pub(crate) struct Tree {
    client: Arc<Client>,
    /// The directory. `None` in a dry run into a missing one.
    root: Option<Url>,
    tell: Tell,
    told: Mutex<HashSet<Matter>>,
    pub(crate) listings: Listings,
    /// How this server keeps times, as [`Times`].
    times: AtomicU8,
    turns: Turns,
    pub(crate) at_once: usize,
    pub(crate) begun: Time,
    /// Reads files of it.
    pub(crate) served: Served,
}

/// A matter of which a person is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Matter {
    Times,
    InPlace,
}

impl Matter {
    fn words(self) -> &'static str {
        match self {
            Matter::Times => {
                "this server keeps no times of files: the next copy takes all files for changed, unless --size-only compares them"
            }
            Matter::InPlace => {
                "files are written under their final names (--inplace): one that is cut off may show half of its content"
            }
        }
    }
}

/// How a server keeps the time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Not known yet.
    Unknown = 0,
    /// By the field `X-OC-Mtime` of the upload.
    OfUpload = 1,
    /// By the property `getlastmodified`, a date, which is set afterwards.
    ByDate = 2,
    /// By the property `lastmodified`, in seconds.
    BySeconds = 3,
    /// Not at all.
    Lost = 4,
}

impl Tree {
    /// `at_once` questions are asked at once. The uploads do not wait here, or they could wait for each other.
    pub(crate) fn new(client: Arc<Client>, root: Option<Url>, tell: Tell, begun: Time, at_once: usize) -> Arc<Tree> {
        let at_once = at_once.max(1);
        let served = Served::new(Arc::clone(&client), begun, true);
        let turns = Turns { free: Mutex::new(at_once), freed: Condvar::new() };
        Arc::new(Tree {
            client,
            root,
            tell,
            told: Mutex::default(),
            listings: Listings::default(),
            times: AtomicU8::new(Times::Unknown as u8),
            turns,
            at_once,
            begun,
            served,
        })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn tell(&self, matter: Matter) {
        if lock(&self.told).insert(matter) {
            (self.tell)(matter.words().to_owned());
        }
    }

    pub(crate) fn times(&self) -> Times {
        match self.times.load(Ordering::Relaxed) {
            1 => Times::OfUpload,
            2 => Times::ByDate,
            3 => Times::BySeconds,
            4 => Times::Lost,
            _ => Times::Unknown,
        }
    }

    pub(crate) fn keeps_times(&self, how: Times) {
        self.times.store(how as u8, Ordering::Relaxed);
        if how == Times::Lost {
            self.tell(Matter::Times);
        }
    }

    /// The URL of a file of the tree.
    pub(crate) fn url(&self, path: &[u8]) -> io::Result<Url> {
        check_path(path)?;
        let root = self.root.as_ref().ok_or(ErrorKind::NotFound)?;
        if path.is_empty() {
            return Ok(root.clone());
        }
        let escaped: Vec<String> = path.split(|byte| *byte == b'/').map(escaped).collect();
        root.child(&escaped.join("/"))
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "its URL is longer than 16 KiB"))
    }

    /// The URL of a directory of the tree.
    pub(crate) fn directory_url(&self, path: &[u8]) -> io::Result<Url> {
        Ok(self.url(path)?.as_directory())
    }

    /// Asks for the properties of one resource.
    pub(crate) fn look(&self, url: &Url) -> io::Result<Option<Properties>> {
        Ok(self.look_named(url)?.map(|resource| resource.properties))
    }

    /// The same, with the path by which the server calls it.
    pub(crate) fn look_named(&self, url: &Url) -> io::Result<Option<Resource>> {
        let _turn = self.turns.take();
        Ok(resource(&self.client, url)?.map(|(resource, _)| resource))
    }

    /// Carries out a request that changes something, and returns its answer's status, which is a success.
    pub(crate) fn change(
        &self,
        method: Method,
        url: &Url,
        fields: Vec<(HeaderName, HeaderValue)>,
    ) -> io::Result<StatusCode> {
        let _turn = self.turns.take();
        let Answer { head, body, url } = self.client.ask(&Ask { fields, ..Ask::new(method, url) })?;
        self.client.give_back(url.origin(), body);
        if answers::is_success(&head) { Ok(head.status) } else { Err(answers::refusal(&head)) }
    }

    /// Makes a directory. False: something stands there.
    pub(crate) fn mkcol(&self, url: &Url) -> io::Result<bool> {
        let _turn = self.turns.take();
        let Answer { head, body, url } = self.client.ask(&Ask::new(method("MKCOL"), url))?;
        self.client.give_back(url.origin(), body);
        match head.status {
            StatusCode::METHOD_NOT_ALLOWED => Ok(false),
            _ if answers::is_success(&head) => Ok(true),
            _ => Err(answers::refusal(&head)),
        }
    }

    /// Gives a file another name, also where one stands.
    pub(crate) fn rename(&self, from: &Url, to: &Url) -> io::Result<()> {
        let destination = HeaderValue::from_str(&format!("{}{}", to.origin(), to.path()));
        let destination = destination.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let fields = vec![
            (HeaderName::from_static("destination"), destination),
            (HeaderName::from_static("overwrite"), HeaderValue::from_static("T")),
        ];
        self.change(method("MOVE"), from, fields).map(drop)
    }

    /// Removes a file, or an empty directory. False: it is gone already.
    pub(crate) fn remove(&self, url: &Url) -> io::Result<bool> {
        match self.change(Method::DELETE, url, Vec::new()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the time of a file by a property. `None`: the server takes none.
    pub(crate) fn set_time(&self, url: &Url, mtime: Time) -> io::Result<Option<Times>> {
        // wsgidav takes the date; ownCloud, Nextcloud and rclone the seconds. Others keep any property that they do not know, and
        // would call the seconds a success, so the date comes first.
        let date = http_date(mtime).map(|date| (Times::ByDate, "getlastmodified", date));
        let both = date.into_iter().chain([(Times::BySeconds, "lastmodified", mtime.s.to_string())]);
        for (how, name, value) in both {
            let is_tried = matches!(self.times(), Times::Unknown | Times::OfUpload) || self.times() == how;
            if is_tried && self.proppatch(url, name, &value)? {
                return Ok(Some(how));
            }
        }
        Ok(None)
    }

    fn proppatch(&self, url: &Url, name: &str, value: &str) -> io::Result<bool> {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>\
             <D:{name}>{value}</D:{name}></D:prop></D:set></D:propertyupdate>"
        );
        let _turn = self.turns.take();
        let content = Content::Whole(Bytes::from(xml));
        let ask = Ask { fields: vec![xml_type()], content, repeats: true, ..Ask::new(method("PROPPATCH"), url) };
        let Answer { head, mut body, url } = self.client.ask(&ask)?;
        if head.status != StatusCode::MULTI_STATUS {
            self.client.give_back(url.origin(), body);
            return Ok(answers::is_success(&head));
        }
        let (mut answer, mut block) = (Vec::new(), vec![0; 4 << 10]);
        while answer.len() < MAX_PROPPATCH_BYTES {
            match body.read(&mut block)? {
                0 => break,
                count => answer.extend_from_slice(&block[..count]),
            }
        }
        self.client.give_back(url.origin(), body);
        let mut is_set = true;
        multistatus::read(&answer[..], &mut |resource| {
            is_set &= !resource.properties.was_refused && resource.properties.status.is_none_or(|status| status < 300);
            Ok(())
        })?;
        Ok(is_set)
    }
}

/// The answer to one property has some hundred bytes.
const MAX_PROPPATCH_BYTES: usize = 64 << 10;

fn http_date(time: Time) -> Option<String> {
    let since = std::time::Duration::from_secs(u64::try_from(time.s).ok()?);
    let at = std::time::UNIX_EPOCH.checked_add(since)?;
    // Years of five digits are no dates of HTTP.
    (since.as_secs() < 253_402_300_800).then(|| httpdate::fmt_http_date(at))
}

/// Bounds how many requests beside the uploads are under way.
struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Turn<'a>(&'a Turns);

impl Turns {
    fn take(&self) -> Turn<'_> {
        let free = self.freed.wait_while(lock(&self.free), |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("root", &self.root).finish_non_exhaustive()
    }
}

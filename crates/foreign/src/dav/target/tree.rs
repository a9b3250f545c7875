//! The tree that is written: URLs of paths, requests that change something, what the server keeps.

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

pub(crate) struct Tree {
    client: Arc<Client>,
    /// `None` in a dry run into a missing directory.
    root: Option<Url>,
    tell: Tell,
    told: Mutex<HashSet<Matter>>,
    pub(crate) listings: Listings,
    times: AtomicU8,
    turns: Turns,
    pub(crate) at_once: usize,
    pub(crate) begun: Time,
    pub(crate) served: Served,
}

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
    Unknown = 0,
    /// By the field `X-OC-Mtime` of the upload.
    OfUpload = 1,
    /// By the property `getlastmodified`, set afterwards.
    ByDate = 2,
    /// By the property `lastmodified`, in seconds.
    BySeconds = 3,
    Lost = 4,
}

impl Tree {
    /// `at_once` excludes uploads, which could wait for each other.
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

    pub(crate) fn directory_url(&self, path: &[u8]) -> io::Result<Url> {
        Ok(self.url(path)?.as_directory())
    }

    pub(crate) fn look(&self, url: &Url) -> io::Result<Option<Properties>> {
        Ok(self.look_named(url)?.map(|resource| resource.properties))
    }

    /// Like [`Tree::look`], with the server's own path.
    pub(crate) fn look_named(&self, url: &Url) -> io::Result<Option<Resource>> {
        let _turn = self.turns.take();
        Ok(resource(&self.client, url)?.map(|(resource, _)| resource))
    }

    /// Changes something, and returns the successful status.
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

    /// Makes a directory. False: the name is taken.
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

    /// Renames a file, also onto another.
    pub(crate) fn rename(&self, from: &Url, to: &Url) -> io::Result<()> {
        let destination = HeaderValue::from_str(&format!("{}{}", to.origin(), to.path()));
        let destination = destination.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let fields = vec![
            (HeaderName::from_static("destination"), destination),
            (HeaderName::from_static("overwrite"), HeaderValue::from_static("T")),
        ];
        self.change(method("MOVE"), from, fields).map(drop)
    }

    /// False: it is gone already.
    pub(crate) fn remove(&self, url: &Url) -> io::Result<bool> {
        match self.change(Method::DELETE, url, Vec::new()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `None`: the server takes no time.
    pub(crate) fn set_time(&self, url: &Url, mtime: Time) -> io::Result<Option<Times>> {
        // wsgidav takes the date; ownCloud, Nextcloud and rclone the seconds. Others accept any unknown property, so the date
        // comes first.
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

/// One property's answer has some hundred bytes.
const MAX_PROPPATCH_BYTES: usize = 64 << 10;

fn http_date(time: Time) -> Option<String> {
    let since = std::time::Duration::from_secs(u64::try_from(time.s).ok()?);
    let at = std::time::UNIX_EPOCH.checked_add(since)?;
    // HTTP has no dates with years of five digits.
    (since.as_secs() < 253_402_300_800).then(|| httpdate::fmt_http_date(at))
}

/// Bounds the requests under way beside the uploads.
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

//! The daemon's ports for the web, and who may read which directory there.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use haul_job::{Error, Fault, ManifestLine};
use haul_net::{ByFloor, Identity, Listener, Networks, Policies};
use haul_store::Published;
use haul_transfer::{Surroundings, manifest_file};
use haul_web::access::{Access, Asker, Lookup, Shelf};
use haul_web::limits::{SHELF_AGED, SHELF_KEPT};
use haul_web::token::{Number, Secret};
use haul_web::{Cors, Limits, ManifestFile, ManifestFormat, Options, Service, Tell};

use crate::authority::Authority;
use crate::authorized::{Authorized, Holder};
use crate::bind_error::bind_error;
use crate::certificate::CertificateFiles;
use crate::limits::MAX_SHELVES_KEPT;
use crate::log::{Log, escaped};
use crate::own_files::OwnPaths;
use crate::revoked::Revoked;
use crate::tokens::SECRET_PURPOSE;

/// The options of the web's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebOptions {
    /// `--http ADDR:PORT`
    pub http: Option<SocketAddr>,
    /// `--https ADDR:PORT`
    pub https: Option<SocketAddr>,
    /// `--certificate FILE`, with its chain, as PEM.
    pub certificate: Option<PathBuf>,
    /// `--certificate-key FILE`, as PEM. Without it, the same file.
    pub certificate_key: Option<PathBuf>,
    /// `--public DIR`: anybody may read it.
    pub public: Option<PathBuf>,
    /// `--cors ORIGIN`: origins whose pages may read, `*` for any.
    pub cors: Vec<String>,
}

pub(crate) struct Prepared {
    http: Option<At>,
    https: Option<(At, Arc<haul_web::tls::Config>, CertificateFiles)>,
    access: Arc<Directories>,
    cors: Option<Cors>,
}

enum At {
    Address(SocketAddr),
    HandedOver(Vec<Listener>),
}

impl At {
    fn of(handed: Vec<Listener>, address: Option<SocketAddr>) -> Option<At> {
        if handed.is_empty() { address.map(At::Address) } else { Some(At::HandedOver(handed)) }
    }
}

/// `http` and `https` are ports held by another program.
pub(crate) fn prepare(
    options: &WebOptions,
    (http, https): (Vec<Listener>, Vec<Listener>),
    own: &Arc<OwnPaths>,
    authority: &Arc<Authority>,
) -> Result<Prepared, Error> {
    let cors = Cors::parse(&options.cors).map_err(|why| {
        Error::new(Fault::Usage, why).try_this("--cors https://viewer.example as a browser shows it, or --cors '*'")
    })?;
    let public = match &options.public {
        Some(directory) => Some(public(directory, own)?),
        None => None,
    };
    let access = Arc::new(Directories {
        public,
        authority: Arc::clone(authority),
        own: Arc::clone(own),
        revoked: Revoked::beside(authority.path(), authority.say()),
        kept: Mutex::default(),
    });
    let https = match (At::of(https, options.https), &options.certificate) {
        (None, _) => None,
        (Some(at), Some(certificate)) => {
            let key = options.certificate_key.as_ref().unwrap_or(certificate);
            let config = haul_web::tls::config(certificate, key, Arc::clone(&access) as Arc<dyn Access>);
            let name = escaped(certificate.as_os_str().as_encoded_bytes());
            let failed = |error: io::Error| {
                let failed =
                    Error::new(Fault::Authentication, format!("cannot use the certificate {name}")).because(&error);
                let failed = failed.try_this(
                    "--certificate names a PEM file with the certificate and its chain, --certificate-key its key",
                );
                haul_transfer::advised(failed, &error)
            };
            let config = config.map_err(failed)?;
            let files = CertificateFiles::new(certificate.clone(), key.clone(), Arc::clone(&config));
            Some((at, config, files))
        }
        (Some(_), None) => {
            return Err(Error::new(Fault::Usage, "--https needs a certificate")
                .try_this("--certificate FILE and --certificate-key FILE, both PEM"));
        }
    };
    Ok(Prepared { http: At::of(http, options.http), https, access, cors })
}

impl Prepared {
    pub(crate) fn open(
        self,
        policies: Arc<Policies>,
        identity: &Identity,
        log: &Arc<Log>,
    ) -> Result<Option<Web>, Error> {
        if self.http.is_none() && self.https.is_none() {
            return Ok(None);
        }
        let (mut clear, mut tls, mut floors) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = |at, scheme: &str| {
            let (listeners, by_floor, held_by) = match at {
                At::Address(address) => {
                    let (listeners, by_floor) =
                        Listener::bind_by_floor(address, &policies.networks()).map_err(bind_error)?;
                    (listeners, by_floor, "")
                }
                // A held socket has one floor for all classes.
                At::HandedOver(listeners) => (listeners, None, ", a socket that was handed over"),
            };
            // Sockets of one address are one to readers.
            let mut addresses: Vec<_> = listeners.iter().map(Listener::local_addr).collect();
            addresses.dedup();
            for address in addresses {
                log.say(&format!("web: listening on {scheme}://{address}{held_by}"));
            }
            floors.extend(by_floor);
            Ok::<_, Error>(listeners)
        };
        if let Some(at) = self.http {
            clear = open(at, "http")?;
        }
        let mut certificate = None;
        if let Some((at, config, files)) = self.https {
            tls.extend(open(at, "https")?.into_iter().map(|listener| (listener, Arc::clone(&config))));
            certificate = Some(files);
        }
        let told = Arc::clone(log);
        let tell: Tell = Arc::new(move |line| match line.request {
            Some(request) => told.request(line.text, request),
            None if line.matters => told.warn(line.text),
            None => told.say_soon(line.text),
        });
        let options = Options {
            clear,
            tls,
            access: self.access,
            secret: Some(Secret::new(identity.secret_for(SECRET_PURPOSE))),
            cors: self.cors,
            manifests: Arc::new(Manifests),
            digests: Surroundings::of_process().state.map(|state| state.join("web-digests")),
            policies,
            limits: Limits::default(),
            tell: (!log.is_quiet()).then_some(tell),
        };
        let failed = |error| Error::new(Fault::Network, "cannot start the web service").because(error);
        Ok(Some(Web { floors, certificate, service: Service::start(options).map_err(failed)? }))
    }
}

pub(crate) struct Web {
    floors: Vec<ByFloor>,
    certificate: Option<CertificateFiles>,
    service: Service,
}

impl Web {
    pub(crate) fn follow(&self, networks: &Networks, log: &Log) {
        for by_floor in &self.floors {
            if let Err(error) = by_floor.follow(networks) {
                log.warn(&format!("web: connections begin with the floors from before: {error}"));
            }
        }
    }

    pub(crate) fn look(&mut self, at_once: bool, log: &Log) {
        if let Some(certificate) = &mut self.certificate {
            certificate.look(at_once, log);
        }
    }

    /// Stops accepting, and lets running requests end in time.
    pub(crate) fn stop(self) {
        drop(self.floors);
        self.service.stop();
    }
}

struct KeptShelf {
    line: Authorized,
    opened: Option<OpenedShelf>,
    opening: Option<u64>,
}

#[derive(Clone)]
struct OpenedShelf {
    at: Instant,
    shelf: Option<Arc<Shelf>>,
}

/// Gives the public directory to anybody, and those of lines to holders of certificates and tokens.
struct Directories {
    public: Option<Arc<Shelf>>,
    authority: Arc<Authority>,
    own: Arc<OwnPaths>,
    revoked: Revoked,
    /// No thread waits for a disk while it is locked.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    shelves: HashMap<Holder, KeptShelf>,
    openings: u64,
}

impl Access for Directories {
    fn look_up(&self, asker: &Asker) -> Lookup {
        // A look at the list checks its file and all above it: readers without a credential are spared it.
        let listed = self.holder(asker).map(|holder| (holder, self.authority.list()));
        match (asker, &listed) {
            (_, Some((holder, list))) if let Some(line) = list.line_for(holder) => self.known(holder, line),
            (Asker::Token(_), _) => Lookup::Found(None),
            // An unlisted certificate is worth as much as none.
            (Asker::Anyone | Asker::Certificate(_), _) => Lookup::Found(self.public.clone()),
        }
    }

    fn is_revoked(&self, number: Number) -> bool {
        self.revoked.contains(number)
    }

    fn open(self: Arc<Self>, asker: &Asker) -> Option<Box<dyn FnOnce() + Send>> {
        let holder = self.holder(asker)?;
        let line = self.authority.list().line_for(&holder)?.clone();
        let mut kept = self.lock();
        let number = kept.openings;
        let found = kept.shelves.get_mut(&holder).filter(|found| found.line == line)?;
        if found.opening.is_some() {
            return None;
        }
        found.opening = Some(number);
        kept.openings += 1;
        drop(kept);
        let mut opening = Opening { directories: self, holder, number, opened: None };
        Some(Box::new(move || {
            opening.carry_out(&line);
        }))
    }

    fn knows_certificates(&self) -> bool {
        self.authority.list().has_certificates()
    }
}

/// The end of an opening is noted even if it never ran.
struct Opening {
    directories: Arc<Directories>,
    holder: Holder,
    number: u64,
    opened: Option<OpenedShelf>,
}

impl Opening {
    fn carry_out(&mut self, line: &Authorized) {
        let shelf = self.directories.open_line(line);
        self.opened = Some(OpenedShelf { at: Instant::now(), shelf });
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut kept = self.directories.lock();
        // The line may have changed, and another thread opens it.
        let found = kept.shelves.get_mut(&self.holder).filter(|found| found.opening == Some(self.number));
        if let Some(found) = found {
            found.opening = None;
            found.opened = self.opened.take().or(found.opened.take());
        }
    }
}

impl Directories {
    fn holder(&self, asker: &Asker) -> Option<Holder> {
        match asker {
            Asker::Anyone => None,
            Asker::Certificate(print) => Some(Holder::Certificate(*print)),
            Asker::Token(who) => Holder::parse(who)?.ok(),
        }
    }

    fn known(&self, holder: &Holder, line: &Authorized) -> Lookup {
        let mut kept = self.lock();
        match kept.shelves.get(holder).filter(|found| found.line == *line).map(|found| found.opened.clone()) {
            Some(Some(OpenedShelf { at, shelf })) => match at.elapsed() {
                age if age < SHELF_KEPT => Lookup::Found(shelf),
                // An aged directory may have been replaced.
                age if age < SHELF_AGED && shelf.is_some() => Lookup::Aged(shelf),
                _ => Lookup::Unopened,
            },
            Some(None) => Lookup::Unopened,
            None => {
                if kept.shelves.len() >= MAX_SHELVES_KEPT {
                    kept.shelves.retain(|_, found| found.opening.is_some());
                }
                kept.shelves.insert(holder.clone(), KeptShelf { line: line.clone(), opened: None, opening: None });
                Lookup::Unopened
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An account needs a process with its rights, which the web lacks, so such a line gives nothing.
    fn open_line(&self, line: &Authorized) -> Option<Arc<Shelf>> {
        let root = line.grant.root.as_deref()?;
        if line.grant.user.is_some() {
            return None;
        }
        let directory = Published::open(root).ok()?.hiding(self.own.find().hidden_in(root).ok()?);
        let name = if line.comment.is_empty() { format!("line {}", line.line) } else { line.comment.clone() };
        Some(Arc::new(Shelf::new(directory, escaped(name.as_bytes())).of_line()))
    }
}

fn public(directory: &Path, own: &OwnPaths) -> Result<Arc<Shelf>, Error> {
    let name = escaped(directory.as_os_str().as_encoded_bytes());
    let failed = || Error::new(Fault::FileIo, format!("cannot show the directory {name}"));
    let hidden = own.find().hidden_in(directory).map_err(|why| failed().because(why))?;
    let directory = Published::open(directory).map_err(|error| {
        failed().because(error).try_this("name the directory by its full path, without symbolic links: /data/public")
    })?;
    let directory = directory.hiding(hidden);
    // Root would show what others on this host may not read.
    let directory = if haul_transfer::is_root() { directory.only_for_all() } else { directory };
    Ok(Arc::new(Shelf::new(directory, "anyone".to_owned())))
}

struct Manifests;

impl ManifestFormat for Manifests {
    fn write(&self, next: &mut dyn FnMut() -> io::Result<Option<ManifestFile>>, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = manifest_file::Writer::start(out)?;
        while let Some(ManifestFile { path, size, mtime, blake3 }) = next()? {
            writer.add(&ManifestLine { path, size, mtime_s: mtime.s, mtime_ns: mtime.ns, blake3 })?;
        }
        writer.finish().map(drop)
    }
}

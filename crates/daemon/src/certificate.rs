//! The certificate of the web's port: read again when its files change, so a renewed one needs no restart.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use haul_web::tls;

use crate::limits::NETWORKS_LOOK;
use crate::log::{Log, escaped};
use crate::version::Version;

pub(crate) struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    config: Arc<tls::Config>,
    versions: [Option<Version>; 2],
    looked: Instant,
}

impl CertificateFiles {
    pub(crate) fn new(certificate: PathBuf, key: PathBuf, config: Arc<tls::Config>) -> CertificateFiles {
        let mut files = CertificateFiles { certificate, key, config, versions: [None, None], looked: Instant::now() };
        files.versions = files.found();
        files
    }

    /// Looks at the files, now and then or `at_once`. Until certificate and key match, the earlier ones stay.
    pub(crate) fn look(&mut self, at_once: bool, log: &Log) {
        if !at_once && self.looked.elapsed() < NETWORKS_LOOK {
            return;
        }
        self.looked = Instant::now();
        let found = self.found();
        if found == self.versions && !at_once {
            return;
        }
        let is_new = found != self.versions;
        self.versions = found;
        let name = escaped(self.certificate.as_os_str().as_encoded_bytes());
        match self.config.renew(&self.certificate, &self.key) {
            Ok(()) if is_new => log.say(&format!("web: the certificate {name} was read again")),
            Ok(()) => {}
            Err(error) => log.warn(&format!("web: the certificate {name}: {error}; the one from before holds")),
        }
    }

    fn found(&self) -> [Option<Version>; 2] {
        [&self.certificate, &self.key].map(|file| fs::metadata(file).ok().map(|metadata| Version::of(&metadata)))
    }
}

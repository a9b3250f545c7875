//! The web's ports of the daemon: which directories are for whom there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_job::{Error, Fault};
use haul_net::{Listener, Policies};
use haul_store::Published;
use haul_web::access::{Access, Asker, Shelf};
use haul_web::{Limits, Options, Service, Tell};

use crate::bind_error::bind_error;
use crate::log::{Log, escaped};

/// The options of the web's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebOptions {
    /// `--http ADDR:PORT`
    pub http: Option<SocketAddr>,
    /// `--public DIR`: what anybody may read.
    pub public: Option<PathBuf>,
}

/// Opens the web's ports. `None`: there are none.
pub(crate) fn start(options: &WebOptions, policies: Arc<Policies>, log: &Arc<Log>) -> Result<Option<Service>, Error> {
    let Some(address) = options.http else { return Ok(None) };
    let public = options.public.as_deref().map(shelf).transpose()?;
    let listener = Listener::bind_to(address).map_err(bind_error)?;
    let address = listener.local_addr();
    let told = Arc::clone(log);
    let tell: Tell = Arc::new(move |text, matters| told.tell(text, matters));
    let service = Service::start(Options {
        clear: vec![listener],
        tls: Vec::new(),
        access: Arc::new(Directories { public }),
        policies,
        limits: Limits::default(),
        tell,
    })
    .map_err(|error| Error::new(Fault::Network, "cannot start the web service").because(error))?;
    log.say(&format!("web: listening on http://{address}"));
    Ok(Some(service))
}

/// Who may read what.
struct Directories {
    public: Option<Arc<Shelf>>,
}

impl Access for Directories {
    fn shelf(&self, _: &Asker) -> Option<Arc<Shelf>> {
        self.public.clone()
    }
}

fn shelf(directory: &Path) -> Result<Arc<Shelf>, Error> {
    let name = escaped(directory.as_os_str().as_encoded_bytes());
    let directory = Published::open(directory).map_err(|error| {
        Error::new(Fault::FileIo, format!("cannot show the directory {name}"))
            .because(error)
            .try_this("name the directory by its full path, without symbolic links: --public /data/public")
    })?;
    Ok(Arc::new(Shelf { directory, name: "anyone".to_owned() }))
}

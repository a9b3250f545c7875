//! A service over a directory of its own, and a reader that sends any bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_net::{Listener, Policies};
use haul_store::Published;
use haul_web::access::{Access, Asker, Lookup, Shelf};
use haul_web::token::Secret;
use haul_web::{Cors, Limits, ManifestFile, ManifestFormat, Options, Service};

pub struct Served {
    _dir: tempfile::TempDir,
    pub top: PathBuf,
    pub address: SocketAddr,
    pub tls: SocketAddr,
    pub log: Arc<Mutex<Vec<String>>>,
    /// Shared with other ports of the same host.
    pub policies: Arc<Policies>,
    pub service: Option<Service>,
}

/// Serves `ten`, `empty`, `a b`, `sub/`, a link out, and `private/` for holders of a token for `token:lab`.
pub fn serve(limits: Limits) -> Served {
    serve_to(limits, None)
}

pub fn serve_to(limits: Limits, cors: Option<Cors>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(top.join("public/sub")).unwrap();
    std::fs::create_dir_all(top.join("private/runs")).unwrap();
    std::fs::write(top.join("private/runs/secret"), b"secret").unwrap();
    std::fs::write(top.join("public/ten"), b"0123456789").unwrap();
    std::fs::write(top.join("public/empty"), b"").unwrap();
    std::fs::write(top.join("public/a b"), b"space").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", top.join("public/link")).unwrap();
    let shelf = |name: &str| {
        let directory = Published::open(&top.join(name)).unwrap();
        Arc::new(Shelf::new(directory, name.to_owned()))
    };
    let access = Arc::new(TwoShelves { public: shelf("public"), private: shelf("private") });
    let port = || Listener::bind_to(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let (listener, over_tls) = (port(), port());
    let (address, tls) = (listener.local_addr(), over_tls.local_addr());
    let key = top.join("key.pem");
    std::fs::copy(stand_in("key.pem"), &key).unwrap();
    let mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let config = |access| haul_web::tls::config(&stand_in("certificate.pem"), &key, access);
    assert!(config(access.clone()).is_err_and(|error| error.to_string().contains("others may read it")));
    mode(0o600);
    let config = config(access.clone()).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&log);
    let policies = Arc::new(Policies::default());
    let service = Service::start(Options {
        clear: vec![listener],
        tls: vec![(over_tls, config)],
        access,
        secret: Some(secret()),
        cors,
        manifests: Arc::new(Lines),
        digests: Some(top.join("digests")),
        policies: Arc::clone(&policies),
        limits,
        tell: Some(Arc::new(move |line| written.lock().unwrap().push(line.text.to_owned()))),
    })
    .unwrap();
    Served { top: top.join("public"), _dir: dir, address, tls, log, policies, service: Some(service) }
}

/// A file in place of an operator's own. The certificate is for `localhost`; its key protects nothing.
pub fn stand_in(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stand-ins").join(name)
}

pub fn secret() -> Secret {
    Secret::new([7; 32].into())
}

struct TwoShelves {
    public: Arc<Shelf>,
    private: Arc<Shelf>,
}

impl Access for TwoShelves {
    fn look_up(&self, asker: &Asker) -> Lookup {
        Lookup::Found(match asker {
            Asker::Token(who) => (who == "token:lab").then(|| Arc::clone(&self.private)),
            _ => Some(Arc::clone(&self.public)),
        })
    }

    fn open(self: Arc<Self>, _: &Asker) -> Option<Box<dyn FnOnce() + Send>> {
        None
    }
}

struct Lines;

impl ManifestFormat for Lines {
    fn write(
        &self,
        next: &mut dyn FnMut() -> io::Result<Option<ManifestFile>>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        while let Some(file) = next()? {
            writeln!(out, "{} {} {}", blake3::Hash::from_bytes(file.blake3), file.size, file.path.escape_ascii())?;
        }
        writeln!(out, "end")
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Returns all that the server says until it closes.
pub fn answers(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A server that refuses may close before it has read all.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub fn get(address: SocketAddr, target: &str, fields: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    parsed(answers(address, request.as_bytes()))
}

pub fn get_on(mut stream: TcpStream, target: &str) -> Answer {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    parsed(said)
}

fn parsed(said: Vec<u8>) -> Answer {
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer");
    let head = String::from_utf8(said[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: said[end + 4..].to_vec() }
}

//! The service: it listens and accepts, on a few threads that keep their connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use haul_net::policy::OverLimit;
use haul_net::{Listener, Policies};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use crate::access::Access;
use crate::answer::Shared;
use crate::answer::digest::Kept;
use crate::answer::manifest::ManifestFormat;
use crate::connection::{Arrived, serve};
use crate::cors::Cors;
use crate::house::{House, Seat};
use crate::limits::{self, Limits};
use crate::reader_log::{About, ReaderLog, Tell, Told};
use crate::resting::Resting;
use crate::tls;
use crate::token::Secret;
use crate::transport::line::watchdog::Watchdog;

/// The parts of a service.
pub struct Options {
    /// Ports for clear connections.
    pub clear: Vec<Listener>,
    /// Ports for TLS, each with its settings.
    pub tls: Vec<(Listener, Arc<tls::Config>)>,
    /// Decides who may read what.
    pub access: Arc<dyn Access>,
    /// The secret of the tokens. `None`: there are none.
    pub secret: Option<Secret>,
    /// Other origins whose pages may read. `None`: none.
    pub cors: Option<Cors>,
    /// The form of manifests.
    pub manifests: Arc<dyn ManifestFormat>,
    /// The file that keeps digests for the next process.
    pub digests: Option<PathBuf>,
    /// The tuning of connections, by network.
    pub policies: Arc<Policies>,
    /// The limits.
    pub limits: Limits,
    /// Logs each request. `None`: none is logged.
    pub tell: Option<Tell>,
}

/// A running service. Dropping it, or [`Service::stop`], ends it.
pub struct Service {
    threads: Vec<JoinHandle<()>>,
    shared: Vec<Arc<ThreadOf>>,
    stopping: watch::Sender<bool>,
}

impl Service {
    /// Starts to listen.
    pub fn start(options: Options) -> io::Result<Service> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(limits::ASYNC_THREADS_MAX);
        let (stopping, stops) = watch::channel(false);
        let digests = options.digests.as_deref().map_or_else(|| Ok(Kept::default()), Kept::in_file);
        let digests = digests.unwrap_or_else(|error| {
            if let Some(tell) = &options.tell {
                tell(&Told::new(&format!("warning: digests of files are forgotten at the end: {error}"), true));
            }
            Kept::default()
        });
        let most = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        options.policies.limit(most(options.limits.connections), most(options.limits.connections_per_source));
        let house = Arc::new(House {
            access: options.access,
            secret: options.secret,
            cors: options.cors,
            policies: options.policies,
            limits: options.limits,
            log: ReaderLog::new(options.tell),
            shared: Arc::new(Shared::new(options.manifests, digests)?),
            turning_away: Default::default(),
        });
        let clear = options.clear.into_iter().map(|listener| (listener, None));
        let tls = options.tls.into_iter().map(|(listener, config)| (listener, Some(config)));
        let mut ports = Vec::new();
        for (listener, tls) in clear.chain(tls) {
            ports.push((listener.into_socket().map_err(io::Error::other)?, tls));
        }
        let mut service = Service { threads: Vec::new(), shared: Vec::new(), stopping };
        for _ in 0..count {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            let ports = ports.iter().map(|(socket, tls)| Ok((socket.try_clone()?, tls.clone())));
            let ports = ports.collect::<io::Result<Vec<_>>>()?;
            let resting = {
                let _context = runtime.enter();
                Resting::new()?
            };
            let watchdog = Arc::new(Watchdog::new(house.limits));
            let thread = Arc::new(ThreadOf { watchdog, resting, stops: stops.clone() });
            service.shared.push(Arc::clone(&thread));
            let house = Arc::clone(&house);
            let work = move || run(runtime, ports, &house, &thread);
            service.threads.push(thread::Builder::new().name("web".to_owned()).spawn(work)?);
        }
        Ok(service)
    }

    /// The number of connections resting without a task.
    pub fn resting(&self) -> usize {
        self.shared.iter().map(|thread| thread.resting.count()).sum()
    }

    /// Stops accepting, lets running requests end in their time, and cuts the others.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.send_replace(true);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

type Port = (TcpListener, Option<Arc<tls::Config>>);

fn run(runtime: Runtime, ports: Vec<Port>, house: &Arc<House>, thread: &Arc<ThreadOf>) {
    // Every awaited task has a sender until it ends.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    runtime.block_on(async {
        tokio::spawn(watch_over(Arc::clone(thread), Arc::clone(house)));
        tokio::spawn(release_silent(Arc::clone(thread)));
        tokio::spawn(wake(Arc::clone(thread), alive.clone()));
        let mut accepting = Vec::new();
        for (socket, tls) in ports {
            accepting.push(tokio::spawn(accept(socket, tls, Arc::clone(house), Arc::clone(thread), alive.clone())));
        }
        drop(alive);
        for port in accepting {
            // A port that panicked has ended, too.
            let _ = port.await;
        }
        let _ = tokio::time::timeout(house.limits.orderly_stop, ended.recv()).await;
    });
    runtime.shutdown_background();
}

struct ThreadOf {
    watchdog: Arc<Watchdog>,
    resting: Resting,
    stops: watch::Receiver<bool>,
}

/// Ends late connections, and, when the service stops, all without a request.
async fn watch_over(thread: Arc<ThreadOf>, house: Arc<House>) {
    let (watchdog, mut stops) = (&thread.watchdog, thread.stops.clone());
    let mut looks = tokio::time::interval(watchdog.every());
    loop {
        tokio::select! {
            _ = looks.tick() => {
                watchdog.look(Instant::now());
                house.log.end_minute(Instant::now());
            }
            _ = stops.wait_for(|stops| *stops), if !watchdog.is_stopping() => watchdog.stop(Instant::now()),
        }
        match watchdog.is_stopping() {
            true => thread.resting.end_all(),
            false => thread.resting.end_late(watchdog.now_ms()),
        }
    }
}

async fn release_silent(thread: Arc<ThreadOf>) {
    loop {
        thread.watchdog.has_silent().await;
        tokio::time::sleep(limits::SILENT_LOOK_EVERY).await;
        while thread.watchdog.look_at_silent() {
            tokio::time::sleep(limits::SILENT_LOOK_EVERY).await;
        }
    }
}

async fn wake(thread: Arc<ThreadOf>, alive: mpsc::Sender<()>) {
    let mut stops = thread.stops.clone();
    loop {
        let woken = tokio::select! {
            woken = thread.resting.woken() => woken,
            _ = stops.wait_for(|stops| *stops) => return,
        };
        // The set cannot be read: its connections end when their time is over.
        let Ok(woken) = woken else { return };
        for rested in woken {
            begin(Arrived::Woken(rested), &thread, &alive);
        }
    }
}

fn begin(arrived: Arrived, thread: &Arc<ThreadOf>, alive: &mpsc::Sender<()>) {
    let (thread, alive) = (Arc::clone(thread), alive.clone());
    tokio::spawn(async move {
        let (house, from, source) = arrived.whose();
        // A failed connection concerns only its reader.
        match serve(arrived, &thread.watchdog, &thread.stops).await {
            Ok(Some(rested)) => drop(thread.resting.take(rested)),
            Ok(None) => {}
            Err(error) => {
                if let Some(why) = reason(&error) {
                    let line = || (format!("web: nobody ({from}) {why}"), None);
                    house.log.about(About::Stranger(source), Instant::now(), line);
                }
            }
        }
        drop(alive);
    });
}

/// The reader's mistake. `None`: it left, or its path was lost.
fn reason(error: &io::Error) -> Option<String> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
    if error.kind() == TimedOut {
        return Some("was cut off: it neither asked nor took anything in time".to_owned());
    }
    let Some(of_hyper) = error.get_ref().and_then(|inner| inner.downcast_ref::<hyper::Error>()) else {
        let has_left =
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof);
        return (!has_left).then(|| format!("was cut off: {error}"));
    };
    let is_of_the_path = std::error::Error::source(of_hyper).is_some_and(|inner| inner.is::<io::Error>());
    let has_left = of_hyper.is_incomplete_message() || of_hyper.is_canceled() || of_hyper.is_closed();
    match of_hyper.is_parse() || of_hyper.is_parse_too_large() {
        true => Some(format!("sent a malformed request: {of_hyper}")),
        false if is_of_the_path || has_left || of_hyper.is_user() || of_hyper.is_body_write_aborted() => None,
        false => Some(format!("was cut off: {of_hyper}")),
    }
}

async fn accept(
    socket: TcpListener,
    tls: Option<Arc<tls::Config>>,
    house: Arc<House>,
    thread: Arc<ThreadOf>,
    alive: mpsc::Sender<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(socket) else { return };
    let mut stops = thread.stops.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stops.wait_for(|stops| *stops) => return,
        };
        match accepted {
            Ok((stream, from)) => {
                // The stream leaves the reactor until it is tuned.
                let Ok(stream) = stream.into_std() else { continue };
                let seat = match Seat::take(&house, &stream, from) {
                    Ok(seat) => seat,
                    Err(over) => {
                        turn_away(&house, stream, (from, over), tls.is_some());
                        continue;
                    }
                };
                begin(Arrived::New { stream, tls: tls.clone(), seat }, &thread, &alive);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // Descriptors may be exhausted: ending connections free some.
            Err(_) => tokio::time::sleep(limits::ACCEPT_PAUSE).await,
        }
    }
}

/// Tells a reader that there is no room. Over TLS the handshake would cost too much: it is just closed.
fn turn_away(house: &House, stream: std::net::TcpStream, (from, over): (SocketAddr, OverLimit), is_tls: bool) {
    let Some(place) = house.turn_away(from, &over).filter(|_| !is_tls) else { return };
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    tokio::spawn(async move {
        let _ = tokio::time::timeout(limits::TURNED_AWAY_DEADLINE, async {
            stream.write_all(no_room(&over).as_bytes()).await?;
            stream.shutdown().await?;
            // Unread input would reset the connection, and the answer might be lost.
            let mut thrown_away = [0; 512];
            for _ in 0..TURNED_AWAY_READS {
                if stream.read(&mut thrown_away).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        })
        .await;
        drop(place);
    });
}

/// 429 for a limit of a class, 503 for the host's own.
fn no_room(over: &OverLimit) -> String {
    let status = if over.class.is_some() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    let reason = status.canonical_reason().unwrap_or_default();
    let text = format!("{} {}\n", status.as_str(), reason.to_lowercase());
    let (length, again) = (text.len(), limits::RETRY_AFTER_S);
    format!(
        "HTTP/1.1 {} {reason}\r\nRetry-After: {again}\r\nConnection: close\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{text}",
        status.as_str()
    )
}

const TURNED_AWAY_READS: usize = limits::MAX_HEADER_BYTES / 512;

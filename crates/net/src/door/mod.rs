//! A door: accepts connections, bounds its guests, and remembers refused sources.
//!
//! ```text
//! accept -> room -> greet, in a thread of its own, within the deadline -> receive
//!             |        |
//!             |        +-> refused: the source pays (`penalty.rs`)
//!             +-> too many: the oldest guest of the source that has most leaves (`room.rs`)
//! ```
//! Doors may share a [`Lobby`] with its room and penalties.

mod penalty;
mod room;
#[cfg(test)]
#[path = "../../tests/unit/door_scenarios.rs"]
mod scenarios;

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_sys::poll::{self, Interest};
use haul_sys::socket::send_messages_soon;

use crate::error::NetError;
use crate::limits;
use crate::listen::Listener;
use crate::policy::{Policies, source_of};
use crate::transport::{Link, ShutdownHandle};

use penalty::Penalties;
pub use room::Space;
use room::{Newcomer, Room};

/// Finds out who came, and who may come in.
pub trait Greeter: Send + Sync + 'static {
    /// The result, such as a stream and its peer's proved key.
    type Guest;

    /// Greets a caller within its deadline, in a thread of its own.
    fn greet(&self, caller: &Caller) -> Greeting<Self::Guest>;

    /// Takes a guest in, in the same thread. Lift the deadline once it has said what it wants: until then it counts, and may
    /// be displaced.
    fn receive(&self, guest: Self::Guest, caller: &Caller);
}

/// How a greeting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting<Guest> {
    /// The caller proved its right. Its source is trusted for a while.
    Admitted(Guest),
    /// The caller may come in without a proof, as for public files. Its source earns no trust, or a visit would permit free
    /// guesses of keys at the lobby's other doors.
    Anonymous(Guest),
    /// The caller showed a wrong key, for example. Its source is charged.
    Refused {
        /// The charge; it decreases by a second each second.
        penalty: Duration,
    },
    /// The caller left, was slow, or spoke another protocol.
    Gone,
}

/// One connection, as its greeter sees it.
pub struct Caller {
    pub(crate) link: Arc<Link>,
    address: SocketAddr,
    deadline: Duration,
}

impl Caller {
    /// The caller's address; mapped IPv4 as IPv4.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time until [`Greeter::receive`] ends, which the connection keeps to.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Ends the connection, and tells whether the door has.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle::of(&self.link)
    }
}

/// The surroundings of a door.
#[derive(Clone, Default)]
pub struct DoorOptions {
    /// Room and penalties, shared by doors of one lobby.
    pub lobby: Arc<Lobby>,
    /// The tuning of its connections.
    pub policies: Arc<Policies>,
}

/// Accepts in its own thread, and greets each connection in a short-lived one.
///
/// Until received, guests count, in all and per source, and have a deadline.
pub struct Door {
    lobby: Arc<Lobby>,
    number: u64,
    is_closed: Arc<AtomicBool>,
    /// Closing it wakes the accepting thread.
    wake: UnixStream,
    port: u16,
}

impl Door {
    /// Opens the door.
    pub fn open(listener: Listener, greeter: impl Greeter, options: &DoorOptions) -> Result<Door, NetError> {
        let failed = |cause| NetError::Io { what: "cannot start to accept connections", cause };
        let (port, lobby) = (listener.port(), Arc::clone(&options.lobby));
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        listener.socket.set_nonblocking(true).map_err(failed)?;
        let number = lobby.doors.fetch_add(1, Ordering::Relaxed);
        let is_closed = Arc::new(AtomicBool::new(false));
        let inside = Inside {
            greeter,
            lobby: Arc::clone(&lobby),
            policies: Arc::clone(&options.policies),
            number,
            is_closed: Arc::clone(&is_closed),
        };
        let inside = Arc::new(inside);
        thread::Builder::new()
            .name("door".to_owned())
            .spawn(move || accept_until_closed(&listener.socket, &woken, &inside))
            .map_err(failed)?;
        Ok(Door { lobby, number, is_closed, wake, port })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops accepting, and ends greetings, at once. Received guests stay.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        drop(self.wake.shutdown(Shutdown::Both));
        self.lobby.room().close(self.number);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// The limits of a lobby.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The time until a connection has said what it wants.
    pub deadline: Duration,
    /// Room for guests of all sources.
    pub space: Space,
    /// Guests of one source.
    pub max_guests_per_source: usize,
    /// Guests of an often refused source.
    pub max_guests_barred: usize,
    /// The deadline of such guests.
    pub barred_deadline: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            deadline: limits::HANDSHAKE_DEADLINE,
            space: Space { guests: limits::MAX_HANDSHAKES, young: limits::YOUNG },
            max_guests_per_source: limits::MAX_HANDSHAKES_PER_SOURCE,
            max_guests_barred: limits::MAX_HANDSHAKES_BARRED,
            barred_deadline: limits::BARRED_DEADLINE,
        }
    }
}

/// The room and penalties of doors that count together.
pub struct Lobby {
    rules: Rules,
    room: Mutex<Room>,
    penalties: Mutex<Penalties>,
    doors: AtomicU64,
}

impl Default for Lobby {
    fn default() -> Lobby {
        Lobby::with(Rules::default())
    }
}

impl Lobby {
    /// A lobby with other limits.
    pub fn with(rules: Rules) -> Lobby {
        let (room, penalties) = (Mutex::new(Room::of(rules.space)), Mutex::default());
        Lobby { rules, room, penalties, doors: AtomicU64::new(0) }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn penalties(&self) -> MutexGuard<'_, Penalties> {
        self.penalties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Inside<G> {
    greeter: G,
    lobby: Arc<Lobby>,
    policies: Arc<Policies>,
    number: u64,
    is_closed: Arc<AtomicBool>,
}

/// One counted connection, also in a panic.
struct Seat {
    lobby: Arc<Lobby>,
    source: IpAddr,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lobby.room().leaves(self.number);
    }
}

impl<G: Greeter> Inside<G> {
    fn seat(&self, link: Arc<Link>, address: SocketAddr) -> Option<(Seat, Caller)> {
        let (lobby, source, now) = (&self.lobby, source_of(address.ip()), Instant::now());
        let rules = lobby.rules;
        let hearing = lobby.penalties().hearing(source, now);
        let (most, deadline) = match hearing.is_barred {
            true => (rules.max_guests_barred, rules.barred_deadline),
            false => (rules.max_guests_per_source, rules.deadline),
        };
        let most_of_source = most.saturating_sub(hearing.refused_lately);
        link.set_deadline(Some(deadline)).ok()?;
        let connection = ShutdownHandle::of(&link);
        let newcomer = Newcomer { source, most_of_source, connection: connection.clone(), door: self.number };
        let number = lobby.room().enters(newcomer, now)?;
        // `close` misses guests that enter after it.
        if self.is_closed.load(Ordering::Acquire) {
            connection.shutdown();
        }
        Some((Seat { lobby: Arc::clone(lobby), source, number }, Caller { link, address, deadline }))
    }

    fn greet(&self, seat: &Seat, caller: &Caller) {
        let greeting = self.greeter.greet(caller);
        let now = Instant::now();
        match &greeting {
            Greeting::Admitted(_) => self.lobby.penalties().admitted(seat.source, now),
            Greeting::Refused { penalty } => self.lobby.penalties().refused(seat.source, *penalty, now),
            Greeting::Anonymous(_) | Greeting::Gone => {}
        }
        // A stranger's failures are not logged: it can cause any number.
        if let Greeting::Admitted(guest) | Greeting::Anonymous(guest) = greeting
            && self.lobby.room().is_admitted(seat.number)
        {
            self.greeter.receive(guest, caller);
        }
    }
}

fn accept_until_closed<G: Greeter>(socket: &TcpListener, woken: &UnixStream, inside: &Arc<Inside<G>>) {
    while !inside.is_closed.load(Ordering::Acquire) {
        let watched = [(socket.as_fd(), Interest::Read), (woken.as_fd(), Interest::Read)];
        match poll::wait(&watched, None).and_then(|_| accept(socket)) {
            Ok(Some((connection, address))) => seat_and_greet(connection, address, inside),
            Ok(None) => {}
            // EMFILE leaves the connection queued: poll would report it at once.
            Err(_) => {
                let woken = [(woken.as_fd(), Interest::Read)];
                drop(poll::wait(&woken, Some(limits::ACCEPT_PAUSE)));
            }
        }
    }
}

fn accept(socket: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match socket.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        // The connection is gone, or poll woke for the other descriptor.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn seat_and_greet<G: Greeter>(connection: TcpStream, address: SocketAddr, inside: &Arc<Inside<G>>) {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    if connection.set_nonblocking(false).is_err() || send_messages_soon(&connection).is_err() {
        return;
    }
    let found = inside.policies.begins(&connection, address.ip());
    // Only a proved key is told of a limit: the caller is greeted.
    let member = inside.policies.enters(found, address.ip());
    let link = Arc::new(Link::accepted(connection, &inside.policies, member));
    if let Some((seat, caller)) = inside.seat(link, address) {
        let inside = Arc::clone(inside);
        drop(thread::Builder::new().name("greeting".to_owned()).spawn(move || inside.greet(&seat, &caller)));
    }
}

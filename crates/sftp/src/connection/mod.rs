//! A client's side of one connection: requests out, answers in, in any order.
//!
//! ```text
//!   any thread:     number -> room among those in flight -> packet into the pipe
//!   reader thread:  packet -> number -> its recipient           silence, garbage, an end: all requests fail
//! ```
//! Only the reader watches the clock. It never waits for anything but the pipe, so a server that answers can always go on.

mod in_flight;
mod incoming;
mod ticket;

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use in_flight::{Recipient, Terms};
pub(crate) use ticket::Ticket;

use crate::codec::{GREETING, Greeting, Request, decode, decode_greeting, id_of};
use crate::limits::{LOOK_EVERY, MAX_BYTES_IN_FLIGHT, MAX_NOISE_BYTES, MAX_PACKET_BYTES, MAX_REQUESTS};
use crate::pipe::Pipe;
use in_flight::InFlight;
use incoming::{Incoming, NoPacket};

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The other side ended before it spoke.
    #[error("the server ended before it said a word{}", said(.0))]
    Ended(Option<String>),
    /// The other side said nothing.
    #[error("the server has said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// The other side speaks something else.
    #[error("what answers is no SFTP server: {0}")]
    NoServer(String),
    /// Its version is not ours.
    #[error("the server speaks version {0} of SFTP; haul speaks version 3")]
    Version(u32),
    /// The pipe failed.
    #[error("the pipe to the server broke: {0}")]
    Io(#[from] io::Error),
}

fn said(words: &Option<String>) -> String {
    words.as_ref().map(|words| format!(": {words}")).unwrap_or_default()
}

/// A connection to a server. Threads share it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    in_flight: InFlight,
    input: Mutex<Option<File>>,
    /// Dropped to wake the reader.
    closes: Mutex<Option<PipeWriter>>,
    end: Box<dyn Fn() + Send + Sync>,
    why_ended: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Connection {
    /// Greets the server, and waits for its greeting for `patience` at most.
    pub(crate) fn open(pipe: Pipe, patience: Duration) -> Result<(Self, Greeting), ConnectError> {
        let Pipe { output, input, heard, is_greeted, end, why_ended } = pipe;
        let in_flight = InFlight::new(MAX_REQUESTS, MAX_BYTES_IN_FLIGHT);
        let mut input = File::from(input);
        let (closed, closes) = io::pipe().inspect_err(|_| end())?;
        let mut incoming = Incoming::new(output, closed, &heard);
        if !is_greeted {
            // A server that has ended already is found below, with its words.
            let _ = input.write_all(&GREETING);
        }
        let greeting = greeting(&mut incoming, patience).map_err(|error| {
            end();
            match error {
                ConnectError::Ended(_) => ConnectError::Ended(why_ended()),
                error => error,
            }
        })?;
        let shared = Arc::new(Shared {
            in_flight,
            input: Mutex::new(Some(input)),
            closes: Mutex::new(Some(closes)),
            end,
            why_ended,
        });
        let for_reader = Arc::clone(&shared);
        let reader = std::thread::Builder::new().name("sftp".into()).spawn(move || for_reader.read(incoming));
        let reader = reader.inspect_err(|_| (shared.end)())?;
        Ok((Self { shared, reader: Some(reader) }, greeting))
    }

    /// Sends a request; its recipient gets the answer, or an error if the connection is lost.
    pub(crate) fn send(&self, request: &Request<'_>, terms: Terms, recipient: Recipient) -> io::Result<()> {
        let id = self.shared.in_flight.begin(terms, recipient)?;
        self.shared.write(&request.packet(id));
        Ok(())
    }

    /// Sends a request, to wait for its answer later.
    pub(crate) fn ask(&self, request: &Request<'_>, terms: Terms) -> io::Result<Ticket> {
        let (ticket, recipient) = Ticket::new();
        self.send(request, terms, recipient)?;
        Ok(ticket)
    }

    pub(crate) fn bytes_in_flight(&self) -> usize {
        self.shared.in_flight.bytes()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.shared.in_flight.is_lost()
    }

    /// Ends the connection because its server broke the protocol.
    pub(crate) fn break_off(&self, why: &str) {
        self.shared.lose(why.to_owned());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lose("it was closed".to_owned());
        if let Some(reader) = self.reader.take()
            && reader.thread().id() != std::thread::current().id()
        {
            let _ = reader.join();
        }
    }
}

fn greeting(incoming: &mut Incoming, patience: Duration) -> Result<Greeting, ConnectError> {
    let begun = Instant::now();
    let mut look = |_| begun.elapsed() < patience;
    let first = incoming.packet(LOOK_EVERY, &mut look, &|_| Some(MAX_PACKET_BYTES));
    let packet = match first {
        Ok(packet) => packet,
        Err(NoPacket::End | NoPacket::Cut) => return Err(ConnectError::Ended(None)),
        Err(NoPacket::Io(error)) => return Err(error.into()),
        Err(NoPacket::GivenUp) => return Err(ConnectError::Silent(patience)),
        Err(NoPacket::Refused(why)) => {
            // A login shell that prints something is the usual cause.
            let rest = incoming.rest();
            let text = haul_store::printable(&rest[..rest.len().min(MAX_NOISE_BYTES).min(SHOWN_BYTES)]);
            return Err(ConnectError::NoServer(if text.is_empty() { why } else { format!("{why} ({text})") }));
        }
    };
    let greeting = decode_greeting(&packet).map_err(|error| ConnectError::NoServer(error.to_string()))?;
    if greeting.version != VERSION {
        return Err(ConnectError::Version(greeting.version));
    }
    Ok(greeting)
}

const VERSION: u32 = 3;

/// What is shown of other words than a greeting.
const SHOWN_BYTES: usize = 60;

impl Shared {
    fn write(&self, packet: &[u8]) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let written = input.as_mut().map_or(Ok(()), |input| input.write_all(packet));
        drop(input);
        if let Err(error) = written {
            let why = (self.why_ended)().unwrap_or_else(|| error.to_string());
            self.lose(why);
        }
    }

    fn lose(&self, why: String) {
        if self.in_flight.fail(why) {
            // A writer that waits for a server that does not read holds the lock, and comes back from here on.
            (self.end)();
            *self.closes.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn read(&self, mut incoming: Incoming) {
        let why = loop {
            let mut silent = None;
            let mut look = |bytes_came| {
                if bytes_came {
                    self.in_flight.heard();
                }
                silent = self.in_flight.silent_for();
                silent.is_none() && !self.in_flight.is_lost()
            };
            let longest = |head| self.in_flight.longest_reply_bytes(id_of(head));
            let packet = incoming.packet(LOOK_EVERY, &mut look, &longest);
            let packet = match packet {
                Ok(packet) => packet,
                Err(NoPacket::GivenUp) => {
                    break match silent {
                        Some(silent) => format!("the server has been silent for {} s", silent.as_secs()),
                        None => "it was closed".to_owned(),
                    };
                }
                Err(NoPacket::End) => break (self.why_ended)().unwrap_or_else(|| "the server ended it".to_owned()),
                Err(NoPacket::Cut) => break "it ended in the middle of an answer".to_owned(),
                Err(NoPacket::Io(error)) => break error.to_string(),
                Err(NoPacket::Refused(why)) => break format!("the server breaks the protocol: {why}"),
            };
            let (id, reply) = match decode(packet) {
                Ok(decoded) => decoded,
                Err(error) => break format!("the server breaks the protocol: of a packet, {error}"),
            };
            self.in_flight.answer(id, reply);
        };
        self.lose(why);
    }
}

//! Transfers in extended block mode (MODE E of GridFTP).
//!
//! ```text
//! fetch:  MODE E, PORT, ERET -> the server connects to a port of this host -> blocks -> 226      who sends connects
//! store:  MODE E, PASV -> a connection to the server -> ESTO -> blocks -> markers, 226
//! then:   ERET, or ESTO, alone: the connection stays for the next transfer in its direction
//! ```
//! A data connection shows no login. So one that comes in counts only from the host of the control connection, at a port that is open for
//! this one connection.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Control, Data, Direction, Habits, Kept};
use crate::codec::command::Command;
use crate::codec::passive;
use crate::codec::reply::Reply;
use crate::limits::{LISTEN_PATIENCE, MAX_STRANGERS, READ_BYTES, SUM_PATIENCE};
use crate::markers::Markers;
use crate::refusal::{file_refusal, invalid};
use crate::wire::Wire;

impl Control {
    /// Whether a data connection of an earlier transfer may carry the next one.
    pub(crate) fn has_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn take_kept(&mut self, direction: Direction) -> Option<Data> {
        let kept = self.kept.take()?;
        (kept.direction == direction && kept.data.wire.is_quiet()).then_some(kept.data)
    }

    /// Begins a transfer to here. [`ErrorKind::Unsupported`]: the server sends no blocks, or does not reach this host.
    pub(crate) fn fetch(&mut self, command: Command) -> io::Result<Data> {
        self.settle()?;
        let kept = self.take_kept(Direction::Down);
        let (mut commands, mut listener, mut number) = (Vec::new(), None, None);
        if !self.is_extended {
            commands.push(Command::plain("MODE E"));
        }
        if self.streams != 1 {
            commands.push(parallelism(1)?);
        }
        if kept.is_none() {
            let (waits, command, at) = self.listen()?;
            (listener, number) = (Some(waits), at);
            commands.push(command);
        }
        let before = commands.len();
        commands.push(command);
        self.send(&commands)?;
        let mut refused = None;
        for _ in 0..before {
            let reply = self.final_reply()?;
            if !reply.is_success() {
                refused = Some(reply);
            }
        }
        if let Some(reply) = refused {
            // The transfer itself may have begun in another mode.
            self.is_broken = true;
            let why = format!("the server sends no blocks to this host ({})", reply.shown());
            return Err(self.leave_out(number, io::Error::new(ErrorKind::Unsupported, why)));
        }
        (self.is_extended, self.streams) = (true, 1);
        let reply = match listener.is_some() && !self.habits.blocks.reaches_us(number) {
            true => self.first_reply().map_err(|error| self.leave_out(number, error))?,
            false => self.reply()?,
        };
        match reply.code {
            125 | 150 => {}
            425 | 426 if listener.is_some() => return Err(self.leave_out(number, unreached(&reply.shown()))),
            _ if reply.is_preliminary() => {
                self.is_broken = true;
                return Err(invalid(format!("the server answers in an unknown way ({})", reply.shown())));
            }
            _ => {
                self.kept = kept.map(|data| Kept { direction: Direction::Down, data });
                return Err(file_refusal(&reply));
            }
        }
        match (kept, listener) {
            (Some(data), _) => Ok(data),
            (None, Some(listener)) => {
                let accepted = self.accept(&listener).map_err(|error| {
                    self.is_broken = true;
                    self.leave_out(number, error)
                })?;
                self.habits.blocks.reached_us(number);
                Ok(accepted)
            }
            (None, None) => unreachable!("it waits for a connection where none is kept"),
        }
    }

    /// An address of this host that the server does not reach is left out: there are others.
    fn leave_out(&self, number: Option<usize>, error: io::Error) -> io::Error {
        match number {
            Some(number) if error.kind() == ErrorKind::Unsupported => {
                self.habits.blocks.bars(number);
                io::Error::new(ErrorKind::ConnectionAborted, error.to_string())
            }
            _ => error,
        }
    }

    /// The reply to the first transfer to here. A server behind whose way a firewall drops its connections is silent for minutes.
    fn first_reply(&mut self) -> io::Result<Reply> {
        self.wire.be_patient(LISTEN_PATIENCE.min(self.habits.silence))?;
        let reply = self.reply();
        self.be_as_patient_as_usual()?;
        reply.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => unreached("it did not in time"),
            _ => error,
        })
    }

    /// Opens a port for one connection of the server.
    fn listen(&self) -> io::Result<(TcpListener, Command, Option<usize>)> {
        let (address, number) = self.habits.blocks.waits_at(self.wire.local()?.ip().to_canonical());
        let bound = bind(address, self.habits.blocks.ports);
        let listener = bound.map_err(|error| match number {
            // No interface may have this address any more.
            Some(_) => self.leave_out(number, io::Error::new(ErrorKind::Unsupported, error)),
            None => error,
        })?;
        let port = listener.local_addr()?.port();
        Ok((listener, connects_to(SocketAddr::new(address, port))?, number))
    }

    /// Takes the connection of the server, and of nobody else.
    fn accept(&self, listener: &TcpListener) -> io::Result<Data> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + LISTEN_PATIENCE.min(self.habits.silence);
        let mut strangers = 0;
        loop {
            match listener.accept() {
                Ok((socket, peer)) if peer.ip().to_canonical() == self.peer.ip().to_canonical() => {
                    return self.accepted(socket);
                }
                Ok(_) => {
                    strangers += 1;
                    if strangers > MAX_STRANGERS {
                        return Err(invalid("other hosts connect to the port that waits for the server's data"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for(listener, deadline)?,
                Err(error) => return Err(io::Error::new(ErrorKind::NotConnected, error.to_string())),
            }
        }
    }

    fn accepted(&self, socket: TcpStream) -> io::Result<Data> {
        socket.set_nonblocking(false)?;
        let counted = self.habits.data.accepted(&socket, &self.habits.reach)?;
        Ok(Data { wire: Wire::new(socket, self.habits.silence)?, counted })
    }

    /// Begins a transfer to the server. It is not waited for its word: what refuses the transfer is heard while data goes out, or at the
    /// end.
    pub(crate) fn store(&mut self, command: Command) -> io::Result<Data> {
        self.settle()?;
        let data = match self.take_kept(Direction::Up) {
            Some(data) => data,
            None => self.connect_for_blocks()?,
        };
        self.send(&[command])?;
        Ok(data)
    }

    /// Makes the data connection of a transfer to the server, before it is known what that carries. Without it, the transfer makes its own.
    pub(crate) fn prepare_store(&mut self) {
        if let Ok(data) = self.connect_for_blocks() {
            self.kept = Some(Kept { direction: Direction::Up, data });
        }
    }

    fn connect_for_blocks(&mut self) -> io::Result<Data> {
        let address = match self.block_address.take() {
            Some(address) => address,
            None => self.passive_for_blocks()?,
        };
        let Habits { data, silence, .. } = &*self.habits;
        let ways = self.habits.blocks.reaches(&self.habits.reach, address.ip());
        let mut connected = Err(ErrorKind::NotConnected.into());
        for reach in ways {
            connected = data.connect(&[address], &reach, *silence);
            if connected.is_ok() {
                break;
            }
        }
        let (socket, counted) = connected.map_err(|error: io::Error| {
            let why = format!("the server's data connection cannot be reached: {error}");
            io::Error::new(ErrorKind::NotConnected, why)
        })?;
        Ok(Data { wire: Wire::new(socket, self.habits.silence)?, counted })
    }

    fn passive_for_blocks(&mut self) -> io::Result<SocketAddr> {
        let replies = self.ask_all(&self.block_questions())?;
        self.note_blocks(&replies)?;
        self.block_address.take().ok_or_else(|| invalid("an answer is missing"))
    }

    /// Ask where the server waits for blocks.
    pub(crate) fn block_questions(&self) -> [Command; 2] {
        let is_ipv6 = self.peer.ip().to_canonical().is_ipv6();
        [Command::plain("MODE E"), Command::plain(if is_ipv6 { "EPSV" } else { "PASV" })]
    }

    /// Takes the answers. The data goes to the host of the control connection, and to no other.
    pub(crate) fn note_blocks(&mut self, replies: &[Reply]) -> io::Result<()> {
        let [mode, passive] = replies else { return Err(invalid("an answer is missing")) };
        if !mode.is_success() {
            let why = format!("the server takes no blocks ({})", mode.shown());
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        self.is_extended = true;
        let port = match passive.code {
            229 => passive::extended(passive.text()),
            227 => passive::usual(passive.text()),
            _ => return Err(crate::refusal::refusal(passive)),
        };
        let port =
            port.ok_or_else(|| invalid(format!("the server tells no port for the data: {}", passive.shown())))?;
        self.block_address = Some(SocketAddr::new(self.peer.ip(), port));
        Ok(())
    }

    /// Looks whether the server has ended a transfer that still goes out.
    pub(crate) fn hear(&mut self, markers: &mut Markers) -> io::Result<()> {
        while self.wire.has_something() {
            let mut block = [0; READ_BYTES];
            match io::Read::read(&mut self.wire, &mut block)? {
                0 => {
                    self.is_broken = true;
                    return Err(io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the server closed the control connection",
                    ));
                }
                count => self.replies.push(&block[..count]),
            }
            while let Some(reply) = self.replies.take().inspect_err(|_| self.is_broken = true)? {
                if reply.is_preliminary() {
                    markers.add(Instant::now()).inspect_err(|_| self.is_broken = true)?;
                    continue;
                }
                // Replies that follow would be those of other commands.
                self.is_broken = true;
                return Err(match reply.is_success() {
                    true => invalid("the server confirmed data that it cannot have yet"),
                    false => file_refusal(&reply),
                });
            }
        }
        Ok(())
    }

    /// Ends a transfer: the server has sent, or taken, all of it. The data connection stays, where it `is_kept`.
    pub(crate) fn end_blocks(
        &mut self,
        data: Option<Data>,
        direction: Direction,
        is_kept: bool,
        markers: &mut Markers,
    ) -> io::Result<()> {
        loop {
            let reply = self.reply()?;
            if reply.is_preliminary() {
                markers.add(Instant::now()).inspect_err(|_| self.is_broken = true)?;
            } else if reply.is_success() {
                self.kept = data.filter(|_| is_kept).map(|data| Kept { direction, data });
                return Ok(());
            } else {
                return Err(file_refusal(&reply));
            }
        }
    }

    /// Asks while a transfer ends: the answers come behind its own.
    pub(crate) fn ask_behind(&mut self, commands: &[Command]) -> io::Result<()> {
        self.send(commands)
    }

    pub(crate) fn answers_behind(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        self.wire.be_patient(SUM_PATIENCE)?;
        let answers = (0..count).map(|_| self.final_reply()).collect::<io::Result<Vec<_>>>()?;
        self.be_as_patient_as_usual()?;
        Ok(answers)
    }

    /// The server broke the rules: nothing that it says on this connection is believed any more.
    pub(crate) fn break_off(&mut self) {
        self.is_broken = true;
    }
}

/// Says where the server is to connect.
pub(super) fn connects_to(address: SocketAddr) -> io::Result<Command> {
    let port = address.port();
    match address.ip() {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            Command::new("PORT", format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255).as_bytes())
        }
        IpAddr::V6(address) => Command::new("EPRT", format!("|2|{address}|{port}|").as_bytes()),
    }
}

/// Says over how many connections the server sends one file.
pub(super) fn parallelism(streams: u16) -> io::Result<Command> {
    Command::new("OPTS", format!("RETR Parallelism={streams},{streams},{streams};").as_bytes())
}

/// Binds a port of the range, or any.
fn bind(address: IpAddr, range: Option<(u16, u16)>) -> io::Result<TcpListener> {
    let Some((first, last)) = range else { return TcpListener::bind((address, 0)) };
    let mut bound = Err(ErrorKind::AddrInUse.into());
    // Several lanes look for one at the same time.
    for port in first..=last {
        bound = TcpListener::bind((address, port));
        if bound.is_ok() {
            break;
        }
    }
    bound.map_err(|error| {
        let why = format!("no port of GLOBUS_TCP_PORT_RANGE ({first} to {last}) is free: {error}");
        io::Error::new(ErrorKind::Unsupported, why)
    })
}

fn wait_for(listener: &TcpListener, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(unreached("it did not in time"));
    }
    let timeout = Timespec::try_from(left.max(Duration::from_millis(1))).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unreached(why: &str) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, format!("the server cannot connect to this host ({why})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_range_is_taken() {
        let home = IpAddr::from([127, 0, 0, 1]);
        let taken = TcpListener::bind((home, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let last = port.saturating_add(20);
        let bound = bind(home, Some((port, last))).unwrap().local_addr().unwrap().port();
        assert!((port + 1..=last).contains(&bound));
        let error = bind(home, Some((port, port))).unwrap_err();
        assert!(error.to_string().contains("GLOBUS_TCP_PORT_RANGE"), "{error}");
    }
}

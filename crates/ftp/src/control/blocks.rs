//! Transfers in extended block mode (MODE E of GridFTP).
//!
//! ```text
//! fetch:  MODE E, PORT, ERET -> the server connects to a port of this host -> blocks -> 226      who sends connects
//! store:  MODE E, PASV -> a connection to the server -> ESTO -> blocks -> markers, 226
//! then:   ERET, or ESTO, alone: the connection stays for the next transfer in its direction
//! ```
//! Of a striped server, `stripes.rs` adds the data nodes.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use super::data_port::{DataPort, unreached};
use super::named_hosts::named;
use super::{BlockData, Control, Data, Direction, Habits, Kept};
use crate::codec::command::Command;
use crate::codec::passive;
use crate::codec::reply::Reply;
use crate::limits::{LISTEN_PATIENCE, READ_BYTES, SUM_PATIENCE};
use crate::markers::Markers;
use crate::refusal::{file_refusal, invalid};
use crate::wire::Wire;

impl Control {
    /// Whether a data connection of an earlier transfer may carry the next one.
    pub(crate) fn has_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn take_kept(&mut self, direction: Direction) -> Option<BlockData> {
        let kept = self.kept.take()?;
        (kept.direction == direction && kept.data.all().all(|data| data.wire.is_quiet())).then_some(kept.data)
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
            let (port, address, at) = self.listen()?;
            (listener, number) = (Some(port), at);
            commands.push(connects_to(address)?);
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
            (Some(data), _) => Ok(data.carrier),
            (None, Some(mut port)) => {
                let patience = LISTEN_PATIENCE.min(self.habits.silence);
                let accepted = port.accept(patience).and_then(|socket| self.habits.accepted(socket));
                let accepted = accepted.map_err(|error| {
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
    pub(super) fn first_reply(&mut self) -> io::Result<Reply> {
        self.wire.be_patient(LISTEN_PATIENCE.min(self.habits.silence))?;
        let reply = self.reply();
        self.be_as_patient_as_usual()?;
        reply.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => unreached("it did not in time"),
            _ => error,
        })
    }

    /// Opens a port for connections of the server, and tells the address that the server is to be told of, and its number.
    pub(super) fn listen(&self) -> io::Result<(DataPort, SocketAddr, Option<usize>)> {
        let blocks = &self.habits.blocks;
        let (address, number) = blocks.waits_at(self.wire.local()?.ip().to_canonical());
        let opened = DataPort::open(address, blocks.ports, self.host(), blocks.data_nodes());
        let port = opened.map_err(|error| match number {
            // No interface may have this address any more.
            Some(_) => self.leave_out(number, io::Error::new(ErrorKind::Unsupported, error)),
            None => error,
        })?;
        let address = SocketAddr::new(address, port.port()?);
        Ok((port, address, number))
    }

    /// Begins a transfer to the server. It is not waited for its word: what refuses the transfer is heard while data goes out, or at the
    /// end.
    pub(crate) fn store(&mut self, command: Command) -> io::Result<BlockData> {
        self.settle()?;
        let data = match self.take_kept(Direction::Up) {
            Some(data) => data,
            None => self.connect_for_blocks()?,
        };
        self.send(&[command])?;
        let number = self.habits.blocks.next_stripe(data.all().count());
        Ok(data.by_node(number))
    }

    /// Makes the data connection of a transfer to the server, before it is known what that carries. Without it, the transfer makes its own.
    pub(crate) fn prepare_store(&mut self) {
        if let Ok(data) = self.connect_for_blocks() {
            self.kept = Some(Kept { direction: Direction::Up, data });
        }
    }

    fn connect_for_blocks(&mut self) -> io::Result<BlockData> {
        match self.connect_at_told_addresses() {
            // One data node that is out of reach, or may not be used, leaves the others idle.
            Err(error)
                if self.habits.blocks.is_striped()
                    && !self.is_broken
                    && matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::Unsupported) =>
            {
                self.habits.blocks.give_up_stripes(&error);
                self.connect_at_told_addresses()
            }
            connected => connected,
        }
    }

    fn connect_at_told_addresses(&mut self) -> io::Result<BlockData> {
        let mut addresses = std::mem::take(&mut self.block_addresses);
        if addresses.is_empty() {
            addresses = self.passive_for_blocks()?;
        }
        self.connect_to_all(&addresses)
    }

    fn connect_to_all(&self, addresses: &[SocketAddr]) -> io::Result<BlockData> {
        let mut all = addresses.iter().map(|address| self.connect_to(*address));
        let carrier = all.next().ok_or_else(|| invalid("the server tells no port for the data"))??;
        Ok(BlockData { carrier, others: all.collect::<io::Result<_>>()? })
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<Data> {
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

    fn passive_for_blocks(&mut self) -> io::Result<Vec<SocketAddr>> {
        let questions = self.block_questions();
        let replies = self.ask_all(&questions)?;
        self.note_blocks(&replies)?;
        Ok(std::mem::take(&mut self.block_addresses))
    }

    /// Ask where the server waits for blocks, on each of its data nodes.
    pub(crate) fn block_questions(&self) -> Vec<Command> {
        let mut questions = self.questions_of_one_stripe().to_vec();
        if self.habits.blocks.is_striped() {
            questions.push(Command::plain("SPAS"));
        }
        questions
    }

    /// Ask where the server waits for blocks, at one address.
    pub(super) fn questions_of_one_stripe(&self) -> [Command; 2] {
        let is_ipv6 = self.host().is_ipv6();
        [Command::plain("MODE E"), Command::plain(if is_ipv6 { "EPSV" } else { "PASV" })]
    }

    /// Takes the answers. The data goes to the hosts of the server, and to no other.
    pub(crate) fn note_blocks(&mut self, replies: &[Reply]) -> io::Result<()> {
        let [mode, passive, stripes @ ..] = replies else { return Err(invalid("an answer is missing")) };
        if !mode.is_success() {
            let why = format!("the server takes no blocks ({})", mode.shown());
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        self.is_extended = true;
        self.block_addresses = match stripes {
            [stripes] => self.data_nodes_of(stripes)?,
            _ => vec![self.passive_address(passive)?],
        };
        Ok(())
    }

    /// Where the server waits for data.
    pub(super) fn passive_address(&self, reply: &Reply) -> io::Result<SocketAddr> {
        let port = match reply.code {
            229 => passive::extended(reply.text()),
            227 => passive::usual(reply.text()),
            _ => return Err(crate::refusal::refusal(reply)),
        };
        let port = port.ok_or_else(|| invalid(format!("the server tells no port for the data: {}", reply.shown())))?;
        let told = passive::address(reply.text()).map(SocketAddr::V4).filter(|_| reply.code == 227);
        match told.filter(|told| told.ip() != self.host() && self.is_of_server(told.ip())) {
            Some(data_node) => named(data_node, self.host()),
            None => Ok(SocketAddr::new(self.peer.ip(), port)),
        }
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
        data: Option<BlockData>,
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
        IpAddr::V4(address) => Command::new("PORT", number_list(address, port).as_bytes()),
        IpAddr::V6(address) => Command::new("EPRT", format!("|2|{address}|{port}|").as_bytes()),
    }
}

/// An address of IPv4 as PORT, PASV and their like have it.
pub(super) fn number_list(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255)
}

/// Says over how many connections the server sends one file.
pub(super) fn parallelism(streams: u16) -> io::Result<Command> {
    Command::new("OPTS", format!("RETR Parallelism={streams},{streams},{streams};").as_bytes())
}

//! One control connection: commands go out, replies come back in their order.
//!
//! ```text
//! ask, ask_all                     questions; several are under way at the same time, where the server bears it
//! begin_transfer -> Data           EPSV or PASV, a connection to the same host, then REST and RETR, STOR, MLSD or LIST
//!   end_transfer                   the reply that ends it: only with that one all of the data is there
//! ask_ahead                        EPSV for the next transfer, whose answer is read when that one begins
//! ```

pub(crate) mod between;
mod blocks;
pub(crate) mod data_port;
mod named_hosts;
mod next_port;
mod stripes;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_foreign::{Counted, Reach, Sockets};

use crate::block_habits::{BlockHabits, Grid};
use crate::codec::command::Command;
use crate::codec::passive;
use crate::codec::reply::{Replies, Reply};
use crate::limits::{MAX_TRIES, QUESTION_BYTES_AT_ONCE, QUESTIONS_AT_ONCE, READ_BYTES};
use crate::refusal::refusal;
use crate::wire::{Tls, Wire};
use next_port::NextPort;

/// What control connections to one server share.
#[derive(Debug)]
pub(crate) struct Habits {
    /// EPSV is understood.
    extended_passive: AtomicBool,
    /// Several commands may be under way.
    several_at_once: AtomicBool,
    /// The port of the next transfer is asked for before it is needed.
    asks_ahead: AtomicBool,
    pub(crate) reach: Reach,
    pub(crate) silence: Duration,
    /// Data connections.
    pub(crate) data: Arc<Sockets>,
    pub(crate) blocks: BlockHabits,
}

impl Habits {
    /// Whether several commands may be under way, as far as is known.
    pub(crate) fn takes_several(&self) -> bool {
        self.several_at_once.load(Ordering::Relaxed)
    }

    /// Makes a data connection.
    fn connect_to(&self, address: SocketAddr) -> io::Result<(TcpStream, Counted)> {
        self.data.connect(&[address], &self.reach, self.silence)
    }

    /// A data connection that the server has made.
    pub(crate) fn accepted(&self, socket: TcpStream) -> io::Result<Data> {
        let counted = self.data.accepted(&socket, &self.reach)?;
        Ok(Data { wire: Wire::new(socket, self.silence)?, counted })
    }

    pub(crate) fn new(reach: Reach, silence: Duration, grid: Option<&Grid>) -> Habits {
        let [extended_passive, several_at_once, asks_ahead] = [true; 3].map(AtomicBool::new);
        let blocks = BlockHabits::new(grid);
        Habits { extended_passive, several_at_once, asks_ahead, reach, silence, data: Sockets::new(), blocks }
    }
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Control {
    wire: Wire,
    replies: Replies,
    habits: Arc<Habits>,
    peer: SocketAddr,
    _counted: Option<Counted>,
    /// TLS of the data connections.
    data_tls: Option<Tls>,
    /// Replies that are still to come, in their order.
    owed: VecDeque<Owed>,
    /// The server waits here for the next data connection.
    port: Option<NextPort>,
    /// The greeting of a server that serves nobody.
    refused: Option<Reply>,
    /// The server was told that names are UTF-8.
    pub(crate) says_utf8: bool,
    /// Nothing can be asked any more.
    is_broken: bool,
    /// It is in extended block mode.
    is_extended: bool,
    /// The connections over which the server sends one file in blocks.
    streams: u16,
    /// The data connection of the last transfer in blocks.
    kept: Option<Kept>,
    /// The server waits here for blocks, at one address of each data node.
    block_addresses: Vec<SocketAddr>,
}

/// A data connection that waits for the next transfer in its direction.
#[derive(Debug)]
struct Kept {
    direction: Direction,
    data: BlockData,
}

/// The data connections of one transfer in blocks.
#[derive(Debug)]
pub(crate) struct BlockData {
    pub(crate) carrier: Data,
    /// Those to the other data nodes of a striped server: they hear only the end.
    pub(crate) others: Vec<Data>,
}

impl BlockData {
    pub(crate) fn of_one(carrier: Data) -> BlockData {
        BlockData { carrier, others: Vec::new() }
    }

    /// The connection to the data node with this number carries the next transfer.
    fn by_node(mut self, number: usize) -> BlockData {
        if let Some(other) = number.checked_sub(1).and_then(|at| self.others.get_mut(at)) {
            std::mem::swap(other, &mut self.carrier);
        }
        self
    }

    fn all(&self) -> impl Iterator<Item = &Data> {
        std::iter::once(&self.carrier).chain(&self.others)
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

/// A data connection.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) wire: Wire,
    /// Says that it sends, where it does.
    pub(crate) counted: Counted,
}

/// A reply that is still to come, to something that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// The first word of the server.
    Greeting,
    /// To a transfer to the server that was given up.
    Upload,
    /// To a transfer to here that was given up, once it had begun.
    Download,
    /// To EPSV.
    Port,
    /// To a command whose reply does not matter.
    Any,
}

/// The reply that begins a transfer.
#[derive(Debug)]
pub(crate) enum Begun {
    Here,
    /// The server does not begin where it was asked to: this transfer is of the whole file.
    FromTheStart,
}

impl Control {
    pub(crate) fn new(wire: Wire, habits: &Arc<Habits>, counted: Option<Counted>) -> io::Result<Control> {
        let peer = wire.peer()?;
        let habits = Arc::clone(habits);
        Ok(Control {
            wire,
            replies: Replies::default(),
            habits,
            peer,
            _counted: counted,
            data_tls: None,
            owed: VecDeque::from([Owed::Greeting]),
            port: None,
            refused: None,
            says_utf8: false,
            is_broken: false,
            is_extended: false,
            streams: 1,
            kept: None,
            block_addresses: Vec::new(),
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// A transfer that was given up has not ended yet.
    pub(crate) fn owes_end(&self) -> bool {
        self.owed.iter().any(|owed| matches!(owed, Owed::Upload | Owed::Download))
    }

    /// The server has not closed it while nobody asked.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_broken && (!self.owed.is_empty() || (self.replies.is_empty() && self.wire.is_quiet()))
    }

    /// From now on TLS. What came before in clear could be of somebody on the way.
    pub(crate) fn secure(&mut self, tls: &Tls) -> io::Result<()> {
        if !self.replies.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "the server sent something in clear before TLS began"));
        }
        self.wire.secure(tls)
    }

    /// The greeting, where the server serves nobody for now.
    pub(crate) fn refused(&self) -> Option<&Reply> {
        self.refused.as_ref()
    }

    pub(crate) fn data_tls(&mut self, tls: Option<Tls>) {
        self.data_tls = tls;
    }

    /// The next reply. A server that closes the connection says 421.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let reply = self.read_reply();
        self.is_broken |= reply.as_ref().map_or(true, |reply| reply.code == 421);
        reply
    }

    fn read_reply(&mut self) -> io::Result<Reply> {
        let mut block = [0; READ_BYTES];
        loop {
            if let Some(reply) = self.replies.take()? {
                return Ok(reply);
            }
            match self.wire.read(&mut block)? {
                0 => {
                    return Err(io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the server closed the control connection",
                    ));
                }
                count => self.replies.push(&block[..count]),
            }
        }
    }

    /// The reply that ends a command: preliminary ones are passed over, a few of them.
    pub(crate) fn final_reply(&mut self) -> io::Result<Reply> {
        for _ in 0..MAX_PRELIMINARY {
            let reply = self.reply()?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        self.is_broken = true;
        Err(endless())
    }

    fn send(&mut self, commands: &[Command]) -> io::Result<()> {
        let bytes = zeroize::Zeroizing::new(
            commands.iter().flat_map(|command| command.bytes().iter().copied()).collect::<Vec<u8>>(),
        );
        let sent = self.wire.write_all(&bytes).and_then(|()| self.wire.flush());
        self.is_broken |= sent.is_err();
        sent
    }

    /// Reads the replies that are owed.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.read_owed()?;
        if !self.replies.is_empty() {
            // A reply to nothing would be taken for that of the next command.
            self.is_broken = true;
            return Err(io::Error::new(
                ErrorKind::ConnectionAborted,
                "the server said something that nobody asked for",
            ));
        }
        Ok(())
    }

    /// Before a transfer has ended, some servers refuse commands. Other replies that are owed may come with those to the next commands.
    pub(crate) fn settle_transfers(&mut self) -> io::Result<()> {
        match self.owes_end() || self.owed.is_empty() || !self.habits.takes_several() {
            true => self.settle(),
            false => Ok(()),
        }
    }

    fn read_owed(&mut self) -> io::Result<()> {
        while !self.owed.is_empty() {
            self.read_one_owed()?;
        }
        Ok(())
    }

    fn read_one_owed(&mut self) -> io::Result<()> {
        let reply = match self.owed.front() {
            Some(Owed::Download) => self.end_of_cut()?,
            _ => self.final_reply()?,
        };
        match self.owed.pop_front() {
            Some(Owed::Port) => self.note_port(&reply),
            Some(Owed::Greeting) if !reply.is_success() => {
                self.is_broken = true;
                let error = refusal(&reply);
                self.refused = Some(reply);
                return Err(error);
            }
            Some(Owed::Greeting | Owed::Upload | Owed::Download | Owed::Any) | None => {}
        }
        Ok(())
    }

    /// Notes the answer to EPSV that was asked ahead.
    pub(crate) fn note_port(&mut self, reply: &Reply) {
        let port = passive::extended(reply.text()).filter(|_| reply.code == 229);
        let known = self.port.take().filter(|known| Some(known.port) == port);
        self.port = known.or(port.map(NextPort::new));
        if port.is_none() {
            // It is asked when a transfer begins, and its answer then counts.
            self.habits.asks_ahead.store(false, Ordering::Relaxed);
            if reply.is_unknown() && self.peer.ip().to_canonical().is_ipv4() {
                self.habits.extended_passive.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Connects to the port that the server has just told, while the rest of what it was asked is heard.
    pub(crate) fn connect_ahead(&mut self, reply: &Reply) {
        if self.habits.blocks.has_data_nodes() {
            return;
        }
        let port = passive::extended(reply.text()).filter(|_| reply.code == 229);
        self.port = port.map(|port| {
            let (habits, address) = (Arc::clone(&self.habits), SocketAddr::new(self.peer.ip(), port));
            NextPort::connecting(port, move || habits.connect_to(address))
        });
    }

    /// Whether the port of a transfer is asked for before it is needed.
    pub(crate) fn may_ask_ahead(&self, lists_next: bool) -> bool {
        let Habits { extended_passive, asks_ahead, blocks, .. } = &*self.habits;
        // A transfer in blocks mostly needs no further port.
        (lists_next || !blocks.is_grid)
            && extended_passive.load(Ordering::Relaxed)
            && asks_ahead.load(Ordering::Relaxed)
            && self.habits.takes_several()
            && !blocks.has_data_nodes()
    }

    /// Asks for the port of the next transfer, where the server bears several commands at once: so that a transfer begins a round trip
    /// earlier. No transfer is under way any more.
    pub(crate) fn ask_ahead(&mut self) -> io::Result<()> {
        if self.may_ask_ahead(false) && !self.owed.contains(&Owed::Port) {
            self.port = None;
            self.send(&[Command::plain("EPSV")])?;
            self.owed.push_back(Owed::Port);
        }
        Ok(())
    }

    /// Sends a command whose reply does not matter.
    pub(crate) fn say(&mut self, command: Command) -> io::Result<()> {
        if !self.habits.takes_several() {
            return self.ask(command).map(drop);
        }
        self.send(&[command])?;
        self.owed.push_back(Owed::Any);
        Ok(())
    }

    /// Asks, and waits for the reply.
    pub(crate) fn ask(&mut self, command: Command) -> io::Result<Reply> {
        self.settle_transfers()?;
        self.send(&[command])?;
        self.answer()
    }

    /// The reply to the last command.
    pub(crate) fn answer(&mut self) -> io::Result<Reply> {
        self.read_owed()?;
        self.final_reply()
    }

    /// Asks several times. The replies come in the order of the questions.
    pub(crate) fn ask_all(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        let (replies, cut) = self.ask_some(commands);
        cut.map_or(Ok(replies), Err)
    }

    /// Asks several times. What the server has answered counts although it then closed the connection.
    pub(crate) fn ask_some(&mut self, commands: &[Command]) -> (Vec<Reply>, Option<io::Error>) {
        self.ask_hearing(commands, &mut |_, _, _| {})
    }

    /// [`Self::ask_some`]; each reply and its number is heard as it comes.
    pub(crate) fn ask_hearing(
        &mut self,
        commands: &[Command],
        hear: &mut dyn FnMut(&mut Control, usize, &Reply),
    ) -> (Vec<Reply>, Option<io::Error>) {
        let mut replies = Vec::with_capacity(commands.len());
        let cut = self.ask_each(commands, &mut replies, hear).err();
        (replies, cut)
    }

    fn ask_each(
        &mut self,
        commands: &[Command],
        replies: &mut Vec<Reply>,
        hear: &mut dyn FnMut(&mut Control, usize, &Reply),
    ) -> io::Result<()> {
        self.settle_transfers()?;
        let (mut asked, mut bytes_asked) = (0, 0);
        while replies.len() < commands.len() {
            let begins_at = asked;
            let most = if self.habits.takes_several() { QUESTIONS_AT_ONCE } else { 1 };
            while let Some(command) = commands.get(asked)
                && asked - replies.len() < most
                && (asked == replies.len() || bytes_asked + command.bytes().len() <= QUESTION_BYTES_AT_ONCE)
            {
                bytes_asked += command.bytes().len();
                asked += 1;
            }
            if asked > begins_at {
                self.send(&commands[begins_at..asked])?;
            }
            let under_way = asked - replies.len();
            // Half of them are waited for, and then others follow: so that the server always has some, and few packets carry many.
            for _ in 0..under_way.div_ceil(2) {
                let answer = self.answer();
                // Some servers throw away what came with a command: they are asked again, one by one.
                if answer.is_err() && under_way > 1 && self.refused.is_none() {
                    self.habits.several_at_once.store(false, Ordering::Relaxed);
                }
                let reply = answer?;
                bytes_asked -= commands[replies.len()].bytes().len();
                hear(self, replies.len(), &reply);
                replies.push(reply);
            }
        }
        Ok(())
    }

    /// The address at which the server waits for a data connection.
    fn passive(&mut self) -> io::Result<SocketAddr> {
        // The data nodes of a grid have other addresses, which EPSV does not tell.
        let has_data_nodes = self.habits.blocks.has_data_nodes();
        if let Some(asked_ahead) = self.port.take().filter(|next| !has_data_nodes && next.is_open()) {
            return Ok(SocketAddr::new(self.peer.ip(), asked_ahead.port));
        }
        if self.habits.extended_passive.load(Ordering::Relaxed) && !has_data_nodes {
            let reply = self.ask(Command::plain("EPSV"))?;
            if reply.code == 229 {
                return self.passive_address(&reply);
            }
            if self.peer.ip().to_canonical().is_ipv6() || !reply.is_unknown() {
                return Err(refusal(&reply));
            }
            self.habits.extended_passive.store(false, Ordering::Relaxed);
        }
        let reply = self.ask(Command::plain("PASV"))?;
        match reply.code {
            227 => self.passive_address(&reply),
            _ => Err(refusal(&reply)),
        }
    }

    /// Opens a data connection. The data comes from the hosts of the server, and from no other.
    pub(crate) fn connect_data(&mut self) -> io::Result<Data> {
        self.settle_transfers()?;
        while self.owed.contains(&Owed::Port) {
            self.read_one_owed()?;
        }
        if self.is_extended {
            self.kept = None;
            let reply = self.ask(Command::plain("MODE S"))?;
            if !reply.is_success() {
                return Err(refusal(&reply));
            }
            self.is_extended = false;
        }
        let mut tries = 0;
        loop {
            let was_asked_ahead = self.port.is_some();
            let connected = match self.port.as_mut().and_then(NextPort::connected) {
                Some(connected) => {
                    self.port = None;
                    connected
                }
                None => {
                    let address = self.passive()?;
                    self.habits.connect_to(address)
                }
            };
            match connected {
                Ok((socket, counted)) => {
                    let mut wire = Wire::new(socket, self.habits.silence)?;
                    if let Some(tls) = &self.data_tls {
                        wire = wire.secured(tls)?;
                    }
                    return Ok(Data { wire, counted });
                }
                // A port that was asked for ahead may be closed by now.
                Err(_) if was_asked_ahead => {}
                // The port that EPSV tells may be closed where a firewall follows PASV alone.
                Err(error) => {
                    tries += 1;
                    if tries >= MAX_DATA_TRIES {
                        let why = format!("the server's data connection cannot be reached: {error}");
                        return Err(io::Error::new(ErrorKind::NotConnected, why));
                    }
                    if self.peer.ip().to_canonical().is_ipv4() {
                        self.habits.extended_passive.store(false, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Begins a transfer to here: from `offset` on, if it is more than 0.
    pub(crate) fn begin_download(&mut self, command: Command, offset: u64) -> io::Result<(Data, Begun)> {
        let data = self.connect_data()?;
        let rest = (offset > 0).then(|| Command::new("REST", offset.to_string().as_bytes())).transpose()?;
        let mut begun = Begun::Here;
        match rest {
            Some(rest) if self.habits.takes_several() => {
                self.send(&[rest, command])?;
                self.read_owed()?;
                if !self.reply()?.wants_more() {
                    begun = Begun::FromTheStart;
                }
            }
            Some(rest) => {
                if !self.ask(rest)?.wants_more() {
                    begun = Begun::FromTheStart;
                }
                self.send(&[command])?;
            }
            None => self.send(&[command])?,
        }
        self.read_owed()?;
        let reply = self.reply()?;
        match reply.code {
            125 | 150 => Ok((data, begun)),
            _ if reply.is_preliminary() => {
                self.is_broken = true;
                Err(refusal(&reply))
            }
            _ => Err(refusal(&reply)),
        }
    }

    /// Begins a transfer to the server, from `offset` on. It is not waited for its word: what refuses the transfer closes the data
    /// connection, and the end tells why. Only REST has to be taken before: without it the server would empty the file.
    pub(crate) fn begin_upload(&mut self, command: Command, offset: u64) -> io::Result<Data> {
        let data = self.connect_data()?;
        if offset > 0 {
            let reply = self.ask(Command::new("REST", offset.to_string().as_bytes())?)?;
            if !reply.wants_more() {
                return Err(refusal(&reply));
            }
        }
        self.send(&[command])?;
        Ok(data)
    }

    /// Begins a transfer to the server over a data connection that is there, without a wait: for servers that were found to write at the byte
    /// of REST. True: the reply to REST is still to come.
    pub(crate) fn begin_range(&mut self, command: Command, offset: u64) -> io::Result<bool> {
        let rest = Command::new("REST", offset.to_string().as_bytes())?;
        if self.habits.takes_several() {
            self.send(&[rest, command])?;
            return Ok(true);
        }
        let reply = self.ask(rest)?;
        if !reply.wants_more() {
            return Err(refusal(&reply));
        }
        self.send(&[command])?;
        Ok(false)
    }

    /// The next reply that is not owed.
    pub(crate) fn next_reply(&mut self) -> io::Result<Reply> {
        self.read_owed()?;
        self.reply()
    }

    /// Ends a transfer: the server has sent, or taken, all of it.
    pub(crate) fn end_transfer(&mut self, asks_ahead: bool) -> io::Result<()> {
        if asks_ahead {
            // The server has closed the data connection, so that this comes after the end.
            self.ask_ahead()?;
        }
        let reply = self.final_reply()?;
        if reply.is_success() { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// The reply that ends a download whose data connection was closed here. pure-ftpd says its first word again, and nothing else.
    fn end_of_cut(&mut self) -> io::Result<Reply> {
        for _ in 0..MAX_PRELIMINARY {
            let reply = self.reply()?;
            if !reply.is_preliminary() || matches!(reply.code, 125 | 150) {
                return Ok(reply);
            }
        }
        self.is_broken = true;
        Err(endless())
    }

    /// A transfer was given up by closing its data connection: its reply comes some time.
    pub(crate) fn owe(&mut self, direction: Direction) {
        self.owed.push_back(match direction {
            Direction::Up => Owed::Upload,
            Direction::Down => Owed::Download,
        });
    }

    /// The reply to a command in front of such a transfer comes, too.
    pub(crate) fn owe_any(&mut self) {
        self.owed.push_back(Owed::Any);
    }

    pub(crate) fn be_patient(&self, silence: Duration) -> io::Result<()> {
        self.wire.be_patient(silence)
    }

    pub(crate) fn be_as_patient_as_usual(&self) -> io::Result<()> {
        self.wire.be_patient(self.habits.silence)
    }

    /// Says goodbye, without waiting.
    pub(crate) fn quit(mut self) {
        if !self.is_broken {
            let _ = self.send(&[Command::plain("QUIT")]);
        }
    }
}

/// Real servers send one preliminary reply, those with performance markers some more.
const MAX_PRELIMINARY: u32 = 64;

/// Ports of one transfer that are tried.
const MAX_DATA_TRIES: u32 = MAX_TRIES / 2;

fn endless() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the server announces replies without an end")
}

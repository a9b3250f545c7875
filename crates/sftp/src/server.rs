//! A server: what it can, and its operations, each of which waits for its answer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_sys::file_system::Space;
use rustix::io::Errno;

use crate::codec::{Attributes, Data, Greeting, Input, Name, Reply, Request, Status};
use crate::connection::{ConnectError, Connection, Recipient, Terms, Ticket};
use crate::limits::{
    FLUSH_PATIENCE, MAX_PACKET_BYTES, MAX_PATH_BYTES, MAX_SHORT_REPLY_BYTES, MAX_TRANSFER_BYTES, READDIRS_AHEAD,
    USUAL_TRANSFER_BYTES,
};
use crate::pipe::Pipe;
use crate::place_in_line::Place;

/// What a server can beyond version 3, and what it takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `posix-rename@openssh.com`: renames onto a file.
    pub posix_rename: bool,
    /// `hardlink@openssh.com`
    pub hardlink: bool,
    /// `fsync@openssh.com`
    pub fsync: bool,
    /// `lsetstat@openssh.com`: sets attributes of a link.
    pub lsetstat: bool,
    /// `statvfs@openssh.com`
    pub statvfs: bool,
    /// Bytes of one READ.
    pub read_bytes: usize,
    /// Bytes of one WRITE.
    pub write_bytes: usize,
}

/// A server behind one connection.
pub struct Server {
    connection: Connection,
    features: Features,
    patience: Duration,
    place: Arc<Place>,
    /// How long the first question took, if there was one: a round trip, and the server's own time.
    answered_in: Option<Duration>,
}

/// A file or directory that is open at a server. It is closed when it is dropped.
pub struct Handle {
    server: Arc<Server>,
    handle: Vec<u8>,
}

impl Server {
    /// Greets the server behind a pipe. It may be silent for `patience`, while it owes an answer.
    ///
    /// # Errors
    /// What answers is no server, or of another version, or nothing answers.
    pub fn meet(pipe: Pipe, patience: Duration) -> Result<Arc<Self>, ConnectError> {
        Self::meet_again(pipe, patience, || None)
    }

    /// [`Server::meet`], without the question for limits if the server offers what another one of its host does, as far as that is known
    /// once it is greeted.
    pub(crate) fn meet_again(
        pipe: Pipe,
        patience: Duration,
        like: impl FnOnce() -> Option<Features>,
    ) -> Result<Arc<Self>, ConnectError> {
        let (connection, greeting) = Connection::open(pipe, patience)?;
        let (features, has_limits) = Features::of(&greeting);
        let mut server = Self { connection, features, patience, place: Arc::default(), answered_in: None };
        let with_limits_of =
            |like: &Features| Features { read_bytes: like.read_bytes, write_bytes: like.write_bytes, ..features };
        if let Some(like) = like().filter(|like| *like == with_limits_of(like)) {
            server.features = like;
        } else if has_limits {
            let asked = Instant::now();
            let limits = server.ask(&Request::Limits, MAX_SHORT_REPLY_BYTES)?.wait()?;
            server.answered_in = Some(asked.elapsed());
            server.features.keep_to(&limits);
        }
        Ok(Arc::new(server))
    }

    /// What it can.
    pub fn features(&self) -> Features {
        self.features
    }

    /// How long its first answer took. `None`: nothing was asked.
    pub fn answered_in(&self) -> Option<Duration> {
        self.answered_in
    }

    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(crate) fn bytes_in_flight(&self) -> usize {
        self.connection.bytes_in_flight()
    }

    /// Whether its connection is lost.
    pub fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }

    fn terms(&self, longest_reply_bytes: usize) -> Terms {
        Terms { bytes: 0, longest_reply_bytes, patience: self.patience, waits: true }
    }

    fn ask(&self, request: &Request<'_>, longest_reply_bytes: usize) -> io::Result<Ticket> {
        self.connection.ask(request, self.terms(longest_reply_bytes))
    }

    fn broke<T>(&self, why: &'static str) -> io::Result<T> {
        self.connection.break_off(&format!("the server breaks the protocol: {why}"));
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    fn status(&self, request: &Request<'_>) -> io::Result<()> {
        self.to_status(self.ask(request, MAX_SHORT_REPLY_BYTES)?)
    }

    /// Waits for the status of what was asked for.
    pub(crate) fn done(&self, ticket: Ticket) -> io::Result<()> {
        self.to_status(ticket)
    }

    fn to_status(&self, ticket: Ticket) -> io::Result<()> {
        match ticket.wait()? {
            Reply::Status(status) => status.ok(),
            _ => self.broke("it answers a request with something else than its status"),
        }
    }

    fn attributes(&self, request: &Request<'_>) -> io::Result<Attributes> {
        self.to_attributes(self.ask(request, MAX_SHORT_REPLY_BYTES)?)
    }

    fn to_attributes(&self, ticket: Ticket) -> io::Result<Attributes> {
        match ticket.wait()? {
            Reply::Attributes(attributes) => Ok(attributes),
            Reply::Status(Status { code: Status::OK, .. }) => {
                self.broke("it answers with a success, and no attributes")
            }
            Reply::Status(status) => Err(status.error()),
            _ => self.broke("it answers with something else than attributes"),
        }
    }

    /// The attributes of an entry itself.
    pub fn lstat(&self, path: &[u8]) -> io::Result<Attributes> {
        check_length(path)?;
        self.attributes(&Request::Lstat { path })
    }

    /// [`Server::lstat`], to wait for it later by [`Server::looked`].
    pub(crate) fn ask_lstat(&self, path: &[u8]) -> io::Result<Ticket> {
        check_length(path)?;
        self.ask(&Request::Lstat { path }, MAX_SHORT_REPLY_BYTES)
    }

    /// Waits for attributes that were asked for.
    pub(crate) fn looked(&self, ticket: Ticket) -> io::Result<Attributes> {
        self.to_attributes(ticket)
    }

    /// The attributes of the entry to which links lead.
    pub fn stat(&self, path: &[u8]) -> io::Result<Attributes> {
        check_length(path)?;
        self.attributes(&Request::Stat { path })
    }

    /// Sets attributes, through links.
    pub fn setstat(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Setstat { path, attributes })
    }

    /// Sets attributes of an entry itself; only with the feature.
    pub fn lsetstat(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Lsetstat { path, attributes })
    }

    /// Removes a file or link.
    pub fn remove(&self, path: &[u8]) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Remove { path })
    }

    /// Removes files and links, with all requests under way at the same time.
    pub fn remove_all(&self, paths: impl Iterator<Item = Vec<u8>>) -> Vec<io::Result<()>> {
        let ask = |path: Vec<u8>| {
            check_length(&path)?;
            self.ask(&Request::Remove { path: &path }, MAX_SHORT_REPLY_BYTES)
        };
        let asked: Vec<io::Result<Ticket>> = paths.map(ask).collect();
        asked.into_iter().map(|ticket| self.to_status(ticket?)).collect()
    }

    /// [`Server::remove`], to wait for it later by [`Server::done`].
    pub(crate) fn ask_remove(&self, path: &[u8]) -> io::Result<Ticket> {
        check_length(path)?;
        self.ask(&Request::Remove { path }, MAX_SHORT_REPLY_BYTES)
    }

    /// [`Server::remove`], whose outcome nobody waits for.
    pub fn remove_some_time(&self, path: &[u8]) {
        if check_length(path).is_ok() {
            self.forget(&Request::Remove { path });
        }
    }

    /// Sends a request that does not wait for room, and whose answer is of no use.
    fn forget(&self, request: &Request<'_>) {
        let terms = Terms { waits: false, ..self.terms(MAX_SHORT_REPLY_BYTES) };
        // A lost connection has nothing to close.
        let _ = self.connection.send(request, terms, Box::new(drop));
    }

    /// Makes a directory.
    pub fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Mkdir { path, mode })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Rmdir { path })
    }

    /// Renames; fails where something stands at `to`, at most servers.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        check_length(to)?;
        self.status(&Request::Rename { from, to })
    }

    /// Renames as rename(2); only with the feature.
    pub fn posix_rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        check_length(to)?;
        self.status(&Request::PosixRename { from, to })
    }

    /// Gives a file another name; only with the feature.
    pub fn hardlink(&self, existing: &[u8], path: &[u8]) -> io::Result<()> {
        check_length(path)?;
        self.status(&Request::Hardlink { existing, path })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, leads_to: &[u8], path: &[u8]) -> io::Result<()> {
        check_length(path)?;
        check_length(leads_to)?;
        self.status(&Request::Symlink { leads_to, path })
    }

    /// Where a symbolic link leads.
    pub fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        check_length(path)?;
        match self.ask(&Request::Readlink { path }, MAX_SHORT_REPLY_BYTES)?.wait()? {
            Reply::Names(mut names) if names.len() == 1 => Ok(names.remove(0).name),
            Reply::Status(status) if status.code != Status::OK => Err(status.error()),
            _ => self.broke("it does not tell one place to which a link leads"),
        }
    }

    /// The space of the file system at a path; `None`: the server does not tell.
    pub fn space(&self, path: &[u8]) -> io::Result<Option<Space>> {
        check_length(path)?;
        if !self.features.statvfs {
            return Ok(None);
        }
        match self.ask(&Request::Statvfs { path }, MAX_SHORT_REPLY_BYTES)?.wait()? {
            Reply::Extended(answer) => Ok(space(&answer)),
            Reply::Status(status) if status.code != Status::OK => Err(status.error()),
            _ => self.broke("it answers with something else than the space of a file system"),
        }
    }

    /// Asks for the space at a path, as [`Server::space`] does, and does not wait. `told` must not wait either.
    pub(crate) fn ask_space(&self, path: &[u8], told: impl FnOnce(Option<Space>) + Send + 'static) -> io::Result<()> {
        check_length(path)?;
        if !self.features.statvfs {
            return Ok(());
        }
        let recipient = move |reply| match reply {
            Ok(Reply::Extended(answer)) => told(space(&answer)),
            _ => told(None),
        };
        self.connection.send(&Request::Statvfs { path }, self.terms(MAX_SHORT_REPLY_BYTES), Box::new(recipient))
    }

    /// Opens a file.
    pub fn open(self: &Arc<Self>, path: &[u8], flags: u32, mode: Option<u32>) -> io::Result<Handle> {
        check_length(path)?;
        self.to_handle(self.ask(&Request::Open { path, flags, mode }, MAX_SHORT_REPLY_BYTES)?)
    }

    /// Opens a directory for listing.
    pub fn opendir(self: &Arc<Self>, path: &[u8]) -> io::Result<Handle> {
        check_length(path)?;
        self.to_handle(self.ask(&Request::Opendir { path }, MAX_SHORT_REPLY_BYTES)?)
    }

    fn to_handle(self: &Arc<Self>, ticket: Ticket) -> io::Result<Handle> {
        match ticket.wait()? {
            Reply::Handle(handle) => Ok(Handle { server: Arc::clone(self), handle }),
            Reply::Status(status) if status.code != Status::OK => Err(status.error()),
            _ => self.broke("it opens a file, and gives no handle"),
        }
    }
}

impl Handle {
    /// The server at which it is open.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The attributes of the open file.
    pub fn fstat(&self) -> io::Result<Attributes> {
        self.server.attributes(&Request::Fstat { handle: &self.handle })
    }

    /// Asks for the attributes, to take them later by [`Handle::attributes`].
    pub(crate) fn ask_fstat(&self) -> io::Result<Ticket> {
        self.server.ask(&Request::Fstat { handle: &self.handle }, MAX_SHORT_REPLY_BYTES)
    }

    /// Waits for attributes that were asked for.
    pub(crate) fn attributes(&self, ticket: Ticket) -> io::Result<Attributes> {
        self.server.to_attributes(ticket)
    }

    /// Sets attributes of the open file.
    pub fn fsetstat(&self, attributes: &Attributes) -> io::Result<()> {
        self.server.status(&Request::Fsetstat { handle: &self.handle, attributes })
    }

    /// [`Handle::fsetstat`], to wait for it later.
    pub(crate) fn ask_fsetstat(&self, attributes: &Attributes) -> io::Result<Ticket> {
        self.server.ask(&Request::Fsetstat { handle: &self.handle, attributes }, MAX_SHORT_REPLY_BYTES)
    }

    /// Waits until the file is on the medium; only with the feature.
    pub fn fsync(&self) -> io::Result<()> {
        self.server.to_status(self.ask_fsync()?)
    }

    /// [`Handle::fsync`], to wait for it later.
    pub(crate) fn ask_fsync(&self) -> io::Result<Ticket> {
        let patience = self.server.patience.max(FLUSH_PATIENCE);
        let terms = Terms { patience, ..self.server.terms(MAX_SHORT_REPLY_BYTES) };
        self.server.connection.ask(&Request::Fsync { handle: &self.handle }, terms)
    }

    /// Asks for up to `bytes` bytes, to take them later by [`Handle::data`].
    pub(crate) fn ask_data(&self, offset: u64, bytes: usize) -> io::Result<Ticket> {
        let length = u32::try_from(bytes).expect("callers ask for MAX_TRANSFER_BYTES at most");
        let request = Request::Read { handle: &self.handle, offset, bytes: length };
        // Kind, number and length stand in front. A status may come instead.
        let longest_reply_bytes = (bytes + 9).max(MAX_SHORT_REPLY_BYTES);
        self.server.connection.ask(&request, Terms { bytes, ..self.server.terms(longest_reply_bytes) })
    }

    /// Waits for data that was asked for. `None`: the file ends there.
    pub(crate) fn data(&self, ticket: Ticket, bytes: usize) -> io::Result<Option<Data>> {
        match ticket.wait()? {
            Reply::Data(data) if data.bytes().is_empty() => self.server.broke("it reads no bytes, and no end"),
            Reply::Data(data) if data.bytes().len() > bytes => self.server.broke("it reads more than was asked for"),
            Reply::Data(data) => Ok(Some(data)),
            Reply::Status(Status { code: Status::EOF, .. }) => Ok(None),
            Reply::Status(status) if status.code != Status::OK => Err(status.error()),
            _ => self.server.broke("it answers a READ with something else than data"),
        }
    }

    /// Fills `buffer` from `offset` on; fewer bytes mean the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.server.features.read_bytes;
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = (buffer.len() - filled).min(most);
            let Some(data) = self.data(self.ask_data(offset + filled as u64, bytes)?, bytes)? else { break };
            let data = data.bytes();
            buffer[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        }
        Ok(filled)
    }

    /// [`Handle::read_at`] with all its requests under way at the same time.
    pub fn read_pipelined(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.server.features.read_bytes;
        let mut asked = std::collections::VecDeque::new();
        for begin in (0..buffer.len()).step_by(most) {
            let bytes = (buffer.len() - begin).min(most);
            asked.push_back((begin, bytes, self.ask_data(offset + begin as u64, bytes)?));
        }
        let mut filled = 0;
        while let Some((begin, bytes, ticket)) = asked.pop_front() {
            let Some(data) = self.data(ticket, bytes)? else { break };
            let data = data.bytes();
            buffer[begin..begin + data.len()].copy_from_slice(data);
            filled = begin + data.len();
            if data.len() < bytes {
                // A server may send less than was asked for, also before the end.
                let end = begin + bytes;
                filled += self.read_at(&mut buffer[filled..end], offset + filled as u64)?;
                if filled < end {
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// Renames the entry at `from` to a name that nothing has. Returns the attributes of the open file, and those of the entry that was
    /// renamed. All is asked for at once.
    pub(crate) fn renamed(&self, from: &[u8], to: &[u8]) -> io::Result<(Attributes, Attributes)> {
        check_length(to)?;
        // Some servers find an open file by the name under which it was opened.
        let open = self.server.ask(&Request::Fstat { handle: &self.handle }, MAX_SHORT_REPLY_BYTES)?;
        // OpenSSH makes a link and removes the old name for RENAME, and has one call for the other.
        let rename = match self.server.features.posix_rename {
            true => Request::PosixRename { from, to },
            false => Request::Rename { from, to },
        };
        let renamed = self.server.ask(&rename, MAX_SHORT_REPLY_BYTES)?;
        let named = self.server.attributes(&Request::Lstat { path: to });
        let open = self.server.to_attributes(open);
        self.server.to_status(renamed)?;
        // A server may have looked before it renamed.
        let named = named.or_else(|_| self.server.attributes(&Request::Lstat { path: to }))?;
        Ok((open?, named))
    }

    /// Sends bytes to write. Its recipient gets the outcome.
    pub(crate) fn send_data(&self, offset: u64, data: &[u8], recipient: Recipient) -> io::Result<()> {
        let request = Request::Write { handle: &self.handle, offset, data };
        let terms = Terms { bytes: data.len(), ..self.server.terms(MAX_SHORT_REPLY_BYTES) };
        self.server.connection.send(&request, terms, recipient)
    }

    /// Writes bytes, and waits for them.
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.ask_writes(data, offset)?.into_iter().try_for_each(|ticket| self.server.to_status(ticket))
    }

    /// Writes bytes and flushes them, all asked for at once: a server takes requests for one file in their order (draft, 6.1). The
    /// flush is only with the feature. `written` is called between the two.
    pub(crate) fn write_and_flush(&self, data: &[u8], offset: u64, written: &mut dyn FnMut()) -> io::Result<()> {
        let writes = self.ask_writes(data, offset)?;
        let flush = self.ask_fsync()?;
        writes.into_iter().try_for_each(|ticket| self.server.to_status(ticket))?;
        written();
        self.server.to_status(flush)
    }

    /// Waits for the status of what was asked for.
    pub(crate) fn done(&self, ticket: Ticket) -> io::Result<()> {
        self.server.to_status(ticket)
    }

    fn ask_writes(&self, data: &[u8], offset: u64) -> io::Result<Vec<Ticket>> {
        let most = self.server.features.write_bytes;
        let mut asked = Vec::with_capacity(data.len().div_ceil(most));
        for (number, piece) in data.chunks(most).enumerate() {
            let (ticket, recipient) = Ticket::new();
            self.send_data(offset + (number * most) as u64, piece, recipient)?;
            asked.push(ticket);
        }
        Ok(asked)
    }

    /// Reads a directory to its end. `take` gets each name in the order of the server, and may stop with an error.
    pub fn each_name(&self, take: &mut dyn FnMut(Name) -> io::Result<()>) -> io::Result<()> {
        let mut asked = std::collections::VecDeque::new();
        let ask = || self.server.ask(&Request::Readdir { handle: &self.handle }, MAX_PACKET_BYTES);
        // Most directories end with the second answer.
        asked.push_back(ask()?);
        asked.push_back(ask()?);
        while let Some(ticket) = asked.pop_front() {
            match ticket.wait()? {
                Reply::Names(names) if names.is_empty() => return self.server.broke("it lists no name, and no end"),
                Reply::Names(names) => names.into_iter().try_for_each(&mut *take)?,
                // What was asked for beyond the end gets the same answer, for which nobody waits.
                Reply::Status(Status { code: Status::EOF, .. }) => return Ok(()),
                Reply::Status(status) if status.code != Status::OK => return Err(status.error()),
                _ => return self.server.broke("it lists something else than names"),
            }
            while asked.len() < READDIRS_AHEAD {
                asked.push_back(ask()?);
            }
        }
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.server.forget(&Request::Close { handle: &self.handle });
    }
}

impl Features {
    fn of(greeting: &Greeting) -> (Self, bool) {
        let has = |name: &str| greeting.extensions.iter().any(|(offered, _)| offered == name.as_bytes());
        let features = Self {
            posix_rename: has("posix-rename@openssh.com"),
            hardlink: has("hardlink@openssh.com"),
            fsync: has("fsync@openssh.com"),
            lsetstat: has("lsetstat@openssh.com"),
            statvfs: has("statvfs@openssh.com"),
            read_bytes: USUAL_TRANSFER_BYTES,
            write_bytes: USUAL_TRANSFER_BYTES,
        };
        (features, has("limits@openssh.com"))
    }

    /// Takes the answer to `limits@openssh.com`: bytes of a packet, of a READ, of a WRITE, and the number of handles. 0 is
    /// no limit that the server knows of.
    fn keep_to(&mut self, limits: &Reply) {
        let Reply::Extended(answer) = limits else { return };
        let mut input = Input::new(answer);
        let told = (|| Ok::<_, crate::codec::Malformed>((input.u64()?, input.u64()?, input.u64()?)))();
        let Ok((_, read, write)) = told else { return };
        // A power of two divides the blocks of a lane.
        let bytes = |told: u64| match told.min(MAX_TRANSFER_BYTES as u64) as usize {
            0 => USUAL_TRANSFER_BYTES,
            told => (1 << told.ilog2()).max(LEAST_TRANSFER_BYTES),
        };
        (self.read_bytes, self.write_bytes) = (bytes(read), bytes(write));
    }
}

/// A server that takes less would get a million requests for a file of 1 GB.
const LEAST_TRANSFER_BYTES: usize = 1 << 10;

/// `f_bsize`, `f_frsize`, `f_blocks`, `f_bfree`, `f_bavail`, `f_files`, `f_ffree`, `f_favail` and more (OpenSSH, PROTOCOL, 4.4).
fn space(answer: &[u8]) -> Option<Space> {
    let mut input = Input::new(answer);
    let mut fields = [0; 8];
    for field in &mut fields {
        *field = input.u64().ok()?;
    }
    let [_, fragment, blocks, free, available, inodes, _, free_inodes] = fields;
    Some(Space {
        bytes: fragment.saturating_mul(blocks),
        free_bytes: fragment.saturating_mul(free),
        available_bytes: fragment.saturating_mul(available),
        inodes,
        free_inodes,
    })
}

fn check_length(path: &[u8]) -> io::Result<()> {
    if path.len() > MAX_PATH_BYTES { Err(Errno::NAMETOOLONG.into()) } else { Ok(()) }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("features", &self.features).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

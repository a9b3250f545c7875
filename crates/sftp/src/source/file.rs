//! A file at a server, read by many requests that are under way at the same time.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_store::{FileToRead, Stat};

use super::ahead::Ahead;
use crate::codec::{self, Attributes, Data};
use crate::connection::Ticket;
use crate::entry;
use crate::limits::{MAX_AHEAD_BYTES, READ_AHEAD_BYTES};
use crate::pool::Pool;
use crate::server::{Handle, Server};
use crate::spread::Handles;
use crate::turns::least_loaded;

/// An open file.
#[derive(Debug)]
pub(crate) struct SftpFile {
    pool: Arc<Pool>,
    path: Vec<u8>,
    handles: Handles,
    opened: Attributes,
    blocks: Mutex<Ahead<Block>>,
    block_bytes: usize,
}

enum Block {
    Asked(Arc<Handle>, Ticket),
    Here(Data),
}

/// A smaller file is served by one connection.
const SPREAD_FROM_BYTES: u64 = 8 << 20;

impl SftpFile {
    /// Opens a regular file. The first block is asked for at once.
    pub(crate) fn open(pool: &Arc<Pool>, path: Vec<u8>) -> io::Result<Self> {
        let handle = pool.server().open(&path, codec::READ, None)?;
        let block_bytes = handle.server().features().read_bytes;
        let held_bytes = Arc::clone(pool.ahead_bytes());
        let mut ahead = Ahead::new(
            READ_AHEAD_BYTES / block_bytes as u64,
            MAX_AHEAD_BYTES / block_bytes,
            MAX_AHEAD_BYTES,
            held_bytes,
        );
        let handles = Handles::new(handle);
        let handle = handles.first();
        ahead.put(0, Block::Asked(Arc::clone(&handle), handle.ask_data(0, block_bytes)?), block_bytes);
        let opened = handle.fstat()?;
        if !entry::is_file(&opened) && opened.mode.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        pool.count_opened();
        pool.announce(opened.size.unwrap_or(0));
        let pool = Arc::clone(pool);
        Ok(Self { pool, path, handles, opened, blocks: Mutex::new(ahead), block_bytes })
    }

    fn size(&self) -> u64 {
        self.opened.size.unwrap_or(0)
    }

    fn blocks(&self) -> MutexGuard<'_, Ahead<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handles that stand. A large file is opened over each further connection.
    fn handles(&self) -> io::Result<Vec<Arc<Handle>>> {
        if self.size() >= SPREAD_FROM_BYTES {
            let (path, opened) = (self.path.clone(), self.opened);
            self.handles.spread(&self.pool, move |server| open_again(server, &path, &opened));
        }
        let handles = self.handles.standing();
        match handles.iter().any(|handle| !handle.server().is_lost()) {
            true => Ok(self.pool.for_data(handles)),
            false => Ok(vec![self.handles.add(open_again(&self.pool.server(), &self.path, &self.opened)?)]),
        }
    }

    fn ask(&self, handles: &[Arc<Handle>], block: u64) -> io::Result<Block> {
        let lost = || io::Error::new(io::ErrorKind::BrokenPipe, "no connection serves it");
        let handle = least_loaded(handles).ok_or_else(lost)?;
        let ticket = handle.ask_data(block * self.block_bytes as u64, self.block_bytes)?;
        Ok(Block::Asked(Arc::clone(handle), ticket))
    }

    /// Takes a block, and asks for those behind it.
    fn take(&self, block: u64) -> io::Result<Block> {
        let handles = self.handles()?;
        let mut blocks = self.blocks();
        let taken = blocks.take(block);
        // The wanted block goes first.
        let taken = match taken {
            Some(taken) => taken,
            None => self.ask(&handles, block)?,
        };
        let wanted = blocks.wanted(block, self.size().div_ceil(self.block_bytes as u64), self.block_bytes);
        for ahead in wanted {
            let asked = self.ask(&handles, ahead)?;
            blocks.put(ahead, asked, self.block_bytes);
        }
        Ok(taken)
    }

    /// The data of a block; `None`: the file ends before it.
    fn data(&self, block: u64) -> io::Result<Option<Data>> {
        let (handle, ticket) = match self.take(block)? {
            Block::Here(data) => return Ok(Some(data)),
            Block::Asked(handle, ticket) => (handle, ticket),
        };
        match handle.data(ticket, self.block_bytes) {
            // Another connection may serve it.
            Err(_) if handle.server().is_lost() && self.pool.check().is_ok() => {
                match self.ask(&self.handles()?, block)? {
                    Block::Asked(handle, ticket) => handle.data(ticket, self.block_bytes),
                    Block::Here(data) => Ok(Some(data)),
                }
            }
            data => data,
        }
    }
}

fn open_again(server: &Arc<Server>, path: &[u8], opened: &Attributes) -> io::Result<Handle> {
    let handle = server.open(path, codec::READ, None)?;
    let now = handle.fstat()?;
    if (now.size, now.times.map(|times| times.1)) != (opened.size, opened.times.map(|times| times.1)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another file has its name by now"));
    }
    Ok(handle)
}

impl FileToRead for SftpFile {
    fn stat(&self) -> io::Result<Stat> {
        let handles = self.handles()?;
        entry::stat(&self.path, &handles[0].fstat()?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let (block, within) = (at / self.block_bytes as u64, (at % self.block_bytes as u64) as usize);
            let Some(data) = self.data(block)? else { break };
            let rest = data.bytes().get(within..).unwrap_or_default();
            let step = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + step].copy_from_slice(&rest[..step]);
            filled += step;
            let (is_short, is_used_up) = (data.bytes().len() < self.block_bytes, step == rest.len());
            if !is_used_up {
                let bytes = data.bytes().len();
                self.blocks().put(block, Block::Here(data), bytes);
            } else if is_short && filled < buffer.len() {
                // A server may send less than was asked for, also before the end.
                let end = (block + 1) * self.block_bytes as u64;
                let at = offset + filled as u64;
                let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len() - filled);
                let read = self.handles()?[0].read_at(&mut buffer[filled..filled + most], at)?;
                filled += read;
                if read < most {
                    break;
                }
            }
        }
        self.pool.count_moved(filled);
        Ok(filled)
    }
}

impl std::fmt::Debug for Ahead<Block> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ahead")
    }
}

//! The data nodes of a striped server for tests: each has an address of its own.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use haul_foreign::{Reach, Sockets};
use haul_grid::{HEADER_BYTES, Header};
use haul_net::Way;

use super::{Done, Fault, Session};

#[derive(Default)]
pub(super) struct Nodes {
    pub(super) wait: Vec<TcpListener>,
    pub(super) taking: Vec<TcpStream>,
    pub(super) send_to: Vec<SocketAddr>,
}

impl Session {
    /// All nodes have to hear the end. The connections stay.
    pub(super) fn take_at_nodes(&mut self, verb: &str, argument: &str) -> Done {
        let (begin, path): (usize, &str) = match verb {
            "ESTO" => (argument.split(' ').nth(1).unwrap().parse().unwrap(), argument.splitn(3, ' ').last().unwrap()),
            _ => (0, argument),
        };
        for listener in std::mem::take(&mut self.nodes.wait) {
            self.nodes.taking.push(listener.accept()?.0);
        }
        self.say("150 go on")?;
        if verb == "STOR" {
            self.files.lock().unwrap().insert(path.to_owned(), Vec::new());
        }
        std::thread::scope(|scope| {
            let take = |(node, data): (usize, _)| {
                let (files, came_from) = (&self.files, &self.came_from);
                scope.spawn(move || -> Done {
                    let data: &mut TcpStream = data;
                    while let Some((at, bytes)) = next_block(data)? {
                        let (start, end) = (begin + at, begin + at + bytes.len());
                        let mut files = files.lock().unwrap();
                        let content = files.entry(path.to_owned()).or_default();
                        content.resize(content.len().max(end), 0);
                        content[start..end].copy_from_slice(&bytes);
                        came_from.lock().unwrap().insert(node_address(node));
                    }
                    Ok(())
                })
            };
            let threads: Vec<_> = self.nodes.taking.iter_mut().enumerate().map(take).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        self.files.lock().unwrap().entry(path.to_owned()).or_default();
        self.say("226 done")
    }

    pub(super) fn wait_at_nodes(&mut self) -> Done {
        (self.nodes, self.passive, self.data) = (Nodes::default(), None, None);
        for node in 0..NODES {
            self.nodes.wait.push(TcpListener::bind((node_address(node), 0))?);
        }
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let line = |(node, port): (usize, u16)| format!(" 127,0,0,{},{},{}\r\n", node + 1, port >> 8, port & 255);
        let lines: String = self.nodes.wait.iter().map(port).enumerate().map(line).collect();
        if self.fault == Fault::StripeIsGone {
            self.nodes.wait.pop();
        }
        self.say(&format!("229-Entering Striped Passive Mode.\r\n{lines}229 End"))
    }

    /// Each node sends every other block, over one connection.
    pub(super) fn send_from_nodes(&mut self, content: &[u8]) -> Done {
        const BLOCK: usize = 100_000;
        let fault = self.fault;
        let addresses = std::mem::take(&mut self.nodes.send_to);
        assert_eq!(addresses.len(), NODES);
        self.control.get_mut().write_all(b"126 1 1\r\n150 here it comes\r\n")?;
        let content: Arc<[u8]> = content.into();
        let threads: Vec<_> = addresses
            .into_iter()
            .enumerate()
            .filter(|(node, _)| !(fault == Fault::StripeStaysAway && *node == 1))
            .map(|(node, address)| {
                let content = Arc::clone(&content);
                std::thread::spawn(move || -> Done {
                    if fault == Fault::StripeStranger {
                        drop(stranger(address)?);
                    }
                    let mut data = from_node(node, address)?;
                    let is_bad = node == 1;
                    for (number, bytes) in content.chunks(BLOCK).enumerate() {
                        let is_mine =
                            number % NODES == node || (is_bad && fault == Fault::StripeRepeats && number == 2);
                        if !is_mine || (is_bad && fault == Fault::StripeSkips && number == 3) {
                            continue;
                        }
                        if is_bad && fault == Fault::StripeIsCut && number > 3 {
                            return Ok(());
                        }
                        let offset = (number * BLOCK) as u64;
                        data.write_all(&Header { flags: 0, count: bytes.len() as u64, offset }.encode())?;
                        data.write_all(bytes)?;
                    }
                    let offset = if is_bad && fault == Fault::StripeCountsMore { 2 } else { 1 };
                    let flags = Header::END_OF_FILE | Header::END_OF_DATA;
                    data.write_all(&Header { flags, count: 0, offset }.encode())
                })
            })
            .collect();
        for thread in threads {
            // The client may not have read on.
            let _ = thread.join().unwrap();
        }
        self.say("226 done")
    }
}

/// The next block of a connection. None: its end, and that it was the only one.
fn next_block(data: &mut TcpStream) -> std::io::Result<Option<(usize, Vec<u8>)>> {
    let mut header = [0; HEADER_BYTES];
    data.read_exact(&mut header)?;
    let header = Header::decode(&header);
    if header.flags & Header::END_OF_FILE != 0 {
        assert_eq!((header.offset, header.flags & Header::END_OF_DATA), (1, Header::END_OF_DATA));
        return Ok(None);
    }
    let mut bytes = vec![0; header.count as usize];
    data.read_exact(&mut bytes)?;
    Ok(Some((header.offset as usize, bytes)))
}

/// Data nodes of a striped server.
const NODES: usize = 2;

fn node_address(node: usize) -> IpAddr {
    IpAddr::from([127, 0, 0, node as u8 + 1])
}

pub(super) fn from_node(node: usize, to: SocketAddr) -> std::io::Result<TcpStream> {
    connect_from(node_address(node), to)
}

fn stranger(to: SocketAddr) -> std::io::Result<TcpStream> {
    connect_from(IpAddr::from([127, 0, 0, 9]), to)
}

fn connect_from(host: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let way = Way { local: Some(host), ..Way::default() };
    let reach = Reach { way, ..Reach::default() };
    Sockets::new().connect(&[to], &reach, Duration::from_secs(3)).map(|(socket, _)| socket)
}

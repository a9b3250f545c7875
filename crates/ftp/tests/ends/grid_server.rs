//! A server of GridFTP for tests: it keeps files in memory, and misbehaves as it is told.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_foreign::{Adler32Parts, Credentials, Reach};
use haul_ftp::{Grid, Security, Settings};
use haul_grid::{HEADER_BYTES, Header};

use nodes::{Nodes, from_node};

/// What the server does otherwise than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Says EOF twice.
    TwoEnds,
    /// Says no EOD, and closes.
    NoEnd,
    /// Says EOD without EOF.
    NoCount,
    /// Says that it sends over two connections.
    TwoConnections,
    /// Sends blocks in another order.
    OutOfOrder,
    /// Sends a block far behind the file.
    FarBehind,
    /// Sends more than it was asked for.
    TooMuch,
    /// Announces the largest block, and sends little.
    HugeBlock,
    /// Flags that nobody knows.
    UnknownFlags,
    /// Marks of progress without an end.
    Markers,
    /// A reply that is a line without an end.
    EndlessLine,
    /// Never connects.
    Unreachable,
    /// Refuses PORT.
    NoPort,
    /// A stranger connects first.
    Stranger,
    /// Drops the bytes of names that are not of ASCII.
    DropsBytes,
    /// Keeps one byte less of an upload than it says.
    Loses,
    /// Keeps another byte than was sent.
    Garbles,
    /// Closes the data connection of an upload in its middle, and tells why.
    Refuses,
    /// Closes the control connection in place of 226.
    Forgets226,
    /// Closes what rests.
    ClosesKept,
    /// Refuses what is asked during a transfer.
    RefusesMore,
    /// Closes all connections of an upload in its middle.
    Cuts,
    /// Empties a file when a transfer to it begins.
    Empties,
    /// Tells the sum of the whole file for each part of it.
    SumsWhole,
    /// Tells no sum of a part.
    SumsNoParts,
    /// Tells another host in its answer to PASV.
    TellsOther,
    /// Closes all connections of one upload in its middle.
    CutsOnce,
    /// Has two data nodes, 127.0.0.1 and 127.0.0.2.
    Striped,
    /// The same, and one of them cannot be reached.
    StripeIsGone,
    /// The same, and one of them never connects.
    StripeStaysAway,
    /// The same, and one of them leaves a block out.
    StripeSkips,
    /// The same, and the other one sends a block of the first again.
    StripeRepeats,
    /// The same, and one of them counts more connections than it opens.
    StripeCountsMore,
    /// The same, and one of them sends what it has after its end.
    StripeIsCut,
    /// The same, and a stranger connects before each data node.
    StripeStranger,
    /// Names thousands of data nodes.
    ManyStripes,
    /// Names hosts of this network, of no network, and a port of another service.
    NamesOthers(&'static str),
}

impl Fault {
    fn is_striped(self) -> bool {
        use Fault::*;
        matches!(
            self,
            Striped
                | StripeIsGone
                | StripeStaysAway
                | StripeSkips
                | StripeRepeats
                | StripeCountsMore
                | StripeIsCut
                | StripeStranger
        )
    }
}

pub struct GridServer {
    pub address: SocketAddr,
    pub files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    pub seen: Arc<Mutex<Vec<String>>>,
    /// Bytes of all uploads.
    pub taken: Arc<AtomicUsize>,
    /// Where data connections of uploads came from.
    pub came_from: Arc<Mutex<BTreeSet<IpAddr>>>,
    fault: Arc<Mutex<Fault>>,
    ended: Arc<AtomicBool>,
}

impl GridServer {
    pub fn start(files: &[(&str, &[u8])], fault: Fault) -> GridServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        let (files, seen) = (Arc::new(Mutex::new(files)), Arc::new(Mutex::new(Vec::new())));
        let (taken, fault) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(fault)));
        let (came_from, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (for_files, for_seen, is_over) = (Arc::clone(&files), Arc::clone(&seen), Arc::clone(&ended));
        let (for_taken, for_fault, for_came_from) = (Arc::clone(&taken), Arc::clone(&fault), Arc::clone(&came_from));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), files, seen) = (stream, Arc::clone(&for_files), Arc::clone(&for_seen)) else {
                    continue;
                };
                let (taken, fault) = (Arc::clone(&for_taken), *for_fault.lock().unwrap());
                let came_from = Arc::clone(&for_came_from);
                std::thread::spawn(move || {
                    let session = Session {
                        files,
                        seen,
                        taken,
                        came_from,
                        fault,
                        control: BufReader::new(stream),
                        down: None,
                        data: None,
                        passive: None,
                        rest: 0,
                        from: String::new(),
                        nodes: Nodes::default(),
                    };
                    session.run()
                });
            }
        });
        GridServer { address, files, seen, taken, came_from, fault, ended }
    }

    /// Logins from now on are served like this.
    pub fn misbehave(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub fn settings(&self) -> Settings {
        Settings {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            security: Security::Clear,
            encrypts_data: false,
            credentials: Credentials::default(),
            reach: Reach::default(),
            silence: Duration::from_secs(3),
            first_pause: Duration::from_millis(1),
            connections: 4,
            far_from_us: 0,
            begins_with: |_, _| 4,
            tell: Box::new(|_| ()),
            tell_sums: Box::new(|_| ()),
            ranges: None,
            grid: Some(Grid::default()),
            pipes: None,
            journals: None,
        }
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(path).cloned()
    }

    pub fn paths(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    pub fn count(&self, verb: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|line| line.starts_with(verb)).count()
    }
}

impl Drop for GridServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

struct Session {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    seen: Arc<Mutex<Vec<String>>>,
    taken: Arc<AtomicUsize>,
    came_from: Arc<Mutex<BTreeSet<IpAddr>>>,
    fault: Fault,
    control: BufReader<TcpStream>,
    /// Where the client waits.
    down: Option<SocketAddr>,
    /// The data connection that is kept.
    data: Option<TcpStream>,
    passive: Option<TcpListener>,
    rest: usize,
    from: String,
    /// Where data nodes wait, and where they are to connect.
    nodes: Nodes,
}

type Done = std::io::Result<()>;

impl Session {
    fn say(&mut self, text: &str) -> Done {
        self.control.get_mut().write_all(format!("{text}\r\n").as_bytes())
    }

    fn run(mut self) -> Done {
        self.say("220 here")?;
        loop {
            let mut line = Vec::new();
            if self.control.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if self.fault == Fault::DropsBytes {
                line.retain(u8::is_ascii);
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).replace('\u{7f}', "");
            self.seen.lock().unwrap().push(line.clone());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            self.answer(verb, argument)?;
        }
    }

    fn answer(&mut self, verb: &str, argument: &str) -> Done {
        let file = |session: &Session, path: &str| session.files.lock().unwrap().get(path).cloned();
        match verb {
            "USER" => self.say("331 and?"),
            "PASS" => self.say("230 in"),
            "FEAT" => self.say("211-Features:\r\n MLST type*;size*;modify*;\r\n MFMT\r\n ERET\r\n ESTO\r\n211 End"),
            "SITE" => self.say("214-Commands:\r\n    DELE    CKSM    DCSC\r\n214 End"),
            "PWD" => self.say("257 \"/\" here"),
            "SIZE" => match file(self, argument) {
                // It has confirmed all of it.
                Some(content) if self.fault == Fault::Loses => self.say(&format!("213 {}", content.len() - 1)),
                Some(content) => self.say(&format!("213 {}", content.len())),
                None => self.say("550 no"),
            },
            "MDTM" if self.files.lock().unwrap().contains_key(argument) => self.say("213 19941106084937"),
            "MDTM" => self.say("550 no"),
            "MLST" => match (argument, file(self, argument)) {
                (_, Some(content)) => self.say(&format!(
                    "250-it\r\n type=file;size={};modify=19941106084937; {argument}\r\n250 end",
                    content.len()
                )),
                ("/", None) => self.say("250-it\r\n type=dir; /\r\n250 end"),
                _ => self.say("550 no"),
            },
            "CKSM" => {
                let words: Vec<&str> = argument.splitn(4, ' ').collect();
                let is_whole = words[2] == "-1" || self.fault == Fault::SumsWhole;
                match file(self, words[3]) {
                    Some(content) if is_whole => self.say(&format!("213 {:08x}", Adler32Parts::sum_of(&content))),
                    Some(content) if self.fault != Fault::SumsNoParts => {
                        let start = content.len().min(words[1].parse().unwrap());
                        let end = content.len().min(start + words[2].parse::<usize>().unwrap());
                        self.say(&format!("213 {:08x}", Adler32Parts::sum_of(&content[start..end])))
                    }
                    _ => self.say("500 no"),
                }
            }
            "PORT" if self.fault == Fault::NoPort => self.say("500 Illegal PORT command"),
            "PORT" => {
                (self.down, self.data, self.nodes) = (Some(address_of(argument)), None, Nodes::default());
                self.say("200 ok")
            }
            "SPAS" if self.fault.is_striped() => self.wait_at_nodes(),
            "SPAS" if self.fault == Fault::ManyStripes => {
                let lines = " 127,0,0,1,200,1\r\n".repeat(20_000);
                self.say(&format!("229-Here:\r\n{lines}229 End"))
            }
            "SPAS" if let Fault::NamesOthers(told) = self.fault => {
                self.say(&format!("229-Here:\r\n 127,0,0,1,200,1\r\n {told}\r\n229 End"))
            }
            "SPOR" => {
                self.nodes.send_to = argument.split(' ').map(address_of).collect();
                self.say("200 ok")
            }
            "PASV" | "EPSV" if self.fault.is_striped() => {
                self.nodes = Nodes::default();
                // The front end itself takes no data.
                let listener = TcpListener::bind("127.0.0.2:0")?;
                let port = listener.local_addr()?.port();
                (self.passive, self.data) = (Some(listener), None);
                match verb {
                    "PASV" => self.say(&format!("227 ok (127,0,0,2,{},{})", port >> 8, port & 255)),
                    _ => self.say(&format!("229 ok (|||{port}|)")),
                }
            }
            "PASV" | "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                (self.passive, self.data) = (Some(listener), None);
                let host = if self.fault == Fault::TellsOther { "192,0,2,1" } else { "127,0,0,1" };
                match verb {
                    "PASV" => self.say(&format!("227 ok ({host},{},{})", port >> 8, port & 255)),
                    _ => self.say(&format!("229 ok (|||{port}|)")),
                }
            }
            "REST" => {
                self.rest = argument.parse().unwrap();
                self.say("350 ok")
            }
            "ERET" | "RETR" => self.send(verb, argument),
            "ESTO" | "STOR" => self.take(verb, argument),
            "MLSD" => self.list(),
            "RNFR" => {
                argument.clone_into(&mut self.from);
                self.say("350 and?")
            }
            "RNTO" => {
                let moved = self.files.lock().unwrap().remove(&self.from);
                match moved {
                    Some(content) => {
                        self.files.lock().unwrap().insert(argument.to_owned(), content);
                        self.say("250 ok")
                    }
                    None => self.say("550 no"),
                }
            }
            "DELE" if self.files.lock().unwrap().remove(argument).is_some() => self.say("250 ok"),
            "DELE" => self.say("550 no"),
            "TYPE" | "DCAU" | "MODE" | "MFMT" | "CWD" | "OPTS" => self.say("200 ok"),
            _ => self.say("500 what?"),
        }
    }

    /// A list, or a file as by FTP, in stream mode.
    fn stream(&mut self, bytes: &[u8]) -> Done {
        let Some(listener) = self.passive.take() else { return self.say("425 no") };
        let mut data = listener.accept()?.0;
        self.say("150 here it comes")?;
        let _ = data.write_all(bytes);
        drop(data);
        self.say("226 done")
    }

    fn list(&mut self) -> Done {
        let files = self.files.lock().unwrap();
        let line = |(path, content): (&String, &Vec<u8>)| {
            format!("type=file;size={};modify=19941106084937; {}\r\n", content.len(), path.trim_start_matches('/'))
        };
        let lines: String = files.iter().map(line).collect();
        drop(files);
        self.stream(lines.as_bytes())
    }

    fn send(&mut self, verb: &str, argument: &str) -> Done {
        let (at, bytes, path) = match verb {
            "ERET" => {
                let words: Vec<&str> = argument.splitn(4, ' ').collect();
                (words[1].parse().unwrap(), words[2].parse().unwrap(), words[3])
            }
            _ => (std::mem::take(&mut self.rest), usize::MAX, argument),
        };
        let content = self.files.lock().unwrap().get(path).cloned();
        let Some(content) = content else {
            return self.say("500-Command failed.\r\n500-No such file or directory\r\n500 End.");
        };
        let end = at.saturating_add(bytes).min(content.len());
        let content = &content[at.min(end)..end];
        if !self.nodes.send_to.is_empty() {
            assert_eq!((verb, at), ("RETR", 0), "a part does not come from all nodes");
            return self.send_from_nodes(content);
        }
        if self.passive.is_some() && self.down.is_none() {
            return self.stream(content);
        }
        if self.data.is_none() {
            let Some(address) = self.down.take() else { return self.say("425 no") };
            match self.fault {
                Fault::Unreachable => return Ok(()),
                Fault::Stranger => {
                    // Another host: all of 127.0.0.0/8 is this one.
                    let stranger = std::process::Command::new("python3")
                        .args(["-c", STRANGER, &address.port().to_string()])
                        .status();
                    assert!(stranger.is_ok_and(|status| status.success()), "python3 connects as a stranger");
                }
                _ => {}
            }
            self.data = Some(self.connect(address)?);
            self.say("150 here it comes")?;
        } else {
            self.say("125 over the same connection")?;
        }
        let data = self.data.as_mut().unwrap();
        let _ = blocks(data, content, self.fault);
        match self.fault {
            Fault::NoEnd | Fault::HugeBlock => self.data = None,
            Fault::Markers => loop {
                self.control.get_mut().write_all(&b"112-Perf Marker\r\n112 End.\r\n".repeat(1000))?;
            },
            Fault::EndlessLine => loop {
                self.control.get_mut().write_all(&[b'2'; 1 << 16])?;
            },
            Fault::Forgets226 => return Err(std::io::ErrorKind::BrokenPipe.into()),
            _ => {}
        }
        self.say("226 done")?;
        if self.fault == Fault::ClosesKept {
            self.data = None;
        }
        Ok(())
    }

    /// A striped server sends from a data node.
    fn connect(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        match self.fault.is_striped() {
            true => from_node(1, address),
            false => TcpStream::connect(address),
        }
    }

    fn take(&mut self, verb: &str, argument: &str) -> Done {
        if !self.nodes.wait.is_empty() || !self.nodes.taking.is_empty() {
            return self.take_at_nodes(verb, argument);
        }
        let (begin, path) = match verb {
            "ESTO" => (argument.split(' ').nth(1).unwrap().parse().unwrap(), argument.splitn(3, ' ').last().unwrap()),
            _ => (0, argument),
        };
        let is_kept = self.data.is_some();
        if !is_kept {
            let Some(listener) = self.passive.take() else { return self.say("425 no") };
            let (data, from) = listener.accept()?;
            self.came_from.lock().unwrap().insert(from.ip());
            self.data = Some(data);
        }
        self.say(if is_kept { "125 over the same connection" } else { "150 go on" })?;
        let path = path.to_owned();
        {
            let mut files = self.files.lock().unwrap();
            let content = files.entry(path.clone()).or_default();
            if verb == "STOR" || self.fault == Fault::Empties {
                content.clear();
            }
        }
        let (fault, files) = (self.fault, Arc::clone(&self.files));
        for number in 0_u64.. {
            let data = self.data.as_mut().unwrap();
            let mut header = [0; HEADER_BYTES];
            data.read_exact(&mut header)?;
            let header = Header::decode(&header);
            if fault == Fault::Refuses {
                let _ = data.shutdown(Shutdown::Both);
                self.data = None;
                return self.say("552-Command failed.\r\n552-No space left on device\r\n552 End.");
            }
            if header.flags & Header::END_OF_FILE == 0 {
                let mut bytes = vec![0; header.count as usize];
                data.read_exact(&mut bytes)?;
                let (start, end) = (begin + header.offset as usize, begin + header.offset as usize + bytes.len());
                let mut files = files.lock().unwrap();
                let content = files.get_mut(&path).unwrap();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[start..end].copy_from_slice(&bytes);
                let before = self.taken.fetch_add(bytes.len(), Ordering::Relaxed);
                let is_cut = match fault {
                    Fault::Cuts => before > CUTS_AFTER,
                    Fault::CutsOnce => before <= CUTS_AFTER && before + bytes.len() > CUTS_AFTER,
                    _ => false,
                };
                if is_cut {
                    return Err(std::io::ErrorKind::BrokenPipe.into());
                }
            }
            match fault {
                Fault::Markers => loop {
                    self.control.get_mut().write_all(&b"111 Range Marker 0-1\r\n".repeat(1000))?;
                },
                _ if number < 30 => self.say("111 Range Marker 0-1")?,
                _ => {}
            }
            if header.flags & Header::END_OF_DATA != 0 {
                break;
            }
        }
        {
            let mut files = files.lock().unwrap();
            let content = files.get_mut(&path).unwrap();
            match fault {
                Fault::Garbles if !content.is_empty() => content[0] = content[0].wrapping_add(1),
                _ => {}
            }
        }
        if fault == Fault::Forgets226 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        let is_first = self.seen.lock().unwrap().iter().filter(|line| line.starts_with("STOR")).count() == 1;
        if fault == Fault::RefusesMore && is_first {
            let mut line = Vec::new();
            self.control.read_until(b'\n', &mut line)?;
            self.say("503 not now")?;
        }
        self.say("226 done")?;
        if fault == Fault::ClosesKept {
            self.data = None;
        }
        Ok(())
    }
}

fn address_of(numbers: &str) -> SocketAddr {
    let numbers: Vec<u16> = numbers.split(',').map(|part| part.parse().unwrap()).collect();
    let host: [u8; 4] = std::array::from_fn(|at| numbers[at] as u8);
    SocketAddr::from((host, numbers[4] << 8 | numbers[5]))
}

/// A chunk and a half.
const CUTS_AFTER: usize = 3 << 19;

const STRANGER: &str = "import socket,sys; s=socket.socket(); s.bind(('127.0.0.2',0)); s.connect(('127.0.0.1',int(sys.argv[1])))\n\
                        s.sendall(b'\\0'*9+b'x'*20)";

fn blocks(data: &mut TcpStream, content: &[u8], fault: Fault) -> Done {
    const BLOCK: usize = 100_000;
    let mut all: Vec<(u8, &[u8], u64)> =
        content.chunks(BLOCK).zip(0..).map(|(bytes, number)| (0, bytes, number * BLOCK as u64)).collect();
    let end = Header::END_OF_FILE | Header::END_OF_DATA;
    let last = (end, &b""[..], 1);
    match fault {
        Fault::TwoEnds => all.extend([(Header::END_OF_FILE, &b""[..], 1), last]),
        Fault::NoEnd => {}
        Fault::NoCount => all.push((Header::END_OF_DATA, b"", 0)),
        Fault::TwoConnections => all.push((end, b"", 2)),
        Fault::OutOfOrder => {
            all.reverse();
            all.push(last);
        }
        Fault::FarBehind => all.extend([(0, &b"x"[..], 1 << 50), last]),
        Fault::TooMuch => all.extend([(0, &b"more"[..], content.len() as u64), last]),
        Fault::UnknownFlags => all.extend([(0x20, &b"doubt"[..], content.len() as u64), last]),
        Fault::HugeBlock => {
            data.write_all(&Header { flags: 0, count: u64::MAX / 2, offset: 0 }.encode())?;
            return data.write_all(content);
        }
        _ => all.push(last),
    }
    for (flags, bytes, offset) in all {
        data.write_all(&Header { flags, count: bytes.len() as u64, offset }.encode())?;
        data.write_all(bytes)?;
    }
    Ok(())
}

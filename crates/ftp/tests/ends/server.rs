//! A server of FTP for tests: it keeps files in memory, and misbehaves as it is told.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use haul_foreign::{Credentials, Reach};
use haul_ftp::{Security, Settings};

/// What the server does otherwise than it should.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Lists by LIST, as vsftpd does, not by MLSD.
    pub lists_only: bool,
    /// LIST in the form of MS-DOS.
    pub lists_dos: bool,
    /// Takes REST, and begins at the start.
    pub ignores_rest: bool,
    /// Takes REST, and empties the file all the same when one goes up.
    pub empties_after_rest: bool,
    /// Takes no REST when a file goes up, as proftpd does.
    pub refuses_to_go_on: bool,
    /// Begins nothing behind the end of a file that goes up, as proftpd does with AllowStoreRestart, and pyftpdlib.
    pub refuses_holes: bool,
    /// Cuts a file off where it goes on, and goes on at its end at the latest, as pure-ftpd does.
    pub cuts_off_there: bool,
    /// Writes at the end of a file, wherever it was asked to.
    pub appends: bool,
    /// Lets one write to a file at a time, as vsftpd does unless it was told not to.
    pub locks_uploads: bool,
    /// Cuts uploads here after so many bytes, and keeps what came, so many times.
    pub upload_cuts: usize,
    /// Where it cuts.
    pub upload_cuts_after: usize,
    /// Garbles the first byte of a range that is longer than this.
    pub garbles_from: Option<usize>,
    /// Says that it knows REST.
    pub promises_rest: bool,
    /// Knows no REST.
    pub has_no_rest: bool,
    /// Cuts each file after so many bytes, and says 226.
    pub short_by: usize,
    /// Closes the control connection in place of 226, so many times.
    pub forgets_226: usize,
    /// Cuts transfers here after so many bytes, with 426, so many times.
    pub cuts: usize,
    /// Where it cuts.
    pub cuts_after: usize,
    /// Tells so many bytes more than a file has.
    pub size_off_by: i64,
    /// Keeps this many bytes less of an upload than it says.
    pub loses: usize,
    /// The largest number of control connections.
    pub most_connections: usize,
    /// Refuses the surplus with 530 after the login, as proftpd does.
    pub refuses_at_login: bool,
    /// Has no port free, so many times.
    pub has_no_port: usize,
    /// Tells this address in PASV, and knows no EPSV.
    pub passive_elsewhere: bool,
    /// Renames onto nothing.
    pub refuses_to_replace: bool,
    /// Answers USER with a line without an end.
    pub endless_line: bool,
    /// Answers FEAT with a reply without an end.
    pub endless_reply: bool,
    /// Sets no times.
    pub keeps_no_times: bool,
    /// Lists these lines in place of a directory.
    pub lines: Vec<String>,
    /// Answers one command at a time: what came with it is thrown away.
    pub drops_what_came_early: bool,
    /// XSHA256 answers with this.
    pub sum: Option<String>,
    /// Says 234 to AUTH TLS, and then speaks no TLS.
    pub offers_tls: bool,
    /// Says its first word again where nobody reads on, and nothing else, as pure-ftpd does.
    pub says_150_of_a_cut: bool,
    /// Tells what it knows as soon as the port that it told was reached.
    pub features_wait_for_data: bool,
    /// Puts another file of the same name in place after the first RETR of it.
    pub replaces: Option<Vec<u8>>,
}

/// A file, or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: a directory.
    pub content: Option<Vec<u8>>,
    pub time: String,
}

pub struct Server {
    pub address: SocketAddr,
    pub nodes: Arc<Mutex<BTreeMap<String, Node>>>,
    pub seen: Arc<Mutex<Vec<String>>>,
    pub most_open: Arc<AtomicUsize>,
    faults: Arc<Mutex<Faults>>,
    ended: Arc<AtomicBool>,
}

struct Shared {
    nodes: Arc<Mutex<BTreeMap<String, Node>>>,
    seen: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<Faults>>,
    open: AtomicUsize,
    most_open: Arc<AtomicUsize>,
    /// Files that go up.
    uploads: Mutex<Vec<String>>,
    upload_ended: Condvar,
}

pub const OLD: &str = "19941106084937";

impl Server {
    /// Begins with these entries. A path that ends in a slash is a directory.
    pub fn start(entries: &[(&str, &[u8])], faults: Faults) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut nodes = BTreeMap::from([("/".to_owned(), Node { content: None, time: OLD.to_owned() })]);
        for (path, content) in entries {
            let content = (!path.ends_with('/')).then(|| content.to_vec());
            nodes.insert(path.trim_end_matches('/').to_owned(), Node { content, time: OLD.to_owned() });
        }
        let (nodes, seen) = (Arc::new(Mutex::new(nodes)), Arc::new(Mutex::new(Vec::new())));
        let (faults, ended) = (Arc::new(Mutex::new(faults)), Arc::new(AtomicBool::new(false)));
        let most_open = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(Shared {
            nodes: Arc::clone(&nodes),
            seen: Arc::clone(&seen),
            faults: Arc::clone(&faults),
            open: AtomicUsize::new(0),
            uploads: Mutex::default(),
            upload_ended: Condvar::new(),
            most_open: Arc::clone(&most_open),
        });
        let is_over = Arc::clone(&ended);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { continue };
                std::thread::spawn(move || {
                    let open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
                    shared.most_open.fetch_max(open, Ordering::SeqCst);
                    let _ = Session::new(&shared, stream, open).run();
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Server { address, nodes, seen, most_open, faults, ended }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            security: Security::IfOffered,
            encrypts_data: true,
            credentials: Credentials::default(),
            reach: Reach::default(),
            silence: Duration::from_secs(20),
            first_pause: Duration::from_millis(1),
            connections: 4,
            // Beside the programs' scenarios, whose servers are near.
            far_from_us: 0,
            begins_with: |_, _| 4,
            ranges: None,
            grid: None,
            pipes: None,
            tell: Box::new(|_| ()),
            tell_sums: Box::new(|_| ()),
            journals: None,
        }
    }

    pub fn misbehave(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.nodes.lock().unwrap().get(path)?.content.clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.nodes.lock().unwrap().keys().cloned().collect()
    }

    pub fn commands(&self, verb: &str) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|line| line.starts_with(verb)).cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

struct Session<'a> {
    shared: &'a Shared,
    control: BufReader<TcpStream>,
    number: usize,
    passive: Option<TcpListener>,
    reached: Option<TcpStream>,
    rest: usize,
    from: Option<String>,
    directory: String,
}

type Done = std::io::Result<()>;

impl<'a> Session<'a> {
    fn new(shared: &'a Shared, stream: TcpStream, number: usize) -> Session<'a> {
        let control = BufReader::new(stream);
        Session {
            shared,
            control,
            number,
            passive: None,
            reached: None,
            rest: 0,
            from: None,
            directory: "/".to_owned(),
        }
    }

    fn say(&mut self, text: &str) -> Done {
        self.control.get_mut().write_all(format!("{text}\r\n").as_bytes())
    }

    fn faults(&self) -> Faults {
        self.shared.faults.lock().unwrap().clone()
    }

    /// One fault of a number of them.
    fn once(&self, count: impl Fn(&mut Faults) -> &mut usize) -> bool {
        let mut faults = self.shared.faults.lock().unwrap();
        let left = count(&mut faults);
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        is_left
    }

    fn node(&self, path: &str) -> Option<Node> {
        self.shared.nodes.lock().unwrap().get(path).cloned()
    }

    fn is_full(&self) -> bool {
        let most = self.faults().most_connections;
        most > 0 && self.number > most
    }

    fn run(&mut self) -> Done {
        if self.is_full() && !self.faults().refuses_at_login {
            return self.say("421 There are too many connections from your internet address.");
        }
        self.say("220 here")?;
        loop {
            let mut line = Vec::new();
            if self.control.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if self.faults().drops_what_came_early {
                let early = self.control.buffer().len();
                self.control.consume(early);
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            self.shared.seen.lock().unwrap().push(line.clone());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let path = if argument.starts_with('/') { argument.to_owned() } else { format!("/{argument}") };
            let path = if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path };
            if verb == "QUIT" {
                return self.say("221 bye");
            }
            self.answer(verb, argument, &path)?;
        }
    }

    fn answer(&mut self, verb: &str, argument: &str, path: &str) -> Done {
        let faults = self.faults();
        let node = self.node(path);
        let file = node.as_ref().and_then(|node| node.content.clone());
        match verb {
            "AUTH" if faults.offers_tls => self.say("234 go on").and_then(|()| self.say("220 this is not TLS")),
            "USER" if faults.endless_line => loop {
                self.control.get_mut().write_all(&[b'3'; 1 << 16])?;
            },
            "FEAT" if faults.endless_reply => {
                self.say("211-x")?;
                loop {
                    self.control.get_mut().write_all(&b" y\r\n".repeat(1 << 14))?;
                }
            }
            "USER" => self.say("331 and?"),
            "PASS" if self.is_full() => self.say("530 Sorry, the maximum number of clients are already connected"),
            "PASS" => self.say("230 in"),
            "FEAT" => {
                if faults.features_wait_for_data {
                    let listener = self.passive.as_ref().expect("EPSV came before");
                    self.reached = Some(listener.accept()?.0);
                }
                self.say("211-Features:")?;
                if !faults.lists_only {
                    self.say(" MLST type*;size*;modify*;")?;
                    self.say(" MFMT")?;
                }
                if faults.promises_rest {
                    self.say(" REST STREAM")?;
                }
                if faults.sum.is_some() {
                    self.say(" XSHA256")?;
                }
                self.say("211 End")
            }
            "PWD" => self.say("257 \"/\" here"),
            "TYPE" | "NOOP" => self.say("200 ok"),
            "EPSV" if faults.passive_elsewhere => self.say("500 what?"),
            "EPSV" if self.once(|faults| &mut faults.has_no_port) => self.say("425 no port"),
            "EPSV" => {
                let port = self.listen()?;
                self.say(&format!("229 ok (|||{port}|)"))
            }
            "PASV" => {
                let port = self.listen()?;
                self.say(&format!("227 ok (192,0,2,1,{},{})", port >> 8, port & 255))
            }
            "REST" if faults.has_no_rest => self.say("502 no"),
            "REST" => {
                self.rest = if faults.ignores_rest { 0 } else { argument.parse().unwrap() };
                self.say("350 ok")
            }
            "SIZE" => match file {
                Some(content) => self.say(&format!("213 {}", content.len() as i64 + faults.size_off_by)),
                None => self.say("550 no"),
            },
            "MDTM" if argument.as_bytes().get(14) == Some(&b' ') => self.set_time(argument, &faults),
            "MDTM" => match node.filter(|node| node.content.is_some()) {
                Some(node) => self.say(&format!("213 {}", node.time)),
                None => self.say("550 no"),
            },
            "MFMT" => self.set_time(argument, &faults),
            "MLST" if faults.lists_only => self.say("500 what?"),
            "MLST" => match node {
                Some(node) => {
                    self.say("250-it")?;
                    self.say(&format!(" {} {path}", facts(&node, &faults)))?;
                    self.say("250 end")
                }
                None => self.say("550 no"),
            },
            "CWD" => match node.filter(|node| node.content.is_none()) {
                Some(_) => {
                    path.clone_into(&mut self.directory);
                    self.say("250 ok")
                }
                None => self.say("550 no"),
            },
            "MLSD" if faults.lists_only => self.say("500 what?"),
            "MLSD" | "LIST" => self.list(verb, path, &faults),
            "RETR" => self.send(path, file, &faults),
            "STOR" => self.take(path, &faults),
            "XSHA256" => self.say(&format!("250 {}", faults.sum.unwrap_or_default())),
            "MKD" if self.make_at(path, None) => self.say("257 made"),
            "MKD" => self.say("550 no"),
            "DELE" if file.is_some() => self.remove(path),
            "RMD" => {
                let beneath = format!("{path}/");
                let is_full = self.shared.nodes.lock().unwrap().keys().any(|other| other.starts_with(&beneath));
                if is_full { self.say("550 it is not empty") } else { self.remove(path) }
            }
            "RNFR" if node.is_some() => {
                self.from = Some(path.to_owned());
                self.say("350 and?")
            }
            "RNTO" if faults.refuses_to_replace && node.is_some() => self.say("550 it exists"),
            "RNTO" if node.as_ref().is_some_and(|node| node.content.is_none()) => self.say("550 it is a directory"),
            "RNTO" => {
                let from = self.from.take().unwrap_or_default();
                let mut nodes = self.shared.nodes.lock().unwrap();
                if let Some(node) = nodes.remove(&from) {
                    nodes.insert(path.to_owned(), node);
                }
                drop(nodes);
                self.say("250 ok")
            }
            "DELE" | "RNFR" => self.say("550 no"),
            "SITE" => self.say("200 ok"),
            _ => self.say("500 what?"),
        }
    }

    fn set_time(&mut self, argument: &str, faults: &Faults) -> Done {
        let (time, path) = argument.split_once(' ').unwrap_or_default();
        if faults.keeps_no_times {
            return self.say("550 no");
        }
        if let Some(node) = self.shared.nodes.lock().unwrap().get_mut(path) {
            time.clone_into(&mut node.time);
        }
        self.say("213 ok")
    }

    /// Makes a directory, or an empty file.
    fn make_at(&self, path: &str, content: Option<Vec<u8>>) -> bool {
        let is_file = content.is_some();
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let mut nodes = self.shared.nodes.lock().unwrap();
        let above = if above.is_empty() { "/" } else { above };
        let has_parent = nodes.get(above).is_some_and(|node| node.content.is_none());
        let is_free = nodes.get(path).is_none_or(|node| is_file && node.content.is_some());
        if has_parent && is_free {
            nodes.insert(path.to_owned(), Node { content, time: "20260101000000".to_owned() });
        }
        has_parent && is_free
    }

    fn remove(&mut self, path: &str) -> Done {
        let was_there = self.shared.nodes.lock().unwrap().remove(path).is_some();
        self.say(if was_there { "250 gone" } else { "550 no" })
    }

    fn listen(&mut self) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        self.passive = Some(listener);
        Ok(port)
    }

    fn data(&mut self) -> std::io::Result<TcpStream> {
        let listener = self.passive.take().ok_or(std::io::ErrorKind::NotConnected)?;
        self.reached.take().map_or_else(|| Ok(listener.accept()?.0), Ok)
    }

    fn list(&mut self, verb: &str, path: &str, faults: &Faults) -> Done {
        let directory = if verb == "MLSD" { path.to_owned() } else { self.directory.clone() };
        let Some(Node { content: None, .. }) = self.node(&directory) else { return self.say("550 no") };
        let mut data = self.data()?;
        self.say("150 now")?;
        let beneath = if directory == "/" { directory } else { format!("{directory}/") };
        let nodes = self.shared.nodes.lock().unwrap().clone();
        let mut lines = faults.lines.clone();
        if faults.lines.is_empty() {
            for (path, node) in nodes {
                let Some(name) = path.strip_prefix(&beneath).filter(|name| !name.is_empty() && !name.contains('/'))
                else {
                    continue;
                };
                lines.push(match (verb, &node.content) {
                    ("MLSD", _) => format!("{} {name}", facts(&node, faults)),
                    (_, Some(content)) if faults.lists_dos => format!("11-06-94  08:49AM {:>20} {name}", content.len()),
                    (_, None) if faults.lists_dos => format!("11-06-94  08:49AM       <DIR>          {name}"),
                    (_, Some(content)) => {
                        format!("-rw-r--r--    1 0        0        {} Nov  6  1994 {name}", content.len())
                    }
                    (_, None) => format!("drwxr-xr-x    2 0        0            4096 Nov  6  1994 {name}"),
                });
            }
        }
        data.write_all(lines.iter().map(|line| format!("{line}\r\n")).collect::<String>().as_bytes())?;
        drop(data);
        self.say("226 that was it")
    }

    fn send(&mut self, path: &str, file: Option<Vec<u8>>, faults: &Faults) -> Done {
        let Some(content) = file else { return self.say("550 no") };
        let mut data = self.data()?;
        self.say("150 now")?;
        let from = std::mem::take(&mut self.rest).min(content.len());
        let end = content.len() - faults.short_by.min(content.len() - from);
        let bytes = &content[from..end];
        if let Some(other) = &faults.replaces {
            let node = Node { content: Some(other.clone()), time: "20200101000000".to_owned() };
            self.shared.nodes.lock().unwrap().insert(path.to_owned(), node);
        }
        if bytes.len() > faults.cuts_after && self.once(|faults| &mut faults.cuts) {
            data.write_all(&bytes[..faults.cuts_after])?;
            drop(data);
            return self.say("426 cut");
        }
        let sent = data.write_all(bytes);
        let _ = data.shutdown(Shutdown::Write);
        drop(data);
        if self.once(|faults| &mut faults.forgets_226) {
            return Err(std::io::ErrorKind::Other.into());
        }
        self.say(match sent {
            Ok(()) => "226 all of it",
            Err(_) if faults.says_150_of_a_cut => "150 0.1 seconds",
            Err(_) => "426 nobody reads",
        })
    }

    fn take(&mut self, path: &str, faults: &Faults) -> Done {
        let from = std::mem::take(&mut self.rest);
        if from > 0 && faults.refuses_to_go_on {
            return self.say("451 restart not permitted");
        }
        let shared = self.shared;
        if faults.locks_uploads && self.node(path).is_none() && !self.make_at(path, Some(Vec::new())) {
            return self.say("550 no");
        }
        let uploads = shared.uploads.lock().unwrap();
        let is_locked = |uploads: &mut Vec<String>| faults.locks_uploads && uploads.iter().any(|other| other == path);
        shared.upload_ended.wait_while(uploads, is_locked).unwrap().push(path.to_owned());
        let taken = self.take_from(from, path, faults);
        let mut uploads = shared.uploads.lock().unwrap();
        let at = uploads.iter().position(|other| other == path).unwrap();
        uploads.swap_remove(at);
        shared.upload_ended.notify_all();
        taken
    }

    fn take_from(&mut self, mut from: usize, path: &str, faults: &Faults) -> Done {
        {
            let mut nodes = self.shared.nodes.lock().unwrap();
            let standing = nodes.get_mut(path).and_then(|node| node.content.as_mut());
            let has = standing.as_ref().map_or(0, |content| content.len());
            if from > has && faults.refuses_holes {
                drop(nodes);
                return self.say("554 invalid REST argument");
            }
            if faults.cuts_off_there {
                from = from.min(has);
            }
            if faults.empties_after_rest {
                from = 0;
            }
            if let Some(content) = standing {
                content.truncate(if faults.cuts_off_there || from == 0 { from } else { has });
            }
        }
        let is_new = self.node(path).is_none() && !faults.locks_uploads;
        if is_new && !self.make_at(path, Some(Vec::new())) {
            return self.say("550 no");
        }
        let mut data = self.data()?;
        self.say("150 now")?;
        let is_cut = |taken: usize| faults.upload_cuts > 0 && taken > faults.upload_cuts_after;
        let (mut content, mut block, mut was_cut) = (Vec::new(), vec![0; 64 << 10], false);
        let whole = loop {
            match data.read(&mut block) {
                Ok(0) => break true,
                Ok(count) => content.extend_from_slice(&block[..count]),
                Err(_) => break false,
            }
            if is_cut(content.len()) && self.once(|faults| &mut faults.upload_cuts) {
                content.truncate(faults.upload_cuts_after);
                was_cut = true;
                break true;
            }
        };
        drop(data);
        content.truncate(content.len() - faults.loses.min(content.len()));
        if faults.garbles_from.is_some_and(|least| content.len() > least) {
            content[0] ^= 1;
        }
        if !was_cut && self.once(|faults| &mut faults.forgets_226) {
            return Err(std::io::ErrorKind::Other.into());
        }
        if whole {
            self.store(path, from, &content, faults);
        }
        self.say(if whole && !was_cut { "226 all of it" } else { "426 cut" })
    }
}

impl Session<'_> {
    /// What was removed meanwhile is written to nowhere.
    fn store(&self, path: &str, from: usize, content: &[u8], faults: &Faults) {
        let mut nodes = self.shared.nodes.lock().unwrap();
        let standing = nodes.get_mut(path).and_then(|node| node.content.as_mut());
        if let Some(standing) = standing.filter(|_| !content.is_empty()) {
            let from = if faults.appends { standing.len() } else { from };
            let end = from + content.len();
            standing.resize(standing.len().max(end), 0);
            standing[from..end].copy_from_slice(content);
        }
    }
}

fn facts(node: &Node, faults: &Faults) -> String {
    match &node.content {
        Some(content) => {
            format!("type=file;size={};modify={};", content.len() as i64 + faults.size_off_by, node.time)
        }
        None => format!("type=dir;modify={};", node.time),
    }
}

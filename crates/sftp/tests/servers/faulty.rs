//! A server of our own that breaks the protocol on purpose. It has a few files in memory, and answers as a script says.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use haul_sftp::Pipe;

/// A request as the server reads it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub kind: u8,
    pub id: u32,
    /// All behind the number.
    pub rest: Vec<u8>,
}

impl Asked {
    /// The string at the beginning, mostly a path or handle.
    pub fn string(&self) -> Vec<u8> {
        let length = u32::from_be_bytes(self.rest[..4].try_into().unwrap()) as usize;
        self.rest[4..4 + length].to_vec()
    }

    pub fn behind_string(&self) -> &[u8] {
        let length = u32::from_be_bytes(self.rest[..4].try_into().unwrap()) as usize;
        &self.rest[4 + length..]
    }
}

/// What a server does with a request instead of what it should. `None`: it answers as it should.
pub type Script = Box<dyn FnMut(&Asked) -> Option<Vec<u8>> + Send>;

pub const OPEN: u8 = 3;
pub const READ: u8 = 5;
pub const WRITE: u8 = 6;
pub const SETSTAT: u8 = 9;
pub const FSETSTAT: u8 = 10;
pub const READDIR: u8 = 12;
pub const RENAME: u8 = 18;

/// A packet with its length.
pub fn packet(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rest.len() + 5).unwrap();
    [&length.to_be_bytes()[..], &[kind], &id.to_be_bytes(), rest].concat()
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

pub fn status(id: u32, code: u32) -> Vec<u8> {
    packet(101, id, &[&code.to_be_bytes()[..], &string(b"so it is"), &string(b"")].concat())
}

pub fn names(id: u32, names: &[(&[u8], u32)]) -> Vec<u8> {
    let mut rest = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for (name, mode) in names {
        rest.extend([string(name), string(b""), attributes(*mode, 4)].concat());
    }
    packet(104, id, &rest)
}

pub fn attributes(mode: u32, size: u64) -> Vec<u8> {
    [
        &(1_u32 | 2 | 4 | 8).to_be_bytes()[..],
        &size.to_be_bytes(),
        &[0; 8],
        &mode.to_be_bytes(),
        &[0, 0, 0, 7],
        &[0, 0, 0, 7],
    ]
    .concat()
}

pub const FILE: u32 = 0o100_644;
pub const DIRECTORY: u32 = 0o040_755;

/// The tree of the server, which tests look at.
#[derive(Clone, Default)]
pub struct Tree(pub Arc<Mutex<HashMap<Vec<u8>, Entry>>>);

#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub data: Vec<u8>,
    pub mode: u32,
}

impl Tree {
    pub fn with(files: &[(&str, &[u8])]) -> Self {
        let tree = Self::default();
        let root = Entry { mode: DIRECTORY, ..Entry::default() };
        tree.0.lock().unwrap().insert(b".".to_vec(), root);
        for (path, data) in files {
            let entry = Entry { data: data.to_vec(), mode: FILE };
            tree.0.lock().unwrap().insert(path.as_bytes().to_vec(), entry);
        }
        tree
    }

    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(path.as_bytes()).map(|entry| entry.data.clone())
    }

    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            self.0.lock().unwrap().keys().map(|path| String::from_utf8(path.clone()).unwrap()).collect();
        paths.sort();
        paths
    }
}

/// How a server begins.
pub struct Faults {
    /// The greeting behind its kind: version and extensions.
    pub greeting: Vec<u8>,
    pub extensions: Vec<&'static str>,
    pub script: Script,
    /// The server ends after so many bytes that it said.
    pub cut_after: Option<usize>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            greeting: 3_u32.to_be_bytes().to_vec(),
            extensions: Vec::new(),
            script: Box::new(|_| None),
            cut_after: None,
        }
    }
}

/// Starts it, with the thread that it runs on.
pub fn start(tree: &Tree, faults: Faults) -> (Pipe, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let tree = tree.clone();
    let thread = std::thread::spawn(move || Running { tree, faults, stream: theirs, said: 0 }.serve());
    let end = ours.try_clone().unwrap();
    let pipe = Pipe {
        output: OwnedFd::from(ours.try_clone().unwrap()),
        input: OwnedFd::from(File::from(OwnedFd::from(ours))),
        heard: Vec::new(),
        is_greeted: false,
        end: Box::new(move || drop(end.shutdown(std::net::Shutdown::Both))),
        why_ended: Box::new(|| None),
    };
    (pipe, thread)
}

struct Running {
    tree: Tree,
    faults: Faults,
    stream: UnixStream,
    said: usize,
}

impl Running {
    fn serve(mut self) {
        let mut listed: HashMap<Vec<u8>, bool> = HashMap::new();
        let mut length = [0; 4];
        while self.stream.read_exact(&mut length).is_ok() {
            let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
            if self.stream.read_exact(&mut bytes).is_err() {
                return;
            }
            if bytes[0] == 1 {
                let mut rest = self.faults.greeting.clone();
                for name in &self.faults.extensions {
                    rest.extend([string(name.as_bytes()), string(b"1")].concat());
                }
                let whole = [&u32::try_from(rest.len() + 1).unwrap().to_be_bytes()[..], &[2], &rest].concat();
                if !self.say(&whole) {
                    return;
                }
                continue;
            }
            let id = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
            let asked = Asked { kind: bytes[0], id, rest: bytes[5..].to_vec() };
            let answer = (self.faults.script)(&asked).unwrap_or_else(|| self.answer(&asked, &mut listed));
            if !self.say(&answer) {
                return;
            }
        }
    }

    /// False: it is cut.
    fn say(&mut self, bytes: &[u8]) -> bool {
        let left = self.faults.cut_after.map_or(usize::MAX, |most| most - self.said);
        let bytes = &bytes[..bytes.len().min(left)];
        self.said += bytes.len();
        self.stream.write_all(bytes).is_ok() && bytes.len() < left
    }

    fn answer(&self, asked: &Asked, listed: &mut HashMap<Vec<u8>, bool>) -> Vec<u8> {
        let mut tree = self.tree.0.lock().unwrap();
        let id = asked.id;
        let path = asked.string();
        let u64_at = |at: usize| u64::from_be_bytes(asked.behind_string()[at..at + 8].try_into().unwrap());
        let u32_at = |at: usize| u32::from_be_bytes(asked.behind_string()[at..at + 4].try_into().unwrap());
        let path = match path.strip_prefix(b"./") {
            Some(b"") => b".".to_vec(),
            Some(beneath) => beneath.to_vec(),
            None => path,
        };
        match asked.kind {
            OPEN => {
                let flags = u32_at(0);
                let exists = tree.contains_key(&path);
                if exists && flags & 0x20 != 0 {
                    return status(id, 4);
                }
                if !exists && flags & 8 == 0 {
                    return status(id, 2);
                }
                tree.entry(path.clone()).or_insert(Entry { mode: 0o100_600, ..Entry::default() });
                packet(102, id, &string(&path))
            }
            11 => {
                listed.insert(path.clone(), false);
                packet(102, id, &string(&path))
            }
            4 => status(id, 0),
            READ => {
                let (offset, most) = (u64_at(0) as usize, u32_at(8) as usize);
                let data = tree.get(&path).map(|entry| entry.data.clone()).unwrap_or_default();
                match data.get(offset..) {
                    None | Some([]) => status(id, 1),
                    Some(rest) => packet(103, id, &string(&rest[..rest.len().min(most)])),
                }
            }
            WRITE => {
                let offset = u64_at(0) as usize;
                let data = &asked.behind_string()[12..];
                let Some(entry) = tree.get_mut(&path) else { return status(id, 2) };
                let end = offset + data.len();
                if entry.data.len() < end {
                    entry.data.resize(end, 0);
                }
                entry.data[offset..end].copy_from_slice(data);
                status(id, 0)
            }
            7 | 8 | 17 => match tree.get(&path) {
                Some(entry) => packet(105, id, &attributes(entry.mode, entry.data.len() as u64)),
                None => status(id, 2),
            },
            SETSTAT | FSETSTAT => {
                // Only modes are kept: behind the flags, if they are all.
                match tree.get_mut(&path) {
                    Some(entry) if u32_at(0) & 5 == 4 => {
                        entry.mode = (entry.mode & 0o170_000) | (u32_at(4) & 0o7777);
                        status(id, 0)
                    }
                    Some(_) => status(id, 0),
                    None => status(id, 2),
                }
            }
            READDIR => {
                if listed.insert(path.clone(), true) == Some(true) {
                    return status(id, 1);
                }
                let names_of: Vec<(Vec<u8>, u32)> = tree
                    .iter()
                    .filter(|(name, _)| &name[..] != b"." && !name.contains(&b'/'))
                    .map(|(name, entry)| (name.clone(), entry.mode))
                    .collect();
                let borrowed: Vec<(&[u8], u32)> = names_of.iter().map(|(name, mode)| (&name[..], *mode)).collect();
                if borrowed.is_empty() { status(id, 1) } else { names(id, &borrowed) }
            }
            13 => status(id, if tree.remove(&path).is_some() { 0 } else { 2 }),
            RENAME => {
                let to = &asked.behind_string()[4..];
                let to = to.strip_prefix(b"./").unwrap_or(to);
                if tree.contains_key(to) {
                    return status(id, 4);
                }
                match tree.remove(&path) {
                    Some(entry) => {
                        tree.insert(to.to_vec(), entry);
                        status(id, 0)
                    }
                    None => status(id, 2),
                }
            }
            _ => status(id, 8),
        }
    }
}

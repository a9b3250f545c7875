//! A WebDAV server in memory, for tests that make it misbehave.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use haul_foreign::{Credentials, DavServer, DavTarget, OpenOptions};

use crate::server::{Reply, Request, Server, file, settings, status};

/// Unescaped paths. A directory ends in a slash.
pub type Files = BTreeMap<String, File>;

#[derive(Clone, Debug, Default)]
pub struct File {
    pub data: Vec<u8>,
}

#[derive(Clone, Default)]
pub struct Dav {
    pub files: Arc<Mutex<Files>>,
}

const OK: &str = "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>";

pub fn unescaped(target: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), target.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                rest = &tail[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn escaped(path: &str) -> String {
    let escape = |byte: u8| match byte {
        b'/' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.bytes().map(escape).collect()
}

fn resource(path: &str, file: &File) -> String {
    let is_directory = path.ends_with('/');
    let kind = if is_directory { "<D:collection/>" } else { "" };
    let mut text = format!(
        "<D:response><D:href>{}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>",
        escaped(path)
    );
    if !is_directory {
        let _ = write!(text, "<D:getcontentlength>{}</D:getcontentlength>", file.data.len());
    }
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let _ = write!(text, "<D:getlastmodified>{date}</D:getlastmodified></D:prop>{OK}");
    text
}

pub fn multistatus(responses: &str) -> Reply {
    let body = format!("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>");
    let length = body.len().to_string();
    Reply { body: body.into_bytes(), ..status("207 Multi-Status", &[("Content-Length", &length)]) }
}

impl Dav {
    pub fn with(paths: &[(&str, &[u8])]) -> Dav {
        let dav = Dav::default();
        let mut files = dav.files.lock().unwrap();
        files.insert("/".to_owned(), File::default());
        for (path, data) in paths {
            files.insert((*path).to_owned(), File { data: data.to_vec() });
        }
        drop(files);
        dav
    }

    pub fn names(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(path).map(|file| file.data.clone())
    }

    pub fn answer(&self, request: &Request) -> Reply {
        let mut files = self.files.lock().unwrap();
        let path = unescaped(&request.target);
        let directory = format!("{}/", path.trim_end_matches('/'));
        let parent = |path: &str| path[..=path.trim_end_matches('/').rfind('/').unwrap_or(0)].to_owned();
        match request.method.as_str() {
            "OPTIONS" => status("200 OK", &[("Allow", "GET, PUT, PROPFIND, MOVE, MKCOL, DELETE"), ("DAV", "1")]),
            "PROPFIND" => {
                let known = [&path, &directory].into_iter().find(|path| files.contains_key(*path));
                let Some(known) = known else { return status("404 Not Found", &[]) };
                let mut responses = resource(known, &files[known]);
                if request.field("depth") == Some("1") && known.ends_with('/') {
                    let is_child = |path: &&String| path.len() > known.len() && parent(path) == *known;
                    files.keys().filter(is_child).for_each(|path| responses += &resource(path, &files[path]));
                }
                multistatus(&responses)
            }
            "GET" | "HEAD" => match files.get(&path) {
                Some(found) if !path.ends_with('/') => file(request, &found.data, "\"a\""),
                _ => status("404 Not Found", &[]),
            },
            // The head alone: the server wants the body.
            "PUT" if request.body.is_none() => Reply::default(),
            "PUT" => {
                if !files.contains_key(&parent(&path)) {
                    return status("409 Conflict", &[]);
                }
                let data = request.body.clone().unwrap();
                files.insert(path, File { data });
                status("201 Created", &[])
            }
            "MKCOL" if files.contains_key(&directory) || files.contains_key(&path) => {
                status("405 Method Not Allowed", &[])
            }
            "MKCOL" if !files.contains_key(&parent(&directory)) => status("409 Conflict", &[]),
            "MKCOL" => {
                files.insert(directory, File::default());
                status("201 Created", &[])
            }
            "MOVE" => {
                let to = request.field("destination").unwrap();
                let to =
                    unescaped(&to[to.find("://").unwrap() + 3..][to.split_once("://").unwrap().1.find('/').unwrap()..]);
                match files.remove(&path) {
                    Some(file) => {
                        files.insert(to, file);
                        status("204 No Content", &[])
                    }
                    None => status("404 Not Found", &[]),
                }
            }
            "DELETE" => {
                let before = files.len();
                files.retain(|name, _| *name != path && !(path.ends_with('/') && name.starts_with(&path)));
                status(if files.len() < before { "204 No Content" } else { "404 Not Found" }, &[])
            }
            _ => status("501 Not Implemented", &[]),
        }
    }

    pub fn target(&self, answer: impl Fn(&Dav, &Request) -> Reply + Send + Sync + 'static) -> (Server, DavTarget) {
        let dav = self.clone();
        let server = Server::start(move |request| answer(&dav, request));
        let (target, _) = open(&server, OpenOptions { make: true, ..OpenOptions::default() }).unwrap();
        (server, target)
    }
}

pub fn open(server: &Server, options: OpenOptions) -> Result<(DavTarget, Option<Vec<u8>>), haul_store::StoreError> {
    DavServer::new(server.url("/"), settings(Credentials::default())).open(options, Box::new(|_| ()))
}

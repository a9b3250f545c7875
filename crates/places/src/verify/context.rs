//! The tree and the list of a check, and the ways to both.

use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use haul_job::{Carriage, Endpoint, Error, Fault, Observer, SshOptions};
use haul_kept::files::hash_list::Style;
use haul_sys::standard_streams::Input;
use haul_wire::hashed::Algorithm;
use haul_wire::place::{Question, Verb};

use super::findings::VerifyWatcher;
use crate::file_at::FileAt;
use crate::lists::List;
use crate::request::Request;
use crate::ways::Ways;

/// The tree and the list of a check.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The place of the list.
    pub list: ListAt,
    /// The tree.
    pub tree: Endpoint,
    /// Files read at once here, at least 1.
    pub threads: usize,
    /// Looks for unlisted files.
    pub extra: bool,
    /// The hash of lines that name none. `None`: by length.
    pub algorithm: Option<Algorithm>,
    /// Settings of a connection.
    pub carriage: Carriage,
    /// Settings of the ssh program.
    pub ssh: SshOptions,
}

/// The place of a list of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAt {
    /// A file of this host.
    Here(PathBuf),
    /// Standard input.
    Input,
    /// A file of any place.
    At(Endpoint),
    /// The tree is a bag with its lists.
    InBag,
}

pub struct Context<'a> {
    pub options: &'a VerifyOptions,
    pub ways: &'a Ways,
    pub observer: &'a Arc<dyn Observer>,
    pub watcher: &'a dyn VerifyWatcher,
}

impl Context<'_> {
    pub fn request(&self, verb: Verb, path: Vec<u8>) -> Request {
        let VerifyOptions { tree, carriage, ssh, .. } = self.options;
        let question = Question { verb, paths: vec![path] };
        Request { place: tree.place.clone(), question, carriage: carriage.clone(), ssh: ssh.clone() }
    }

    pub(super) fn open_list(&self, list: &ListAt) -> Result<List, Error> {
        let is_root = !self.options.tree.path.is_empty() && self.options.tree.path.iter().all(|byte| *byte == b'/');
        let style = Style::Program { algorithm: self.options.algorithm, takes_absolute: is_root };
        match list {
            ListAt::Here(path) => List::open_here(path, style),
            ListAt::Input => {
                let input = Input::open().map_err(|error| {
                    Error::new(Fault::FileIo, "cannot read the list from standard input").because(error)
                })?;
                List::read(Box::new(BufReader::new(input)), "from standard input", style)
            }
            ListAt::At(endpoint) => {
                let request =
                    Request { place: endpoint.place.clone(), ..self.request(Verb::Read, endpoint.path.clone()) };
                let file = FileAt::open(&request, self.ways, self.observer)?;
                List::read(Box::new(file), &haul_store::printable(&endpoint.path), style)
            }
            ListAt::InBag => Err(Error::new(Fault::Usage, "a bag has several lists")),
        }
    }
}

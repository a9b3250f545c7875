//! Checks a bag (RFC 8493): its manifests, and no other files in its payload.

use std::collections::HashSet;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use haul_job::{Error, Fault};
use haul_wire::place::{List as Listing, Told, Verb};

use super::check::Check;
use super::context::Context;
use super::extra::join;
use crate::asking::ask;
use crate::file_at::{self, FileAt};
use crate::hearer::Piece;
use crate::lists::{List, bad_list};
use haul_kept::files::bag::{self, BagManifest};
use haul_kept::files::hash_list::{Listed, Style};

pub(super) struct Bag {
    manifests: Vec<BagManifest>,
    escapes_percent: bool,
    payload: Option<(u64, u64)>,
}

/// One manifest of each kind for each hash.
const MAX_MANIFESTS: usize = 16;

impl Bag {
    pub(super) fn open(context: &Context<'_>) -> Result<Self, Error> {
        let root = &context.options.tree.path;
        let (mut manifests, mut has_declaration, mut has_info, mut failed) = (Vec::new(), false, false, None);
        let request = context.request(Verb::List(Listing::default()), root.clone());
        ask(&request, context.ways, Arc::clone(context.observer), &mut |piece| {
            match piece {
                Piece::Line(Told::Entry { path, .. }) => {
                    let name = path.as_bytes();
                    has_declaration |= name == bag::DECLARATION.as_bytes();
                    has_info |= name == bag::INFO.as_bytes();
                    manifests.extend(bag::manifest(name).filter(|_| manifests.len() < MAX_MANIFESTS));
                }
                Piece::Line(Told::Failed { why, .. }) => failed = Some(why),
                Piece::Line(_) | Piece::Data(_) | Piece::Elsewhere(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        let shown = haul_store::printable(root);
        if let Some(why) = failed {
            return Err(Error::new(Fault::FileIo, format!("cannot look into {shown}")).because(why));
        }
        if !has_declaration {
            let what = format!("{shown} is no bag: it has no {}", bag::DECLARATION);
            return Err(Error::new(Fault::Usage, what).try_this("name a list of hashes, then the directory"));
        }
        manifests.sort_by_key(|manifest| !manifest.is_payload);
        if !manifests.first().is_some_and(|first| first.is_payload) {
            let what = "it has no manifest with a hash that is known: BLAKE3, MD5, SHA-1, SHA-256, SHA-512";
            return Err(Error::new(Fault::Verification, format!("the bag {shown} cannot be checked")).because(what));
        }
        let declaration = small_file(context, bag::DECLARATION)?;
        let escapes_percent = bag::escapes_percent(&declaration)
            .map_err(|why| bad_list(&format!("{shown}/{}", bag::DECLARATION), why))?;
        let payload = match has_info {
            true => bag::payload(&small_file(context, bag::INFO)?)
                .map_err(|why| bad_list(&format!("{shown}/{}", bag::INFO), why))?,
            false => None,
        };
        Ok(Self { manifests, escapes_percent, payload })
    }

    /// Returns the number of files that a manifest lacks.
    pub(super) fn check(&self, context: &Context<'_>, check: &mut Check<'_>) -> Result<u64, Error> {
        let mut all_seen = Vec::new();
        for manifest in &self.manifests {
            let before = check.totals;
            let mut seen = HashSet::new();
            let style = Style::Bag { algorithm: manifest.algorithm, escapes_percent: self.escapes_percent };
            let mut list = List::read(Box::new(open(context, &manifest.name)?), &manifest.name, style)?;
            let mut next = || match list.next_file()? {
                Some(listed) if is_payload(&listed) != manifest.is_payload => {
                    let path = haul_store::printable(listed.path.as_bytes());
                    Err(bad_list(&manifest.name, format!("it lists {path}, which does not belong there")))
                }
                next => Ok(next),
            };
            check.list(&mut next, Some(&mut seen))?;
            if !manifest.is_payload {
                continue;
            }
            all_seen.push(seen);
            let found = (check.totals.bytes - before.bytes, check.totals.files - before.files);
            let is_whole = check.totals.differing == before.differing;
            if let Some((bytes, files)) = self.payload.filter(|payload| is_whole && *payload != found) {
                let why = format!(
                    "it says {bytes} bytes in {files} files, and {} lists {} in {}",
                    manifest.name, found.0, found.1
                );
                return Err(bad_list(bag::INFO, why));
            }
        }
        context.find_extra(check, bag::PAYLOAD.as_bytes(), &all_seen, None)
    }
}

fn is_payload(listed: &Listed) -> bool {
    let payload = bag::PAYLOAD.as_bytes();
    listed.path.as_bytes().strip_prefix(payload).is_some_and(|rest| rest.starts_with(b"/"))
}

fn open(context: &Context<'_>, name: &str) -> Result<FileAt, Error> {
    let path = join(&context.options.tree.path, name.as_bytes());
    FileAt::open(&context.request(Verb::Read, path), context.ways, context.observer)
}

fn small_file(context: &Context<'_>, name: &str) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let most = bag::MAX_TAG_BYTES as u64;
    let read = open(context, name)?.take(most + 1).read_to_end(&mut text);
    match read {
        Ok(_) if text.len() as u64 > most => Err(bad_list(name, "it is too long")),
        Ok(_) => Ok(text),
        Err(error) => Err(file_at::told(error, || format!("cannot read {name}"))),
    }
}

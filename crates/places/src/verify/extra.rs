//! Looks for files that no list has.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use haul_job::{Error, Fault, Here, Place};
use haul_store::{Kind, LocalTree, TargetOptions};
use haul_wire::place::{self as wire, Told, Verb};

use super::check::{Check, short_hash};
use super::context::Context;
use super::findings::{Finding, interrupted};
use crate::asking::ask;
use crate::hearer::Piece;
use crate::request::Answered;

impl Context<'_> {
    /// Reports every regular file beneath `directory` that a set lacks, except the list, and each entry that cannot be listed.
    pub(crate) fn find_extra(
        &self,
        check: &mut Check<'_>,
        directory: &[u8],
        seen: &[HashSet<[u8; 16]>],
        list: Option<(u64, u64)>,
    ) -> Result<u64, Error> {
        let (mut extra, watcher) = (0, self.watcher);
        let is_listed = |path: &[u8]| seen.iter().all(|seen| seen.contains(&short_hash(path)));
        let root = join(&self.options.tree.path, directory);
        if self.options.tree.place == Place::Here(Here::Disk) {
            let tree = LocalTree::open(&root, &TargetOptions { read_only: true, ..TargetOptions::default() }).map_err(
                |error| {
                    let what = format!("cannot look for extra files in {}", haul_store::printable(&root));
                    Error::new(Fault::FileIo, what).because(error.source)
                },
            )?;
            let flow = tree.0.each_entry(|path, found| {
                if watcher.interrupted() {
                    return ControlFlow::Break(());
                }
                let path = join(directory, path);
                match found {
                    Ok(stat) => {
                        let is_list = list == Some((stat.id.dev, stat.id.ino));
                        if stat.kind == Kind::File && !is_listed(&path) && !is_list {
                            extra += 1;
                            watcher.on_finding(&path, &Finding::Extra);
                        }
                    }
                    Err(error) => check.tell(&path, &Finding::Unreadable(error.source.to_string())),
                }
                ControlFlow::Continue(())
            });
            return if flow.is_continue() { Ok(extra) } else { Err(interrupted()) };
        }
        let all = wire::List { recursive: true, hidden: true, itself: false, facts: true };
        let request = self.request(Verb::List(all), root);
        let answered = ask(&request, self.ways, Arc::clone(self.observer), &mut |piece| {
            match piece {
                Piece::Line(Told::Entry { path, facts: Some(facts) }) => {
                    let path = join(directory, path.as_bytes());
                    if facts.kind == wire::Kind::File && !is_listed(&path) {
                        extra += 1;
                        watcher.on_finding(&path, &Finding::Extra);
                    }
                }
                Piece::Line(Told::Failed { why, .. }) => check.tell(directory, &Finding::Unreadable(why)),
                Piece::Line(_) | Piece::Data(_) | Piece::Elsewhere(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        if answered == Answered::Whole { Ok(extra) } else { Err(interrupted()) }
    }
}

pub fn join(directory: &[u8], path: &[u8]) -> Vec<u8> {
    match (directory, path) {
        (b"", _) => path.to_vec(),
        (_, b"") => directory.to_vec(),
        (directory, path) if directory.ends_with(b"/") => [directory, path].concat(),
        (directory, path) => [directory, b"/", path].concat(),
    }
}

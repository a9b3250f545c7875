//! A target directory during a walk: its source directories in one sorted listing, a name once for each.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::at;
use crate::files_from::{Extent, FileList, Range};
use crate::found::Found;
use crate::limits::MAX_OPEN_DIRS;
use crate::listing::{Hint, Names};
use crate::meta::Stat;
use crate::source::{Source, SourceSet};

pub(crate) struct Directory {
    pub source: u32,
    pub seen: Stat,
    pub opened: io::Result<OwnedFd>,
}

pub(crate) struct Layer {
    pub source: u32,
    /// Closed when many others are open; reopened, and checked to be the same, when needed.
    pub dir: Option<Arc<OwnedFd>>,
    pub stat: Stat,
}

pub(crate) struct Frame {
    pub layers: Vec<Layer>,
    pub names: Names,
    pub next_name: usize,
    /// The listed paths beneath it, still to come.
    pub listed: Option<Range>,
    pub extent: Extent,
    /// A directory on the way, held until the first entry in it.
    pub unannounced: Vec<Found>,
    pub path_bytes: usize,
    pub complete: bool,
    /// The top above sources named one by one: not in the manifest.
    pub is_loose: bool,
}

pub(crate) struct Wanted {
    /// The sources with the name, and its type there. With a list, the one source counts as having every listed name until
    /// looked at.
    pub sources: Vec<(u32, Hint)>,
    /// A list has the name or something beneath it.
    pub is_listed: bool,
    pub extent: Extent,
    /// The listed paths beneath it.
    pub beneath: Option<Range>,
}

impl Wanted {
    pub(crate) fn leads_on(&self) -> bool {
        self.beneath.is_some() || (self.is_listed && self.extent == Extent::Entries)
    }
}

#[derive(Default)]
pub(crate) struct Stack {
    frames: Vec<Frame>,
    open: usize,
    /// Frames before this one hold no descriptors.
    first_open: usize,
}

impl Stack {
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn top(&mut self) -> Option<&mut Frame> {
        self.frames.last_mut()
    }

    /// The share of the tree behind the walk: each directory divides its part among its names (Knuth, "Estimating the
    /// Efficiency of Backtrack Programs", 1975). An empty stack has all.
    pub(crate) fn share(&self) -> f64 {
        let (mut behind, mut part) = (0.0, 1.0);
        for (depth, frame) in self.frames.iter().enumerate() {
            // The last name leads to the next frame.
            let is_top = depth + 1 == self.frames.len();
            let done = if is_top { frame.next_name } else { frame.next_name.saturating_sub(1) };
            let (before, all) = frame.names.weights(done);
            if all == 0 {
                return behind + part;
            }
            behind += part * before as f64 / all as f64;
            part *= frame.names.weight(done) as f64 / all as f64;
        }
        if self.frames.is_empty() { 1.0 } else { behind }
    }

    /// Whether this directory is one above: the walk would go in a circle.
    pub(crate) fn is_above(&self, source: u32, stat: &Stat) -> bool {
        self.frames.iter().any(|frame| frame.layer(source).is_some_and(|layer| layer.stat.is_same_inode(stat)))
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.open += frame.open();
        self.frames.push(frame);
        self.close_far_above();
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.open -= frame.open();
        self.first_open = self.first_open.min(self.frames.len());
        Some(frame)
    }

    pub(crate) fn dir(&mut self, set: &SourceSet, source: u32, source_path: &[u8]) -> Option<io::Result<Arc<OwnedFd>>> {
        let frame = self.frames.last_mut()?;
        let place = frame.layers.binary_search_by_key(&source, |layer| layer.source).ok()?;
        let layer = &mut frame.layers[place];
        if let Some(dir) = &layer.dir {
            return Some(Ok(Arc::clone(dir)));
        }
        let opened = at::open_by_path(set, source, source_path, frame.extent).and_then(|dir| {
            let same = Stat::of_fd(&dir)?.is_same_inode(&layer.stat);
            if same { Ok(Arc::new(dir)) } else { Err(Errno::STALE.into()) }
        });
        if let Ok(dir) = &opened
            && self.open < MAX_OPEN_DIRS
        {
            layer.dir = Some(Arc::clone(dir));
            self.open += 1;
            self.first_open = self.first_open.min(self.frames.len() - 1);
        }
        Some(opened)
    }

    pub(crate) fn announce(&mut self, found: &mut VecDeque<Found>) {
        for frame in self.frames.iter_mut().filter(|frame| frame.path_bytes > 0) {
            found.extend(frame.unannounced.drain(..));
        }
    }

    /// Closes the directories nearest to the root, which are needed last.
    fn close_far_above(&mut self) {
        while self.open > MAX_OPEN_DIRS
            && let Some(frame) = self.frames.get_mut(self.first_open)
        {
            self.open -= frame.open();
            frame.layers.iter_mut().for_each(|layer| layer.dir = None);
            self.first_open += 1;
        }
    }
}

impl Frame {
    pub(crate) fn of(names: Names) -> Frame {
        Frame {
            layers: Vec::new(),
            names,
            next_name: 0,
            listed: None,
            extent: Extent::All,
            unannounced: Vec::new(),
            path_bytes: 0,
            complete: false,
            is_loose: false,
        }
    }

    pub(crate) fn next(&mut self, list: Option<&FileList>) -> Option<(Vec<u8>, Wanted)> {
        let found = self.names.get(self.next_name).map(|(name, _)| name);
        let listed = self.listed.and_then(|range| list?.child(range));
        let order = match (found, &listed) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(name), Some(child)) => name.cmp(&child.name[..]),
        };
        let extent = self.extent.of_entry();
        let mut wanted = Wanted { sources: Vec::with_capacity(1), is_listed: false, extent, beneath: None };
        let mut name = Vec::new();
        if let Some(found) = found.filter(|_| order.is_le()) {
            name = found.to_vec();
            while let Some((_, hint)) = self.names.get(self.next_name).filter(|(next, _)| *next == name) {
                wanted.sources.extend(self.names.source(self.next_name).map(|source| (source, hint)));
                self.next_name += 1;
            }
        } else {
            wanted.sources.push((0, Hint::Unknown));
        }
        if let Some(child) = listed.filter(|_| order.is_ge()) {
            self.listed = self.listed.map(|range| Range { low: child.next, ..range });
            wanted.is_listed = true;
            wanted.extent = extent.max(child.extent);
            wanted.beneath = child.beneath;
            name = child.name;
        }
        Some((name, wanted))
    }

    fn layer(&self, source: u32) -> Option<&Layer> {
        let place = self.layers.binary_search_by_key(&source, |layer| layer.source).ok()?;
        self.layers.get(place)
    }

    fn open(&self) -> usize {
        self.layers.iter().filter(|layer| layer.dir.is_some()).count()
    }
}

pub(crate) fn source_path<'a>(set: &SourceSet, is_listed: bool, source: u32, path: &'a [u8]) -> &'a [u8] {
    let Source { name, is_dir, .. } = set.source(source);
    if !is_dir || name.is_empty() || is_listed {
        return path;
    }
    let beneath = path.strip_prefix(&name[..]).unwrap_or_default();
    beneath.strip_prefix(b"/").unwrap_or(beneath)
}

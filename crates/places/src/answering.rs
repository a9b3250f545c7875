//! Answers a question about trees of this host.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use haul_store::StoreError;
use haul_store::place::{
    Counted, Elsewhere, EntryFacts, Grounds, Line, ListOptions, Moved, NodeKind, Operand, Removal,
};
use haul_sys::names::{self, Of};
use haul_wire::RelPath;
use haul_wire::limits::MAX_NAMED_ACCOUNTS;
use haul_wire::place::{Algorithm, Facts, Kind, Lacks, List, PAGE_BYTES, Question, Space, Told, Verb, Whole};

use super::hash_of::{FILES_TOGETHER, HASHED_AT_ONCE, hash_of, hash_together, moment};
use super::hearer::Hearer;
use haul_channel::convert;

pub fn answer(question: &Question, site: Grounds<'_>, hearer: &mut dyn Hearer) -> ControlFlow<()> {
    let mut answering = Answering { site, hearer, accounts: Accounts::default() };
    match &question.verb {
        Verb::List(list) => answering.list(&question.paths, *list),
        Verb::Stat { follow } => answering.each(&question.paths, |this, operand| this.stat(operand, *follow)),
        Verb::Space => answering.each(&question.paths, Answering::space),
        Verb::Usage { each } => {
            let mut counted = Counted::default();
            answering.each(&question.paths, |this, operand| this.usage(operand, *each, &mut counted))
        }
        Verb::Make { parents } => answering.each(&question.paths, |this, operand| this.make(operand, *parents)),
        Verb::Move { to, keep } => answering.rename(&question.paths, to, *keep),
        Verb::Remove { trees, force, dry_run } => {
            let removal = Removal { trees: *trees, force: *force, dry_run: *dry_run };
            answering.remove(&question.paths, removal)
        }
        Verb::Read => answering.each(&question.paths, Answering::read),
        Verb::Write | Verb::HashNamed => ControlFlow::Continue(()),
        Verb::Hash { algorithm } => answering.each(&question.paths, |this, operand| this.hash(operand, *algorithm)),
        Verb::Clean { remove, .. } => answering.each(&question.paths, |this, operand| {
            let Answering { site, hearer, accounts } = this;
            site.leftovers(operand, *remove, &mut |line| tell(*hearer, accounts, line))
        }),
    }
}

struct Answering<'a> {
    site: Grounds<'a>,
    hearer: &'a mut dyn Hearer,
    accounts: Accounts,
}

/// After one operand's failure the others go on.
type Done = Result<ControlFlow<()>, StoreError>;

impl Answering<'_> {
    fn each(&mut self, paths: &[Vec<u8>], mut work: impl FnMut(&mut Self, &Operand) -> Done) -> ControlFlow<()> {
        for path in paths {
            match self.site.operands(path) {
                Ok(operands) => operands.iter().try_for_each(|operand| self.one(operand, &mut work))?,
                Err(error) => self.failed(&error, true)?,
            }
        }
        ControlFlow::Continue(())
    }

    fn one(&mut self, operand: &Operand, work: &mut impl FnMut(&mut Self, &Operand) -> Done) -> ControlFlow<()> {
        self.hearer.line(Told::Operand { path: operand.shown.clone() })?;
        work(self, operand).unwrap_or_else(|error| self.failed(&error, true))
    }

    fn failed(&mut self, error: &StoreError, is_operand: bool) -> ControlFlow<()> {
        self.hearer.line(Told::Failed { is_operand, why: convert::bounded(error) })
    }

    /// Lists as ls does: directories come last.
    fn list(&mut self, paths: &[Vec<u8>], list: List) -> ControlFlow<()> {
        let options =
            ListOptions { recursive: list.recursive, hidden: list.hidden, itself: list.itself, facts: list.facts };
        let (mut plain, mut directories) = (Vec::new(), Vec::new());
        for path in paths {
            let operands = match self.site.operands(path) {
                Ok(operands) => operands,
                Err(error) => {
                    self.failed(&error, true)?;
                    continue;
                }
            };
            for operand in operands {
                match self.site.lists_entries(&operand, options) {
                    Ok(true) => directories.push(operand),
                    Ok(false) => plain.push(operand),
                    Err(error) => self.failed(&error, true)?,
                }
            }
        }
        plain.sort_by(|one, other| one.shown.cmp(&other.shown));
        directories.sort_by(|one, other| one.shown.cmp(&other.shown));
        for operand in &plain {
            self.one(operand, &mut |this, operand| match list.facts {
                true => this.stat(operand, false),
                false => Ok(this.hearer.line(Told::Entry { path: RelPath::root(), facts: None })),
            })?;
        }
        directories.iter().try_for_each(|operand| {
            self.one(operand, &mut |this, operand| {
                let Self { site, hearer, accounts } = this;
                site.list(operand, options, &mut |line| tell(*hearer, accounts, line))
            })
        })
    }

    fn stat(&mut self, operand: &Operand, follow: bool) -> Done {
        let facts = self.site.facts(operand, follow)?;
        let facts = self.accounts.facts(facts);
        Ok(self.hearer.line(Told::Entry { path: RelPath::root(), facts: Some(Box::new(facts)) }))
    }

    fn space(&mut self, operand: &Operand) -> Done {
        let found = self.site.space(operand)?;
        let space = Space {
            bytes: found.bytes,
            free_bytes: found.free_bytes,
            available_bytes: found.available_bytes,
            inodes: found.inodes,
            free_inodes: found.free_inodes,
        };
        Ok(self.hearer.line(Told::Space(space)))
    }

    fn usage(&mut self, operand: &Operand, each: bool, counted: &mut Counted) -> Done {
        let Self { site, hearer, accounts } = self;
        site.usage(operand, each, counted, &mut |line| tell(*hearer, accounts, line))
    }

    fn make(&mut self, operand: &Operand, parents: bool) -> Done {
        let made = self.site.make_directory(operand, parents)?;
        Ok(made.into_iter().try_for_each(|path| self.hearer.line(Told::Made { path })))
    }

    fn rename(&mut self, paths: &[Vec<u8>], to: &[u8], keep: bool) -> ControlFlow<()> {
        let (mut operands, mut is_whole) = (Vec::new(), true);
        for path in paths {
            match self.site.operands(path) {
                Ok(found) => operands.extend(found),
                Err(error) => {
                    is_whole = false;
                    self.failed(&error, true)?;
                }
            }
        }
        if (operands.len() > 1 || !is_whole) && !self.site.takes_entries(to) {
            let why = std::io::Error::new(
                std::io::ErrorKind::NotADirectory,
                "several entries can only be moved into a directory, and it is none",
            );
            return self.failed(&StoreError::new("move to", to, why), true);
        }
        operands.iter().try_for_each(|operand| {
            self.one(operand, &mut |this, operand| {
                let line = match this.site.rename(operand, to, keep)? {
                    Moved::To(to) => Told::Moved { to },
                    Moved::Stays(to) => Told::Stays { to },
                };
                Ok(this.hearer.line(line))
            })
        })
    }

    fn remove(&mut self, paths: &[Vec<u8>], removal: Removal) -> ControlFlow<()> {
        self.each(paths, |this, operand| {
            let Self { site, hearer, accounts } = this;
            site.remove(operand, removal, &mut |line| tell(*hearer, accounts, line))
        })
    }

    fn read(&mut self, operand: &Operand) -> Done {
        let file = self.site.read(operand)?;
        let failed = |error| self.site.read_failed(&operand.shown, error);
        let mut buffer = vec![0; PAGE_BYTES];
        let (mut offset, mut hasher) = (0, blake3::Hasher::new());
        loop {
            let read = file.read_at(&mut buffer, offset).map_err(failed)?;
            if read == 0 {
                let whole = Whole { bytes: offset, blake3: *hasher.finalize().as_bytes() };
                return Ok(self.hearer.line(Told::Whole(whole)));
            }
            hasher.update(&buffer[..read]);
            if self.hearer.data(&buffer[..read]).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += read as u64;
        }
    }
}

fn hash_elsewhere(
    end: &Elsewhere,
    operand: &Operand,
    algorithm: Algorithm,
    hearer: &mut dyn Hearer,
    accounts: &mut Accounts,
) -> Done {
    let (mut waiting, mut failed) = (Vec::new(), None);
    let mut tell_hashed = |hearer: &mut dyn Hearer, accounts: &mut Accounts, paths| {
        hash_together(end, operand, algorithm, paths, &mut |path, hashed| match hashed {
            Ok((hash, size, modified)) => tell_beneath(hearer, path, |path| Told::Hash { path, hash, size, modified }),
            Err(error) if path.is_empty() => {
                failed = Some(error);
                ControlFlow::Break(())
            }
            Err(error) => tell(hearer, accounts, Line::Failed(error)),
        })
    };
    let flow = end.files(operand, &mut |line| match line {
        Line::FileAt(path) => {
            waiting.push(path);
            match waiting.len() < FILES_TOGETHER {
                true => ControlFlow::Continue(()),
                false => tell_hashed(hearer, accounts, std::mem::take(&mut waiting)),
            }
        }
        line => tell(hearer, accounts, line),
    })?;
    let flow = if flow.is_continue() { tell_hashed(hearer, accounts, waiting) } else { flow };
    failed.map_or(Ok(flow), Err)
}

impl Answering<'_> {
    fn hash(&mut self, operand: &Operand, algorithm: Algorithm) -> Done {
        let Self { site, hearer, accounts } = self;
        if let Grounds::Elsewhere(end) = site {
            return hash_elsewhere(end, operand, algorithm, *hearer, accounts);
        }
        let mut buffer = vec![0; HASHED_AT_ONCE];
        site.files(operand, &mut |line| match line {
            Line::File(path, file) => match hash_of(&file, algorithm, &mut buffer, &mut || hearer.busy()) {
                Ok(Some((hash, size, modified))) => {
                    tell_beneath(*hearer, path, |path| Told::Hash { path, hash, size, modified })
                }
                Ok(None) => ControlFlow::Break(()),
                Err(error) => {
                    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    let shown = [&operand.shown, slash, &path].concat();
                    tell(*hearer, accounts, Line::Failed(site.read_failed(&shown, error)))
                }
            },
            line => tell(*hearer, accounts, line),
        })
    }
}

fn tell_beneath(hearer: &mut dyn Hearer, path: Vec<u8>, line: impl FnOnce(RelPath) -> Told) -> ControlFlow<()> {
    match RelPath::new(path) {
        Ok(path) => hearer.line(line(path)),
        // A disk's paths may be longer than anybody can ask for.
        Err(fault) => hearer.line(Told::Failed { is_operand: false, why: format!("cannot tell a path: {fault}") }),
    }
}

fn tell(hearer: &mut dyn Hearer, accounts: &mut Accounts, line: Line) -> ControlFlow<()> {
    match line {
        Line::Busy => hearer.busy(),
        Line::Unsorted => hearer.line(Told::Unsorted),
        Line::In(path) => tell_beneath(hearer, path, |path| Told::In { path }),
        Line::Entry(path, facts) => {
            let facts = facts.map(|facts| Box::new(accounts.facts(facts)));
            tell_beneath(hearer, path, |path| Told::Entry { path, facts })
        }
        Line::Usage(path, blocks, apparent_bytes) => {
            tell_beneath(hearer, path, |path| Told::Usage { path, blocks, apparent_bytes })
        }
        Line::Removed(path) => tell_beneath(hearer, path, |path| Told::Removed { path }),
        Line::Left(path, bytes) => tell_beneath(hearer, path, |path| Told::Left { path, bytes }),
        // Only `hash` asks for files.
        Line::File(..) | Line::FileAt(_) => hearer.busy(),
        Line::Failed(error) => hearer.line(Told::Failed { is_operand: false, why: convert::bounded(error) }),
    }
}

#[derive(Default)]
struct Accounts {
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
    ended: bool,
}

impl Accounts {
    fn name(&mut self, of: Of, id: u32) -> Vec<u8> {
        let known = if of == Of::User { &mut self.users } else { &mut self.groups };
        if let Some(name) = known.get(&id) {
            return name.clone();
        }
        if self.ended || known.len() >= MAX_NAMED_ACCOUNTS {
            return Vec::new();
        }
        match names::name_of(of, id) {
            Ok(name) => known.entry(id).or_insert(name.unwrap_or_default()).clone(),
            Err(names::NoAnswer) => {
                self.ended = true;
                Vec::new()
            }
        }
    }

    fn facts(&mut self, facts: EntryFacts) -> Facts {
        let EntryFacts { lacks, .. } = facts;
        // Another host's numbers have other names.
        let is_of_this_host = !lacks.inode;
        let mut name = |of, id| if is_of_this_host { self.name(of, id) } else { Vec::new() };
        Facts {
            kind: kind(facts.kind),
            target: facts.target,
            mode: facts.mode,
            links: facts.links,
            uid: facts.uid,
            gid: facts.gid,
            owner: name(Of::User, facts.uid),
            group: name(Of::Group, facts.gid),
            size: facts.size,
            blocks: facts.blocks,
            io_block: facts.io_block,
            device: facts.device,
            special: facts.special,
            inode: facts.inode,
            accessed: moment(facts.accessed),
            modified: moment(facts.modified),
            changed: moment(facts.changed),
            born: facts.born.map(moment),
            lacks: Lacks {
                mode: lacks.mode,
                owner: lacks.owner,
                size: lacks.size,
                modified: lacks.modified,
                accessed: lacks.accessed,
                inode: lacks.inode,
            },
        }
    }
}

fn kind(kind: NodeKind) -> Kind {
    match kind {
        NodeKind::File => Kind::File,
        NodeKind::Directory => Kind::Directory,
        NodeKind::Symlink => Kind::Symlink,
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::Socket => Kind::Socket,
        NodeKind::BlockDevice => Kind::BlockDevice,
        NodeKind::CharacterDevice => Kind::CharacterDevice,
        NodeKind::Unknown => Kind::Unknown,
    }
}

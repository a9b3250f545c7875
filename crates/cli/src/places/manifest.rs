//! `haul hash --manifest`: a directory's files as `haul cp --manifest-out` lists them.

use std::ffi::OsString;
use std::ops::ControlFlow;

use haul_job::{Error, Fault, ManifestLine};
use haul_transfer::manifest_file::{HEADER, RootHasher, Trailer, format_line};
use haul_transfer::place::{Algorithm, Told};

use crate::far_side::person::say;
use crate::places::paper::Paper;
use crate::places::question::{Printer, Whereabouts};

pub struct ManifestLines {
    at: Whereabouts,
    /// The first operand; a wildcard may match more.
    of: Option<Vec<u8>>,
    has_header: bool,
    root: RootHasher,
    bytes: u64,
    refused: Option<Error>,
}

impl ManifestLines {
    /// # Errors
    /// Several paths, or another hash than BLAKE3.
    pub fn new(paths: &[OsString], algorithm: Algorithm) -> Result<Self, Error> {
        if algorithm != Algorithm::Blake3 {
            return Err(Error::new(Fault::Usage, "a manifest has BLAKE3 alone").try_this("leave out --manifest or -a"));
        }
        match paths {
            [_] => Ok(Self {
                at: Whereabouts::default(),
                of: None,
                has_header: false,
                root: RootHasher::default(),
                bytes: 0,
                refused: None,
            }),
            _ => Err(one_alone()),
        }
    }

    fn begin(&mut self, paper: &mut Paper) -> ControlFlow<()> {
        if std::mem::replace(&mut self.has_header, true) {
            return ControlFlow::Continue(());
        }
        paper.line(HEADER.as_bytes())
    }
}

impl Printer for ManifestLines {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let (path, hash, size, modified) = match told {
            Told::Hash { path, hash, size, modified } => (path, hash, size, modified),
            Told::Unsorted => {
                say("warning: a directory has too many names to be sorted: the tree gets another hash than in a copy");
                return ControlFlow::Continue(());
            }
            _ => return ControlFlow::Continue(()),
        };
        if self.of.get_or_insert_with(|| self.at.operand.clone()) != &self.at.operand {
            self.refused = Some(one_alone());
            return ControlFlow::Break(());
        }
        let Ok(blake3) = <[u8; 32]>::try_from(hash.as_slice()) else {
            self.refused = Some(Error::broke_the_protocol("it tells a hash of another length"));
            return ControlFlow::Break(());
        };
        self.begin(paper)?;
        // A single file's name, as at the target.
        let path = match path.as_bytes() {
            b"" => self.at.operand.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec(),
            beneath => beneath.to_vec(),
        };
        self.root.add(&path, size, &blake3);
        self.bytes = self.bytes.saturating_add(size);
        let line = ManifestLine { path, size, mtime_s: modified.s, mtime_ns: modified.ns, blake3 };
        paper.line(format_line(&line).as_bytes())
    }

    fn end(&mut self, paper: &mut Paper, is_whole: bool) -> ControlFlow<()> {
        // Without its last line it does not pass for whole.
        if !is_whole {
            return ControlFlow::Continue(());
        }
        self.begin(paper)?;
        let (files, root) = std::mem::take(&mut self.root).finish();
        paper.line(Trailer { files, bytes: self.bytes, root }.format().as_bytes())
    }

    fn refused(&mut self) -> Option<Error> {
        self.refused.take()
    }
}

fn one_alone() -> Error {
    Error::new(Fault::Usage, "a manifest is of one directory, or of one file").try_this("haul hash -m DIR")
}

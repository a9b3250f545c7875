//! Reads lists to compare a tree with: haul's manifests, output of `sha256sum` and its like, and lists of a bag. The first bytes
//! tell the format.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::file_at;
use haul_job::{Error, Fault};
use haul_store::TypedFile;
use haul_wire::RelPath;
use haul_wire::hashed::Algorithm;

use haul_kept::files::hash_list::{self, ListError, Listed, Style};
use haul_kept::files::manifest_file::{HEADER_STEM, ReadError, Reader, Trailer, escape};

pub type Input = BufReader<Box<dyn Read>>;

pub struct List {
    name: String,
    lines: Lines,
    pub listed: Option<(u64, u64)>,
    pub id: Option<(u64, u64)>,
}

enum Lines {
    Manifest(Box<Reader<Input>>),
    Hashes(hash_list::Reader<Input>),
}

impl List {
    pub(crate) fn open_here(path: &Path, style: Style) -> Result<Self, Error> {
        let name = escape(path.as_os_str().as_encoded_bytes());
        let failed = |error: io::Error| unusable(&name, error.into());
        let mut file = TypedFile::read(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let listed = trailer_ahead(&mut file, &metadata).map_err(|error| unusable(&name, error))?;
        let id = Some((metadata.dev(), metadata.ino()));
        let listed = listed.map(|trailer| (trailer.files, trailer.bytes));
        Ok(Self { listed, id, ..Self::read(Box::new(file), &name, style)? })
    }

    pub fn read(mut input: Box<dyn Read>, name: &str, style: Style) -> Result<Self, Error> {
        let mut head = Vec::new();
        let length = HEADER_STEM.len() as u64;
        input.by_ref().take(length).read_to_end(&mut head).map_err(|error| unusable(name, error.into()))?;
        let is_manifest = head == HEADER_STEM.as_bytes();
        let input: Box<dyn Read> = Box::new(io::Cursor::new(head).chain(input));
        let input = BufReader::with_capacity(BLOCK_BYTES, input);
        let lines = match is_manifest {
            true => Lines::Manifest(Box::new(Reader::start(input).map_err(|error| unusable(name, error))?)),
            false => Lines::Hashes(hash_list::Reader::new(input, style)),
        };
        Ok(Self { name: name.to_owned(), lines, listed: None, id: None })
    }

    pub fn next_file(&mut self) -> Result<Option<Listed>, Error> {
        match &mut self.lines {
            Lines::Manifest(reader) => {
                let line = reader.next_file().map_err(|error| unusable(&self.name, error))?;
                line.map(|line| {
                    // The reader has refused paths out of the root.
                    let path = RelPath::new(line.path).map_err(|fault| bad_list(&self.name, fault))?;
                    let (size, hash) = (Some(line.size), line.blake3.to_vec());
                    Ok(Listed { path, size, hash, algorithm: Algorithm::Blake3, or: None })
                })
                .transpose()
            }
            Lines::Hashes(reader) => reader.next_file().map_err(|error| match error {
                ListError::Io(error) => unusable(&self.name, error.into()),
                ListError::Line { error: hash_list::LineError::Absolute, .. } => {
                    let hint = "the names begin at /: give / as the root of the tree, or host:/";
                    bad_list(&self.name, error).try_this(hint)
                }
                error => bad_list(&self.name, error),
            }),
        }
    }

    pub fn trailer(&self) -> Option<&Trailer> {
        match &self.lines {
            Lines::Manifest(reader) => reader.trailer(),
            Lines::Hashes(_) => None,
        }
    }
}

/// Reads a plain file's closing line first: a cut-off manifest would cost hours of hashing.
fn trailer_ahead(file: &mut File, metadata: &std::fs::Metadata) -> Result<Option<Trailer>, ReadError> {
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut head = Vec::new();
    file.by_ref().take(HEADER_STEM.len() as u64).read_to_end(&mut head)?;
    if head != HEADER_STEM.as_bytes() {
        file.rewind()?;
        return Ok(None);
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(MAX_TRAILER_BYTES)))?;
    file.by_ref().take(MAX_TRAILER_BYTES).read_to_end(&mut tail)?;
    file.rewind()?;
    let body = tail.strip_suffix(b"\n").ok_or(ReadError::Truncated)?;
    let start = body.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    Trailer::parse(&body[start..]).map(Some).ok_or(ReadError::Truncated)
}

fn unusable(name: &str, error: ReadError) -> Error {
    match error {
        ReadError::Io(error) => file_at::told(error, || format!("cannot read the list {name}")),
        other => bad_list(name, other),
    }
}

pub(crate) fn bad_list(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Fault::Verification, format!("the list {name} cannot be used")).because(why)
}

const BLOCK_BYTES: usize = 64 << 10;

/// `# files ` 20 ` bytes ` 20 ` root ` 64, rounded up.
const MAX_TRAILER_BYTES: u64 = 256;

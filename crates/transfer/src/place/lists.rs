//! The lists that a tree is compared with: manifests of haul, what `sha256sum` and its like print, those of a bag. The format is told by
//! the first bytes.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use haul_job::{Error, Fault};
use haul_store::TypedFile;
use haul_wire::RelPath;
use haul_wire::hashed::Algorithm;

use crate::files::hash_list::{self, ListError, Listed, Style};
use crate::files::manifest_file::{HEADER_STEM, ReadError, Reader, Trailer, escape};

/// What a list is read from.
pub(super) type Input = BufReader<Box<dyn Read>>;

/// A list whose lines are read one by one.
pub(super) struct List {
    /// For messages.
    name: String,
    lines: Lines,
    /// Files and bytes, where they are known before its end is read.
    pub(super) listed: Option<(u64, u64)>,
    /// Device and inode, of a file of this host.
    pub(super) id: Option<(u64, u64)>,
}

enum Lines {
    Manifest(Box<Reader<Input>>),
    Hashes(hash_list::Reader<Input>),
}

impl List {
    /// A file of this host.
    pub(super) fn open_here(path: &Path, style: Style) -> Result<Self, Error> {
        let name = escape(path.as_os_str().as_encoded_bytes());
        let failed = |error: io::Error| unusable(&name, error.into());
        let mut file = TypedFile::read(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let listed = trailer_ahead(&mut file, &metadata).map_err(|error| unusable(&name, error))?;
        let id = Some((metadata.dev(), metadata.ino()));
        let listed = listed.map(|trailer| (trailer.files, trailer.bytes));
        Ok(Self { listed, id, ..Self::read(Box::new(file), &name, style)? })
    }

    /// Anything that can be read.
    pub(super) fn read(mut input: Box<dyn Read>, name: &str, style: Style) -> Result<Self, Error> {
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

    /// The next file; `None` at the end of a list that is whole.
    pub(super) fn next_file(&mut self) -> Result<Option<Listed>, Error> {
        match &mut self.lines {
            Lines::Manifest(reader) => {
                let line = reader.next_file().map_err(|error| unusable(&self.name, error))?;
                line.map(|line| {
                    // The reader has refused what is not beneath the root.
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

    /// The closing line of a manifest, once all is read.
    pub(super) fn trailer(&self) -> Option<&Trailer> {
        match &self.lines {
            Lines::Manifest(reader) => reader.trailer(),
            Lines::Hashes(_) => None,
        }
    }
}

/// The closing line, read from the end of a manifest that is a plain file: hours of hashing for a manifest that was cut off
/// are hours lost.
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
        ReadError::Io(error) => Error::new(Fault::FileIo, format!("cannot read the list {name}")).because(error),
        other => bad_list(name, other),
    }
}

/// It can be read, and is no list that says what is right.
pub(super) fn bad_list(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Fault::Verification, format!("the list {name} cannot be used")).because(why)
}

/// One read of a list.
const BLOCK_BYTES: usize = 64 << 10;

/// `# files ` 20 ` bytes ` 20 ` root ` 64, rounded up.
const MAX_TRAILER_BYTES: u64 = 256;

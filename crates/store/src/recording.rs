//! The index of a recording striped over several directories, for people and for `stripes:INDEX`.
//!
//! ```text
//! scan.vdif.stripes            { "format": "haul-stripes", "name": "scan.vdif", "block_bytes": 4194304, "bytes": ..., "blake3": ... }
//! DIR1/scan.vdif.stripe-0      blocks 0, 2, 4, ...
//! DIR2/scan.vdif.stripe-1      blocks 1, 3, 5, ...
//! ```
//! It may be a stranger's: its paths are ignored, and the reader's directories searched, by names without a slash.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_sys::whole_file::{self, Mode};
use serde::{Deserialize, Serialize};

use crate::ends::reading::SourceTree;
use crate::error::StoreError;
use crate::striped::Striped;

/// The most directories of one recording.
pub const STRIPES_MAX: usize = 64;

/// The largest block, as large as the ring's.
pub const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// The largest index: 64 paths of 4096 bytes (Linux's longest), each byte escaped.
const INDEX_BYTES_MAX: u64 = 2 << 20;

/// Linux has no larger file (off_t).
const BYTES_MAX: u64 = i64::MAX as u64;

/// NAME_MAX of Linux.
const NAME_BYTES_MAX: usize = 255;

const FORMAT: &str = "haul-stripes";
const VERSION: u32 = 1;

type Hash = [u8; 32];

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The index cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The index.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is no index.
    #[error("cannot use {} as the index of a recording", path.display())]
    NoIndex {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The reader named no directory.
    #[error("a striped recording needs the directories that it stands in")]
    NoDirectories {
        /// The directories in the index.
        recorded_to: String,
    },
    /// The stripes cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The index of one recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    format: String,
    version: u32,
    /// The recording's name as one file.
    pub name: String,
    /// The bytes; while incomplete, the flushed ones.
    pub bytes: u64,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// The hash, as `b3sum` prints it.
    blake3: Option<String>,
    /// The bytes of each block but the last.
    pub block_bytes: u64,
    /// For people: readers name the directories.
    directories: Vec<String>,
    /// The parts where a flush failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubtful: Vec<Doubtful>,
}

/// A part of a stripe that may be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubtful {
    /// The stripe's number.
    pub stripe: usize,
    /// The first byte that may be lost.
    pub from_byte: u64,
}

impl Index {
    /// The index of a recording that begins.
    pub fn new(name: String, block_bytes: u64, directories: &[PathBuf]) -> Self {
        let directories = directories.iter().map(|directory| directory.display().to_string()).collect();
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            name,
            bytes: 0,
            complete: false,
            blake3: None,
            block_bytes,
            directories,
            doubtful: Vec::new(),
        }
    }

    /// Notes the recording's end.
    pub fn end(&mut self, bytes: u64, blake3: Hash) {
        (self.bytes, self.complete) = (bytes, true);
        self.blake3 = Some(blake3::Hash::from_bytes(blake3).to_string());
    }

    /// The entries that change until the end.
    pub fn entries(&self) -> String {
        let hash = self.blake3.as_deref().map_or_else(|| "null".to_owned(), |hex| format!("\"{hex}\""));
        format!("\"bytes\": {}, \"complete\": {}, \"blake3\": {hash}", self.bytes, self.complete)
    }

    /// The stripes' names.
    pub fn stripe_names(&self) -> Vec<String> {
        (0..self.directories.len()).map(|number| stripe_name(&self.name, number)).collect()
    }

    /// Replaces the file atomically: a reader finds the old or the new index, also after a power cut.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
        text.push(b'\n');
        whole_file::write(path, &text, Mode::AsBefore)
    }

    fn read(path: &Path) -> Result<Self, RecordingError> {
        let no_index = |why: String| RecordingError::NoIndex { path: path.to_owned(), why };
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut text));
        read.map_err(|source| RecordingError::Unreadable { path: path.to_owned(), source })?;
        if text.len() as u64 > INDEX_BYTES_MAX {
            return Err(no_index("it is larger than any index".to_owned()));
        }
        Self::parse(&text).map_err(no_index)
    }

    /// Parses an index. The error is for the user.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let index: Index = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        index.check()?;
        Ok(index)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.format != FORMAT || self.version != VERSION {
            return Err("it is of a format, or a version, that this program does not know");
        }
        if !is_name(&self.name) {
            return Err("the recording has a name that no file can have");
        }
        if self.doubtful.len() > STRIPES_MAX {
            return Err("it doubts more stripes than there are");
        }
        if self.directories.is_empty() || self.directories.len() > STRIPES_MAX {
            return Err("it has no stripes, or more than 64");
        }
        if self.block_bytes == 0 || self.block_bytes > BLOCK_BYTES_MAX || self.bytes > BYTES_MAX {
            return Err("it has a size that no recording has");
        }
        if self.complete != self.blake3.is_some() || self.blake3.is_some() != self.hash().is_some() {
            return Err("it has no hash, or one that is none");
        }
        Ok(())
    }

    fn hash(&self) -> Option<Hash> {
        self.blake3.as_deref().and_then(|hex| blake3::Hash::from_hex(hex).ok()).map(|hash| *hash.as_bytes())
    }
}

/// A recording to send.
pub struct Recording {
    /// The recording as one file.
    pub sources: Arc<dyn SourceTree>,
    /// The recording's expected hash, if known.
    pub blake3: Option<Hash>,
    /// A warning, if the recording is incomplete.
    pub warning: Option<String>,
}

/// Whether the index has a hash; false if unreadable.
pub fn is_hashed(path: &Path) -> bool {
    Index::read(path).is_ok_and(|index| index.blake3.is_some())
}

/// Opens the recording of an index, with stripes in the directories.
pub fn open(path: &Path, directories: &[PathBuf]) -> Result<Recording, RecordingError> {
    let index = Index::read(path)?;
    if directories.is_empty() {
        return Err(RecordingError::NoDirectories { recorded_to: index.directories.join(", ") });
    }
    let striped = Striped::find(directories, &index.stripe_names(), index.block_bytes, index.bytes, index.complete)?;
    let sources = striped.into_source(&index.name)?;
    let warning = (!index.complete).then(|| {
        let bytes = index.bytes;
        let name = &index.name;
        let mut text =
            format!("the recording {name} was interrupted: what is sent is the {bytes} bytes that were on the disks");
        for Doubtful { stripe, from_byte } in &index.doubtful {
            let _ = write!(
                text,
                "; a flush of {} failed, which may lack what follows byte {from_byte}",
                stripe_name(name, *stripe)
            );
        }
        text
    });
    Ok(Recording { sources, blake3: index.hash(), warning })
}

/// The path of the index beside a recording.
pub fn index_path(recording: &Path) -> PathBuf {
    let mut path = recording.as_os_str().to_owned();
    path.push(".stripes");
    path.into()
}

/// Whether a recording may have this name: stripes append their number.
pub fn is_name(name: &str) -> bool {
    let fits = !name.is_empty() && stripe_name(name, STRIPES_MAX).len() <= NAME_BYTES_MAX;
    fits && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn stripe_name(name: &str, number: usize) -> String {
    format!("{name}.stripe-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::new("scan".into(), 64 << 10, &["/a".into(), "/b".into()]);
        index.end(100, [7; 32]);
        index
    }

    #[test]
    fn an_index_survives_the_disk_and_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = index_path(&dir.path().join("scan"));
        Index::new("scan".into(), 1, &["/a".into()]).write(&path).unwrap();
        index().write(&path).unwrap();
        assert_eq!(Index::read(&path).unwrap(), index());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_or_hostile_index_is_refused_before_anything_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scan.stripes");
        let refused = |what: &str, text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let error = open(&path, &[dir.path().to_owned()]).err().unwrap_or_else(|| panic!("{what}"));
            assert!(matches!(error, RecordingError::NoIndex { .. }), "{what}: {error:?}");
        };
        refused("nothing", b"");
        refused("what is none", b"{}");
        refused("half of one", &serde_json::to_vec(&index()).unwrap()[..60]);
        refused("a megabyte too much", &vec![b' '; 3 << 20]);
        let with = |change: fn(&mut Index)| {
            let mut index = index();
            change(&mut index);
            serde_json::to_vec(&index).unwrap()
        };
        refused("a name that leads away", &with(|index| index.name = "../../etc/shadow".into()));
        refused("a name that is a directory", &with(|index| index.name = "..".into()));
        refused("no name", &with(|index| index.name.clear()));
        refused("a name that is too long", &with(|index| index.name = "x".repeat(250)));
        refused("no stripes", &with(|index| index.directories.clear()));
        refused("too many", &with(|index| index.directories = vec![String::new(); 65]));
        refused("blocks of nothing", &with(|index| index.block_bytes = 0));
        refused("blocks of all memory", &with(|index| index.block_bytes = 1 << 60));
        refused("more than a file has", &with(|index| index.bytes = u64::MAX));
        refused("no hash", &with(|index| index.blake3 = None));
        refused("a hash that is none", &with(|index| index.blake3 = Some("x".into())));
        refused("doubts without end", &with(|index| index.doubtful = vec![Doubtful { stripe: 0, from_byte: 0 }; 65]));
        refused("another version", &with(|index| index.version = 2));
    }

    #[test]
    fn who_names_no_directory_is_told_where_it_was_recorded_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scan.stripes");
        index().write(&path).unwrap();
        let Err(RecordingError::NoDirectories { recorded_to }) = open(&path, &[]) else { panic!("it was opened") };
        assert_eq!(recorded_to, "/a, /b");
    }
}

//! Where the journal of a draft is kept.

use std::fmt::Debug;
use std::io;

/// The journal of one draft: it says which data is on the medium, so that a later run can go on.
///
/// A local disk keeps it beside the draft. Other ends keep it in a directory of this host.
pub trait Journal: Debug + Send + Sync {
    /// Begins the journal anew, with only this header, and waits until it is on the medium. `begun` is called as soon
    /// as the journal exists, before it is flushed.
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()>;

    /// Appends a record and waits until it is on the medium.
    fn append(&self, record: &[u8]) -> io::Result<()>;

    /// Keeps only the first `len` bytes of a resumed journal, and waits until the rest is gone from the medium. A torn
    /// record at the end would hide all later ones, and a record beyond the end of the draft could be believed once the
    /// draft has grown.
    fn keep(&self, len: u64) -> io::Result<()>;

    /// Removes the journal, if there is one.
    fn remove(&self) -> io::Result<()>;
}

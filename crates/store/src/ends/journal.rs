//! Where the journal of a draft lives.

use std::fmt::Debug;
use std::io;

/// The journal of one draft: what of it is on the medium, so that a later run can go on.
///
/// A local disk keeps it beside the draft. An end that cannot do so keeps it in a directory of this host.
pub trait Journal: Debug + Send + Sync {
    /// Begins it anew: it holds only this header. On return it is on the medium. `begun` is called as soon as the journal
    /// exists, before it is flushed.
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()>;

    /// Appends a record and waits until it is on the medium.
    fn append(&self, record: &[u8]) -> io::Result<()>;

    /// Keeps only the first `len` bytes of a resumed journal, and waits until the rest is gone from the medium. A torn
    /// record at the end would hide all later records. A record beyond the end of the draft is refused now, but could be
    /// believed once the draft has grown.
    fn keep(&self, len: u64) -> io::Result<()>;

    /// Removes it, where there is one.
    fn remove(&self) -> io::Result<()>;
}

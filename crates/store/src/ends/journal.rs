//! Where the journal of a draft is kept.

use std::fmt::Debug;
use std::io;

/// The journal of one draft: which data is on the medium. Ends other than a disk keep it on this host.
pub trait Journal: Debug + Send + Sync {
    /// Begins anew with only this header, on the medium on return. Calls `begun` before the flush, once the journal exists.
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()>;

    /// Appends a record, on the medium on return.
    fn append(&self, record: &[u8]) -> io::Result<()>;

    /// Keeps the first `len` bytes of a resumed journal; the rest is gone from the medium on return. A torn record would
    /// hide later ones; one beyond the draft could be believed once that has grown.
    fn keep(&self, len: u64) -> io::Result<()>;

    /// Removes the journal, if any.
    fn remove(&self) -> io::Result<()>;
}

//! Describes what the lanes have to do.

/// The work of the lanes.
pub trait Work {
    /// Bytes of waiting units; `u64::MAX` when more may come.
    fn waiting_bytes(&self) -> u64;

    /// The bytes that a lane takes at once.
    fn unit_bytes(&self) -> u64;

    /// The work that is left, and the work that is done.
    fn left(&self) -> Left;

    /// The last units, once fewer than `carrying` wait, and nothing can follow.
    fn ending(&self, lanes: &[u16], carrying: usize) -> Option<Ending>;
}

/// The rest of a job, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The bytes that are left.
    pub bytes: u64,
    /// The files that are not begun.
    pub files: u64,
    /// The files that are done.
    pub done_files: u64,
}

/// Work without an end.
pub struct Endless;

impl Work for Endless {
    fn waiting_bytes(&self) -> u64 {
        u64::MAX
    }

    fn unit_bytes(&self) -> u64 {
        0
    }

    fn left(&self) -> Left {
        Left::default()
    }

    fn ending(&self, _lanes: &[u16], _carrying: usize) -> Option<Ending> {
        None
    }
}

/// The last units of a job.
pub struct Ending {
    /// The bytes of each lane that its connection does not have.
    pub left_bytes: Vec<u64>,
    /// The bytes of each unit that no lane has taken.
    pub waiting_bytes: Vec<u64>,
}

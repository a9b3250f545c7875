//! What the lanes have to do.

/// What the lanes have to do.
pub(crate) trait Work {
    /// Bytes of the units that wait for a lane, 0 when none does; `u64::MAX` when some do and more may come.
    fn waiting_bytes(&self) -> u64;

    /// What a lane takes at once of the units that wait, in bytes.
    fn unit_bytes(&self) -> u64;

    /// What is left of the job, and what is done of it.
    fn left(&self) -> Left;

    /// What is left for these lanes, once fewer units wait than so many lanes carry, and nothing can follow.
    fn ending(&self, lanes: &[u16], carrying: usize) -> Option<Ending>;
}

/// What is left of a job, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) done_files: u64,
}

/// There is always more to send.
pub(crate) struct Endless;

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
pub(crate) struct Ending {
    /// Of each lane: what it has taken, and not given to its connection.
    pub(crate) left_bytes: Vec<u64>,
    /// Of each unit that no lane has taken.
    pub(crate) waiting_bytes: Vec<u64>,
}

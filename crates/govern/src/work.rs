//! Describes what the lanes have to do.

/// The lanes' work.
pub trait Work {
    /// Waiting bytes; `u64::MAX`: more may come.
    fn waiting_bytes(&self) -> u64;

    /// The bytes that a lane takes at once.
    fn unit_bytes(&self) -> u64;

    /// The work left and done.
    fn left(&self) -> Left;

    /// The last units, if fewer than `carrying` wait and none can follow.
    fn ending(&self, lanes: &[u16], carrying: usize) -> Option<Ending>;
}

/// A job's known rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Bytes left.
    pub bytes: u64,
    /// Not begun.
    pub files: u64,
    /// Done.
    pub done_files: u64,
}

/// Endless work.
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

/// A job's last units.
pub struct Ending {
    /// Each lane's bytes outside its connection.
    pub left_bytes: Vec<u64>,
    /// Each lane's bytes without a receipt, which go again if it is cut.
    pub again_bytes: Vec<u64>,
    /// Each untaken unit's bytes.
    pub waiting_bytes: Vec<u64>,
}

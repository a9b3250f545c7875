//! What an end can do.

/// What an end can do with what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It keeps what is written. Otherwise all is let go, and nothing is made.
    pub keeps: bool,
    /// Pieces of a file can be written in any order, by several threads.
    pub random_writes: bool,
    /// All pieces of a file but the last have at least so many bytes.
    pub least_part_bytes: u64,
    /// A draft gets its final name at once, also where another file stands. Otherwise a half-written file may show.
    pub rename: bool,
    /// An entry keeps the modification time that it is given.
    pub times: bool,
    /// Symbolic links.
    pub symbolic_links: bool,
    /// Several names of one file.
    pub hard_links: bool,
    /// Ranges without data take no space.
    pub holes: bool,
}

impl Abilities {
    /// A disk of this host, and whatever else can do all.
    pub const ALL: Abilities = Abilities {
        keeps: true,
        random_writes: true,
        least_part_bytes: 1,
        rename: true,
        times: true,
        symbolic_links: true,
        hard_links: true,
        holes: true,
    };
}

//! What an end can do.

/// What an end can do with the data written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The end keeps what is written. Otherwise it discards all, and nothing is made.
    pub keeps: bool,
    /// Pieces of a file can be written in any order, by several threads.
    pub random_writes: bool,
    /// Every piece of a file but the last has at least this many bytes.
    pub least_part_bytes: u64,
    /// A draft gets its final name at once, also where another file stands. Otherwise a half-written file may show.
    pub rename: bool,
    /// An entry keeps the modification time that it is given.
    pub times: bool,
    /// The steps in which it keeps them, in nanoseconds: at most a second.
    pub time_step_ns: u32,
    /// The metadata tell which file an entry is, how many names it has, and each change of it (inode, ctime). Otherwise a
    /// file that was replaced by one of the same size and time looks unchanged.
    pub tells_files: bool,
    /// The end has symbolic links.
    pub symbolic_links: bool,
    /// A file can have several names.
    pub hard_links: bool,
    /// Ranges without data take no space.
    pub holes: bool,
    /// The end has directories. Otherwise they are the names in front of slashes, and have no metadata of their own.
    pub directories: bool,
}

impl Abilities {
    /// A disk of this host can do everything.
    pub const ALL: Abilities = Abilities {
        keeps: true,
        random_writes: true,
        least_part_bytes: 1,
        rename: true,
        times: true,
        time_step_ns: 1,
        tells_files: true,
        symbolic_links: true,
        hard_links: true,
        holes: true,
        directories: true,
    };
}

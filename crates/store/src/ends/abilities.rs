//! What an end can do.

/// The abilities of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Written data stays.
    pub keeps: bool,
    /// Pieces of a file may be written in any order at once.
    pub random_writes: bool,
    /// The least bytes of a piece but the last.
    pub least_part_bytes: u64,
    /// A draft gets its name at once, also over another file; otherwise half a file may show.
    pub rename: bool,
    /// An entry keeps a given modification time.
    pub times: bool,
    /// The steps of these times, at most a second.
    pub time_step_ns: u32,
    /// The metadata tell which file an entry is, its names, and each change (inode, ctime). Otherwise a file replaced by one
    /// of the same size and time looks unchanged.
    pub tells_files: bool,
    /// The end has symbolic links.
    pub symbolic_links: bool,
    /// A file can have several names.
    pub hard_links: bool,
    /// Ranges without data take no space.
    pub holes: bool,
    /// The end has directories, not only slashes in names.
    pub directories: bool,
    /// A new or removed name is safe once its directory was flushed; otherwise as soon as the end has confirmed it.
    pub flushes_names: bool,
}

impl Abilities {
    /// All abilities: a disk of this host.
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
        flushes_names: true,
    };
}

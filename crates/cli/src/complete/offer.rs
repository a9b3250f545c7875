//! What is offered to a shell for a word.

/// How a word may go on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Files that the shell adds by itself.
    pub files: Files,
    pub words: Vec<Offer>,
}

/// A whole word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    pub word: String,
    pub about: String,
}

/// Files of this machine that may stand there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    #[default]
    None,
    Any,
    Directories,
}

/// A shell that lists more words helps nobody.
pub const MAX_OFFERS: usize = 4096;

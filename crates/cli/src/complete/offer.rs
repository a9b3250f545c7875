//! A shell's offers for a word.

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The shell adds these.
    pub files: Files,
    pub words: Vec<Offer>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    pub word: String,
    pub about: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    #[default]
    None,
    Any,
    Directories,
}

/// A shell that lists more words helps nobody.
pub const MAX_OFFERS: usize = 4096;

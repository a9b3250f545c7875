//! Parses filter rules: rsync's language of `--filter` and of merge files.
//!
//! ```text
//! - *.o      exclude            H  hide from the copy        . FILE   rules of a file
//! + *.c      include            S  show                      : FILE   rules of such a file in each directory
//!                               P  protect from --delete     !        forget the rules so far
//!                               R  put at risk
//! ```
//! Each has a long name, too (`exclude *.o`), and takes modifiers (`-r *.o`, `dir-merge,n- .ignore`).

/// A filter rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterRule {
    /// A pattern's rule.
    Pattern(PatternRule),
    /// The rules in a file of each directory.
    PerDirectory(MergeFile),
}

/// A pattern's rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternRule {
    /// Include, not exclude.
    pub include: bool,
    /// rsync's pattern language.
    pub pattern: Vec<u8>,
    /// Where and when it holds.
    pub traits: RuleTraits,
}

/// Where and when a rule holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleTraits {
    /// The sides where it holds.
    pub sides: Sides,
    /// Entries that do not match are meant.
    pub negated: bool,
    /// Does not hold beneath a deleted directory.
    pub perishable: bool,
}

/// The sides of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sides {
    /// Neither copied nor deleted.
    #[default]
    Both,
    /// Not copied.
    Sender,
    /// Not deleted.
    Receiver,
}

/// A file with rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFile {
    /// The name in each directory, or a single file's path.
    pub name: Vec<u8>,
    /// The rules also hold in directories beneath.
    pub inherits: bool,
    /// The file itself is left out.
    pub excludes_itself: bool,
    /// The format.
    pub format: MergeFormat,
    /// Words are rules, not lines.
    pub words: bool,
    /// The traits of rules without their own.
    pub traits: RuleTraits,
}

/// The format of a merge file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeFormat {
    /// Rules.
    Rules,
    /// Patterns without a prefix.
    Patterns {
        /// Whether the patterns include.
        include: bool,
    },
    /// CVS's patterns to exclude; `!` forgets earlier ones.
    Cvs,
}

/// A rule that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadRule {
    /// A rule of the list.
    Rule(FilterRule),
    /// The rules of this file.
    Merge(MergeFile),
    /// The patterns that CVS ignores.
    Cvs,
    /// The rules so far are forgotten.
    Clear,
}

impl FilterRule {
    /// A pattern for both sides.
    pub fn pattern(include: bool, pattern: &[u8]) -> Self {
        FilterRule::Pattern(PatternRule { include, pattern: pattern.to_vec(), traits: RuleTraits::default() })
    }
}

/// Reads a rule of `--filter`. Errors are for the user.
pub fn read_rule(text: &[u8], usual: RuleTraits) -> Result<ReadRule, String> {
    let wrong = || format!("'{}' is no filter rule", crate::error::printable(text));
    let (kind, rest) = kind_of(text).ok_or_else(wrong)?;
    if kind == b'!' {
        return if rest.is_empty() { Ok(ReadRule::Clear) } else { Err(wrong()) };
    }
    let is_merge = matches!(kind, b'.' | b':');
    let mut traits = usual;
    let mut include = matches!(kind, b'+' | b'S' | b'R');
    match kind {
        b'H' | b'S' => traits.sides = Sides::Sender,
        b'P' | b'R' => traits.sides = Sides::Receiver,
        _ => {}
    }
    let (mut inherits, mut excludes_itself, mut words) = (true, false, false);
    let mut format = MergeFormat::Rules;
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'_')).unwrap_or(rest.len());
    let mut sides = (false, false);
    let mut is_cvs = false;
    for modifier in &rest[..end] {
        match modifier {
            b'-' | b'+' if is_merge => format = MergeFormat::Patterns { include: *modifier == b'+' },
            b'C' if is_merge => {
                (inherits, words, format) = (false, true, MergeFormat::Cvs);
            }
            b'C' if kind == b'-' => is_cvs = true,
            b'e' if is_merge => excludes_itself = true,
            b'n' if is_merge => inherits = false,
            b'w' if is_merge => words = true,
            b'!' if !is_merge => traits.negated = true,
            b'p' => traits.perishable = true,
            b's' => sides.0 = true,
            b'r' => sides.1 = true,
            b'/' => return Err(format!("{}: paths of the whole system are not matched", wrong())),
            b'x' => return Err(format!("{}: -X copies all attributes, or none", wrong())),
            _ => return Err(wrong()),
        }
    }
    match sides {
        (true, false) => traits.sides = Sides::Sender,
        (false, true) => traits.sides = Sides::Receiver,
        _ => {}
    }
    let pattern = rest.get(end + 1..).unwrap_or_default();
    if is_cvs {
        return if pattern.is_empty() { Ok(ReadRule::Cvs) } else { Err(wrong()) };
    }
    if is_merge {
        let name = match (pattern, format) {
            (b"", MergeFormat::Cvs) => b".cvsignore",
            (b"", _) => return Err(wrong()),
            (name, _) => name,
        };
        let merge = MergeFile { name: name.to_vec(), inherits, excludes_itself, format, words, traits };
        return match kind {
            b'.' => Ok(ReadRule::Merge(merge)),
            _ => per_directory(merge).ok_or_else(wrong),
        };
    }
    if pattern.is_empty() {
        return Err(wrong());
    }
    include &= kind != b'-';
    Ok(ReadRule::Rule(FilterRule::Pattern(PatternRule { include, pattern: pattern.to_vec(), traits })))
}

/// Takes a file's name in each walked directory; a leading slash would mean unread ones above the root.
fn per_directory(merge: MergeFile) -> Option<ReadRule> {
    let name = merge.name.strip_prefix(b"/").unwrap_or(&merge.name).to_vec();
    let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..";
    is_name.then_some(ReadRule::Rule(FilterRule::PerDirectory(MergeFile { name, ..merge })))
}

fn kind_of(text: &[u8]) -> Option<(u8, &[u8])> {
    for (long, short) in LONG_NAMES {
        if let Some(rest) = text.strip_prefix(long.as_bytes())
            && matches!(rest.first(), None | Some(b' ' | b'_' | b','))
        {
            return Some((*short, rest.strip_prefix(b",").unwrap_or(rest)));
        }
    }
    let (kind, rest) = text.split_first()?;
    let is_kind = b"-+.:HSPR!".contains(kind);
    is_kind.then_some((*kind, rest.strip_prefix(b",").unwrap_or(rest)))
}

const LONG_NAMES: &[(&str, u8)] = &[
    ("exclude", b'-'),
    ("include", b'+'),
    ("merge", b'.'),
    ("dir-merge", b':'),
    ("hide", b'H'),
    ("show", b'S'),
    ("protect", b'P'),
    ("risk", b'R'),
    ("clear", b'!'),
];

impl MergeFile {
    /// Reads the rules up to each invalid line, an error.
    pub fn read<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Result<ReadRule, String>> + 'a {
        let words = self.words;
        let is_end =
            move |byte: &u8| if words { byte.is_ascii_whitespace() } else { matches!(byte, b'\n' | b'\r' | 0) };
        let lines = bytes.split(is_end).filter(|line| !line.is_empty());
        lines.filter(move |line| words || !matches!(line[0], b'#' | b';')).map(|line| self.read_line(line))
    }

    fn read_line(&self, line: &[u8]) -> Result<ReadRule, String> {
        let pattern = |include| {
            let rule = PatternRule { include, pattern: line.to_vec(), traits: self.traits };
            Ok(ReadRule::Rule(FilterRule::Pattern(rule)))
        };
        match self.format {
            MergeFormat::Rules => read_rule(line, self.traits),
            MergeFormat::Patterns { include } => pattern(include),
            MergeFormat::Cvs if line == b"!" => Ok(ReadRule::Clear),
            MergeFormat::Cvs => pattern(false),
        }
    }
}

/// The patterns that CVS ignores, from rsync.
pub const CVS_PATTERNS: &str = "RCS SCCS CVS CVS.adm RCSLOG cvslog.* tags TAGS .make.state .nse_depinfo *~ #* .#* ,* _$* *$ \
    *.old *.bak *.BAK *.orig *.rej .del-* *.a *.olb *.o *.obj *.so *.exe *.Z *.elc *.ln core .svn/ .git/ .hg/ .bzr/";

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> (bool, String, RuleTraits) {
        match read_rule(text.as_bytes(), RuleTraits::default()).unwrap() {
            ReadRule::Rule(FilterRule::Pattern(rule)) => {
                (rule.include, String::from_utf8(rule.pattern).unwrap(), rule.traits)
            }
            other => panic!("{other:?}"),
        }
    }

    fn merge(text: &str) -> MergeFile {
        match read_rule(text.as_bytes(), RuleTraits::default()).unwrap() {
            ReadRule::Rule(FilterRule::PerDirectory(merge)) | ReadRule::Merge(merge) => merge,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rules_are_read_as_in_rsync() {
        let usual = RuleTraits::default();
        for text in ["- *.o", "-_*.o", "exclude *.o", "exclude_*.o", "-, *.o"] {
            assert_eq!(pattern(text), (false, "*.o".into(), usual), "{text}");
        }
        assert_eq!(pattern("+  a"), (true, " a".into(), usual));
        assert_eq!(pattern("P x").2.sides, Sides::Receiver);
        assert_eq!((pattern("risk x").0, pattern("risk x").2.sides), (true, Sides::Receiver));
        assert_eq!((pattern("-s x").2.sides, pattern("hide x").2.sides), (Sides::Sender, Sides::Sender));
        assert!(pattern("-!p */").2.negated && pattern("-!p */").2.perishable);
        assert_eq!(read_rule(b"!", usual), Ok(ReadRule::Clear));
        assert_eq!(read_rule(b"-C", usual), Ok(ReadRule::Cvs));
        for wrong in ["", "x a", "-", "- ", "-q a", "excludes a", ": a/b", ":", "-/ a", "! a"] {
            assert!(read_rule(wrong.as_bytes(), usual).is_err(), "{wrong}");
        }
    }

    #[test]
    fn merge_files_have_lines_or_words() {
        let rules = merge("dir-merge,n- .ignore");
        assert_eq!((rules.name.as_slice(), rules.inherits), (b".ignore".as_slice(), false));
        assert_eq!(rules.format, MergeFormat::Patterns { include: false });
        assert_eq!(merge(": /.rules").name, b".rules");
        assert_eq!((merge(":C").name, merge(":C").words), (b".cvsignore".to_vec(), true));
        let read = |merge: &MergeFile, text: &str| merge.read(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let plain = |include, text: &str| ReadRule::Rule(FilterRule::pattern(include, text.as_bytes()));
        let lines = read(&merge(": .rules"), "# words\n\n+ a b\n- *.o\n").unwrap();
        assert_eq!(lines, [plain(true, "a b"), plain(false, "*.o")]);
        assert_eq!(read(&rules, "- a\n*.o").unwrap(), [plain(false, "- a"), plain(false, "*.o")]);
        assert_eq!(read(&merge(":C"), "a *.b\n! c").unwrap().len(), 4);
        assert!(read(&merge(": .rules"), "nonsense").is_err());
    }
}

//! Which entries of a tree are wanted: include and exclude rules with rsync's meaning.
//!
//! The first rule that matches decides; an entry without a matching rule is wanted. A pattern without a slash is
//! compared with the last component, a pattern with a slash with the end of the path. A pattern that begins with a
//! slash is compared with the whole path. A slash at the end means directories only. An excluded directory is not
//! entered, so nothing beneath it is asked for. `tests/rsync_filters.rs` compares all of it with rsync itself.
//!
//! Rules of a merge file hold in its directory: [`DirectoryRules`](crate::DirectoryRules) has those of the directories
//! down to where a walk is.

mod directories;
mod written;

pub use directories::DirectoryRules;
pub use written::{
    CVS_PATTERNS, FilterRule, MergeFile, MergeFormat, PatternRule, ReadRule, RuleTraits, Sides, read_rule,
};

use crate::limits::MAX_FILTER_RULES;
use crate::pattern::{Manner, Pattern, Start, has_wildcard};

/// An ordered list of rules.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Rule(Rule),
    Merge(MergeFile),
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// The sender: may it be copied?
    Sender,
    /// The receiver: may it be deleted?
    Receiver {
        /// It stands beneath a directory that is deleted.
        is_beneath_deleted: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) include: bool,
    traits: RuleTraits,
    directories_only: bool,
    /// It ends with `***`, for which a directory has a slash at its end: `dir/***` is the directory and everything in
    /// it.
    takes_slash: bool,
    scope: Scope,
    pattern: Pattern,
}

/// Which part of the path a rule looks at.
#[derive(Debug, Clone, Copy)]
enum Scope {
    /// So many of its last components. A path that has fewer does not match.
    Last(usize),
    /// Its end, from any component on: `**` in the pattern takes as many components as it needs.
    End,
    Whole,
    /// All of it with a slash in front, so that the `**/` at the start of a pattern may stand for no directory at all.
    WholeAfterSlash,
}

impl Filter {
    /// Compiles rules in order: true includes, false excludes. The error is a sentence for the user.
    pub fn new(rules: &[(bool, Vec<u8>)]) -> std::result::Result<Filter, String> {
        let rules: Vec<_> = rules.iter().map(|(include, pattern)| FilterRule::pattern(*include, pattern)).collect();
        Filter::of(&rules)
    }

    /// Compiles rules in order.
    pub fn of(rules: &[FilterRule]) -> std::result::Result<Filter, String> {
        if rules.len() > MAX_FILTER_RULES {
            return Err(format!("there are more than {MAX_FILTER_RULES} include and exclude rules"));
        }
        let mut filter = Filter::default();
        for rule in rules {
            filter.entries.push(match rule {
                FilterRule::Pattern(rule) => Entry::Rule(Rule::of(rule)?),
                FilterRule::PerDirectory(merge) => Entry::Merge(merge.clone()),
            });
            if let FilterRule::PerDirectory(MergeFile { name, excludes_itself: true, .. }) = rule {
                filter.entries.push(Entry::Rule(Rule::new(false, name)?));
            }
        }
        Ok(filter)
    }

    /// True when the entry may be wanted. `path` is relative to the root of the transfer; its root itself always is.
    /// Merge files are not read: they, and the rules behind them, leave out nothing here.
    pub fn selects(&self, path: &[u8], is_dir: bool) -> bool {
        let mut rules = self.entries.iter().map_while(|entry| match entry {
            Entry::Rule(rule) => Some(rule),
            Entry::Merge(_) => None,
        });
        let mut decided = || rules.find(|rule| rule.holds(Asks::Sender) && rule.matches(path, is_dir));
        path.is_empty() || decided().is_none_or(|rule| rule.include)
    }

    /// True when the entry is wanted, or may be deleted. `directories` has the rules of the directory that it stands in.
    pub fn selects_in(&self, directories: &DirectoryRules, asks: Asks, path: &[u8], is_dir: bool) -> bool {
        if path.is_empty() {
            return true;
        }
        let mut merge = 0;
        for entry in &self.entries {
            let decided = match entry {
                Entry::Rule(rule) => (rule.holds(asks) && rule.matches(path, is_dir)).then_some(rule.include),
                Entry::Merge(file) => {
                    let decided = directories.decided(merge, file, asks, path, is_dir);
                    merge += 1;
                    decided
                }
            };
            if let Some(include) = decided {
                return include;
            }
        }
        true
    }

    /// The merge files, in their order.
    pub(crate) fn merge_files(&self) -> impl Iterator<Item = &MergeFile> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Merge(file) => Some(file),
            Entry::Rule(_) => None,
        })
    }

    /// True when there are no rules, so everything is wanted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Rule {
    pub(crate) fn of(rule: &PatternRule) -> std::result::Result<Rule, String> {
        Ok(Rule { traits: rule.traits, ..Rule::new(rule.include, &rule.pattern)? })
    }

    fn new(include: bool, text: &[u8]) -> std::result::Result<Rule, String> {
        if text.is_empty() {
            return Err("an include or exclude pattern is empty".into());
        }
        // rsync looks for `**` in the text, whether or not the first star is quoted.
        let spans_components = has_wildcard(text) && text.windows(2).any(|pair| pair == b"**");
        let begins_wild = spans_components && text.starts_with(b"**");
        let (text, directories_only) = match text.strip_suffix(b"/") {
            Some(rest) if !rest.is_empty() => (rest, true),
            _ => (text, false),
        };
        let takes_slash = spans_components && text.ends_with(b"***");
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        let (body, anchored) = match text.strip_prefix(b"/") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let scope = match (anchored, spans_components, begins_wild) {
            (true, ..) => Scope::Whole,
            (false, false, _) => Scope::Last(slashes + 1),
            (false, true, true) => Scope::WholeAfterSlash,
            (false, true, false) => Scope::End,
        };
        let (traits, pattern) = (RuleTraits::default(), Pattern::new(body, Manner::Rsync)?);
        Ok(Rule { include, traits, directories_only, takes_slash, scope, pattern })
    }

    /// Whether it is for who asks.
    pub(crate) fn holds(&self, asks: Asks) -> bool {
        match asks {
            Asks::Sender => self.traits.sides != Sides::Receiver,
            Asks::Receiver { is_beneath_deleted } => {
                self.traits.sides != Sides::Sender && !(is_beneath_deleted && self.traits.perishable)
            }
        }
    }

    /// The path as the rule sees it, whose file stands in a directory: a slash in front is that directory.
    pub(crate) fn seen_from<'a>(&self, directory: &[u8], path: &'a [u8]) -> &'a [u8] {
        let beneath = if directory.is_empty() { Some(path) } else { path.strip_prefix(directory) };
        match self.scope {
            Scope::Whole => beneath.map_or(path, |rest| rest.strip_prefix(b"/").unwrap_or(rest)),
            Scope::Last(_) | Scope::End | Scope::WholeAfterSlash => path,
        }
    }

    pub(crate) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        self.is_like(path, is_dir) != self.traits.negated
    }

    fn is_like(&self, path: &[u8], is_dir: bool) -> bool {
        if self.directories_only && !is_dir {
            return false;
        }
        let (before, text, start): (&[u8], _, _) = match self.scope {
            Scope::Last(components) => match last_components(path, components) {
                Some(end) => (b"", end, Start::First),
                None => return false,
            },
            Scope::End => (b"", path, Start::AnyComponent),
            Scope::Whole => (b"", path, Start::First),
            Scope::WholeAfterSlash => (b"/", path, Start::First),
        };
        let behind: &[u8] = if self.takes_slash && is_dir { b"/" } else { b"" };
        self.pattern.matches([before, text, behind], start)
    }
}

/// The end of a path from its last so many components on; `None` where it has fewer.
fn last_components(path: &[u8], components: usize) -> Option<&[u8]> {
    let mut slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    match slashes.nth(components - 1) {
        Some(slash) => Some(&path[slash + 1..]),
        None => (path.iter().filter(|byte| **byte == b'/').count() + 1 == components).then_some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules as a user writes them, `+` or `-` first; entries with a trailing slash are directories.
    fn check(rules: &[&str], wanted: &[&str], unwanted: &[&str]) {
        let rules: Vec<_> = rules.iter().map(|rule| (rule.starts_with('+'), rule.as_bytes()[2..].to_vec())).collect();
        let filter = Filter::new(&rules).unwrap();
        for (entries, expected) in [(wanted, true), (unwanted, false)] {
            for entry in entries {
                let is_dir = entry.ends_with('/');
                let selected = filter.selects(entry.trim_end_matches('/').as_bytes(), is_dir);
                assert_eq!(selected, expected, "{rules:?} on {entry}");
            }
        }
    }

    #[test]
    fn patterns_look_where_rsyncs_look() {
        check(&["- *.o"], &["a.c", "o", "d.o/x"], &["a.o", "d/a.o", "d.o/"]);
        check(&["- /foo"], &["a/foo", "foobar"], &["foo", "foo/"]);
        check(&["- foo/"], &["foo", "a/foo"], &["foo/", "a/foo/"]);
        check(&["- foo/bar"], &["bar", "xfoo/bar", "foo/bar/x"], &["foo/bar", "a/foo/bar"]);
        check(&["- /foo/*/bar"], &["foo/bar", "foo/a/b/bar", "a/foo/x/bar"], &["foo/a/bar"]);
        check(&["- /foo/**/bar"], &["foo/bar"], &["foo/a/bar", "foo/a/b/bar"]);
        check(&["- **/foo"], &["foo/x"], &["foo", "a/foo", "a/b/foo"]);
        check(&["- a**z"], &["b/z", "xa/z"], &["az", "a/b/z", "x/a/z"]);
        check(&["- dir/***"], &["dir", "x/dirt/"], &["dir/", "dir/x", "a/dir/", "a/dir/x/y"]);
        check(&["- dir/**"], &["dir/", "dir"], &["dir/x", "dir/x/y"]);
        check(&["- /*"], &["a/b"], &["a", "b/"]);
        check(&["- [ab]?"], &["ab/c", "b"], &["ax", "x/by"]);
    }

    #[test]
    fn the_first_matching_rule_decides() {
        check(&["+ keep.o", "- *.o"], &["keep.o", "a/keep.o", "x.c"], &["x.o"]);
        check(&["- *.o", "+ keep.o"], &["x.c"], &["keep.o"]);
        check(&["+ */", "+ *.c", "- *"], &["d/", "d/a.c"], &["d/a.h", "x"]);
        check(&["+ /some/", "+ /some/path/", "+ /some/path/this", "- *"], &["some/", "some/path/this"], &["other/"]);
    }

    #[test]
    fn bytes_that_are_not_text_match_too() {
        let filter = Filter::new(&[(false, b"caf\xe9*".to_vec())]).unwrap();
        assert!(!filter.selects(b"x/caf\xe9\n", false));
        assert!(filter.selects("café".as_bytes(), false));
        assert!(filter.selects(b"", true));
        let all = Filter::new(&[(false, b"*".to_vec())]).unwrap();
        assert!(all.selects(b"", true) && !all.is_empty() && Filter::default().is_empty());
    }

    #[test]
    fn useless_rules_are_told() {
        assert!(Filter::new(&[(true, Vec::new())]).is_err());
        assert!(Filter::new(&[(true, vec![b'*'; 5000])]).is_err());
        assert!(Filter::new(&vec![(true, b"x".to_vec()); 10_001]).is_err());
    }
}

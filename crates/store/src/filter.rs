//! Include and exclude rules with rsync's meaning.
//!
//! The first matching rule decides; without one an entry is wanted. A pattern meets the last component; with a slash the
//! path's end; with one in front the whole path; with one behind it only directories. Nothing beneath an excluded directory
//! is asked for. `tests/rsync_filters.rs` compares with rsync.

mod directories;
mod rule;
mod written;

pub use directories::DirectoryRules;
pub use rule::Asks;
pub(crate) use rule::Rule;
pub use written::{
    CVS_PATTERNS, FilterRule, MergeFile, MergeFormat, PatternRule, ReadRule, RuleTraits, Sides, read_rule,
};

use crate::limits::MAX_FILTER_RULES;

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

impl Filter {
    /// Compiles rules: true includes, false excludes. Errors are for the user.
    pub fn new(rules: &[(bool, Vec<u8>)]) -> std::result::Result<Filter, String> {
        let rules: Vec<_> = rules.iter().map(|(include, pattern)| FilterRule::pattern(*include, pattern)).collect();
        Filter::of(&rules)
    }

    /// Compiles rules. Errors are for the user.
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

    /// Whether the entry may be wanted, by its path from the transfer's root. Merge files, and the rules behind them, leave
    /// out nothing here.
    pub fn selects(&self, path: &[u8], is_dir: bool) -> bool {
        let mut rules = self.entries.iter().map_while(|entry| match entry {
            Entry::Rule(rule) => Some(rule),
            Entry::Merge(_) => None,
        });
        let mut decided = || rules.find(|rule| rule.holds(Asks::Sender) && rule.matches(path, is_dir));
        path.is_empty() || decided().is_none_or(|rule| rule.include)
    }

    /// Whether the entry is wanted, or may be deleted, with its directory's rules.
    pub fn selects_in(&self, directories: &DirectoryRules, asks: Asks, path: &[u8], is_dir: bool) -> bool {
        self.decides_in(directories, asks, path, is_dir).unwrap_or(true)
    }

    /// [`Filter::selects_in`], where a rule matches.
    pub fn decides_in(&self, directories: &DirectoryRules, asks: Asks, path: &[u8], is_dir: bool) -> Option<bool> {
        if path.is_empty() {
            return Some(true);
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
            if decided.is_some() {
                return decided;
            }
        }
        None
    }

    /// The merge files for each directory ([`DirectoryRules::go_to`]).
    pub fn merge_files(&self) -> impl Iterator<Item = &MergeFile> + Clone {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Merge(file) => Some(file),
            Entry::Rule(_) => None,
        })
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! The rules of merge files, from the root down to a directory.

use std::io;

use super::rule::{Asks, Rule};
use super::written::{FilterRule, MergeFile, ReadRule};
use crate::limits::MAX_FILTER_RULES;
use crate::name::{join, split};

/// The rules down to one directory.
#[derive(Debug, Default)]
pub struct DirectoryRules {
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    directory: Vec<u8>,
    files: Vec<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    list: Vec<Rule>,
    clears: bool,
}

/// Reads a merge file, if there is one.
pub type ReadFile<'a> = dyn FnMut(&[u8]) -> io::Result<Option<Vec<u8>>> + 'a;

impl DirectoryRules {
    /// Goes to the directory of `path`, and reads the merge files on the way. `complain` gets each unreadable file, or line
    /// that is no rule.
    pub fn go_to<'f>(
        &mut self,
        merge_files: impl Iterator<Item = &'f MergeFile> + Clone,
        path: &[u8],
        read: &mut ReadFile<'_>,
        complain: &mut dyn FnMut(Vec<u8>, io::Error),
    ) {
        if merge_files.clone().next().is_none() {
            return;
        }
        let parent = split(path).0;
        while self.levels.last().is_some_and(|level| !is_at_or_above(&level.directory, parent)) {
            self.levels.pop();
        }
        loop {
            let next = match self.levels.last() {
                None => Vec::new(),
                Some(level) if level.directory.len() == parent.len() => return,
                Some(level) => {
                    let begin = if level.directory.is_empty() { 0 } else { level.directory.len() + 1 };
                    let end =
                        parent[begin..].iter().position(|byte| *byte == b'/').map_or(parent.len(), |at| begin + at);
                    parent[..end].to_vec()
                }
            };
            let files = merge_files.clone().map(|file| self.read(file, &next, read, complain)).collect();
            self.levels.push(Level { directory: next, files });
        }
    }

    fn read(
        &self,
        file: &MergeFile,
        directory: &[u8],
        read: &mut ReadFile<'_>,
        complain: &mut dyn FnMut(Vec<u8>, io::Error),
    ) -> Rules {
        let path = join(directory, &file.name);
        let bytes = match read(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Rules::default(),
            Err(error) => {
                complain(path, error);
                return Rules::default();
            }
        };
        let held: usize = self.levels.iter().flat_map(|level| &level.files).map(|rules| rules.list.len()).sum();
        let mut rules = Rules::default();
        for line in file.read(&bytes) {
            let rule = match line {
                Ok(ReadRule::Rule(FilterRule::Pattern(rule))) => Rule::of(&rule),
                Ok(ReadRule::Clear) => {
                    rules = Rules { list: Vec::new(), clears: true };
                    continue;
                }
                Ok(ReadRule::Rule(FilterRule::PerDirectory(_)) | ReadRule::Merge(_) | ReadRule::Cvs) => {
                    Err("a merge file of a directory names no further ones".to_owned())
                }
                Err(why) => Err(why),
            };
            let rule = rule.and_then(|rule| match held + rules.list.len() < MAX_FILTER_RULES {
                true => Ok(rule),
                false => Err(format!("there are more than {MAX_FILTER_RULES} rules in the directories down to it")),
            });
            match rule {
                Ok(rule) => rules.list.push(rule),
                Err(why) => {
                    complain(path.clone(), io::Error::new(io::ErrorKind::InvalidData, why));
                    break;
                }
            }
        }
        rules
    }

    pub(crate) fn decided(
        &self,
        merge: usize,
        file: &MergeFile,
        asks: Asks,
        path: &[u8],
        is_dir: bool,
    ) -> Option<bool> {
        let parent = split(path).0;
        for Level { directory, files } in self.levels.iter().rev() {
            if !is_at_or_above(directory, parent) || (!file.inherits && directory != parent) {
                continue;
            }
            let rules = files.get(merge)?;
            let is_decisive = |rule: &&Rule| rule.holds(asks) && rule.matches(rule.seen_from(directory, path), is_dir);
            if let Some(rule) = rules.list.iter().find(is_decisive) {
                return Some(rule.include);
            }
            if rules.clears {
                break;
            }
        }
        None
    }
}

fn is_at_or_above(directory: &[u8], path: &[u8]) -> bool {
    let rest = if directory.is_empty() { Some(&b"/"[..]) } else { path.strip_prefix(directory) };
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Filter, RuleTraits, read_rule};

    fn filter(rules: &[&str]) -> Filter {
        let rule = |text: &&str| match read_rule(text.as_bytes(), RuleTraits::default()) {
            Ok(ReadRule::Rule(rule)) => rule,
            other => panic!("{text}: {other:?}"),
        };
        Filter::of(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap()
    }

    fn selected(filter: &Filter, files: &[(&str, &str)], asks: Asks, entries: &[&str]) -> Vec<String> {
        let mut rules = DirectoryRules::default();
        let mut read = |path: &[u8]| {
            let found = files.iter().find(|(name, _)| name.as_bytes() == path);
            Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
        };
        let chosen = entries.iter().filter(|entry| {
            let path = entry.trim_end_matches('/').as_bytes();
            rules.go_to(filter.merge_files(), path, &mut read, &mut |path, why| panic!("{path:?}: {why}"));
            filter.selects_in(&rules, asks, path, entry.ends_with('/'))
        });
        chosen.map(ToString::to_string).collect()
    }

    #[test]
    fn rules_of_a_directory_hold_in_it_and_beneath() {
        let files = [(".r", "- *.o\n- /top\n"), ("d/.r", "+ kept.o\n- /here\n"), ("e/.r", "!\n")];
        let all = ["a.o", "top", "d/a.o", "d/kept.o", "d/here", "d/x/here", "d/top", "d/x/kept.o", "e/a.o"];
        let at = |rules: &[&str]| selected(&filter(rules), &files, Asks::Sender, &all);
        assert_eq!(at(&[": .r"]), ["d/kept.o", "d/x/here", "d/top", "d/x/kept.o", "e/a.o"]);
        assert_eq!(at(&[":n .r"]), ["d/a.o", "d/kept.o", "d/x/here", "d/top", "d/x/kept.o", "e/a.o"]);
        assert_eq!(at(&["+ /a.o", ": .r", "- /e/*"]).first().map(String::as_str), Some("a.o"));
        assert!(!at(&[": .r", "- /e/*"]).contains(&"e/a.o".to_owned()));
        assert_eq!(selected(&filter(&[":e .r"]), &files, Asks::Sender, &[".r", "d/.r", "d/b"]), ["d/b"]);
    }

    #[test]
    fn sides_ask_for_their_own_rules() {
        let rules = filter(&["H *.h", "P *.p", "-p *.c", "- *.o"]);
        let all = ["a.h", "a.p", "a.c", "a.o"];
        let at = |asks| selected(&rules, &[], asks, &all);
        assert_eq!(at(Asks::Sender), ["a.p"]);
        assert_eq!(at(Asks::Receiver { is_beneath_deleted: false }), ["a.h"]);
        assert_eq!(at(Asks::Receiver { is_beneath_deleted: true }), ["a.h", "a.c"]);
    }

    #[test]
    fn what_is_no_rule_is_told() {
        let filter = filter(&[": .r"]);
        let mut told = Vec::new();
        let mut rules = DirectoryRules::default();
        let mut read = |path: &[u8]| Ok((path == b".r").then(|| b"- a\nnonsense\n- b\n".to_vec()));
        rules.go_to(filter.merge_files(), b"a", &mut read, &mut |path, _| told.push(path));
        assert_eq!(told, [b".r".to_vec()]);
        assert!(!filter.selects_in(&rules, Asks::Sender, b"a", false));
    }
}

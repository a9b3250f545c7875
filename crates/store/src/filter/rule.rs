//! One rule: which side asks, which part of a path it sees, and whether the pattern matches.

use crate::pattern::{Manner, Pattern, Start, has_wildcard};

use super::written::{PatternRule, RuleTraits, Sides};

/// The side that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// The sender: may it be copied?
    Sender,
    /// The receiver: may it be deleted?
    Receiver {
        /// The entry stands beneath a deleted directory.
        is_beneath_deleted: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) include: bool,
    traits: RuleTraits,
    directories_only: bool,
    /// The pattern ends with `***`: `dir/***` is the directory and all in it.
    takes_slash: bool,
    scope: Scope,
    pattern: Pattern,
}

#[derive(Debug, Clone, Copy)]
enum Scope {
    /// The last components; a shorter path does not match.
    Last(usize),
    /// The end of the path from any component on, for `**`.
    End,
    Whole,
    /// The whole path after a slash: a leading `**/` may be no directory.
    WholeAfterSlash,
}

impl Rule {
    pub(crate) fn of(rule: &PatternRule) -> std::result::Result<Rule, String> {
        Ok(Rule { traits: rule.traits, ..Rule::new(rule.include, &rule.pattern)? })
    }

    pub(super) fn new(include: bool, text: &[u8]) -> std::result::Result<Rule, String> {
        if text.is_empty() {
            return Err("an include or exclude pattern is empty".into());
        }
        // rsync looks for `**` in the text, even with the first star quoted.
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

    pub(crate) fn holds(&self, asks: Asks) -> bool {
        match asks {
            Asks::Sender => self.traits.sides != Sides::Receiver,
            Asks::Receiver { is_beneath_deleted } => {
                self.traits.sides != Sides::Sender && !(is_beneath_deleted && self.traits.perishable)
            }
        }
    }

    /// The path for a rule of a merge file in `directory`, which is a leading slash's root.
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

fn last_components(path: &[u8], components: usize) -> Option<&[u8]> {
    let mut slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    match slashes.nth(components - 1) {
        Some(slash) => Some(&path[slash + 1..]),
        None => (path.iter().filter(|byte| **byte == b'/').count() + 1 == components).then_some(path),
    }
}

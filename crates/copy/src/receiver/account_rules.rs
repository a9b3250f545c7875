//! `--usermap` and `--groupmap` say to whom entries are given here, by who owns them at the source.

use std::collections::BTreeMap;

use haul_store::{Filter, printable};
use haul_sys::names::{NoAnswer, Of};
use haul_wire::control::{AccountRule, Accounts, Selection};
use haul_wire::limits::MAX_NAMED_ACCOUNTS;

pub(super) struct AccountRules {
    users: Rules,
    groups: Rules,
    complaints: Vec<String>,
}

#[derive(Default)]
struct Rules {
    list: Vec<Rule>,
    /// A name comes only with its owner's first entry.
    found: BTreeMap<u32, Option<u32>>,
}

struct Rule {
    from: From,
    to: u32,
}

enum From {
    Numbers(u32, u32),
    AwaitingName,
    All,
    Name(Vec<u8>),
    Pattern(Filter),
}

impl AccountRules {
    pub(super) fn new(selection: &Selection, look_up: fn(Of, &[u8]) -> Result<Option<u32>, NoAnswer>) -> Self {
        let mut complaints = Vec::new();
        let mut rules = |of, flag: &str, rules: &[AccountRule]| {
            let mut list = Vec::new();
            for rule in rules {
                match number(&rule.to).or_else(|| look_up(of, &rule.to).ok().flatten()) {
                    Some(to) => list.extend(from(&rule.from).map(|from| Rule { from, to })),
                    None => complaints.push(format!(
                        "{flag} names {}, whom the target does not know; that rule is left out",
                        printable(&rule.to)
                    )),
                }
            }
            Rules { list, found: BTreeMap::new() }
        };
        let users = rules(Of::User, "--usermap", &selection.user_map);
        let groups = rules(Of::Group, "--groupmap", &selection.group_map);
        Self { users, groups, complaints }
    }

    pub(super) fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    pub(super) fn given_to(&mut self, of: Of, id: u32, name: &[u8]) -> Option<u32> {
        let rules = if of == Of::User { &mut self.users } else { &mut self.groups };
        if rules.list.is_empty() {
            return None;
        }
        if let Some(found) = rules.found.get(&id) {
            return *found;
        }
        // A sender does not send the name of 0.
        let name = if id == 0 { b"root" } else { name };
        let found = rules.list.iter().find(|rule| rule.from.matches(id, name)).map(|rule| rule.to);
        // A sender's endless names must not fill our memory.
        if rules.found.len() < MAX_NAMED_ACCOUNTS {
            rules.found.insert(id, found);
        }
        found
    }
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn from(accounts: &Accounts) -> Option<From> {
    Some(match accounts {
        Accounts::Numbers { first, last } => From::Numbers(*first, *last),
        Accounts::Named(name) if name.is_empty() => From::AwaitingName,
        Accounts::Named(name) if name.iter().all(|byte| *byte == b'*') => From::All,
        Accounts::Named(name) if !name.iter().any(|byte| b"*?[".contains(byte)) => From::Name(name.clone()),
        // A senseless pattern matches nobody.
        Accounts::Named(name) => From::Pattern(Filter::new(&[(false, name.clone())]).ok()?),
    })
}

impl From {
    fn matches(&self, id: u32, name: &[u8]) -> bool {
        match self {
            From::Numbers(first, last) => (*first..=*last).contains(&id),
            From::AwaitingName => name.is_empty(),
            From::All => true,
            From::Name(wanted) => name == wanted,
            From::Pattern(pattern) => !pattern.selects(name, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(_: Of, name: &[u8]) -> Result<Option<u32>, NoAnswer> {
        Ok((name == b"nobody").then_some(65_534))
    }

    #[test]
    fn the_first_rule_that_matches_gives_the_entry_away() {
        let named = |name: &str| Accounts::Named(name.into());
        let rule = |from, to: &str| AccountRule { from, to: to.into() };
        let user_map = vec![
            rule(Accounts::Numbers { first: 0, last: 99 }, "nobody"),
            rule(named("wayne"), "1007"),
            rule(named("w*"), "1008"),
            rule(named(""), "1009"),
            rule(named("x"), "stranger"),
        ];
        let group_map = vec![rule(named("*"), "5")];
        let mut rules = AccountRules::new(&Selection { user_map, group_map, ..Selection::default() }, look_up);
        assert_eq!(rules.take_complaints().len(), 1);
        let mut user = |id, name: &str| rules.given_to(Of::User, id, name.as_bytes());
        assert_eq!((user(0, ""), user(99, "games")), (Some(65_534), Some(65_534)));
        assert_eq!((user(1_001, "wayne"), user(1_002, "will"), user(1_003, "anna")), (Some(1_007), Some(1_008), None));
        assert_eq!((user(1_004, ""), user(1_001, "")), (Some(1_009), Some(1_007)), "a name comes once");
        assert_eq!(rules.given_to(Of::Group, 77, b""), Some(5));
    }
}

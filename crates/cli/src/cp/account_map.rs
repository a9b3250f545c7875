//! `--usermap`, `--groupmap` and `--chown` as in rsync: `0-99:nobody,wayne:admin,*:normal`, `USER:GROUP`.

use haul_job::{AccountRule, Accounts};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountMap(pub Vec<AccountRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// A name or number, as is the group.
    pub user: Option<Vec<u8>>,
    pub group: Option<Vec<u8>>,
}

/// A far side takes fewer.
const MAX_RULES: usize = 1000;

/// Reads the rules, in the order typed.
///
/// # Errors
/// A rule of another form, or more than [`MAX_RULES`].
pub fn parse(text: &str) -> Result<AccountMap, String> {
    let wrong = || format!("'{text}' is no map as in rsync: FROM:TO,FROM:TO with names, numbers, LOW-HIGH or '*'");
    let rule = |part: &str| {
        let (from, to) = part.split_once(':')?;
        (!to.is_empty() && !to.contains(':')).then_some(())?;
        Some(AccountRule { from: accounts(from)?, to: to.into() })
    };
    let rules: Option<Vec<_>> = text.split(',').map(rule).collect();
    rules.filter(|rules| rules.len() <= MAX_RULES).map(AccountMap).ok_or_else(wrong)
}

fn accounts(from: &str) -> Option<Accounts> {
    if !from.starts_with(|first: char| first.is_ascii_digit()) {
        return Some(Accounts::Named(from.into()));
    }
    let (first, last) = from.split_once('-').unwrap_or((from, from));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(Accounts::Numbers { first, last })
}

/// Reads `USER:GROUP`.
///
/// # Errors
/// Several colons, or neither user nor group.
pub fn parse_chown(text: &str) -> Result<Ownership, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let some = |name: &str| (!name.is_empty()).then(|| name.into());
    let owned = Ownership { user: some(user), group: some(group) };
    if group.contains(':') || owned == (Ownership { user: None, group: None }) {
        return Err(format!("'{text}' names no user and group: USER, USER:GROUP or :GROUP"));
    }
    Ok(owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_as_in_rsync() {
        let rules = parse("0-99:nobody,wayne:admin,7:1,:2,*:normal").unwrap().0;
        let named = |name: &str| Accounts::Named(name.into());
        let from: Vec<_> = rules.iter().map(|rule| rule.from.clone()).collect();
        let numbers = |first, last| Accounts::Numbers { first, last };
        assert_eq!(from, [numbers(0, 99), named("wayne"), numbers(7, 7), named(""), named("*")]);
        assert_eq!(rules[1].to, b"admin");
        for wrong in ["", "a", "a:", "1-:b", "5-1:b", "a:b,", "a:b:c", "1x:b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let owned = |user: Option<&str>, group: Option<&str>| Ownership {
            user: user.map(|name| name.into()),
            group: group.map(|name| name.into()),
        };
        assert_eq!(parse_chown("me:us"), Ok(owned(Some("me"), Some("us"))));
        assert_eq!(parse_chown(":7"), Ok(owned(None, Some("7"))));
        assert_eq!(parse_chown("me"), Ok(owned(Some("me"), None)));
        assert!(parse_chown("a:b:c").is_err() && parse_chown(":").is_err() && parse_chown("").is_err());
    }
}

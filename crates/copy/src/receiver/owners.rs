//! An entry gets its mode, owner and group at this host as rsync does it.
//!
//! Root gives an entry to the user and group of the same names here; those without a name keep their numbers, and 0 is always
//! root. Others give files to groups that they are in. What cannot be set is said once.

use std::collections::BTreeMap;

use haul_engine::compare::LEFT;
use haul_store::printable;
use haul_sys::names::{self, NoAnswer, Of};
use haul_sys::process;
use haul_wire::control::{ModeChange, Selection};
use haul_wire::limits::MAX_NAMED_ACCOUNTS;
use haul_wire::manifest::{Item, ItemKind};

use super::account_rules::AccountRules;
use super::destination::shown;

type LookUp = fn(Of, &[u8]) -> Result<Option<u32>, NoAnswer>;

pub(super) struct Owners {
    owner: bool,
    group: bool,
    special_bits: bool,
    chmod: Vec<ModeChange>,
    rules: AccountRules,
    /// `None`: numbers are copied.
    look_up: Option<LookUp>,
    /// `None`: root.
    ordinary_user: Option<u32>,
    users: Accounts,
    groups: Accounts,
    memberships: BTreeMap<u32, bool>,
    owner_told: bool,
    group_told: bool,
    names_told: bool,
}

#[derive(Default)]
struct Accounts(BTreeMap<u32, u32>);

impl Owners {
    pub(super) fn new(selection: &Selection) -> Self {
        Self {
            owner: selection.owner,
            group: selection.group,
            special_bits: selection.special_bits,
            chmod: selection.chmod.clone(),
            rules: AccountRules::new(selection, names::id_of),
            look_up: (!selection.numeric_ids).then_some(names::id_of),
            ordinary_user: (!process::is_root()).then(process::effective_user),
            users: Accounts::default(),
            groups: Accounts::default(),
            memberships: BTreeMap::new(),
            owner_told: false,
            group_told: false,
            names_told: false,
        }
    }

    /// Sets mode, owner and group as the entry is to have them here. Returns what to tell.
    pub(super) fn localise(&mut self, item: &mut Item) -> Vec<String> {
        let mut told = self.rules.take_complaints();
        let names = item.attributes.names.take();
        let is_dir = match item.kind {
            ItemKind::Directory => true,
            ItemKind::File { .. } | ItemKind::Symlink { .. } | ItemKind::Special(_) => false,
            ItemKind::HardLink { .. }
            | ItemKind::FurtherName { .. }
            | ItemKind::DirectoryEnd { .. }
            | ItemKind::Skipped { .. }
            | ItemKind::Failed { .. } => return told,
        };
        let attributes = &mut item.attributes;
        if !self.special_bits {
            // A directory that everybody may write to stays safe to use. What --chmod adds was asked for.
            attributes.mode &= if is_dir { 0o1777 } else { 0o777 };
        }
        // A link has no permissions.
        if !matches!(item.kind, ItemKind::Symlink { .. }) {
            let change = |mode, change: &ModeChange| change.apply(mode, is_dir);
            attributes.mode = self.chmod.iter().fold(attributes.mode, change);
        }
        let (uid, gid) = (attributes.uid, attributes.gid);
        let name =
            |of| names.as_ref().map_or(&b""[..], |names| if of == Of::User { &names.user } else { &names.group });
        let ruled = [(Of::User, uid), (Of::Group, gid)].map(|(of, id)| self.rules.given_to(of, id, name(of)));
        if let (Some(names), Some(look_up)) = (&names, self.look_up) {
            // Only root gives files to other users.
            let wanted = [
                (Of::User, self.owner && self.ordinary_user.is_none(), &names.user, attributes.uid),
                (Of::Group, self.group, &names.group, attributes.gid),
            ];
            for (of, is_wanted, name, id) in wanted {
                if is_wanted && !self.learn(of, id, name, look_up) {
                    self.look_up = None;
                    if !std::mem::replace(&mut self.names_told, true) {
                        told.push(
                            "users and groups of the source are not looked up by name any more at the target: there are too many, or its \
                             directory of accounts does not answer; further ones keep their numbers"
                                .to_owned(),
                        );
                    }
                    break;
                }
            }
        }
        attributes.uid = if self.owner { ruled[0].unwrap_or_else(|| self.users.here(uid)) } else { LEFT };
        attributes.gid = if self.group { ruled[1].unwrap_or_else(|| self.groups.here(gid)) } else { LEFT };
        if let Some(us) = self.ordinary_user {
            if self.owner && attributes.uid != us && !std::mem::replace(&mut self.owner_told, true) {
                told.push(format!(
                    "owners are not kept, because only root can give files to other users: {}, for one, belongs to user {} at the source",
                    shown(item.path.as_bytes()),
                    who(names.as_ref().map(|names| &names.user[..]), attributes.uid),
                ));
            }
            attributes.uid = LEFT;
            let gid = attributes.gid;
            if gid != LEFT && !self.is_member(gid) {
                if !std::mem::replace(&mut self.group_told, true) {
                    told.push(format!(
                        "groups are not kept where the user at the target is not in them: {}, for one, belongs to group {} at the source",
                        shown(item.path.as_bytes()),
                        who(names.as_ref().map(|names| &names.group[..]), gid),
                    ));
                }
                attributes.gid = LEFT;
            }
        }
        told
    }

    /// Returns false if no further names are wanted.
    fn learn(&mut self, of: Of, id: u32, name: &[u8], look_up: LookUp) -> bool {
        let known = self.users.0.len() + self.groups.0.len();
        let accounts = match of {
            Of::User => &mut self.users,
            Of::Group => &mut self.groups,
        };
        // The number 0 is root, whatever its name is.
        if name.is_empty() || id == 0 || accounts.0.contains_key(&id) {
            return true;
        }
        if known >= MAX_NAMED_ACCOUNTS {
            return false;
        }
        let Ok(found) = look_up(of, name) else { return false };
        accounts.0.insert(id, found.unwrap_or(id));
        true
    }

    fn is_member(&mut self, gid: u32) -> bool {
        // A sender's endless groups must not fill our memory.
        if self.memberships.len() >= MAX_NAMED_ACCOUNTS {
            self.memberships.clear();
        }
        *self.memberships.entry(gid).or_insert_with(|| process::may_give_to_group(gid))
    }
}

impl Accounts {
    fn here(&self, id: u32) -> u32 {
        self.0.get(&id).copied().unwrap_or(id)
    }
}

fn who(name: Option<&[u8]>, id: u32) -> String {
    match name {
        Some(name) if !name.is_empty() => printable(name),
        _ => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, OwnerNames};

    use super::*;

    /// Alice has another number here, and Bob is unknown.
    fn here(of: Of, name: &[u8]) -> Result<Option<u32>, NoAnswer> {
        match (of, name) {
            (_, b"slow") => Err(NoAnswer),
            (Of::User, b"alice") => Ok(Some(2001)),
            (Of::Group, b"staff") => Ok(Some(2050)),
            (_, b"root") => Ok(Some(7)),
            _ => Ok(None),
        }
    }

    fn owners(ordinary_user: Option<u32>) -> Owners {
        let selection = Selection { owner: true, group: true, special_bits: true, ..Selection::default() };
        Owners { look_up: Some(here), ordinary_user, ..Owners::new(&selection) }
    }

    fn item(uid: u32, gid: u32, names: Option<(&str, &str)>) -> Item {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let names = names.map(|(user, group)| Box::new(OwnerNames { user: bytes(user), group: bytes(group) }));
        let attributes = Attributes { mode: 0o7777, uid, gid, names, ..Attributes::default() };
        Item { path: RelPath::new(b"x".to_vec()).unwrap(), kind: ItemKind::Directory, attributes }
    }

    fn ids(owners: &mut Owners, mut item: Item) -> (u32, u32) {
        owners.localise(&mut item);
        assert_eq!(item.attributes.names, None, "names take no memory once they are known");
        (item.attributes.uid, item.attributes.gid)
    }

    #[test]
    fn root_gives_an_entry_to_whoever_has_the_name_here() {
        let mut owners = owners(None);
        assert_eq!(ids(&mut owners, item(1001, 50, Some(("alice", "staff")))), (2001, 2050));
        assert_eq!(ids(&mut owners, item(1001, 50, None)), (2001, 2050));
        assert_eq!(ids(&mut owners, item(1002, 51, Some(("bob", "wheel")))), (1002, 51));
        assert_eq!(ids(&mut owners, item(0, 0, Some(("root", "root")))), (0, 0), "0 is root, whatever it is called");
        assert_eq!(ids(&mut owners, item(1003, 52, None)), (1003, 52));
        assert_eq!(ids(&mut owners, item(1002, 51, Some(("alice", "staff")))), (1002, 51));
        owners.look_up = None;
        assert_eq!(ids(&mut owners, item(1004, 53, Some(("alice", "staff")))), (1004, 53), "--numeric-ids");
    }

    #[test]
    fn a_peer_that_names_users_without_end_fills_no_memory() {
        let mut owners = owners(None);
        let mut told = 0;
        for id in 1..10_000 {
            let mut named = item(id, id, Some(("alice", "staff")));
            told += owners.localise(&mut named).len();
        }
        assert_eq!(owners.users.0.len() + owners.groups.0.len(), MAX_NAMED_ACCOUNTS);
        assert_eq!(told, 1);
        assert_eq!(ids(&mut owners, item(9_999, 9_999, None)), (9_999, 9_999));
    }

    #[test]
    fn a_directory_of_accounts_that_does_not_answer_is_asked_once() {
        let mut owners = owners(None);
        let mut slow = item(1005, 54, Some(("slow", "staff")));
        assert_eq!(owners.localise(&mut slow).len(), 1);
        assert_eq!(ids(&mut owners, item(1001, 50, Some(("alice", "staff")))), (1001, 50));
    }

    #[test]
    fn an_ordinary_user_sets_what_it_may_and_is_told_of_the_rest_once() {
        let foreign = 4_000_000_123;
        let mut owners = owners(Some(1234));
        owners.memberships.extend([(50, true), (2050, true), (foreign, false)]);
        let mut own = item(1234, 50, None);
        assert!(owners.localise(&mut own).is_empty());
        assert_eq!((own.attributes.uid, own.attributes.gid, own.attributes.mode), (LEFT, 50, 0o7777));
        assert_eq!(ids(&mut owners, item(1234, 51, Some(("", "staff")))), (LEFT, 2050));
        let mut others = item(1, foreign, None);
        let told = owners.localise(&mut others);
        assert_eq!((others.attributes.uid, others.attributes.gid), (LEFT, LEFT));
        assert!(told.len() == 2 && told[0].contains("user 1 ") && told[1].contains("group 4000000123 "), "{told:?}");
        assert!(owners.localise(&mut item(2, foreign, None)).is_empty());
    }

    #[test]
    fn unasked_nobody_gets_a_privilege_and_a_directory_stays_sticky() {
        let mut owners = Owners::new(&Selection::default());
        let mut directory = item(1, 1, None);
        assert!(owners.localise(&mut directory).is_empty());
        assert_eq!(
            (directory.attributes.mode, directory.attributes.uid, directory.attributes.gid),
            (0o1777, LEFT, LEFT)
        );
        let mut link = Item { kind: ItemKind::Symlink { target: b"a".to_vec() }, ..item(1, 1, None) };
        owners.localise(&mut link);
        assert_eq!(link.attributes.mode, 0o777);
    }
}

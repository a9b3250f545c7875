//! Tells names of users and groups beside their numbers: each once, with its first entry.

use std::collections::BTreeMap;

use haul_sys::names::{self, Of};
use haul_wire::control::Selection;
use haul_wire::limits::MAX_NAMED_ACCOUNTS;
use haul_wire::manifest::{Attributes, OwnerNames};

pub(super) struct Owners {
    user: bool,
    group: bool,
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
    /// The system does not answer here, or there were too many.
    ended: bool,
}

impl Owners {
    pub(super) fn new(selection: &Selection) -> Self {
        let (user, group) = (selection.owner, selection.group);
        let (users, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { user, group, users, groups, ended: selection.numeric_ids }
    }

    /// `once`: a name that was told before is left out.
    pub(super) fn name(&mut self, attributes: &mut Attributes, once: bool) {
        if self.ended {
            return;
        }
        let user = if self.user { self.told(Of::User, attributes.uid, once) } else { Vec::new() };
        let group = if self.group { self.told(Of::Group, attributes.gid, once) } else { Vec::new() };
        if !user.is_empty() || !group.is_empty() {
            attributes.names = Some(Box::new(OwnerNames { user, group }));
        }
    }

    fn told(&mut self, of: Of, id: u32, once: bool) -> Vec<u8> {
        let known = self.users.len() + self.groups.len();
        let accounts = match of {
            Of::User => &mut self.users,
            Of::Group => &mut self.groups,
        };
        // The number 0 is root everywhere.
        if id == 0 {
            return Vec::new();
        }
        if let Some(name) = accounts.get(&id) {
            return if once { Vec::new() } else { name.clone() };
        }
        let found = if known < MAX_NAMED_ACCOUNTS { names::name_of(of, id).ok() } else { None };
        let Some(name) = found else {
            self.ended = true;
            return Vec::new();
        };
        let name = name.unwrap_or_default();
        accounts.insert(id, name.clone());
        name
    }
}

//! What to do with one item, given what stands at the target under its name: rsync's quick check and its variations.

use haul_wire::control::{Changes, LeftOut};
use haul_wire::manifest::{Attributes, Identity, Time};

/// The entry that stands at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// No entry has the name.
    Missing,
    /// A regular file.
    File(Standing),
    /// A file that an earlier run did not finish in place: nothing to keep, however new.
    Unfinished,
    /// A directory.
    Directory(Standing),
    /// A symbolic link, device, FIFO or socket.
    Other,
}

/// Metadata of what stands at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Time,
    /// Permission bits.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
}

/// The part of the selection that decides here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Compare contents, not size and time.
    pub checksum: bool,
    /// Keep what is newer at the target.
    pub update: bool,
    /// Keep whatever exists.
    pub ignore_existing: bool,
    /// Set-user-id, set-group-id and sticky bits count as metadata.
    pub special_bits: bool,
    /// Owner counts as metadata.
    pub owner: bool,
    /// Group counts as metadata.
    pub group: bool,
    /// Copied extended attributes or ACLs: metadata is always applied.
    pub xattrs: bool,
    /// Leave out what does not exist.
    pub existing: bool,
    /// Compare size alone.
    pub size_only: bool,
    /// An equal time proves nothing.
    pub ignore_times: bool,
    /// Leave out larger files.
    pub max_size_bytes: Option<u64>,
    /// Leave out smaller files.
    pub min_size_bytes: Option<u64>,
    /// Leave out files modified before this second since 1970.
    pub modified_since_s: Option<i64>,
    /// Leave out files modified after this second since 1970.
    pub modified_until_s: Option<i64>,
    /// Sources are removed: a source must not be the target's file itself.
    pub removes_sources: bool,
    /// Files only grow: keep one not shorter (`--append-verify`).
    pub append: bool,
    /// Times that differ by so many seconds are equal; below 0: to the nanosecond (`--modify-window`).
    pub modify_window_s: Option<i32>,
    /// Permissions stay at the target.
    pub omits_modes: bool,
    /// Times stay at the target.
    pub omits_times: bool,
    /// Times of directories stay, too.
    pub omits_directory_times: bool,
    /// Times of symbolic links stay, too.
    pub omits_link_times: bool,
}

impl Rules {
    /// The rules for a directory.
    pub fn of_directories(&self) -> Rules {
        Rules { omits_times: self.omits_directory_times, ..*self }
    }

    /// The rules for a symbolic link.
    pub fn of_links(&self) -> Rules {
        Rules { omits_times: self.omits_link_times, ..*self }
    }

    /// Whether a different file may stay, unless unfinished.
    pub fn may_keep_others(&self) -> bool {
        self.update || self.ignore_existing || self.append
    }

    /// Whether it has the source's time.
    pub fn same_time(&self, standing: Time, wanted: Time) -> bool {
        match self.modify_window_s.map(u64::try_from) {
            None => same_time(standing, wanted),
            Some(Ok(window_s)) => standing.s.abs_diff(wanted.s) <= window_s,
            Some(Err(_)) => standing == wanted,
        }
    }

    /// Whether the target's file counts as newer: as in rsync, also if older by less than the window.
    fn is_newer(&self, standing: Time, source: Time) -> bool {
        match self.modify_window_s {
            Some(window_s @ 0..) => source.s.saturating_sub(standing.s) < i64::from(window_s),
            _ => standing > source,
        }
    }
}

/// The action that a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDecision {
    /// Move its data.
    Send,
    /// The file is there; nothing to do.
    Keep,
    /// The data is there; only the metadata changes.
    Touch,
    /// Equal contents are kept or touched, others sent.
    CompareContents,
    /// A directory stands where the file should go.
    Conflict,
    /// A rule leaves it out, with the target's entry.
    LeaveOut(LeftOut),
}

/// Decides about a file.
pub fn file(identity: &Identity, attributes: &Attributes, existing: &Existing, rules: &Rules) -> FileDecision {
    // In rsync's order: what exists, then sizes, then times.
    if let Some(rule) = by_existence(existing, rules).or_else(|| by_size_and_age(identity, rules)) {
        return FileDecision::LeaveOut(rule);
    }
    let standing = match existing {
        Existing::Missing => return FileDecision::Send,
        Existing::Directory(_) => return FileDecision::Conflict,
        // A link or device is replaced, never followed.
        Existing::Other | Existing::Unfinished => return FileDecision::Send,
        Existing::File(standing) => standing,
    };
    // Further names may be made of a kept file.
    if rules.ignore_existing && is_as_listed(identity, existing) {
        return FileDecision::Keep;
    }
    if rules.ignore_existing {
        return FileDecision::LeaveOut(LeftOut::Exists);
    }
    if rules.update && rules.is_newer(standing.mtime, identity.mtime) {
        return FileDecision::LeaveOut(LeftOut::Newer);
    }
    if standing.size < identity.size {
        return FileDecision::Send;
    }
    if standing.size > identity.size {
        return other_data(rules);
    }
    if rules.checksum {
        return FileDecision::CompareContents;
    }
    if !rules.size_only && (rules.ignore_times || !rules.same_time(standing.mtime, identity.mtime)) {
        return other_data(rules);
    }
    same_data(attributes, standing, rules)
}

/// Decides about other data that is not shorter.
pub fn other_data(rules: &Rules) -> FileDecision {
    if rules.append { FileDecision::LeaveOut(LeftOut::NotShorter) } else { FileDecision::Send }
}

fn by_existence(existing: &Existing, rules: &Rules) -> Option<LeftOut> {
    match existing {
        Existing::Missing if rules.existing => Some(LeftOut::Missing),
        // A directory in the way exists, too.
        Existing::Other | Existing::Directory(_) if rules.ignore_existing => Some(LeftOut::Exists),
        _ => None,
    }
}

/// The rule against this size or age.
pub fn by_size_and_age(identity: &Identity, rules: &Rules) -> Option<LeftOut> {
    let Identity { size, mtime, .. } = identity;
    if rules.max_size_bytes.is_some_and(|max| *size > max) {
        return Some(LeftOut::TooLarge);
    }
    if rules.min_size_bytes.is_some_and(|min| *size < min) {
        return Some(LeftOut::TooSmall);
    }
    if rules.modified_since_s.is_some_and(|since| mtime.s < since) {
        return Some(LeftOut::TooOld);
    }
    rules.modified_until_s.is_some_and(|until| mtime.s > until).then_some(LeftOut::TooYoung)
}

/// The differences from what stands at the target, in rsync's columns; `size` is `None` for a directory.
pub fn changes(size: Option<u64>, attributes: &Attributes, existing: &Existing, rules: &Rules) -> Changes {
    let standing = match (existing, size) {
        (Existing::File(standing), Some(_)) | (Existing::Directory(standing), None) => standing,
        _ => return Changes::NEW,
    };
    let rules = if size.is_none() { rules.of_directories() } else { *rules };
    let mode = if rules.special_bits { 0o7777 } else { 0o777 };
    Changes::default()
        .with(Changes::SIZE, size.is_some_and(|size| size != standing.size))
        .with(Changes::TIME, !rules.omits_times && !rules.same_time(standing.mtime, attributes.mtime))
        .with(Changes::MODE, !rules.omits_modes && attributes.mode & mode != standing.mode & mode)
        .with(Changes::OWNER, rules.owner && ![LEFT, standing.uid].contains(&attributes.uid))
        .with(Changes::GROUP, rules.group && ![LEFT, standing.gid].contains(&attributes.gid))
}

/// Whether it has the source's size and time.
pub fn is_as_listed(identity: &Identity, existing: &Existing) -> bool {
    matches!(existing, Existing::File(standing)
        if standing.size == identity.size && same_time(standing.mtime, identity.mtime))
}

/// Whether a file of this time stands there.
pub fn has_time(existing: &Existing, mtime: Time) -> bool {
    matches!(existing, Existing::File(standing) if same_time(standing.mtime, mtime))
}

/// The action for a file with equal contents.
pub fn same_data(attributes: &Attributes, standing: &Standing, rules: &Rules) -> FileDecision {
    if metadata_differs(attributes, standing, rules) { FileDecision::Touch } else { FileDecision::Keep }
}

/// Whether metadata differs. [`LEFT`] stands for what cannot be set.
pub fn metadata_differs(attributes: &Attributes, standing: &Standing, rules: &Rules) -> bool {
    // Unasked, only a directory's sticky bit comes.
    let mode = if rules.special_bits { 0o7777 } else { 0o777 | (attributes.mode & 0o1000) };
    rules.xattrs
        || (!rules.omits_modes && attributes.mode & mode != standing.mode & mode)
        || (!rules.omits_times && !rules.same_time(standing.mtime, attributes.mtime))
        || (rules.owner && ![LEFT, standing.uid].contains(&attributes.uid))
        || (rules.group && ![LEFT, standing.gid].contains(&attributes.gid))
}

/// The entry keeps its user or group: no account has this number (chown(2)).
pub const LEFT: u32 = u32::MAX;

/// Compares to the second where the file system stores no nanoseconds.
pub(crate) fn same_time(standing: Time, wanted: Time) -> bool {
    standing.s == wanted.s && (standing.ns == wanted.ns || standing.ns == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Time = Time { s: 1_000, ns: 5 };

    fn decide(existing: Existing, rules: Rules) -> FileDecision {
        let identity = Identity { size: 10, mtime: AT, ctime: AT, inode: 1 };
        let attributes = Attributes { mode: 0o644, mtime: AT, ..Attributes::default() };
        file(&identity, &attributes, &existing, &rules)
    }

    fn standing(size: u64, mtime: Time, mode: u32) -> Existing {
        Existing::File(Standing { size, mtime, mode, uid: 0, gid: 0 })
    }

    #[test]
    fn the_quick_check() {
        use FileDecision::*;
        let quick = Rules::default();
        let check = |existing, expected| assert_eq!(decide(existing, quick), expected, "{existing:?}");
        check(Existing::Missing, Send);
        check(standing(10, AT, 0o644), Keep);
        check(standing(10, Time { s: 1_000, ns: 0 }, 0o644), Keep);
        check(standing(10, Time { s: 1_000, ns: 6 }, 0o644), Send);
        check(standing(11, AT, 0o644), Send);
        check(standing(10, AT, 0o600), Touch);
        check(Existing::Directory(Standing::default()), Conflict);
        check(Existing::Other, Send);
    }

    #[test]
    fn variations_of_the_quick_check() {
        use FileDecision::*;
        let newer = standing(99, Time { s: 2_000, ns: 0 }, 0o644);
        assert_eq!(decide(newer, Rules { update: true, ..Rules::default() }), LeaveOut(LeftOut::Newer));
        assert_eq!(decide(newer, Rules { ignore_existing: true, ..Rules::default() }), LeaveOut(LeftOut::Exists));
        assert_eq!(
            decide(Existing::Unfinished, Rules { update: true, ignore_existing: true, ..Rules::default() }),
            Send
        );
        let checksum = Rules { checksum: true, ..Rules::default() };
        assert_eq!(decide(standing(10, Time { s: 2_000, ns: 0 }, 0o644), checksum), CompareContents);
        assert_eq!(decide(newer, checksum), Send);
        let owner = Rules { owner: true, ..Rules::default() };
        let other = Existing::File(Standing { size: 10, mtime: AT, mode: 0o644, uid: 7, gid: 7 });
        assert_eq!((decide(other, owner), decide(other, Rules::default())), (Touch, Keep));
    }

    #[test]
    fn a_window_makes_times_equal_and_below_zero_none_but_the_same_nanosecond() {
        use FileDecision::{Keep, LeaveOut, Send};
        let check = |window_s, s, ns, expected| {
            let rules = Rules { modify_window_s: Some(window_s), ..Rules::default() };
            assert_eq!(decide(standing(10, Time { s, ns }, 0o644), rules), expected, "{window_s}: {s}.{ns}");
        };
        check(0, 1_000, 6, Keep);
        check(0, 1_001, 5, Send);
        check(1, 1_001, 9, Keep);
        check(1, 999, 0, Keep);
        check(2, 1_003, 5, Send);
        check(-1, 1_000, 5, Keep);
        check(-1, 1_000, 6, Send);
        check(-1, 1_000, 0, Send);
        check(i32::MAX, i64::MIN, 0, Send);
        let update = |window_s, s| {
            let rules = Rules { update: true, modify_window_s: Some(window_s), ..Rules::default() };
            decide(standing(11, Time { s, ns: 0 }, 0o644), rules)
        };
        assert_eq!([update(0, 1_000), update(0, 1_001)], [Send, LeaveOut(LeftOut::Newer)]);
        assert_eq!([update(2, 999), update(2, 998)], [LeaveOut(LeftOut::Newer), Send]);
        assert_eq!([update(-1, 1_000), update(-1, 1_001)], [Send, LeaveOut(LeftOut::Newer)]);
    }

    #[test]
    fn rules_of_size_and_existence_leave_out_what_they_name() {
        use FileDecision::{Keep, LeaveOut, Send, Touch};
        let rule = |rules| decide(Existing::Missing, rules);
        assert_eq!(rule(Rules { existing: true, ..Rules::default() }), LeaveOut(LeftOut::Missing));
        assert_eq!(rule(Rules { max_size_bytes: Some(9), ..Rules::default() }), LeaveOut(LeftOut::TooLarge));
        assert_eq!(rule(Rules { min_size_bytes: Some(11), ..Rules::default() }), LeaveOut(LeftOut::TooSmall));
        assert_eq!(rule(Rules { modified_since_s: Some(AT.s + 1), ..Rules::default() }), LeaveOut(LeftOut::TooOld));
        assert_eq!(rule(Rules { modified_until_s: Some(AT.s - 1), ..Rules::default() }), LeaveOut(LeftOut::TooYoung));
        let then = Rules { modified_since_s: Some(AT.s), modified_until_s: Some(AT.s), ..Rules::default() };
        assert_eq!(rule(then), Send);
        let fits = Rules { max_size_bytes: Some(10), min_size_bytes: Some(10), ..Rules::default() };
        assert_eq!(rule(fits), Send);
        let large = Rules { max_size_bytes: Some(9), ..Rules::default() };
        assert_eq!(decide(standing(3, AT, 0o644), large), LeaveOut(LeftOut::TooLarge));
        let anew = Rules { ignore_times: true, ..Rules::default() };
        assert_eq!(decide(standing(10, AT, 0o644), anew), Send);
        // As in rsync, contents or sizes alone ignore times.
        assert_eq!(decide(standing(10, AT, 0o644), Rules { size_only: true, ..anew }), Keep);
        let size_only = Rules { size_only: true, ..Rules::default() };
        assert_eq!(decide(standing(10, Time { s: 1, ns: 0 }, 0o644), size_only), Touch);
        assert_eq!(decide(standing(11, AT, 0o644), size_only), Send);
    }

    #[test]
    fn a_file_that_only_grows_is_sent_when_it_is_longer_than_at_the_target() {
        use FileDecision::{CompareContents, Keep, LeaveOut, Send};
        let append = Rules { append: true, ..Rules::default() };
        let other = Time { s: 7, ns: 0 };
        let left = LeaveOut(LeftOut::NotShorter);
        let of = |size, mtime| decide(standing(size, mtime, 0o644), append);
        assert_eq!([of(9, AT), of(10, AT), of(10, other), of(11, AT)], [Send, Keep, left, left]);
        assert_eq!(decide(Existing::Missing, append), Send);
        let by_content = Rules { checksum: true, ..append };
        assert_eq!(decide(standing(10, other, 0o644), by_content), CompareContents);
        assert_eq!(other_data(&by_content), left);
    }

    #[test]
    fn what_is_omitted_differs_in_nothing() {
        let attributes = Attributes { mode: 0o644, mtime: AT, ..Attributes::default() };
        let there = Standing { size: 10, mtime: Time::default(), mode: 0o600, uid: 0, gid: 0 };
        let rules = Rules { omits_modes: true, omits_directory_times: true, ..Rules::default() };
        assert!(metadata_differs(&attributes, &there, &rules));
        assert!(!metadata_differs(&attributes, &there, &rules.of_directories()));
        let time = Changes::default().with(Changes::TIME, true);
        assert_eq!(changes(Some(10), &attributes, &Existing::File(there), &rules), time);
        assert!(changes(None, &attributes, &Existing::Directory(there), &rules).is_empty());
        let no_times = Rules { omits_times: true, ..Rules::default() };
        assert_eq!(decide(Existing::File(there), no_times), FileDecision::Send);
    }

    #[test]
    fn changes_are_told_in_rsyncs_columns() {
        let attributes = Attributes { mode: 0o644, mtime: AT, ..Attributes::default() };
        let of = |size, existing| changes(size, &attributes, &existing, &Rules::default());
        assert_eq!(of(Some(10), Existing::Missing), Changes::NEW);
        assert_eq!(of(None, standing(10, AT, 0o644)), Changes::NEW);
        assert_eq!(of(Some(10), standing(10, AT, 0o644)), Changes::default());
        let all = Changes::SIZE.with(Changes::TIME, true).with(Changes::MODE, true);
        assert_eq!(of(Some(11), standing(10, Time::default(), 0o600)), all);
    }
}

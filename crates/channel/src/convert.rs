//! Converts by hand between the user's job, its messages, and the store's types.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use haul_engine::attribute::Cause;
use haul_engine::compare::{Existing, LEFT, Rules, Standing};
use haul_job::{
    AskedClass, Changed, EntryType, Error, Fault, ItemTold, Job, LeftOut, PathNow, Selection, Subject, filter_rules,
};
use haul_net::Wanted;
use haul_pump::SendRoute;
use haul_store::{FileList, Filter, FoundEntry, Kind, MayStay, Metadata, Stat, StoreError, WriteRoute};
use haul_wire::control::{
    self as wire, Abort, AbortFault, Address, Candidate, Changes, FailureKind, Notice, OutcomeKind, Wish,
};
use haul_wire::limits::MAX_TEXT_BYTES;
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Special, Time, Xattr};
use haul_wire::path::{PathFault, RelPath};
use haul_wire::summary::{self, HeldBy, HostLimits};

use haul_kept::files::sparse;

/// Converts a selection, without rules for accounts that match nobody.
pub fn selection(selection: &Selection) -> Selection {
    Selection {
        user_map: by_number(&selection.user_map, selection.numeric_ids),
        group_map: by_number(&selection.group_map, selection.numeric_ids),
        ..selection.clone()
    }
}

/// Converts a list's part of the sources.
pub fn listed(files_from: Option<&FileList>) -> wire::Listed {
    match files_from {
        None => wire::Listed::Nothing,
        Some(list) if list.is_recursive() => wire::Listed::Trees,
        Some(_) => wire::Listed::Paths,
    }
}

/// With `--numeric-ids` no account has a name, as in rsync: only an empty name matches, and it matches all.
fn by_number(rules: &[wire::AccountRule], numeric_ids: bool) -> Vec<wire::AccountRule> {
    let seen = |rule: &wire::AccountRule| match &rule.from {
        wire::Accounts::Named(name) if name.is_empty() => {
            let from = wire::Accounts::Numbers { first: 0, last: u32::MAX };
            Some(wire::AccountRule { from, ..rule.clone() })
        }
        wire::Accounts::Named(name) if name.iter().any(|byte| *byte != b'*') => None,
        _ => Some(rule.clone()),
    };
    if numeric_ids { rules.iter().filter_map(seen).collect() } else { rules.to_vec() }
}

/// Parses the rules of a selection.
///
/// # Errors
/// [`Fault::Usage`]: a pattern is invalid.
pub fn filter(rules: &[wire::FilterRule]) -> Result<Filter, Error> {
    let rules: Vec<_> = rules.iter().map(filter_rules::of_wire).collect();
    Filter::of(&rules).map_err(|why| Error::new(Fault::Usage, "a filter pattern cannot be understood").because(why))
}

/// The rules that protect the target: with `--delete-excluded` only the receiver's own.
pub fn filter_of_receiver(selection: &Selection) -> Result<Filter, Error> {
    let mut rules = selection.rules.clone();
    let of_both = rules.iter_mut().filter(|rule| rule.sides == wire::Sides::Both);
    if selection.delete_excluded {
        of_both.for_each(|rule| rule.sides = wire::Sides::Sender);
    }
    filter(&rules)
}

/// Converts the carriage. `ciphers` are those of this end.
pub fn carriage(job: &Job, ciphers: &[haul_net::Cipher]) -> wire::Carriage {
    let carriage = &job.carriage;
    wire::Carriage {
        movers: 0,
        rate_bytes_per_s: carriage.rate_bytes_per_s,
        ciphers: ciphers.iter().map(|cipher| cipher_number(*cipher)).collect(),
        clear: carriage.clear,
        compress: carriage.compress,
        timeout_ms: u32::try_from(carriage.timeout.as_millis()).unwrap_or(u32::MAX),
        congestion_control: carriage.congestion_control.clone(),
        window_bytes: carriage.window_bytes,
        lanes: carriage.lanes,
        route: carriage.route.map(route_number),
        write_route: carriage.write_route.map(write_route_number),
        path: None,
        cpus: 0,
        service: service(&carriage.service),
        cut: job.target.place.cut(),
        in_order: carriage.in_order,
    }
}

fn service(service: &haul_job::Service) -> wire::Service {
    let left = service.deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default().as_millis());
    wire::Service {
        class: match service.class {
            AskedClass::Background => wire::AskedClass::Background,
            AskedClass::Normal => wire::AskedClass::Normal,
            AskedClass::Priority => wire::AskedClass::Priority,
            AskedClass::Auto => wire::AskedClass::Auto,
        },
        floor_bytes_per_s: service.floor_bytes_per_s,
        time_left_ms: left.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
    }
}

/// Converts a class.
pub fn asked_class(class: wire::AskedClass) -> AskedClass {
    match class {
        wire::AskedClass::Background => AskedClass::Background,
        wire::AskedClass::Normal => AskedClass::Normal,
        wire::AskedClass::Priority => AskedClass::Priority,
        wire::AskedClass::Auto => AskedClass::Auto,
    }
}

/// Converts a path's state.
pub fn path_now(path: &summary::PathNow) -> PathNow {
    PathNow {
        path: path.path,
        rate_bytes_per_s: path.rate_bytes_per_s,
        rtt_us: path.rtt_us,
        rtt_min_us: path.rtt_min_us,
        queueing_us: path.rtt_us.saturating_sub(path.rtt_min_us),
        resent_ppm: path.resent_ppm,
        lanes: path.lanes,
        pacing_bytes_per_s: path.pacing_bytes_per_s.unwrap_or(0),
        held_by: match path.held_by {
            HeldBy::Unknown => None,
            HeldBy::Ramp => Some(Cause::Ramp),
            HeldBy::Capacity => Some(Cause::Capacity),
            HeldBy::Contention => Some(Cause::Contention),
            HeldBy::ReceiveWindow => Some(Cause::ReceiveWindow),
            HeldBy::SendBuffer => Some(Cause::SendBuffer),
            HeldBy::Loss => Some(Cause::Loss),
            HeldBy::Jitter => Some(Cause::Jitter),
            HeldBy::Source => Some(Cause::Work),
            HeldBy::RateLimit => Some(Cause::RateLimit),
        },
        mark: path.mark,
        marked_lanes: path.marked_lanes,
        subflows: path.subflows.clone(),
    }
}

/// The settings of a session's connections.
pub fn wanted(carriage: &wire::Carriage) -> Wanted {
    Wanted {
        congestion_control: carriage.congestion_control.clone(),
        window_bytes: carriage.window_bytes,
        ..Wanted::default()
    }
}

/// Converts limits; 0: unknown.
pub fn host_limits(limits: haul_net::host::Limits) -> HostLimits {
    HostLimits {
        rmem_max_bytes: limits.rmem_max_bytes.unwrap_or(0),
        wmem_max_bytes: limits.wmem_max_bytes.unwrap_or(0),
        tcp_rmem_max_bytes: limits.tcp_rmem_max_bytes.unwrap_or(0),
        tcp_wmem_max_bytes: limits.tcp_wmem_max_bytes.unwrap_or(0),
        congestion_control: limits.congestion_control.unwrap_or_default(),
        allowed_congestion_controls: limits.allowed_congestion_controls,
    }
}

fn cipher_number(cipher: haul_net::Cipher) -> u8 {
    match cipher {
        haul_net::Cipher::Aes128Gcm => 1,
        haul_net::Cipher::Aes256Gcm => 2,
        haul_net::Cipher::Chacha20Poly1305 => 3,
    }
}

/// The known ciphers of a peer's numbers.
pub fn ciphers(numbers: &[u8]) -> Vec<haul_net::Cipher> {
    let all = [haul_net::Cipher::Aes128Gcm, haul_net::Cipher::Aes256Gcm, haul_net::Cipher::Chacha20Poly1305];
    numbers.iter().filter_map(|n| all.into_iter().find(|cipher| cipher_number(*cipher) == *n)).collect()
}

fn route_number(route: SendRoute) -> u8 {
    match route {
        SendRoute::Splice => 1,
        SendRoute::Sendfile => 2,
        SendRoute::RingSplice => 3,
        SendRoute::Map => 4,
        SendRoute::Copy => 5,
        SendRoute::RingCopy => 6,
    }
}

/// Converts a peer's number.
pub fn route(number: u8) -> Option<SendRoute> {
    SendRoute::ALL.into_iter().map(|(route, _)| route).find(|route| route_number(*route) == number)
}

fn write_route_number(route: WriteRoute) -> u8 {
    match route {
        WriteRoute::Direct => 1,
        WriteRoute::Copy => 2,
    }
}

/// Converts a peer's number.
pub fn write_route(number: u8) -> Option<WriteRoute> {
    WriteRoute::ALL.into_iter().find(|route| write_route_number(*route) == number)
}

/// Converts to a message.
pub fn address(ip: IpAddr) -> Address {
    match ip {
        IpAddr::V4(v4) => Address::V4(v4.octets()),
        IpAddr::V6(v6) => Address::V6(v6.octets()),
    }
}

/// Converts from a message.
pub fn ip(address: Address) -> IpAddr {
    match address {
        Address::V4(octets) => IpAddr::from(octets),
        Address::V6(octets) => IpAddr::from(octets),
    }
}

/// Makes a candidate to dial.
pub fn candidate(address_and_port: SocketAddr) -> Candidate {
    Candidate { address: address(address_and_port.ip()), port: address_and_port.port() }
}

/// The address of a candidate.
pub fn socket_addr(candidate: &Candidate) -> SocketAddr {
    SocketAddr::new(ip(candidate.address), candidate.port)
}

/// Converts to a message.
pub fn time(time: haul_store::Time) -> Time {
    Time { s: time.s, ns: time.ns }
}

/// The time by this machine's clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), ns: since.subsec_nanos() }
}

fn store_time(time: Time) -> haul_store::Time {
    haul_store::Time { s: time.s, ns: time.ns }
}

/// The facts that tell states of a file apart.
pub fn identity(stat: &Stat) -> Identity {
    Identity {
        size: stat.size,
        mtime: time(stat.mtime),
        ctime: time(stat.version.changed()),
        inode: stat.version.file(),
    }
}

/// Makes an item; fails for a path that no peer takes.
pub fn item(entry: FoundEntry) -> Result<Item, PathFault> {
    let kind = match entry.kind {
        haul_store::EntryKind::File { further_names } => ItemKind::File {
            identity: identity(&entry.stat),
            hole_bytes: sparse::hole_bytes(&entry.stat),
            blake3: None,
            further_names: u32::try_from(further_names).unwrap_or(u32::MAX),
        },
        haul_store::EntryKind::Directory => ItemKind::Directory,
        haul_store::EntryKind::Special(special) => ItemKind::Special(special_to_wire(special)),
        haul_store::EntryKind::Symlink { target } => ItemKind::Symlink { target },
        haul_store::EntryKind::HardLink { first } => ItemKind::HardLink { first: RelPath::new(first)? },
    };
    let attributes = attributes(&entry.stat, xattrs(entry.xattrs));
    Ok(Item { path: RelPath::new(entry.path)?, kind, attributes })
}

fn special_to_wire(special: haul_store::Special) -> Special {
    match special {
        haul_store::Special::Fifo => Special::Fifo,
        haul_store::Special::Socket => Special::Socket,
        haul_store::Special::Character(major, minor) => Special::Character { major, minor },
        haul_store::Special::Block(major, minor) => Special::Block { major, minor },
    }
}

/// Converts a special file.
pub fn special(special: Special) -> haul_store::Special {
    match special {
        Special::Fifo => haul_store::Special::Fifo,
        Special::Socket => haul_store::Special::Socket,
        Special::Character { major, minor } => haul_store::Special::Character(major, minor),
        Special::Block { major, minor } => haul_store::Special::Block(major, minor),
    }
}

/// Converts extended attributes.
pub fn xattrs(found: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<Xattr> {
    found.into_iter().map(|(name, value)| Xattr { name, value }).collect()
}

/// The attributes of an entry.
pub fn attributes(stat: &Stat, xattrs: Vec<Xattr>) -> Attributes {
    Attributes { mode: stat.mode & 0o7777, mtime: time(stat.mtime), uid: stat.uid, gid: stat.gid, names: None, xattrs }
}

/// The entry at the target, for comparison.
pub fn existing(stat: Option<&Stat>) -> Existing {
    let Some(stat) = stat else { return Existing::Missing };
    match stat.kind {
        Kind::File => Existing::File(standing(stat)),
        Kind::Directory => Existing::Directory(standing(stat)),
        Kind::Symlink { .. } | Kind::Special => Existing::Other,
    }
}

/// The facts of an entry, for comparison.
pub fn standing(stat: &Stat) -> Standing {
    Standing { size: stat.size, mtime: time(stat.mtime), mode: stat.mode & 0o7777, uid: stat.uid, gid: stat.gid }
}

/// The special bits of the source are gone by then, unless modes are kept.
fn sets_special_bits(selection: &Selection) -> bool {
    selection.special_bits || selection.chmod.iter().any(|change| change.add & 0o7000 != 0)
}

/// The receiver's rules of comparison.
pub fn rules(selection: &Selection) -> Rules {
    Rules {
        checksum: selection.checksum,
        update: selection.update,
        ignore_existing: selection.ignore_existing,
        special_bits: sets_special_bits(selection),
        owner: selection.owner,
        group: selection.group,
        xattrs: selection.xattrs || selection.acls,
        existing: selection.existing,
        size_only: selection.size_only,
        ignore_times: selection.ignore_times,
        max_size_bytes: selection.max_size_bytes,
        min_size_bytes: selection.min_size_bytes,
        modified_since_s: selection.modified_since_s,
        modified_until_s: selection.modified_until_s,
        removes_sources: selection.remove_source_files,
        modify_window_s: selection.modify_window_s,
        append: selection.append,
        omits_modes: selection.wishes.permissions == Wish::No,
        omits_times: selection.wishes.times == Wish::No,
        omits_directory_times: selection.wishes.directory_times == Wish::No,
        omits_link_times: selection.wishes.link_times == Wish::No,
    }
}

/// Converts the rule.
pub fn left_out(rule: wire::LeftOut) -> LeftOut {
    match rule {
        wire::LeftOut::Missing => LeftOut::Missing,
        wire::LeftOut::Exists => LeftOut::Exists,
        wire::LeftOut::Newer => LeftOut::Newer,
        wire::LeftOut::TooLarge => LeftOut::TooLarge,
        wire::LeftOut::TooSmall => LeftOut::TooSmall,
        wire::LeftOut::TooOld => LeftOut::TooOld,
        wire::LeftOut::TooYoung => LeftOut::TooYoung,
        wire::LeftOut::Itself => LeftOut::Itself,
        wire::LeftOut::NotShorter => LeftOut::NotShorter,
        wire::LeftOut::UnsafeLink => LeftOut::UnsafeLink,
    }
}

pub(crate) fn item_told(item: &Item, result: &OutcomeKind, changes: Changes) -> ItemTold {
    let (kind, size, link) = match &item.kind {
        ItemKind::Directory | ItemKind::DirectoryEnd { .. } => (EntryType::Directory, 0, None),
        ItemKind::Special(special) if special.is_device() => (EntryType::Device, 0, None),
        ItemKind::Special(_) => (EntryType::Special, 0, None),
        ItemKind::Symlink { target } => (EntryType::Symlink, target.len() as u64, Some(target.clone())),
        ItemKind::HardLink { first } | ItemKind::FurtherName { first, .. } => {
            (EntryType::HardLink, 0, Some(first.as_bytes().to_vec()))
        }
        ItemKind::File { identity, .. } => (EntryType::File, identity.size, None),
        ItemKind::Skipped { .. } | ItemKind::Failed { .. } => (EntryType::File, 0, None),
    };
    let attributes = &item.attributes;
    ItemTold {
        path: item.path.as_bytes().to_vec(),
        kind,
        size,
        link,
        mode: attributes.mode,
        mtime_s: attributes.mtime.s,
        uid: attributes.uid,
        gid: attributes.gid,
        data_moved: matches!(result, OutcomeKind::Copied { .. } | OutcomeKind::WouldCopy),
        made: matches!(result, OutcomeKind::Made),
        changed: Changed {
            new: changes.has(Changes::NEW),
            content: changes.has(Changes::CONTENT),
            size: changes.has(Changes::SIZE),
            time: changes.has(Changes::TIME),
            mode: changes.has(Changes::MODE),
            owner: changes.has(Changes::OWNER),
            group: changes.has(Changes::GROUP),
        },
    }
}

/// The metadata by owner and group of this host.
pub fn metadata(attributes: &Attributes, kind: &ItemKind, selection: &Selection) -> Metadata {
    let wishes = &selection.wishes;
    let of_time = match kind {
        ItemKind::Directory | ItemKind::DirectoryEnd { .. } => wishes.directory_times,
        ItemKind::Symlink { .. } => wishes.link_times,
        _ => wishes.times,
    };
    let xattrs = (selection.xattrs || selection.acls)
        .then(|| attributes.xattrs.iter().map(|x| (x.name.clone(), x.value.clone())).collect());
    Metadata {
        mode: (wishes.permissions != Wish::No).then_some(attributes.mode),
        mode_if_new: Some(attributes.mode),
        mtime: (of_time != Wish::No).then_some(store_time(attributes.mtime)),
        special_bits: sets_special_bits(selection),
        owner: selection.owner.then_some(attributes.uid).filter(|uid| *uid != LEFT),
        group: selection.group.then_some(attributes.gid).filter(|gid| *gid != LEFT),
        xattrs,
        may_stay: MayStay { mode: wishes.permissions == Wish::Usual, mtime: of_time == Wish::Usual },
    }
}

/// The kind of a failure, for the peer.
pub fn failure_kind(error: &StoreError) -> FailureKind {
    if error.is_no_space() { FailureKind::Space } else { FailureKind::Io }
}

/// Cuts text to the protocol's limit.
pub fn bounded(text: impl std::fmt::Display) -> String {
    let mut text = text.to_string();
    if text.len() > MAX_TEXT_BYTES {
        let cut = (0..=MAX_TEXT_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
    }
    text
}

/// Makes the last message of an error.
pub fn abort(error: &Error) -> Abort {
    let fault = match error.fault {
        Fault::Usage => AbortFault::Usage,
        Fault::FileIo | Fault::Install | Fault::Ssh | Fault::SftpOnly => AbortFault::FileIo,
        Fault::Space => AbortFault::Space,
        Fault::Protocol => AbortFault::Protocol,
        Fault::Network => AbortFault::Network,
        Fault::Authentication => AbortFault::Authentication,
        Fault::Verification => AbortFault::Verification,
        Fault::Timeout => AbortFault::Timeout,
        Fault::Interrupted => AbortFault::Interrupted,
        Fault::Busy => AbortFault::Busy,
        Fault::Allowance => AbortFault::Allowance,
        Fault::Storage => AbortFault::Storage,
        Fault::Missing => AbortFault::Missing,
    };
    Abort {
        fault,
        what: bounded(&error.what),
        cause: error.cause.as_ref().map(bounded),
        hint: error.hint.as_ref().map(bounded),
    }
}

/// The error of the peer's last message.
pub fn error_of(abort: Abort) -> Error {
    let fault = match abort.fault {
        AbortFault::Usage => Fault::Usage,
        AbortFault::FileIo => Fault::FileIo,
        AbortFault::Space => Fault::Space,
        AbortFault::Protocol => Fault::Protocol,
        AbortFault::Network => Fault::Network,
        AbortFault::Authentication => Fault::Authentication,
        AbortFault::Verification => Fault::Verification,
        AbortFault::Timeout => Fault::Timeout,
        AbortFault::Interrupted => Fault::Interrupted,
        AbortFault::Busy => Fault::Busy,
        AbortFault::Allowance => Fault::Allowance,
        AbortFault::Storage => Fault::Storage,
        AbortFault::Missing => Fault::Missing,
    };
    Error { fault, what: abort.what, cause: abort.cause, hint: abort.hint, far: true }
}

/// Makes the notice of a choice.
pub fn chose(what: Subject, choice: impl Into<String>, reason: impl Into<String>) -> Notice {
    Notice::Chose { what: what.name().to_owned(), choice: choice.into(), reason: reason.into() }
}

/// The warning about one lost path of several.
pub fn path_lost(path: u16, why: &str) -> Notice {
    let text = format!("path {path} is lost: {why}; the other paths carry its data, and it is tried again");
    Notice::Warning { text: bounded(text) }
}

//! Turns `Cp` into a [`Job`]; flags are unknown past this point.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use haul_job::filter_rules::to_wire;
use haul_job::job::{DEFAULT_TIMEOUT, FileList, FileListBuilder, ListFault};
use haul_job::timetable::Timetable;
use haul_job::{Carriage, Drafts, Endpoint, Error, Family, Far, Fault, Here, Job, Place, Selection, Service};

use crate::cp::flags::{Cp, VerifyWhere};
use crate::cp::{relative, wall_clock};
use crate::far_side::endpoint;
use crate::far_side::options::{connections, ssh_options};
use crate::flags::filter_rules::{self, split_lines};
use crate::flags::filters::Filter;
use crate::flags::lists::Lists;
use crate::flags::values::CipherName;
use crate::text::printable::printable;

/// The job of `haul cp`. Reads the lists that its flags name.
pub fn from_typed(typed: &Cp, filters: &[Filter]) -> Result<Job, Error> {
    let Ends { mut sources, target, movers } = endpoints(&paths(typed)).map_err(|error| {
        // rsync's `-i` would have taken the source for a key.
        if typed.paths.len() == 1 && !typed.reach.ssh_identity.is_empty() {
            return error.try_this("-i takes the file of an ssh key, as in scp; rsync's letters are --itemize-changes");
        }
        error
    })?;
    match sources.first_mut() {
        Some(Endpoint { place: Place::Here(Here::Stripes { directories }), .. }) => {
            directories.clone_from(&typed.stripe_dir)
        }
        _ if !typed.stripe_dir.is_empty() => {
            return Err(usage("--stripe-dir belongs to a striped recording, and no source is one")
                .try_this("haul cp --stripe-dir DIR1 --stripe-dir DIR2 stripes:FILE.stripes DST"));
        }
        _ => {}
    }
    if typed.verify == VerifyWhere::Disk {
        check_verify_disk(typed, &target)?;
    }
    typed.rules.check(&target.place)?;
    let stdin_taken_by = typed.batch.batch.as_ref().map(|_| BATCH);
    let mut lists = Lists { from0: typed.from0, stdin_taken_by };
    let (ssh, ssh_family) = ssh_options(&typed.reach)?;
    let selection = selection(typed, filters, &mut lists)?;
    let listed = typed.files_from.as_deref().map(|file| files_from(file, typed.habits.recursive, &mut lists));
    let mut list = None;
    if let Some((base, from_file)) = listed.transpose()? {
        list = Some(from_file);
        if let [source] = &mut sources[..]
            && !base.is_empty()
        {
            let slash: &[u8] = if source.path.is_empty() || source.path.ends_with(b"/") { b"" } else { b"/" };
            source.path = [&source.path[..], slash, &base[..]].concat();
        }
    }
    // A list keeps paths by itself.
    if typed.rules.relative && list.is_none() {
        let (base, kept) = relative::list(&sources, !dirs(typed))?;
        (sources, list) = (vec![base], Some(kept));
    }
    if !movers.is_empty() && selection.drafts != Drafts::default() {
        return Err(usage("several hosts of one end write beside the places of files alone")
            .because("they find each other's unfinished files there")
            .try_this("leave out --partial-dir, --temp-dir and --delay-updates, or name one host"));
    }
    if list.is_some() && sources.len() != 1 {
        return Err(usage("--files-from needs exactly one source")
            .because("the listed paths are relative to it")
            .try_this("name the directory that holds them: haul cp --files-from LIST DIR TARGET"));
    }
    // As with rsync: between two disks of one host, looking for existing data costs as much as copying it.
    let is_local = sources.iter().chain([&target]).all(|end| matches!(end.place, Place::Here(_)));
    let whole_file = typed.whole_file || (is_local && !typed.no_whole_file);
    let selection = Selection { whole_file, ..selection };
    Ok(Job {
        sources,
        target,
        movers,
        files_from: list,
        selection,
        carriage: Carriage { service: service(typed)?, ..carriage(typed, ssh_family) },
        ssh,
    })
}

/// The operands. Of a mere listing, the last of several is an unused target, as with rsync.
fn paths(typed: &Cp) -> Cow<'_, [OsString]> {
    match &typed.paths[..] {
        [sources @ .., _] if typed.lines.list_only => {
            let sources = if sources.is_empty() { &typed.paths[..] } else { sources };
            sources.iter().cloned().chain([OsString::from("null:")]).collect()
        }
        paths => paths.into(),
    }
}

const BATCH: &str = "--batch";

pub fn read_batch(file: &OsStr) -> Result<Vec<u8>, Error> {
    Lists { from0: false, stdin_taken_by: None }.read(BATCH, file)
}

/// Reading back needs a flush: without it, data may not be on the medium.
fn check_verify_disk(typed: &Cp, target: &Endpoint) -> Result<(), Error> {
    if typed.no_flush {
        return Err(usage("--verify disk and --no-flush exclude each other")
            .because("only flushed data can be read back from the medium")
            .try_this("leave one of the two out"));
    }
    if typed.trust_journal {
        return Err(usage("--verify disk and --trust-journal exclude each other")
            .because("--verify disk reads again the data of an earlier run; --trust-journal does not")
            .try_this("leave one of the two out"));
    }
    if target.place == Place::Here(Here::Null) {
        return Err(usage("--verify disk has nothing to read back from null:").try_this("leave --verify disk out"));
    }
    Ok(())
}

/// Several hosts may serve the end that is not here.
struct Ends {
    sources: Vec<Endpoint>,
    target: Endpoint,
    movers: Vec<Far>,
}

fn endpoints(paths: &[OsString]) -> Result<Ends, Error> {
    let form = "haul cp [OPTIONS] SRC... DST";
    let (target, sources) = match paths {
        [] => return Err(usage("no source and no target are named").try_this(form)),
        [only] => {
            let what = format!("'{}' needs a target", printable(only.as_bytes()));
            return Err(usage(what).try_this(format!("{form}; use . for the current directory")));
        }
        [sources @ .., target] => (target, sources),
    };
    let ends = sources.iter().map(|source| endpoint::parse_hosts(source)).collect::<Result<Vec<_>, _>>()?;
    let (target, target_hosts) = endpoint::parse_hosts(target)?;
    let (sources, mut source_hosts): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    if let Some(other) = sources.iter().find(|source| source.place != sources[0].place) {
        return Err(usage("all sources must be at one place")
            .because(format!("one is on {}, another on {}", sources[0].place, other.place))
            .try_this("copy them one after the other"));
    }
    if source_hosts.iter().any(|hosts| *hosts != source_hosts[0]) {
        return Err(usage("all sources must be at the same hosts").try_this("copy them one after the other"));
    }
    let source_hosts = source_hosts.swap_remove(0);
    if !source_hosts.is_empty() && !target_hosts.is_empty() {
        return Err(usage("only one of the two ends may have several hosts").try_this("name one host of each end"));
    }
    let movers = if source_hosts.is_empty() { target_hosts } else { source_hosts };
    Ok(Ends { sources, target, movers })
}

fn selection(typed: &Cp, filters: &[Filter], lists: &mut Lists) -> Result<Selection, Error> {
    let drafts = typed.drafts.drafts()?;
    let filters: Vec<Filter> =
        filters.iter().cloned().chain(typed.drafts.rules()?.into_iter().map(Filter::Written)).collect();
    let selection = Selection {
        drafts,
        rules: filter_rules::rules(&filters, typed.from0, typed.rules.cvs_exclude, &mut |flag, file| {
            lists.read(flag, file)
        })?
        .iter()
        .map(to_wire)
        .collect(),
        follow_links: typed.copy_links,
        owner: typed.archive || typed.owner,
        group: typed.archive || typed.group,
        special_bits: typed.archive || typed.perms,
        numeric_ids: typed.numeric_ids,
        // A list shows each name with its size.
        hard_links: typed.hard_links && !typed.lines.list_only,
        xattrs: typed.xattrs,
        acls: typed.acls,
        sparse: !typed.no_sparse,
        delete: typed.delete && !typed.lines.list_only,
        max_delete: typed.max_delete,
        dry_run: typed.dry_run || typed.lines.list_only,
        inplace: typed.inplace,
        growing: typed.growing,
        no_resume: typed.no_resume,
        flush: !typed.no_flush,
        verify_disk: typed.verify == VerifyWhere::Disk,
        trust_journal: typed.trust_journal,
        make_target: true,
        itemise: typed.lines.itemises(),
        ..Selection::default()
    };
    let selection = typed.rules.select(selection, dirs(typed));
    Ok(typed.omitted.select(selection, typed.archive || typed.habits.times))
}

/// As with rsync, a flag for directories' contents wins.
fn dirs(typed: &Cp) -> bool {
    (typed.rules.dirs || typed.lines.list_only) && !typed.habits.recursive && !typed.archive
}

pub fn asked_rate(typed: &Cp) -> Timetable {
    let in_other_words = || Timetable::always(typed.bwlimit.and_then(|limit| limit.0).or(typed.scp_limit));
    typed.rate.clone().unwrap_or_else(in_other_words)
}

fn carriage(typed: &Cp, ssh_family: Option<Family>) -> Carriage {
    Carriage {
        rate_bytes_per_s: asked_rate(typed).at(wall_clock::minute()),
        cipher: typed.cipher.and_then(CipherName::cipher),
        clear: typed.cipher == Some(CipherName::None),
        compress: typed.compress,
        route: typed.route,
        write_route: typed.write_route,
        timeout: typed.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        through_here: typed.through_here,
        lanes_over_ssh: typed.lanes_over_ssh,
        window_bytes: typed.window.0,
        ..connections(&typed.connections, &typed.reach, ssh_family)
    }
}

fn service(typed: &Cp) -> Result<Service, Error> {
    typed.service.service().map_err(|why| usage(why.what).try_this(why.hint))
}

/// Paths of `--files-from`, relative to the source even with a slash in front, as in rsync. `#` or `;` begins a comment,
/// except with NUL separators. `dir` is the directory alone, `dir/` adds its entries, `-r` all below. `a/./b` keeps `b` at
/// the target: then all paths begin in `a`.
fn files_from(file: &OsStr, recursive: bool, lists: &mut Lists) -> Result<(Vec<u8>, Arc<FileList>), Error> {
    let mut list = FileListBuilder::default();
    let mut bases: Option<Vec<u8>> = None;
    for line in split_lines(&lists.read("--files-from", file)?, lists.from0) {
        if !lists.from0 && (line.starts_with(b"#") || line.starts_with(b";")) {
            continue;
        }
        let (base, path) = relative::at_dot(line).unwrap_or((b"", line));
        let is_upwards = base.split(|byte| *byte == b'/').any(|name| name == b"..");
        let names = base.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let base = names.collect::<Vec<_>>().join(&b'/');
        if bases.get_or_insert_with(|| base.clone()) != &base {
            return Err(usage(format!("--files-from lists '{}'", printable(line)))
                .because("its path begins in another directory than that of the first line ('a/./b' begins in 'a')")
                .try_this("a list for each directory"));
        }
        let added = if is_upwards { Err(ListFault::Upwards) } else { list.add(path) };
        added.map_err(|fault| {
            // Without `-0`, a NUL-separated list is one long line.
            let shown = &line[..line.len().min(SHOWN_BYTES)];
            let dots = if shown.len() < line.len() { "…" } else { "" };
            let error = usage(format!("--files-from lists '{}{dots}'", printable(shown))).because(fault);
            match fault {
                ListFault::Upwards => error.try_this("name the directory above as the source"),
                ListFault::NoPath => error.try_this("with -0 names end with a NUL byte, without -0 with a newline"),
                ListFault::Full => error.try_this("copy directories whole, or in several parts"),
            }
        })?;
    }
    Ok((bases.unwrap_or_default(), Arc::new(list.finish(recursive))))
}

const SHOWN_BYTES: usize = 200;

fn usage(what: impl Into<String>) -> Error {
    Error::new(Fault::Usage, what)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use haul_job::filter_rules::of_wire;
    use haul_job::{FilterRule, SshOptions, Wish, Wishes};

    use super::*;
    use crate::commands::{Command, Typed};

    fn typed(line: &[&str]) -> Result<Job, String> {
        let args = ["haul", "cp"].iter().chain(line).map(OsString::from);
        let (typed, filters) = Typed::parse_from(args).map_err(|error| error.to_string())?;
        let Command::Cp(cp) = typed.command else { panic!("not a copy") };
        from_typed(&cp, &filters).map_err(|error| {
            assert!(matches!(error.fault, Fault::Usage | Fault::FileIo));
            format!("{error}; {}", error.cause.as_deref().unwrap_or_default())
        })
    }

    fn job(line: &[&str]) -> Job {
        typed(&[line, &["a", "h:b"]].concat()).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn refused(line: &[&str]) -> String {
        typed(&[line, &["a", "h:b"]].concat()).expect_err(&format!("{line:?}"))
    }

    #[test]
    fn without_flags_everything_is_as_the_job_has_it_by_itself() {
        let plain = job(&[]);
        assert_eq!(plain.selection, Selection::default());
        assert_eq!(plain.carriage, Carriage::default());
        assert_eq!(plain.ssh, SshOptions::default());
        assert_eq!(plain.sources, [Endpoint { place: Place::Here(Here::Disk), path: b"a".to_vec() }]);
    }

    #[test]
    fn flags_of_habit_change_nothing() {
        let line = ["-r", "--partial", "--recursive", "--links", "--sparse", "-h", "--mkpath"];
        assert_eq!(job(&line), job(&[]));
    }

    #[test]
    fn what_is_asked_for_in_words_must_be_set_and_what_is_omitted_stays() {
        let wishes = |flags: &[&str]| {
            let Wishes { permissions, times, directory_times, link_times } = job(flags).selection.wishes;
            [permissions, times, directory_times, link_times]
        };
        let (no, usual, words) = (Wish::No, Wish::Usual, Wish::InWords);
        for (flags, expected) in [
            (&["-r"][..], [usual, usual, usual, usual]),
            (&["-a"], [words, words, words, words]),
            (&["-t"], [usual, words, words, words]),
            (&["-rtO"], [usual, words, no, words]),
            (&["-p"], [words, usual, usual, usual]),
            (&["--chmod=go-w"], [words, usual, usual, usual]),
            (&["-O", "--omit-link-times"], [usual, usual, no, no]),
            (&["-a", "--no-perms", "--no-times"], [no, no, no, no]),
            (&["--no-times", "-t"], [usual, words, words, words]),
            (&["-t", "--no-t"], [usual, no, no, no]),
        ] {
            assert_eq!(wishes(flags), expected, "{flags:?}");
        }
        let selection = job(&["-a", "--no-group", "--no-owner"]).selection;
        assert_eq!((selection.group, selection.owner, selection.special_bits), (false, false, true));
        assert!(!job(&["-p", "--no-p"]).selection.special_bits && job(&["--no-g", "-g"]).selection.group);
    }

    #[test]
    fn rsync_words_reach_the_selection() {
        let got = job(&[
            "-avHAXunz",
            "--delete",
            "--max-delete",
            "9",
            "-c",
            "-L",
            "--inplace",
            "--growing",
            "--ignore-existing",
            "--no-resume",
            "--trust-journal",
            "--no-flush",
        ]);
        let expected = Selection {
            owner: true,
            group: true,
            special_bits: true,
            wishes: Wishes {
                permissions: Wish::InWords,
                times: Wish::InWords,
                directory_times: Wish::InWords,
                link_times: Wish::InWords,
            },
            hard_links: true,
            acls: true,
            xattrs: true,
            update: true,
            dry_run: true,
            delete: true,
            max_delete: Some(9),
            checksum: true,
            follow_links: true,
            inplace: true,
            growing: true,
            ignore_existing: true,
            no_resume: true,
            trust_journal: true,
            flush: false,
            ..Selection::default()
        };
        assert_eq!(got.selection, expected);
        assert!(got.carriage.compress);
        let wishes = Wishes { permissions: Wish::InWords, ..Wishes::default() };
        let perms = Selection { special_bits: true, wishes, ..Selection::default() };
        assert!([&["-p"][..], &["--perms"]].iter().all(|flags| job(flags).selection == perms));
        let numbers = Selection { numeric_ids: true, ..Selection::default() };
        assert_eq!(job(&["--numeric-ids"]).selection, numbers);
        assert!(job(&["-C"]).carriage.compress);
        assert!(!job(&["--no-sparse"]).selection.sparse);
        assert!(job(&["-g"]).selection.group && !job(&["-g"]).selection.owner);
    }

    #[test]
    fn ssh_flags_reach_the_ssh_options() {
        let line =
            ["-P22", "-i", "k1", "-ik2", "-F", "conf", "-J", "jump", "-oA=b", "-o", "C d", "-S", "/my/ssh", "-4"];
        let got = job(&line);
        let expected = SshOptions {
            program: Some("/my/ssh".into()),
            port: Some(22),
            identities: vec!["k1".into(), "k2".into()],
            config: Some("conf".into()),
            jump: Some("jump".into()),
            options: vec!["A=b".into(), "C d".into()],
            ..SshOptions::default()
        };
        assert_eq!(got.ssh, expected);
        assert_eq!(got.carriage.family, Some(Family::V4));
        let got = job(&["--haul-path", "/opt/haul", "--identity", "id", "--known-hosts", "kh"]).ssh;
        assert_eq!(got.remote_program.as_deref(), Some("/opt/haul"));
        assert_eq!((got.haul_identity, got.haul_known_hosts), (Some("id".into()), Some("kh".into())));
    }

    #[test]
    fn the_command_of_e_is_taken_apart() {
        let got = job(&["-e", "ssh -p 2222 -i 'my key' -oX=y -J j -F c -l me -6", "-o", "X=first"]);
        let expected = SshOptions {
            program: Some("ssh".into()),
            port: Some(2222),
            identities: vec!["my key".into()],
            config: Some("c".into()),
            jump: Some("j".into()),
            options: vec!["X=first".into(), "X=y".into(), "User=me".into()],
            ..SshOptions::default()
        };
        assert_eq!(got.ssh, expected);
        assert_eq!(got.carriage.family, Some(Family::V6));
        assert_eq!(job(&["-e", "ssh -p 1", "-P", "2"]).ssh.port, Some(2));
        for bad in ["", "ssh -W x:1", "ssh host", "ssh -p", "ssh -p 0", "ssh -i 'x", "ssh -", "ssh -J -x"] {
            assert!(refused(&["-e", bad]).contains("-e"), "{bad}");
        }
    }

    #[test]
    fn filters_keep_the_order_typed_across_flags_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules");
        std::fs::write(&file, "# comment\n; too\n\n*.tmp\r\n+ keep.tmp\n- -dash\n").unwrap();
        let from = format!("--exclude-from={}", file.display());
        let got = job(&["--include=*.rs", "--exclude", "-x", &from, "--include", "last", "--exclude=*"]);
        let shown: Vec<String> = got
            .selection
            .rules
            .iter()
            .map(|rule| match of_wire(rule) {
                FilterRule::Pattern(rule) => {
                    format!("{} {}", if rule.include { '+' } else { '-' }, printable(&rule.pattern))
                }
                FilterRule::PerDirectory(file) => format!(": {}", printable(&file.name)),
            })
            .collect();
        assert_eq!(shown, ["+ *.rs", "- -x", "- *.tmp", "+ keep.tmp", "- -dash", "+ last", "- *"]);
        assert_eq!(job(&["--exclude=a", "--exclude=!", "--exclude=b"]).selection.rules.len(), 1);
        assert!(refused(&["--exclude="]).contains("empty"));
        assert!(refused(&["--exclude-from=/nonexistent/list"]).contains("cannot read the list of --exclude-from"));
    }

    #[test]
    fn files_from_gives_plain_relative_paths() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            format!("--files-from={}", file.display())
        };
        let lines = job(&[&write("lines", b"a\n/b//c/\r\n#no\n;no\n./d//e\n\nx\xffy")]).files_from.unwrap();
        assert_eq!(lines.paths().collect::<Vec<_>>(), [b"".as_slice(), b"a", b"b/c/", b"d/e", b"x\xffy"]);
        assert!(!lines.is_recursive());
        assert!(job(&["-r", &write("lines", b"a\n")]).files_from.unwrap().is_recursive());
        let nul = job(&["-0", &write("nul", b"new\nline\0#yes\0")]).files_from.unwrap();
        assert_eq!(nul.paths().collect::<Vec<_>>(), [b"#yes".as_slice(), b"new\nline"]);
        assert!(refused(&[&write("two-in-one", b"a\0b\n")]).contains("lists 'a"));
        assert!(refused(&[&write("up", b"a/../../b\n")]).contains(".."));
        assert!(refused(&["second", &write("two", b"a\n")]).contains("exactly one source"));
        assert!(refused(&["--delete", &write("del", b"a\n")]).contains("--delete"));
        let base = job(&[&write("dots", b"x//y/./a\nx/y/./\n/x/y/./b/./c\n")]);
        assert_eq!(base.sources[0].path, b"a/x/y");
        let paths: Vec<_> = base.files_from.unwrap().paths().collect();
        assert_eq!(paths, [b"./".as_slice(), b"a", b"b/c"]);
        assert!(refused(&[&write("bases", b"x/./a\ny/./a\n")]).contains("another directory"));
        assert!(refused(&[&write("upwards", b"x/../../y/./a\n")]).contains(".."));
    }

    #[test]
    fn rates_come_from_one_of_three_flags() {
        assert_eq!(job(&["--rate", "8Mbit"]).carriage.rate_bytes_per_s, Some(1_000_000));
        assert_eq!(job(&["--bwlimit=1m"]).carriage.rate_bytes_per_s, Some(1 << 20));
        assert_eq!(job(&["--bwlimit", "0"]).carriage.rate_bytes_per_s, None);
        assert_eq!(job(&["-l", "8000"]).carriage.rate_bytes_per_s, Some(1_024_000));
        assert!(refused(&["-l", "8000", "--rate", "8Mbit"]).contains("cannot be used with"));
    }

    #[test]
    fn absurd_values_are_refused_with_the_flag_named() {
        for (flag, value) in [
            ("--lanes", "0"),
            ("--lanes", "99999"),
            ("--lanes", "-1"),
            ("--lanes", "+1"),
            ("--lanes", "x"),
            ("--lanes", ""),
            ("--lanes", "18446744073709551617"),
            ("--window", "4"),
            ("--window", "2G"),
            ("--window", "-4M"),
            ("--window", "wide"),
            ("--rate", "99999999999Tbit"),
            ("--rate", "08:00-18:00 1Mbit, 17:00-19:00 2Mbit"),
            ("--rate", "-1Mbit"),
            ("--rate", "500"),
            ("--bwlimit", "-5"),
            ("-l", "-5"),
            ("-P", "0"),
            ("-P", "65536"),
            ("-P", "-22"),
            ("--port-range", "5-4"),
            ("--port-range", "0-9"),
            ("--port-range", "1-99999"),
            ("--timeout", "0"),
            ("--timeout", "-1"),
            ("--timeout", "99999999999999999999"),
            ("--cipher", "rot13"),
            ("--cc", "../bbr"),
            ("--cc", ""),
            ("--verify", "moon"),
            ("-J", "-oProxyCommand=x"),
            ("--haul-path", ""),
        ] {
            assert!(refused(&[flag, value]).contains(flag), "{flag} {value}: {}", refused(&[flag, value]));
        }
        assert_eq!(job(&["--lanes", "256"]).carriage.lanes, Some(256));
        assert_eq!(job(&["--lanes", "auto", "--window", "auto", "--verify", "wire"]).carriage.lanes, None);
        assert!(job(&["--verify", "disk"]).selection.verify_disk);
        assert!(refused(&["--verify", "disk", "--no-flush"]).contains("--no-flush"));
        assert_eq!(job(&["--window", "auto"]).carriage.window_bytes, None);
        assert_eq!(job(&["--window", "4M"]).carriage.window_bytes, Some(4 << 20));
        assert_eq!(job(&["--window", "64MB"]).carriage.window_bytes, Some(64_000_000));
        assert_eq!(job(&["--port-range", "50000-50010"]).carriage.port_range, Some((50_000, 50_010)));
        assert_eq!(job(&["--timeout", "5"]).carriage.timeout, Duration::from_secs(5));
    }

    #[test]
    fn sources_share_one_place_and_a_target_is_needed() {
        assert!(typed(&["h1:a", "h1:b", "c"]).is_ok());
        assert!(typed(&["h1:a", "h2:b", "c"]).unwrap_err().contains("one place"));
        assert!(typed(&["h1:a", "b", "c"]).unwrap_err().contains("one is on h1, another on this machine"));
        assert!(typed(&["a"]).unwrap_err().contains("needs a target"));
        assert!(typed(&[]).unwrap_err().contains("no source"));
        assert!(typed(&["--stripe-dir", "d", "a", "c"]).unwrap_err().contains("striped recording"));
        let job = typed(&["--stripe-dir", "d", "--stripe-dir", "e", "stripes:i", "c"]).unwrap();
        let Place::Here(Here::Stripes { directories }) = &job.sources[0].place else { panic!("no recording") };
        assert_eq!(directories, &[PathBuf::from("d"), PathBuf::from("e")]);
        let dashes = typed(&["--", "-r", "h:-p"]).unwrap();
        assert_eq!(dashes.sources[0].path, b"-r");
        assert!(typed(&["h1:a", "h2:b", "-3"]).unwrap().carriage.through_here);
    }

    #[test]
    fn an_endpoint_can_be_written_as_it_was_typed() {
        for text in ["a b", "u@h:p", "[::1]:p", "ssh://u@[::1]:22/p", "haul://h:1/p", "haul://[::1]:1/p"] {
            let endpoint = endpoint::parse(OsStr::new(text)).unwrap();
            assert_eq!(endpoint.written(), text.as_bytes());
        }
    }
}

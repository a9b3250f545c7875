//! Modes, owners and groups: the target's user sets what the system allows, and is told the rest, with rsync's result.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Run, code, contents_of, needs, plant, scratch};

/// A user, its group, a second one, and others' group; no host knows them.
const USER: u32 = 12_001;
const OWN_GROUP: u32 = 12_001;
const FURTHER_GROUP: u32 = 12_002;
const FOREIGN_GROUP: u32 = 12_003;

const MODES: [u32; 7] = [0o644, 0o4755, 0o2755, 0o1777, 0o2775, 0o7777, 0o444];
const OWNERS: [(u32, u32); 4] = [(USER, OWN_GROUP), (USER, FURTHER_GROUP), (USER, FOREIGN_GROUP), (0, 0)];

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = scratch();
        plant::set_mode(dir.path(), 0o755);
        fs::copy(haul_e2e::binary::find().expect("asked for with needs!"), dir.path().join("haul")).expect("space");
        let from = dir.path().join("from");
        for mode in MODES {
            for (user, group) in OWNERS {
                let name = format!("{mode:o}-{user}-{group}");
                let (file, directory) = (from.join(format!("f{name}")), from.join(format!("d{name}")));
                plant::text(&file, "words\n");
                plant::text(&directory.join("file"), "words\n");
                for path in [&file, &directory] {
                    std::os::unix::fs::chown(path, Some(user), Some(group)).expect("root may");
                }
                plant::set_mode(&file, mode | 0o444);
                plant::set_mode(&directory, mode | 0o555);
            }
        }
        fs::create_dir(dir.path().join("home")).expect("own directory");
        std::os::unix::fs::chown(dir.path().join("home"), Some(USER), Some(OWN_GROUP)).expect("root may");
        Self { dir }
    }

    /// Copies into a new directory, with or without set-group-id, as an ordinary user or root.
    fn copy(&self, program: &[&str], ordinary: bool, hands_on_group: bool) -> (Run, PathBuf) {
        let to = self.dir.path().join("to");
        let _ = fs::remove_dir_all(&to);
        fs::create_dir(&to).expect("own directory");
        std::os::unix::fs::chown(&to, Some(if ordinary { USER } else { 0 }), Some(FURTHER_GROUP)).expect("root may");
        plant::set_mode(&to, if hands_on_group { 0o2775 } else { 0o755 });
        let user: Vec<String> = match ordinary {
            true => vec![
                "setpriv".into(),
                format!("--reuid={USER}"),
                format!("--regid={OWN_GROUP}"),
                format!("--groups={OWN_GROUP},{FURTHER_GROUP}"),
                "--inh-caps=-all".into(),
                "--".into(),
            ],
            false => vec!["env".into()],
        };
        let run = Run::new(&user[0]).args(&user[1..]).args(program).env("HOME", self.dir.path().join("home"));
        (run.current_dir("/").arg(contents_of(&self.dir.path().join("from"))).arg(&to), to)
    }
}

fn look(tree: &Path) -> BTreeMap<PathBuf, (u32, u32, u32)> {
    let names = names_below(tree);
    let paths = names.iter().map(|name| path_of(name).to_path_buf()).chain([PathBuf::new()]);
    paths
        .map(|path| {
            let metadata = fs::symlink_metadata(tree.join(&path)).expect("it is there");
            (path, (metadata.mode() & 0o7777, metadata.uid(), metadata.gid()))
        })
        .collect()
}

fn shown(found: Option<&(u32, u32, u32)>) -> String {
    found.map_or("nothing".into(), |(mode, user, group)| format!("{mode:o} {user} {group}"))
}

#[test]
fn modes_owners_and_groups_become_what_rsync_makes_of_them() {
    needs!(Root, Haul, Tool("setpriv"), Tool("rsync"));
    let stage = Stage::new();
    let haul = stage.dir.path().join("haul");
    for ordinary in [false, true] {
        for hands_on_group in [false, true] {
            for (theirs, ours) in [("-a", &["-a"][..]), ("-rltp", &["-p"]), ("-rltpg", &["-p", "-g"])] {
                let (rsync, to) = stage.copy(&["rsync", theirs], ordinary, hands_on_group);
                rsync.run().expect(0);
                let expected = look(&to);
                let program = [&[haul.to_str().expect("a plain path"), "cp", "--json"][..], ours].concat();
                let (copy, to) = stage.copy(&program, ordinary, hands_on_group);
                let run = copy.run().expect(code::OK);
                let found = look(&to);
                let differ: Vec<_> = expected
                    .iter()
                    .filter(|(path, metadata)| found.get(*path) != Some(metadata))
                    .map(|(path, metadata)| {
                        format!("{path:?}: rsync {}, haul {}", shown(Some(metadata)), shown(found.get(path)))
                    })
                    .collect();
                assert!(differ.is_empty() && found.len() == expected.len(), "{theirs} {ordinary} {differ:#?}");
                // rsync leaves these out silently.
                let says = |what: &str| run.stdout_text().contains(what);
                assert_eq!(says("groups are not kept"), ordinary && theirs != "-rltp", "{run}");
                assert_eq!(says("owners are not kept"), ordinary && theirs == "-a", "{run}");
            }
        }
    }
}

/// In a directory for everybody, not everybody may remove files; set-group-id stays.
#[test]
fn without_flags_no_privilege_travels_and_directories_keep_what_protects_them() {
    needs!(Root, Haul, Tool("setpriv"));
    let stage = Stage::new();
    let haul = stage.dir.path().join("haul");
    for ordinary in [false, true] {
        let program = [haul.to_str().expect("a plain path"), "cp", "--json"];
        let (copy, to) = stage.copy(&program, ordinary, true);
        copy.run().expect(code::OK);
        for (path, (mode, user, group)) in look(&to) {
            let name = path.to_string_lossy().into_owned();
            let special = match () {
                () if name.is_empty() || (name.starts_with('d') && !name.contains('/')) => {
                    let sticky = ["d1777", "d7777"].iter().any(|start| name.starts_with(start));
                    0o2000 | if sticky { 0o1000 } else { 0 }
                }
                () => 0,
            };
            assert_eq!(
                (mode & 0o7000, user, group),
                (special, if ordinary { USER } else { 0 }, FURTHER_GROUP),
                "{name}"
            );
        }
    }
}

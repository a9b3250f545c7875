//! Which file of a crate may use which: no circle of files, and only the listed arrows between the rooms of a crate.
//!
//! A file uses another by a `use` or a path, also through a name that a third file passes on. A parent and a child that use each
//! other are a circle, too. Tests may use everything.
//!
//! A room is a folder or a file directly below `src`. ARCHITECTURE.md lists the rooms of some crates:
//! ````text
//! ```rooms
//! cli: cp -> report text
//! cli: report -> text
//! cli: text ->
//! ```
//! ````

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::paths::{self, Named, Names};
use crate::source::Source;

/// Without a limit, names passed on in a circle would never end.
const PASSED_ON_MAX: usize = 8;

/// Stands for a module used as a whole: `use crate::shape;`.
const WHOLE: &str = "itself";

/// A module, as `["shape", "queue"]`; empty for the root.
type Module = Vec<String>;

/// The used modules, each with an example.
type Uses = BTreeMap<Module, BTreeMap<Module, String>>;

type Rooms = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Finds circles of files, and unlisted arrows between rooms.
pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    check_files(&parse_rooms(&text), files)
}

fn check_files(rooms: &Rooms, files: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test) {
        crates.entry(file.crate_name()).or_default().push(file);
    }
    for (name, files) in &crates {
        let uses = match Crate::read(files) {
            Ok(found) => found.uses(),
            Err(finding) => {
                findings.push(finding);
                continue;
            }
        };
        findings.extend(circles(&uses).iter().map(|circle| format!("crate {name}: {circle}")));
        if let Some(allowed) = rooms.get(*name) {
            findings.extend(check_rooms(name, allowed, &uses));
        }
    }
    for name in rooms.keys().filter(|name| !crates.contains_key(name.as_str())) {
        findings.push(format!("ARCHITECTURE.md: the rooms mention {name}, which is no crate of the workspace"));
    }
    findings
}

struct Crate {
    files: BTreeMap<Module, Named>,
}

impl Crate {
    fn read(files: &[&Source]) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        for file in files {
            let named = paths::read(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
            let Some(module) = module(&file.path) else { continue };
            // A program uses the library beside it from outside: only the library passes names on.
            if !(found.contains_key(&module) && file.path.ends_with("/main.rs")) {
                found.insert(module, named);
            }
        }
        let for_tests = |(module, named): (&Module, &Named)| -> Vec<Module> {
            named.test_modules.iter().map(|name| below(module, std::slice::from_ref(name))).collect()
        };
        let tests: Vec<Module> = found.iter().flat_map(for_tests).collect();
        found.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Ok(Self { files: found })
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (from, named) in &self.files {
            let targets = uses.entry(from.clone()).or_default();
            for (to, what) in named.paths.iter().filter_map(|path| self.resolve(from, path, PASSED_ON_MAX)) {
                // A name says more than the whole module.
                if to != *from && targets.get(&to).is_none_or(|known| known == WHOLE) {
                    targets.insert(to, what);
                }
            }
        }
        uses
    }

    /// `None`: the path leads to another crate.
    fn resolve(&self, from: &Module, path: &[String], passed_on_max: usize) -> Option<(Module, String)> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let absolute = match path.first()?.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => below(from, &path[1..]),
            "super" => below(&from[..from.len().checked_sub(ups)?], &path[ups..]),
            _ if self.files.contains_key(&below(from, &path[..1])) => below(from, path),
            name => {
                let import = self.files[from].imports.get(name)?;
                return self.resolve(from, &below(import, &path[1..]), passed_on_max.checked_sub(1)?);
            }
        };
        let length = (0..=absolute.len()).rev().find(|length| self.files.contains_key(&absolute[..*length]))?;
        let (module, rest) = absolute.split_at(length);
        let passed_on = rest.first().and_then(|name| self.files[module].imports.get(name)).and_then(|import| {
            self.resolve(&module.to_vec(), &below(import, &rest[1..]), passed_on_max.checked_sub(1)?)
        });
        passed_on.or_else(|| Some((module.to_vec(), rest.first().cloned().unwrap_or_else(|| WHOLE.to_owned()))))
    }
}

/// `None`: each program in `src/bin` is a crate of its own.
fn module(path: &str) -> Option<Module> {
    let inside = path.split_once("/src/")?.1.strip_suffix(".rs")?;
    let mut names: Names = inside.split('/').map(str::to_owned).collect();
    if names[0] == "bin" {
        return None;
    }
    if ["mod", "lib", "main"].contains(&names.last()?.as_str()) {
        names.pop();
    }
    Some(names)
}

fn below(module: &[String], names: &[String]) -> Module {
    module.iter().chain(names).cloned().collect()
}

/// Tells the shortest circle of each set of files that reach each other.
fn circles(uses: &Uses) -> Vec<String> {
    let mut told: BTreeSet<&Module> = BTreeSet::new();
    let mut findings = Vec::new();
    for start in uses.keys() {
        let ways = ways_from(uses, start);
        let back = |module: &&Module| ways_from(uses, module).contains_key(start);
        let together: Vec<&Module> = ways.keys().copied().filter(back).collect();
        if together.is_empty() || told.contains(start) {
            continue;
        }
        told.extend(&together);
        let circles = together.iter().filter_map(|module| ways_from(uses, module).remove(module));
        let shortest = circles.min_by_key(Vec::len).unwrap_or_default();
        let steps: Vec<String> = shortest
            .iter()
            .map(|(from, to)| format!("{} uses {} ({})", from.join("::"), to.join("::"), uses[*from][*to]))
            .collect();
        let others = match together.len() - steps.len() {
            0 => String::new(),
            count => format!("; {count} more in circles with these"),
        };
        findings.push(format!("a circle of files: {}{others}", steps.join(", ")));
    }
    findings
}

fn ways_from<'a>(uses: &'a Uses, start: &'a Module) -> BTreeMap<&'a Module, Vec<(&'a Module, &'a Module)>> {
    let mut ways: BTreeMap<&Module, Vec<(&Module, &Module)>> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        let way = if at == start { Vec::new() } else { ways[at].clone() };
        for to in uses[at].keys() {
            if !ways.contains_key(to) {
                ways.insert(to, way.iter().copied().chain([(at, to)]).collect());
                if to != start {
                    queue.push_back(to);
                }
            }
        }
    }
    ways
}

fn parse_rooms(text: &str) -> Rooms {
    let block = text.split("```rooms\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let mut rooms = Rooms::new();
    for line in block.lines() {
        let Some((from, to)) = line.split_once("->") else { continue };
        let Some((name, room)) = from.split_once(':') else { continue };
        let targets = to.split_whitespace().map(str::to_owned).collect();
        rooms.entry(name.trim().to_owned()).or_default().insert(room.trim().to_owned(), targets);
    }
    rooms
}

fn check_rooms(name: &str, allowed: &BTreeMap<String, BTreeSet<String>>, uses: &Uses) -> Vec<String> {
    let mut findings: Vec<String> =
        room_in_a_circle(allowed).map(|room| circle_of_rooms(name, room)).into_iter().collect();
    let rooms: BTreeSet<&String> = uses.keys().filter_map(|module| module.first()).collect();
    for room in rooms.iter().filter(|room| !allowed.contains_key(**room)) {
        findings.push(format!("ARCHITECTURE.md: the rooms of {name} do not mention {room}"));
    }
    let mentioned: BTreeSet<&String> = allowed.iter().flat_map(|(from, to)| to.iter().chain([from])).collect();
    for room in mentioned.difference(&rooms) {
        findings.push(format!("ARCHITECTURE.md: the rooms mention {room}, which {name} does not have"));
    }
    for (from, targets) in uses {
        for (to, what) in targets {
            let (Some(from_room), Some(to_room)) = (from.first(), to.first()) else { continue };
            let Some(allowed) = allowed.get(from_room) else { continue };
            if from_room != to_room && !allowed.contains(to_room) {
                let (from, to) = (from.join("::"), to.join("::"));
                findings.push(format!(
                    "crate {name}: {from} uses {to} ({what}), an arrow between rooms that ARCHITECTURE.md does not list"
                ));
            }
        }
    }
    findings
}

/// Finds a room that its arrows lead back to.
fn room_in_a_circle(allowed: &BTreeMap<String, BTreeSet<String>>) -> Option<&String> {
    allowed.keys().find(|start| {
        let mut reached: BTreeSet<&String> = BTreeSet::new();
        let mut queue = vec![*start];
        while let Some(at) = queue.pop() {
            queue.extend(allowed.get(at).into_iter().flatten().filter(|to| reached.insert(to)));
        }
        reached.contains(start)
    })
}

fn circle_of_rooms(name: &str, room: &str) -> String {
    format!("ARCHITECTURE.md: the rooms of {name} make a circle: arrows lead from {room} back to {room}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<Source> {
        texts.iter().map(|(path, text)| Source::new(&format!("crates/net/src/{path}"), text)).collect()
    }

    fn check(texts: &[(&str, &str)]) -> Vec<String> {
        check_files(&Rooms::new(), &files(texts))
    }

    #[test]
    fn a_circle_of_files_is_found() {
        let found = check(&[("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { super::a::g(); }")]);
        assert_eq!(found, ["crate net: a circle of files: a uses b (B), b uses a (g)"]);
        let straight = check(&[("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "use std::fmt;")]);
        assert_eq!(straight, [""; 0]);
    }

    #[test]
    fn of_many_circles_the_shortest_is_told() {
        let texts = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::{a::A, b::B};")];
        let found = check(&texts);
        assert_eq!(found, ["crate net: a circle of files: b uses c (C), c uses b (B); 1 more in circles with these"]);
    }

    #[test]
    fn a_parent_and_its_child_that_use_each_other_are_a_circle() {
        let found = check(&[("a/mod.rs", "mod b; use self::b::B;"), ("a/b.rs", "use super::A; use crate::a::C;")]);
        assert_eq!(found, ["crate net: a circle of files: a uses a::b (B), a::b uses a (C)"]);
        assert_eq!(check(&[("a/mod.rs", "mod b; use self::b::B;"), ("a/b.rs", "")]), [""; 0]);
    }

    #[test]
    fn the_root_of_a_crate_is_a_parent_too() {
        let found = check(&[("lib.rs", "pub fn f() { a::g(); }"), ("a.rs", "use crate::f;")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn tests_may_use_everything() {
        let inside = "use crate::b::B; #[cfg(test)] mod tests { use crate::b::X; }";
        let texts = [
            ("lib.rs", "#[cfg(test)] mod t;"),
            ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A;"),
            ("t.rs", inside),
            ("t/deep.rs", "use crate::c::C;"),
            ("c.rs", "use crate::t::deep::D;"),
        ];
        assert_eq!(check(&texts), [""; 0]);
    }

    #[test]
    fn a_name_that_is_passed_on_leads_to_its_file() {
        let texts = [
            ("a/mod.rs", "mod b; mod c; pub use b::B; pub use c::C;"),
            ("a/b.rs", "use super::C;"),
            ("a/c.rs", "use crate::a::B;"),
        ];
        assert_eq!(check(&texts), ["crate net: a circle of files: a::b uses a::c (C), a::c uses a::b (B)"]);
        let module = [("a.rs", "use crate::b; fn f() { b::g(); }"), ("b.rs", "use crate::a as x; fn g() { x::f(); }")];
        assert_eq!(check(&module), ["crate net: a circle of files: a uses b (g), b uses a (f)"]);
        assert_eq!(check(&[("a.rs", "use b::c; use c::b; fn f() { b::x(); }")]), [""; 0], "it ends");
    }

    #[test]
    fn a_library_and_its_program_have_the_same_root() {
        let texts = [
            ("lib.rs", "pub use a::A;"),
            ("main.rs", "use haul_net::A;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::A;"),
        ];
        assert_eq!(check(&texts), ["crate net: a circle of files: a uses b (B), b uses a (A)"]);
    }

    #[test]
    fn arrows_between_rooms_are_those_that_are_listed() {
        let rooms = |lines: &str| parse_rooms(&format!("# A\n```rooms\n{lines}\n```\n"));
        let texts = files(&[
            ("lib.rs", "pub use run::go;"),
            ("run/mod.rs", "use crate::files::hash;"),
            ("files/mod.rs", ""),
            ("files/hash.rs", "use crate::go;"),
        ]);
        let is_arrow = |finding: &String| !finding.contains("a circle of files");
        let check =
            |lines: &str| -> Vec<String> { check_files(&rooms(lines), &texts).into_iter().filter(is_arrow).collect() };
        assert_eq!(check(""), [""; 0], "nothing is listed, nothing is held");
        let found = check("net: run -> files\nnet: files -> run");
        assert_eq!(found, ["ARCHITECTURE.md: the rooms of net make a circle: arrows lead from files back to files"]);
        let found = check("net: run -> files\nnet: files ->");
        let expected = "files::hash uses run (go), an arrow between rooms that ARCHITECTURE.md does not list";
        assert_eq!(found, [format!("crate net: {expected}")]);
        assert_eq!(check("net: run -> files").len(), 1, "a room without a line");
        assert_eq!(check("net: run -> files gone\nnet: files ->").len(), 2, "a room that does not exist");
        assert_eq!(check("new: run ->").len(), 1, "a crate that does not exist");
    }
}

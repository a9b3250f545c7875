#!/usr/bin/env python3
"""Switches each rule and constant of the engine off, one at a time, and shows what changes in virtual time.

Usage: scripts/rules.py SCRATCH [WORDS...]   (WORDS choose rules and constants by a part of their name)

A copy of the crate in SCRATCH gets a switch at each rule of `rules.txt`, and a factor at each constant. It is built
once. Then the tables of `path_table.rs` and the scenarios run once for each switch. Results go to SCRATCH/results.tsv:
the name, its variant, the greatest change of a time or rate of ours, of a share of others, and the tests that fail.
"""

import concurrent.futures, os, pathlib, re, shutil, subprocess, sys, threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
ROOMS = ["path", "paths", "service"]
CONST = re.compile(
    r"^( *)((?:pub\((?:super|crate)\) )?)const ([A-Z][A-Z0-9_]*): (u8|u16|u32|u64|usize|i8|f64) =\s*([^;]*);", re.M
)
SWITCH = """//! Made by `scripts/rules.py`.
extern crate std;
use std::sync::OnceLock;
static SET: OnceLock<(u32, f64)> = OnceLock::new();
fn set() -> &'static (u32, f64) {
    SET.get_or_init(|| {
        let text = std::env::var("RULE").unwrap_or_default();
        let (id, factor) = text.split_once(' ').unwrap_or(("0", "1"));
        (id.parse().unwrap(), factor.parse().unwrap())
    })
}
pub fn off(id: u32) -> bool { set().0 == id }
pub fn scaled(id: u32, value: f64) -> f64 {
    let (set_id, factor) = *set();
    if set_id != id { value }
    // A share near the whole, or a gain above it: its distance from the whole changes.
    else if factor > 0.0 && (0.55..1.6).contains(&value) && value != 1.0 { 1.0 + (value - 1.0) * factor }
    else { value * factor }
}
pub fn percent(id: u32, value: f64) -> f64 {
    let (set_id, factor) = *set();
    if set_id != id { value } else { (100.0 + (value - 100.0) * factor).max(0.0) }
}
"""


def rules():
    """Blocks of `rules.txt`: `== name -- effect`, the file, then the old text, `=>`, and the new one with OFF as the switch."""
    for block in (HERE / "rules.txt").read_text().split("\n== ")[1:]:
        head, _, rest = block.partition("\n")
        path, _, rest = rest.partition("\n")
        old, _, new = rest.partition("\n=>\n")
        yield head.split(" -- ")[0].strip(), path.strip(), old.strip("\n"), new.rstrip("\n")


def spread(scratch):
    """Copies the sources and puts the switches in. Returns (id, name, room, kind) of each."""
    shutil.rmtree(scratch / "src", ignore_errors=True)
    ignore = shutil.ignore_patterns("target", ".git")
    shutil.copytree(ROOT, scratch / "src", ignore=ignore)
    manifest = scratch / "src/Cargo.toml"
    text = manifest.read_text().replace("[profile.dev.package.haul-engine]\nopt-level = 1", "")
    manifest.write_text(text.replace("[profile.dev]\n", "[profile.dev]\nopt-level = 3\n"))
    engine = scratch / "src/crates/engine/src"
    (engine / "ablate.rs").write_text(SWITCH)
    lib = engine / "lib.rs"
    lib.write_text(lib.read_text().replace("pub mod path;", "#[allow(missing_docs)]\npub mod ablate;\npub mod path;", 1))
    switches, ids = [], iter(range(1, 10**6))
    for name, path, old, new in rules():
        file = engine / path
        text = file.read_text()
        if text.count(old) != 1:
            sys.exit(f"{name}: {path} has {text.count(old)} times:\n{old}")
        at = next(ids)
        file.write_text(text.replace(old, new.replace("OFF", f"crate::ablate::off({at})")))
        switches.append((at, name, path, "rule"))
    files = [file for room in ROOMS for file in sorted((engine / room).rglob("*.rs")) if file.name != "tests.rs"]
    found = {}
    for file in files:
        code = file.read_text().split("\n#[cfg(test)]\nmod tests")[0]
        for match in CONST.finditer(code):
            if match[3] not in ("BUCKETS", "FIRST_WINDOW_BYTES"):
                found.setdefault(match[3], {})[file] = next(ids)
    for file in files + [file for room in ROOMS for file in (engine / room).rglob("tests.rs")]:
        code, mark, tests = file.read_text().partition("\n#[cfg(test)]\nmod tests")
        used = {name for use in re.findall(r"^use [^;]*;", code, re.M) for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", use)}
        home = file.parent / "mod.rs" if file.name == "tests.rs" else file
        names = {name for name, where in found.items() if home in where or name in used}
        if not names:
            continue

        def fn(match):
            indent, public, name, kind, value = match.groups()
            if file not in found.get(name, {}):
                return match[0]
            at = found[name][file]
            call = "percent" if "PERCENT" in name else "scaled"
            switches.append((at, name, str(file.relative_to(engine)), "constant"))
            return (f"{indent}#[allow(non_snake_case)]\n{indent}{public}fn {name}() -> {kind} "
                    f"{{ let value: {kind} = {value}; crate::ablate::{call}({at}, value as f64) as {kind} }}")

        lines, in_use = [], False
        word = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(sorted(names)) + r")(?![A-Za-z0-9_(])")
        for line in CONST.sub(fn, code).split("\n"):
            in_use = in_use or line.startswith(("use ", "pub use ", "pub(super) use ", "pub(crate) use "))
            if not in_use and not line.lstrip().startswith("//") and not re.match(r" *(pub\(\w+\) )?fn [A-Z]", line):
                line = word.sub(r"\1()", line)
            elif re.match(r" *(pub\(\w+\) )?fn [A-Z]", line):
                head, brace, body = line.partition("{")
                line = head + brace + word.sub(r"\1()", body)
            in_use = in_use and not line.rstrip().endswith(";")
            lines.append(line)
        test_lines = [
            line if line.lstrip().startswith(("//", "use ")) else word.sub(r"\1()", line) for line in tests.split("\n")
        ]
        file.write_text("\n".join(lines) + mark + "\n".join(test_lines))
    table = scratch / "src/crates/engine/tests/path_table.rs"
    seed = 'const SEEDS: u64 = 1;\nfn seed() -> u64 {\n    std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap())\n}'
    text = table.read_text().replace("insta::assert_snapshot!(", "drop(").replace("(1..=SEEDS)", "(seed()..=seed())")
    table.write_text(text.replace("const SEEDS: u64 = 3;", seed))
    big = scratch / "src/crates/engine/tests/path_simulation.rs"
    big.write_text(big.read_text().replace("insta::assert_snapshot!(format!", 'println!("{}", format!'))
    return switches


def build(scratch):
    command = ["cargo", "test", "-p", "haul-engine", "--no-run", "--lib", "--tests", "--message-format=short"]
    env = {**os.environ, "CARGO_TARGET_DIR": str(scratch / "target")}
    done = subprocess.run(command, cwd=scratch / "src", env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-6000:])
    return {
        name.removeprefix("haul_").rsplit("-", 1)[0]: path
        for path, name in re.findall(r"Executable .*? \((\S*/(\S+))\)", done.stderr)
    }


def suites(path):
    """What can show a change in this file: programs with their filters, the tables first."""
    room = path.split(".")[0].split("/")
    lib = ("engine", ["::".join(room[:2]).removesuffix("::mod")])
    if room[0] == "path":
        return [("path_table", ["a_table_of_forty"]), ("path_simulation", ["--skip", "a_table"]), ("path_recorded", []), lib]
    if room[0] == "paths":
        return [("path_table", ["a_table_of_several"]), ("path_simulation", ["several"]), lib]
    if room[1] == "aware":
        return [("path_table", ["a_table_of_jobs"]), ("aware_simulation", ["--skip", "lanes_that_finish"]), lib]
    if room[1] == "background":
        return [("path_table", ["a_table_of_background"]), ("background_simulation", []), lib]
    return [("schedule_simulation", []), lib]


def measure(programs, suite, rule, seed=1):
    """Figures by row, and the tests that fail."""
    program, words = suite
    command = [programs[program], "--nocapture", "--test-threads=1", *words]
    env = {**os.environ, "RULE": rule, "SEED": str(seed), "INSTA_UPDATE": "no"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=ROOT / "crates/engine")
    except subprocess.TimeoutExpired:
        return {}, [f"{program}::takes_too_long"]
    figures = {}
    for line in done.stdout.splitlines():
        _, mark, row = line.partition("figures\t")
        if mark:
            name, *values = row.split("\t")
            figures[name] = [float(value) for value in values]
    failures = done.stdout.rpartition("failures:")[2] if done.returncode else ""
    failed = sorted(set(re.findall(r"^    ([a-z]\S+)$", failures, re.M)))
    return figures, failed or (["crashed"] if done.returncode else [])


# Columns of time, rate, share of others, and so on, for each table.
COLUMNS = {
    "normal": ["time", "time", "rate", "others", "queue", "queue", ""],
    "several": ["rate", "others", "rests"],
    "background": ["rate", "others", "others", "queue", "time"],
    "auto": ["rate", "when", "when", "changes", "marked"],
}


def compare(bases, now):
    """Of each kind the greatest change against the base of the same seed that is more than other seeds differ by."""
    found = {}
    for row, before in bases[0].items():
        for at, kind in enumerate(COLUMNS[row.split(":")[0]]):
            if not kind or row not in now:
                continue
            a, b = before[at], now[row][at]
            seeds = [base[row][at] for base in bases]
            chance = max(seeds) - min(seeds)
            change, chance = (b - a, chance) if kind not in ("time", "rate") else (
                (b - a) / max(abs(a), 0.1) * 100, chance / max(abs(a), 0.1) * 100)
            if abs(change) > 1.5 * chance and abs(change) > abs(found.get(kind, (0, ""))[0]):
                found[kind] = (change, row)
    return found


# A change of so much counts: percent of time and rate, points of a share, ms of queue, seconds.
COUNTS = {"time": 3, "rate": 3, "others": 1.5, "queue": 10, "when": 1, "rests": 0.5, "changes": 0.5, "marked": 5}


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    scratch, words = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    if scratch.is_relative_to(ROOT):
        sys.exit(f"{scratch} lies in what is copied there: name a directory elsewhere")
    scratch.mkdir(parents=True, exist_ok=True)
    switches = spread(scratch)
    programs = build(scratch)
    chosen = [s for s in switches if not words or any(word in s[1] or word in s[2] or word == s[3] for word in words)]
    bases, lock = {}, threading.Lock()
    out = open(scratch / "results.tsv", "a")

    def base(suite):
        with lock:
            if str(suite) not in bases:
                bases[str(suite)] = [measure(programs, suite, "0 1", seed)[0] for seed in (1, 2, 3)]
        return bases[str(suite)]

    def run(job):
        at, name, path, kind = job
        # A constant that matters when it is doubled need not be halved.
        for factor in [1] if kind == "rule" else [2, 0.5]:
            matters = False
            # Nor does a rule whose absence the tables show need the scenarios.
            for suite in suites(path):
                figures, failed = measure(programs, suite, f"{at} {factor}")
                changes = compare(base(suite), figures) if figures else {}
                text = "; ".join(f"{what} {change:+.1f} {row}" for what, (change, row) in sorted(changes.items()))
                variant = "off" if kind == "rule" else f"x{factor}"
                matters |= bool(failed) or any(abs(change) > COUNTS[what] for what, (change, _) in changes.items())
                with lock:
                    out.write("\t".join([path, name, variant, suite[0], text, " ".join(failed)]) + "\n")
                    out.flush()
                if matters:
                    break
            if matters:
                break

    print(f"{len(chosen)} switches", flush=True)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("WORKERS", "1"))) as pool:
        list(pool.map(run, chosen))


main()

//! The JSON Schema of `haul cp --json`, against every kind of line and against copies.

use std::path::{Path, PathBuf};

use haul_e2e::{Outcome, Run, code, needs, plant, scratch};

/// Fails on fields that the schema lacks.
const CHECK: &str = r##"
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
def close(part):
    if isinstance(part, dict):
        if "properties" in part:
            part["additionalProperties"] = False
        for inner in part.values():
            close(inner)
    elif isinstance(part, list):
        for inner in part:
            close(inner)
close(schema)
seen = set()
for text in sys.stdin:
    line = json.loads(text)
    event = line["event"]
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/" + event, "$defs": schema["$defs"]})
    errors = [error.json_path + ": " + error.message[:300] for error in validator.iter_errors(line)]
    assert not errors, (event, errors)
    seen.add(event)
assert len(schema["oneOf"]) == len({each["$ref"] for each in schema["oneOf"]})
known = {each["$ref"].rsplit("/", 1)[1] for each in schema["oneOf"]}
print(" ".join(sorted(known - seen)))
"##;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(lines: &str) -> Vec<String> {
    let schema = repository().join("docs/use/json.schema.json");
    let run = Run::new("python3").args(["-c", CHECK]).arg(schema).input(lines.as_bytes()).run().expect(code::OK);
    run.stdout_text().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_schema_has_every_kind_of_line_and_each_line_is_as_it_says() {
    needs!(Tool("python3"), Tool("jsonschema"));
    // A test of the program pins this file: every line, every field.
    let all = repository().join("crates/cli/src/cp/snapshots/haul__cp__json__tests__json_lines.snap");
    let all = std::fs::read_to_string(all).expect("it is in the repository");
    let lines: String = all.lines().filter(|line| line.starts_with('{')).flat_map(|line| [line, "\n"]).collect();
    assert_eq!(check(&lines), ["batch"], "a kind of line is missing in one of them");
}

#[test]
fn what_copies_write_is_as_the_schema_says() {
    needs!(Haul, Tool("python3"), Tool("jsonschema"));
    let dir = scratch();
    plant::many(&dir.path().join("tree"), 50, 1_000, 1);
    plant::sparse(&dir.path().join("tree/sparse"), 64 << 20, &[(1 << 20, 5_000)], 2);
    plant::text(&dir.path().join("jobs"), "tree one/\ntree two/\nmissing three/\n");
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let haul = |args: &[&str]| -> Outcome {
        Run::new(&program).env("HOME", dir.path()).current_dir(dir.path()).args(["cp", "--json"]).args(args).run()
    };
    let runs = [
        haul(&["--itemize-changes", "--max-size", "2M", "tree/", "to"]).expect(code::OK),
        haul(&["--delete", "-n", "tree/", "to"]).expect(code::OK),
        haul(&["tree/", "to"]).expect(code::OK),
        haul(&["tree/", "to"]).expect(code::OK),
        haul(&["--batch", "jobs"]),
        haul(&["missing", "to"]),
    ];
    let lines: String = runs.iter().map(Outcome::stdout_text).collect();
    let missing = check(&lines);
    assert!(
        !missing.iter().any(|event| ["report", "progress", "batch", "item", "left_out"].contains(&&**event)),
        "{missing:?}"
    );
}

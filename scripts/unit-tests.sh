#!/usr/bin/env bash
# Runs the test programs of all crates but e2e as `cargo test` does, several at a time: many wait for a guest kernel or a network.
#   scripts/unit-tests.sh PROGRAMS_AT_A_TIME
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

# run_one DIRECTORY PROGRAM: prints the output of a test program in one piece.
run_one() {
    local directory=$1 program=$2 log status=0
    log=$(mktemp)
    (cd "$directory" && CARGO_MANIFEST_DIR=$directory "$program" >"$log" 2>&1) || status=$?
    printf '     Running %s (%s)\n' "$program" "${directory##*/}"
    cat "$log"
    rm -f "$log"
    if ((status)); then echo "failed with status $status: $program"; fi
    return "$status"
}
export -f run_one

programs=$(mktemp)
trap 'rm -f "$programs"' EXIT
# The packages are those of `make build`, so that nothing is built again.
"${CARGO:-cargo}" test --workspace --locked --no-run --message-format=json | python3 -c '
import json, os, sys
found = []
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        found.append((os.path.dirname(built["manifest_path"]), built["executable"]))
# Whole jobs (crate transfer) take longest, so the end of the alphabet begins.
for directory, program in sorted(found, reverse=True):
    if os.path.basename(directory) != "e2e":
        print(directory, program, sep="\0", end="\0")
' >"$programs"
# After a failure the other programs run all the same; xargs then ends with 123.
xargs --null --arg-file="$programs" --max-args=2 --max-procs="$1" bash -c 'run_one "$@"' run_one
"${CARGO:-cargo}" test --workspace --locked --doc

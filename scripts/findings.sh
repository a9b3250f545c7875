#!/usr/bin/env bash
# Runs the tests that docs/proof/findings.md names: all of them, or those of the rows that have a word.
#   scripts/findings.sh [WORD]
# HAUL_BIN and HAUL_LAB_BIN name the programs for the end-to-end tests (the release build; `make build`). A test that
# fails, and a name that no test has, are told at the end: exit status 1.
set -euo pipefail
cd "$(dirname "$0")/.."

word=${1:-}
# A row is a point of the list, with the lines that go on with it.
rows=$(awk '/^- \*\*[0-9]/ { if (row) print row; row = $0; next } /^  / && row { row = row $0; next } { if (row) print row; row = "" }
    END { if (row) print row }' docs/proof/findings.md | grep -iF -- "$word") ||
    { echo "docs/proof/findings.md has no row with \"$word\"" >&2; exit 1; }
tests=$(grep -oE '`[a-z0-9]+/[a-z0-9_]+`' <<<"$rows" | tr -d '`' | sort -u)
programs=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release
export HAUL_BIN=${HAUL_BIN:-$PWD/$programs/haul} HAUL_LAB_BIN=${HAUL_LAB_BIN:-$PWD/$programs/haul-lab}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

wrong=()
for crate in $(cut -d/ -f1 <<<"$tests" | sort -u); do
    mapfile -t names < <(sed -n "s,^$crate/,,p" <<<"$tests")
    package=haul-$crate
    [[ $crate == xtask ]] && package=xtask
    echo "== $package: ${#names[@]} tests of findings"
    # Names are filters: a test with a longer name runs, too. A name without a test would pass unseen.
    cargo test --no-fail-fast --locked -p "$package" -- "${names[@]}" >"$output" 2>&1 || true
    for name in "${names[@]}"; do
        if ! grep -qE "^test ([a-z0-9_]+::)*$name( - should panic)? \.\.\. ok" "$output"; then
            wrong+=("$crate/$name")
        fi
    done
    grep -E '^(error|test .* FAILED$|thread .* panicked|test result: FAILED)' "$output" || true
done
if ((${#wrong[@]})); then
    printf 'failed, or not there: %s\n' "${wrong[@]}" >&2
    exit 1
fi
echo "all $(wc -l <<<"$tests") tests of $(wc -l <<<"$rows") findings passed"

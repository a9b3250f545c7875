#!/usr/bin/env bash
# Runs the tests that docs/findings.md names: all of them, or those of the rows that have a word.
#   scripts/findings.sh [WORD]
# HAUL_BIN and HAUL_LAB_BIN name the programs for the end-to-end tests (the release build; `make build`).
set -euo pipefail
cd "$(dirname "$0")/.."

word=${1:-}
rows=$(grep -E '^\| [0-9]+\.' docs/findings.md | grep -iF -- "$word") ||
    { echo "docs/findings.md has no row with \"$word\"" >&2; exit 1; }
tests=$(grep -oE '`[a-z]+/[a-z0-9_]+`' <<<"$rows" | tr -d '`' | sort -u)
programs=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release
export HAUL_BIN=${HAUL_BIN:-$PWD/$programs/haul} HAUL_LAB_BIN=${HAUL_LAB_BIN:-$PWD/$programs/haul-lab}

failed=()
for crate in $(cut -d/ -f1 <<<"$tests" | sort -u); do
    mapfile -t names < <(sed -n "s,^$crate/,,p" <<<"$tests")
    package=haul-$crate
    [[ $crate == xtask ]] && package=xtask
    echo "== $package: ${#names[@]} tests of findings"
    # Names are filters: a test with a longer name runs, too.
    cargo test --quiet --locked -p "$package" -- "${names[@]}" || failed+=("$package")
done
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
echo "all tests of $(wc -l <<<"$rows") findings passed"

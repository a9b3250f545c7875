#!/usr/bin/env bash
# Runs the scenarios with the given arguments of the test program, several at a time. Many of them wait for seconds of a real network,
# and on a machine that is short of processors a neighbour may take those seconds. What failed therefore runs once more, alone, and is named.
#   HAUL_BIN=... HAUL_LAB_BIN=... scripts/scenarios.sh --test-threads=4 [NAME...]
set -euo pipefail

# More than these are no bad luck.
failures_max=8

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The packages are those of `make build`, so that nothing is built again.
scenarios() { "${CARGO:-cargo}" test --workspace --locked --no-fail-fast --test daemon --test guest --test scenarios "$@"; }
# A build that fails is no scenario that fails.
scenarios --no-run
if scenarios -- "$@" 2>&1 | tee "$log"; then
    exit 0
fi
mapfile -t failed < <(sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$log")
if ((${#failed[@]} == 0 || ${#failed[@]} > failures_max)); then
    echo "${#failed[@]} scenarios failed" >&2
    exit 1
fi
echo "once more, alone: ${failed[*]}"
scenarios -- --exact --test-threads=1 "${failed[@]}"
echo "failed beside others, passed alone: ${failed[*]}"

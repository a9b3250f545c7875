#!/usr/bin/env bash
# Runs the scenarios with the given arguments of the test program, several at a time. Many of them wait for seconds of a real network,
# and on a machine that is short of processors a neighbour may take those seconds. What failed therefore runs once more, alone, and is named.
#   HAUL_BIN=... HAUL_LAB_BIN=... scripts/scenarios.sh --test-threads=4 [NAME...]
#   MEANWHILE=COMMAND   also runs this command, on what the scenarios leave of the processors (sched(7), SCHED_IDLE)
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

# More than these are no bad luck.
failures_max=8

log=$(mktemp) meanwhile_log=$(mktemp) meanwhile=
clean_up() {
    if [[ -n $meanwhile ]]; then kill "$meanwhile" 2>/dev/null || true; fi
    rm -f "$log" "$meanwhile_log"
}
trap clean_up EXIT

# The packages are those of `make build`, so that nothing is built again.
mapfile -t programs < <("${CARGO:-cargo}" test --workspace --locked --test daemon --test guest --test scenarios \
    --no-run --message-format=json | python3 -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        print(built["executable"])
')
# A build that fails is no scenario that fails.
((${#programs[@]} == 3)) || { echo "the scenarios were not built" >&2; exit 1; }

# Cargo locks what it builds, so the command begins when the programs are known.
if [[ -n ${MEANWHILE:-} ]]; then
    chrt --idle 0 bash -c "$MEANWHILE" >"$meanwhile_log" 2>&1 &
    meanwhile=$!
fi

# scenarios ARGUMENTS: the programs one after the other, all of them also after a failure.
scenarios() {
    local program status=0
    for program in "${programs[@]}"; do
        (cd crates/e2e && CARGO_MANIFEST_DIR=$PWD "$program" "$@") || status=$?
    done
    return "$status"
}

failed_beside_others() {
    mapfile -t failed < <(sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$log")
    if ((${#failed[@]} == 0 || ${#failed[@]} > failures_max)); then
        echo "${#failed[@]} scenarios failed" >&2
        exit 1
    fi
    echo "once more, alone: ${failed[*]}"
    scenarios --exact --test-threads=1 "${failed[@]}"
    echo "failed beside others, passed alone: ${failed[*]}"
}

passed=yes
scenarios "$@" 2>&1 | tee "$log" || passed=
if [[ -n $meanwhile ]]; then
    status=0
    wait "$meanwhile" || status=$?
    meanwhile=
    cat "$meanwhile_log"
    ((status == 0)) || { echo "failed with status $status: $MEANWHILE" >&2; exit 1; }
fi
[[ -n $passed ]] || failed_beside_others

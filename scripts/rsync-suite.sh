#!/usr/bin/env bash
# rsync's own test suite, with haul in the place of rsync: scripts/rsync-suite.sh [RSYNC_SOURCE [TEST...]]
#
# RSYNC_SOURCE is a directory with the source of rsync 3.5 or later (its tests are Python). Without it, `apt-get source rsync` brings it. It is copied,
# built (a compiler, make, autoconf, libacl1-dev and libpopt-dev are needed) and never changed. A wrapper says rsync's command lines in haul's words. At
# the end stands a table: what passes, what haul refuses on purpose, what is about rsync's daemon or protocol, and what differs,
# with the reasons of rsync-suite/expected.txt. Exit status 1: something differs that is not expected.
#
#   HAUL=      the program; without it the release build of this tree
#   JOBS=2     tests at a time
#   KEEP=DIR   where all is built and run; without it a directory that is removed
set -euo pipefail
shopt -s inherit_errexit
if [[ ${1:-} == --help || ${1:-} == -h ]]; then sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; fi
tree=$(cd "$(dirname "$0")/.." && pwd)
source=${1:-}
shift || true
triple=$(rustc -vV 2>/dev/null | sed -n 's/^host: //p')
HAUL=$(realpath "${HAUL:-$tree/target/$triple/release/haul}")
[[ -x $HAUL ]] || { echo "there is no $HAUL: make haul, or HAUL=PROGRAM" >&2; exit 2; }
if [[ -n ${KEEP:-} ]]; then
    mkdir -p "$KEEP"
    work=$(realpath "$KEEP")
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi

if [[ -z $source ]]; then
    mkdir -p "$work/package"
    (cd "$work/package" && apt-get source -q rsync >&2)
    source=$(find "$work/package" -mindepth 1 -maxdepth 1 -type d | head -n 1)
fi
[[ -f $source/runtests.py ]] || { echo "$source has no runtests.py: rsync 3.5 or later is needed" >&2; exit 2; }
if [[ ! -x $work/rsync/rsync ]]; then
    mkdir -p "$work/rsync"
    cp -a "$source/." "$work/rsync/"
    (
        cd "$work/rsync"
        ./configure --disable-openssl --disable-xxhash --disable-zstd --disable-lz4 --disable-md2man
        make rsync check-progs
    ) >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 2; }
fi

export HAUL HAUL_SUITE_RSYNC=$work/rsync/rsync HAUL_SUITE_LOG=$work/notes
rm -rf "$HAUL_SUITE_LOG"
mkdir -p "$HAUL_SUITE_LOG"
cd "$work/rsync"
# It fails where a test fails. Races are rsync's own: a second each is enough to see what haul does.
python3 runtests.py --rsync-bin "$tree/scripts/rsync-suite/as-haul.py" -j "${JOBS:-2}" --race-timeout 1 --timeout 120 \
    --expect-skipped IGNORE "$@" >"$work/output" 2>&1 || true
python3 "$tree/scripts/rsync-suite/report.py" "$work/output" "$HAUL_SUITE_LOG" "$tree/scripts/rsync-suite/expected.txt"

#!/usr/bin/env bash
# Runs commands at the same time, and fails if one of them does. `make -j` would have cargo share its two jobs on a machine with more.
#   scripts/at-once.sh COMMAND COMMAND...
set -euo pipefail

running=()
for command; do
    bash -c "$command" &
    running+=("$!")
done
status=0
for pid in "${running[@]}"; do
    wait "$pid" || status=$?
done
exit "$status"

#!/usr/bin/env bash
# The shell of `make` where $TIMES names a file: it notes there how many seconds each command took, so that CI can show what takes longest.
begin=$EPOCHSECONDS
/bin/sh "$@"
status=$?
seconds=$((EPOCHSECONDS - begin))
command=${*: -1}
((seconds == 0)) || printf '%5d s  %.110s\n' "$seconds" "${command//$'\n'/ }" >>"$TIMES"
exit "$status"

#!/usr/bin/env bash
# Makes the packaged guest kernel run on processors with AMX: DIR/linux.uml starts it with whole-xstate.c preloaded.
#   scripts/setup-guest-kernel.sh DIR
set -euo pipefail

dir=${1:?name the directory}
here=$(cd "$(dirname "$0")" && pwd)

# Other processors need no help, and whoever names a kernel has chosen one.
grep -qw amx_tile /proc/cpuinfo || exit 0
[[ -z ${HAUL_LAB_KERNEL:-} ]] || exit 0
packaged=$(command -v linux.uml) || exit 0

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cc -O2 -shared -fPIC -o "$dir/whole-xstate.so" "$here/whole-xstate.c"
printf '#!/bin/sh\nLD_PRELOAD=%q exec %q "$@"\n' "$dir/whole-xstate.so" "$packaged" >"$dir/linux.uml.new"
chmod +x "$dir/linux.uml.new"
mv "$dir/linux.uml.new" "$dir/linux.uml"

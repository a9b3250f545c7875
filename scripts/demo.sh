#!/usr/bin/env bash
# The life of a copy in a minute: over a private sshd on this machine, killed half-way, resumed, repeated, verified.
# Needs no root. Leaves nothing behind.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
# shellcheck source=scripts/private-sshd.sh
source scripts/private-sshd.sh

HAUL=${HAUL_BIN:-}
if [[ -z $HAUL ]]; then
    cargo build --locked -p haul-cli
    HAUL=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/debug/haul
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/haul-demo.XXXXXX")
copy=
clean_up() {
    if [[ -n $copy ]]; then kill -9 "$copy" 2>/dev/null || true; fi
    stop_sshd
    rm -rf "$work"
}
trap clean_up EXIT

bold= plain=
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
heading() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
show() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; }
# The demo's own directory and ssh configuration are left out of what is shown.
cp_shown() {
    local words=("${@//$work\/there\//}")
    show haul cp "${words[@]//$work\//}"
    haul_cp "$@"
}
haul_cp() { "$HAUL" cp --no-progress -F "$SSH_CONFIG" "$@"; }

heading "A real tree: program sources or documentation of this machine, and one file of 1 GiB"
tree=$work/tree
mkdir "$tree"
sources=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/ 2>/dev/null | head -1 || true)
cp -a "${sources:-/usr/share/doc}" "$tree/files"
head -c 1G /dev/urandom >"$tree/large.bin"
printf '%s files, %s\n' "$(find "$tree" -type f | wc -l)" "$(du -sh "$tree" | cut -f1)"

heading "A far side: an sshd of our own on loopback, with nothing of ours installed"
export HOME=$work/home XDG_CACHE_HOME=$work/home/.cache XDG_STATE_HOME=$work/home/.local/state
mkdir -p "$HOME"
start_sshd "$work/there"
to=$work/there/data
echo "sshd listens; the host is called \"there\""

heading "Copy it, and kill -9 the copy half-way"
bytes=$(du -sb --apparent-size "$tree" | cut -f1)
show "haul cp --rate 400MB --json tree there:data &"
# Not through the function: that would be a shell of its own, and the kill would hit the shell.
"$HAUL" cp -F "$SSH_CONFIG" --rate 400MB --json "$tree" "there:$to" >"$work/events" &
copy=$!
disown
moved=0
while ((moved < bytes / 2)); do
    kill -0 "$copy" 2>/dev/null || { echo "the copy ended before it could be killed"; break; }
    moved=$(grep -o '"bytes_moved":[0-9]*' "$work/events" | tail -1 | cut -d: -f2 || true)
    moved=${moved:-0}
    sleep 0.02
done
show "kill -9 $copy"
kill -9 "$copy" 2>/dev/null || true
copy=
echo "killed after $((moved >> 20)) of $((bytes >> 20)) MiB had arrived and were verified"
if [[ -e $to/tree/large.bin ]] && ! cmp -s "$tree/large.bin" "$to/tree/large.bin"; then
    echo "large.bin has its name and is not whole" >&2
    exit 1
fi
echo "no file that is not whole has its final name"

heading "The same command again goes on where it stopped"
cp_shown "$tree" "there:$to"

heading "And again: nothing is left to move"
cp_shown "$tree" "there:$to"

heading "Proof: a manifest of the source, and the target checked against it"
cp_shown -q --manifest-out "$work/manifest" "$tree" "there:$to"
tail -1 "$work/manifest"
# The manifest's paths are relative to the target of the copy.
show haul verify manifest data
"$HAUL" verify --no-progress "$work/manifest" "$to"
show diff -r tree data/tree
diff -r --no-dereference "$tree" "$to/tree"
echo "equal"

heading "Done in $SECONDS s; everything made here is removed"

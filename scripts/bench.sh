#!/usr/bin/env bash
# haul against scp, rsync and globus-url-copy: whole commands, start included, both ends on this machine, data in memory.
# Prints Markdown. One command repeats the table "In memory" in docs/proof/measured.md: make bench
#
#   REPEAT=5            timed runs of each tool, interleaved
#   BIG_MB=2000         size of the one large file, in MB of 10^6 bytes
#   SMALL_FILES=20000   number of files of 16 KiB
#   DATA=/dev/shm       where source and target lie; needs twice the data in free memory
#   CASES="big small start memory disk"
#   DISK=               a directory on a disk, for the case disk: small and empty files from one directory into another
#   TOOLS="haul haul_daemon scp rsync globus globus_ssh"
#                       and, for the large file, what does not encrypt: haul_clear haul_clear_push nginx
#   CC=                 congestion control of all, in a network namespace made for it; without: what the host has
#
# Packages of the rivals: openssh-client, rsync, globus-gass-copy-progs, globus-gridftp-server-progs, nginx-light, curl.
set -euo pipefail
shopt -s inherit_errexit
if [[ ${1:-} == --help || ${1:-} == -h ]]; then sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; fi
cd "$(dirname "$0")/.."
if [[ -n ${CC:-} && -z ${IN_NAMESPACE:-} ]]; then
    as_root=()
    if ((EUID != 0)); then as_root=(--map-root-user); fi
    # There it comes by here once more.
    exec unshare "${as_root[@]}" --net env IN_NAMESPACE=1 bash scripts/bench.sh
elif [[ -n ${CC:-} ]]; then
    ip link set lo up
    sysctl -qw "net.ipv4.tcp_congestion_control=$CC"
fi
# shellcheck source=scripts/private-sshd.sh
source scripts/private-sshd.sh

REPEAT=${REPEAT:-5} BIG_MB=${BIG_MB:-2000} SMALL_FILES=${SMALL_FILES:-20000} DATA=${DATA:-/dev/shm}
CASES=${CASES:-big small start memory} DISK=${DISK:-} TOOLS=${TOOLS:-haul haul_daemon scp rsync globus globus_ssh}
HAUL=${HAUL_BIN:-${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release/haul}
[[ -x $HAUL ]] || { echo "no program at $HAUL: make build" >&2; exit 1; }

work=$(mktemp -d "$DATA/haul-bench.XXXXXX")
gridftp= daemon= nginx=
clean_up() {
    stop_sshd
    if [[ -n $gridftp ]]; then kill "$gridftp" 2>/dev/null || true; fi
    if [[ -n $daemon ]]; then kill "$daemon" 2>/dev/null || true; fi
    if [[ -n $nginx ]]; then kill "$nginx" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
say() { echo "$*" >&2; }

export HOME=$work/home XDG_CACHE_HOME=$work/home/.cache XDG_STATE_HOME=$work/home/.local/state
chmod 755 "$work"
mkdir -p "$HOME"
start_sshd "$work/there"
offered=$work/offered
from=$offered/from to=$offered/to

# ---- The tools: each copies $from/$1 to $to/$1 ----

haul_copy() { "$HAUL" cp -q --no-keep-login -F "$SSH_CONFIG" "$from/$1" "there:$to/"; }
with_daemon() { "$HAUL" cp -q --identity "$work/own" --known-hosts "$work/known" "$@"; }
haul_daemon_copy() { with_daemon "$from/$1" "haul://127.0.0.1:$haul_port/to/"; }
haul_clear_copy() { with_daemon --cipher none "haul://127.0.0.1:$haul_port/from/$1" "$to/"; }
haul_clear_push_copy() { with_daemon --cipher none "$from/$1" "haul://127.0.0.1:$haul_port/to/"; }
nginx_copy() { curl -sf -o "$to/$1" "http://127.0.0.1:$nginx_port/$1"; }
scp_copy() { scp -qrpF "$SSH_CONFIG" "$from/$1" "there:$to/"; }
rsync_copy() { rsync -a -e "ssh -F $SSH_CONFIG" "$from/$1" "there:$to/"; }
# gridftp SCHEME://ADDRESS WHAT
gridftp() {
    if [[ -d $from/$2 ]]; then
        globus-url-copy -q -r -cd -pp -cc 4 "file://$from/$2/" "$1$to/$2/"
    else
        globus-url-copy -q -p 4 "file://$from/$2" "$1$to/$2"
    fi
}
globus_copy() { gridftp "ftp://127.0.0.1:$gridftp_port" "$1"; }
# It starts ssh by this script and no other, which neither takes a configuration nor can be named: ours lies over it.
globus_ssh_script=/usr/share/globus/gridftp-ssh
globus_ssh_copy() {
    # shellcheck disable=SC2016
    unshare --map-root-user --mount bash -c '
        mount --bind "$1" "$2" && shift 2 && "$@"' - "$work/gridftp-ssh" "$globus_ssh_script" gridftp sshftp://127.0.0.1 "$1"
}
export -f gridftp
export from to

tools=()
absent=()
wanted() { [[ " $TOOLS " == *" $1 "* ]]; }
add_tool() {
    if ! wanted "$1"; then return; fi
    if command -v "$2" >/dev/null; then tools+=("$1"); else absent+=("$1 (package $3)"); fi
}
add_tool haul "$HAUL" haul
add_tool scp scp openssh-client
add_tool rsync rsync rsync
# answers PORT PID: within five seconds, and as long as that process lives
answers() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}
start_gridftp() {
    wanted globus || return 0
    command -v globus-gridftp-server >/dev/null || { absent+=("globus (package globus-gridftp-server-progs)"); return; }
    local try user
    # As root it serves nobody but others.
    user=$(id -un)
    if ((EUID == 0)); then user=nobody; fi
    for try in 1 2 3 4 5; do
        gridftp_port=$((32100 + RANDOM % 10000))
        globus-gridftp-server -aa -anonymous-user "$user" -p "$gridftp_port" -control-interface 127.0.0.1 \
            -data-interface 127.0.0.1 -log-level NONE </dev/null >"$work/gridftp.log" 2>&1 &
        gridftp=$!
        if answers "$gridftp_port" "$gridftp"; then add_tool globus globus-url-copy globus-gass-copy-progs; return; fi
        kill "$gridftp" 2>/dev/null || true
        gridftp=
    done
    absent+=("globus (its server did not start: $(tail -1 "$work/gridftp.log"))")
}
# The same, started by ssh as haul is.
add_gridftp_over_ssh() {
    wanted globus_ssh || return 0
    if [[ ! -e $globus_ssh_script ]] || ! unshare --map-root-user --mount true 2>/dev/null; then
        absent+=("globus over ssh (needs $globus_ssh_script and user namespaces)")
        return
    fi
    # What it would find in the user's own configuration of ssh; without the last two, root is turned away, and the address is another.
    printf '#!/bin/sh\nexec ssh -F %s there PATH=$PATH:/usr/sbin globus-gridftp-server -ssh -auth-level 0 -data-interface 127.0.0.1\n' \
        "$SSH_CONFIG" >"$work/gridftp-ssh"
    chmod 755 "$work/gridftp-ssh"
    add_tool globus_ssh globus-url-copy globus-gass-copy-progs
}
start_daemon() {
    if ! wanted haul_daemon && ! wanted haul_clear && ! wanted haul_clear_push; then return; fi
    "$HAUL" key generate --file "$work/own" >"$work/out"
    "$HAUL" key generate --file "$work/host" >"$work/out"
    echo "rw clear root=$offered $("$HAUL" key show --file "$work/own")" >"$work/authorized"
    chmod 600 "$work/authorized"
    "$HAUL" serve --listen 127.0.0.1:0 --identity "$work/host" --authorized-keys "$work/authorized" \
        </dev/null >"$work/serve.out" 2>"$work/serve.log" &
    daemon=$!
    for ((tries = 0; tries < 100; tries++)); do
        haul_port=$(sed -n 's/.*listening on 127.0.0.1:\([0-9]*\)$/\1/p' "$work/serve.log")
        if [[ -n $haul_port ]]; then break; fi
        kill -0 "$daemon" 2>/dev/null || { cat "$work/serve.log" >&2; return 1; }
        sleep 0.05
    done
    [[ -n $haul_port ]] || { say "haul serve says no port:"; cat "$work/serve.log" >&2; return 1; }
    sed -n 's/^or in its list *//p' "$work/serve.out" >"$work/known"
    add_tool haul_daemon "$HAUL" haul
    add_tool haul_clear "$HAUL" haul
    add_tool haul_clear_push "$HAUL" haul
}
start_nginx() {
    wanted nginx || return 0
    if ! command -v nginx >/dev/null; then absent+=("nginx and curl (package nginx-light)"); return; fi
    nginx_port=$((32100 + RANDOM % 10000))
    cat >"$work/nginx.conf" <<-END
	$(if ((EUID == 0)); then echo "user root;"; fi)
	daemon off; pid $work/nginx.pid; error_log stderr; worker_processes 2; events {}
	http { access_log off; sendfile on; tcp_nopush on; server { listen 127.0.0.1:$nginx_port; root $from; } }
	END
    nginx -e stderr -p "$work" -c "$work/nginx.conf" </dev/null >"$work/nginx.log" 2>&1 &
    nginx=$!
    if answers "$nginx_port" "$nginx"; then add_tool nginx curl curl; return; fi
    absent+=("nginx and curl (nginx did not start: $(tail -1 "$work/nginx.log"))")
}
case " $CASES " in *" big "* | *" small "*)
    PATH=$PATH:/usr/sbin
    add_gridftp_over_ssh
    start_daemon
    start_gridftp
    start_nginx
    ;;
esac

# With what each is compared: haul with the same way in.
declare -A against=(
    [haul_daemon]=haul_daemon [globus]=haul_daemon [haul_clear]=haul_clear [haul_clear_push]=haul_clear [nginx]=haul_clear
)
declare -A title=(
    [haul]="haul cp over ssh (encrypted, verified)" [scp]="scp (encrypted)" [rsync]="rsync -a over ssh (encrypted)"
    [globus_ssh]="globus-url-copy over ssh (data clear, unverified)" [ssh]="ssh there true"
    [haul_clear]="haul cp --cipher none from haul serve (clear, verified)" [nginx]="nginx to curl (clear, unverified)"
    [haul_clear_push]="haul cp --cipher none to haul serve (clear, verified)"
    [haul_daemon]="haul cp to haul serve (encrypted, verified)" [globus]="globus-url-copy to its server, no login (clear, unverified)"
)

# ---- Measuring ----

declare -A times
# time_once KEY COMMAND...: appends milliseconds with one digit to times[KEY]
time_once() {
    local key=$1 begin end
    shift
    begin=${EPOCHREALTIME/./}
    if ! "$@" >"$work/out" 2>&1; then
        say "failed: $*"; tail -3 "$work/out" >&2
        times[$key]+=" failed"
        return
    fi
    end=${EPOCHREALTIME/./}
    times[$key]+=" $(((end - begin) / 100))"
}

# spread KEY: "median min max" in tenths of milliseconds, or nothing after a failure
spread() {
    local sorted
    [[ ${times[$1]:-} == *failed* || -z ${times[$1]:-} ]] && return
    mapfile -t sorted < <(tr ' ' '\n' <<<"${times[$1]# }" | sort -n)
    echo "${sorted[${#sorted[@]} / 2]} ${sorted[0]} ${sorted[-1]}"
}

# Open to all, because the anonymous user of the GridFTP server may be another.
empty_target() { rm -rf "$to"; mkdir -m 777 "$to"; }
# touch_memory BYTES: a virtual machine may give memory that has been free for a few seconds back to its host. To get it again took up to 2 s of a
# run, more after a slow tool than after a quick one; so each run finds memory that was written to just before.
touch_memory() {
    if [[ $(stat -f -c %T "$work") != tmpfs ]]; then return; fi
    head -c "$1" /dev/zero >"$work/touched"
    rm "$work/touched"
}

# contest WHAT BYTES TOOL...: each tool copies $from/WHAT; one run each to warm up and to compare what arrived
contest() {
    local what=$1 bytes=$2 tool round
    shift 2
    for tool in "$@"; do
        empty_target
        time_once "warm-$tool" "${tool}_copy" "$what"
        diff -r "$from/$what" "$to/$what" >/dev/null || say "$tool did not copy $what as it is"
    done
    for ((round = 1; round <= REPEAT; round++)); do
        for tool in "$@"; do
            empty_target
            touch_memory "$bytes"
            say "$what: round $round of $REPEAT: $tool"
            time_once "$what-$tool" "${tool}_copy" "$what"
        done
    done
    empty_target
}

# table WHAT BYTES FILES TOOL...
table() {
    local what=$1 bytes=$2 files=$3 tool median min max ours
    shift 3
    echo "| tool | median s | min..max s | MB/s | files/s | haul with the same way in is faster by |"
    echo "|---|---|---|---|---|---|"
    for tool in "$@"; do
        read -r ours _ < <(spread "$what-${against[$tool]:-haul}") || ours=
        if ! read -r median min max < <(spread "$what-$tool"); then
            echo "| ${title[$tool]} | failed | | | | |"
            continue
        fi
        awk -v t="${title[$tool]}" -v m="$median" -v a="$min" -v b="$max" -v bytes="$bytes" -v n="$files" -v o="${ours:-0}" \
            'BEGIN { printf "| %s | %.2f | %.2f..%.2f | %.0f | %.0f | %s |\n", t, m / 1e4, a / 1e4, b / 1e4,
                     bytes / m / 100, n / m * 1e4, o ? sprintf("%.2f x", m / o) : "" }'
    done
    local gone
    for gone in "${absent[@]}"; do echo "| $gone | not installed | | | | |"; done
    echo
}

# ---- The cases ----

mkdir -m 755 "$offered" "$from"
echo "## haul and its rivals on one machine"
echo
echo "Both ends share this machine; data in \`$DATA\`; whole commands, start included; $REPEAT interleaved runs of each tool after"
echo "one to warm up; median and spread. Repeat with \`make bench\`."
echo
echo "- machine: $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
echo "- kernel: $(uname -sr), congestion control ${CC:-$(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || echo unknown)}"
echo "- versions: $("$HAUL" --version | sed -n 1p); $(ssh -V 2>&1); $(rsync --version 2>/dev/null | sed -n 1p); $(globus-url-copy -version 2>&1 | sed -n 1p)"
echo

if [[ " $CASES " == *" big "* ]]; then
    say "making one file of $BIG_MB MB"
    mkdir "$from/big"
    head -c "${BIG_MB}000000" /dev/urandom >"$from/file"
    rmdir "$from/big"
    contest file "${BIG_MB}000000" "${tools[@]}"
    echo "### One file of $BIG_MB MB"
    echo
    table file "${BIG_MB}000000" 1 "${tools[@]}"
    rm "$from/file"
fi

if [[ " $CASES " == *" small "* ]]; then
    say "making $SMALL_FILES files of 16 KiB"
    for ((dir = 0; dir * 1000 < SMALL_FILES; dir++)); do
        count=$((SMALL_FILES - dir * 1000 < 1000 ? SMALL_FILES - dir * 1000 : 1000))
        mkdir -p "$from/tree/d$dir"
        head -c $((count * 16384)) /dev/urandom | split -b 16384 -a 4 -d - "$from/tree/d$dir/f"
    done
    trees=()
    for tool in "${tools[@]}"; do
        if [[ $tool != nginx ]]; then trees+=("$tool"); fi
    done
    contest tree $((SMALL_FILES * 16384)) "${trees[@]}"
    echo "### $SMALL_FILES files of 16 KiB"
    echo
    table tree $((SMALL_FILES * 16384)) "$SMALL_FILES" "${trees[@]}"
    rm -rf "$from/tree"
fi

if [[ " $CASES " == *" start "* ]]; then
    echo 1 >"$from/tiny"
    empty_target
    haul_copy tiny
    for ((round = 1; round <= REPEAT * 4; round++)); do
        rm -f "$to/tiny"
        time_once start-ssh ssh -F "$SSH_CONFIG" there true
        time_once start-haul haul_copy tiny
        rm -f "$to/tiny"
        time_once start-scp scp_copy tiny
    done
    echo "### Start: the whole of a command that copies one byte, haul already at the far side"
    echo
    echo "| command | median ms | min..max ms |"
    echo "|---|---|---|"
    for tool in ssh haul scp; do
        if read -r median min max < <(spread start-$tool); then
            awk -v t="${title[$tool]}" -v m="$median" -v a="$min" -v b="$max" \
                'BEGIN { printf "| %s | %.0f | %.0f..%.0f |\n", t, m / 10, a / 10, b / 10 }'
        fi
    done
    echo
fi

# haul flushes before it ends, rsync does not; with --fsync it flushes each file.
if [[ " $CASES " == *" disk "* && -n $DISK ]]; then
    disk=$(mktemp -d "$DISK/haul-bench.XXXXXX")
    trap 'clean_up; rm -rf "$disk"' EXIT
    local_haul() { "$HAUL" cp -q -r "$disk/$1/" "$disk/to/"; }
    local_rsync() { rsync -a "$disk/$1/" "$disk/to/"; }
    for ((dir = 0; dir < 50; dir++)); do
        mkdir -p "$disk/small/d$dir"
        head -c 8192000 /dev/urandom | split -b 8192 -a 4 -d - "$disk/small/d$dir/f"
    done
    for ((dir = 0; dir < 200; dir++)); do
        mkdir -p "$disk/empty/d$dir"
        (cd "$disk/empty/d$dir" && seq -f 'f%04.0f' 1000 | xargs touch)
    done
    for tree in small empty; do
        for ((round = 1; round <= REPEAT; round++)); do
            for tool in rsync haul; do
                rm -rf "$disk/to"
                sync -f "$disk"
                time_once "disk-$tree-$tool" "local_$tool" "$tree"
            done
        done
    done
    echo "### On $(stat -f -c %T "$DISK"): 50,000 files of 8 KiB, and 200,000 empty ones"
    echo
    echo "| files | command | median s | min..max s |"
    echo "|---|---|---|---|"
    for tree in small empty; do
        for tool in rsync haul; do
            if read -r median min max < <(spread "disk-$tree-$tool"); then
                awk -v f="$tree" -v t="$tool" -v m="$median" -v a="$min" -v b="$max" \
                    'BEGIN { printf "| %s | %s | %.2f | %.2f..%.2f |\n", f, t, m / 1e4, a / 1e4, b / 1e4 }'
            fi
        done
    done
    echo
    rm -rf "$disk"
fi

if [[ " $CASES " == *" memory "* ]]; then
    echo "### Peak memory of haul (VmHWM)"
    echo
    echo "| copy | here MiB | far side MiB |"
    echo "|---|---|---|"
    # watch PID: prints the largest mark of the client and of the agents until PID ends
    watch_memory() {
        local here=0 there=0 status kib
        while kill -0 "$1" 2>/dev/null; do
            for status in $(pgrep -f ' agent|cp -q -F' 2>/dev/null || true); do
                [[ $(readlink "/proc/$status/exe" 2>/dev/null) == *haul* ]] || continue
                kib=$(awk '/^VmHWM/ {print $2}' "/proc/$status/status" 2>/dev/null || true)
                if tr '\0' ' ' <"/proc/$status/cmdline" 2>/dev/null | grep -q ' agent'; then
                    ((${kib:-0} > there)) && there=$kib
                else
                    ((${kib:-0} > here)) && here=$kib
                fi
            done
            sleep 0.03
        done
        echo "| $2 | $((here / 1024)) | $((there / 1024)) |"
    }
    memory_of() {
        empty_target
        "$HAUL" cp -q -F "$SSH_CONFIG" "$from/$1" "there:$to/" &
        watch_memory $! "$2"
    }
    head -c 1000000000 /dev/urandom >"$from/file"
    memory_of file "one file of 1 GB"
    rm "$from/file"
    truncate -s 100G "$from/sparse"
    memory_of sparse "one sparse file of 100 GiB"
    rm "$from/sparse"
    MEMORY_FILES=${MEMORY_FILES:-200000}
    for ((dir = 0; dir * 1000 < MEMORY_FILES; dir++)); do
        mkdir -p "$from/many/d$dir"
        (cd "$from/many/d$dir" && seq -f 'a-file-with-a-name-of-usual-length-%06.0f' 1000 | xargs touch)
    done
    memory_of many "$MEMORY_FILES empty files"
    rm -rf "$from/many"
    echo
fi

#!/usr/bin/env bash
# haul serve --http beside nginx: the same files, as many workers as processors, both on this machine, in turn, in one run.
# Prints Markdown. One command repeats the table "Readers of the web" in docs/proof/measured.md: make bench-web
#
#   REPEAT=5            rounds; in each one server follows the other, and the order changes from round to round
#   CASES="small tls_small big tls_big idle"
#   CONNECTIONS=1000    that ask for small files at once
#   SECONDS_EACH=5      of each run with small files
#   SMALL_BYTES=16384   size of a small file
#   SMALL_FILES=100     they are asked for in turn
#   BIG_MB=2000         size of the large file, in MB of 10^6 bytes
#   IDLE=10000          connections that rest after one request each
#   DATA=/dev/shm       where the files lie
#   LOG=1               both write a line for each request; 0: neither does
#
# Packages: nginx-light, wrk, curl, openssl, python3.
set -euo pipefail
shopt -s inherit_errexit
if [[ ${1:-} == --help || ${1:-} == -h ]]; then sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; fi
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin

REPEAT=${REPEAT:-5} CASES=${CASES:-small tls_small big tls_big idle} CONNECTIONS=${CONNECTIONS:-1000}
SECONDS_EACH=${SECONDS_EACH:-5} SMALL_BYTES=${SMALL_BYTES:-16384} SMALL_FILES=${SMALL_FILES:-100} BIG_MB=${BIG_MB:-2000}
IDLE=${IDLE:-10000} DATA=${DATA:-/dev/shm} LOG=${LOG:-1}
HAUL=${HAUL_BIN:-${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release/haul}
[[ -x $HAUL ]] || { echo "no program at $HAUL: make build" >&2; exit 1; }
for program in nginx wrk curl openssl python3; do
    command -v "$program" >/dev/null || { echo "this needs $program" >&2; exit 1; }
done
ulimit -n "$(ulimit -Hn)"
(($(ulimit -n) > IDLE + 1000)) || { echo "only $(ulimit -n) descriptors: too few for IDLE=$IDLE" >&2; exit 1; }

work=$(mktemp -d "$DATA/haul-bench-web.XXXXXX")
declare -A pid=()
clean_up() {
    kill ${pid[*]} 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
say() { echo "$*" >&2; }

export HOME=$work/home XDG_STATE_HOME=$work/home/state
chmod 755 "$work"
mkdir -p "$HOME" "$work/public" "$work/nginx"
for ((file = 0; file < SMALL_FILES; file++)); do
    head -c "$SMALL_BYTES" /dev/urandom >"$work/public/f$file"
done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
# wrk asks for one file after the other.
cat >"$work/small.lua" <<END
local at = 0
request = function() at = (at + 1) % $SMALL_FILES; return wrk.format("GET", "/f" .. at) end
END

# ---- The two servers ----

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
declare -A clear=() tls=()
start_nginx() {
    clear[nginx]=$((20000 + RANDOM % 5000)) tls[nginx]=$((25000 + RANDOM % 5000))
    cat >"$work/nginx.conf" <<-END
	$(if ((EUID == 0)); then echo "user root;"; fi)
	daemon off; pid $work/nginx.pid; error_log stderr; worker_processes $(nproc); worker_rlimit_nofile $(ulimit -n);
	events { worker_connections 20000; }
	http {
	    access_log $( ((LOG)) && echo "$work/nginx/access.log" || echo off ); sendfile on; tcp_nopush on; keepalive_requests 1000000000;
	    server {
	        listen 127.0.0.1:${clear[nginx]} backlog=4096; listen 127.0.0.1:${tls[nginx]} ssl backlog=4096; root $work/public;
	        ssl_certificate $work/cert.pem; ssl_certificate_key $work/key.pem; ssl_protocols TLSv1.3;
	    }
	}
	END
    nginx -e stderr -p "$work/nginx" -c "$work/nginx.conf" </dev/null >"$work/nginx/out" 2>&1 &
    pid[nginx]=$!
    answers "${clear[nginx]}" "${pid[nginx]}" || { cat "$work/nginx/out" >&2; return 1; }
}
start_haul() {
    local quiet=()
    ((LOG)) || quiet=(--quiet)
    clear[haul]=$((15000 + RANDOM % 2000)) tls[haul]=$((17000 + RANDOM % 2000))
    if [[ ! -e $work/host ]]; then "$HAUL" key generate --file "$work/host" >"$work/out" 2>&1; fi
    touch "$work/authorized"
    chmod 600 "$work/authorized"
    "$HAUL" serve "${quiet[@]}" --listen 127.0.0.1:0 --identity "$work/host" --authorized-keys "$work/authorized" \
        --http "127.0.0.1:${clear[haul]}" --https "127.0.0.1:${tls[haul]}" --public "$work/public" \
        --certificate "$work/cert.pem" --certificate-key "$work/key.pem" </dev/null >"$work/serve.out" 2>"$work/serve.log" &
    pid[haul]=$!
    answers "${clear[haul]}" "${pid[haul]}" || { cat "$work/serve.log" >&2; return 1; }
}
# of SERVER: its processes
of() { echo "${pid[$1]}" $(ps -o pid= --ppid "${pid[$1]}"); }
# ticks SERVER: its processor time so far, in hundredths of a second
ticks() {
    local process
    for process in $(of "$1"); do awk '{ print $14 + $15 }' "/proc/$process/stat"; done | awk '{ sum += $1 } END { print sum }'
}
# memory SERVER: KiB that are its own
memory() {
    local process
    for process in $(of "$1"); do awk '/^Private/ { sum += $2 } END { print sum }' "/proc/$process/smaps_rollup"; done |
        awk '{ sum += $1 } END { print sum }'
}

# ---- Measuring ----

declare -A seen=()
# note CASE-SERVER VALUE
note() { seen[$1]+=" $2"; }

# small SERVER SCHEME PORT CASE
small() {
    local before after requests rate
    before=$(ticks "$1")
    wrk -t 1 -c "$CONNECTIONS" -d "$SECONDS_EACH" -s "$work/small.lua" "$2://127.0.0.1:$3" >"$work/out" 2>&1
    after=$(ticks "$1")
    if grep -q "Non-2xx\|Socket errors" "$work/out"; then say "$1: $(grep "Non-2xx\|Socket errors" "$work/out")"; fi
    requests=$(awk '/requests in/ { print $1 }' "$work/out")
    rate=$(awk '/Requests\/sec/ { print $2 }' "$work/out")
    note "$4-$1" "$rate"
    note "$4-cpu-$1" "$(awk -v ticks=$((after - before)) -v n="$requests" 'BEGIN { printf "%.2f", ticks * 1e4 / n }')"
}
# big SERVER SCHEME PORT CASE
big() {
    local begin end before after
    before=$(ticks "$1") begin=${EPOCHREALTIME/./}
    curl -sf --http1.1 --insecure -o /dev/null "$2://127.0.0.1:$3/big"
    end=${EPOCHREALTIME/./} after=$(ticks "$1")
    note "$4-$1" "$(awk -v mb="$BIG_MB" -v us=$((end - begin)) 'BEGIN { printf "%.3f", mb * 1000 / us }')"
    note "$4-cpu-$1" "$(awk -v mb="$BIG_MB" -v ticks=$((after - before)) 'BEGIN { printf "%.3f", ticks * 10 * 1000 / mb }')"
}
# Each connection asks once and reads all of the answer. When all rest, it says so and waits for its input to end.
cat >"$work/idle.py" <<'END'
import socket, sys
port, count, length = (int(word) for word in sys.argv[1:])
held = []
for number in range(count):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /f0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    got = b""
    while b"\r\n\r\n" not in got or len(got) - got.index(b"\r\n\r\n") - 4 < length:
        more = connection.recv(65536)
        if not more:
            sys.exit(f"connection {number} was closed")
        got += more
    held.append(connection)
print("held", flush=True)
sys.stdin.read()
END
# idle SERVER PORT: a new server, so that no earlier case has left memory
idle() {
    local before after reader
    kill "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null || true
    "start_$1"
    curl -sf -o /dev/null "http://127.0.0.1:${clear[$1]}/f0"
    before=$(memory "$1")
    coproc reader { python3 "$work/idle.py" "${clear[$1]}" "$IDLE" "$SMALL_BYTES"; }
    local to=${reader[1]} from=${reader[0]} line=
    read -r line <&"$from" || true
    [[ $line == held ]] || { say "$1 did not hold $IDLE connections"; return; }
    # A server that gives memory back later has its time.
    sleep 3
    after=$(memory "$1")
    note "idle-$1" "$(awk -v kib=$((after - before)) -v n="$IDLE" 'BEGIN { printf "%.3f", kib / n }')"
    exec {to}>&-
    wait "$reader_PID" 2>/dev/null || true
}

# spread KEY: "median min max"
spread() { tr ' ' '\n' <<<"${seen[$1]# }" | sort -n | awk '{ v[NR] = $1 } END { print v[int(NR / 2) + 1], v[1], v[NR] }'; }
# ratios A B: "median min max" of A over B, round by round
ratios() {
    paste <(tr ' ' '\n' <<<"${seen[$1]# }") <(tr ' ' '\n' <<<"${seen[$2]# }") | awk '{ printf "%.3f\n", $1 / ($2 ? $2 : 0.001) }' | sort -n |
        awk '{ v[NR] = $1 } END { printf "%.2f (%.2f..%.2f)", v[int(NR / 2) + 1], v[1], v[NR] }'
}
# row TITLE KEY UNIT
row() {
    [[ -n ${seen[$2-haul]:-} && -n ${seen[$2-nginx]:-} ]] || { echo "| $1 | failed | | |"; return; }
    local hm ha hb nm na nb
    read -r hm ha hb < <(spread "$2-haul")
    read -r nm na nb < <(spread "$2-nginx")
    echo "| $1 | $hm ($ha..$hb) $3 | $nm ($na..$nb) $3 | $(ratios "$2-haul" "$2-nginx") |"
}

start_nginx
start_haul
if [[ " $CASES " == *big* ]]; then
    say "making one file of $BIG_MB MB"
    head -c "${BIG_MB}000000" /dev/urandom >"$work/public/big"
fi
for ((round = 1; round <= REPEAT; round++)); do
    order="haul nginx"
    ((round % 2)) || order="nginx haul"
    for case in $CASES; do
        for server in $order; do
            say "round $round of $REPEAT: $case: $server"
            case $case in
            small) small "$server" http "${clear[$server]}" small ;;
            tls_small) small "$server" https "${tls[$server]}" tls_small ;;
            big) big "$server" http "${clear[$server]}" big ;;
            tls_big) big "$server" https "${tls[$server]}" tls_big ;;
            idle) idle "$server" "${clear[$server]}" ;;
            *) echo "no case $case" >&2; exit 1 ;;
            esac
        done
    done
done

echo "- machine: $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), shared by both servers and their client"
echo "- kernel: $(uname -sr), congestion control $(cat /proc/sys/net/ipv4/tcp_congestion_control); $(nginx -v 2>&1)"
echo "- $REPEAT rounds in turn; median, smallest and largest; ratios round by round; load at the end $(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo "| what | haul | nginx | haul / nginx |"
echo "|---|---|---|---|"
for case in $CASES; do
    case $case in
    small | tls_small)
        over=$([[ $case == small ]] && echo clear || echo TLS)
        row "$CONNECTIONS connections, files of $SMALL_BYTES bytes, $over: requests" "$case" /s
        row "the same: processor time of the server for a request" "$case-cpu" µs
        ;;
    big | tls_big)
        over=$([[ $case == big ]] && echo clear || echo TLS)
        row "one file of $BIG_MB MB, $over" "$case" GB/s
        row "the same: processor time of the server for a GB" "$case-cpu" ms
        ;;
    idle) row "$IDLE connections that rest after a request: memory of each" idle KiB ;;
    esac
done

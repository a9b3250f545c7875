# What the login shell of a far side runs: a program of ours that is kept there, or one that is installed, or the one that we send.
#
# `script.rs` drops these comments and joins the lines by spaces, so each line ends where a space may stand. The whole travels as one
# single-quoted word, which any login shell hands on as it is: no quote, no newline, and no exclamation mark (csh) may be in it.
#
# Nothing is trusted because of where it lies. A directory counts when nobody but root and us can change what is in it or put another in its place,
# and a program when it is opened once, its owner, mode and hash are looked at through that descriptor, and that descriptor is run.

# A first byte says that the shell runs. Who asks over a connection that may be dead waits for it, and not for the hash of a program.
echo;

# The hash and the size of our program. They stand here because ssh delivers our input a round trip later than this script.
# Programs for other machines may follow, three words each: the machine, the hash, the size.
w=@HASH@; n=@SIZE@; o="@OTHERS@";
if [ "$o" ]; then set -- $o; a=$(uname -m);
while [ $# -ge 3 ]; do if [ "$1" = "$a" ]; then w=$2; n=$3; fi; shift 3; done; fi;
u=$(id -u); y=; m=; t=; z=;
case ${XDG_CACHE_HOME:-} in /*) c=$XDG_CACHE_HOME;; *) c=$HOME/.cache;; esac;

# trusted DIRECTORY [shared]: y says what is wrong with it, or with one above it. In a `shared` one others may put files beside ours (/tmp).
# The third column of `ls -n` is the owner. The bits of the group are also those of an access control list, if there is one.
# The group may write where it is ours alone: it has our name and no further member (as with a umask of 002).
trusted() {
a=$(cd -P -- "$1" 2>/dev/null && pwd -P) || { y="$1 is no directory that can be used"; return 1; };
b=$a; h=${2:-}; set -- "$a";
while [ "$b" ]; do b=${b%/*}; set -- "$@" "${b:-/}"; done;
l=$(LC_ALL=C ls -ldn -- "$@" 2>/dev/null) || { y="who owns $a cannot be seen"; return 1; };
y=$(printf "%s\n" "$l" | while read -r x k o g r; do
e=/${r#* /};
case $o in 0|"$u") ;; *) echo "$e belongs to somebody else (user $o)"; break;; esac;
case $x in
????????w[tT]*|?????w???[tT]*) if [ "$e" = "$a" ] && [ -z "$h" ]; then echo "others can write to $e"; break; fi;;
????????w*) echo "others can write to $e"; break;;
?????w*) if [ "$g" = "$(id -g)" ] && [ "$(id -gn)" = "$(id -un)" ] &&
case $(getent group "$g") in *:*:*:|*:*:*:"$(id -un)") ;; *) false;; esac; then continue; fi;
echo "a group can write to $e"; break;;
esac; done);
[ -z "$y" ]; };

sum() { { openssl dgst -sha256 -r "$1" || sha256sum "$1" || shasum -a 256 "$1"; } 2>/dev/null | cut -c1-64; };

# is_ours NAME 3<NAME: what is open there belongs to us or root, nobody else may write to it, and it is our program. q is what to run.
# Without /proc that is its name, in a directory that nobody else can change; it is told.
is_ours() {
q=/proc/self/fd/3; [ -e $q ] || q=$1;
set -- $(LC_ALL=C ls -ldnL "$q" 2>/dev/null);
case ${1:-} in ?????w*|????????w*) false;; -??x*) [ "$3" = 0 ] || [ "$3" = "$u" ];; *) false;; esac && [ "$(sum "$q")" = "$w" ]; };

say_how() { [ "$q" = /proc/self/fd/3 ] || echo "@NOTE@ by its name: there is no /proc, by which what was looked at could be run"; };

# The time of a kept program is that of its last use.
run_kept() { if is_ours "$f"; then say_how; touch -c -- "$q" 2>/dev/null; exec "$q" agent @ARGUMENTS@; fi; };

# The two newest programs stay, and those of the last thirty days: several hosts may share a home.
forget_old() {
find "$d" -name ".new.*" -mtime +1 -exec rm -f -- {} + 2>/dev/null;
ls -t -- "$d" 2>/dev/null | grep "^haul-[0-9a-f]\{64\}$" | tail -n +3 |
while read -r o; do find "$d/$o" -mtime +30 -exec rm -f -- {} + 2>/dev/null; done; };

# It runs from its descriptor, so a copy that is for this session only has no name any more when it starts.
run_new() {
is_ours "$t" || { echo "@FAIL@ our program did not arrive whole in ${t%/*} (no space, or no sha256sum)"; exit 1; };
v=$("$q" agent --protocol 2>/dev/null); case $v in "haul-protocol @PROTOCOL@") ;;
haul-protocol*) echo "@FAIL@ the program for $(uname -m) is of another version (protocol ${v#* })"; exit 1;; *) false;; esac ||
{ echo "@FAIL@ programs cannot be run from ${t%/*} (mounted noexec)"; exit 1; };
say_how;
if [ -z "$m" ]; then
mv -f -- "$t" "$f" || { echo "@FAIL@ cannot put our program into $d"; exit 1; };
[ "$q" = "$t" ] && q=$f;
forget_old;
elif [ "$q" = "$t" ]; then "$q" agent @ARGUMENTS@; exit;
else rm -rf -- "$m"; fi;
exec "$q" agent @ARGUMENTS@; };

# Where gzip is, our program comes packed, behind its length.
gz=$(command -v gzip 2>/dev/null);
take() {
if [ "$gz" ]; then read -r k; head -c "$k" | gzip -dc 2>/dev/null;
else head -c "$n"; fi; };

# The places where our program may be kept, best first. Homes may be full, read-only, or mounted noexec.
set -- "$c/haul";
case ${TMPDIR:=/tmp} in /*) set -- "$@" "${TMPDIR%/}/haul-$u";; esac;
case ${XDG_RUNTIME_DIR:-} in /*) set -- "$@" "${XDG_RUNTIME_DIR%/}/haul";; esac;

# Others cannot change a part of the path that pwd gives, so it means the same directory from now on.
for d in "$@"; do if [ -d "$d" ] && trusted "$d"; then
d=$a; f=$d/haul-$w;
if [ -f "$f" ] && [ -r "$f" ]; then run_kept 3<"$f"; fi; fi; done;

p=$(command -v haul 2>/dev/null) && [ "$("$p" agent --protocol 2>/dev/null)" = "haul-protocol @PROTOCOL@" ] &&
exec "$p" agent @ARGUMENTS@;

clean() { [ -z "$t" ] || rm -f -- "$t"; [ -z "$m" ] || rm -rf -- "$m"; };
trap clean EXIT; trap "exit 1" HUP INT PIPE TERM;

# takes: our program would run from $t, and there is room for it. What is sent cannot be read again for another place.
takes() {
: >"$t" && chmod 700 "$t" && "$t" 2>/dev/null || { y="programs cannot be run from ${t%/*} (mounted noexec)"; return 1; };
head -c "$n" /dev/zero >"$t" 2>/dev/null || { y="${t%/*} has no room for our program"; return 1; }; };

own_place() {
for place in "$TMPDIR" /tmp "${XDG_RUNTIME_DIR:-}" "$HOME"; do
case $place in /*) ;; *) continue;; esac;
trusted "$place" shared && m=$(mktemp -d "$place/haul.XXXXXX" 2>/dev/null) || { m=; continue; };
t=$m/haul; takes && return 0;
rm -rf -- "$m"; t=; m=; done; return 1; };

for d in "$@"; do
[ -d "$d" ] || (umask 077; mkdir -p -- "$d" 2>/dev/null);
if trusted "$d"; then
d=$a; f=$d/haul-$w;
t=$(mktemp "$d/.new.XXXXXX" 2>/dev/null) || { t=; y="$d cannot be written to"; };
if [ "$t" ]; then if takes; then break; else rm -f -- "$t"; t=; fi; fi; fi;
z=${z:-$y}; done;
if [ -z "$t" ]; then own_place;
if [ "$m" ]; then echo "@NOTE@ for this session only: $z"; fi;
elif [ "$z" ]; then echo "@NOTE@ kept in $d: $z"; fi;
echo "@NEED@ $(uname -s) $(uname -m) ${gz:+gzip}";
if [ -z "$t" ]; then take >/dev/null; echo "@FAIL@ $z, and there is no other place for our program"; exit 1; fi;
take >"$t"; chmod 700 "$t"; run_new 3<"$t";

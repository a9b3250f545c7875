#!/bin/sh
# Stands for ssh: runs the command on this host, as rsync's support/lsh.sh does. `lh` stays in this directory.
while :; do
    case "$1" in
    -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    --) shift ;;
    -*) shift ;;
    *) break ;;
    esac
done
host=$1
shift
[ "$host" = lh ] || cd || exit 1
eval "$*"

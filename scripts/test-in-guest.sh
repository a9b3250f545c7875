#!/usr/bin/env bash
# Unit tests of what the kernel of this host may lack (TLS), in a guest kernel: that of the package user-mode-linux, or the one that
# HAUL_LAB_KERNEL names. cargo starts each test program through this script, which starts it there.
#   HAUL_LAB_BIN=... scripts/test-in-guest.sh
set -euo pipefail

# Their names begin so.
tests=in_kernel_tls

if [[ ${1:-} == --one ]]; then
    shift
    # A program that has none of them needs no guest. Its list is read whole: behind a `grep -q` that had found one, it failed now and
    # then with a broken pipe, and its tests were left out.
    listed=$("$1" --list "$tests")
    [[ $listed == *': test'* ]] || exit 0
    exec "$HAUL_LAB_BIN" run --engine uml --kernel "$HAUL_LAB_KERNEL" "$GUEST_TOPOLOGY" -- env TMPDIR=/dev/shm "$@"
fi

cd "$(dirname "$0")/.."
: "${HAUL_LAB_BIN:?name the built haul-lab}"
HAUL_LAB_KERNEL=${HAUL_LAB_KERNEL:-$(command -v linux.uml || true)}
if [[ -z $HAUL_LAB_KERNEL ]]; then
    # As for all other tests: what is missing must not pass for a green run.
    if [[ ${CI:-} == true ]]; then echo "the package user-mode-linux is missing" >&2; exit 1; fi
    echo "skipped: the tests of kernel TLS in a guest kernel; they need the package user-mode-linux"
    exit 0
fi
GUEST_TOPOLOGY=$(mktemp)
trap 'rm -f "$GUEST_TOPOLOGY"' EXIT
printf 'name = "guest"\nhosts = { client = {} }\n' >"$GUEST_TOPOLOGY"
# There, what is skipped elsewhere fails.
HAUL_TEST_KERNEL_TLS=1
export HAUL_LAB_BIN HAUL_LAB_KERNEL GUEST_TOPOLOGY HAUL_TEST_KERNEL_TLS

triple=$(rustc -vV | sed -n 's/^host: //p')
export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER=$PWD/scripts/test-in-guest.sh --one"
# The same packages as of `make build`, so that nothing is built again.
"${CARGO:-cargo}" test --workspace --locked --lib --test inside -- "$tests"

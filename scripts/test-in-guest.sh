#!/usr/bin/env bash
# Unit tests of what the kernel of this host may lack (TLS), in a guest kernel: that of the package user-mode-linux, or the one that
# HAUL_LAB_KERNEL names. cargo starts each test program there, because haul-lab is named as what runs programs.
#   HAUL_LAB_BIN=... scripts/test-in-guest.sh
set -euo pipefail
cd "$(dirname "$0")/.."

kernel=${HAUL_LAB_KERNEL:-$(command -v linux.uml || true)}
if [[ -z $kernel ]]; then
    # As for all other tests: what is missing must not pass for a green run.
    if [[ ${CI:-} == true ]]; then echo "the package user-mode-linux is missing" >&2; exit 1; fi
    echo "skipped: the tests of kernel TLS in a guest kernel; they need the package user-mode-linux"
    exit 0
fi
topology=$(mktemp)
trap 'rm -f "$topology"' EXIT
printf 'name = "guest"\nhosts = { client = {} }\n' >"$topology"

triple=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER
export "$runner=${HAUL_LAB_BIN:?the built haul-lab} run --engine uml --kernel $kernel $topology -- env TMPDIR=/dev/shm"
# What is skipped elsewhere fails there.
export HAUL_TEST_KERNEL_TLS=1
for crate in haul-sys haul-net haul-transfer; do
    ${CARGO:-cargo} test --locked --package "$crate" --lib -- in_kernel_tls
done

#!/usr/bin/env bash
# Builds the program for aarch64 on a host of another architecture, and packs it with `make dist`. It first says by name what is missing.
#
#   scripts/aarch64.sh            build, then target/dist
#   scripts/aarch64.sh --check    say what is missing, and end
#   HAUL_HERE=target/…/release/haul    a program that runs here makes the manual pages
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
missing=()
needs() { "${@:2}" >/dev/null 2>&1 || missing+=("$1"); }
installed() { rustc --print target-libdir --target "$target" | xargs -I{} test -d {}; }

needs "the Rust library of the target:  rustup target add $target" installed
needs "a C compiler that makes it:      apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" command -v aarch64-linux-gnu-gcc
needs "CMake, for aws-lc:               apt-get install cmake" command -v cmake
if ((${#missing[@]})); then
    echo "missing for $target:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 1
fi
echo "all is there to build for $target"
if [[ ${1:-} == --check ]]; then exit 0; fi

export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cargo build --release --locked -p haul-cli -p haul-lab --target "$target"
here=${HAUL_HERE:-${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release/haul}
HAUL_BIN=${CARGO_TARGET_DIR:-target}/$target/release/haul HAUL_HERE=$here scripts/dist.sh

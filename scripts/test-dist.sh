#!/usr/bin/env bash
# Installs each package of `make dist` into an empty root, and copies a file with it there.
#
#   HAUL_BIN=target/…/release/haul PROFILE=release
#
# The empty root is a Debian of the essential packages of this host, without anything else. What cannot run here is named, and with
# CI=true it is an error.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
HAUL_BIN=$(realpath "${HAUL_BIN:?name the program: make test-dist does}")
export HAUL_BIN
PATH=$PATH:/usr/sbin:/sbin

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DIST_DIR=$work/dist DIST_LEVEL=1 scripts/dist.sh >"$work/log"
dist=$work/dist
version=$("$HAUL_BIN" --version | cut -d' ' -f2)

skipped() {
    if [[ -n ${CI:-} ]]; then echo "it cannot run here: $1" >&2; exit 1; fi
    echo "skipped: $1"
}

has() { command -v "$1" >/dev/null; }

# quietly COMMAND: its output only where it fails.
quietly() { "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; return 1; }; }

# copies_a_file ROOT PROGRAM WHAT: in ROOT alone, with nothing else of this host.
copies_a_file() {
    local root=$1 program=$2
    mkdir -p "$root/tmp"
    echo words >"$root/tmp/from"
    quietly env -i HOME=/tmp PATH="$PATH" unshare --map-root-user chroot "$root" "$program" cp -q /tmp/from /tmp/to
    cmp "$root/tmp/from" "$root/tmp/to"
    echo "ok: $3"
}

# debian ROOT: the essential packages of this host, as their files stand here, and a list of packages without any.
essential=(base-files libc6 libc-bin dash coreutils diffutils dpkg tar sed grep gzip libacl1 libattr1 libselinux1 libpcre2-8-0 libgmp10 libmd0 zlib1g
    libbz2-1.0 liblzma5 libzstd1 libssl3 libssl3t64)
debian() {
    local root=$1
    skeleton "$root"
    add_packages "$root" "${essential[@]}"
    touch "$root/var/lib/dpkg/status"
}

skeleton() {
    local root=$1
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{etc,tmp} "$root"/var/lib/dpkg/{info,updates}
    for name in bin sbin lib lib64; do
        if [[ -L /$name ]]; then ln -s "usr/$name" "$root/$name"; else mkdir -p "$root/$name"; fi
    done
}

# add_packages ROOT PACKAGE...: their files, without their documents.
add_packages() {
    local root=$1
    shift
    for package in "$@"; do
        dpkg-query -L "$package" 2>/dev/null || true
    done | while read -r file; do
        if [[ -f $file || -L $file ]] && [[ $file != /usr/share/* ]]; then echo "${file#/}"; fi
    done | LC_ALL=C sort -u >"$work/files"
    tar -C / --no-recursion -T "$work/files" -cf - | tar -C "$root" --keep-directory-symlink -xf -
}

# make_there ROOT GOAL: `make GOAL` in ROOT, which sees this repository with what was built, the Rust that built it, and what cargo has
# fetched. Nothing is compiled there: that would take as long as the first time.
sysroot=$(rustc --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# The program tells its commit: where the history cannot be seen, it would be built anew.
history=$(git rev-parse --path-format=absolute --git-common-dir 2>/dev/null || echo "$PWD")
make_there() {
    quietly env -i HOME=/tmp PATH="$sysroot/bin:/usr/sbin:/usr/bin:/sbin:/bin" CARGO_HOME="$cargo_home" CARGO_NET_OFFLINE=true \
        PROFILE="$PROFILE" ${CARGO_INCREMENTAL:+CARGO_INCREMENTAL="$CARGO_INCREMENTAL"} \
        ${CARGO_TARGET_DIR:+CARGO_TARGET_DIR="$CARGO_TARGET_DIR"} \
        timeout "$MAKE_LIMIT_S" unshare --map-root-user --mount sh -ec '
            root=$1 goal=$2
            shift 2
            for dir in "$@" /dev /proc; do mkdir -p "$root$dir"; mount --rbind "$dir" "$root$dir"; done
            exec chroot "$root" make -C "$1" "$goal" PROFILE="$PROFILE"' sh "$1" "$2" "$PWD" "$sysroot" "$cargo_home" "$history"
}

# Looking whether all is built takes seconds; a build takes many minutes.
MAKE_LIMIT_S=120

mkdir "$work/tarball"
tar -C "$work/tarball" -xzf "$dist"/haul-"$version"-*-linux.tar.gz
copies_a_file "$work/tarball/haul-$version" /bin/haul "the tarball"

# ---- .deb: by the dpkg of a Debian that has nothing else ----
if ! has dpkg-query; then
    skipped "the .deb: this is no Debian"
else
    debian "$work/debian"
    cp "$dist"/haul_"$version"_*.deb "$work/debian/tmp/"
    quietly unshare --map-root-user chroot "$work/debian" /bin/sh -c "dpkg --force-not-root -i /tmp/haul_${version}_*.deb"
    copies_a_file "$work/debian" /usr/bin/haul "the .deb, installed by dpkg"
    test -s "$work/debian/etc/haul/authorized_keys"
    test -s "$work/debian/usr/share/doc/haul/docs/use/errors.md"
    test -s "$work/debian/usr/share/man/man5/haul-policy.5.gz"
    quietly unshare --map-root-user chroot "$work/debian" /usr/bin/haul-lab --version
    quietly unshare --map-root-user chroot "$work/debian" /bin/sh -c "dpkg --force-not-root -r haul && ! test -e /usr/bin/haul"
    # What an administrator wrote stays.
    test -s "$work/debian/etc/haul/authorized_keys"

    # `make install` into the same root.
    if [[ -x $HAUL_BIN-lab ]]; then
        quietly make -s -o build install HAUL="$HAUL_BIN" DESTDIR="$work/debian" PREFIX=/usr/local TARGET="$work/made"
        copies_a_file "$work/debian" /usr/local/bin/haul "make install"
    else
        skipped "make install: there is no $HAUL_BIN-lab (make build)"
    fi
fi

# ---- The three commands of an installer: make, make install, make uninstall ----
directory=${PROFILE:=release}
if [[ $PROFILE == dev ]]; then directory=debug; fi
built=$(realpath -q "${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/$directory/haul" || true)
if ! has dpkg-query || ! has make; then
    skipped "make in an empty root: this is no Debian with make"
elif [[ $HAUL_BIN != "$built" || ! -x $HAUL_BIN-lab ]]; then
    skipped "make in an empty root: $HAUL_BIN is not what make builds"
else
    debian "$work/bare"
    add_packages "$work/bare" make libgcc-s1 libstdc++6
    for goal in all install; do make_there "$work/bare" "$goal"; done
    copies_a_file "$work/bare" /usr/local/bin/haul "make, make install"
    test -s "$work/bare/usr/local/share/man/man1/haul-cp.1"
    test -s "$work/bare/usr/local/share/man/man5/haul-config.5"
    test -s "$work/bare/usr/local/share/doc/haul/docs/use/errors.md"
    make_there "$work/bare" uninstall
    left=$(find "$work/bare/usr/local" -name '*haul*')
    if [[ -n $left ]]; then echo "make uninstall leaves: $left" >&2; exit 1; fi
    echo "ok: make uninstall"
fi

# ---- .rpm: by rpm, with an empty list of packages ----
if has rpm; then
    mkdir "$work/rpm"
    quietly rpm --root "$work/rpm" --initdb
    # Debian's rpm asks for the flag. The empty root has no shell for the script that makes the account.
    quietly unshare --map-root-user rpm --root "$work/rpm" --force-debian --noscripts --nodeps -i "$dist"/haul-"$version"-1.*.rpm ||
        quietly rpm --root "$work/rpm" --noscripts --nodeps -i "$dist"/haul-"$version"-1.*.rpm
    test -s "$work/rpm/usr/share/man/man5/haul-networks.5.gz"
    copies_a_file "$work/rpm" /usr/bin/haul "the .rpm, installed by rpm"
else
    skipped "the .rpm: rpm is not installed"
fi

# ---- The wheel ----
if python3 -m pip --version >"$work/out" 2>&1; then
    quietly python3 -m pip install -q --no-index --no-deps --no-compile --disable-pip-version-check --target "$work/wheel" "$dist"/haul-"$version"-py3-*.whl
    test -s "$work/wheel/share/man/man1/haul-cp.1.gz"
    copies_a_file "$work/wheel" /bin/haul "the wheel, installed by pip"
else
    skipped "the wheel: python3 has no pip (package python3-pip)"
fi

# ---- The image: each blob is what its name says, and its layers make a root ----
mkdir "$work/image-root"
python3 - "$dist/image" "$work/image-root" <<'END'
import hashlib, json, pathlib, sys, tarfile
image, root = map(pathlib.Path, sys.argv[1:])
def blob(named):
    data = (image / "blobs" / named["digest"].replace(":", "/")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == named["digest"].split(":")[1] and len(data) == named["size"]
    return data
assert json.loads((image / "oci-layout").read_text())["imageLayoutVersion"] == "1.0.0"
[named] = json.loads((image / "index.json").read_text())["manifests"]
manifest = json.loads(blob(named))
assert json.loads(blob(manifest["config"]))["config"]["Entrypoint"] == ["/usr/bin/haul"]
for layer in manifest["layers"]:
    blob(layer)
    with tarfile.open(image / "blobs" / layer["digest"].replace(":", "/")) as archive:
        archive.extractall(root)
END
copies_a_file "$work/image-root" /usr/bin/haul "the image"

# ---- The service ----
if has systemd-analyze; then
    exposure=$(systemd-analyze security --offline=true packaging/haul-serve.service 2>/dev/null | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
    awk -v is="$exposure" 'BEGIN { exit !(is > 0 && is < 2) }' || { echo "exposure of haul-serve.service: '$exposure', not below 2" >&2; exit 1; }
    echo "ok: haul-serve.service, exposure $exposure of 10"
else
    skipped "haul-serve.service: systemd-analyze is not installed (package systemd)"
fi

(cd "$dist" && sha256sum -c --quiet SHA256SUMS && ! grep -q ' SHA256SUMS$' SHA256SUMS)
echo "ok: SHA256SUMS"

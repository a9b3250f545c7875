#!/usr/bin/env bash
# Installs each package of `make dist` into an empty place, and copies a file with it. Root is needed for nothing but chroot:
# where that is not allowed, the program is run from the unpacked place.
#
#   HAUL_BIN=target/…/release/haul
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DIST_DIR=$work/dist scripts/dist.sh >"$work/log"
dist=$work/dist
version=$("$HAUL_BIN" --version | cut -d' ' -f2)

skipped() {
    if [[ -n ${CI:-} ]]; then echo "it cannot run here: $1" >&2; exit 1; fi
    echo "skipped: $1"
}

# copies_a_file ROOT PROGRAM: in ROOT alone, with nothing else of this host.
copies_a_file() {
    local root=$1 program=$2
    mkdir -p "$root/tmp"
    echo words >"$root/tmp/from"
    if unshare --map-root-user chroot "$root" "$program" --version >"$work/out" 2>&1; then
        HOME=/tmp unshare --map-root-user chroot "$root" "$program" cp -q /tmp/from /tmp/to
    elif ((EUID == 0)); then
        HOME=/tmp chroot "$root" "$program" cp -q /tmp/from /tmp/to
    else
        HOME=$root/tmp "$root/$program" cp -q "$root/tmp/from" "$root/tmp/to"
    fi
    cmp "$root/tmp/from" "$root/tmp/to"
    echo "ok: $3"
}

mkdir "$work/tarball"
tar -C "$work/tarball" -xzf "$dist"/haul-"$version"-*-linux.tar.gz
copies_a_file "$work/tarball/haul-$version" /bin/haul "the tarball"

mkdir "$work/deb"
dpkg-deb -x "$dist"/haul_"$version"_*.deb "$work/deb"
dpkg-deb -I "$dist"/haul_"$version"_*.deb >"$work/out"
copies_a_file "$work/deb" /usr/bin/haul "the .deb"
# dpkg itself, with an empty list of packages.
mkdir -p "$work/root/var/lib/dpkg/"{info,updates} "$work/root/tmp"
touch "$work/root/var/lib/dpkg/status"
if ((EUID == 0)); then
    dpkg --root="$work/root" --force-script-chrootless --force-not-root --log=/dev/null -i "$dist"/haul_"$version"_*.deb >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    copies_a_file "$work/root" /usr/bin/haul "the .deb, by dpkg"
fi

if command -v rpm2cpio >/dev/null && command -v cpio >/dev/null; then
    mkdir "$work/rpm"
    (cd "$work/rpm" && rpm2cpio "$dist"/haul-"$version"-1.*.rpm | cpio -idm --quiet)
    copies_a_file "$work/rpm" /usr/bin/haul "the .rpm"
else
    skipped "the .rpm: rpm and cpio are not installed"
fi

if python3 -m venv "$work/venv" 2>"$work/out"; then
    "$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$dist"/haul-"$version"-py3-*.whl
    mkdir -p "$work/wheel/tmp"
    cp "$work/venv/bin/haul" "$work/wheel/haul"
    copies_a_file "$work/wheel" /haul "the wheel"
else
    skipped "the wheel: python3 has no venv (package python3-venv)"
fi

# The image: each blob is what its name says, and its layers make a root.
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

if command -v systemd-analyze >/dev/null; then
    exposure=$(systemd-analyze security --offline=true packaging/haul-serve.service 2>/dev/null | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
    python3 -c "import sys; sys.exit(not 0 < float('$exposure') < 2)" || { echo "exposure of haul-serve.service: $exposure" >&2; exit 1; }
    echo "ok: haul-serve.service, exposure $exposure"
else
    skipped "haul-serve.service: systemd-analyze is not installed"
fi
(cd "$dist" && sha256sum -c --quiet SHA256SUMS)

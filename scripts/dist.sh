#!/usr/bin/env bash
# Builds what people install, into target/dist: a tarball, .deb, .rpm, a Python wheel, and the directory of a container image.
#
#   HAUL_BIN=target/…/release/haul    the program; its architecture is that of the packages; haul-lab lies beside it
#   HAUL_HERE=target/…/release/haul   where that is another architecture: one that runs here, for the manual pages
#   DIST_DIR=target/dist              where they go
#   DIST_LEVEL=9                      how hard to pack, from 1 to 9
#
# The same commit gives the same bytes: all times are that of the commit. rpmbuild is used where it is there.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

haul=${HAUL_BIN:?name the program: make dist does}
out=${DIST_DIR:-${CARGO_TARGET_DIR:-target}/dist}
level=${DIST_LEVEL:-9}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
# e_machine of its ELF header.
case $(od -An -tu2 -j18 -N2 "$haul" | tr -d ' ') in
    62) arch=x86_64 deb=amd64 ;;
    183) arch=aarch64 deb=arm64 ;;
    *) echo "no package for the architecture of $haul" >&2; exit 1 ;;
esac
if [[ $arch == "$(uname -m)" ]]; then runs=$haul; else runs=${HAUL_HERE:?a program that runs here makes the man pages}; fi

rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- What is in each ----
root=$work/root
install -D -m 755 "$haul" "$root/usr/bin/haul"
install -m 755 "$haul-lab" "$root/usr/bin/haul-lab"
mkdir "$work/man"
"$runs" man "$work/man"
gzip "-${level}n" "$work"/man/*
for section in 1 5; do install -D -m 644 -t "$root/usr/share/man/man$section" "$work"/man/*."$section".gz; done
mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$runs" completions bash >"$root/usr/share/bash-completion/completions/haul"
"$runs" completions zsh >"$root/usr/share/zsh/vendor-completions/_haul"
"$runs" completions fish >"$root/usr/share/fish/vendor_completions.d/haul.fish"
install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/haul-serve.service packaging/haul-serve.socket
install -D -m 644 packaging/haul.sysusers "$root/usr/lib/sysusers.d/haul.conf"
install -D -m 644 packaging/authorized_keys "$root/etc/haul/authorized_keys"
install -D -m 644 -t "$root/usr/share/doc/haul" README.md CHANGELOG.md SECURITY.md GLOSSARY.md LICENSE-MIT LICENSE-APACHE
# The pages that hints of the program name, where the links of the README lead.
cp -r docs "$root/usr/share/doc/haul/docs"
chmod -R u=rwX,go=rX "$root/usr/share/doc/haul"
install -m 644 packaging/copyright "$root/usr/share/doc/haul/copyright"
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

packed() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$@"; }

packed -C "$root/usr" --transform "s,^\.,haul-$version," -cf - . | gzip "-${level}n" >"$out/haul-$version-$arch-linux.tar.gz"

# ---- .deb ----
mkdir "$root/DEBIAN"
sed "s/@VERSION@/$version/; s/@ARCH@/$deb/" packaging/control >"$root/DEBIAN/control"
echo "Installed-Size: $(du -sk "$root/usr" | cut -f1)" >>"$root/DEBIAN/control"
echo /etc/haul/authorized_keys >"$root/DEBIAN/conffiles"
install -m 755 packaging/postinst "$root/DEBIAN/postinst"
dpkg-deb --root-owner-group -Zxz -z"$level" --build "$root" "$out/haul_${version}_$deb.deb" >"$work/dpkg.log"
rm -r "$root/DEBIAN"

# ---- .rpm ----
if command -v rpmbuild >/dev/null; then
    rpmbuild -bb --quiet --target "$arch" --define "_topdir $work/rpm" --define "_rpmdir $out" --define "haul_version $version" \
        --define "haul_root $root" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define "_binary_payload w$level.xzdio" --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" packaging/haul.spec
else
    echo "no .rpm: rpmbuild is not installed (package rpm)" >&2
fi

# ---- The wheel and the image ----
python3 packaging/wheel_and_image.py --program "$haul" --man "$root/usr/share/man" --version "$version" --arch "$arch" --out "$out" --level "$level"

(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >"$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l "$out"

#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: as root by apt-get, otherwise by saying what is missing.
set -euo pipefail

# program:package
wanted=(
    sshd:openssh-server ssh:openssh-client scp:openssh-client ssh-keygen:openssh-client
    ip:iproute2 nft:nftables mount:mount setpriv:util-linux rsync:rsync cc:gcc ping:iputils-ping linux.uml:user-mode-linux tc:iproute2
    mkfs.ext4:e2fsprogs losetup:mount perl:perl-base mkfs.exfat:exfatprogs mount.exfat-fuse:exfat-fuse bindfs:bindfs
    # A port that systemd holds, and the packages of `make dist`.
    systemd-socket-activate:systemd systemd-analyze:systemd dpkg-deb:dpkg rpmbuild:rpm rpm:rpm pip3:python3-pip
    # What the lab's adapters are tried with.
    globus-url-copy:globus-gass-copy-progs globus-gridftp-server:globus-gridftp-server-progs nginx:nginx-light
    apache2:apache2-bin aria2c:aria2 curl:curl lftp:lftp vsftpd:vsftpd rclone:rclone xrootd:xrootd-server xrdcp:xrootd-client
    # The shell and the tools of small systems, which take our program in their own way.
    busybox:busybox
    # Completion, and scp's beside it.
    zsh:zsh fish:fish
    iperf3:iperf3 b3sum:b3sum jsonschema:python3-jsonschema mptcpize:mptcpize wget:wget openssl:openssl chromium:chromium
)

PATH=$PATH:/usr/sbin:/sbin
# Debian has no package of it. The test that runs it says so where it is missing.
if ! command -v h2spec >/dev/null && command -v go >/dev/null && ((EUID == 0)); then
    echo "installing for the tests: h2spec"
    GOBIN=/usr/local/bin go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible || true
fi
# A store that speaks S3. versitygw compares sums, and takes ten minutes to build:
#   go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
# Where it is not installed the scenarios run with moto, which has CRC64NVME from awscrt.
if ! command -v versitygw >/dev/null && command -v pip3 >/dev/null && ((EUID == 0)) &&
    ! { command -v moto_server && python3 -c 'import awscrt'; } >/dev/null 2>&1; then
    echo "installing for the tests: moto"
    pip3 install --quiet --break-system-packages 'moto[server,s3]==5.2.1' awscrt || true
fi
# It is on no system's list of packages that has WebDAV with times.
if ! command -v wsgidav >/dev/null && command -v pip3 >/dev/null && ((EUID == 0)); then
    echo "installing for the tests: wsgidav"
    pip3 install -q --break-system-packages wsgidav==4.4.0 cheroot==11.1.2 || true
fi
# Debian has one server of FTP at a time, and vsftpd is it. proftpd stands beside it, unpacked.
if ! command -v proftpd >/dev/null && command -v apt-get >/dev/null && ((EUID == 0)); then
    echo "installing for the tests: proftpd"
    unpacked=/usr/local/lib/proftpd
    (
        mkdir -p "$unpacked" && cd "$unpacked"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            libhiredis0.14 libmemcached11 libmemcachedutil2 libpcre2-posix3
        apt-get download proftpd-core proftpd-mod-crypto
        for package in ./*.deb; do dpkg-deb -x "$package" . && rm "$package"; done
        ln -sf "$unpacked/usr/sbin/proftpd" /usr/local/sbin/proftpd
    ) >/dev/null || true
fi
# A server of FTP with MLSD and times, by its own library.
if ! python3 -c 'import pyftpdlib' >/dev/null 2>&1 && command -v pip3 >/dev/null && ((EUID == 0)); then
    echo "installing for the tests: pyftpdlib"
    pip3 install -q --break-system-packages pyftpdlib==2.2.0 || true
fi
missing=()
for entry in "${wanted[@]}"; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
[[ -e /usr/share/bash-completion/bash_completion ]] || missing+=(bash-completion)
[[ -e /usr/lib/nginx/modules/ngx_http_dav_ext_module.so ]] || missing+=(libnginx-mod-http-dav-ext)
((${#missing[@]})) || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "installing for the tests: ${missing[*]}"
    # The tests start their own sshd on their own ports; the system's must not start by being installed.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "${missing[@]}" ||
        { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; }
else
    echo "missing for the tests: ${missing[*]}; tests that need them will say so and be skipped" >&2
fi

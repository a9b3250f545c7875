#!/usr/bin/env python3
"""Files that changed: what haul and rsync send of them, and how long they take, over one path in the lab.

usage: bench-delta.py HAUL HAUL_LAB [--size BYTES] [--rate 100Mbit] [--rtt 20ms] [--pairs N]

Each case puts the old file at the target and the new one at the source, in memory, and copies it with both programs in turn, over the
same sshd. The bytes are those that the client's interface sent and received. Needs root, rsync and sshd.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

STARTED_BY = 10
HEADER_BYTES = 1_000_000
GROWN_BYTES = 10_000_000
BLOCK_BYTES = 1 << 24


def data(seed, size):
    """Random bytes, the same for a seed."""
    source = random.Random(seed)
    return b"".join(source.randbytes(min(BLOCK_BYTES, size - at)) for at in range(0, size, BLOCK_BYTES))


def cases(base):
    """What makes the new file of each case, one at a time."""
    middle = len(base) // 2
    header = data(2, HEADER_BYTES)
    return {
        "1 MB changed in the middle": lambda: base[:middle] + header + base[middle + HEADER_BYTES :],
        "10 MB appended": lambda: base + data(3, GROWN_BYTES),
        "another time": lambda: base,
        "a byte in front": lambda: b"x" + base,
        "all of it new": lambda: data(4, len(base)),
    }


class Lab:
    """Two hosts, and an sshd on the one that is called `server`."""

    def __init__(self, program, directory, rate, rtt):
        self.program, self.directory = program, directory
        ends = [program, "run", "--rate", rate, "--rtt", rtt, "--", "sleep", "infinity"]
        self.process = subprocess.Popen(ends, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + STARTED_BY
        while self.client(["true"], check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise SystemExit("the lab does not start")
        self.config = self.start_sshd()

    def on(self, host, command, **how):
        how = {"check": True, "capture_output": True, **how}
        return subprocess.run([self.program, "exec", host, "--", *command], **how)

    def client(self, command, **how):
        return self.on("client", command, **how)

    def start_sshd(self):
        at = self.directory
        for key in ["host_key", "user_key"]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / key], check=True)
        shutil.copy(at / "user_key.pub", at / "authorized_keys")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        places = " ".join(f"{name}={at}/{name}" for name in ["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"])
        (at / "HOME").mkdir()
        (at / "sshd_config").write_text(
            f"Port 22\nHostKey {at}/host_key\nPidFile none\nAuthorizedKeysFile {at}/authorized_keys\n"
            f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nSetEnv {places}\n"
        )
        config = at / "ssh_config"
        config.write_text(
            f"Host server\nIdentityFile {at}/user_key\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
            "GlobalKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n"
        )
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        self.sshd = subprocess.Popen([self.program, "exec", "server", "--", sshd, "-D", "-f", at / "sshd_config"])
        deadline = time.monotonic() + STARTED_BY
        while self.client(["ssh", "-F", config, "server", "true"], check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise SystemExit("sshd does not start")
        return config

    def wire_bytes(self):
        link = json.loads(self.client(["ip", "-s", "-j", "link", "show", "eth0"]).stdout)[0]["stats64"]
        return link["rx"]["bytes"] + link["tx"]["bytes"]

    def end(self):
        self.sshd.terminate()
        self.process.terminate()


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("haul")
    asked.add_argument("haul_lab")
    asked.add_argument("--size", type=int, default=2_000_000_000)
    asked.add_argument("--rate", default="100Mbit")
    asked.add_argument("--rtt", default="20ms")
    asked.add_argument("--pairs", type=int, default=3)
    asked.add_argument("--case", help="only cases with these words")
    asked = asked.parse_args()
    base = data(1, asked.size)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        directory = pathlib.Path(directory)
        old_file, new_file = directory / "old", directory / "new"
        environment = dict(os.environ, HOME=str(directory), XDG_STATE_HOME=str(directory), XDG_CACHE_HOME=str(directory))
        lab = Lab(asked.haul_lab, directory, asked.rate, asked.rtt)
        ssh = f"ssh -F {lab.config}"
        programs = {
            "haul": [asked.haul, "cp", "-q", "--no-keep-login", "-F", lab.config, new_file, f"server:{old_file}"],
            "haul -W": [asked.haul, "cp", "-q", "-W", "--no-keep-login", "-F", lab.config, new_file, f"server:{old_file}"],
            "rsync": ["rsync", "-t", "-e", ssh, new_file, f"server:{old_file}"],
        }
        # The program goes to the far side once.
        old_file.write_bytes(b"")
        new_file.write_bytes(b"x")
        lab.client(programs["haul"], env=environment)
        try:
            for case, changed in cases(base).items():
                if asked.case and asked.case not in case:
                    continue
                new = changed()
                new_file.write_bytes(new)
                seconds, wire = {}, {}
                for _ in range(asked.pairs):
                    for name, command in programs.items():
                        if name == "haul -W" and asked.rate == "100Mbit":
                            continue
                        old_file.write_bytes(base)
                        os.utime(old_file, (1, 1))
                        before, begun = lab.wire_bytes(), time.monotonic()
                        lab.client(command, env=environment)
                        seconds.setdefault(name, []).append(time.monotonic() - begun)
                        wire.setdefault(name, []).append(lab.wire_bytes() - before)
                        if old_file.read_bytes() != new:
                            raise SystemExit(f"{name}: {case}: the target is not the source")
                for name, times in seconds.items():
                    spread = f"{min(times):.1f} to {max(times):.1f}"
                    sent = statistics.median(wire[name]) / 1e6
                    print(f"{case:28} {name:8} {sent:9.2f} MB  {statistics.median(times):6.1f} s ({spread})", flush=True)
        finally:
            lab.end()


main()

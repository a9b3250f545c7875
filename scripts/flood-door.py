#!/usr/bin/env python3
"""Floods of strangers at the port of `haul serve`, and what the copy of another user meets meanwhile. Prints Markdown.

    HAUL_BIN=target/release/haul scripts/flood-door.py [silent byte leave hello stopped]

  silent   1,000 connections that say nothing
  byte     1,000 connections that send the first byte of a handshake, and stop
  leave    connections that leave as soon as they stand, one after the other without a pause
  hello    1,000 connections that send a whole first message of a handshake, and read nothing
  stopped  a client with a key of the list that begins to fetch a file of 200 MB, and reads nothing more: its process is stopped

`own` is a flood from the address of the user, `others` one from 64 other addresses; there whatever the daemon closes is opened again at once.
From its own address that would keep nine of ten callers out: more than 128 new connections in a second do (SECURITY.md). The user copies a file of SIZE_MB (100) to the daemon COPIES (5) times in turn. Memory is the daemon's own, at its peak. As root, or with as
many descriptors as there are connections. Packages: python3.
"""

import contextlib
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

CONNECTIONS = 1_000
PORT = 18_090
SIZE_MB = int(os.environ.get("SIZE_MB", "100"))
COPIES = int(os.environ.get("COPIES", "5"))
ADDRESSES = {"own": ["127.0.0.1"], "others": [f"127.0.7.{number}" for number in range(1, 65)]}
HAUL = os.environ.get("HAUL_BIN", "target/release/haul")


class Flood(threading.Thread):
    """Keeps so many connections, or one after the other, until it is told to stop."""

    def __init__(self, addresses, first, stays):
        super().__init__(daemon=True)
        self.addresses, self.first, self.stays = addresses, first, stays
        self.is_repeated = len(addresses) > 1
        self.held, self.opened, self.stopping, self.all_stand = {}, 0, threading.Event(), threading.Event()

    def open(self):
        connection = socket.socket()
        # A window as small as the kernel grants: it reads nothing.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        # So its port is free again at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.settimeout(1.0)
        try:
            connection.bind((self.addresses[self.opened % len(self.addresses)], 0))
            self.opened += 1
            connection.connect(("127.0.0.1", PORT))
            connection.sendall(self.first)
        except OSError:
            connection.close()
            return None
        return connection

    def is_closed(self, connection):
        # Nothing is read: only the state of the connection is asked for. 1 is ESTABLISHED.
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1

    def run(self):
        while not self.stopping.is_set():
            if not self.stays:
                if connection := self.open():
                    connection.close()
                continue
            for number in range(CONNECTIONS):
                if self.stopping.is_set():
                    break
                held = self.held.get(number)
                if held is not None and self.is_repeated and self.is_closed(held):
                    held.close()
                    held = None
                self.held[number] = held or self.open()
            self.all_stand.set()
            self.stopping.wait(0.01 if self.is_repeated else None)
        for held in filter(None, self.held.values()):
            held.close()


class Stage:
    def __init__(self, work):
        self.work = work
        self.source = os.path.join(work, "file")
        with open(self.source, "wb") as file:
            for _ in range(SIZE_MB):
                file.write(os.urandom(1_000_000))
        offered = os.path.join(work, "offered")
        os.makedirs(offered)
        with open(os.path.join(offered, "long"), "wb") as file:
            for _ in range(200):
                file.write(os.urandom(1_000_000))
        listed = os.path.join(work, "authorized_keys")
        with open(listed, "w", encoding="ascii") as file:
            for user in ("user", "other"):
                file.write(f"rw root={offered} {self.key(user)} {user}\n")
        os.chmod(listed, 0o600)
        self.daemon, self.known = None, None

    def environment(self, user):
        home = os.path.join(self.work, user)
        os.makedirs(home, mode=0o700, exist_ok=True)
        return {**os.environ, "HOME": home, "XDG_STATE_HOME": home + "/state", "XDG_CONFIG_HOME": home + "/config"}

    def haul(self, user, *words):
        run = subprocess.run([HAUL, *words], env=self.environment(user), capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"haul {' '.join(words)}: {run.stdout}{run.stderr}")
        return run.stdout

    def key(self, user):
        self.haul(user, "key", "generate")
        return next(word for word in self.haul(user, "key", "show").split() if word.startswith("ed25519:"))

    def start(self):
        words = ["serve", "--listen", f"127.0.0.1:{PORT}", "--authorized-keys", os.path.join(self.work, "authorized_keys")]
        environment = self.environment("daemon")
        self.daemon = subprocess.Popen([HAUL, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", PORT)).close()
                break
            except OSError:
                time.sleep(0.1)
        host = os.path.join(self.environment("daemon")["XDG_CONFIG_HOME"], "haul/host_ed25519")
        shown = self.haul("daemon", "key", "show", "--file", host).split()
        key = next(word for word in shown if word.startswith("ed25519:"))
        for user in ("user", "other"):
            self.haul(user, "key", "trust", f"127.0.0.1:{PORT}", key)

    def stop(self):
        self.daemon.terminate()
        self.daemon.wait()

    def peak_mib(self):
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as status:
            words = dict(line.split(":", 1) for line in status)
        return int(words["VmHWM"].split()[0]) // 1024

    def copies(self):
        """Seconds of each copy, and how many failed."""
        took, failed = [], 0
        for number in range(COPIES):
            begun = time.monotonic()
            command = [HAUL, "cp", "-q", self.source, f"haul://127.0.0.1:{PORT}/copy{number}"]
            failed += subprocess.run(command, env=self.environment("user"), check=False).returncode != 0
            took.append(time.monotonic() - begun)
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.work, "offered", f"copy{number}"))
        return took, failed

    def hello(self):
        """The first message of a client, as it stands on the wire."""
        with socket.create_server(("127.0.0.1", PORT)) as listening:
            command = [HAUL, "cp", "-q", "--retry", "0", self.source, f"haul://127.0.0.1:{PORT}/x"]
            client = subprocess.Popen(command, env=self.environment("user"), stderr=subprocess.DEVNULL)
            connection, _ = listening.accept()
            first = connection.recv(65_536)
            connection.close()
            client.kill()
            client.wait()
        return first

    def stopped_client(self):
        target = os.path.join(self.work, "fetched")
        command = [HAUL, "cp", "-q", "--rate", "20MB", f"haul://127.0.0.1:{PORT}/long", target]
        client = subprocess.Popen(command, env=self.environment("other"), stderr=subprocess.DEVNULL)
        time.sleep(1.0)
        if client.poll() is not None:
            sys.exit("the client that is to be stopped has ended already")
        client.send_signal(signal.SIGSTOP)
        return client


def run(stage, case, origin, flood):
    before, memory = stage.copies(), stage.peak_mib()
    client = stage.stopped_client() if case == "stopped" else None
    if client is None:
        flood.start()
        flood.all_stand.wait(5.0)
    meanwhile = stage.copies()
    if client is None:
        flood.stopping.set()
        flood.join()
    else:
        client.kill()
        client.wait()
    row = [case, origin, flood.opened, told(before[0]), told(meanwhile[0]), before[1] + meanwhile[1]]
    print("|", " | ".join(map(str, [*row, f"{memory} MiB", f"{stage.peak_mib()} MiB"])), "|", flush=True)


def told(took):
    return f"{statistics.median(took):.2f} s ({min(took):.2f}..{max(took):.2f})"


def main():
    cases = sys.argv[1:] or ["silent", "byte", "leave", "hello", "stopped"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="haul-flood-", dir=os.environ.get("DATA", "/dev/shm")) as work:
        stage = Stage(work)
        stage.start()
        stage.stop()
        first = {"silent": b"", "byte": b"\x16", "leave": b"", "hello": stage.hello()}
        print("| flood | from | connections | a copy without it | with it | copies that failed | memory without it | with it |")
        print("|---|---|---|---|---|---|---|---|")
        for case in cases:
            for origin, addresses in ADDRESSES.items() if case != "stopped" else [("own", [])]:
                stage.start()
                try:
                    run(stage, case, origin, Flood(addresses, first.get(case, b""), case != "leave"))
                finally:
                    stage.stop()


if __name__ == "__main__":
    main()

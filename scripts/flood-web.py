#!/usr/bin/env python3
"""Floods of readers at `haul serve --http`, and at nginx beside it; what another reader meets meanwhile. Prints Markdown.

    HAUL_BIN=target/release/haul scripts/flood-web.py [heads pages windows pauses tls_pauses]

  heads    one connection of HTTP/2 asks with 100 HEADs for a directory of 20,000 names
  pages    four connections ask with 100 GETs each for it, and take what comes
  windows  190 connections ask with 100 GETs each for a file of 100 MB, and never open a window
  pauses   1,000 connections of HTTP/1.1 ask for a small file each 0.1 s: processor time of the server for a request, both without
           a log, REPEAT (5) rounds in turn: median, smallest and largest, and the ratio round by round
  tls_pauses  the same over TLS 1.3

The other reader comes from another address, asks for a small file and for the page of a small directory, again and again, and each time on
a connection of its own. Packages: nginx-light, openssl, python3. As root, or with as many descriptors as there are connections.
"""

import os
import resource
import select
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

NAMES = 20_000
STREAMS = 100
FLOOD, OTHER = "127.0.0.1", "127.0.0.2"
# The port of TLS is so far behind the clear one.
TLS = 10
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, WINDOW_UPDATE = 1, 4, 8
GET, HEAD = b"\x82", b"\x02\x04HEAD"
TICK = 1 / os.sysconf("SC_CLK_TCK")


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connect(source, port, seconds=120.0):
    connection = socket.socket()
    connection.bind((source, 0))
    connection.settimeout(seconds)
    connection.connect(("127.0.0.1", port))
    return connection


def flood(port, method, path, window=None):
    """A connection that asks for the same on all of its streams."""
    settings = b"" if window is None else struct.pack(">HI", 4, window)
    fields = method + b"\x86\x41\x01h\x44" + bytes([len(path)]) + path
    said = PREFACE + frame(SETTINGS, 0, 0, settings)
    if window is None:
        said += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
    said += b"".join(frame(HEADERS, 5, 2 * number + 1, fields) for number in range(STREAMS))
    connection = connect(FLOOD, port)
    connection.sendall(said)
    return connection


def drain(connections, stop):
    """Takes all that comes, and opens the windows of all streams."""
    more = b"".join(frame(WINDOW_UPDATE, 0, 2 * number + 1, struct.pack(">I", 1 << 30)) for number in range(STREAMS))
    for connection in connections:
        try:
            connection.sendall(more)
        except OSError:
            pass
    while connections and not stop.is_set():
        for connection in select.select(connections, [], [], 0.2)[0]:
            try:
                if not connection.recv(1 << 20):
                    connections.remove(connection)
            except OSError:
                connections.remove(connection)


def asks(source, port, path):
    """The status and the seconds of one request."""
    begun = time.monotonic()
    try:
        with connect(source, port, 60.0) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
            said = b""
            while more := connection.recv(65_536):
                said += more
        status = said.split(b" ", 2)[1].decode()
    except (OSError, IndexError):
        status = "none"
    return status, time.monotonic() - begun


def own_pids(server):
    children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False)
    return [server.pid, *map(int, children.stdout.split())]


def memory_mib(server):
    total = 0
    for pid in own_pids(server):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
    return total // 1024


def processor_s(server):
    total = 0
    for pid in own_pids(server):
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            total += sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))
    return total * TICK


class Servers:
    def __init__(self, work):
        self.work = work
        public = os.path.join(work, "public")
        os.makedirs(os.path.join(public, "large"))
        os.makedirs(os.path.join(public, "small"))
        for number in range(NAMES):
            open(os.path.join(public, "large", f"{number:06}-observation.fits"), "w", encoding="ascii").close()
        with open(os.path.join(public, "file"), "wb") as file:
            file.write(os.urandom(16_384))
        with open(os.path.join(public, "data"), "wb") as file:
            file.truncate(100_000_000)
        os.chmod(work, 0o755)
        self.key, self.certificate = os.path.join(work, "key.pem"), os.path.join(work, "cert.pem")
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        made += ["-subj", "/CN=localhost", "-keyout", self.key, "-out", self.certificate]
        subprocess.run(made, check=True, stderr=subprocess.DEVNULL)

    def start(self, name):
        port = {"haul": 18_080, "nginx": 18_081}[name]
        if name == "haul":
            home = os.path.join(self.work, "home")
            os.makedirs(home, exist_ok=True)
            environment = {**os.environ, "HOME": home, "XDG_STATE_HOME": home + "/state", "XDG_CONFIG_HOME": home + "/config"}
            haul = os.environ.get("HAUL_BIN", "target/release/haul")
            command = [haul, "serve", "--quiet", "--listen", "127.0.0.1:18082", "--http", f"127.0.0.1:{port}"]
            command += ["--https", f"127.0.0.1:{port + TLS}", "--public", os.path.join(self.work, "public")]
            command += ["--certificate", self.certificate, "--certificate-key", self.key]
            server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            configuration = os.path.join(self.work, "nginx.conf")
            with open(configuration, "w", encoding="ascii") as file:
                file.write(
                    f"worker_processes 2; daemon off; pid {self.work}/nginx.pid; error_log /dev/null;\n"
                    f"worker_rlimit_nofile 65536; events {{ worker_connections 16384; }}\n"
                    f"http {{ access_log off; sendfile on; keepalive_requests 1000000;\n"
                    f"server {{ listen 127.0.0.1:{port} http2; listen 127.0.0.1:{port + 2}; listen 127.0.0.1:{port + TLS} ssl;\n"
                    f"ssl_certificate {self.certificate}; ssl_certificate_key {self.key}; ssl_protocols TLSv1.3;\n"
                    f"root {self.work}/public; autoindex on; }} }}\n"
                )
            nginx = shutil.which("nginx") or "/usr/sbin/nginx"
            server = subprocess.Popen([nginx, "-c", configuration, "-p", self.work], stderr=subprocess.DEVNULL)
        # nginx 1.22 speaks either HTTP/1.1 or HTTP/2 at a clear port.
        plain = port if name == "haul" else port + 2
        for _ in range(100):
            if asks(OTHER, plain, "/file")[0] == "200":
                return server, port, plain
            time.sleep(0.1)
        sys.exit(f"{name} does not answer")


def with_other(server, plain, seconds):
    """What another reader meets: longest waits, answers other than 200, and the most memory of the server."""
    longest = {"/file": 0.0, "/small/": 0.0}
    failed, most, until = 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for path in longest:
            status, took = asks(OTHER, plain, path)
            longest[path] = max(longest[path], took)
            failed += status != "200"
        most = max(most, memory_mib(server))
        time.sleep(0.05)
    return longest["/file"], longest["/small/"], failed, most


def run_flood(case, server, port, plain):
    if case == "windows":
        held = [flood(port, GET, b"/data", 0) for _ in range(190)]
        outcome = with_other(server, plain, 20)
    else:
        method, count = (HEAD, 1) if case == "heads" else (GET, 4)
        held, stop = [flood(port, method, b"/large/") for _ in range(count)], threading.Event()
        reader = threading.Thread(target=drain, args=(held[:], stop))
        reader.start()
        outcome = with_other(server, plain, 20)
        stop.set()
        reader.join()
    for connection in held:
        connection.close()
    return outcome


def run_pauses(server, port, is_tls, count=1_000, pause=0.1, seconds=10.0):
    held = [connect(OTHER, port) for _ in range(count)]
    if is_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        held = [context.wrap_socket(connection) for connection in held]
    request = b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n"
    asked, done, before = 0, 0, 0.0
    begun, measured = time.monotonic(), False
    while time.monotonic() - begun < seconds + 2:
        round_begun = time.monotonic()
        # The first two seconds warm up.
        if not measured and round_begun - begun > 2:
            before, asked, measured = processor_s(server), 0, True
        for connection in held:
            connection.sendall(request)
            asked += 1
        for connection in held:
            got = b""
            while b"\r\n\r\n" not in got or len(got) - got.index(b"\r\n\r\n") - 4 < 16_384:
                got += connection.recv(65_536)
        done = asked
        time.sleep(max(pause, pause - (time.monotonic() - round_begun)))
    used = processor_s(server) - before
    for connection in held:
        connection.close()
    return used / done * 1e6


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def compare_pauses(servers, case):
    used = {"haul": [], "nginx": []}
    for number in range(int(os.environ.get("REPEAT", "5"))):
        for name in sorted(used, reverse=number % 2 == 1):
            server, port, plain = servers.start(name)
            try:
                is_tls = case == "tls_pauses"
                used[name].append(run_pauses(server, port + TLS if is_tls else plain, is_tls))
            finally:
                server.terminate()
                server.wait()
    for name, each in used.items():
        print(f"| {case} | {name} | {spread(each, 1)} µs of processor a request | | | |", flush=True)
    ratios = [haul / nginx for haul, nginx in zip(used["haul"], used["nginx"])]
    print(f"| {case} | haul / nginx | {spread(ratios, 2)} | | | |", flush=True)


def main():
    cases = sys.argv[1:] or ["heads", "pages", "windows", "pauses", "tls_pauses"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="haul-flood-", dir=os.environ.get("DATA", "/dev/shm")) as work:
        servers = Servers(work)
        print("| flood | server | another's file, longest | its page, longest | answers that failed | memory, most |")
        print("|---|---|---|---|---|---|")
        for case in cases:
            if case.endswith("pauses"):
                compare_pauses(servers, case)
                continue
            for name in ("haul", "nginx"):
                server, port, plain = servers.start(name)
                try:
                    file, page, failed, most = run_flood(case, server, port, plain)
                    print(f"| {case} | {name} | {file:.2f} s | {page:.2f} s | {failed} | {most} MiB |", flush=True)
                finally:
                    server.terminate()
                    server.wait()


if __name__ == "__main__":
    main()

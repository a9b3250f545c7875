#!/usr/bin/env python3
# Stands in for ssh: the sftp server of a host with a directory of a million names, not in their order.
import struct
import sys

COUNT = 1_000_000
AT_ONCE = 1000
said, out = sys.stdin.buffer, sys.stdout.buffer


def string(text):
    return struct.pack(">I", len(text)) + text


def attributes(mode, size):
    return struct.pack(">IQIIIII", 1 | 2 | 4 | 8, size, 0, 0, mode, 7, 7)


def answer(kind, body):
    out.write(struct.pack(">IB", len(body) + 1, kind) + body)
    out.flush()


def status(number, code):
    answer(101, number + struct.pack(">I", code) + string(b"") + string(b""))


at = 0
while len(head := said.read(4)) == 4:
    packet = said.read(struct.unpack(">I", head)[0])
    kind, number = packet[0], packet[1:5]
    if kind == 1:  # INIT
        answer(2, struct.pack(">I", 3))
    elif kind in (7, 17):  # LSTAT, STAT
        answer(105, number + attributes(0o040755, 4096))
    elif kind == 11:  # OPENDIR
        at = 0
        answer(102, number + string(b"h"))
    elif kind == 12 and at < COUNT:  # READDIR
        names = [b"a-name-of-thirty-bytes-%07d" % (n * 7919 % COUNT) for n in range(at, at + AT_ONCE)]
        body = b"".join(string(name) + string(b"") + attributes(0o100644, 5) for name in names)
        at += AT_ONCE
        answer(104, number + struct.pack(">I", AT_ONCE) + body)
    elif kind == 12:
        status(number, 1)
    else:
        status(number, 0 if kind == 4 else 8)

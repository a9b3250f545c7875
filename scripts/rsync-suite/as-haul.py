#!/usr/bin/env python3
"""Stands for rsync in rsync's own test suite: says in haul's words what a test says in rsync's, and runs `haul cp`.

Letters that are scp's in haul become their long names. Flags that change nothing for haul are left out: those of the rolling
delta, of the protocol, and of what rsync says beside its lines. What cannot be said goes into the test's file in
$HAUL_SUITE_LOG, where report.py finds it:

  daemon WHY    the test wants rsync's daemon, or speaks its protocol
  refused WHY   haul refuses a flag, with its words
"""

import ctypes
import os
import signal
import subprocess
import sys

HAUL = os.environ['HAUL']
RSYNC = os.environ['HAUL_SUITE_RSYNC']
HERE = os.path.dirname(os.path.abspath(__file__))

# Letters of rsync whose letter means something else in haul, and those of habits.
LETTERS = {
    'i': '--itemize-changes', 'l': '--links', 'o': '--owner', 'S': '--sparse', 'C': '--cvs-exclude', 's': None,
    '8': None, 'P': '--progress', 'E': None,
}
# Letters with a value.
VALUED = 'efTB@M'
LONG_VALUED = {
    'rsh', 'filter', 'exclude', 'include', 'exclude-from', 'include-from', 'files-from', 'backup-dir', 'suffix', 'chmod',
    'chown', 'usermap', 'groupmap', 'link-dest', 'copy-dest', 'compare-dest', 'temp-dir', 'partial-dir', 'max-size',
    'min-size', 'max-delete', 'bwlimit', 'timeout', 'out-format', 'log-file', 'log-file-format', 'log-format', 'rsync-path',
    'block-size', 'modify-window', 'info', 'debug', 'stop-after', 'stop-at', 'time-limit', 'iconv', 'checksum-choice',
    'compress-choice', 'compress-level', 'skip-compress', 'max-alloc', 'write-batch', 'read-batch', 'only-write-batch',
    'protocol', 'password-file', 'remote-option', 'outbuf', 'checksum-seed', 'config', 'port', 'address', 'stderr',
    'copy-as', 'contimeout', 'sockopts', 'early-input', 'confine-root', 'cc', 'zc', 'zl',
}
# What these ask for is always so, or is nothing that haul has: the rolling delta, the protocol, what rsync says.
HARMLESS = {
    'no-whole-file', 'block-size', 'info', 'debug', 'stderr', 'msgs2stderr', 'outbuf', 'protocol', 'rsync-path',
    'old-args', 'no-old-args', 'secluded-args', 'protect-args', 'checksum-choice', 'cc', 'checksum-seed', 'compress-choice',
    'compress-level', 'skip-compress', 'zc', 'zl', 'no-inc-recursive', 'no-i-r', 'inc-recursive', 'i-r', 'preallocate',
    'executability', 'no-W', 'no-compress', 'no-z', '8-bit-output', 'super', 'max-alloc', 'log-file-format', 'no-motd',
    'blocking-io', 'no-blocking-io', 'no-progress', 'trust-sender', 'no-human-readable', 'no-h', 'fsync',
}


# Stands before the path, and behind it.
MARK = '@haul@'


def in_order(output):
    """The lines in rsync's order, which are written as the work is done, without haul's closing line."""
    lines = [line.split(MARK, 2) for line in output.split('\n')]
    told = [(path, line) for _, path, line in (line for line in lines if len(line) == 3)]
    deleted = [line for _, line in told if line.startswith('*deleting')]

    def key(entry):
        path = entry[0].rstrip('/')
        # The files of a directory come before its directories.
        parts = path.split('/') if path != '.' else []
        is_dir = entry[0].endswith('/')
        return [(1, part) for part in parts[:-1]] + [(int(is_dir), part) for part in parts[-1:]]
    return deleted + [line for _, line in sorted((t for t in told if not t[1].startswith('*deleting')), key=key)]


def note(kind, why):
    with open(os.path.join(os.environ['HAUL_SUITE_LOG'], test_name()), 'a', encoding='utf-8', errors='replace') as log:
        log.write(f'{kind} {why}\n')


def test_name():
    return os.path.basename(os.environ.get('scratchdir', 'none'))


class Line:
    """A command line of rsync, and what becomes of it."""

    def __init__(self, words):
        self.flags, self.paths = [], []
        self.itemised = self.verbose = self.quiet = self.merge_files = 0
        self.format = None
        self.rsh = os.environ.get('RSYNC_RSH')
        words = list(words)
        while words:
            word = words.pop(0)
            if word == '--':
                self.paths += words
                break
            if word.startswith('--'):
                self.long(word[2:], words)
            elif word.startswith('-') and len(word) > 1:
                self.short(word[1:], words)
            else:
                self.paths.append(word)

    def long(self, word, words):
        name, has_value, value = word.partition('=')
        if not has_value and name in LONG_VALUED:
            value, has_value = words.pop(0) if words else '', True
        if name == 'rsh':
            self.rsh = value
        elif name == 'itemize-changes':
            self.itemised += 1
        elif name == 'verbose':
            self.verbose += 1
        elif name == 'log-format':
            self.long(f'out-format={value}', words)
        elif name == 'out-format':
            self.format = value
        elif name not in HARMLESS:
            self.flags.append(f'--{name}={value}' if has_value else f'--{name}')

    def short(self, letters, words):
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in VALUED:
                value, letters = letters.removeprefix('=') or (words.pop(0) if words else ''), ''
                if letter == 'e':
                    self.rsh = value
                elif letter == 'f':
                    self.flags.append(f'--filter={value}')
                elif letter != 'B':
                    self.flags += [f'-{letter}', value]
            elif letter == 'i':
                self.itemised += 1
            elif letter == 'v':
                self.verbose += 1
            elif letter == 'F':
                self.flags.append('--filter=' + ('- .rsync-filter' if self.merge_files else ': /.rsync-filter'))
                self.merge_files += 1
            elif letter in LETTERS:
                self.flags += [LETTERS[letter]] if LETTERS[letter] else []
            else:
                self.quiet += letter == 'q'
                self.flags.append(f'-{letter}')

    def says_lines(self):
        return self.itemised or self.verbose or self.format

    def command(self):
        said = []
        if self.says_lines() and not self.quiet:
            # The path comes first, so that the lines can be brought into rsync's order.
            form = self.format or ('%i %n%L' if self.itemised else '%n%L')
            said = [f'--out-format={MARK}%n{MARK}{form}']
        quiet = [] if said or '--stats' in self.flags else ['-q']
        return [HAUL, 'cp', '--no-config', *quiet, *said, *self.reach(), *self.flags, '--', *self.paths]

    def reach(self):
        """A shell that stays on this host, where a path names one."""
        if not any(self.is_far(path) for path in self.paths):
            return []
        return ['-S', os.path.join(HERE, 'ssh-here.sh'), '--no-keep-login', '--haul-path', HAUL, '--lanes', '2']

    @staticmethod
    def is_far(path):
        host, colon, _ = path.partition(':')
        return bool(colon) and '/' not in host


def main():
    words = sys.argv[1:]
    if any(word in ('-V', '-VV', '--version', '--help') for word in words) or not words:
        os.execv(RSYNC, [RSYNC, *words])
    if any(word.startswith(('--server', '--daemon', 'rsync://', '--config', '--port=')) or '::' in word for word in words):
        note('daemon', 'it runs ' + ' '.join(words)[:100])
        print('rsync is haul here, which has another protocol', file=sys.stderr)
        return 4
    line = Line(words)
    if len(line.paths) == 1 and '--list-only' not in line.flags:
        line.flags.append('--list-only')
    command = line.command()
    # A test that kills rsync means the copy.
    reads = bool(line.says_lines()) and not line.quiet
    process = subprocess.Popen(command, stdout=subprocess.PIPE if reads else None,
                               preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    if reads:
        output = process.stdout.read().decode(errors='surrogateescape')
        text = ''.join(line + '\n' for line in in_order(output))
        sys.stdout.buffer.write(text.encode(errors='surrogateescape'))
        sys.stdout.flush()
    code = process.wait()
    if code == 1:
        again = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace')
        said = [text.strip() for text in again.stderr.splitlines()]
        first = next((text for text in said if text.startswith('error:')), 'no word')
        hint = next((text for text in said if text.startswith('hint:')), '')
        note('refused', f"{first.removeprefix('error: ')}; {hint.removeprefix('hint:').strip()}")
    return code if code >= 0 else 128 - code


sys.exit(main())

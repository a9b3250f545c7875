#!/usr/bin/env python3
"""Sorts what rsync's own tests found of haul, and says what is not as expected.

  report.py OUTPUT NOTES EXPECTED

OUTPUT is what runtests.py printed. NOTES is a directory with what as-haul.py noted, a file for each test. EXPECTED has a line
for each test that does not pass: its name, a class, and the reason. Exit status 1: a test differs that EXPECTED does not name.
"""

import os
import re
import sys

CLASSES = {
    'pass': 'rsync\'s test passes with haul',
    'skipped': 'the test skips itself here, as with rsync',
    'protocol': 'it is about rsync\'s daemon, its protocol, its batches or its other programs',
    'refused': 'haul refuses a flag on purpose, and says what it does instead',
    'words': 'the test reads what rsync prints beside its lines',
    'other': 'haul is other on purpose, and its pages say so',
    'to do': 'behaviour that is to be mended',
    'DIFFERS': 'behaviour differs, and nobody has said why',
}
# Whatever the wrapper saw of them.
ABOUT_RSYNC = re.compile(r'^(rrsync|daemon|chroot|proto|proxy|scanner|xrsync|rsync-ssl|malicious|batch|write-batch)-')


def main():
    output, notes, expected = sys.argv[1:]
    with open(output, errors='replace') as file:
        results = re.findall(r'^(PASS|FAIL|SKIP|XFAIL|ERROR)\s+(\S+)', file.read(), re.M)
    reasons = read_expected(expected)
    rows = {}
    for result, test in sorted(set(results), key=lambda found: found[1]):
        kind, why = judge(result, test, notes, reasons)
        rows.setdefault(kind, []).append((test, why))
    for kind, what in CLASSES.items():
        print(f'{len(rows.get(kind, [])):4}  {kind:9} {what}')
    for kind in CLASSES:
        if kind not in ('pass', 'skipped', 'protocol'):
            for test, why in rows.get(kind, []):
                print(f'{kind:8}  {test:42}  {why}')
    passed = [test for test, _ in rows.get('pass', []) if test in reasons]
    if passed:
        print('expected to fail, and passes: ' + ', '.join(passed))
    return 1 if rows.get('DIFFERS') else 0


def read_expected(path):
    """Name -> class and reason."""
    reasons = {}
    with open(path) as file:
        for line in file:
            if line.strip() and not line.startswith('#'):
                test, kind, why = line.rstrip('\n').split(None, 2)
                reasons[test] = (kind.replace('-', ' '), why)
    return reasons


def judge(result, test, notes, reasons):
    """Class and reason."""
    if result in ('PASS', 'XFAIL'):
        return 'pass', ''
    if result == 'SKIP':
        return 'skipped', ''
    path = os.path.join(notes, test)
    noted = open(path, errors='replace').read().splitlines() if os.path.exists(path) else []
    of_kind = lambda kind: [line.removeprefix(kind + ' ') for line in noted if line.startswith(kind + ' ')]
    if of_kind('daemon') or ABOUT_RSYNC.match(test):
        return 'protocol', (of_kind('daemon') or [''])[0]
    if test in reasons:
        return reasons[test]
    if of_kind('refused'):
        return 'refused', '; '.join(sorted(set(of_kind('refused'))))[:160]
    return 'DIFFERS', 'look at its log'


sys.exit(main())

#!/usr/bin/env python3
"""Prints the tests that a CTest run skipped, with the last line that each of them said.

A skipped test proves nothing: tests/run shows this list so that nobody takes it for a pass.
"""
import sys
import xml.etree.ElementTree as ElementTree


def main(path):
    skipped = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun" or case.find("skipped") is not None:
            said = (case.findtext("system-out") or "").strip().splitlines()
            skipped.append((case.get("name"), said[-1] if said else "no reason given"))
    if skipped:
        print(f"\n*** SKIPPED: {len(skipped)} test(s) did not run ***")
        for name, reason in skipped:
            print(f"***   {name}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1])

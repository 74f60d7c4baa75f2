#!/usr/bin/env python3
"""A command that a message or a help text names exists: the first word in `hanse --help`, the second one of commands that have
verbs of their own in their help. Prints each that does not; exit 1 when there is any."""
import functools
import glob
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
HANSE = os.environ.get("HANSE", "build/asan/hanse")
GROUPS = {"members", "orphans", "token", "server", "archive", "checkpoint"}
PROSE = {"is", "and", "key", "stream", "hanse", "lists", "of", "says", "shows", "writes", "uses", "does", "counts", "that", "on", "in"}


@functools.cache
def words(*command):
    done = subprocess.run([HANSE, *command, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return set(re.findall(r"[a-z][a-z-]*", done.stdout + done.stderr))


bad = 0
for name in sorted(glob.glob("**/*.[ch]", recursive=True) + glob.glob("**/*.def", recursive=True)):
    if name.startswith(("build", "tests")):
        continue
    with open(name, encoding="utf-8") as file:
        text = re.sub(r'"\s*\n\s*"', "", file.read())
    for string in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
        for verb, sub in re.findall(r"\bhanse ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", string):
            known = verb in PROSE or verb in words()
            if known and (verb not in GROUPS or not sub or sub in PROSE or sub in words(verb)):
                continue
            print(f"{name}: hanse {verb} {sub}: there is no such command")
            bad += 1
sys.exit(1 if bad else 0)

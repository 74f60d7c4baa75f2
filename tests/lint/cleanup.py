#!/usr/bin/env python3
"""What is cleaned up at the end of its scope holds something from its first line on: an AUTO_BUF that has no initial value must
not meet a return or goto before its buf_init, or garbage is freed. Prints file:line for each; exit 1 when there is any."""
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
bad, seen = [], 0
for folder in ("api", "policy", "connectors", "controlplane", "tests"):
    for name in sorted(glob.glob(folder + "/**/*.[ch]", recursive=True)):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        for found in re.finditer(r"\n( +)AUTO_(?:BUF|ARENA) (\w+);", text):
            seen += 1
            rest = text[found.end():text.find("\n}\n", found.end())]
            begun = re.search(rf"\bbuf_init\(&{found.group(2)}\b|\b{found.group(2)} = ", rest)
            if re.search(r"\breturn\b|\bgoto\b", rest[:begun.start()] if begun else rest):
                bad.append(f"{name}:{text.count(chr(10), 0, found.start()) + 2}: {found.group(2)} may be cleaned up before it is begun: = {{0}}")
if not seen:
    bad.append("no AUTO_BUF was found: this script has to follow the sources")
print("\n".join(bad) if bad else f"ok: {seen} places")
sys.exit(bool(bad))

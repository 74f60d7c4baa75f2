#!/usr/bin/env python3
"""Comments stay as their authors laid them out: no formatter has wrapped a banner, broken a list, or broken code for
the sake of the comment behind it. Prints each place, and what to do."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("api", "policy", "connectors", "controlplane", "deploy", "tests")
# What a line may not be, seen with the line before it.
RULES = (
    (re.compile(r"/\* -{2}(?!-- \S.* ---- \*/$)"), None, "a banner is one line: /* ---- title ---- */"),
    (re.compile(r"\s* \*/$"), None, "the end of a comment stands alone: put it behind the last word"),
    (
        re.compile(r"\s+\**\w+(\[\w*\])*[;,] /\*"),
        re.compile(r"\s*(static |const |struct |enum )*\w+ ?\**$"),
        "a declaration was broken for its comment: put the comment above it",
    ),
    (re.compile(r"\s+-?\d+,? /\*"), re.compile(r".* =$"), "a constant was broken for its comment: put the comment above it"),
    (re.compile(r"\s+\S+ +/\*"), re.compile(r"#define \w+\s+\\$"), "a macro was broken for its comment: put the comment above it"),
    (
        re.compile(r" \* ?[^\s*]"),
        re.compile(r" \* {2,}[\w'\"=|-]+( [\w'\"=|-]+)? {2,}\S"),
        "a list was wrapped: indent the line below the text of its item, or leave a line empty",
    ),
)


def findings(path):
    before = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if len(line) > 100 and path.suffix != ".def":
            yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, and at most 100"
        for rule, above, remedy in RULES:
            if above is not None and path.suffix == ".def":
                continue  # the formatter leaves them alone
            if rule.match(line) and (above is None or above.match(before)):
                yield f"{path.relative_to(ROOT)}:{number}: {remedy}"
        before = line


def main():
    files = sorted(p for f in FOLDERS for e in ("*.c", "*.h", "*.def") for p in (ROOT / f).rglob(e))
    found = [f for p in files for f in findings(p)]
    if not re.search(r"^ReflowComments: false$", (ROOT / ".clang-format").read_text(encoding="utf-8"), re.M):
        found.append(".clang-format: ReflowComments must be false, or the formatter wraps comments again")
    print("\n".join(found) if found else f"comments: {len(files)} files, nothing mangled")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())

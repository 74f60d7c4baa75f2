#!/usr/bin/env python3
"""How the tree is cut: circles between folders, files a folder, lines a file, lines a function.

usage: tests/lint/house.py BUILD_FOLDER [--graph | --write]

Arrows come from what the linker sees: a folder points to another one when an object file of it needs a symbol that the
other defines; what goes through a table of functions is no arrow. What is beyond a budget stands in house.txt with its
figure and the reason. A figure there may only fall: what grew is refused, and what shrank is to be written down (--write
puts the smaller figures in; it adds nothing). --graph prints the arrows as DOT."""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/lint/house.txt"
FOLDERS = ("api", "policy", "connectors", "controlplane", "tests")
BUDGET = {"files": 12, "lines": 600, "function": 70}


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            yield path.relative_to(ROOT)


def sizes():
    """(what, where) → figure, of all that is over its budget."""
    found = {}
    files = collections.Counter()
    for path in sources():
        files[path.parent] += 1
        begin = name = None
        number = 0
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").split("\n"), 1):
            head = re.match(r"[a-zA-Z].*?\b(\w+)\(", line)
            if head:
                name = head.group(1)
            if line == "{":
                begin = number
            elif line == "}" and begin:
                if number - begin - 1 > BUDGET["function"]:
                    found["function", f"{path}:{name}"] = number - begin - 1
                begin = None
        if number - 1 > BUDGET["lines"]:
            found["lines", str(path)] = number - 1
    for folder, n in files.items():
        if n > BUDGET["files"]:
            found["files", str(folder)] = n
    return found


def nm(objects, *options):
    """(folder, symbol) of each line that nm prints of the objects."""
    out = subprocess.run(["nm", "-A", "-P", *options, *objects], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        where, symbol = line.split(": ", 1)
        yield pathlib.Path(where.split(".dir/", 1)[1]).parent, symbol.split()[0]


def arrows(build):
    objects = [
        str(p)
        for layer in FOLDERS[:-1]
        for p in build.glob(f"CMakeFiles/*.dir/{layer}/**/*.o")
        # What hanse-run is linked from a second time stands in for libraries: no arrows of the tree.
        if not {"hanse_runner.dir", "hanse_runner_parts.dir", "hanse-run.dir"}.intersection(p.parts)
        and (ROOT / p.as_posix().split(".dir/", 1)[1][:-2]).exists()
    ]
    if not objects:
        sys.exit(f"house: {build} holds no object file: build first (cmake --build {build})")
    owner = {symbol: folder for folder, symbol in nm(objects, "--defined-only", "--extern-only")}
    graph = collections.defaultdict(set)
    for folder, symbol in nm(objects, "--undefined-only"):
        if owner.get(symbol, folder) != folder:
            graph[folder].add(owner[symbol])
    return graph


def circles(graph):
    """The sets of folders that reach each other, by Tarjan."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph.get(v, ())):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(" ".join(sorted(map(str, stack[at:]))))
            del stack[at:]

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return found


def allowed():
    """(what, where) → (figure, line) of house.txt."""
    rows = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        row = re.match(r"(\w+) (\d+) (.*?)  # (.+)$", line)
        if row:
            rows[row.group(1), row.group(3)] = int(row.group(2)), line
        elif line and line[0] != "#":
            sys.exit(f"house: {LIST.name}: \"{line}\": expected WHAT FIGURE WHERE  # REASON")
    return rows


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    graph = arrows(build)
    if "--graph" in sys.argv:
        print("digraph folders {")
        for a in sorted(graph):
            print("".join(f'  "{a}" -> "{b}";\n' for b in sorted(graph[a])), end="")
        print("}")
        return 0
    found = sizes()
    for circle in circles(graph):
        found["circle", circle] = len(circle.split())
    rows = allowed()
    if "--write" in sys.argv:
        lines = []
        for line in LIST.read_text(encoding="utf-8").splitlines():
            key = next((k for k, v in rows.items() if v[1] == line), None)
            if key is None or key in found:
                is_less = key is not None and found[key] < rows[key][0]
                lines.append(line.replace(f" {rows[key][0]} ", f" {found[key]} ", 1) if is_less else line)
        LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = allowed()
    bad = []
    for key, figure in sorted(found.items()):
        what, where = key
        limit = rows.get(key, (BUDGET.get(what, 0), ""))[0]
        if figure > limit and what == "circle":
            bad.append(f"{where}: these folders reach each other: an arrow must go, or its function move")
        elif figure > limit:
            bad.append(f"{where}: {what} {figure}, and at most {limit}: it is usually two things")
    for key, (figure, _) in sorted(rows.items()):
        if found.get(key, 0) < figure:
            bad.append(f"{key[1]}: {key[0]} {found.get(key, 0)}, but house.txt says {figure}: tests/lint/house.py {sys.argv[1]} --write")
    print("\n".join(bad))
    counts = collections.Counter(what for what, _ in found)
    print("house: " + ", ".join(f"{counts[w]} {t}" for w, t in (("circle", "circles"), ("files", "folders over 12 files"), ("lines", "files over 600 lines"), ("function", "functions over 70 lines"))))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

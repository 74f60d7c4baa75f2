#!/usr/bin/env python3
"""Every field of a status is set by something: by apply and what it applies, or where an object is shown (docs end in
"(on read)": controlplane/server/figures.c). What nothing sets yet says so ("(not begun)"), and no column shows it.
Prints each field that breaks this; exit 1 when there is any. It sees assignments by the field's C name, so a name that
many structs share proves little; a field that nothing at all sets does not get through."""
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
with open("api/schema/kinds.def", encoding="utf-8") as file:
    table = file.read().replace("\\\n", " ")
FIELD = re.compile(r'F\((\w+), (\w+), \d+, "(\w*)", ([^,]+), (\w+), [^,]+, [^,]+, "((?:[^"\\]|\\.)*)"\)')
schemas = {m.group(1): FIELD.findall(m.group(2)) for m in re.finditer(r"#define SCHEMA_(\w+)\(F\)(.*)", table)}
kinds = {m.group(1): m.group(2) for m in re.finditer(r"#define SCHEMA_(\w+)\(F\) KIND_BODY\(F, \w+, (\w+)\)", table)}


def read(*patterns):
    text = ""
    for pattern in patterns:
        for name in sorted(glob.glob(pattern, recursive=True)):
            with open(name, encoding="utf-8") as source:
                text += source.read()
    return text


stored = read("controlplane/store/**/*.c", "controlplane/leader/**/*.c", "connectors/**/*.c", "policy/**/*.c")
shown = read("controlplane/server/figures.c")
# Set by none of ours on purpose: Kubernetes' own condition type has it.
FOREIGN = {("condition", "observedGeneration")}
# Whose conditions txn_condition sets: all lists of conditions have the same name.
WITH_CONDITIONS = {"target", "workload", "machine"}
bad = []
not_begun = set()


def is_set(name, text):
    return re.search(rf"(->|\.){name}(\[[^]]*\])?\s*(=[^=]|\+\+|\+=|-=)|&[\w>.-]+(->|\.){name}\b", text)


def walk(schema, path, seen):
    for kind, name, json, _flags, sub, doc in schemas[schema]:
        here = f"{path}.{json}"
        if doc.endswith("(not begun)"):
            not_begun.add(here)
        elif doc.endswith("(on read)"):
            if not is_set(name, shown):
                bad.append(f"{here}: said to be made on read, and figures.c does not")
        elif name == "conditions" and path.split(".")[0] not in WITH_CONDITIONS:
            bad.append(f"{here}: nothing sets it")
        elif (schema, name) not in FOREIGN and not is_set(name, stored):
            bad.append(f"{here}: nothing sets it")
        if kind in ("OBJ", "LIST") and sub in schemas and sub not in seen and not doc.endswith("(not begun)"):
            walk(sub, here + ("[*]" if kind == "LIST" else ""), seen + [sub])


for kind, status in kinds.items():
    walk(status, f"{kind}.status", [status])
walk("decision_spec", "decision.spec", ["decision_spec"])
walk("checkpoint_obj_spec", "checkpoint.spec", ["checkpoint_obj_spec"])
if len(kinds) < 9 or sum(len(v) for v in schemas.values()) < 300:
    bad.append("kinds.def was not understood: this script has to follow it")
for schema, name, path in re.findall(r'C\((\w+), "([^"]+)", "\w+", \d, "([^"]+)"', table):
    if schema + path in not_begun:
        bad.append(f"column {name} of {schema} shows {path}, which is not begun")
print("\n".join(bad) if bad else f"ok: {len(not_begun)} fields are not begun, and say so")
sys.exit(bool(bad))

#!/usr/bin/env python3
"""How long a program stands still when it is moved: from the signal's delivery until it runs again in its new epoch, between
two agents on this machine, with a checkpoint of 100 MB. Prints one JSON object.

The program itself says, by CLOCK_BOOTTIME, when the signal reached it, when it had saved, when its first line ran again, and
when it had loaded. `pause_raw` is from the signal to having loaded; `pause_net` leaves out its own saving and loading, so it
is what Hanse adds: from "saved" to its first line in the new epoch (the start of the interpreter is in it).
The work folder must be on the disk that is meant to be measured: each step of a move is an fsync of the log."""
import argparse
import json
import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e", "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, wait_for  # noqa: E402

PROGRAM = r"""
import time
def note(event):
    lines.append((event, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
lines = []
note("first")
import hashlib, json, os, signal, sys
size, log = int(sys.argv[1]), sys.argv[2]
epoch = int(os.environ["HANSE_EPOCH"])
def tell():
    with open(log, "a") as file:
        for event, t in lines:
            file.write(json.dumps({"epoch": epoch, "event": event, "t": t}) + "\n")
    del lines[:]
state, step, home = bytearray(os.urandom(1 << 20) * (size >> 20)), 0, os.environ.get("HANSE_RESUME_DIR")
if home:
    entry = json.load(open(home + "/manifest.json"))
    with open(home + "/" + entry["files"][0]["name"], "rb", buffering=0) as file:
        file.readinto(state)
    step = entry["step"]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
note("running")
tell()
signal.sigwait([signal.SIGTERM])
note("signal")
home, step = os.environ["HANSE_CHECKPOINT_DIR"], step + 1
state[0:8] = step.to_bytes(8, "little")
name = "state-%d.bin" % step
def put(name, content):
    with open(home + "/." + name, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
    os.rename(home + "/." + name, home + "/" + name)
put(name, state)
put("manifest.json", json.dumps({"step": step, "files": [
    {"name": name, "bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}]}).encode())
note("saved")
tell()
os._exit(75)
"""


def binary():
    return os.environ.get("HANSE") or os.path.join(HERE, "..", "..", "build", "release", "hanse")


class Log:
    def __init__(self, path):
        self.path = path

    def times(self):
        """{(epoch, event): ns}"""
        if not os.path.exists(self.path):
            return {}
        with open(self.path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return {(line["epoch"], line["event"]): line["t"] for line in lines}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def row(name, value, unit):
    return {"name": name, "value": round(value, 3), "unit": unit, "peer": None, "peer_value": None, "ratio": None}


def applied(pool):
    return json.loads(pool.cli("status", "-o", "json").stdout)["appliedIndex"]


def measure(pool, moves, size):
    log = Log(pool.path("mover.jsonl"))
    pool.apply(document("Workload", "mover", {
        "type": "training", "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "1Gi"},
        "checkpoint": {"store": pool.path("checkpoints"), "grace": "30s", "keep": 2},
        "run": {"command": [sys.executable, "-S", "-E", "-s", "-c", PROGRAM, str(size), log.path]}}, namespace="default"))
    entries = []
    for epoch in range(1, moves + 1):
        wait_for(f"epoch {epoch} to run", lambda e=epoch: (e, "running") in log.times(), 60, 0.01)
        wait_for("Running", lambda: pool.status("mover").get("phase") == "Running" and not pool.status("mover").get("migration"), 30, 0.02)
        before = applied(pool)
        pool.cli("migrate", "mover")
        wait_for(f"epoch {epoch + 1} to run", lambda e=epoch: (e + 1, "running") in log.times(), 60, 0.01)
        wait_for("the move to be over", lambda: not pool.status("mover").get("migration"), 30, 0.02)
        entries.append(applied(pool) - before)
    return log.times(), entries


def by_phase(pool):
    """Milliseconds that the moves spent in each phase, as the control plane's own clock had it."""
    import datetime
    spent = {}
    for m in pool.migrations():
        at = [(p["phase"], datetime.datetime.fromisoformat(p["at"].replace("Z", "+00:00"))) for p in m["status"].get("phases", [])]
        for (phase, begin), (_, end) in zip(at, at[1:]):
            spent.setdefault(phase, []).append((end - begin).total_seconds() * 1000)
    return spent


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--moves", type=int, default=40)
    a.add_argument("--bytes", type=int, default=100 << 20)
    a.add_argument("--members", type=int, default=1, choices=(1, 3))
    o = a.parse_args()
    load = round(os.getloadavg()[0], 1)  # other work on the machine counts into the pause
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as folder:
        pool = Moves(os.path.realpath(binary()), "/bin/false", folder, members=o.members)
        try:
            pool.begin()
            times, entries = measure(pool, o.moves, o.bytes)
            phases = by_phase(pool)
        finally:
            pool.stop()
    ms = {name: [(times[(e + (name_to == "next"), end)] - times[(e, begin)]) / 1e6 if name_to == "next" else
                 (times[(e, end)] - times[(e, begin)]) / 1e6 for e in range(1, o.moves + 1)]
          for name, begin, end, name_to in (("pause_raw", "signal", "running", "next"), ("pause_net", "saved", "first", "next"),
                                            ("program_save", "signal", "saved", "same"))}
    ms["program_load"] = [(times[(e, "running")] - times[(e, "first")]) / 1e6 for e in range(2, o.moves + 2)]
    results = [row(f"{name}_{label}", percentile(values, share), "ms") for name, values in ms.items()
               for label, share in (("p50", 0.5), ("p99", 0.99))]
    results += [row(f"phase_{name}_p50", statistics.median(values), "ms") for name, values in phases.items()]
    results += [row("log_entries_a_move_p50", statistics.median(entries), "entries"), row("checkpoint", o.bytes, "bytes")]
    print(json.dumps({"name": "migrate", "parameters": {**vars(o), "load1": load}, "results": results}, indent=1))


main()

#!/usr/bin/env python3
"""How long a program stands still when it is moved: from the signal's delivery until it runs again in its new epoch, between
two agents on this machine, with a checkpoint of 100 MB, in one file or in several (`--shards`). Prints one JSON object.

The program itself says, by CLOCK_BOOTTIME, when the signal reached it, when it had saved, when its first line ran again, and
when it had loaded. `pause_raw` is from the signal to having loaded; `pause_net` leaves out its own saving and loading, so it
is what Hanse adds: from "saved" to its first line in the new epoch (the start of the interpreter is in it).
With `--disk` the same bytes in as many files are written, with fsync, and read by a plain program on the same disk, in turn with the
moves: `ratio` of pause_net says how often the pause goes into the time that reading them all once takes.
The work folder must be on the disk that is meant to be measured: each step of a move is an fsync of the log."""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

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
size, log, shards = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
epoch = int(os.environ["HANSE_EPOCH"])
def tell():
    with open(log, "a") as file:
        for event, t in lines:
            file.write(json.dumps({"epoch": epoch, "event": event, "t": t}) + "\n")
    del lines[:]
part = size // shards >> 20 << 20
state, step, home = [bytearray(os.urandom(1 << 20) * (part >> 20)) for _ in range(shards)], 0, os.environ.get("HANSE_RESUME_DIR")
if home:
    entry = json.load(open(home + "/manifest.json"))
    for shard, of in zip(state, entry["files"]):
        with open(home + "/" + of["name"], "rb", buffering=0) as file:
            assert file.readinto(shard) == part
    step = entry["step"]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
note("running")
tell()
signal.sigwait([signal.SIGTERM])
note("signal")
home, step = os.environ["HANSE_CHECKPOINT_DIR"], step + 1
def put(name, content):
    with open(home + "/." + name, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
    os.rename(home + "/." + name, home + "/" + name)
files = []
for n, shard in enumerate(state):
    shard[0:8] = step.to_bytes(8, "little")
    name = "state-%d-%d.bin" % (step, n)
    put(name, shard)
    files.append({"name": name, "bytes": len(shard), "sha256": hashlib.sha256(shard).hexdigest()})
put("manifest.json", json.dumps({"step": step, "files": files}).encode())
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


def row(name, value, unit, peer=None, peer_value=None):
    return {"name": name, "value": round(value, 3), "unit": unit, "peer": peer, "peer_value": peer_value and round(peer_value, 3),
            "ratio": peer_value and round(peer_value / value, 3)}


def applied(pool):
    return json.loads(pool.cli("status", "-o", "json").stdout)["appliedIndex"]


def disk(folder, size, shards):
    """Seconds that a plain program takes to write so many bytes in so many files, each with an fsync, and to read them from the disk."""
    block, names = os.urandom(1 << 20), [os.path.join(folder, f"disk-{n}") for n in range(shards)]
    begin = time.monotonic()
    for name in names:
        with open(name, "wb", buffering=0) as file:
            for _ in range(size // shards >> 20):
                file.write(block)
            os.fsync(file.fileno())
    wrote = time.monotonic()
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    room, cold = bytearray(1 << 20), time.monotonic()
    for name in names:
        with open(name, "rb", buffering=0) as file:
            while file.readinto(room):
                pass
    read = time.monotonic()
    for name in names:
        os.unlink(name)
    return {"write": wrote - begin, "read": read - cold}


def measure(pool, o):
    moves, size = o.moves, o.bytes
    log, patience = Log(pool.path("mover.jsonl")), 60 + size / (20 << 20)
    pool.apply(document("Workload", "mover", {
        "type": "training", "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": f"{(size >> 30) + 1}Gi"},
        "checkpoint": {"store": pool.path("checkpoints"), "grace": f"{int(patience) // 2}s", "keep": 2},
        "run": {"command": [sys.executable, "-S", "-E", "-s", "-c", PROGRAM, str(size), log.path, str(o.shards)]}}, namespace="default"))
    entries, plain = [], []
    for epoch in range(1, moves + 1):
        wait_for(f"epoch {epoch} to run", lambda e=epoch: (e, "running") in log.times(), patience, 0.01)
        wait_for("Running", lambda: pool.status("mover").get("phase") == "Running" and not pool.status("mover").get("migration"), 30, 0.02)
        if o.disk:
            plain.append(disk(pool.path(), size, o.shards))
        before = applied(pool)
        pool.cli("migrate", "mover")
        wait_for(f"epoch {epoch + 1} to run", lambda e=epoch: (e + 1, "running") in log.times(), patience, 0.01)
        wait_for("the move to be over", lambda: not pool.status("mover").get("migration"), 30, 0.02)
        entries.append(applied(pool) - before)
    return log.times(), entries, plain


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
    a.add_argument("--shards", type=int, default=1, help="files that the checkpoint consists of")
    a.add_argument("--disk", action="store_true", help="measures the bare disk with as many bytes, too")
    a.add_argument("--members", type=int, default=1, choices=(1, 3))
    o = a.parse_args()
    load = round(os.getloadavg()[0], 1)  # other work on the machine counts into the pause
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as folder:
        pool = Moves(os.path.realpath(binary()), "/bin/false", folder, members=o.members)
        try:
            pool.begin()
            times, entries, plain = measure(pool, o)
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
    if plain:
        read = statistics.median(p["read"] for p in plain) * 1000
        results += [row("pause_net_p50_beside_disk", percentile(ms["pause_net"], 0.5), "ms", "reading it once", read),
                    row("disk_write_p50", statistics.median(p["write"] for p in plain) * 1000, "ms"), row("disk_read_p50", read, "ms")]
    results += [row(f"phase_{name}_p50", statistics.median(values), "ms") for name, values in phases.items()]
    results += [row("log_entries_a_move_p50", statistics.median(entries), "entries"), row("checkpoint", o.bytes, "bytes")]
    print(json.dumps({"name": "migrate", "parameters": {**vars(o), "load1": load}, "results": results}, indent=1))


main()

#!/usr/bin/env python3
"""Hanse beside Slurm, on one machine, in one run, in turns (A B A B): how soon a submitted program writes its first byte; how many
short jobs a second; how long a program stands still when it is moved; how soon a production job gets its place on a full cluster,
and what the victims lose. Prints one JSON object; a ratio above 1 says that Hanse does better.

Both sides present 4 nodes of 16 CPUs and 4 GPUs (64 CPUs, 16 GPUs) and run the same programs. What is waited for on purpose is the
peer's own: Slurm holds a requeued job back for cred_expire + 1 s (5 here, the least that makes sense; its default is 120), and a
victim gets GraceTime. Where Slurm has settings to choose from, its quickest are taken for `ratio`, its defaults are a row besides.
It needs root and Slurm's packages (deploy/packages.sh slurm); without them it says so and exits with 77."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
import slurm_side  # noqa: E402
from hanse_side import Hanse, batch, folder_of  # noqa: E402
from moves import document  # noqa: E402
from side import (Rounds, Turn, by_threads, digits, hanse_binary, load1, output, percentile, report, say, total, until)  # noqa: E402
from slurm_side import Slurm  # noqa: E402

POOL = {"pool": {f"pool-n{i}": 4 for i in range(4)}}
PROGRAM = os.path.join(HERE, "lib", "mover.py")
PYTHON = [sys.executable, "-S", "-E", "-s"]
PEER = "slurm"


def exists(path):
    return os.path.exists(path)


# ---- (a) from submit to the program's first write, one at a time, idle cluster -------------------------------------------

def first_write_hanse(pool, path, name):
    begin = time.monotonic()
    pool.cli_timed("submit", "--name", name, "--cpu", "1", "--memory", "16Mi", "--", "/bin/sh", "-c", ": > " + path)
    until("the first write", lambda: exists(path), 30, 0.0005)
    took = (time.monotonic() - begin) * 1000
    until("the end", lambda: pool.of(name)["status"]["phase"] == "Succeeded", 30, 0.01)
    return took


def first_write_slurm(slurm, path):
    begin = time.monotonic()
    slurm.sbatch("--mem=16", "--wrap", ": > " + path)
    until("the first write", lambda: exists(path), 60, 0.0005)
    took = (time.monotonic() - begin) * 1000
    until("the end", slurm.idle, 30, 0.05)
    return took


def latency(o, folder):
    mine, theirs, cpu = [], [], {"hanse": [], PEER: []}
    pool = Hanse(folder_of(folder, "h"), POOL)
    try:
        pool.begin()
        slurm = Slurm(folder_of(folder, "s"), slurm_side.LATENCY)
        try:
            for r in range(o.rounds):
                with Turn(pool.cpu) as turn:
                    mine.append([first_write_hanse(pool, f"{slurm.jobs}/h-{r}-{i}", f"first-{r}-{i}") for i in range(o.each)])
                cpu["hanse"].append(turn.cpu_seconds)
                with Turn(slurm.cpu) as turn:
                    theirs.append([first_write_slurm(slurm, f"{slurm.jobs}/s-{r}-{i}") for i in range(o.each)])
                cpu[PEER].append(turn.cpu_seconds)
        finally:
            slurm.close()
        slurm = Slurm(folder_of(folder, "d"), slurm_side.DEFAULTS)
        try:
            defaults = [first_write_slurm(slurm, f"{slurm.jobs}/d-{i}") for i in range(4)]
        finally:
            slurm.close()
    finally:
        pool.close()
    rows = []
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        r = Rounds(f"submit to first write, {label}", "ms", PEER)
        r.ours, r.theirs = [percentile(x, share) for x in mine], [percentile(x, share) for x in theirs]
        rows.append(r.row(runs=o.rounds * o.each, cpu_s={k: total(v) for k, v in cpu.items()}, peer_settings=slurm_side.LATENCY,
                          peer_value_defaults=digits(percentile(defaults, share)) if label == "p50" else None))
    return rows


# ---- (b) many short jobs ------------------------------------------------------------------------------------------------

def many_hanse(pool, o, r):
    with Turn(pool.cpu) as turn:
        by_threads(o.jobs, o.connections, lambda i: pool.make(f"many-{r}-{i}", batch(["/bin/sh", "-c", "exit 0"])))
        submitted = time.monotonic() - turn.begin
        until("all to end", lambda: not pool.phase_left("Succeeded"), 600, 0.1)
    pool.forget([f"many-{r}-{i}" for i in range(o.jobs)])
    return turn, submitted


def many_slurm(slurm, o, array):
    before = slurm.completed()
    with Turn(slurm.cpu) as turn:
        if array:
            for begin in range(1, o.jobs + 1, 1000):
                slurm.sbatch("--mem=16", f"--array=1-{min(1000, o.jobs - begin + 1)}", "--wrap", "exit 0")
        else:
            by_threads(o.jobs, o.connections, lambda i: slurm.submit_rest("#!/bin/sh\nexit 0\n"))
        submitted = time.monotonic() - turn.begin
        until("all to end", lambda: slurm.completed() - before >= o.jobs, 600, 0.1)
    return turn, submitted


def throughput(o, folder):
    ways = {"REST": Rounds(f"{o.jobs} short jobs, each submitted over HTTP", "jobs/s", PEER, more=True),
            "array": Rounds(f"{o.jobs} short jobs, Slurm's as arrays of 1,000", "jobs/s", PEER, more=True)}
    cpu, submit = {}, {}
    pool = Hanse(folder_of(folder, "h"), POOL)
    try:
        pool.begin()
        slurm = Slurm(folder_of(folder, "s"), slurm_side.THROUGHPUT, rest=True)
        try:
            for r in range(o.rounds_many):
                turn, submitted = many_hanse(pool, o, r)
                ours = o.jobs / turn.seconds
                cpu.setdefault("hanse", []).append(turn.cpu_seconds)
                submit.setdefault("hanse", []).append(submitted)
                for name, way in ways.items():
                    turn, submitted = many_slurm(slurm, o, name == "array")
                    way.ours.append(ours)
                    way.theirs.append(o.jobs / turn.seconds)
                    cpu.setdefault(name, []).append(turn.cpu_seconds)
                    submit.setdefault(name, []).append(submitted)
        finally:
            slurm.close()
    finally:
        pool.close()
    return [way.row(connections=o.connections, peer_settings=slurm_side.THROUGHPUT,
                    cpu_s={"hanse": total(cpu["hanse"]), PEER: total(cpu[name])},
                    submit_s={"hanse": digits(statistics.median(submit["hanse"])), PEER: digits(statistics.median(submit[name]))})
            for name, way in ways.items()]


# ---- (c) moving a running program ---------------------------------------------------------------------------------------

class Log:
    """What the program itself wrote, by CLOCK_BOOTTIME: {(life, event): ns}; lives are counted from 1."""

    def __init__(self, path):
        self.path = path

    def times(self):
        lives, found = {}, {}
        if exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in (json.loads(x) for x in file if x.endswith("\n")):
                    found[lives.setdefault(line["life"], len(lives) + 1), line["event"]] = line["t"]
        return found

    def pause(self, life):
        """(net, raw, signal to saved) in ms: net is from saved to its next life's first line."""
        t = self.times()
        return tuple((t[b] - t[a]) / 1e6 for a, b in (((life, "saved"), (life + 1, "first")), ((life, "signal"), (life + 1, "running")),
                                                      ((life, "signal"), (life, "saved"))))


def wait_life(log, life, event="running", seconds=200):
    until(f"life {life} to come to {event}", lambda: (life, event) in log.times(), seconds, 0.01)


def move(o, folder):
    net, raw = Rounds("pause of a moved program, without its own time", "ms", PEER), Rounds("pause of a moved program, whole", "ms", PEER)
    cpu = {"hanse": [], PEER: []}
    pool = Hanse(folder_of(folder, "h"), {t: {f"{t}-n{i}": 4 for i in range(2)} for t in ("left", "right")})
    try:
        pool.begin()
        slurm = Slurm(folder_of(folder, "s"), slurm_side.LATENCY)
        try:
            store = folder_of(folder, "store")
            mine, theirs = Log(os.path.join(folder, "h.jsonl")), Log(os.path.join(folder, "s.jsonl"))
            pool.make("mover", {"type": "training", "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "1Gi"},
                                "checkpoint": {"store": pool.path("checkpoints"), "grace": "30s", "keep": 2},
                                "run": {"command": PYTHON + [PROGRAM, "move", str(o.bytes), mine.path]}})
            script = os.path.join(folder, "mover.sh")
            with open(script, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\nexport MOVER_HOME={store}\nexec {' '.join(PYTHON)} {PROGRAM} move {o.bytes} {theirs.path}\n")
            job = slurm.sbatch("--gres=gpu:1", "--mem=1024", script)
            wait_life(mine, 1)
            wait_life(theirs, 1)
            for life in range(1, o.moves + 1):
                wait_life(mine, life)
                until("Running", lambda: (s := pool.of("mover")["status"]).get("phase") == "Running" and not s.get("migration"), 30)
                with Turn(pool.cpu) as turn:
                    pool.cli_timed("migrate", "mover")
                    wait_life(mine, life + 1)
                cpu["hanse"].append(turn.cpu_seconds)
                until("running", lambda: slurm.state(job) == "RUNNING", 200, 0.05)
                with Turn(slurm.cpu) as turn:
                    slurm.run("scancel", "--signal=TERM", "--batch", str(job))
                    wait_life(theirs, life + 1)
                cpu[PEER].append(turn.cpu_seconds)
                a, b = mine.pause(life), theirs.pause(life)
                for rounds, i in ((net, 0), (raw, 1)):
                    rounds.ours.append(a[i])
                    rounds.theirs.append(b[i])
            slurm.cancel_all()
        finally:
            slurm.close()
    finally:
        pool.close()
    more = {"checkpoint_bytes": o.bytes, "moves": o.moves, "cpu_s": {k: total(v) for k, v in cpu.items()},
            "peer_settings": "cred_expire=5 (so it waits 5 to 6 s on purpose; with the default 120 it is 121 s), " + slurm_side.LATENCY}
    return [net.row(**more), raw.row()]


# ---- (d) a production job comes to a full cluster ------------------------------------------------------------------------

VICTIMS = 16


def witness(folder):
    """{victim: [(time, event, step)]} of one round."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("victim-") and name.endswith(".log"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name[:-4]] = [(int(t), event, int(step)) for t, event, step in (x.split() for x in file if x.endswith("\n"))]
    return found


def lost_seconds(folder, pace_ms):
    """GPU-seconds of work done and not kept: of each victim that lived twice, steps done in a life beyond what the next began with."""
    lost, moved = 0, 0
    for lines in witness(folder).values():
        done = 0
        for _, event, step in lines:
            if event == "begin":
                if done:
                    moved += 1
                    lost += max(0, done - step)
                done = step
            else:
                done = max(done, step)
    return lost * pace_ms / 1000, moved


def victims_ready(folder, every_s, pace_ms):
    """All run and have saved once, and stand at different distances from their last save."""
    def look():
        w = witness(folder)
        return len(w) == VICTIMS and all(any(e == "save" for _, e, _ in x) for x in w.values())
    until("all victims to have saved", look, 60 + 3 * every_s, 0.05)


def preempt_hanse(o, folder):
    os.makedirs(folder)
    pool = Hanse(folder_of(folder, "h"), POOL)
    try:
        pool.begin()
        for i in range(VICTIMS):
            pool.make(f"victim-{i:02}", {
                "type": "training", "priorityClassName": "development",
                "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
                "checkpoint": {"store": pool.path("checkpoints"), "grace": f"{o.grace}s", "keep": 2},
                "run": {"command": PYTHON + [PROGRAM, "steps", str(o.pace), str(o.every), f"{folder}/victim-{i:02}.log"], "retries": 4}})
            time.sleep(o.every / VICTIMS)  # so that each has its own distance from its last save
        victims_ready(folder, o.every, o.pace)
        with Turn(pool.cpu) as turn:
            begin = time.monotonic()
            pool.make("production", {
                "type": "training", "priorityClassName": "production", "gang": {"workers": 4},
                "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
                "run": {"command": ["/bin/sh", "-c", f": > {folder}/production-$HANSE_RANK; exec sleep 2"]}})
            until("production to start", lambda: all(exists(f"{folder}/production-{k}") for k in range(4)), 120, 0.002)
            took = time.monotonic() - begin
        until("the victims to be back", lambda: lost_seconds(folder, o.pace)[1] >= 4, 120, 0.1)
        return took, *lost_seconds(folder, o.pace), turn.cpu_seconds
    finally:
        pool.close()


def preempt_slurm(o, folder, grace):
    os.makedirs(folder)
    slurm = Slurm(folder_of(folder, "s"), slurm_side.LATENCY, grace=grace)
    try:
        for i in range(VICTIMS):
            script = os.path.join(folder, f"victim-{i}.sh")
            with open(script, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\nexport MOVER_HOME={folder}/store-{i}\nmkdir -p $MOVER_HOME\n"
                           f"exec {' '.join(PYTHON)} {PROGRAM} steps {o.pace} {o.every} {folder}/victim-{i:02}.log\n")
            slurm.sbatch("--partition=spot", "--gres=gpu:1", "--mem=64", script)
            time.sleep(o.every / VICTIMS)
        victims_ready(folder, o.every, o.pace)
        with Turn(slurm.cpu) as turn:
            begin = time.monotonic()
            slurm.sbatch("--partition=gpu", "-n", "4", "--gpus-per-task=1", "--mem-per-cpu=64", "--wrap",
                         f"for k in 0 1 2 3; do : > {folder}/production-$k; done; sleep 2")
            until("production to start", lambda: exists(f"{folder}/production-3"), 240, 0.002)
            took = time.monotonic() - begin
        until("the victims to be back", lambda: lost_seconds(folder, o.pace)[1] >= 4, 240, 0.1)
        return took, *lost_seconds(folder, o.pace), turn.cpu_seconds
    finally:
        slurm.close()


def preempt(o, folder):
    rows = []
    peers = {f"GraceTime={o.grace}": o.grace, "GraceTime=0": 0}
    start = {k: Rounds(f"production starts on a full cluster, {k}", "s", PEER) for k in peers}
    lost = {k: Rounds(f"lost by victims, {k}", "GPU-s", PEER) for k in peers}
    cpu, moved = {}, {}
    for r in range(o.rounds_preempt):
        ours = preempt_hanse(o, os.path.join(folder, f"h{r}"))
        moved.setdefault("hanse", []).append(ours[2])
        cpu.setdefault("hanse", []).append(ours[3])
        for k, grace in peers.items():
            theirs = preempt_slurm(o, os.path.join(folder, f"s{r}-{grace}"), grace)
            for rounds, i in ((start[k], 0), (lost[k], 1)):
                rounds.ours.append(ours[i])
                rounds.theirs.append(theirs[i])
            moved.setdefault(k, []).append(theirs[2])
            cpu.setdefault(k, []).append(theirs[3])
    for k in peers:
        more = {"victims": {"hanse": moved["hanse"], PEER: moved[k]}, "save_every_s": o.every, "hanse_grace_s": o.grace,
                "cpu_s": {"hanse": total(cpu["hanse"]), PEER: total(cpu[k])},
                "peer_settings": "PreemptType=preempt/partition_prio PreemptMode=REQUEUE " + k + " " + slurm_side.LATENCY}
        rows += [start[k].row(**more), lost[k].row()]
    return rows


PARTS = {"latency": latency, "throughput": throughput, "move": move, "preempt": preempt}


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    a.add_argument("--rounds", type=int, default=4, help="latency: turns of each side")
    a.add_argument("--each", type=int, default=15, help="latency: programs a turn")
    a.add_argument("--rounds-many", type=int, default=2, help="throughput: turns")
    a.add_argument("--jobs", type=int, default=2000)
    a.add_argument("--connections", type=int, default=8)
    a.add_argument("--moves", type=int, default=8)
    a.add_argument("--bytes", type=int, default=10 << 20)
    a.add_argument("--rounds-preempt", type=int, default=2)
    a.add_argument("--every", type=float, default=8, help="preempt: seconds between two saves of a victim")
    a.add_argument("--pace", type=int, default=50, help="preempt: ms a step")
    a.add_argument("--grace", type=int, default=5, help="preempt: Hanse's grace and Slurm's GraceTime, s")
    o = a.parse_args()
    load, results = load1(), []
    with tempfile.TemporaryDirectory(prefix="hanse-vs-") as folder:
        os.chmod(folder, 0o755)
        for name in o.only or PARTS:
            say(f"vs-slurm: {name}")
            results += PARTS[name](o, folder_of(folder, name))
    versions = {"hanse": output(hanse_binary(), "version", "--client") or output(hanse_binary(), "version"), PEER: slurm_side.version()}
    report("vs-slurm", {**vars(o), "load1_begin": load, "load1_end": load1(), "versions": versions}, results)


main()

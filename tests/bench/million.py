#!/usr/bin/env python3
"""A state of --objects (1,000,000) Datasets in one member: its memory at rest, at most while it makes a snapshot, how long a restart
takes from SIGKILL to ready, and how long its loops were held. Prints one JSON object. Takes some minutes; the disk of --dir is used."""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from side import hanse_binary, load1, machine, say, until  # noqa: E402,I001
from moves import Failure, Federation  # noqa: E402

APPLY = "/apis/hanse.dev/v1alpha1/apply"


class Member:
    def __init__(self, folder, o):
        self.o = o
        self.f = Federation(hanse_binary(), "/bin/false", folder, targets=(), members=1)
        self.f.start_members()
        self.url, self.local = self.f.login.servers[0], threading.local()

    def ask(self, method, path, body=None):
        for _ in range(2):
            connection = getattr(self.local, "connection", None) or self.f.login.connect(self.url, timeout=240)
            self.local.connection = connection
            try:
                connection.request(method, path, body, {**self.f.login.headers, "Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()
            except OSError:
                self.local.connection = None
        return 0, b""

    def pid(self):
        with open(self.f.path("m1.pid"), encoding="utf-8") as file:
            return int(file.read())

    def memory(self, what):
        with open(f"/proc/{self.pid()}/status", encoding="utf-8") as file:
            return next(int(x.split()[1]) / 1024 for x in file if x.startswith(what + ":"))

    def peak_anew(self):
        with open(f"/proc/{self.pid()}/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")

    def events(self, name):
        with open(self.f.path("m1.log"), encoding="utf-8") as file:
            return [x for x in file if f"event={name}" in x]

    def apply(self, documents, name):
        status, text = self.ask("POST", APPLY, json.dumps({"set": name, "documents": documents}))
        if status != 200:
            raise Failure(f"apply: {status} {text[:300]!r}")

    def batch(self, first):
        last = min(first + self.o.batch, self.o.objects)
        kind, spec = ("Workload", lambda i: {"resources": {"cpu": 1, "gpu": {"count": 1}}, "run": {"command": ["train", str(i)]}}) \
            if self.o.workloads else ("Dataset", lambda i: {"source": f"s3://data/{i:07}", "bytes": str(i)})
        self.apply([{"apiVersion": "hanse.dev/v1alpha1", "kind": kind, "spec": spec(i),
                     "metadata": {"name": f"d{i:07}", "namespace": "default", "labels": {"team": f"t{i % 100}"}}}
                    for i in range(first, last)], f"fill{first}")

    def fill(self):
        done = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for _ in pool.map(self.batch, range(0, self.o.objects, self.o.batch)):
                done += self.o.batch
                if done % (50 * self.o.batch) == 0:
                    say(f"{done} objects are in")

    def log_bytes(self):
        """A log that is long enough for the next snapshot; the large object goes again with the next."""
        self.apply([{"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {
            "name": "large", "namespace": "default", "annotations": {"bench/large": "x" * 250000, "at": str(time.time())}},
            "spec": {"source": "-"}}], "large")

    def snapshot(self):
        """Writes until one more has been made; its line in the log."""
        made, end = len(self.events("raft.snapshot_done")), time.monotonic() + 600
        while len(self.events("raft.snapshot_done")) == made:
            if time.monotonic() > end:
                raise Failure("no snapshot within 10 minutes")
            self.log_bytes()
        return self.events("raft.snapshot_done")[-1]

    def metrics(self):
        text = self.ask("GET", "/metrics")[1].decode()
        return dict(x.rsplit(" ", 1) for x in text.splitlines() if x and not x.startswith("#"))

    def restart(self):
        os.kill(self.pid(), signal.SIGKILL)
        begun = time.monotonic()
        time.sleep(0.1)
        until("the member to be ready again", lambda: self.ask("GET", "/readyz")[0] == 200, 300, 0.05)
        return time.monotonic() - begun


def measure(m, o):
    begun = time.monotonic()
    m.fill()
    filled = time.monotonic() - begun
    m.snapshot()
    time.sleep(2)
    rest = m.memory("VmRSS")
    m.peak_anew()
    line = m.snapshot()
    peak = m.memory("VmHWM")
    before = m.metrics()
    seconds = m.restart()
    again = m.memory("VmRSS")
    until("it to lead", lambda: m.metrics().get("hanse_raft_leader") == "1", 120, 0.1)
    time.sleep(3)
    after = m.metrics()

    def longest(figures, loop, cpu):
        return float(figures[f'hanse_loop_turn{cpu}_max_seconds{{loop="{loop}"}}']) * 1000

    rows = [("objects a second while it is filled", o.objects / filled, "1/s"), ("memory at rest", rest, "MiB"),
            ("memory at most while a snapshot is made", peak, "MiB"), ("of that at rest", peak / rest, ""),
            ("snapshot", int(re.search(r"bytes=(\d+)", line)[1]) / 2**20, "MiB"),
            ("snapshot made in", int(re.search(r" ms=(\d+)", line)[1]) / 1000, "s"),
            ("SIGKILL to ready", seconds, "s"), ("memory when ready", again, "MiB"),
            ("memory at most while it started", m.memory("VmHWM"), "MiB")]
    for when, figures in (("before", before), ("since the restart", after)):
        for loop in ("core", "outer"):
            rows += [(f"longest turn of the {loop} loop, {when}", longest(figures, loop, ""), "ms"),
                     (f"longest turn of the {loop} loop, {when}, computed", longest(figures, loop, "_cpu"), "ms")]
    return [{"name": n, "value": round(v, 2), "unit": u} for n, v, u in rows]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--objects", type=int, default=1000000)
    p.add_argument("--workloads", action="store_true", help="Workloads that wait, in place of Datasets")
    p.add_argument("--batch", type=int, default=2000, help="objects of one write")
    p.add_argument("--dir", help="for the member's files")
    o = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="hanse-million-", dir=o.dir) as folder:
        m = Member(folder, o)
        try:
            rows = measure(m, o)
        finally:
            m.f.stop()
    print(json.dumps({"bench": "million", "objects": o.objects, "kind": "Workload" if o.workloads else "Dataset", "load": load1(), **machine(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()

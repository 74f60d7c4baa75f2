#!/usr/bin/env python3
"""What targets that answer late cost everybody else. One member drives an agent and TARGETS callout targets, all served by one program,
which answers at once or, in turn, holds each answer back for a minute (every other target: a byte each half second). In both phases clients
read, write and list at a fixed rate, and small jobs go to the agent; a job with a lease of 5 s runs on the agent throughout. Beside each
healthy job one goes to a slow target. Prints one JSON object: latencies of both phases and their ratio, the jobs' time from submit to their
first write, the longest turn of the outer loop so far, and how often the leased job was lost (it must not be).
Options: --targets N (100), --rounds N (4), --seconds N of a phase (10), --rate N of requests a second (100), --folder PATH of the data."""
import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "callout"))
sys.dont_write_bytecode = True
import server  # noqa: E402
from federation import Failure, Federation, wait_for  # noqa: E402

API, KEY = "hanse.dev/v1alpha1", "a-key-of-thirty-two-letters-or-more-for-a-bench"
SIDES, MIX, CLIENTS, SETTLE_S = ("quick", "slow"), ("read", "write", "list"), 4, 0.5
HOLD_S, DRIP_S = 60, 0.5


class Slow(server.Handler):
    """The example's server; while `slow` is set, no answer comes in time."""
    slow = threading.Event()

    def answer(self, status, body):
        until, drips = time.monotonic() + HOLD_S, self.drips
        if self.slow.is_set() and drips:
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 16}\r\n\r\n".encode())
        while self.slow.is_set() and time.monotonic() < until:
            if drips:
                self.wfile.write(b" ")
                self.wfile.flush()
            time.sleep(DRIP_S)
        if drips and time.monotonic() - until + HOLD_S > DRIP_S:
            self.close_connection = True  # what was begun cannot be answered any more
            return
        super().answer(status, body)

    def handle_any(self):
        self.drips = self.path.startswith("/1/")
        try:
            super().handle_any()
        except OSError:
            self.close_connection = True  # Hanse has given up

    def serve(self, body):
        self.path = "/" + self.path.split("/", 2)[2]  # the first part says who drips
        return super().serve(body)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def p(values, part):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * part))] * 1000, 2) if values else None


class Bench(Federation):
    def __init__(self, hanse, asker, folder, args):
        super().__init__(hanse, "/bin/false", folder, targets=(), members=1)
        self.asker, self.args, self.seed, self.jobs = asker, args, 1, 0
        self.answers, self.began, self.late = ({side: [] for side in SIDES} for _ in range(3))

    def serve(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        at = server.Server(("127.0.0.1", self.port), Slow)
        at.key, at.runs = KEY.encode(), server.Runs(self.path("callout"))
        at.nodes = [{"name": "n1", "cpu": "64", "memory": "64Gi"}]
        threading.Thread(target=at.runs.watch, daemon=True).start()
        threading.Thread(target=at.serve_forever, daemon=True).start()

    def ask(self, path, body):
        connection = self.login.connect(self.url, timeout=20)
        connection.request("POST", path, json.dumps(body), {**self.login.headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status not in (200, 201):
            raise Failure(f"{path}: {answer.status} {text[:200]!r}")
        return json.loads(text)

    def apply(self, name, documents):
        self.ask("/apis/hanse.dev/v1alpha1/apply", {"set": name, "documents": documents})

    def job(self, name, target, command, **spec):
        return document("Workload", name, {"targets": {"names": [target]}, "resources": {"cpu": "10m", "memory": "1Mi"},
                                           "run": {"command": ["/bin/sh", "-c", command], "retries": 0}, **spec}, namespace="default")

    def begin(self):
        self.start_members()
        self.url = wait_for("a member", lambda: next((m["url"] for m in self.members() if m["role"] == "leader"), None), 20)
        self.serve()
        self.token = self.ask("/apis/hanse.dev/v1alpha1/operations/token.create", {"user": "bench", "groups": "system:masters"})["token"]
        self.apply("secret", [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "hanse-system"},
                               "stringData": {"key": KEY}}])
        self.apply("targets", [document("Target", f"slow-{i}", {
            "type": "callout", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "30s"},
            "connection": {"server": f"http://127.0.0.1:{self.port}/{i % 2}", "credentialsFrom": {"secret": "key"}}})
            for i in range(self.args.targets)])
        self.apply("data", [document("Dataset", f"d{i}", {"source": "x" * 200}, namespace="default") for i in range(200)])
        self.apply("local", [document("Target", "local", {"type": "agent", "tier": "hub", "capacity": "owned",
                                                        "partition": {"suspectAfter": "2s", "lease": "5s"}})])
        wait_for("all targets to be connected", lambda: len(self.connected()) == self.args.targets + 1, 120, 1)
        self.apply("leased", [self.job("leased", "local", "while :; do sleep 1; done", partition={"mode": "stop"})])
        wait_for("the leased job", lambda: self.status("leased").get("phase") == "Running", 30)

    def one_job(self, side, index):
        """Submitted by plain HTTP; ends when the program has written."""
        out, name = self.path("scratch", f"j{index}"), f"j{index}"
        began = time.monotonic()
        self.apply(name, [self.job(name, "local", f": > {out}"),
                          self.job(f"s{index}", f"slow-{index % self.args.targets}", "exit 0")])
        while not os.path.exists(out):
            if time.monotonic() - began > 60:
                raise Failure(f"{name} has not begun after 60 s")
            time.sleep(0.001)
        self.began[side].append(time.monotonic() - began)

    def phase(self, side):
        at = self.url.removeprefix("https://").rpartition(":")
        Slow.slow.set() if side == "slow" else Slow.slow.clear()
        time.sleep(3)  # what was under way is held now, or is answered
        argv = [self.asker, at[0], at[2], self.path("pki", "ca.crt"), CLIENTS, self.args.rate, self.args.seconds + SETTLE_S, SETTLE_S, 200,
                self.seed, "other"]
        self.seed += 1
        asker = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        asker.stdin.write(f"{self.token}\n\n")
        asker.stdin.flush()
        if asker.stdout.readline() != "ready\n":
            raise Failure("the client did not begin")
        asker.stdin.write(f"{time.monotonic_ns() + 100_000_000}\n")
        asker.stdin.flush()
        end = time.monotonic() + self.args.seconds
        while time.monotonic() < end:
            self.one_job(side, self.jobs)
            self.jobs += 1
            time.sleep(0.2)
        lines = [line.split() for line in asker.communicate()[0].splitlines()]
        if asker.returncode or not lines or lines[-1][0] != "end":
            raise Failure("the client failed")
        self.answers[side] += [(what, int(us) / 1e6, int(status)) for what, status, us in lines[:-1]]
        self.late[side].append(int(lines[-1][2]) / 1e3)

    def longest_turn(self):
        connection = self.login.connect(self.url, timeout=20)
        connection.request("GET", "/metrics", headers=self.login.headers)
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.findall(r'^hanse_loop_turn(_cpu)?_max_seconds\{[^}]*outer[^}]*\} (\S+)', text, re.M)
        return {"computed_ms" if cpu else "held_ms": round(float(v) * 1000, 1) for cpu, v in found}

    def result(self):
        told = {}
        for side in SIDES:
            took = {what: [s for w, s, status in self.answers[side] if w == what and status < 300] for what in MIX}
            told[side] = {what: {"n": len(v), "p50_ms": p(v, 0.5), "p99_ms": p(v, 0.99)} for what, v in took.items()}
            told[side]["submit_to_first_write"] = {"n": len(self.began[side]), "p50_ms": p(self.began[side], 0.5),
                                                   "p99_ms": p(self.began[side], 0.99)}
        ratio = {key: {what: round(told["slow"][what][key] / told["quick"][what][key], 2) for what in told["quick"]}
                 for key in ("p50_ms", "p99_ms")}
        leased = self.status("leased")
        return {"bench": "slow-targets", "load": os.getloadavg()[0], "targets": self.args.targets, "rounds": self.args.rounds,
                "requests_a_second": self.args.rate, **told, "ratio": ratio, "client_late_p99_ms": statistics.median(self.late["slow"]),
                "longest_turn": self.longest_turn(), "failed": sum(a[2] >= 300 for side in SIDES for a in self.answers[side]),
                "leases_lost": len(leased.get("ends", [])), "leased_is": leased.get("phase")}


def main():
    options = argparse.ArgumentParser()
    for name, default in (("--targets", 100), ("--rounds", 4), ("--seconds", 10), ("--rate", 100)):
        options.add_argument(name, type=int, default=default)
    options.add_argument("--folder")
    args = options.parse_args()
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    asker = os.path.join(os.environ.get("HANSE_BUILD_DIR") or os.path.dirname(hanse), "bench", "lib", "asker")
    if not os.access(asker, os.X_OK):
        print(f"{asker} is not there: cmake --build --preset release --target bench_asker")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-slow-targets-", dir=args.folder)
    bench = Bench(hanse, asker, folder, args)
    try:
        bench.begin()
        for turn in range(args.rounds):
            for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                bench.phase(side)
        print(json.dumps(bench.result()))
    finally:
        Slow.slow.clear()
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

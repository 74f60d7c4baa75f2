#!/usr/bin/env python3
"""What one user who asks for ten times his share costs the others. Ten users and the noisy one; a share is an eleventh of what the
server was measured to answer the noisy one alone. The ten ask for a quarter of their share each, at set times (latency counts from
then); he asks for ten shares at once, over CONNECTIONS connections; both, and without him, in turn in one run. Reads, small writes, and
pages of a list. The clients are programs in C (lib/asker.c): the others' client goes before all else on the machine (SCHED_FIFO), and
his only takes what nobody else wants (SCHED_IDLE), because elsewhere they would be other machines; without the right to that, all are
equal. `client` says what the clients computed, in parts of the machine, and how late the others' client woke at the 99th percentile;
`server` what the members computed. Prints one JSON object; `p99_ratio` is of all answers together, `p99_ratio_of_rounds` of each pair.
Options: --rounds N (16), --seconds N of a phase (2), --connections N (64), --objects N (2000), --members N (1), --folder PATH of the
data (a disk that others write to is slow for both sides; /dev/shm is none), --others-only (nothing noisy: how far two equal phases are
apart)."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

OPERATIONS = "/apis/hanse.dev/v1alpha1/operations"
OTHERS, SHARES = 10, 10
MIX = ("read", "write", "list")
SETTLE_S = 0.5  # of each phase: not counted


class Asker:
    """A client of its own process; see lib/asker.c."""

    def __init__(self, program, at, ca, tokens, each, rate, seconds, objects, seed, kind):
        argv = [program, *at, ca, each, rate, seconds, SETTLE_S, objects, seed, kind]
        self.process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write("".join(t + "\n" for t in tokens) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ready\n":
            raise Failure("a client did not begin")

    def begin(self, at_ns):
        self.process.stdin.write(f"{at_ns}\n")
        self.process.stdin.flush()

    def end(self):
        """[(what, seconds, status)], its CPU seconds, how late it woke in ms"""
        lines = [line.split() for line in self.process.communicate()[0].splitlines()]
        if self.process.returncode or not lines or lines[-1][0] != "end":
            raise Failure("a client failed")
        return [(w, int(us) / 1e6, int(status)) for w, status, us in lines[:-1]], int(lines[-1][1]) / 1e6, int(lines[-1][2]) / 1e3


def p(values, part):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * part))] * 1000, 2) if values else None


def told(answers):
    took = {what: [s for w, s, status in answers if w == what and status < 300] for what in MIX}
    took["all"] = [s for _, s, status in answers if status < 300]
    return {what: {"n": len(v), "p50_ms": p(v, 0.5), "p99_ms": p(v, 0.99)} for what, v in took.items()}


def ratio(part, whole, key):
    return {what: round(part[what][key] / whole[what][key], 2) for what in part if part[what]["n"] and whole[what]["n"]}


class Bench:
    def __init__(self, f, program, args):
        self.f, self.program, self.args, self.seed = f, program, args, 1
        self.sides = {side: {"answers": [], "server": [], "others": [], "his": [], "late": []} for side in ("without", "with")}
        self.pairs, self.his = [], []

    def ask(self, method, path, body):
        connection = self.f.login.connect(self.url, timeout=20)
        connection.request(method, path, json.dumps(body), {**self.f.login.headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status not in (200, 201):
            raise Failure(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text)

    def computed(self):
        """CPU seconds of all members so far."""
        ticks = 0
        for pid in {m["pid"] for m in self.f.members()}:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                ticks += sum(int(t) for t in stat.read().rpartition(")")[2].split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def phase(self, side, rate, noisy_rate, noisy=True):
        """(the others' answers, his); noisy_rate 0: as fast as he is answered"""
        askers, seconds = [], self.args.seconds + SETTLE_S
        self.seed += 2
        common = (self.program, self.at, os.path.join(self.f.path("pki"), "ca.crt"))
        if rate:
            askers.append(Asker(*common, self.tokens[1:], 4, rate, seconds, self.args.objects, self.seed, "fifo"))
        if noisy:
            askers.append(Asker(*common, self.tokens[:1], self.args.connections, noisy_rate, seconds, self.args.objects, self.seed + 1,
                                "idle" if rate else "other"))
        before, start = self.computed(), time.monotonic_ns() + 100_000_000
        for a in askers:
            a.begin(start)
        got = [a.end() for a in askers]
        if side:
            machine = seconds * os.cpu_count()
            side["server"].append((self.computed() - before) / machine)
            side["others"].append(got[0][1] / machine)
            side["his"].append(got[1][1] / machine if noisy else 0)
            side["late"].append(got[0][2])
            side["answers"] += got[0][0]
        return got[0][0] if rate else [], got[-1][0] if noisy else []

    def begin(self):
        self.f.start_members()
        self.url = wait_for("a member", lambda: next((m["url"] for m in self.f.members() if m["role"] == "leader"), None), 20)
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        self.at = (host, port)
        self.tokens = [self.ask("POST", f"{OPERATIONS}/token.create", {"user": f"user-{i}", "groups": "system:masters"})["token"]
                       for i in range(OTHERS + 1)]
        for first in range(0, self.args.objects, 500):
            self.ask("POST", "/apis/hanse.dev/v1alpha1/apply", {"set": f"s{first}", "documents": [
                {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": f"d{i}", "namespace": "default"},
                 "spec": {"source": "x" * 200}} for i in range(first, min(first + 500, self.args.objects))]})
        _, alone = self.phase(None, 0, 0)
        self.capacity = len(alone) / self.args.seconds
        self.share = self.capacity / (OTHERS + 1)

    def round(self):
        once, turn = {}, len(self.pairs) % 2
        for side in ("without", "with") if turn == 0 else ("with", "without"):
            noisy = side == "with" and not self.args.others_only
            once[side], his = self.phase(self.sides[side], self.share / 4, SHARES * self.share, noisy)
            self.his += his
        self.pairs.append({key: ratio(told(once["with"]), told(once["without"]), key)["all"] for key in ("p50_ms", "p99_ms")})

    def result(self):
        tell = {side: told(self.sides[side]["answers"]) for side in self.sides}
        share_of = {what: {side: round(statistics.mean(self.sides[side][what]), 3) for side in self.sides} for what in ("server", "others", "his")}
        ratios = [pair["p99_ms"] for pair in self.pairs]
        return {"bench": "noisy", "load": os.getloadavg()[0], "members": self.f.count, "others": OTHERS, "rounds": len(self.pairs),
                "connections": self.args.connections, "capacity_rps": round(self.capacity), "share_rps": round(self.share),
                "others_rps_each": round(self.share / 4, 1), "noisy_asks_rps": round(SHARES * self.share),
                "noisy_answered_rps": round(len(self.his) / self.args.seconds / max(1, len(self.pairs))),
                "noisy_statuses": {str(s): sum(a[2] == s for a in self.his) for s in {a[2] for a in self.his}},
                "others_failed": sum(a[2] >= 300 for s in self.sides.values() for a in s["answers"]),
                "server": share_of["server"], "client": {"others": share_of["others"], "his": share_of["his"], "others_late_p99_ms": {
                    side: round(statistics.median(self.sides[side]["late"]), 2) for side in self.sides}},
                **tell, "p99_ratio": ratio(tell["with"], tell["without"], "p99_ms"), "p50_ratio": ratio(tell["with"], tell["without"], "p50_ms"),
                "p99_ratio_median": round(statistics.median(ratios), 2), "p99_ratio_of_rounds": ratios}


def main():
    options = argparse.ArgumentParser()
    for name, default in (("--rounds", 16), ("--seconds", 2), ("--connections", 64), ("--objects", 2000), ("--members", 1)):
        options.add_argument(name, type=int, default=default)
    options.add_argument("--folder")
    options.add_argument("--others-only", action="store_true")
    args = options.parse_args()
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    program = os.path.join(os.environ.get("HANSE_BUILD_DIR") or os.path.dirname(hanse), "bench", "lib", "asker")
    if not os.access(program, os.X_OK):
        print(f"{program} is not there: cmake --build --preset release --target bench_asker")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-noisy-", dir=args.folder)
    f = Federation(hanse, "/bin/false", folder, targets=(), members=args.members)
    try:
        bench = Bench(f, program, args)
        bench.begin()
        for _ in range(args.rounds):
            bench.round()
        print(json.dumps(bench.result()))
    finally:
        f.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

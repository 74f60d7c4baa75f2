#!/usr/bin/env python3
"""What one user who asks for ten times his share costs the others. Ten users and the noisy one; a share is an eleventh of what the
server was measured to answer the noisy one alone. The ten ask for a quarter of their share each, at set times (latency counts from
then); he asks for ten shares at once, over CONNECTIONS connections; both, and without him, in turn in one run. Reads, small writes, and
pages of a list. His client runs at nice 15: elsewhere it would be another machine. Prints one JSON object.
Options: --rounds N (8), --seconds N of a phase (2), --connections N (64), --objects N (2000), --others-only (nothing noisy: how far two
equal phases are apart)."""
import argparse
import json
import multiprocessing
import os
import random
import selectors
import shutil
import socket
import ssl
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

BASE = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
OPERATIONS = "/apis/hanse.dev/v1alpha1/operations"
OTHERS, SHARES = 10, 10
MIX = (("read", 0.5), ("write", 0.4), ("list", 0.1))
SETTLE_S = 0.7  # of each phase: not counted


class Line:
    """One connection; one request at a time."""

    def __init__(self, at, context, token):
        self.s = context.wrap_socket(socket.create_connection(at, timeout=20), server_hostname="localhost")
        self.s.setblocking(False)
        self.token, self.got, self.what = token, b"", None

    def ask(self, what, objects, pick):
        n = pick.randrange(objects)
        if what == "read":
            head, body = f"GET {BASE}/d{n}?resourceVersion=0", ""
        elif what == "list":
            head, body = f"GET {BASE}?limit=100&resourceVersion=0", ""
        else:
            head = f"PATCH {BASE}/d{n}?fieldManager=noisy"
            body = json.dumps({"metadata": {"annotations": {"n": str(pick.randrange(1 << 30))}}})
        more = f"Content-Type: application/merge-patch+json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.what, self.got, self.begun = what, b"", time.perf_counter()
        self.s.send(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n{more}\r\n{body}".encode())

    def read(self):
        """The status, once the answer is whole; None before."""
        try:
            while True:
                piece = self.s.recv(262144)
                if not piece:
                    raise Failure("a connection was ended")
                self.got += piece
        except ssl.SSLWantReadError:
            pass
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return None
        at = head.find(b"Content-Length: ")
        whole = len(body) >= int(head[at + 16:].split(b"\r\n", 1)[0]) if at >= 0 else body.endswith(b"0\r\n\r\n")
        return int(head[9:12]) if whole else None


def chosen(pick):
    x = pick.random()
    for what, part in MIX:
        x -= part
        if x < 0:
            return what
    return MIX[0][0]


def drive(pipe, at, ca, tokens, each, rate, seconds, objects, nice, seed):
    """Each token asks `rate` times a second (None: as fast as it is answered) over `each` connections; sends [(what, s, status)]."""
    os.nice(nice)
    pick, context = random.Random(seed), ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    waiting, choose = selectors.DefaultSelector(), []
    for token in tokens:
        free = [Line(at, context, token) for _ in range(each)]
        for line in free:
            waiting.register(line.s, selectors.EVENT_READ, line)
            line.user = len(choose)
        choose.append({"free": free, "late": [], "next": 0.0})
    pipe.send("ready")
    start = pipe.recv()
    for user in choose:
        user["next"] = start + (pick.random() / rate if rate else 0)
    answers, end = [], start + seconds
    while (now := time.perf_counter()) < end:
        soonest = end
        for user in choose:
            while rate and user["next"] <= now:
                user["late"].append(user["next"])
                user["next"] += 1 / rate
            while user["free"] and (user["late"] or not rate):
                due = user["late"].pop(0) if rate else now
                line = user["free"].pop()
                line.due = due
                line.ask(chosen(pick), objects, pick)
            if len(user["late"]) > 20 * each:  # he gives up on what is older
                del user["late"][:-each]
            soonest = min(soonest, user["next"] if rate else end)
        for key, _ in waiting.select(max(0, min(soonest, end) - time.perf_counter())):
            line = key.data
            status = line.read()
            if status is not None:
                done = time.perf_counter()
                if line.due > start + SETTLE_S:
                    answers.append((line.what, done - line.due, status))
                choose[line.user]["free"].append(line)
    pipe.send(answers)


class Driver:
    def __init__(self, *args):
        self.pipe, there = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=drive, args=(there, *args), daemon=True)
        self.process.start()
        if self.pipe.recv() != "ready":
            raise Failure("a client did not begin")

    def answers(self):
        got = self.pipe.recv()
        self.process.join(20)
        return got


def p(values, part):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * part))] * 1000, 2) if values else None


def told(answers):
    took = {what: [s for w, s, status in answers if w == what and status < 300] for what, _ in MIX}
    took["all"] = [s for _, s, status in answers if status < 300]
    return {what: {"n": len(v), "p50_ms": p(v, 0.5), "p99_ms": p(v, 0.99)} for what, v in took.items()}


class Bench:
    def __init__(self, f, args):
        self.f, self.args, self.seed = f, args, 1

    def ask(self, method, path, body):
        connection = self.f.login.connect(self.url, timeout=20)
        connection.request(method, path, json.dumps(body), {**self.f.login.headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status not in (200, 201):
            raise Failure(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text)

    def phase(self, rate, noisy_rate, noisy=True, nice=15):
        """(the others' answers, his)"""
        drivers, ca = [], os.path.join(self.f.path("pki"), "ca.crt")
        self.seed += 2
        seconds = self.args.seconds + SETTLE_S
        common = (self.at, ca)
        if rate:
            drivers.append(Driver(*common, self.tokens[1:], 4, rate, seconds, self.args.objects, 0, self.seed))
        if noisy:
            drivers.append(Driver(*common, self.tokens[:1], self.args.connections, noisy_rate, seconds, self.args.objects, nice, self.seed + 1))
        start = time.perf_counter() + 0.3
        for d in drivers:
            d.pipe.send(start)
        got = [d.answers() for d in drivers]
        return got[0] if rate else [], got[-1] if noisy else []

    def run(self):
        self.f.start_members()
        self.url = wait_for("a member", lambda: next((m["url"] for m in self.f.members() if m["role"] == "leader"), None), 20)
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        self.at = (host, int(port))
        self.tokens = [self.ask("POST", f"{OPERATIONS}/token.create", {"user": f"user-{i}", "groups": "system:masters"})["token"]
                       for i in range(OTHERS + 1)]
        for first in range(0, self.args.objects, 500):
            self.ask("POST", "/apis/hanse.dev/v1alpha1/apply", {"set": f"s{first}", "documents": [
                {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": f"d{i}", "namespace": "default"},
                 "spec": {"source": "x" * 200}} for i in range(first, min(first + 500, self.args.objects))]})
        _, alone = self.phase(0, None, nice=0)
        capacity = len(alone) / self.args.seconds
        share = capacity / (OTHERS + 1)
        sides, pairs, his = {"without": [], "with": []}, [], []
        for i in range(self.args.rounds):
            once = {}
            for side in ("without", "with") if i % 2 == 0 else ("with", "without"):
                noisy = side == "with" and not self.args.others_only
                once[side], got = self.phase(share / 4, SHARES * share, noisy)
                sides[side] += once[side]
                his += got
            pairs.append(round(told(once["with"])["all"]["p99_ms"] / told(once["without"])["all"]["p99_ms"], 2))
        without, with_ = told(sides["without"]), told(sides["with"])
        statuses = {str(s): sum(a[2] == s for a in his) for s in {a[2] for a in his}}
        return {"bench": "noisy", "load": os.getloadavg()[0], "members": self.f.count, "others": OTHERS, "rounds": self.args.rounds,
                "connections": self.args.connections, "capacity_rps": round(capacity), "share_rps": round(share),
                "others_rps_each": round(share / 4, 1), "noisy_asks_rps": round(SHARES * share),
                "noisy_answered_rps": round(len(his) / self.args.seconds / self.args.rounds), "noisy_statuses": statuses,
                "others_failed": sum(a[2] >= 300 for s in sides.values() for a in s),
                "without": without, "with": with_,
                "p99_ratio": {what: round(with_[what]["p99_ms"] / without[what]["p99_ms"], 2) for what in with_ if with_[what]["n"] and without[what]["n"]},
                "p50_ratio": {what: round(with_[what]["p50_ms"] / without[what]["p50_ms"], 2) for what in with_ if with_[what]["n"] and without[what]["n"]},
                "p99_ratio_of_rounds": pairs}


def main():
    options = argparse.ArgumentParser()
    for name, default in (("--rounds", 8), ("--seconds", 2), ("--connections", 64), ("--objects", 2000), ("--members", 1)):
        options.add_argument(name, type=int, default=default)
    options.add_argument("--others-only", action="store_true")
    args = options.parse_args()
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    folder = tempfile.mkdtemp(prefix="hanse-noisy-")
    f = Federation(hanse, "/bin/false", folder, targets=(), members=args.members)
    try:
        print(json.dumps(Bench(f, args).run()))
    finally:
        f.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

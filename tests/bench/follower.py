#!/usr/bin/env python3
"""A lone write at a follower beside one at the leader, in turn, at three members: medians and the ninth decile in milliseconds, the
follower's ratio to the leader's, the same for a read after each, and a leader's write right after a follower's. Prints one JSON object.
Arguments: ROUNDS (200)."""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

BASE = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
PAUSE_S = 0.03  # a lone write: nothing else is under way when it comes


class Bench:
    def __init__(self, f, rounds):
        self.f, self.rounds, self.ms = f, rounds, {}

    def ask(self, name, connection, method, path, body=None, kind="application/merge-patch+json"):
        began = time.perf_counter()
        connection.request(method, path, json.dumps(body) if body else None, {**self.f.login.headers, "Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read()
        self.ms.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        if answer.status not in (200, 201):
            raise Failure(f"{method} {path}: {answer.status} {text[:200]!r}")

    def write(self, name, connection, i):
        self.ask(name, connection, "PATCH", f"{BASE}/one?fieldManager=bench", {"spec": {"source": f"{name}-{i}"}})

    def run(self):
        self.f.start_members()
        members = wait_for("three members", lambda: len(self.f.members()) == 3 and self.f.members(), 20)
        leader = self.f.login.connect(next(m["url"] for m in members if m["role"] == "leader"), timeout=60)
        follower = self.f.login.connect(next(m["url"] for m in members if m["role"] != "leader"), timeout=60)
        self.ask("create", leader, "POST", BASE, {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": "one"},
                                                  "spec": {"source": "-"}}, "application/json")
        for i in range(self.rounds):
            for side, connection in (("leader", leader), ("follower", follower)):
                time.sleep(PAUSE_S * (1 + i % 4))
                self.write(f"{side}_write", connection, i)
                self.ask(f"{side}_read", connection, "GET", f"{BASE}/one")
            time.sleep(PAUSE_S)
            self.write("follower_write_first", follower, i)
            self.write("leader_write_after", leader, i)
        out = {"bench": "follower", "rounds": self.rounds, "load": os.getloadavg()[0]}
        for name, v in self.ms.items():
            if len(v) > 1:
                out[name] = {"p50_ms": round(statistics.median(v), 2), "p90_ms": round(statistics.quantiles(v, n=10)[8], 2)}
        for what in ("write", "read"):
            out[f"{what}_ratio"] = round(out[f"follower_{what}"]["p50_ms"] / out[f"leader_{what}"]["p50_ms"], 2)
        return out


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("set HANSE or HANSE_BUILD_DIR", file=sys.stderr)
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-follower-")
    f = Federation(hanse, "/bin/false", folder, targets=())
    try:
        print(json.dumps(Bench(f, int(sys.argv[1]) if len(sys.argv) > 1 else 200).run()))
    finally:
        f.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A gang at position 1 under a stream of small jobs of the same priority, of which some are always ready to take each GPU that
falls free: it starts once what ran when it came has ended, and says meanwhile where its room is kept. So does one whose queue has used
more than that of the small jobs, which begin one after the other where the room is not kept on. Exit 1 when any check failed."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, run, wait_for  # noqa: E402

GPUS, SLEEP, MOST = 4, 3, 20
NODES = {"left": {"left-n1": GPUS}}


def job(name, seconds, workers=1, **spec):
    return document("Workload", name, {
        "priorityClassName": "batch", "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": "100m", "memory": "16Mi"},
        "gang": {"workers": workers}, "run": {"command": ["sleep", str(seconds)]}, **spec}, namespace="default")


class Stream(threading.Thread):
    """Four small jobs come each second, more than can run."""

    def __init__(self, p, **spec):
        super().__init__(daemon=True)
        self.p, self.spec, self.n, self.over = p, spec, 0, threading.Event()

    def come(self):
        self.p.apply(*(job(f"small-{self.n + i}", SLEEP, **self.spec) for i in range(GPUS)))
        self.n += GPUS

    def run(self):
        while not self.over.wait(1):
            self.come()


def gang_under_a_stream(p):
    stream = Stream(p)
    stream.come()
    stream.come()
    wait_for("every GPU to be in use", lambda: sum(s["status"].get("phase") == "Running" for s in listed(p)) == GPUS, 20)
    p.apply(job("gang", 1, workers=GPUS))
    began = time.monotonic()
    stream.start()
    told = wait_for("the gang to say that room is kept for it", lambda: (
        t := p.cli("explain", "gang", check=False).stdout) and "Room is kept for it on left" in t and t, MOST)
    p.check("explain says where its room is kept, and until when it waits at most", "Start estimate" in told, told[-300:])
    wait_for("the gang to start", lambda: p.status("gang").get("startedAt") or p.status("gang").get("phase") == "Succeeded", MOST)
    took = time.monotonic() - began
    stream.over.set()
    stream.join()
    at = p.status("gang")["startedAt"]
    # Small jobs that were there first go first; none that came after the gang passes it.
    passed = [w["metadata"]["name"] for w in listed(p) if w["metadata"]["name"].startswith("small-") and
              int(w["metadata"]["name"][6:]) >= 2 * GPUS and w["status"].get("startedAt", "9") < at]
    p.check("it starts when those who were there before it have ended", took < MOST, f"{took:.1f} s")
    p.check("none of those who came after it passed it", not passed, passed)
    p.check("who came after it runs after it", wait_for("a small job to run", lambda: any(
        w["status"].get("startedAt", "") > at for w in listed(p)), 30))


def gang_of_a_queue_that_has_used_more(p):
    p.apply(document("Queue", "used", {"weight": 1}), document("Queue", "fresh", {"weight": 1}))
    p.apply(*(job(f"before-{i}", 5, queue="used") for i in range(GPUS)))
    wait_for("every GPU to be in use", lambda: sum(s["status"].get("phase") == "Running" for s in listed(p)) == GPUS, 20)
    p.apply(job("late", 1, workers=GPUS, queue="used"))
    time.sleep(1)
    p.apply(*(job(f"other-{i}", 2, queue="fresh") for i in range(3 * GPUS)))
    at = wait_for("the gang to start", lambda: p.status("late").get("startedAt"), MOST)
    others = wait_for("the others to start", lambda: (
        t := [w["status"].get("startedAt") for w in listed(p) if w["metadata"]["name"].startswith("other-")]) and all(t) and t, 40)
    p.check("no small job of a queue that has used less begins ahead of it", min(others) >= at, f"{sum(o < at for o in others)} did")


def listed(p):
    return [w for w in json.loads(p.cli("get", "workloads", "-o", "json").stdout)["items"] if w.get("status")]


if __name__ == "__main__":
    sys.exit(run((gang_of_a_queue_that_has_used_more, gang_under_a_stream), kind=Moves, nodes=NODES, targets=("left",)))

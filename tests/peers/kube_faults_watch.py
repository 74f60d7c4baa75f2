#!/usr/bin/env python3
"""The watches of a target are cut 250 times (--cuts N) while runs of it live, others come and end, and its objects change: by resets, in
mid-stream and as at a server's own time limit. Nothing is evicted, nothing runs twice, every end is told, and the target is never out of
reach."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import JOBS, PODS, Hub  # noqa: E402
from parts import run  # noqa: E402

MERGE = "application/merge-patch+json"
HOW, WATCH = ("reset", "close", "end"), "[?&]watch=1"


class Watch(Hub):
    ends, cuts = False, 250

    def touch(self, name, turn):
        """A watch that has told something goes on at once when it is cut."""
        for pod in self.history.there("pods", self.uid(name)):
            self.peer.call("PATCH", f"{PODS}/{pod.name}", {"metadata": {"annotations": {"turn": str(turn)}}}, kind=MERGE)
        for job in self.history.there("jobs", self.uid(name)):
            self.peer.call("PATCH", f"{JOBS}/{job.name}", {"metadata": {"annotations": {"turn": str(turn)}}}, kind=MERGE)
        self.peer.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {"turn": str(turn)}}}, kind=MERGE)

    def lives(self, *names):
        """Each as it began, and in its first epoch."""
        bad = {n: s for n in names if (s := self.status(n)).get("phase") != "Running" or s.get("epoch") != 1}
        self.check("all of them run, each in its first epoch", not bad, bad)

    def cut_time_and_again(self):
        names, more, cuts, turn = [f"cut{i}" for i in range(6)], [], 0, 0
        self.work(*names)
        for n in names:
            self.phase(n, "Running")
        before = self.reach().get("lastTransitionTime")
        while cuts < self.cuts:
            turn += 1
            if turn % 8 == 0 and len(more) < 6:  # work comes and goes meanwhile
                more.append(f"amid{len(more)}")
                self.work(more[-1])
                self.finish(more[-1])
            self.looks("three watches", lambda: self.proxy.stats()["watches"] >= 3, 60, 0.02)
            self.touch(names[0], turn)
            cuts += self.proxy.cut(WATCH, HOW[turn % 3])
        self.lives(*names)
        for n in more:
            self.ended(n)
        self.check("work that came meanwhile was there", more)
        for n in names:
            self.finish(n)
        self.all_ended(names)
        self.once(*names, *more)
        self.check("it was never out of reach", self.reach().get("lastTransitionTime") == before, self.reach())
        self.clean()
        print(f"    {cuts} watches were cut")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cuts", type=int, default=Watch.cuts)
    Watch.cuts = words.parse_args().cuts
    sys.exit(run(Watch, "kube-watch", [Watch.cut_time_and_again]))

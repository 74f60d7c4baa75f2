#!/usr/bin/env python3
"""The hub dies by SIGKILL between two writes of a run's life to the API server, each of them once: ahead of the first one, and once each has
had its effect and is not answered (--all: also ahead of each). Another one begins with what the log and the cluster say; the run runs once,
ends, and nothing of it is left."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import Hub  # noqa: E402
from parts import run  # noqa: E402

# The writes of a run of one pod: Secret, Job, its admission, the gate; Secret gone, the end, Job gone, pod deleted, pod let go.
BEGINS = (("POST", r"/secrets\b"), ("POST", r"/jobs\b"), ("PATCH", "/jobs/"), ("PATCH", "/pods/"))
ENDS = (("DELETE", "/secrets/"), ("PATCH", "/jobs/"), ("DELETE", "/jobs/"), ("DELETE", "/pods/"), ("PATCH", "/pods/"))


class Killed(Hub):
    ends, all = False, False

    def dies_at(self, method, path, after, begins):
        """Once that write is under way."""
        rule = self.proxy.rule(do="hang", method=method, path=path, after=after)
        begins()
        self.looks(f"{method} {path}", lambda: self.proxy.hits(rule), every=0.05)
        if after:
            self.looks("its effect", lambda: next(x for x in self.proxy.log() if x["rule"] == rule)["status"], every=0.05)
        self.kill_leader()
        self.proxy.drop()
        self.looks("another leader", lambda: self.cli("status", check=False).returncode == 0)

    def each(self, writes):
        return [(i, *write, after) for i, write in enumerate(writes) for after in (False, True) if after or self.all or writes is BEGINS and not i]

    def at_each_write_of_a_beginning(self):
        names = []
        for i, method, path, after in self.each(BEGINS):
            names.append(f"begin{i}{int(after)}")
            self.dies_at(method, path, after, lambda: self.work(names[-1]))
            self.phase(names[-1], "Running")
            self.finish(names[-1])
            self.ended(names[-1])
        self.once(*names)
        self.clean()

    def at_each_write_of_an_end(self):
        names = []
        for i, method, path, after in self.each(ENDS):
            names.append(f"end{i}{int(after)}")
            self.work(names[-1])
            self.phase(names[-1], "Running")
            self.dies_at(method, path, after, lambda: self.finish(names[-1]))
            self.ended(names[-1])
        self.once(*names)
        self.clean()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--all", action="store_true")
    Killed.all = words.parse_args().all
    sys.exit(run(Killed, "kube-hub", [Killed.at_each_write_of_a_beginning, Killed.at_each_write_of_an_end]))

#!/usr/bin/env python3
"""Somebody puts older copies of the data of all three members back in place, by hand, after work has moved on. What the copies do not
know runs on, what they would start anew runs already: nothing may run twice, and nothing be ended. Prints ok or FAILED per check."""
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from moves import Moves, run  # noqa: E402
from federation import descendants, start_time, wait_for  # noqa: E402

MEMBERS = ("m1", "m2", "m3")
QUIET = 8  # seconds: longer than it takes to place what waits


class PutBack(Moves):
    def hub_down(self):
        """All members are killed, as by a power cut."""
        below = list(descendants(self.dev.pid))
        self.dev.kill()
        self.dev.wait()
        wait_for("the members to be dead", lambda: all(start_time(pid) != begun for pid, begun in below), 10)

    def hub_up(self, *reached):
        os.unlink(self.path("kubeconfig"))
        self.start_members()
        wait_for(f"{reached} to be connected again", lambda: self.connected() >= set(reached), 40)

    def copy(self):
        for name in MEMBERS:
            shutil.rmtree(self.path("scratch", "copy-" + name), ignore_errors=True)
            shutil.copytree(self.path(name), self.path("scratch", "copy-" + name))

    def put_back(self):
        for name in MEMBERS:
            shutil.rmtree(self.path(name))
            shutil.copytree(self.path("scratch", "copy-" + name), self.path(name))

    def agent_down(self, target):
        """Its agent alone: what runs there goes on by its lease."""
        self.note_processes()
        agent = self.agents.pop(target)
        agent.kill()
        agent.wait()

    def cluster(self):
        return json.loads(self.cli("status", "-o", "json").stdout)["cluster"]

    def quiet(self, names):
        before = {n: len(self.lives(n)) for n in names}
        time.sleep(QUIET)
        for n in names:
            now = self.lives(n)
            self.check(f"{n} is left alone", len(now) == before[n] and not now[-1].stopped, f"{len(now)} lives")


def an_older_copy_is_put_back(p):
    p.train("rides", 3000)
    p.train("waits", 2500, suspend=True)
    p.train("moves", 3000)
    for name in ("rides", "moves"):
        p.saved(name)
    was = p.cluster()
    p.hub_down()
    p.copy()
    p.hub_up("left", "right")

    # Work goes on elsewhere, and only `left` hears of it while `right` runs it.
    p.cli("cordon", "left")
    p.cli("migrate", "moves", "--to", "right", "--wait", timeout=60)
    p.suspend("waits", False)
    p.train("later", 2500)
    for name, epoch in (("waits", 1), ("later", 1), ("moves", 2)):
        p.check(f"{name} runs on right", p.running(name, epoch).target == "right")
    time.sleep(2)  # a beat of the hub's, so that left has heard how far it is
    p.agent_down("right")
    p.hub_down()
    p.put_back()
    p.hub_up("left")
    wait_for("the hub to see that its state went back", lambda: p.cluster() != was, 30)
    p.check("it is the same line", p.cluster().split(".")[0] == was.split(".")[0], p.cluster())
    if p.workloads()["waits"]["spec"].get("suspend"):
        p.suspend("waits", False)  # as its owner does again
    p.quiet(("rides", "waits", "moves", "later"))
    p.start_agent("right")
    wait_for("right to be connected again", lambda: "right" in p.connected(), 30)
    p.quiet(("rides", "waits", "moves", "later"))

    done = p.cli("recover", "--from-targets", timeout=60)
    p.check("what runs is taken over", "settled" in done.stdout, done.stdout + done.stderr)
    p.check("nothing was started twice", all(len(p.lives(n)) == k for n, k in (("rides", 1), ("waits", 1), ("later", 1), ("moves", 2))))
    for name, epochs in (("rides", [1]), ("waits", [1]), ("moves", [1, 2]), ("later", [1])):
        p.holds(name, epochs)
    p.train("new", 200)
    p.holds("new", [1])


if __name__ == "__main__":
    sys.exit(run((an_older_copy_is_put_back,), kind=PutBack, members=3))

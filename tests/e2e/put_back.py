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
        wait_for("the members to be dead", lambda: all(start_time(pid) != begun for pid, begun in below), 30)  # the disk may be busy

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

    def orphans(self):
        return json.loads(self.cli("get", "orphans", "-o", "json").stdout)["items"]

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


def who_knows_comes_second(p):
    """The first target to come back was away since before the copy; what it would be given runs on the other one."""
    p.apply({**(d := p.target_document("right")), "spec": {**d["spec"], "partition": {"suspectAfter": "3m", "lease": "5m"}}})
    p.train("second", 2500, suspend=True)
    was = p.cluster()
    p.agent_down("left")
    wait_for("left to be out of reach", lambda: "left" not in p.connected(), 30)
    p.hub_down()
    p.copy()
    p.hub_up("right")
    p.suspend("second", False)
    p.cli("cordon", "left")
    p.check("it runs on right", p.running("second", 1).target == "right")
    time.sleep(2)
    p.agent_down("right")
    p.hub_down()
    p.put_back()
    p.start_agent("left")
    p.hub_up("left")
    p.suspend("second", False)  # as its owner does again
    p.quiet(("second",))
    p.check("left, which knows nothing newer, was not asked to start it", p.cluster() == was and p.status("second")["phase"] in ("Queued", "Reserved"),
            f"{p.cluster()} {p.status('second')['phase']}")
    p.train("fresh", 200)
    p.holds("fresh", [1])  # new work does not wait
    p.start_agent("right")
    wait_for("the hub to see that its state went back", lambda: p.cluster() != was, 30)
    p.quiet(("second",))
    wait_for("what runs to be taken over", lambda: "settled" in p.cli("recover", "--from-targets", timeout=60, check=False).stdout, 30)
    p.holds("second", [1])


def one_run_is_adopted(p):
    """The hub's data is gone; one run is taken over by name, one is ended, one is left where it is."""
    for name in ("mine", "theirs"):
        p.train(name, 1800)
        p.saved(name)
    p.hub_down()
    for name in MEMBERS:
        shutil.rmtree(p.path(name))
    os.unlink(p.path("kubeconfig"))
    p.start_members()
    p.apply(*map(p.target_document, p.targets), *p.policies())
    wait_for("all targets to be connected again", lambda: p.connected() >= set(p.targets), 40)
    found = {}
    wait_for("what runs to be listed", lambda: found.update({o["workload"]: o for o in p.orphans() if o["state"] == "running"}) or
             {"mine", "theirs"} <= set(found), 20)
    at, key = found["mine"]["target"], found["mine"]["key"]
    asked = p.cli("orphans", "adopt", at, key, check=False)
    p.check("adopting asks for --yes", asked.returncode != 0 and "--yes" in asked.stderr, asked.stderr.strip())
    p.check("and did nothing", "mine" not in p.workloads())
    none = p.cli("orphans", "adopt", at, "0b6ff7a6-1d9c-4a57-a3a4-0f8a4ad0c7a1.3.1", "--yes", check=False)
    p.check("what is not listed is not adopted", none.returncode != 0 and "no orphan" in none.stderr, none.stderr.strip())
    p.train("theirs", 1800)  # another one of the name of one that runs: its owner did not wait
    wait_for("it to be placed", lambda: p.status("theirs").get("phase") == "Running", 30)
    refused = p.cli("orphans", "adopt", found["theirs"]["target"], found["theirs"]["key"], "--yes", check=False)
    p.check("nor is one whose name another has", refused.returncode != 0 and "exists" in refused.stderr, refused.stderr.strip())
    done = p.cli("orphans", "adopt", at, key, "--yes")
    p.check("one run is adopted", "default/mine: running" in done.stdout, done.stdout + done.stderr)
    again = p.cli("orphans", "adopt", at, key, "--yes", check=False)
    p.check("once", again.returncode != 0, again.stderr.strip())
    events = json.loads(p.cli("get", "events", "-n", "hanse-system", "-o", "json").stdout)["items"]
    p.check("who said so is in the log", any(e["reason"] == "OrphanAdopted" and key in e["message"] for e in events))
    p.running("mine", 1)
    p.holds("mine", [1])
    # what has ended ahead of this part is listed, too
    wait_for("the other one to be left on the list alone",
             lambda: [o["key"] for o in p.orphans() if o["state"] == "running"] == [found["theirs"]["key"]], 30)


if __name__ == "__main__":
    sys.exit(run((an_older_copy_is_put_back, who_knows_comes_second, one_run_is_adopted), kind=PutBack, members=3))

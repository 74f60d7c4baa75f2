#!/usr/bin/env python3
"""The hub comes back from a backup, and what was deleted stays away: what was deleted ahead of the backup, though its target still keeps
the record of its run; and what is deleted while recovery is open, though a target that is silent still runs it. Prints ok or FAILED per
check."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from drill import MEMBERS, QUIET, run, wait_for  # noqa: E402
from drill_backup import Hub  # noqa: E402


class Deleted(Hub):
    def agent_down(self, target):
        """Its agent alone: what runs there goes on by its lease."""
        self.note_processes()
        agent = self.agents.pop(target)
        agent.kill()
        agent.wait()

    def restored(self, file, folder):
        self.kill_members()
        done = self.restore(file, self.path(folder))
        self.check("it is restored", done.returncode == 0, done.stdout + done.stderr)
        self.start_member(1, self.path(folder))
        wait_for("the member to lead", lambda: self.cli("status", check=False, timeout=40).returncode == 0, 30)

    def workload(self, name):
        return self.workloads().get(name)

    def gone(self, name, lives, seconds=30):
        wait_for(f"{name} to be gone", lambda: name not in self.workloads() and self.lives(name)[-1].stopped, seconds)
        self.check(f"{name} has not run again", len(self.lives(name)) == lives, f"{len(self.lives(name))} lives")

    def waits_for_settling(self, name):
        found = wait_for(f"{name} to be told as being deleted", lambda: (o := self.workload(name)) and
                         o["metadata"].get("deletionTimestamp") and o, 20)
        self.check(f"{name} waits, and says why", found["status"]["reason"] == "Recovering" and "it is deleted" in found["status"]["message"],
                   json.dumps(found["status"].get("message")))
        told = self.cli("describe", "workload", name).stdout
        self.check(f"{name} is described so", "it is deleted, and goes once recovery is settled" in told, told[-600:])


def deleted_before(p):
    """The target keeps the record of each ended run. It was stopped, so it would be queued again."""
    file = p.path("scratch", "one.hsb")
    for name in ("rides", "gone", "later", "newer"):
        p.train(name, 20000)
    for name in ("rides", "gone", "later", "newer"):
        p.saved(name)
    p.cli("delete", "workload", "gone")
    p.gone("gone", 1)
    p.cli("backup", "-o", file)
    p.cli("delete", "workload", "newer")  # the backup has it: it comes back, once
    p.gone("newer", 1)
    p.lose_hub(*MEMBERS)
    p.restored(file, "first")
    wait_for("all targets to be connected again", lambda: p.connected() >= set(p.targets), 40)
    found = {o["workload"]: o for o in p.all_listed()["items"]}
    p.check("the record of the deleted one is listed, and why", found.get("gone", {}).get("why") == "of a Workload that was deleted" and
            found["gone"]["state"] == "ended", json.dumps(found.get("gone")))
    done = p.cli("orphans", "adopt", "left", found["gone"]["key"], "--yes", check=False)
    p.check("nobody adopts it by name", done.returncode != 0 and "was deleted" in done.stderr, done.stderr)
    told = p.recover()
    p.check("it is passed over, and why", f"{found['gone']['key']} on left: passed over: its Workload was deleted" in told, told)
    p.goes_on("rides", 1, 1)
    wait_for("what was deleted after the backup to go on", lambda: len(p.lives("newer")) == 2, 60)
    wait_for("its record to be let go", lambda: not p.orphans()["items"], 30)
    time.sleep(QUIET)
    p.check("what was deleted ahead of it stays away", "gone" not in p.workloads() and len(p.lives("gone")) == 1, str(len(p.lives("gone"))))

    # Once more: a run that an ancestor began, and this state took over, knew, and let go.
    file = p.path("scratch", "two.hsb")
    for name, lives in (("later", 1), ("newer", 2)):
        wait_for(f"{name} to be running", lambda: p.status(name).get("phase") == "Running", 30)
        p.cli("delete", "workload", name)
        p.gone(name, lives)
    p.cli("backup", "-o", file)
    p.restored(file, "second")
    wait_for("all targets to be connected again", lambda: p.connected() >= set(p.targets), 40)
    p.all_listed()
    told = p.recover()
    p.check("both are passed over", told.count("passed over: its Workload was deleted") >= 2, told)
    time.sleep(QUIET)
    p.goes_on("rides", 1, 1)
    for name, lives in (("gone", 1), ("later", 1), ("newer", 2)):
        p.check(f"{name} stays away", name not in p.workloads() and len(p.lives(name)) == lives, f"{len(p.lives(name))} lives")
    p.cli("delete", "workload", "rides")
    p.gone("rides", 1)


def deleted_meanwhile(p):
    """Queued when the backup was taken; it runs on a target that is silent when it is deleted."""
    file = p.path("scratch", "three.hsb")
    p.cli("cordon", *p.targets[:1])
    p.cli("cordon", *p.targets[1:])
    for name in ("runs", "ends", "dead"):
        p.train(name, 20000)
        wait_for(f"{name} to wait", lambda: p.status(name).get("phase") in ("Queued", "Pending"), 20)
    p.cli("backup", "-o", file)
    p.cli("uncordon", "right")
    for name in ("runs", "ends", "dead"):
        p.running(name)
    p.suspend("ends", True)
    wait_for("one to have stopped", lambda: p.lives("ends")[-1].stopped, 30)
    p.agent_down("right")
    p.restored(file, "third")
    wait_for("left to be connected again", lambda: "left" in p.connected(), 40)
    for name in ("runs", "ends"):
        p.cli("delete", "workload", name)
        p.waits_for_settling(name)
    done = p.cli("recover", "--from-targets", check=False, timeout=60)
    p.check("it is not settled without the silent one", done.returncode != 0 and "right" in done.stderr, done.stderr)
    p.check("and nothing of them has gone", {"runs", "ends"} <= set(p.workloads()))
    p.start_agent("right")
    wait_for("right to be connected again", lambda: "right" in p.connected(), 40)
    p.all_listed()
    p.recover()
    p.gone("runs", 1)
    p.gone("ends", 1)
    p.goes_on("dead", 1, 1)
    p.agent_down("right")

    # The same backup again; the target is said to be dead.
    p.restored(file, "fourth")
    wait_for("left to be connected again", lambda: "left" in p.connected(), 40)
    p.cli("delete", "workload", "dead")
    p.waits_for_settling("dead")
    done = p.cli("recover", "--from-targets", "--dead", "right", timeout=60)
    p.check("recovery is settled", "settled" in done.stdout, done.stdout + done.stderr)
    wait_for("it to go", lambda: "dead" not in p.workloads(), 20)


if __name__ == "__main__":
    sys.exit(run((deleted_before, deleted_meanwhile), kind=Deleted, members=3))

#!/usr/bin/env python3
"""A Target that the state does not know: it was made after the backup, or after the copy of the data that somebody put back, and runs
what this state would start anew. Its agent dials in, is counted, and recovery waits for it. Whether a training ran, and where, is told by
its own witness file. Prints ok or FAILED per check."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from drill_backup import Hub, run, wait_for  # noqa: E402
from put_back import PutBack  # noqa: E402

SOON = 25  # seconds: in which every agent dials again
QUIET = 8


class Strangers(Hub, PutBack):
    """Of three targets `late` is made later."""

    def begin(self):
        self.made = [t for t in self.targets if t != "late"]
        self.start_members()
        self.apply(*map(self.target_document, self.made), *self.policies())
        for name in self.made:
            self.start_agent(name)
        wait_for("both targets to be connected", lambda: self.connected() >= set(self.made), 30)

    def late_comes(self):
        self.apply(self.target_document("late"))
        self.start_agent("late")
        wait_for("late to be connected", lambda: "late" in self.connected(), 30)

    def strangers(self):
        return json.loads(self.cli("status", "-o", "json", timeout=40).stdout)["brain"]["strangers"]

    def waits(self, name, *where):
        """A training that nobody has room for where it may run: its targets are cordoned."""
        for target in where:
            self.cli("cordon", target)
        self.train(name, 4000)
        wait_for(f"{name} to wait", lambda: self.status(name).get("reason"), 20)

    def runs_once(self, name):
        now = self.lives(name)
        self.check(f"{name} runs once, and was not ended", len(now) == 1 and not now[-1].stopped, f"{len(now)} lives")

    def is_recovering(self, name):
        wait_for(f"{name} to be told as one that waits for recovery", lambda: self.status(name).get("reason") == "Recovering" and
                 "hanse recover --from-targets" in self.status(name).get("message", ""), 30)


def unknown_to_a_copy(p):
    """Somebody puts an older copy of the data back by hand; only the agent of a Target that the copy does not know has heard more."""
    p.waits("held", *p.made)
    p.hub_down()
    p.copy()
    p.hub_up(*p.made)
    was = p.cluster()
    for name in p.made:
        p.agent_down(name)
    p.late_comes()
    p.check("it runs on late", p.running("held", 1).target == "late")
    time.sleep(2)  # a beat of the hub's
    p.hub_down()
    p.put_back()
    for name in p.made:
        p.start_agent(name)
    p.hub_up(*p.made)
    p.cli("uncordon", "left")
    wait_for("the hub to see that its state went back", lambda: p.cluster() != was, SOON + 10)
    wait_for("late to be counted", lambda: p.strangers() == ["late"], SOON)
    p.quiet(("held",))
    early = p.cli("recover", "--from-targets", check=False, timeout=90)
    p.check("recovery waits for late", early.returncode != 0 and "apply Target late" in early.stderr, early.stdout + early.stderr)
    p.apply(p.target_document("late"))
    wait_for("late to be connected again", lambda: "late" in p.connected(), SOON + 10)
    wait_for("what runs to be taken over", lambda: "settled" in p.cli("recover", "--from-targets", timeout=90, check=False).stdout, 60)
    p.runs_once("held")
    p.cli("delete", "workload", "held")
    wait_for("it to be gone", lambda: "held" not in p.workloads(), 60)
    p.agent_down("late")
    p.cli("delete", "target", "late")
    wait_for("late to be no Target", lambda: "late" not in p.cli("get", "targets").stdout, 30)
    p.cli("cordon", "left")


def made_after_the_backup(p):
    file = p.path("scratch", "hub.hsb")
    p.waits("queued", *p.made)
    p.waits("never", *p.made)
    p.suspend("never", True)
    p.cli("backup", "-o", file)
    p.late_comes()
    p.check("it runs on late", p.running("queued", 1).target == "late")
    p.lose_hub("m1", "m2", "m3")
    done = p.restore(file, p.path("m1"))
    p.check("who restores is told of Targets that were made since", done.returncode == 0 and "made since" in done.stdout and
            "hanse status" in done.stdout, done.stdout)
    p.start_member(1)
    wait_for("the member to lead", lambda: p.cli("status", check=False, timeout=40).returncode == 0, 30)
    p.cli("uncordon", "left")  # ahead of recover: what waits must not wait for ever, nor start before
    early = p.cli("recover", "--from-targets", check=False, timeout=90)
    p.check("recover waits for agents on their way, and says so", "waiting for agents" in early.stderr, early.stderr)
    p.check("and is not settled: late is awaited by name", early.returncode != 0 and "apply Target late" in early.stderr and
            "--dead late" in early.stderr, early.stdout + early.stderr)
    p.check("status names it, too", p.strangers() == ["late"] and "apply Target late" in p.cli("status", timeout=40).stdout)
    p.is_recovering("queued")
    wrong = p.cli("recover", "--from-targets", "--dead", "nosuch", check=False, timeout=60)
    p.check("a name of nobody is refused, and those are told that there are", wrong.returncode != 0 and "no Target nosuch" in wrong.stderr and
            all(t in wrong.stderr for t in p.targets), wrong.stderr)
    p.agent_down("right")
    p.cli("delete", "target", "right")
    wait_for("right to be gone, and awaited all the same", lambda: set(p.strangers()) == {"late", "right"}, 30)
    p.apply(p.target_document("late"))
    wait_for("late to be connected again", lambda: "late" in p.connected(), SOON + 10)
    p.quiet(("queued",))
    silent = p.cli("recover", "--from-targets", check=False, timeout=60)
    p.check("a Target that was deleted while it was silent is awaited", silent.returncode != 0 and "--dead right" in silent.stderr, silent.stderr)
    p.runs_once("queued")
    done = p.cli("recover", "--from-targets", "--dead", "right", timeout=60)
    p.check("named, recovery is settled", "settled" in done.stdout, done.stdout + done.stderr)
    p.suspend("never", False)
    p.check("what waited starts by itself", p.running("never", None).target == "left")
    p.runs_once("queued")
    p.apply(p.target_document("right"))
    p.start_agent("right")
    wait_for("right to be connected again", lambda: "right" in p.connected(), 30)
    p.check("the hub goes on with what late runs", p.status("queued")["phase"] == "Running" and p.status("queued")["epoch"] == 1,
            json.dumps(p.status("queued"))[:300])
    p.cli("delete", "workload", "never")
    p.cli("delete", "workload", "queued")
    wait_for("both to be gone", lambda: not {"never", "queued"} & set(p.workloads()), 60)


def said_to_be_dead(p):
    """The operator was wrong, or late is back from the dead: what it runs is ended once it is a Target again, and never two go on."""
    file = p.path("scratch", "again.hsb")
    for name in p.made:
        p.cli("cordon", name)
    p.agent_down("late")
    p.cli("delete", "target", "late")
    wait_for("late to be no Target", lambda: "late" not in p.cli("get", "targets").stdout, 30)
    p.waits("second", *p.made)
    p.cli("backup", "-o", file)
    p.late_comes()
    p.check("it runs on late", p.running("second", 1).target == "late")
    p.kill_members()
    for number in (1,):
        os.rename(p.path(f"m{number}"), p.path("scratch", f"old-{time.monotonic_ns()}"))
    p.restore(file, p.path("m1"))
    p.start_member(1)
    wait_for("late to be counted", lambda: p.cli("status", check=False, timeout=40).returncode == 0 and p.strangers() == ["late"], SOON + 30)
    wait_for("the others to be there", lambda: p.connected() >= set(p.made), 40)
    done = p.cli("recover", "--from-targets", "--dead", "late", timeout=90)
    p.check("an operator's word settles it", "settled" in done.stdout, done.stdout + done.stderr)
    p.cli("uncordon", "left")
    p.check("it starts anew", p.running("second", None).target == "left")
    p.apply(p.target_document("late"))
    wait_for("the older run to be ended", lambda: p.lives("second")[0].stopped, SOON + 30)
    p.check("and the newer one goes on", not p.lives("second")[-1].stopped and len(p.lives("second")) == 2)


def restored_twice(p):
    """What the first of the two started, and somebody wrongly said to be dead, is not what the second one started."""
    file = p.path("scratch", "twice.hsb")
    for name in p.made:
        p.cli("cordon", name)
    p.cli("delete", "workload", "second")
    wait_for("the one before to be gone", lambda: "second" not in p.workloads(), 60)
    p.agent_down("late")
    p.cli("delete", "target", "late")
    wait_for("late to be no Target", lambda: "late" not in p.cli("get", "targets").stdout, 30)
    p.waits("twice", *p.made)
    p.cli("backup", "-o", file)
    epochs = []
    for where, dead in (("left", []), ("right", ["--dead", "left"])):
        p.kill_members()
        os.rename(p.path("m1"), p.path("scratch", f"old-{time.monotonic_ns()}"))
        done = p.restore(file, p.path("m1"))
        p.check("it is restored", done.returncode == 0, done.stdout + done.stderr)
        p.start_member(1)
        wait_for("where it shall run to be connected", lambda: p.cli("status", check=False, timeout=40).returncode == 0 and
                 where in p.connected(), SOON + 30)
        wait_for("recovery to be settled", lambda: "settled" in p.cli("recover", "--from-targets", *dead, check=False, timeout=90).stdout, 90)
        p.cli("uncordon", where)
        wait_for(f"it to run on {where}", lambda: any(x.target == where for x in p.lives("twice")), 40)
        epochs.append(p.status("twice")["epoch"])
        if where == "left":
            p.agent_down("left")
    p.check("no epoch was begun twice", len(set(epochs)) == 2, str(epochs))
    p.start_agent("left")
    wait_for("the older run to be ended", lambda: [x.stopped for x in p.lives("twice")] == [True, False], SOON + 30)
    p.cli("delete", "workload", "twice")
    wait_for("both to be gone", lambda: "twice" not in p.workloads() and all(x.stopped for x in p.lives("twice")), 60)


if __name__ == "__main__":
    sys.exit(run((made_after_the_backup, said_to_be_dead, restored_twice), kind=Strangers, members=3, targets=("left", "right", "late")))

#!/usr/bin/env python3
"""A member that is away for a moment ends nothing: three members, each of which stands still for 1.5 s and goes on, while runs hold leases
of 12 s, one under an agent, the other under a runner that calls home. Neither is asked to end. Then the leader stands still for longer than
a lease: who is silent is given up in time, and the member that leads instead renews. Each program tells when it is asked to end.

A lease counts from up to 2.75 s before it is told, silence is noticed 3.25 s after it began, and the programs ask for 1 s to save: that
leaves 5 s for an election, a new session and a round, which take a few tenths (connectors/pace.h). The shortest lease leaves 1 to 2 s, of
which a busy machine may need more: that it is enough is shown by unit/connectors/pace, by arithmetic."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from homes import Homes  # noqa: E402
from moves import document, run, wait_for  # noqa: E402

PROGRAM = """echo "start $HANSE_EPOCH" >> "{log}"
trap 'echo "term $(cut -d" " -f1 /proc/uptime)" >> "{log}"; exit 143' TERM
while [ ! -e "{log}.end" ]; do sleep 0.1; done
"""


class Absent(Homes):
    lease, seconds = "12s", 12

    def target_document(self, name):
        found = super().target_document(name)
        found["spec"]["partition"]["lease"] = self.lease
        return found

    def submit(self, name, where):
        log = self.path("scratch", name + ".log")
        self.documents[name] = document("Workload", name, {
            "type": "batch", "resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": [where]}, "partition": {"mode": "replace"},
            "checkpoint": {"store": self.path("checkpoints"), "grace": "1s"},
            "run": {"command": ["/bin/sh", "-c", PROGRAM.format(log=log)], "retries": 0}}, namespace="default")
        self.apply(self.documents[name])

    def said(self, name):
        with open(self.path("scratch", name + ".log"), encoding="utf-8") as file:
            return file.read().split("\n")[:-1]


NAMES = {"under": "left", "home": "rack"}  # workloads, by where they run


def leases_are_held(p):
    for name, where in NAMES.items():
        p.submit(name, where)
    for name in NAMES:
        wait_for(f"{name} to hold its lease", lambda: p.status(name).get("phase") == "Running" and
                 p.status(name)["intent"].get("granted", {}).get("lease") == p.lease, 60, 0.2)
    time.sleep(3)


def away(p, member, seconds, then=4):
    role = "the leader" if member["role"] == "leader" else "a follower"
    os.kill(member["pid"], signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(member["pid"], signal.SIGCONT)
    time.sleep(then)  # each has a whole lease again
    for name in NAMES:
        said = p.said(name)
        p.check(f"{name} goes on: {role} was away for {seconds} s", said == ["start 1"], said)


def each_member_is_away_for_a_moment(p):
    for member in p.members():
        away(p, next(m for m in p.members() if m["pid"] == member["pid"]), 1.5)


def the_leader_is_away(p):
    for seconds, then in ((2.5, 4), (p.seconds + 2, p.seconds)):  # by then whatever was not renewed in time is over
        away(p, wait_for("a leader", lambda: next((m for m in p.members() if m["role"] == "leader"), None), 60), seconds, then)


if __name__ == "__main__":
    sys.exit(run((leases_are_held, each_member_is_away_for_a_moment, the_leader_is_away), kind=Absent, targets=("left",), members=3))

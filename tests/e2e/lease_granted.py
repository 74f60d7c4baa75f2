#!/usr/bin/env python3
"""Whose lease counts when documents change: the one that was granted. Two trainings are cut off. One waited, and its owner makes
it one that is replaced; of the other the Target's lease is shortened; then the leader dies. Neither may begin anew while the
first copy may live. Back in reach, the changed lease comes to the one that waited, and the next cut goes by that. The witnesses
are the trainings' own file and what the API says. Prints ok or FAILED per promise; exit 1 when any failed."""
import calendar
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Moves, run, target, wait_for, witness  # noqa: E402

TARGETS = ("left", "north", "right", "east")
NODES = {name: {f"{name}-n1": 4} for name in TARGETS}
LONG, SHORT = 30, 5   # seconds: what north grants first, and after the edit
LEASE = 6             # of the others
SILENCE = 5           # without a beat for so long, a session is over
HUB_ADDS = 1 + 5      # grace and kill time, beyond a lease
ELECTION = 3          # at most, and looking


def boottime():
    """Seconds of the clock that the witness file uses."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Granted(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=TARGETS, nodes=NODES, members=3, **pool)

    def lease_document(self, name, seconds):
        return target(name, partition={"suspectAfter": "1s", "lease": f"{seconds}s"})

    def target_document(self, name):
        return self.lease_document(name, LONG if name == "north" else LEASE)

    def go(self, name, seconds, partition, *targets):
        self.train(name, int(seconds / 0.03), pace=30, targets={"names": list(targets)}, checkpoint={"grace": "1s"},
                   **({"partition": partition} if partition else {}))

    def edit(self, name, **spec):
        self.documents[name]["spec"].update(spec)
        self.apply(self.documents[name])

    def until(self, moment):
        wait_for("the time to pass", lambda: boottime() >= moment, max(moment - boottime(), 0) + 5)

    def becomes(self, name, phase, seconds=30):
        return wait_for(f"{name} to be {phase}", lambda: (s := self.status(name)).get("phase") == phase and s, seconds)

    def still_the_first(self, name, life, why):
        s, found = self.status(name), self.lives(name)
        self.check(f"{name}: {why}", (s["phase"], s["epoch"], len(found)) == ("Unknown", 1, 1) and found[0].pid == life.pid,
                   f"{s['phase']} in epoch {s['epoch']}; " + "; ".join(map(str, found)))


def documents_change_under_what_is_cut_off(p):
    p.go("waited", 75, None, "left", "right")
    p.go("shortened", 45, {"replaceAfter": "1s"}, "north", "east")
    first = {name: p.running(name, 1, 40, 40) for name in ("waited", "shortened")}
    for name in first:
        p.saved(name)
    p.check("they begin on left and north", [first[n].target for n in first] == ["left", "north"])
    granted = {n: p.status(n)["intent"].get("granted", {}) for n in first}
    p.check("the log says what each was granted", [granted[n].get("lease") for n in first] == ["24h", f"{LONG}s"], str(granted))
    for name in ("left", "north"):
        p.cut_off(name)
    cut = boottime()
    for name in first:
        p.becomes(name, "Unknown", SILENCE + 12)
    p.edit("waited", partition={"mode": "replace", "replaceAfter": "1s"})
    p.apply(p.lease_document("north", SHORT))
    p.kill_leader()
    wait_for("another leader", lambda: p.cli("status", check=False).returncode == 0, 20)
    elected = boottime()

    # By what the documents say now both would be over.
    p.until(elected + max(SHORT, LEASE) * 1.01 + HUB_ADDS + ELECTION)
    p.check("the runner on north lives by what it was granted meanwhile", boottime() < cut + LONG, f"{boottime() - cut:.1f} s after the cut")
    p.still_the_first("waited", first["waited"], "made one that is replaced, it is waited for all the same")
    p.still_the_first("shortened", first["shortened"], "on a Target with a shorter lease now, it is waited for all the same")
    text = wait_for("describe to say until when", lambda: "LeaseRuns" in (t := p.cli("describe", "workload", "waited").stdout) and t, 10)
    said = next(line.strip() for line in text.splitlines() if "LeaseRuns" in line)
    at = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", said)
    ahead = at and calendar.timegm(time.strptime(at.group(), "%Y-%m-%dT%H:%M:%SZ")) - time.time()
    p.check("describe says until when, and what ends the wait", ahead and 24 * 3600 < ahead < 25 * 3600 and "fence" in said, said)

    new = p.running("shortened", 2, 1, LONG + HUB_ADDS + 20)
    old = p.lives("shortened")[0]
    p.check("shortened: it begins anew after the end of the old one, proved by the lease that was granted",
            old.stopped and old.end < new.begin and p.status("shortened")["ends"][-1]["proof"] == "LeaseExpired",
            f"{(new.begin - old.end) / 1e9:.1f} s between; it ended {old.end / 1e9 - cut:.1f} s after the cut")
    p.still_the_first("waited", first["waited"], "and the other waits on")


def the_change_comes_to_what_is_back(p):
    first = p.lives("waited")[0]
    p.reconnect("left")
    p.becomes("waited", "Running", 30)
    p.check("waited: back, it goes on in the same process", len(p.lives("waited")) == 1 and p.status("waited")["epoch"] == 1)
    s = wait_for("its runner to take the lease of today", lambda: (x := p.status("waited"))["intent"]["granted"]["lease"] == f"{LEASE}s" and x, 15)
    p.check("waited: its runner acknowledged the lease of today, and nothing is left on offer", "offered" not in s["intent"], str(s["intent"]))
    p.cut_off("left")
    cut = boottime()
    new = p.running("waited", 2, 1, SILENCE + LEASE + HUB_ADDS + 20)
    old = p.lives("waited")[0]
    p.check("waited: cut off again it is replaced by that lease, after its end", old.pid == first.pid and old.end < new.begin and
            old.end / 1e9 <= cut + LEASE + 0.5, f"it ended {old.end / 1e9 - cut:.1f} s after the cut, the new one began "
            f"{(new.begin - old.end) / 1e9:.1f} s later")
    for name in ("left", "north"):
        p.reconnect(name)
    p.holds("waited", [1, 2], lost=40)
    p.holds("shortened", [1, 2], lost=40)


def nothing_ran_twice(p):
    found = witness.read(p.witness)
    bad = [str(x) for x in witness.overlaps(found)] + witness.faults(found)
    p.check(f"in {len(found)} lives of all trainings no two were at once", len(found) > 1 and not bad, "; ".join(bad))


if __name__ == "__main__":
    sys.exit(run((documents_change_under_what_is_cut_off, the_change_comes_to_what_is_back, nothing_ran_twice), kind=Granted))

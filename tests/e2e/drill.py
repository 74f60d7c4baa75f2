#!/usr/bin/env python3
"""The hub is lost while work runs, and comes back: with nothing but its CA, from a backup, or with one member of three. Whether a
training ran, where, and from which step, is told by its own witness file. Prints ok or FAILED per check."""
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from moves import Moves, run  # noqa: E402
from federation import descendants, start_time, wait_for  # noqa: E402

MEMBERS = ("m1", "m2", "m3")
QUIET = 6  # seconds: longer than the first sweeps of a new leader take


class Drill(Moves):
    def lose_hub(self, *members):
        """All members are killed, as by a power cut; the data of these is gone."""
        below = [child for child in descendants(self.dev.pid)]
        self.dev.kill()
        self.dev.wait()
        wait_for("the members to be dead", lambda: all(start_time(pid) != begun for pid, begun in below), 30)  # the disk may be busy
        for name in members:
            shutil.rmtree(self.path(name))

    def come_back(self):
        """Members start as they did, and Targets are applied again; agents find them by themselves."""
        os.unlink(self.path("kubeconfig"))
        self.start_members()
        self.apply(*map(self.target_document, self.targets), *self.policies())
        wait_for("all targets to be connected again", lambda: self.connected() >= set(self.targets), 40)

    def orphans(self):
        return json.loads(self.cli("get", "orphans", "-o", "json").stdout)

    def all_listed(self):
        return wait_for("every target to tell what runs there", lambda: not (o := self.orphans())["notListed"] and o, 20)

    def cluster(self):
        return json.loads(self.cli("status", "-o", "json").stdout)["cluster"]

    def stays_quiet(self, before):
        """Nobody ends, and nobody begins, for a while."""
        time.sleep(QUIET)
        for name, lives in before.items():
            now = self.lives(name)
            self.check(f"{name} is left alone", len(now) == len(lives) and now[-1].last_step > lives[-1].last_step and
                       (not now[-1].stopped or now[-1].reason == "finished"), f"{len(now)} lives, step {now[-1].last_step} after {lives[-1].last_step}")


def all_members_lost(p):
    """Nothing is left but the CA and what the targets carry."""
    p.train("rides", 2500)
    p.train("waits", 6000)
    p.train("queued", 600)
    for name in ("rides", "waits", "queued"):
        p.saved(name)
    p.suspend("queued", True)
    wait_for("one to have stopped", lambda: p.lives("queued")[-1].stopped and p.status("queued").get("phase") == "Queued", 20)
    p.train("short", 250)
    p.running("short", 1, 20)
    was = p.cluster()
    p.lose_hub(*MEMBERS)
    p.come_back()
    before = {name: p.lives(name) for name in ("rides", "waits")}
    p.check("it is another cluster", p.cluster() != was)
    found = {o["workload"]: o for o in p.all_listed()["items"]}
    p.check("what runs is listed", {n for n, o in found.items() if o["state"] == "running"} >= {"rides", "waits"}, str(sorted(found)))
    p.check("what has stopped is listed, too", found.get("queued", {}).get("state") == "ended")
    for name, o in ((n, o) for n, o in found.items() if n in ("rides", "waits")):
        p.check(f"{name} is told with what it holds and whose it was", o["target"] == "left" and o["cluster"] == was and
                o["state"] == "running" and len(o["holds"]) == 1 and len(o["holds"][0]["gpus"]) == 1 and o["since"], json.dumps(o))
    p.stays_quiet(before)
    text = p.cli("get", "orphans", "-o", "wide").stdout
    p.check("people see it", "of another cluster" in text and was in text and "left-n" in text, text)
    done = p.cli("orphans", "end", "left", found["waits"]["key"], check=False)
    p.check("ending one asks for --yes", done.returncode != 0 and "--yes" in done.stderr, done.stderr.strip())
    wait_for("the end of it to be recorded", lambda: p.cli(
        "orphans", "end", "left", found["waits"]["key"], "--yes", check=False).returncode == 0, 20)
    wait_for("it to end", lambda: p.lives("waits")[-1].stopped, 20)
    events = json.loads(p.cli("get", "events", "-n", "hanse-system", "-o", "json").stdout)["items"]
    p.check("who said so is in the log", any(e["reason"] == "OrphanEnded" and found["waits"]["key"] in e["message"] for e in events))
    wait_for("it to leave the list", lambda: "waits" not in [o["workload"] for o in p.orphans()["items"]], 20)

    done = p.cli("recover", "--from-targets")
    p.check("what targets carry is taken over", all(f"default/{n}:" in done.stdout for n in ("rides", "short", "queued")) and
            "settled" in done.stdout, done.stdout + done.stderr)
    wait_for("nothing to be left over", lambda: not p.orphans()["items"], 20)
    p.check("what ended meanwhile is told as it ended", p.ended("short")["phase"] == "Succeeded")
    phase = wait_for("rides to be told as it is", lambda: (x := p.status("rides").get("phase")) in ("Running", "Succeeded") and x, 30)
    p.check("what runs goes on", len(p.lives("rides")) == 1 and (phase == "Succeeded" or p.status("rides").get("epoch") == 1), phase)
    p.check("one that nobody adopted is not there", "waits" not in p.workloads())
    p.holds("rides", [1])
    p.holds("short", [1])
    second = wait_for("what had stopped to go on", lambda: len(x := p.lives("queued")) > 1 and x[-1], 60)
    p.check("in an epoch above any that was seen, from what it saved", int(second.epoch) > 1000 and second.resumed > 0,
            f"epoch {second.epoch} from step {second.resumed}")
    p.holds("queued", [1, int(second.epoch)])


if __name__ == "__main__":
    sys.exit(run((all_members_lost,), kind=Drill, members=3))

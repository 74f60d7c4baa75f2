#!/usr/bin/env python3
"""What becomes of work whose target falls silent, by the policy that each asks for: wait, replace, stop, which copy stays, and
the brake. Three members, six agents, real trainings. A target is cut off by its agent standing still: nothing there is killed,
and nobody there is told. Two witnesses judge: the trainings' own file, and what the API said all the while, read every
quarter of a second. Prints ok or FAILED per promise; exit 1 when any failed. HANSE_ONLY names parts."""
import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import OVER, Failure, Moves, document, run, target, wait_for, witness  # noqa: E402

# In the order in which they are preferred: what begins on one of the first three has its other place on one of the last.
TARGETS = ("left", "north", "south", "right", "west", "east")
NODES = {name: {f"{name}-n1": 4} for name in TARGETS}
LEASE = {**dict.fromkeys(TARGETS, 8), "south": 40}
SILENCE = 5    # without a beat for so long, a session is over
SUSPECT = 1    # and so much later its work is Unknown
OVER_AFTER = 1 + 5  # grace, and what the hub adds to a lease ahead of taking it for over
INTERVAL = 40  # steps between two saves, at most: 1.2 s, where leases are 8 s
API = "/apis/hanse.dev/v1alpha1"


def boottime():
    """Seconds of the clock that the witness file uses."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Silence(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=TARGETS, nodes=NODES, members=3, **pool)
        self.history, self.over = [], threading.Event()  # of (time, workloads by name, migrations)
        self.one = threading.Lock()  # of what parts that run side by side share

    def target_document(self, name):
        return target(name, partition={"suspectAfter": f"{SUSPECT}s", "lease": f"{LEASE[name]}s"})

    def begin(self):
        super().begin()
        self.reader = threading.Thread(target=self.read_on, daemon=True)
        self.reader.start()

    def stop(self):
        self.over.set()
        super().stop()

    # ---- what the API says, all the while -----------------------------------------------------------------

    def get(self, path, method="GET", body=None, timeout=3):
        """Status and document, of the first member that answers."""
        for server in self.login.servers:
            connection = self.login.connect(server, timeout=timeout)
            try:
                connection.request(method, path, body and json.dumps(body), {**self.login.headers, "Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                continue
            finally:
                connection.close()
        raise Failure(f"no member answers {method} {path}")

    def read_on(self):
        while not self.over.wait(0.25):
            try:
                now, workloads, moves = boottime(), self.get(API + "/workloads")[1], self.get(API + "/migrations")[1]
                self.history.append((now, {w["metadata"]["name"]: w.get("status", {}) for w in workloads["items"]}, moves["items"]))
            except (Failure, KeyError):
                continue

    def told(self, name, since, until=None):
        """(time, status) of a workload as the API told it between two times."""
        return [(t, w[name]) for t, w, _ in list(self.history) if since <= t <= (until or t) and name in w]

    def phases(self, name, since):
        """Its phases since then, each once as it came."""
        all_of = [s.get("phase") for _, s in self.told(name, since)]
        return [x for i, x in enumerate(all_of) if i == 0 or x != all_of[i - 1]]

    # ---- trainings, and cuts ------------------------------------------------------------------------------

    def go(self, name, seconds, partition, *targets, gpus=1):
        """A training of about so many seconds, which may be on these targets."""
        self.train(name, int(seconds / 0.03), pace=30, gpus=gpus, targets={"names": list(targets)}, checkpoint={"grace": "1s"},
                   **({"partition": partition} if partition else {}))

    def cut(self, *targets):
        for name in targets:
            self.cut_off(name)
        return boottime()

    def heal(self, *targets):
        for name in targets:
            self.reconnect(name)
        return boottime()

    def until(self, moment, what="the time to pass"):
        wait_for(what, lambda: boottime() >= moment, moment - boottime() + 5)

    def lease_over(self, cut, life):
        """By then its lease is over by any count: the hub may have renewed it until it noticed the silence, not later; nor
        does it wait longer for one that it has granted once only."""
        return cut + SILENCE + LEASE[life.target] * 1.01 + OVER_AFTER + 3

    def becomes(self, name, phase, seconds=30):
        return wait_for(f"{name} to be {phase}", lambda: (s := self.status(name)).get("phase") == phase and s, seconds)

    def lost_moves(self, name):
        return [m for m in self.moves_of(name) if m["spec"].get("cause") == "targetLost"]

    def held(self, name):
        """Milli-GPUs that a target's nodes have given away, as `hanse status` counts them."""
        return json.loads(self.cli("status", "-o", "json").stdout)["pool"]["targets"].get(name, {})

    def stays(self, name, since, until, where, why):
        """It was Unknown in epoch 1 on its own place whenever the API was asked between two times."""
        told = self.told(name, since, until)
        odd = [f"+{t - since:.1f} s {s.get('phase')} epoch {s.get('epoch')} on {(s.get('placement') or {}).get('target')}" for t, s in told
               if (s.get("phase"), s.get("epoch"), (s.get("placement") or {}).get("target")) != ("Unknown", 1, where)]
        self.check(f"{name}: {why}", len(told) > 3 and not odd, f"{len(told)} times asked" + ("; " + "; ".join(odd[:3]) if odd else ""))

    def holds(self, *words, **more):
        with self.one:
            super().holds(*words, **more)

    def goes_on_from_what_was_found(self, name):
        """From the last step that it saved on its own, behind the cut: a person can read which, and that nobody had told it."""
        old, new = self.lives(name)[:2]
        text = self.cli("describe", "workload", name).stdout
        says = [x.strip() for x in text.splitlines() if "Resumed from" in x or "CheckpointFound" in x]
        self.check(f"{name}: it goes on from the newest step in the store", new.resumed == old.saved[-1], f"{new.resumed} of {old.saved}")
        self.check(f"{name}: describe says so", any("found in the store" in x and f"step {new.resumed}" in x for x in says) and
                   any("CheckpointFound" in x for x in says), "; ".join(says) or text[-400:])

    def one_life(self, name, life, what):
        found = self.lives(name)
        self.check(f"{name}: {what}", len(found) == 1 and found[0].pid == life.pid, "; ".join(map(str, found)))


def two_at_once_are_refused(p):
    body = document("Workload", "twice", {"type": "training", "resources": {"gpu": {"count": 1, "classes": ["h100"]}},
                                          "run": {"command": ["true"]}, "partition": {"replaceAfter": "1s", "acceptTwo": True}},
                    namespace="default")
    status, answer = p.get(API + "/namespaces/default/workloads", "POST", body)
    p.check("acceptTwo is refused, and the field is named", status in (400, 422) and "spec.partition.acceptTwo" in json.dumps(answer),
            f"{status}: {answer.get('message')}")
    p.check("it says why, and what to do", all(x in answer.get("message", "") for x in ("two copies", "leave it out")))
    del body["spec"]["partition"]["acceptTwo"]
    status, answer = p.get(API + "/namespaces/default/workloads?dryRun=All", "POST", body)
    p.check("left out as it says, it is taken", status == 201, f"{status}: {answer.get('message', '')}")
    p.check("and nothing was made meanwhile", "twice" not in p.workloads())


def wait_replace_stop(p):
    """On left one of each policy; on north one that has nowhere to go."""
    p.go("blocker", 300, None, "west", gpus=4)
    p.go("waits", 38, "wait", "left", "right")
    p.go("by-default", 36, None, "left", "right")
    p.go("stops", 26, {"stopAfter": "6s"}, "left", "right")
    names = ("waits", "by-default", "stops", "replaced", "stuck")
    first = {n: p.running(n, 1, 40, 40) for n in names[:3]}
    p.go("replaced", 16, {"replaceAfter": "1s"}, "left", "right")  # last, so that their first leases are young
    p.go("stuck", 16, {"replaceAfter": "1s"}, "north", "west")
    first.update({n: p.running(n, 1, 40, 40) for n in names[3:]})
    for name in ("replaced", "stuck"):
        p.saved(name)
    p.check("they begin on left and north", [first[n].target for n in names] == ["left"] * 4 + ["north"])
    cut = p.cut("left", "north")
    for name in names:
        s = p.becomes(name, "Unknown", SILENCE + SUSPECT + 10)
        p.check(f"{name}: Unknown once its target was silent beyond suspectAfter", s.get("reason") == "TargetUnreachable",
                s.get("message"))
    since = boottime()

    m = wait_for("a place for replaced", lambda: (x := p.lost_moves("replaced")) and x[0].get("status", {}).get("to") and x[0], 15)
    p.check("replaced: a Migration holds a place for it on right, and waits for the end of the old one",
            (m["status"]["phase"], m["status"]["from"], m["status"]["to"]) == ("Fencing", "left", "right") and
            bool(m["status"].get("placement")), json.dumps(m["status"])[:300])
    p.check("replaced: the old one is still Unknown, and holds its own", p.status("replaced")["phase"] == "Unknown" and
            p.status("replaced")["placement"]["target"] == "left")
    p.check("replaced: hanse status counts both places", p.held("left").get("held") == 4000 and p.held("right").get("held") == 1000,
            f"left {p.held('left')}, right {p.held('right')}")

    old = wait_for("the old one to end by itself", lambda: (x := p.lives("replaced")[0]).stopped and x, 20)
    p.check("replaced: it ended by its own lease", old.end / 1e9 <= cut + LEASE["left"] + 0.5, f"{old.end / 1e9 - cut:.1f} s after the cut")
    p.check("replaced: which nobody knew, so nothing was started", p.status("replaced")["phase"] == "Unknown" and len(p.lives("replaced")) == 1)
    done = wait_for("stops to end by itself", lambda: (x := p.lives("stops")[0]).stopped and x, 20)
    p.check("stops: it ended by itself within stopAfter", done.end / 1e9 <= cut + 6 + 0.5, f"{done.end / 1e9 - cut:.1f} s after the cut")
    ended = p.becomes("stops", "Stopped", 30)
    at = wait_for("that to be read", lambda: next((t for t, s in p.told("stops", cut) if s.get("phase") == "Stopped"), None), 5)
    p.check("stops: Stopped only when it could not be alive any more", at >= done.end / 1e9 and p.phases("stops", since) == ["Unknown", "Stopped"],
            f"{at - done.end / 1e9:.1f} s after its end; {p.phases('stops', since)}")
    p.check("stops: the state has the proof", ended["ends"][-1]["proof"] == "LeaseExpired",
            f"{ended.get('reason')}: {ended.get('message')}")

    new = p.running("replaced", 2, 1, 30)
    p.check("replaced: it goes on in the place that was held, after the end of the old one", new.target == "right" and old.end < new.begin,
            f"{(new.begin - old.end) / 1e9:.1f} s between")
    fenced = [t for t, w, moves in p.history if cut < t < new.begin / 1e9 and w.get("replaced", {}).get("phase") == "Unknown" and
              any(x["spec"]["workload"] == "replaced" and x.get("status", {}).get("to") == "right" for x in moves)]
    p.check("replaced: its place was held for seconds, and never before it was Unknown",
            len(fenced) > 8 and not [1 for t, w, moves in p.history if cut < t and w.get("replaced", {}).get("phase") == "Running" and
                                     w["replaced"].get("epoch") == 1 and any(x["spec"]["workload"] == "replaced" for x in moves)],
            f"{len(fenced)} times asked")
    p.check("replaced: no later than its first lease allows", new.begin / 1e9 <= p.lease_over(cut, old),
            f"{new.begin / 1e9 - cut:.1f} s after the cut, {cut - old.begin / 1e9:.1f} s after its start")
    p.check("replaced: proved by its lease", p.status("replaced")["ends"][-1]["proof"] == "LeaseExpired")
    p.check("replaced: it goes on from what it had saved", new.resumed > 0 and new.resumed in old.saved, f"step {new.resumed} of {old.saved}")
    p.move_over("replaced")
    p.check("both gave their room back", p.held("left").get("held") == 2000, str(p.held("left")))

    p.until(p.lease_over(cut, first["stuck"]))
    p.stays("stuck", since, boottime(), "north", "nothing else fits, so it keeps its place, also when its lease is long over")
    p.one_life("stuck", first["stuck"], "nothing was started elsewhere")
    text = p.cli("describe", "workload", "stuck").stdout
    p.check("stuck: it says why it is not replaced", "NotReplaced" in text and "no room elsewhere" in text,
            "; ".join(line.strip() for line in text.splitlines() if "NotReplaced" in line) or text[-600:])
    p.cli("delete", "workload", "blocker")
    second = p.running("stuck", 2, 1, 30)
    p.check("stuck: when room appears, it moves", second.target == "west" and p.move_over("stuck")["status"]["phase"] == "Succeeded" and
            p.moves_of("stuck")[-1]["spec"]["cause"] == "targetLost", second.target)

    for name in ("waits", "by-default"):
        p.stays(name, since, boottime(), "left", "Unknown all the while, and its place is kept")
    p.heal("left", "north")
    for name in ("waits", "by-default"):
        s = p.becomes(name, "Running", 30)
        p.check(f"{name}: its target is back, it is Running again in the same epoch", s["epoch"] == 1 and s["placement"]["target"] == "left" and
                not p.moves_of(name))
        p.one_life(name, first[name], "and in the same process")
    p.holds("waits", [1])
    p.holds("by-default", [1])
    for name in ("replaced", "stuck"):  # what it did after the cut was saved, nobody was told, and it was found
        p.holds(name, [1, 2], lost=INTERVAL)
        p.goes_on_from_what_was_found(name)
    p.check("stops: it stays Stopped though its target is back", p.status("stops")["phase"] == "Stopped")
    p.one_life("stops", first["stops"], "and was never started again")
    for held in (True, False):
        p.suspend("stops", held)
        p.becomes("stops", "Queued" if held else "Running", 30)
    p.check("stops: held and let go by its owner, it goes on from what it had saved",
            p.running("stops", 2, 1, 30).resumed > 0 and p.status("stops")["epoch"] == 2)
    p.holds("stops", [1, 2], lost=INTERVAL)


def which_copy_stays(p):
    """Its lease is long: it is alive when its target comes back, and the replacement is only a place."""
    for name, keep in (("keeps-old", "old"), ("keeps-default", None), ("keeps-new", "new")):
        p.go(name, 18, {"replaceAfter": "1s", **({"keep": keep} if keep else {})}, "south", "east")
    names = ("keeps-old", "keeps-default", "keeps-new")
    first = {n: p.running(n, 1, 40, 40) for n in names}
    p.saved("keeps-new")
    p.check("they begin on south", {x.target for x in first.values()} == {"south"})
    cut = p.cut("south")
    for name in names:
        wait_for(f"a place for {name}", lambda n=name: (x := p.lost_moves(n)) and x[0].get("status", {}).get("phase") == "Fencing" and
                 x[0]["status"]["to"] == "east", 20)
        p.check(f"{name}: Unknown while a place is held", p.status(name)["phase"] == "Unknown")
    back = p.heal("south")
    for name in names[:2]:
        m = p.move_over(name, 15)
        p.check(f"{name}: the Migration is Cancelled, and says why", (m["status"]["phase"], m["status"].get("reason")) == ("Cancelled", "TargetBack") and
                not m["status"].get("placement"), f"{m['status']['phase']} {m['status'].get('reason')}: {m['status'].get('message')}")
        s = p.becomes(name, "Running", 10)
        p.check(f"{name}: the old one goes on in its epoch", s["epoch"] == 1 and s["placement"]["target"] == "south")
    new = p.running("keeps-new", 2, 1, 20)
    p.check("keeps-new: it is moved to the place that was held", new.target == "east" and p.move_over("keeps-new")["status"]["phase"] == "Succeeded")
    old = p.lives("keeps-new")[0]
    p.check("keeps-new: the old one was told to save and end, and did, first", old.stopped and back < old.end / 1e9 < new.begin / 1e9 and
            new.resumed == old.saved[-1], f"{old}; resumed {new.resumed}")
    for name in names[:2]:
        p.holds(name, [1])
        p.one_life(name, first[name], "one process from its begin to its end")
    p.holds("keeps-new", [1, 2])
    p.check("all were alive when their target came back", all(x.end / 1e9 > cut + SILENCE for n in names for x in p.lives(n)[:1]))


def the_brake(p):
    """Five of six fall silent at once: more likely it is the hub that is cut off. There is room on the sixth for all."""
    wait_for("all targets to be connected", lambda: p.connected() >= set(TARGETS), 20)
    p.go("on-left", 17, {"replaceAfter": "1s"}, "left", "east")
    p.go("on-north", 17, {"replaceAfter": "1s"}, "north", "east")
    p.go("on-south", 38, {"replaceAfter": "1s"}, "south", "east")
    p.go("waiting", 38, "wait", "left", "east")
    p.go("stopping", 60, {"stopAfter": "6s"}, "north", "east")
    p.go("elsewhere", 36, {"replaceAfter": "1s"}, "east")
    p.apply(document("Workload", "stubborn", {  # does not go when it is asked to: it is killed
        "resources": {"gpu": {"count": 1}, "cpu": 1, "memory": "64Mi"}, "targets": {"names": ["north"]}, "partition": {"stopAfter": "6s"},
        "checkpoint": {"grace": "1s"}, "run": {"script": "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n"}}, namespace="default"))
    p.becomes("stubborn", "Running", 40)
    where = {"on-left": "left", "on-north": "north", "on-south": "south", "waiting": "left", "stopping": "north"}
    first = {n: p.running(n, 1, 40, 40) for n in [*where, "elsewhere"]}
    p.check("each is where it should be", all(first[n].target == t for n, t in where.items()))
    p.check("hanse status tells of no brake", "brake" not in p.cli("status").stdout.lower())
    cut = p.cut("left", "north", "south", "west", "right")
    for name in where:
        p.becomes(name, "Unknown", SILENCE + SUSPECT + 10)
    since = boottime()
    text = p.cli("status").stdout
    p.check("hanse status tells of the brake", "brake" in text.lower(), next((x for x in text.splitlines() if "rake" in x), text[:300]))
    p.check("and so does its JSON", json.loads(p.cli("status", "-o", "json").stdout)["brain"]["brake"] is True)
    p.until(max(p.lease_over(cut, first[n]) for n in ("on-left", "on-north")))
    now = boottime()
    for name, at in where.items():
        p.stays(name, since, now, at, "nothing is replaced or let go, though there is room and its time is over")
    p.check("no Migration was begun", not [m for m in p.migrations() if m["spec"]["workload"] in where],
            str([m["spec"] for m in p.migrations() if m["spec"]["workload"] in where]))
    p.check("nothing was started elsewhere", all(len(p.lives(n)) == 1 for n in where))
    p.check("who is in reach goes on", p.phases("elsewhere", cut) == ["Running"])
    p.heal("north")
    s = p.becomes("stopping", "Stopped", 15)
    p.check("stopping: its target brought the proof that it ended by itself; it is Stopped", s["ends"][-1]["proof"] == "ProcessTreeGone",
            f"{s['ends'][-1]['proof']} {s.get('reason')}: {s.get('message')}")
    p.becomes("stubborn", "Stopped", 15)
    p.check("stubborn: killed when its lease was over, it is Stopped all the same", p.status("stubborn")["epoch"] == 1)
    p.check("one that is back is not enough: the brake holds", "brake" in p.cli("status").stdout.lower() and
            all(p.status(n)["phase"] == "Unknown" for n in ("on-left", "on-south", "waiting")))
    p.heal("left", "south", "west", "right")
    wait_for("all targets to be connected", lambda: p.connected() >= set(TARGETS), 20)
    wait_for("the brake to let go", lambda: "brake" not in p.cli("status").stdout.lower(), 10)
    p.check("the brake lets go when they are back", True)
    for name in ("on-south", "waiting", "elsewhere"):
        p.holds(name, [1])
        p.one_life(name, first[name], "went on in the same process")
    for name in ("on-left", "on-north"):
        old = p.lives(name)[0]
        p.check(f"{name}: it ended by its own lease meanwhile", old.stopped and old.end / 1e9 <= cut + LEASE[where[name]] + 0.5)
        p.holds(name, [1, 2], lost=INTERVAL)
    p.check("stopping: it stays Stopped", p.status("stopping")["phase"] == "Stopped")
    p.one_life("stopping", first["stopping"], "and was never started again")


def three_of_six(p):
    """Half of the targets are silent at once, and the brake is for more than half. The two parts know nothing of each other."""
    def part(what):
        try:
            what(p)
        except Exception as error:  # noqa: BLE001 (a thread's would be lost)
            p.check(f"{what.__name__} could be done", False, f"{type(error).__name__}: {error}")

    parts = [threading.Thread(target=part, args=(x,)) for x in (wait_replace_stop, which_copy_stays)]
    for thread in parts:
        thread.start()
    for thread in parts:
        thread.join()


def nothing_ran_twice(p):
    found = witness.read(p.witness)
    bad = [str(x) for x in witness.overlaps(found)] + witness.faults(found) + witness.false_resumes(found)
    p.check(f"in {len(found)} lives of all trainings no two were at once", len(found) > 1 and not bad, "; ".join(bad))
    twice = []
    for t, _, moves in p.history:
        open_moves = [m["spec"]["workload"] for m in moves if m.get("status", {}).get("phase") not in OVER]
        twice += [f"{x} at {t:.1f}" for x in set(open_moves) if open_moves.count(x) > 1]
    p.check(f"in {len(p.history)} readings of the API no workload had two moves at once", len(p.history) > 20 and not twice, "; ".join(twice[:3]))


if __name__ == "__main__":
    sys.exit(run((two_at_once_are_refused, three_of_six, the_brake, nothing_ran_twice), kind=Silence))

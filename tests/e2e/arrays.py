#!/usr/bin/env python3
"""Arrays, with real members, agents and processes: which indexes ran, when, in which epochs and how many at once is told by a file
that the programs themselves write, never by Hanse. A leader and an agent are killed in the midst, indexes fail, are deleted and held,
and the hub comes back from a backup that is older than what ran since. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from drill_backup import Hub  # noqa: E402
from drill import run, wait_for  # noqa: E402
from moves import document  # noqa: E402

SCRIPT = """#!/bin/sh
say() {{ echo "$HANSE_WORKLOAD_NAME $HANSE_ARRAY_INDEX $HANSE_ARRAY_COUNT $HANSE_EPOCH $1 $(date +%s%N)" >> {file}; }}
echo "this is index $HANSE_ARRAY_INDEX"
say begins
{work}
say ends
"""


SLEEP = f"sleep 600.{os.getpid()}"


def processes(words):
    """Those of this command line, as the kernel has them."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                found += [pid] * (file.read().rstrip("\0").split("\0") == words.split())
        except OSError:
            continue
    return found


class Line:
    def __init__(self, text):
        name, index, count, epoch, self.what, at = text.split()
        self.array, self.name, self.index, self.count, self.epoch, self.at = \
            name.rpartition("-")[0], name, int(index), int(count), int(epoch), int(at) / 1e9


class Arrays(Hub):
    def array(self, name, count, work, parallelism=0, retries=0, **spec):
        self.documents[name] = document("Workload", name, {
            "type": "batch", "array": {"count": count, "parallelism": parallelism},
            "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
            "run": {"script": SCRIPT.format(file=self.path("indexes"), work=work), "retries": retries}, **spec}, namespace="default")
        self.apply(self.documents[name])

    def lines(self, array):
        try:
            with open(self.path("indexes"), encoding="utf-8") as file:
                return [x for x in map(Line, file.read().splitlines()) if x.array == array]
        except FileNotFoundError:
            return []

    def most_at_once(self, array):
        """Of those that came to their end."""
        now = most = 0
        ends = {(x.index, x.epoch) for x in self.lines(array) if x.what == "ends"}
        for x in sorted((x for x in self.lines(array) if (x.index, x.epoch) in ends), key=lambda x: (x.at, x.what == "begins")):
            now += 1 if x.what == "begins" else -1
            most = max(most, now)
        return most

    def epochs(self, array):
        """{index: epochs in which it began}."""
        found = {}
        for x in self.lines(array):
            if x.what == "begins":
                found.setdefault(x.index, []).append(x.epoch)
        return found

    def children(self, array):
        return {n: w for n, w in self.workloads().items() if w["metadata"].get("labels", {}).get("hanse.dev/array") == array}

    def sets_are(self, name, phase, completed, failed=""):
        s = self.ended(name, 120)
        self.check(f"{name} is {phase}, and says which", (s["phase"], s.get("completedIndexes", ""), s.get("failedIndexes", "")) ==
                   (phase, completed, failed) and s.get("active", 0) == 0, {k: v for k, v in s.items() if k != "conditions"})

    def ran_once(self, name, count, but=()):
        """Each index came to its end once, and began in one epoch only."""
        epochs, ends = self.epochs(name), [x.index for x in self.lines(name) if x.what == "ends"]
        wrong = [i for i in range(count) if i not in but and (epochs.get(i) is None or len(epochs[i]) != 1 or ends.count(i) != 1)]
        self.check(f"each index of {name} ran once" + (f" but {list(but)}" if but else ""), not wrong,
                   {i: (epochs.get(i), ends.count(i)) for i in wrong})


def to_the_end(p):
    """One index needs its retry, one fails for good."""
    p.array("sweep", 20, "sleep 0.4; [ $HANSE_ARRAY_INDEX != 7 ] || exit 9; [ $HANSE_ARRAY_INDEX != 3 -o $HANSE_EPOCH != 1 ] || exit 9",
            parallelism=4, retries=1)
    wait_for("some to have ended", lambda: p.status("sweep").get("succeeded", 0) > 3, 60)
    live = [w for w in p.children("sweep").values() if w["status"]["phase"] not in ("Succeeded", "Failed")]
    p.check("no more are there at once than may be", len(live) <= 4 and p.status("sweep")["active"] <= 4, len(live))
    p.sets_are("sweep", "Failed", "0-6,8-19", "7")
    p.ran_once("sweep", 20, but=(3, 7))
    p.check("retries are each index's own", {i: p.epochs("sweep")[i] for i in (3, 7)} == {3: [1, 2], 7: [1, 2]}, p.epochs("sweep"))
    p.check("four at once, and no more", 2 <= p.most_at_once("sweep") <= 4, p.most_at_once("sweep"))
    p.check("each knows how many there are", {x.count for x in p.lines("sweep")} == {20})
    p.check("the log of an index", "this is index 5" in p.cli("logs", "sweep-5").stdout)
    asked = p.cli("logs", "sweep", check=False)
    p.check("an array has no log, and says where one is", asked.returncode != 0 and "sweep-0" in asked.stderr, asked.stderr)
    listed = next(x for x in p.cli("get", "workloads").stdout.splitlines() if x.startswith("sweep "))
    p.check("hanse get says how far it is", "19/20" in listed and "IndexesFailed" in listed, listed)
    p.check("hanse explain, too", "1 failed (7)" in p.cli("explain", "sweep").stdout, p.cli("explain", "sweep").stdout)
    before = p.workloads()["sweep"]["metadata"]["resourceVersion"], len(p.lines("sweep"))
    p.apply(p.documents["sweep"])
    time.sleep(1)
    p.check("a second apply changes nothing", (p.workloads()["sweep"]["metadata"]["resourceVersion"], len(p.lines("sweep"))) == before)


def refused(p):
    def says(what, doc, *words):
        done = p.cli("apply", "-f", "-", check=False, text=json.dumps(doc))
        p.check(what, done.returncode != 0 and all(w in done.stderr for w in words), done.stderr.strip())

    doc = json.loads(json.dumps(p.documents["sweep"]))
    doc["spec"]["run"]["script"] = "#!/bin/sh\nfalse"
    says("another program for the same array is refused", doc, "spec.run", "another array")
    doc = document("Workload", "x" * 60, {"array": {"count": 1000}, "run": {"command": ["true"]}}, namespace="default")
    says("a name that leaves no room for an index is refused", doc, "metadata.name", "at most 63")
    doc = document("Workload", "job", {"array": {"count": 2}, "run": {"manifest": {"kind": "Job"}}}, namespace="default")
    says("an array of manifests is refused", doc, "spec.array", "the names in a foreign manifest are those of one")
    spec = {k: v for k, v in p.workloads()["sweep-5"]["spec"].items() if k != "user"}
    doc = document("Workload", "sweep-5", spec, namespace="default")
    doc["metadata"]["labels"] = {"hanse.dev/array": "other"}
    says("an index stays its array's", doc, "metadata.labels.hanse.dev/array", "edit the array instead")


def from_the_command_line(p):
    done = p.cli("submit", "--name", "line", "--array", "3%2", "--cpu", "1", "--memory", "64Mi", "--wait", "--", "/bin/sh", "-c", "exit 0", timeout=60)
    p.check("hanse submit --array waits for all", done.returncode == 0 and p.status("line").get("completedIndexes") == "0-2", done.stderr)
    with open(p.path("scratch", "job.sbatch"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n#SBATCH --array=0-2%1\n#SBATCH --job-name=slurm\ntest \"$SLURM_ARRAY_TASK_ID\" != 1\n")
    done = p.cli("submit", "-f", p.path("scratch", "job.sbatch"), "--wait", check=False, timeout=60)
    p.check("an sbatch array as it is", done.returncode == 1 and p.status("slurm").get("failedIndexes") == "1" and
            p.status("slurm").get("completedIndexes") == "0,2", done.stderr)


def through_faults(p):
    """The leader is killed, then a whole target, in the midst."""
    p.array("faults", 24, "sleep 1.5", parallelism=8)
    wait_for("some to have ended", lambda: p.status("faults").get("succeeded", 0) > 2, 60)
    p.kill_leader()
    wait_for("more to end", lambda: len([x for x in p.lines("faults") if x.what == "ends"]) > 9, 60)
    p.kill_target("left")
    p.start_agent("left")
    p.sets_are("faults", "Succeeded", "0-23")
    ends = [x.index for x in p.lines("faults") if x.what == "ends"]
    p.check("each index came to its end", set(ends) == set(range(24)), ends)
    # One that was killed after its last line, and before its runner heard of its end, has not ended for anybody.
    more = {i for i in ends if ends.count(i) > 1}
    p.check("and only those that died with the target did twice", more <= {i for i, e in p.epochs("faults").items() if len(e) > 1}, ends)
    twice = {i: e for i, e in p.epochs("faults").items() if len(e) != len(set(e))}
    p.check("no index ran twice in an epoch", not twice, twice)
    again = {i: e for i, e in p.epochs("faults").items() if len(e) > 1}
    p.check("only those that died with the target began again", len(again) <= 8, again)
    p.check("and were done again one after the other", all(e == sorted(e) for e in again.values()), again)
    p.check("never more at once than may be", p.most_at_once("faults") <= 8, p.most_at_once("faults"))


def held_and_deleted(p):
    p.array("held", 8, "while [ ! -e %s ]; do sleep 0.1; done" % p.path("go"), parallelism=3)
    wait_for("three to run", lambda: len(p.epochs("held")) == 3, 30)
    p.cli("delete", "workload", "held-1")
    wait_for("the next to run instead", lambda: 3 in p.epochs("held"), 30)
    p.check("a deleted index failed", p.status("held").get("failedIndexes") == "1", p.status("held").get("failedIndexes"))
    p.suspend("held", True)
    wait_for("all to have stopped", lambda: all(w["status"]["phase"] == "Queued" for w in p.children("held").values()), 30)
    p.check("a suspended array says so", p.status("held").get("reason") == "Suspended" and len(p.children("held")) == 3, p.status("held"))
    with open(p.path("go"), "w", encoding="utf-8"):
        pass
    p.suspend("held", False)
    p.sets_are("held", "Failed", "0,2-7", "1")
    p.check("what was deleted was never run again", p.epochs("held")[1] == [1], p.epochs("held")[1])

    p.array("gone", 6, SLEEP, parallelism=3)
    wait_for("three to run", lambda: len(p.epochs("gone")) == 3, 30)
    p.check("they are seen", len(processes(SLEEP)) == 3, processes(SLEEP))
    p.cli("delete", "workload/gone", "--cascade", "foreground")

    def gone():
        there = p.workloads()
        return "gone" not in there and [[n for n in there if n.startswith("gone-")]]
    left = wait_for("the array to go", gone, 30)[0]
    p.check("no index outlives its array", not left, left)
    p.check("with an array its processes end", not processes(SLEEP), processes(SLEEP))
    p.check("and none is begun any more", sorted(p.epochs("gone")) == [0, 1, 2], p.epochs("gone"))


def from_a_backup(p):
    """The state is older than what ran since: nothing is begun again beside it."""
    file, mark = p.path("scratch", "hub.hsb"), p.path("go-on")
    p.array("back", 12, "[ $HANSE_ARRAY_INDEX -lt 4 ] || while [ ! -e %s ]; do sleep 0.1; done; sleep 0.3" % mark, parallelism=3)
    wait_for("the first to have begun", lambda: len(p.epochs("back")) >= 2, 30)
    p.cli("backup", "-o", file)
    wait_for("later ones to run", lambda: sorted(p.epochs("back"))[-1] == 6 and p.status("back").get("succeeded") == 4, 30)
    p.lose_hub("m1", "m2", "m3")
    done = p.restore(file, p.path("m1"))
    p.check("an older state is restored", done.returncode == 0, done.stderr)
    p.start_member(1)
    p.all_back()
    p.check("nothing is begun before it is known what runs", p.status("back").get("begun", 0) < 7 and len(p.epochs("back")) == 7, p.status("back"))
    p.recover()
    s = p.status("back")
    owner = p.workloads()["back"]["metadata"]["uid"]
    p.check("what was found belongs to its array again", all(f"back-{i}" in p.workloads() and
            p.workloads()[f"back-{i}"]["metadata"].get("ownerReferences", [{}])[0].get("uid") == owner for i in (4, 5, 6)), s)
    with open(mark, "w", encoding="utf-8"):
        pass
    p.sets_are("back", "Succeeded", "0-11")
    p.ran_once("back", 12)


if __name__ == "__main__":
    sys.exit(run((to_the_end, refused, from_the_command_line, through_faults, held_and_deleted, from_a_backup), kind=Arrays, members=3))

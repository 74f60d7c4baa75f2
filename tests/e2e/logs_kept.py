#!/usr/bin/env python3
"""What runs print outlives their machine: spec.logs of a Target names a store, a folder here and S3 there. The machines are lost (every
process of them killed, their folders removed), and `hanse logs` tells from the store what was printed, all but the last seconds, and
says that these are missing. A store that nobody can write to delays no end for longer than is said. Prints ok or FAILED per check;
exit 1 when any failed. HANSE_ONLY names parts."""
import datetime
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "support", "s3"))
sys.dont_write_bytecode = True
import server  # noqa: E402
from moves import Moves, document, run, target, wait_for  # noqa: E402

BEHIND = 8      # seconds of output that may be missing: 5 between pieces, and the way
END_WAITS = 10  # seconds that an end waits for the store
NAMES = ("left", "right", "far")
PRINTS = "i=0; while [ $i -lt {n} ]; do i=$((i + 1)); echo \"line $i\"; echo $i > {count}; sleep 0.02; done"


class Kept(Moves):
    def __init__(self, *words, **pool):
        self.s3 = server.Server("logs")
        super().__init__(*words, targets=NAMES, **pool)

    def target_document(self, name):
        store = {"left": {"store": self.path("checkpoints")}, "far": {"store": self.path("checkpoints", "file", "logs")},
                 "right": {"store": "s3://logs/of runs", "credentialsFrom": "keys"}}[name]
        return target(name, logs=store, partition={"suspectAfter": "2s", "lease": "30s"})

    def start_agent(self, target):
        with open(self.path("checkpoints", "file"), "w", encoding="utf-8"):
            pass  # a folder below it nobody can make
        super().start_agent(target)

    def policies(self):
        return super().policies() + ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "hanse-system"},
                                      "stringData": self.s3.environment()},)

    def prints(self, name, where, n):
        """Submits a program that prints lines 1 to n, and notes how far it came."""
        script = PRINTS.format(n=n, count=self.path("count-" + name))
        self.apply(document("Workload", name, {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": [where]},
                                               "run": {"command": ["sh", "-c", script]}}, namespace="default"))

    def printed(self, name):
        try:
            with open(self.path("count-" + name), encoding="utf-8") as file:
                return int(file.read() or 0)
        except (OSError, ValueError):
            return 0

    def pieces(self):
        return glob.glob(self.path("checkpoints", "_logs", "*", "*", "*", "*", "*", "*.log.gz"))

    def logs(self, name, *words):
        return self.cli("logs", name, *words, check=False, timeout=30)

    def lose(self, name):
        """The machine: the agent, its runners and programs at once, and its disk."""
        self.kill_target(name)
        shutil.rmtree(self.path("agent-" + name))


def numbers(text):
    return [int(n) for n in re.findall(r"^(?:\S+Z )?line (\d+)$", text, re.M)]


def ended_whole(p):
    for name, where in (("short", "left"), ("brief", "right")):
        p.prints(name, where, 50)
    p.prints("late", "far", 10)
    p.prints("one", "left", 100000)
    p.prints("two", "right", 100000)
    for name in ("short", "brief"):
        p.check(f"{name} ends well", p.ended(name, 30)["phase"] == "Succeeded")
    wait_for("late to have printed", lambda: p.printed("late") == 10, 30)
    began = time.monotonic()
    s = p.ended("late", 40)
    took = time.monotonic() - began
    p.check("a store that takes nothing delays an end by no more than is said", s["phase"] == "Succeeded" and
            END_WAITS - 2 <= took <= END_WAITS + 4, f"{s['phase']} after {took:.1f} s")
    p.check("its logs come from its agent", numbers(p.logs("late").stdout) == list(range(1, 11)))


def of_another_epoch(p):
    """What it printed in a life that is over, from its machine and from the store."""
    for name, where in (("again", "left"), ("anew", "right")):
        p.apply(document("Workload", name, {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": [where]}, "run": {
            "retries": 1, "command": ["sh", "-c", "for i in 1 2 3; do echo \"line $i$HANSE_EPOCH\"; done; [ $HANSE_EPOCH -gt 1 ]"]}}, namespace="default"))
        p.check(f"{name} ends well in its second life", p.ended(name, 60)["phase"] == "Succeeded" and p.status(name)["epoch"] == 2, p.status(name))
    lives_are_told(p, "from the machine")


def lives_are_told(p, whence):
    for name in ("again", "anew"):
        for words, wanted in (((), [12, 22, 32]), (("--epoch", "2"), [12, 22, 32]), (("--epoch", "1"), [11, 21, 31]), (("--previous",), [11, 21, 31]),
                              (("--previous", "--tail", "1"), [31])):
            done = p.logs(name, *words)
            p.check(f"{whence}: what {name} printed, {' '.join(words) or 'the newest'}", numbers(done.stdout) == wanted, (done.stdout, done.stderr))
        done = p.logs(name, "--epoch", "3")
        p.check(f"{whence}: an epoch of {name} that never was is an error", done.returncode == 3 and "no epoch 3" in done.stderr, done.stderr)


def machines_lost(p):
    wait_for("pieces of what runs", lambda: len(p.pieces()) >= 3, 20)
    at = {name: p.printed(name) for name in ("one", "two")}
    for name in ("left", "right"):
        p.lose(name)
    began = datetime.datetime.now(datetime.timezone.utc)
    wait_for("the targets to be away", lambda: not p.connected() & {"left", "right"}, 20)
    lives_are_told(p, "from the store")
    for name in ("short", "brief"):
        done = p.logs(name)
        p.check(f"all that {name} printed is there, and no more", done.stdout == "".join(f"line {n}\n" for n in range(1, 51)), done.stderr)
    for name in ("one", "two"):
        done = p.logs(name)
        had = numbers(done.stdout)
        p.check(f"what {name} printed is there from its first line on, without a gap", had == list(range(1, len(had) + 1)) and had, done.stderr)
        p.check(f"all of {name} but the last seconds", len(had) >= at[name] - BEHIND / 0.02, f"{len(had)} of {at[name]}")
        p.check(f"that the rest of {name} is missing is said",
                re.search(r"^\[hanse: what was printed after \S+ is not here: it runs, and target", done.stdout, re.M), done.stdout.splitlines()[-1:])
        tail = numbers(p.logs(name, "--tail", "3").stdout)
        p.check(f"--tail of {name}", tail == had[-3:], tail)
        lines = p.logs(name, "--timestamps").stdout.splitlines()
        middle = lines[len(lines) // 2]
        since = numbers(p.logs(name, "--since-time", middle.split()[0][:-5] + "Z").stdout)
        p.check(f"--since-time of {name}", since and since[-1] == had[-1] and 1 < since[0] <= numbers(middle + "\n")[0], since[:1])
        times = [line.split()[0] for line in lines if " line " in line]
        p.check(f"--timestamps of {name}", times == sorted(times) and times[-1] < began.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    p.check("the key is in no file of the members", not [f for top, _, names in os.walk(p.dir) for f in names if "agent-far" not in top and
            p.s3.environment()["AWS_SECRET_ACCESS_KEY"] in open(os.path.join(top, f), encoding="latin-1").read()])


def target_removed(p):
    """Nobody but the log knows where its logs went."""
    p.cli("delete", "workload", "one")
    p.cli("fence", "one", "--yes", check=False)
    p.cli("delete", "target", "left")
    wait_for("the target to be gone", lambda: p.cli("get", "target", "left", check=False).returncode, 10)
    done = p.logs("short")
    p.check("logs of what ran on a Target that was removed", numbers(done.stdout) == list(range(1, 51)), done.stderr)


def goes_with_its_workload(p):
    """A Workload that is deleted, or over for its time, stays until the store has nothing of it; other people's files stay."""
    p.prints("other", "left", 20)
    for name, where in (("gone", "left"), ("lost", "right")):
        p.prints(name, where, 30)
    for name in ("gone", "lost", "other"):
        p.ended(name, 60)
    uid = {name: json.loads(p.cli("get", "workload", name, "-o", "json").stdout)["metadata"]["uid"] for name in ("gone", "lost", "other")}
    keys = lambda u: [k for k in p.s3.keys() + p.pieces() if u in k]
    p.check("their logs are in their stores", all(keys(u) for u in uid.values()), uid)
    near = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(keys(uid["gone"])[0]))))
    for name in ("gone-" + uid["gone"] + "-not", "x-gone-" + uid["gone"]):  # nobody's of ours
        os.makedirs(os.path.join(near, name))
    p.apply(document("Workload", "gone", {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["left"]}, "ttlSecondsAfterFinished": 86400,
                                          "run": {"command": ["sh", "-c", PRINTS.format(n=30, count=p.path("count-gone"))]}}, namespace="default"))
    p.cli("delete", "workload", "gone")
    wait_for("gone to be gone", lambda: "gone" not in p.workloads(), 60)
    p.check("a Workload is deleted, and so is what it printed", not keys(uid["gone"]) and keys(uid["other"]), keys(uid["gone"]))
    p.check("and nothing beside it", len([n for n in os.listdir(near) if "gone" in n]) == 2, os.listdir(near))
    p.s3.away()
    p.cli("delete", "workload", "lost")
    wait_for("it to be told", lambda: any("logs.not_removed" in open(f, encoding="utf-8", errors="replace").read()
                                          for f in glob.glob(p.path("**", "*.log"), recursive=True)), 90)
    p.check("its store is away: it stays", "lost" in p.workloads())
    told = wait_for("its Event", lambda: [e for e in json.loads(p.cli("get", "events", "-o", "json").stdout)["items"] if e["reason"] == "LogsLeft"], 90)
    p.check("its Event says for what it waits, and how to give up", "hanse.dev/logs" in told[0]["message"] and told[0]["involvedObject"]["name"] == "lost", told[0]["message"])
    p.kill_leader()
    p.s3.back()
    wait_for("lost to be gone", lambda: "lost" not in p.workloads(), 90)
    p.check("the store is back, and the leader died: it is removed all the same", not keys(uid["lost"]), keys(uid["lost"]))
    p.apply(document("Workload", "timed", {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["left"]}, "ttlSecondsAfterFinished": 1,
                                           "run": {"command": ["sh", "-c", "echo one"]}}, namespace="default"))
    wait_for("its time to be over", lambda: "timed" not in p.workloads(), 120)
    left = [k for k in p.pieces() if "/timed-" in k]
    p.check("what is over for its time leaves nothing in the store", not left, left)


def store_hangs(p):
    """It takes connections, and never says anything: that holds up no end for long, and no reader of another store."""
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen(64)
        keys = {**p.s3.environment(), "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{hung.getsockname()[1]}"}
        p.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hung", "namespace": "hanse-system"}, "stringData": keys},
                target("far", logs={"store": "s3://logs/hung", "credentialsFrom": "hung"}, partition={"suspectAfter": "2s", "lease": "30s"}))
        p.prints("stuck", "far", 10)
        p.check("an end does not wait for it for long", p.ended("stuck", 90)["phase"] == "Succeeded")
        with open(p.path("log", "agent-far.log"), encoding="utf-8", errors="replace") as file:
            why = [line for line in file if "logs.not_kept" in line and "hung" in line]
        p.check("its agent says why nothing is kept", why and not any('why=""' in line for line in why), why)
        p.lose("far")
        wait_for("the target to be away", lambda: "far" not in p.connected(), 30)
        readers = [subprocess.Popen([p.hanse, "logs", "stuck"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env={**os.environ, "KUBECONFIG": p.path("kubeconfig")}) for _ in range(8)]
        time.sleep(1)
        done = p.logs("brief")
        waiting = sum(r.poll() is None for r in readers)
        p.check("many wait for it, and who reads what another store has does not", numbers(done.stdout) == list(range(1, 51)) and waiting == 8,
                (waiting, done.stderr))
        told = [r.communicate(timeout=60)[1] for r in readers]
        p.check("they hear that it does not answer", all("did not answer" in t and "member" not in t for t in told), set(told))
        done = p.logs("brief", "--rank", "5")
        p.check("a rank that never was is an error", done.returncode != 0 and "no rank 5" in done.stderr, done.stderr)


def folder_not_allowed(p):
    """The agent may not write there: that is no fault of what is to run."""
    p.start_agent("far")
    p.apply(target("far", logs={"store": p.path("elsewhere")}, partition={"suspectAfter": "2s", "lease": "30s"}))
    wait_for("the target to be back", lambda: "far" in p.connected(), 30)
    p.prints("barred", "far", 1)
    wait_for("its target to be blamed", lambda: "spec.logs" in json.dumps(json.loads(p.cli("get", "target", "far", "-o", "json").stdout)["status"]), 30)
    p.check("it waits, and its target is blamed", p.status("barred")["phase"] == "Queued", p.status("barred"))


if __name__ == "__main__":
    sys.exit(run([ended_whole, goes_with_its_workload, of_another_epoch, machines_lost, store_hangs, folder_not_allowed, target_removed], kind=Kept, members=3))

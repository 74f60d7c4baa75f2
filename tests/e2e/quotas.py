#!/usr/bin/env python3
"""Quotas of a namespace in a cluster of three members, as kubectl and plain HTTP see them: how many objects there may be, at the
leader, at a follower and after the leader was killed; arrays; what nobody acts upon; how fast users may write, over all members.
Prints ok or FAILED per check; exit 1 when any failed."""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

KEY = "count/workloads.hanse.dev"
RATE, BURST = "hanse.dev/writes-per-second", "hanse.dev/writes-burst"


def workload(name, array=None):
    spec = {"suspend": True, "run": {"command": ["true"]}, "resources": {"cpu": "100m"}}
    return {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name, "namespace": "vision"},
            "spec": {**spec, "array": {"count": array}} if array else spec}


def quota(name, hard, namespace="vision", **spec):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": namespace},
            "spec": {"hard": hard, **spec}}


class Run:
    def __init__(self, hanse, kubectl, folder):
        self.f, self.failed, self.program = Federation(hanse, "/bin/false", folder, targets=()), 0, kubectl

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" and not good else ""), flush=True)

    def kubectl(self, *args, at=None, documents=None):
        """(exit status, all that it said)"""
        done = subprocess.run([self.program, "--request-timeout=20s", *(["--server", at] if at else []), *args,
                               *(["-f", "-"] if documents else [])], capture_output=True, text=True, timeout=60, check=False,
                              input="---\n".join(json.dumps(d) + "\n" for d in documents) if documents else None,
                              env={**os.environ, "KUBECONFIG": self.f.path("kubeconfig"), "HOME": self.f.path("scratch")})
        return done.returncode, done.stdout + done.stderr

    def must(self, *args, **how):
        code, said = self.kubectl(*args, **how)
        if code:
            raise Failure(f"kubectl {' '.join(args)}: {said[:500]}")
        return said

    def ask(self, method, path, body=None, key=None, url=None):
        connection = self.f.login.connect(url or self.leader["url"], timeout=20)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {**self.f.login.headers, "Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})})
            got = connection.getresponse()
            return got.status, json.loads(got.read() or b"{}"), got.headers
        finally:
            connection.close()

    def look(self):
        found = {m["role"] == "leader": m for m in self.f.members() if m["pid"]}
        self.leader, self.follower = found.get(True), found.get(False)
        return self.leader and self.follower

    def used(self, at=None):
        return json.loads(self.must("get", "quota", "objects", "-n", "vision", "-o", "json", at=at))["status"]["used"][KEY]

    def refused(self, what, *args, says, **how):
        code, said = self.kubectl(*args, **how)
        self.check(what, code != 0 and all(s in said for s in says), said)

    def objects(self):
        leader, follower = self.leader["url"], self.follower["url"]
        self.must("create", "namespace", "vision")
        self.must("apply", documents=[quota("objects", {KEY: 10, "secrets": "1"})], at=follower)
        self.must("create", documents=[workload(f"w{i}") for i in range(10)], at=leader)
        over = ("Forbidden", 'workloads.hanse.dev "w10" is forbidden: exceeded quota: objects, requested: ' + KEY + "=1, used: " + KEY +
                "=10, limited: " + KEY + "=10")
        for who, at in (("the leader", leader), ("a follower", follower)):
            self.refused(f"the eleventh is refused at {who}", "create", documents=[workload("w10")], at=at, says=over)
            self.refused(f"and by a dry run at {who}", "create", "--dry-run=server", documents=[workload("w10")], at=at, says=over)
            self.check(f"ten are told at {who}", self.used(at) == "10")
        index = self.applied()
        late = [self.ask("POST", "/apis/hanse.dev/v1alpha1/namespaces/vision/workloads", workload(f"late{i}"), url=url)
                for i in range(30) for url in (leader, follower)]
        grown = self.applied() - index
        self.check(f"60 more are refused, and the log has {grown} entries in that time",
                   all(status == 403 and "exceeded quota: objects" in got["message"] for status, got, _ in late) and grown < 30, late[0])
        self.must("delete", "workload", "w3", "-n", "vision", at=leader)
        self.check("nine are told when one was deleted", self.used() == "9")
        code, said = self.kubectl("create", documents=[workload("w10")], at=follower)
        self.check("then there is room again", code == 0, said)
        code, said = self.kubectl("apply", documents=[workload("w10")], at=follower)
        self.check("what is there can be changed", code == 0, said)
        for args, says in ((("get", "quota", "-n", "vision"), (f"{KEY}: 10/10", "secrets: 0/1")),
                           (("describe", "quota", "objects", "-n", "vision"), (KEY, "Used", "Hard", "10")),
                           (("describe", "namespace", "vision"), ("Resource Quotas", KEY))):
            code, said = self.kubectl(*args)
            self.check("kubectl " + " ".join(args), code == 0 and all(s in said for s in says), said)
        said = self.f.cli("get", "quota", "-n", "vision").stdout
        self.check("hanse get quota", f"{KEY}: 10/10" in said, said)
        said = self.f.cli("describe", "quota", "objects", "-n", "vision").stdout
        self.check("hanse describe quota", KEY in said and "used" in said, said)

    def arrays(self):
        self.must("delete", "workload", "w0", "w1", "w2", "w4", "-n", "vision")
        self.refused("an array whose indexes do not fit is refused whole", "create", documents=[workload("arr", 4)],
                     says=("requested: " + KEY + "=5, used: " + KEY + "=6", "an array and each index count"))
        self.must("create", documents=[workload("arr", 3)], at=self.follower["url"])
        self.check("one that fits counts with its indexes", self.used() == "10")
        self.must("patch", "workload", "arr", "-n", "vision", "--type=merge", "-p", '{"spec":{"suspend":false}}')
        wait_for("its indexes to be there", lambda: self.kubectl("get", "workload", "arr-2", "-n", "vision")[0] == 0, 20)
        self.check("and as much when they are there", self.used() == "10", self.used())
        self.must("delete", "workload", "arr", "-n", "vision")
        wait_for("they are gone with it", lambda: self.used() == "6", 20)
        self.must("create", documents=[workload(f"w{i}") for i in range(4)])

    def refusals(self):
        for what, document, says in (
                ("pods", quota("bad", {"pods": "3"}), ("spec.hard[pods]", "Queue")),
                ("requests.cpu", quota("bad", {"requests.cpu": "3"}), ("spec.hard[requests.cpu]", "Queue")),
                ("count/targets.hanse.dev", quota("bad", {"count/targets.hanse.dev": "3"}), ("in no namespace",)),
                ("scopes", quota("bad", {"secrets": 1}, scopes=["BestEffort"]), ("spec.scopes",)),
                ("a burst alone", quota("bad", {BURST: 3}), (RATE,))):
            self.refused(f"{what}: refused with what to do", "apply", documents=[document], says=says)
        code, said = self.kubectl("auth", "can-i", "update", "resourcequotas", "-n", "vision", "--as", "anna")
        self.check("who has no rights writes none", code != 0, said)

    def leader_killed(self):
        before, killed = self.used(), self.f.kill_leader()
        wait_for("another leader", lambda: self.look() and self.leader["id"] != killed["id"], 30)
        self.check("the leader was killed: as many are told", (before, self.used(self.leader["url"])) == ("10", "10"))
        self.refused("and the next one is refused", "create", documents=[workload("w11")], says=("exceeded quota: objects",))
        wait_for("three members", lambda: len([m for m in self.f.members() if m["pid"]]) == 3, 30)

    def rates(self):
        paths = [f"/api/v1/namespaces/{ns}/secrets" for ns in ("fast", "free")]
        for ns in ("fast", "free"):
            self.must("create", "namespace", ns)
        self.must("apply", documents=[quota("pace", {RATE: 2, BURST: 5}, "fast")])

        def secret(name):
            return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}

        status, got, _ = self.ask("POST", paths[0], secret("keyed"), "key-1")
        self.check("one that is let in", status == 201, str(got)[:300])
        index = self.applied()
        answers, began = [], time.monotonic()

        def flood(number, url):
            for i in range(100):
                answers.append(self.ask("POST", paths[0], secret(f"s{number}-{i}"), url=url))

        threads = [threading.Thread(target=flood, args=(n, m["url"])) for n, m in enumerate(self.f.members())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        made = sum(status == 201 for status, _, _ in answers)
        late = [(got, headers) for status, got, headers in answers if status == 429]
        self.check(f"300 writes at three members in {took:.1f} s: {made} were let in, 2 a second and 5 at once",
                   2 * (took - 2) <= made <= 5 + 2 * (took + 1) and made + len(late) == len(answers), [a[:2] for a in answers if a[0] not in (201, 429)])
        self.check("others: 429 with Retry-After and the quota's name", late and all(
            int(headers["Retry-After"]) >= 1 and got["reason"] == "TooManyRequests" and "exceeded quota: pace" in got["message"] and
            got["details"]["retryAfterSeconds"] == int(headers["Retry-After"]) for got, headers in late), str(late[:1])[:500])
        if index is not None:
            grown = self.applied() - index
            self.check(f"and the log has {grown} entries of it", grown < len(answers) / 2)
        status, _, _ = self.ask("POST", paths[0], secret("keyed"), "key-1")
        self.check("a repetition under its key is answered as the first time", status == 201, status)
        free = [self.ask("POST", paths[1], secret(f"s{i}"), url=self.follower["url"])[0] for i in range(20)]
        self.check("another namespace is as free as before", free == [201] * 20, free)
        code, said = self.kubectl("create", "secret", "generic", "patient", "-n", "fast")
        self.check("kubectl waits, and gets it done", code == 0, said)
        self.must("apply", documents=[quota("pace", {RATE: 1000}, "fast")], at=self.follower["url"])
        free = [self.ask("POST", paths[0], secret(f"more{i}"))[0] for i in range(20)]
        self.check("the quota is raised in the midst of it, and holds at once", free == [201] * 20, free)

    def applied(self):
        for line in self.f.cli("status", "-o", "json").stdout.split(","):
            name, _, value = line.strip(' {}"\n').partition(":")
            if name.strip(' "{') in ("index", "applied", "appliedIndex", "logIndex") and value.strip().isdigit():
                return int(value)
        return None

    def all(self):
        self.f.start_members()
        wait_for("three members", lambda: len(self.f.members()) == 3, 20)
        wait_for("a leader and followers", self.look, 20)
        self.objects()
        self.arrays()
        self.refusals()
        self.leader_killed()
        self.rates()


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("set HANSE or HANSE_BUILD_DIR")
        return 77
    found = subprocess.run([os.path.join(TOP, "tests", "peers", "kubectl.sh")], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print(f"no kubectl: {found.stderr.strip()[-200:]}")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-quotas-")
    run = Run(hanse, found.stdout.strip(), folder)
    try:
        run.all()
    except (Failure, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as e:
        run.check("all could be done", False, f"{type(e).__name__}: {e}")
    finally:
        run.f.stop()
    if run.failed or os.environ.get("HANSE_KEEP"):
        print(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())

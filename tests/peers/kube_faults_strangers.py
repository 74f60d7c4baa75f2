#!/usr/bin/env python3
"""Somebody with rights in the namespace of a target, by kubectl: a Job of the name that a run would have, forged labels and marks,
Jobs and pods deleted, finalizers taken away, Jobs edited. Nothing runs twice, nothing of his is touched, and the truth is told."""
import copy
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import JOBS, NS, OVER, PODS, Failure, Hub  # noqa: E402
from kube_history import INDEX, KEY, MARK  # noqa: E402
from parts import run  # noqa: E402


class Strangers(Hub):
    ends = False

    def target(self, name="east", **more):
        return super().target(name, **{"partition": {"suspectAfter": "2s"}, **more})

    def kubectl(self, *words, data=None):
        return self.peer.kubectl("-n", NS, *words, data=data)

    def patch(self, what, name, change):
        return self.kubectl("patch", what, name, "--type=merge", "-p", json.dumps(change)) is not None

    def job(self, name):
        """Its Job, as it is."""
        return self.looks(f"the Job of {name}", lambda: next(iter(self.history.there("jobs", self.uid(name))), None))

    def pod(self, name):
        return self.looks(f"the pod of {name}", lambda: next((p for p in self.history.there("pods", self.uid(name)) if p.bound), None))

    def runs(self, *names):
        self.work(*names)
        for n in names:
            self.phase(n, "Running")
            self.uid(n)

    def goes_on(self, name):
        self.check(f"{name} is still Running", (s := self.status(name)).get("phase") == "Running", s)
        self.finish(name)
        self.ended(name)
        self.once(name)

    def of_his(self, path, name, uid):
        status, found = self.peer.call("GET", f"{path}/{name}")
        return status == 200 and found["metadata"]["uid"] == uid and "deletionTimestamp" not in found["metadata"]

    # ---- names and labels -------------------------------------------------------------------------------

    def a_job_of_the_same_name(self):
        """It is made while the order is under way."""
        rule = self.proxy.rule(do="hang", method="POST", path=r"/secrets\b")
        uid = self.work("taken")
        self.looks("its Secret to be asked for", lambda: self.proxy.hits(rule))
        name = f"hanse-{uid}-1-1"
        spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}}
        status, job = self.peer.call("POST", JOBS, {"metadata": {"name": name, "labels": {KEY: f"{uid}.1.1"}}, "spec": spec})
        self.check("his Job is there", status == 201, job)
        self.proxy.drop()
        s = self.looks("it to be told", lambda: (s := self.status("taken")) and (
            "somebody else" in json.dumps(s) or s.get("phase") in OVER + ("Running",)) and s)
        self.check("the order is refused, and the Job named", "somebody else" in json.dumps(s) or name in json.dumps(s), s)
        self.cli("delete", "workload", "taken", "-n", "default")
        self.looks("it to go", lambda: "taken" not in self.workloads(), 60)
        self.check("his Job is as it was", self.of_his(JOBS, name, job["metadata"]["uid"]))
        self.kubectl("delete", "job", name)

    def a_pod_with_our_labels(self):
        """Everything of one of ours, but its uid; bound by him to a node."""
        self.runs("copied")
        pod = self.peer.call("GET", f"{PODS}/{self.pod('copied').name}")[1]
        meta = pod["metadata"]
        labels = {k: meta["labels"][k] for k in (KEY, INDEX)}  # by more of them a Job's controller would adopt it
        mine = {"metadata": {"name": "mine", "labels": labels, "annotations": meta["annotations"], "finalizers": meta["finalizers"]},
                "spec": {"nodeName": "n2", "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
        status, made = self.peer.call("POST", PODS, mine)
        self.check("his pod is there", status == 201, made)
        forged = copy.deepcopy(mine)
        forged["metadata"]["name"] = "forged"
        forged["metadata"]["annotations"][MARK] = meta["annotations"][MARK][:-4] + "0000"
        status, other = self.peer.call("POST", PODS, forged)
        self.goes_on_but("copied", {made["metadata"]["uid"], other["metadata"]["uid"]})
        self.check("what only looks like ours is not touched", self.of_his(PODS, "forged", other["metadata"]["uid"]))
        for name in ("mine", "forged"):
            self.patch("pod", name, {"metadata": {"finalizers": None}})
            self.kubectl("delete", "pod", name, "--wait=false")

    def goes_on_but(self, name, his):
        """As goes_on; but pods of those uids are his."""
        self.check(f"{name} is still Running", (s := self.status(name)).get("phase") == "Running", s)
        self.finish(name)
        self.ended(name)
        ours = [p for p in self.history.ran(self.uid(name)) if p.meta["uid"] not in his]
        self.check("of ours one ran", len(ours) == 1, ours)

    # ---- deletions --------------------------------------------------------------------------------------

    def a_job_is_deleted(self):
        """Before it has ended, in the background: its finalizer keeps it, and its pods end."""
        self.runs("deleted")
        self.kubectl("delete", "job", self.job("deleted").name, "--wait=false")
        s = self.phase("deleted", *OVER, "Running", "Unknown")
        self.finish("deleted")
        s = self.phase("deleted", *OVER)
        self.check("its end is told", s["phase"] in OVER, s)
        self.once("deleted")

    def a_pod_is_deleted(self):
        self.runs("podless")
        pod = self.pod("podless")
        self.kubectl("delete", "pod", pod.name, "--wait=false")
        self.looks("it to be deleted", lambda: pod.deleting)
        self.check("it is still Running", (s := self.status("podless")).get("phase") == "Running", s)
        self.history.kubelet_ends(pod)
        self.ended("podless")
        self.once("podless")

    def a_pod_goes_without_a_word(self):
        """Finalizer and object are taken away: nobody knows whether its program has ended, so nothing else starts."""
        self.runs("vanished")
        pod = self.pod("vanished")
        self.kubectl("delete", "pod", pod.name, "--wait=false", "--grace-period=0", "--force")
        self.patch("pod", pod.name, {"metadata": {"finalizers": None}})
        self.looks("it to be gone", lambda: pod.gone, 60)
        s = self.looks("it to be told", lambda: (s := self.status("vanished")) and "pod of it is not there" in json.dumps(s) and s, 90)
        self.check("it is not called over", s.get("phase") not in OVER, s)
        self.check("nothing else has started", len(self.history.ran(self.uid("vanished"))) == 1, self.history.ran(self.uid("vanished")))

    def everything_of_it_goes(self):
        """Pods and Job with their finalizers, at once."""
        self.runs("erased")
        pod, job = self.pod("erased"), self.job("erased")
        for what, name in (("job", job.name), ("pod", pod.name)):
            self.kubectl("delete", what, name, "--wait=false", "--grace-period=0", "--force")
            self.patch(what, name, {"metadata": {"finalizers": None}})
        self.looks("both to be gone", lambda: pod.gone and job.gone, 60)
        self.cli("delete", "workload", "erased", "-n", "default", check=False)
        self.check("nothing else has started", len(self.history.ran(self.uid("erased"))) == 1, self.history.ran(self.uid("erased")))
        s = self.object("workloads", "erased", "-n", "default").get("status", {})
        self.check("it is not called over", s.get("phase") not in ("Succeeded", "Failed"), s)

    # ---- edits ------------------------------------------------------------------------------------------

    def finalizers_alone_are_taken(self):
        """And they come not back: the end is still read, since nobody deletes."""
        self.runs("unheld")
        self.patch("job", self.job("unheld").name, {"metadata": {"finalizers": None}})
        self.patch("pod", self.pod("unheld").name, {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}})
        self.goes_on("unheld")

    def a_job_is_edited(self):
        self.runs("edited")
        name = self.job("edited").name
        self.check("parallelism is changed", self.patch("job", name, {"spec": {"parallelism": 3}}))
        self.patch("job", name, {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}})
        self.check("labels and marks are changed", self.patch("job", name, {"metadata": {"labels": {"mine": "yes"}, "annotations": {"mine": "yes"}}}))
        self.goes_on("edited")

    def a_job_is_suspended(self):
        """Its controller deletes the pod, and would make another one when it goes on."""
        self.runs("suspended")
        name = self.job("suspended").name
        self.check("it is suspended", self.patch("job", name, {"spec": {"suspend": True}}))
        pod = self.pod("suspended")
        self.looks("its pod to be deleted", lambda: pod.deleting)
        self.check("it is unsuspended", self.patch("job", name, {"spec": {"suspend": False}}))
        self.history.kubelet_ends(pod)
        self.ended("suspended")
        self.once("suspended")

    def its_marks_are_taken(self):
        """The Job looks like nobody's then, and is left alone; once it is gone, its pod says how it ended."""
        self.runs("unmarked")
        job = self.job("unmarked")
        self.patch("job", job.name, {"metadata": {"annotations": {MARK: None}, "labels": {KEY: None}}})
        pod = self.pod("unmarked")
        self.finish("unmarked")
        self.looks("its pod to end", lambda: pod.over)
        self.check("the Job was not deleted by us", self.of_his(JOBS, job.name, job.meta["uid"]))
        self.patch("job", job.name, {"metadata": {"finalizers": None}})
        self.kubectl("delete", "job", job.name, "--wait=false")
        self.ended("unmarked")
        self.once("unmarked")

    def a_pod_is_let_in_by_hand(self):
        """Its gate is taken away by him, ahead of its admission: it is told as what it is."""
        rule = self.proxy.rule(do="hang", method="PATCH", path="/jobs/", times=0)
        self.work("early")
        self.looks("its admission to be asked for", lambda: self.proxy.hits(rule))
        pod = self.looks("its pod", lambda: next(iter(self.history.there("pods", self.uid("early"))), None))
        self.patch("pod", pod.name, {"spec": {"schedulingGates": None}})
        self.looks("it to run", lambda: pod.ran)
        self.proxy.drop(rule)
        self.phase("early", "Running")
        self.goes_on_but("early", set())
        self.check("nothing of it has run twice", not self.history.twice(), self.history.twice())

    def nothing_of_ours_is_left(self):
        """But of what nobody can say that it has ended."""
        def left():
            kept = [o.name for kind in ("secrets", "pods", "jobs") for o in self.history.all(kind, self.uid("vanished"))]
            return [o for o in self.history.left() if not any(name in o for name in kept)]
        try:
            self.looks("all to go", lambda: not left())
        except Failure:
            pass
        self.check("nothing else is left", not left(), left())
        self.check("and nothing has run twice", not self.history.twice(), self.history.twice())


if __name__ == "__main__":
    sys.exit(run(Strangers, "kube-strangers", [
        Strangers.a_job_of_the_same_name, Strangers.a_pod_with_our_labels, Strangers.a_job_is_deleted, Strangers.a_pod_is_deleted,
        Strangers.a_pod_goes_without_a_word, Strangers.everything_of_it_goes, Strangers.finalizers_alone_are_taken, Strangers.a_job_is_edited,
        Strangers.a_job_is_suspended, Strangers.its_marks_are_taken, Strangers.a_pod_is_let_in_by_hand,
        Strangers.nothing_of_ours_is_left]))

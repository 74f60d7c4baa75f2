#!/usr/bin/env python3
"""Manifests of others on a real API server with its own Job controller, and nodes that kwok plays: submitted as they are, they run as
Jobs of Hanse's, once in each epoch, and nothing of them is left; and what runs there without Hanse, as `hanse adopt --shadow` tells it."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import OVER, PODS, Hub, document  # noqa: E402
from parts import run  # noqa: E402

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  parallelism: {n}
  completions: {n}
  backoffLimit: {retries}
  ttlSecondsAfterFinished: 3600
  template:
    metadata: {{labels: {{app: theirs}}}}
    spec:
      restartPolicy: OnFailure
      priorityClassName: nowhere
      containers:
      - name: train
        image: box
        command: [train, $(WHERE)]
        env: [{{name: WHERE, value: here}}]
        resources: {{requests: {{cpu: 200m, memory: 64Mi}}}}
      - name: logs
        image: box
        resources: {{requests: {{cpu: 100m, memory: 16Mi}}}}
"""

H100 = "NVIDIA-H100-80GB-HBM3"


def theirs(name, pods, gpus, more=None, **spec):
    """A Job that somebody makes on the cluster by himself."""
    return {"metadata": {"name": name}, "spec": {
        "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0, **spec, "template": {"spec": {
            "restartPolicy": "Never", **(more or {}), "containers": [
                {"name": "train", "image": "box", "resources": {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": gpus}}}]}}}}


class Manifests(Hub):
    ends = False

    def target(self, name="east", **more):
        return super().target(name, partition={"suspectAfter": "3s"}, **more)

    def submit(self, name, n=1, retries=0):
        path = self.path("scratch", name + ".yaml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(JOB.format(name=name, n=n, retries=retries))
        done = self.cli("submit", "-f", path, check=False)
        return self.check(f"{name} is submitted as it is", done.returncode == 0 and done.stdout == name + "\n", done.stderr)

    def job_of(self, name):
        (job,) = self.history.all("jobs", self.uid(name))
        return job.last

    def a_job_runs_to_its_end(self):
        self.submit("plain")
        s = self.phase("plain", "Running", *OVER)
        self.check("it runs", s["phase"] == "Running" and s["placement"]["target"] == "east", s)
        job, (pod,) = self.job_of("plain"), self.history.ran(self.uid("plain"))
        self.check("as a Job that makes no second pod", job["spec"]["backoffLimit"] == 0 and job["spec"]["podReplacementPolicy"] == "Failed" and
                   "ttlSecondsAfterFinished" not in job["spec"], job["spec"])
        spec, own = pod.first["spec"], pod.first["spec"]["containers"][0]
        self.check("gated and held", spec["schedulingGates"] == [{"name": "hanse.dev/run"}] and pod.held and spec["restartPolicy"] == "Never", spec)
        self.check("with its own programs, labels and variables", own["command"] == ["train", "$(WHERE)"] and own["env"][0] ==
                   {"name": "WHERE", "value": "here"} and pod.first["metadata"]["labels"]["app"] == "theirs", own)
        self.check("and the names that every program finds", "HANSE_WORKLOAD_UID" in [e["name"] for e in own["env"]], own["env"])
        self.finish("plain")
        self.ended("plain")
        self.once("plain")
        self.clean()

    def a_gang_runs_whole(self):
        self.submit("gang", 3)
        self.phase("gang", "Running", *OVER)
        pods = self.history.ran(self.uid("gang"))
        self.check("all its pods are there", sorted(p.rank for p in pods) == ["0", "1", "2"], pods)
        self.finish("gang")
        self.ended("gang")
        twice = self.history.twice()
        self.check("and each of them once", not twice and len(self.history.ran(self.uid("gang"))) == 3, twice)
        self.clean()

    def a_failure_is_another_epoch(self):
        self.submit("again", retries=1)
        self.phase("again", "Running", *OVER)
        (pod,) = self.history.ran(self.uid("again"))
        self.peer.call("PATCH", f"{PODS}/{pod.name}", {"metadata": {"annotations": {"pod-fail.test/delay": "100ms"}}},
                       kind="application/merge-patch+json")
        s = self.looks("its second epoch", lambda: (s := self.status("again")).get("epoch") == 2 and s.get("phase") == "Running" and s)
        self.check("its first one has failed", s["ends"][-1].get("exitCode"), s["ends"])
        self.finish("again")
        self.ended("again")
        twice = self.history.twice()
        self.check("each epoch ran once", not twice and len(self.history.ran(self.uid("again"))) == 2, twice)
        self.clean()

    def a_pod_that_somebody_calls_over_proves_nothing(self):
        self.submit("lost", retries=1)
        self.phase("lost", "Running", *OVER)
        (pod,) = self.history.ran(self.uid("lost"))
        self.peer.call("PATCH", f"{PODS}/{pod.name}/status", {"status": {"phase": "Failed", "reason": "NodeLost"}}, kind="application/merge-patch+json")
        self.phase("lost", "Unknown")
        self.check("nothing else begins", len(self.history.ran(self.uid("lost"))) == 1)
        self.cli("fence", "lost", "--yes")
        self.looks("its second epoch, once somebody has said that it has ended", lambda: (s := self.status("lost")).get("epoch") == 2 and
                   s.get("phase") == "Running" and s)
        self.finish("lost")
        self.ended("lost")
        self.history.kubelet_ends(pod, 1, ("train", "logs"))
        twice = self.history.twice()
        self.check("each epoch ran once", not twice and len(self.history.ran(self.uid("lost"))) == 2, twice)
        self.clean()

    def theirs_are_there(self):
        size = {"cpu": "64", "memory": "256Gi", "pods": "500", "nvidia.com/gpu": "8"}
        self.peer.call("POST", "/api/v1/nodes", {"metadata": {"name": "g1", "labels": {"type": "kwok", "nvidia.com/gpu.product": H100}},
                                                 "status": {"capacity": size, "allocatable": size}})
        self.peer.call("POST", "/api/v1/namespaces", {"metadata": {"name": "vision"}})
        for job in (theirs("big", 2, 2), theirs("net", 1, 1, {"hostNetwork": True}), theirs("later", 1, 8, suspend=True)):
            self.peer.call("POST", "/apis/batch/v1/namespaces/vision/jobs", job)
        self.peer.call("POST", "/api/v1/namespaces/vision/pods", {"metadata": {"name": "hand"}, "spec": {
            "containers": [{"name": "c", "image": "box", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}})
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}},
                   document("GpuClass", "h100", {"vendor": "nvidia", "memory": "80Gi", "aliases": [H100]}),
                   document("PriceSheet", "own", {"currency": "EUR", "gpuHour": [{"class": "h100", "amortised": 2.5}]}),
                   document("Queue", "research", {"namespaces": ["vision"]}), self.target(priceSheet="own"))

        def held():
            others = self.object("nodes", "east.g1")["status"].get("others", {})
            return sum(c["count"] for c in others.get("classes", [])) == 6
        self.looks("the hub to know what others hold", held)

    def as_they_are(self):
        lists = [self.peer.call("GET", f"{path}/namespaces/vision/{kind}")[1]["items"] for path, kind in (("/apis/batch/v1", "jobs"), ("/api/v1", "pods"))]
        meta = ("uid", "generation", "labels", "annotations", "finalizers", "deletionTimestamp")
        return sorted(json.dumps([[o["metadata"].get(k) for k in meta], o["spec"]], sort_keys=True) for items in lists for o in items), sorted(
            self.workloads())

    def what_others_run_is_shown(self):
        self.theirs_are_there()
        self.looks("their pods to run", lambda: all(p["status"].get("phase") == "Running" for p in self.peer.call(
            "GET", "/api/v1/namespaces/vision/pods")[1]["items"]))
        before = self.as_they_are()
        told = json.loads(self.cli("adopt", "east", "--shadow", "-o", "json").stdout)
        rows = {r["name"]: r for r in told["jobs"] if r["namespace"] == "vision"}
        big, later, net = rows["big"], rows["later"], rows["net"]
        self.check("where their Jobs run, on what, at what cost", big["state"] == "Running" and big["gpus"] == 4 and big["class"] == "h100" and
                   big["nodes"] == [{"name": "g1", "gpus": 4}] and big["costPerHour"] == 10 and big["since"], big)
        hanse = big["hanse"]
        self.check("and where Hanse would have run them: their own room is free for them", hanse["outcome"] == "Placed" and hanse["target"] == "east" and
                   hanse["queue"] == "research" and hanse["costPerHour"] == 10 and hanse["nodes"] == [{"name": "g1", "gpus": 4}], hanse)
        self.check("in which namespace, as its Target says", any("hanse-runs" in w["message"] for w in big["warnings"]), big["warnings"])
        self.check("and nothing of it is noted but that", [w["field"] for w in big["warnings"]] == ["metadata.namespace"], big["warnings"])
        self.check("who finds no room would wait, and why", later["state"] == "Suspended" and later["hanse"]["outcome"] == "Pending" and
                   later["hanse"]["message"], later)
        self.check("what cannot be handed over, and why", not net["adoptable"] and "networks of their own" in net["why"], net)
        (hand,) = [o for o in told["others"] if o["namespace"] == "vision"]
        self.check("so of pods", hand["name"] == "hand" and hand["gpus"] == 1 and "made by hand" in hand["why"], hand)
        self.check("and what all of it comes to", told["totals"]["cost"] == {"jobs": 1, "notCompared": 0, "now": 10, "hanse": 10, "currency": "EUR"}, told)
        text = self.cli("adopt", "east", "--shadow", "-n", "vision", "-o", "wide").stdout
        self.check("people can read it", "Cannot be handed over:" in text and "Cost: 10.00 EUR an hour where they are" in text and "g1:4" in text, text)
        self.check("nothing was changed by it, there or here", self.as_they_are() == before, before)
        done = self.cli("adopt", "east", check=False)
        self.check("and nothing is taken over by it", done.returncode and "--shadow" in done.stderr and self.as_they_are() == before, done.stderr)


if __name__ == "__main__":
    sys.exit(run(Manifests, "kube-manifests", [Manifests.a_job_runs_to_its_end, Manifests.a_gang_runs_whole, Manifests.a_failure_is_another_epoch,
                                               Manifests.a_pod_that_somebody_calls_over_proves_nothing, Manifests.what_others_run_is_shown]))

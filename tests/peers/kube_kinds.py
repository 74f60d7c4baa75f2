#!/usr/bin/env python3
"""Manifests whose pods a controller of others makes, on a real API server; the controllers are played (lib/kube_kinds.py). Submitted as
they are, they begin whole and once in each epoch, end when the pods that decide it have ended, and leave nothing."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import NS, OVER, PODS, TOP, Failure, Hub  # noqa: E402
from kube_kinds import MPI, SETS, TRAINING, Controllers  # noqa: E402
from parts import run  # noqa: E402

POD = "spec: {{containers: [{{name: {0}, image: box, command: [train], resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}}}]}}"
SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: NAME}
spec:
  network: {enableDNSHostnames: DNSVALUE}
  failurePolicy: {maxRestarts: 0}
  replicatedJobs:
  - name: driver
    template: {spec: {backoffLimit: 0, template: {metadata: {labels: {app: theirs}}, POD}}}
  - name: workers
    replicas: 2
    template: {spec: {parallelism: 2, completions: 2, backoffLimit: 0, template: {POD}}}
""".replace("POD", POD.format("train"))
TORCH = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: NAME}
spec:
  runPolicy: {cleanPodPolicy: Running, backoffLimit: 0}
  pytorchReplicaSpecs:
    Master: {restartPolicy: OnFailure, template: {POD}}
    Worker: {replicas: 2, restartPolicy: OnFailure, template: {POD}}
""".replace("POD", POD.format("pytorch"))
LAUNCH = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: NAME}
spec:
  runPolicy: {backoffLimit: 0}
  mpiReplicaSpecs:
    Launcher: {template: {POD}}
    Worker: {replicas: 2, template: {POD}}
""".replace("POD", POD.format("mpi"))


ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse-kinds"


class Kinds(Hub):
    ends, controllers = False, None

    def target(self, name="east", **more):
        return super().target(name, partition={"suspectAfter": "3s"}, **more)

    def begin(self):
        super().begin()
        self.check("kinds.yaml is applied", self.peer.kubectl("apply", "-f", os.path.join(TOP, "deploy", "kubernetes", "kinds.yaml")) is not None)
        self.controllers = Controllers(self.peer, NS, SETS, TRAINING)

    def stop(self):
        if self.controllers:
            self.controllers.stop()
            self.check("no controller has met what it does not know", not self.controllers.failed, self.controllers.failed[:3])
        super().stop()

    def submit(self, text, name, **values):
        path = self.path("scratch", name + ".yaml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for key, value in {"NAME": name, "DNSVALUE": "true", **values}.items():
            text = text.replace(key, value)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = self.cli("submit", "-f", path, check=False)
        if not self.check(f"{name} is submitted as it is", done.returncode == 0 and done.stdout == name + "\n", done.stderr):
            raise Failure(done.stderr)
        return done.stderr

    def runs(self, name, n):
        s = self.phase(name, "Running", *OVER)
        self.check(f"{name} runs", s["phase"] == "Running", s)
        pods = self.looks("its ranks to be told", lambda: (p := self.history.ran(self.uid(name))) and all(x.rank for x in p) and p)
        self.check("all its pods, each a rank", sorted(p.rank for p in pods) == [str(i) for i in range(n)], [(p, p.rank) for p in pods])
        self.check("each is held, and stands for its own place", all(p.held and int(p.part.split("/")[0]) <= int(p.rank) <
                                                                     sum(map(int, p.part.split("/"))) for p in pods), pods)
        return sorted(pods, key=lambda p: int(p.rank))

    def ends_well(self, pod):
        self.peer.call("PATCH", f"{PODS}/{pod.name}", {"metadata": {"annotations": {"pod-complete.test/delay": "100ms"}}},
                       kind="application/merge-patch+json")

    def others_are_ended(self, pods, container):
        """By their kubelets, once somebody asks: kwok leaves what is held."""
        for pod in pods:
            self.looks(f"{pod} to be ended", lambda p=pod: p.deleting or p.over)
            if not pod.over:
                self.history.kubelet_ends(pod, 143, (container,))

    def gone(self, *kinds):
        twice = self.history.twice()
        self.check("no rank began twice", not twice, twice)
        self.clean()
        for kind in kinds:
            self.looks(f"no {kind[2]} to be left", lambda k=kind: not self.controllers.all(k))

    def a_jobset_runs_to_its_end(self):
        self.submit(SET, "set")
        pods = self.runs("set", 5)
        (job,) = self.history.all("jobs", self.uid("set"))
        (made,) = self.controllers.all(SETS)
        self.check("its Job makes nothing, and owns the JobSet", job.last["spec"]["parallelism"] == 0 and
                   made["metadata"]["ownerReferences"][0]["uid"] == job.meta["uid"], made["metadata"])
        self.check("the driver is rank 0", pods[0].part == "0/1" and pods[0].meta["labels"]["app"] == "theirs", pods[0].meta)
        self.finish("set")
        self.ended("set")
        self.gone(SETS)

    def whose_names_runs_go_by_makes_them(self):
        """From here on objects are made in anna's name, and no right of the hub's could make them."""
        path = self.path("scratch", "impersonate.yaml")
        with open(os.path.join(TOP, "deploy", "kubernetes", "impersonate.yaml"), encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("[USER]", "[anna]").replace("name: USER", "name: anna"))
        self.check("impersonate.yaml is applied", self.peer.kubectl("apply", "-f", path) is not None)
        status, role = self.peer.call("GET", ROLE)
        for rule in role["rules"]:
            rule["verbs"].remove("create")
        status, answer = self.peer.call("PUT", ROLE, role)
        self.check("the hub itself may make none any more", status == 200, answer)
        for who, word in (("anna", "yes"), ("system:serviceaccount:hanse:hanse", "no")):
            self.looks(f"{word} to be said of {who}", lambda a=who, b=word: self.may_make(a) == b)
        self.apply(self.target(principals=[{"name": "anna"}]))

    def may_make(self, who):
        spec = {"user": who, "groups": ["system:serviceaccounts"] if ":" in who else [], "resourceAttributes": {
            "namespace": NS, "verb": "create", "group": TRAINING[0], "resource": TRAINING[3]}}
        answer = self.peer.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})[1]
        return "yes" if answer["status"]["allowed"] else "no"

    def the_master_decides(self):
        told = self.submit(TORCH, "torch")
        self.check("what is not carried over is told", "restartPolicy" in told and "cleanPodPolicy" in told, told)
        master, *workers = self.runs("torch", 3)
        self.ends_well(master)
        self.others_are_ended(workers, "pytorch")
        self.ended("torch")
        self.gone(TRAINING)

    def what_its_cluster_refuses_begins_nothing(self):
        self.submit(SET, "bad", DNSVALUE="'no'")
        s = self.looks("the refusal to be told", lambda: "enableDNSHostnames" in str(s := self.status("bad")) and s)
        self.check("nothing of it ran", not self.history.ran(self.uid("bad")), s)
        self.cli("delete", "workloads", "bad", "--yes", check=False)
        self.gone(SETS)

    def a_cluster_that_lacks_a_kind_says_so(self):
        self.submit(LAUNCH, "mpi")
        s = self.looks("the reason to be told", lambda: "MPIJob" in (s := f"{self.status('mpi')} {self.cli('explain', 'mpi', check=False).stdout}") and s)
        self.check("it names what is missing", "kubeflow.org/v2beta1" in s, s)

    def its_launcher_decides_once_it_is_served(self):
        self.controllers.stop()
        self.controllers = Controllers(self.peer, NS, SETS, TRAINING, MPI)
        launcher, *workers = self.runs("mpi", 3)
        self.check("the launcher is rank 0", launcher.part == "0/1" and "launcher" in launcher.name, launcher)
        self.ends_well(launcher)
        self.others_are_ended(workers, "mpi")
        self.ended("mpi")
        self.gone(MPI)


if __name__ == "__main__":
    sys.exit(run(Kinds, "kube-kinds", [Kinds.a_jobset_runs_to_its_end,
                                       Kinds.what_its_cluster_refuses_begins_nothing, Kinds.whose_names_runs_go_by_makes_them,
                                       Kinds.the_master_decides, Kinds.a_cluster_that_lacks_a_kind_says_so,
                                       Kinds.its_launcher_decides_once_it_is_served]))

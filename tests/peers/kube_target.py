#!/usr/bin/env python3
"""A target that is a real Kubernetes (connectors/kubernetes): the real binary, a real API server, nodes and kubelets that kwok plays. With
the rights of deploy/kubernetes/rbac.yaml and no more. Its watches are cut and expire, its server is restarted, its token changes, its state
goes back in time; what was asked for runs once, and is told."""
import base64
import json
import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in (("tests", "peers", "lib"), ("deploy", "examples", "three-tier"), ("tests", "e2e", "lib")):
    sys.path.insert(0, os.path.join(TOP, *folder))
sys.dont_write_bytecode = True
from fault_proxy import FaultProxy  # noqa: E402
from federation import wait_for  # noqa: E402
from kube import Kube  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402
from parts import run  # noqa: E402

API, OVER, NS, OWN = "hanse.dev/v1alpha1", ("Succeeded", "Failed", "Cancelled"), "hanse-runs", "hanse"


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


class Target(KubeFederation):
    size = 3

    def reach(self, name="east"):
        found = self.object("targets", name).get("status", {})
        return next((c for c in found.get("conditions", []) if c["type"] == "Connected"), {})

    def reached(self, name="east", seconds=90):
        return wait_for(f"{name} to be in reach ({self.reach(name).get('message')})", lambda: self.reach(name).get("status") == "True", seconds)

    def phase(self, name, *wanted, seconds=120):
        return wait_for(f"{name} to be {' or '.join(wanted)}", lambda: (s := self.status(name)).get("phase") in wanted and s, seconds, 0.2)

    def node(self, name, **capacity):
        """As its cloud and the GPU operator would describe it."""
        size = {"cpu": "16", "memory": "64Gi", "pods": "110", **capacity}
        labels = {"type": "kwok", "topology.kubernetes.io/zone": "a", **({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} if capacity else {})}
        return self.peer.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels},
                                                       "status": {"capacity": size, "allocatable": size}})

    def kubeconfig(self, token, port=None):
        def named(name, what, **fields):
            return [{"name": name, what: fields}]
        ca = base64.b64encode(open(self.peer.ca, "rb").read()).decode()
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "east",
                           "clusters": named("c", "cluster", server=f"https://127.0.0.1:{port or self.proxy.port}",
                                             **{"certificate-authority-data": ca}),
                           "users": named("u", "user", token=token), "contexts": named("east", "context", cluster="c", user="u")})

    def token(self, name):
        def made():
            found = self.peer.call("GET", f"/api/v1/namespaces/{OWN}/secrets/{name}")[1] or {}
            return base64.b64decode(found.get("data", {}).get("token", "")).decode()
        return wait_for(f"the token {name}", made, 60)

    def secret(self, name, **data):
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "hanse-system"}, "stringData": data})

    def target(self, name="east", secret="east", **more):
        return document("Target", name, {
            "type": "kubernetes", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "30s"},
            "connection": {"credentialsFrom": {"secret": secret}, "namespace": NS},
            "kubernetes": {"runner": {"image": "hanse-run"}, "image": "box", "tolerations": []}, **more})

    def work(self, name, **spec):
        self.apply(document("Workload", name, {
            "type": "batch", "targets": {"names": ["east"]}, "resources": {"cpu": 1, "memory": "64Mi"},
            "run": {"command": ["/bin/true"], "retries": 0}, **spec}, namespace="default"))

    def jobs(self):
        found = self.peer.call("GET", f"/apis/batch/v1/namespaces/{NS}/jobs")[1]
        return {j["metadata"]["name"]: j for j in found["items"]}

    def pods(self, name):
        uid = self.object("workloads", name, "-n", "default")["metadata"]["uid"]
        found = self.peer.call("GET", f"/api/v1/namespaces/{NS}/pods")[1]["items"]
        return [p for p in found if p["metadata"].get("labels", {}).get("hanse.dev/key", "").startswith(uid)]

    def end(self, name, how="complete"):
        """kwok ends pods that say so."""
        for pod in self.pods(name):
            self.peer.call("PATCH", f"/api/v1/namespaces/{NS}/pods/{pod['metadata']['name']}", {
                "metadata": {"annotations": {f"pod-{how}.test/delay": "1s"}}}, kind="application/merge-patch+json")

    # ---- parts ------------------------------------------------------------------------------------------

    def begin(self):
        # A node that was taken for silent while its server was away stays so to kwok's pods; kubelets tell that they are back.
        self.peer = Kube(self.path("kube"), HANSE_KUBE_NODE_GRACE="600s", HANSE_KUBE_NODE_LEASE="400")
        self.proxy = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        done = self.peer.kubectl("apply", "-f", os.path.join(TOP, "deploy", "kubernetes", "rbac.yaml"))
        self.check("its rights are there", done is not None)
        for name in ("n1", "n2"):
            self.node(name)
        self.node("g1", **{"nvidia.com/gpu": "8"})
        self.start_members()
        self.secret("east", kubeconfig=self.kubeconfig(self.token("hanse-token")))
        self.apply(self.target())
        self.reached()

    def nodes_are_told(self):
        def names():
            return {n["metadata"]["name"] for n in json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"]}
        wait_for("its three nodes", lambda: {n for n in names() if n.startswith("east.")} == {"east.n1", "east.n2", "east.g1"}, 60)
        g1 = wait_for("east.g1 to be ready", lambda: (n := self.object("nodes", "east.g1")) and n["status"].get("health") == "Ready" and n, 60)
        self.check("its GPUs are counted", g1["spec"].get("counted", [{}])[0].get("count") == 8, g1["spec"])
        self.node("n3")
        wait_for("the fourth node", lambda: self.object("nodes", "east.n3"), 60)
        self.peer.call("DELETE", "/api/v1/nodes/n3")
        wait_for("it to go", lambda: not self.object("nodes", "east.n3"), 60)

    def a_workload_runs_to_its_end(self):
        self.work("one")
        self.phase("one", "Running")
        (pod,) = self.pods("one")
        self.check("it has one pod, on the node that was chosen", pod["spec"].get("nodeName") and
                   "east." + pod["spec"]["nodeName"] == self.status("one")["placement"]["assignments"][0]["node"], pod["spec"])
        self.end("one")
        self.check("its end is told", self.phase("one", *OVER)["phase"] == "Succeeded", self.status("one"))
        wait_for("its pod to go", lambda: not self.pods("one"), 120)
        self.work("two")
        self.phase("two", "Running")
        self.end("two", "fail")
        self.check("a failure is told", self.phase("two", *OVER)["phase"] == "Failed", self.status("two"))

    def gpus_are_given(self):
        self.work("devices", resources={"cpu": 1, "memory": "64Mi", "gpu": {"count": 2}})
        self.phase("devices", "Running")
        (pod,) = self.pods("devices")
        self.check("its pod asks for two", pod["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") == "2", pod["spec"])
        self.end("devices")
        self.phase("devices", "Succeeded")

    def a_gang_runs_whole(self):
        self.work("gang", gang={"workers": 3})
        self.phase("gang", "Running")
        self.check("it has three pods", len(self.pods("gang")) == 3, len(self.pods("gang")))
        self.end("gang")
        self.check("its end is told", self.phase("gang", *OVER)["phase"] == "Succeeded", self.status("gang"))

    def cut_watches_lose_nothing(self):
        before = self.reach().get("lastTransitionTime")
        self.work("cut")
        self.phase("cut", "Running")
        for how in ("reset", "close", "end", "reset"):
            self.proxy.cut("watch=1", how)
        self.proxy.rule(do="event", path="watch=1.*", status=410, times=3)
        self.proxy.cut("watch=1", "reset")
        self.end("cut")
        self.check("its end is told", self.phase("cut", *OVER)["phase"] == "Succeeded", self.status("cut"))
        self.check("it was never out of reach", self.reach().get("lastTransitionTime") == before, self.reach())
        self.proxy.drop()

    def answers_are_lost(self):
        self.proxy.rule(do="lose", method="POST", path="/jobs", times=1)
        self.work("lost")
        self.phase("lost", "Running")
        self.check("it has one pod", len(self.pods("lost")) == 1, len(self.pods("lost")))
        self.end("lost")
        self.check("its end is told", self.phase("lost", *OVER)["phase"] == "Succeeded", self.status("lost"))
        self.proxy.drop()

    def the_server_restarts(self):
        self.work("restart")
        self.phase("restart", "Running")
        self.peer.part("apiserver", "kill")
        wait_for("it to be out of reach", lambda: self.reach().get("status") == "False", 120)
        self.peer.part("apiserver", "start")
        self.reached(seconds=180)
        self.phase("restart", "Running")
        self.end("restart")
        self.check("its end is told", self.phase("restart", *OVER)["phase"] == "Succeeded", self.status("restart"))

    def another_leader_takes_over(self):
        self.work("hub")
        self.phase("hub", "Running")
        self.kill_leader()
        wait_for("another leader", lambda: self.cli("status", check=False).returncode == 0, 60)
        self.reached()
        self.end("hub")
        self.check("its end is told", self.phase("hub", *OVER)["phase"] == "Succeeded", self.status("hub"))

    def a_new_token_is_taken_up(self):
        before = self.reach().get("lastTransitionTime")
        self.peer.call("POST", f"/api/v1/namespaces/{OWN}/secrets", {
            "metadata": {"name": "second", "annotations": {"kubernetes.io/service-account.name": "hanse"}},
            "type": "kubernetes.io/service-account-token"})
        self.secret("east", kubeconfig=self.kubeconfig(self.token("second")))
        self.work("token")
        self.phase("token", "Running")
        self.peer.call("DELETE", f"/api/v1/namespaces/{OWN}/secrets/hanse-token")
        self.proxy.cut("", "reset")
        self.end("token")
        self.check("its end is told", self.phase("token", *OVER)["phase"] == "Succeeded", self.status("token"))
        self.check("it was never out of reach", self.reach().get("lastTransitionTime") == before, self.reach())

    def a_second_target_at_its_cluster(self):
        self.apply(self.target("twin"))
        said = wait_for("twin to be refused", lambda: (r := self.reach("twin")) and "remove one" in r.get("message", "") and r, 60)
        self.check("the younger one is refused, and says why", "Target east" in said["message"], said)
        self.cli("delete", "target", "twin")

    def a_member_lags(self):
        """A list that is older than what was seen takes nothing away."""
        self.work("lag")
        self.proxy.rule(do="record", path="/api/v1/pods[?]limit=250$", times=0)
        self.proxy.rule(do="record", path="/apis/batch/v1/jobs[?]limit=250", times=0)
        self.phase("lag", "Running")
        self.proxy.rule(do="event", path="watch=1.*", status=410, times=3)
        self.proxy.cut("watch=1", "reset")
        wait_for("a listing", lambda: sum("limit=250" in entry.get("target", "") for entry in self.proxy.log()) >= 2, 60)
        self.work("lag-2")
        self.phase("lag-2", "Running")
        self.proxy.drop()
        self.proxy.rule(do="stale", path="limit=250", times=4)
        self.proxy.rule(do="event", path="watch=1.*", status=410, times=3)
        self.proxy.cut("watch=1", "reset")
        self.end("lag-2")
        self.check("its end is told", self.phase("lag-2", *OVER)["phase"] == "Succeeded", self.status("lag-2"))
        self.end("lag")
        self.check("and that of the other", self.phase("lag", *OVER)["phase"] == "Succeeded", self.status("lag"))
        self.proxy.drop()

    def its_state_goes_back(self):
        def anew():
            told = (open(self.path(f"m{i}.log"), encoding="utf-8", errors="replace").read() for i in (1, 2, 3))
            return sum(text.count("event=kubernetes.session_anew") for text in told)
        before = anew()
        self.peer.part("etcd", "backup", self.path("backup"))
        self.work("later")
        self.phase("later", "Running")
        self.peer.part("etcd", "restore", self.path("backup"))
        wait_for("a new session", lambda: anew() > before, 240)
        self.reached(seconds=180)
        self.check("what is not there any more did not end", self.status("later")["phase"] not in OVER, self.status("later"))
        for part in ("kcm", "scheduler"):  # who watches the history that is gone may never hear of another: as one does with a restored cluster
            self.peer.part(part, "kill")
            self.peer.part(part, "start")
        self.work("after")
        self.phase("after", "Running")

    def what_it_may_not_do_is_said(self):
        self.work("elsewhere", targets={"names": ["far"]})
        self.apply(self.target("far", connection={"credentialsFrom": {"secret": "none"}, "namespace": NS}))
        said = wait_for("far to say why", lambda: (r := self.reach("far")) and r.get("message"), 60)
        self.check("a Secret that is not there is named", "none" in said, said)
        self.secret("none", kubeconfig=self.kubeconfig("no-token"))
        said = wait_for("far to say why", lambda: (r := self.reach("far")) and "nauthorized" in r.get("message", "") and r["message"], 60)
        self.secret("none", kubeconfig=self.kubeconfig("x").replace('"token": "x"', '"exec": {"command": "aws"}'))
        said = wait_for("far to say why", lambda: (r := self.reach("far")) and "exec" in r.get("message", "") and r["message"], 60)
        self.check("a kubeconfig that starts programs is refused by its field", "users[u].user.exec" in said, said)
        self.cli("delete", "target", "far")
        self.cli("delete", "workload", "elsewhere", "-n", "default")

    def a_deleted_target_waits_for_its_work(self):
        self.cli("delete", "target", "east")
        said = wait_for("what holds it", lambda: (t := self.cli("describe", "target", "east").stdout) and "DeletionWaits" in t and t, 60)
        self.check("a workload is named", "hold" in said and "default/" in said and "hanse fence" in said, said)
        self.check("and the finalizer", "Held by:\n  - hanse.dev/target" in said, said)
        done = self.apply(self.target(), check=False)
        self.check("who applies it again is told that it goes", "target/east is being deleted" in done.stderr, done.stderr)
        self.end("after")
        self.check("what came after runs to its end", self.phase("after", *OVER)["phase"] == "Succeeded", self.status("after"))

    def and_leaves_nothing(self):
        self.phase("later", "Unknown")
        self.cli("fence", "later", "-n", "default", "--yes")  # its Job went with the state of the cluster: who knows that says so
        wait_for("the Target to go", lambda: not self.object("targets", "east"), 120)
        left = [name for name, job in self.jobs().items() if "hanse.dev/key" in job["metadata"].get("labels", {})]
        self.check("no Job of a run is left that holds its name", not left, left)


if __name__ == "__main__":
    sys.exit(run(Target, "kube-target", [Target.nodes_are_told, Target.a_workload_runs_to_its_end, Target.gpus_are_given, Target.a_gang_runs_whole,
                                         Target.cut_watches_lose_nothing, Target.answers_are_lost, Target.the_server_restarts,
                                         Target.another_leader_takes_over, Target.a_new_token_is_taken_up, Target.a_second_target_at_its_cluster,
                                         Target.a_member_lags, Target.its_state_goes_back, Target.a_deleted_target_waits_for_its_work,
                                         Target.what_it_may_not_do_is_said, Target.and_leaves_nothing]))

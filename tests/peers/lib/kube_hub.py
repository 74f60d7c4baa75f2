"""A hub with Targets of type kubernetes: the real binary, real API servers with proxies before them, nodes that kwok plays, and the
history of each API server as the judge. What tests of faults have in common."""
import base64
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
for folder in (("tests", "peers", "lib"), ("deploy", "examples", "three-tier"), ("tests", "e2e", "lib")):
    sys.path.insert(0, os.path.join(TOP, *folder))
sys.dont_write_bytecode = True
from fault_proxy import FaultProxy  # noqa: E402
from federation import Failure, Federation, wait_for  # noqa: E402
from kube import Kube  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402
from kube_history import History  # noqa: E402

API, OVER, NS = "hanse.dev/v1alpha1", ("Succeeded", "Failed", "Cancelled"), "hanse-runs"
JOBS, PODS = f"/apis/batch/v1/namespaces/{NS}/jobs", f"/api/v1/namespaces/{NS}/pods"
TOKENS = "/api/v1/namespaces/hanse/secrets"


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


class Cluster:
    """An API server, the proxy before it, its history."""

    def __init__(self, folder, nodes=2, ends=True, **settings):
        self.peer = Kube(folder, **settings)
        self.proxy = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        if self.peer.kubectl("apply", "-f", os.path.join(TOP, "deploy", "kubernetes", "rbac.yaml")) is None:
            raise Failure("rbac.yaml cannot be applied")
        for i in range(nodes):
            size = {"cpu": "64", "memory": "256Gi", "pods": "500"}
            self.peer.call("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i + 1}", "labels": {"type": "kwok"}},
                                                     "status": {"capacity": size, "allocatable": size}})
        self.history = History(self.peer, NS, ends)

    def close(self):
        self.history.stop()
        self.proxy.drop()
        self.proxy.refuse()
        self.peer.close()

    def token(self, name="hanse-token"):
        def made():
            found = self.peer.call("GET", f"{TOKENS}/{name}")[1] or {}
            return base64.b64decode(found.get("data", {}).get("token", "")).decode()
        return wait_for(f"the token {name}", made, 60)

    def kubeconfig(self, token=None, port=None, ca=None):
        def named(name, what, **fields):
            return [{"name": name, what: fields}]
        with open(ca or self.peer.ca, "rb") as file:
            ca = base64.b64encode(file.read()).decode()
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                           "clusters": named("c", "cluster", server=f"https://127.0.0.1:{port or self.proxy.port}",
                                             **{"certificate-authority-data": ca}),
                           "users": named("u", "user", token=token or self.token()), "contexts": named("x", "context", cluster="c", user="u")})


class Hub(KubeFederation):
    """clusters by the names of their Targets. size=1: one whose death is its end until dev starts it again."""
    nodes, ends, names = 2, True, ("east",)

    def __init__(self, hanse, folder):
        super().__init__(hanse, folder)
        self.clusters, self.uids = {}, {}

    def stop(self):
        Federation.stop(self)
        for cluster in self.clusters.values():
            cluster.close()

    east = property(lambda self: self.clusters["east"])
    proxy = property(lambda self: self.east.proxy)
    peer = property(lambda self: self.east.peer)
    history = property(lambda self: self.east.history)

    # ---- the hub ----------------------------------------------------------------------------------------

    def looks(self, what, condition, seconds=90, every=0.3):
        """As wait_for, while members die and come back."""
        def look():
            try:
                return condition()
            except (Failure, subprocess.TimeoutExpired, ValueError, KeyError):
                return None
        return wait_for(what, look, seconds, every)

    def reach(self, name="east"):
        found = self.object("targets", name).get("status", {})
        return next((c for c in found.get("conditions", []) if c["type"] == "Connected"), {})

    def reached(self, name="east", status="True", seconds=120):
        return self.looks(f"{name} to be {'in' if status == 'True' else 'out of'} reach", lambda: self.reach(name).get("status") == status, seconds)

    def secret(self, name, **data):
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "hanse-system"}, "stringData": data})

    def target(self, name="east", **more):
        return document("Target", name, {
            "type": "kubernetes", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "30s"},
            "connection": {"credentialsFrom": {"secret": name}, "namespace": NS},
            "kubernetes": {"runner": {"image": "hanse-run"}, "image": "box"}, **more})

    def begin(self):
        for name in self.names:
            self.clusters[name] = Cluster(self.path("kube-" + name), self.nodes, self.ends)
        self.start_members()
        for name, cluster in self.clusters.items():
            self.secret(name, kubeconfig=cluster.kubeconfig())
            self.apply(self.target(name))
        for name in self.names:
            self.reached(name)

    # ---- work -------------------------------------------------------------------------------------------

    def work(self, *names, **spec):
        """Workloads of these names; their uids."""
        documents = [document("Workload", name, {
            "type": "batch", "targets": {"names": ["east"]}, "resources": {"cpu": "100m", "memory": "64Mi"},
            "run": {"command": ["/bin/true"], "retries": 0}, **spec}, namespace="default") for name in names]
        for i in range(0, len(documents), 50):
            self.apply(*documents[i:i + 50])
        return self.uid(names[0]) if len(names) == 1 else None

    def uid(self, name):
        if name not in self.uids:
            self.uids[name] = self.object("workloads", name, "-n", "default")["metadata"]["uid"]
        return self.uids[name]

    def phase(self, name, *wanted, seconds=120):
        return self.looks(f"{name} to be {' or '.join(wanted)}", lambda: (s := self.status(name)).get("phase") in wanted and s, seconds)

    def finish(self, name):
        """Its pods end by themselves from now on."""
        for cluster in self.clusters.values():
            cluster.history.let_end(self.uid(name))

    def ended(self, name, phase="Succeeded", seconds=120):
        s = self.phase(name, *OVER, seconds=seconds)
        return self.check(f"{name} is {phase}", s.get("phase") == phase, s)

    def all_ended(self, names, seconds=120):
        def phases():
            return {n: w.get("status", {}) for n, w in self.workloads().items() if n in set(names)}

        def over():
            found = phases()
            return len(found) == len(names) and all(s.get("phase") in OVER for s in found.values()) and found
        try:
            found = self.looks("all to end", over, seconds, 1)
        except Failure:
            found = phases()
        bad = {n: s for n, s in found.items() if s.get("phase") != "Succeeded"}
        return self.check(f"all {len(names)} have succeeded", not bad and len(found) == len(names), f"{len(bad)} have not: {list(bad.items())[:3]}")

    def once(self, *names):
        """Each of them ran, and none of them twice, by the history of the API servers."""
        twice = [t for c in self.clusters.values() for t in c.history.twice()]
        self.check("no rank of a run has ever had two pods that ran, nor a run two Jobs", not twice, twice[:3])
        counts = {n: sum(len(c.history.ran(self.uid(n))) for c in self.clusters.values()) for n in names}
        bad = {n: c for n, c in counts.items() if c != 1}
        self.check("each has run once", not bad, list(bad.items())[:5])
        admitted = {n: sum(len(j.admitted) for c in self.clusters.values() for j in c.history.all("jobs", self.uid(n))) for n in names}
        bad = {n: c for n, c in admitted.items() if c != 1}
        self.check("and has been admitted once", not bad, list(bad.items())[:5])

    def clean(self, seconds=90):
        """Nothing of ours is left but names that are taken."""
        for name, cluster in self.clusters.items():
            try:
                self.looks("all to go", lambda c=cluster: not c.history.left(), seconds)
            except Failure:
                pass
            left = cluster.history.left()
            self.check(f"nothing is left in {name}", not left, f"{len(left)}: {left[:5]}")

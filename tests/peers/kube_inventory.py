#!/usr/bin/env python3
"""What the hub knows of the nodes of a real Kubernetes (connectors/kubernetes/nodes): nodes with the labels that clouds give them, what
others' pods hold, cordons and taints, notices, nodes that cannot be read; and after its watches were cut and its server restarted, amid
nodes and pods that come and go, the same as a count from scratch gives. kwok plays the nodes. HANSE_KUBE_NODES: how many come and go."""
import base64
import collections
import glob
import json
import os
import random
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

API, NS, MERGE = "hanse.dev/v1alpha1", "hanse-runs", "application/merge-patch+json"
MANY = int(os.environ.get("HANSE_KUBE_NODES", "60"))
CPU_STEP, MEMORY_STEP = 100, 64 << 20


def recorded(name):
    with open(os.path.join(TOP, "tests", "golden", "kube_nodes", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def quantity(text):
    units = {"": 1, "m": 0.001, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
    number = text.rstrip("KMGTim")
    return float(number) * units[text[len(number):]]


def stepped(value, step):
    return -(-int(value) // step) * step


class Inventory(KubeFederation):
    serial = 0

    def condition(self, kind):
        found = self.cli("get", "targets", "east", "-o", "json", check=False)
        status = json.loads(found.stdout).get("status", {}) if found.returncode == 0 else {}
        return next((c for c in status.get("conditions", []) if c["type"] == kind), {})

    def nodes(self):
        """As the hub has them, by their names on the cluster."""
        found = json.loads(self.cli("get", "nodes", "-o", "json", timeout=60).stdout)["items"]
        return {n["metadata"]["name"][5:]: n for n in found if n["spec"]["target"] == "east" and not n["status"].get("unlisted")}

    def told(self, name, what, true, seconds=60):
        return wait_for(f"{name}: {what}", lambda: (n := self.nodes().get(name)) and true(n) and n, seconds, 0.3)

    def node(self, name, document=None, **capacity):
        size = {"cpu": "16", "memory": "64Gi", "pods": "110", **capacity}
        d = document or {"metadata": {"labels": {}}, "status": {"capacity": size, "allocatable": size}}
        labels = {**d["metadata"].get("labels", {}), "type": "kwok"}
        status = {k: {"pods": "110", **d["status"][k]} for k in ("capacity", "allocatable")}
        answer = self.peer.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": d.get("spec", {}),
                                                         "status": status})
        return answer[0] == 201

    def patch(self, name, body):
        return self.peer.call("PATCH", f"/api/v1/nodes/{name}", body, kind=MERGE)[0] == 200

    def pod(self, node, requests, init=(), **annotations):
        """One that is bound by hand, as those of DaemonSets are by their scheduler; kwok runs it."""
        self.serial += 1
        name = f"p{self.serial}"
        container = {"image": "box", "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}}}
        self.peer.call("POST", "/api/v1/namespaces/default/pods", {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "main", **container}], "tolerations": [{"operator": "Exists"}],
                     "initContainers": [{"name": f"i{k}", "image": "box", **c} for k, c in enumerate(init)]}})
        return name

    def target(self, **more):
        """At the server, by way of the proxy."""
        return {"apiVersion": API, "kind": "Target", "metadata": {"name": "east"}, "spec": {
            "type": "kubernetes", "tier": "spoke",
            "connection": {"server": f"https://127.0.0.1:{self.proxy.port}", "credentialsFrom": {"secret": "east"}, "namespace": NS},
            "kubernetes": {"runner": {"image": "hanse-run"}, "image": "box", **more}}}

    def counted_anew(self):
        """What others hold of each node, and what it has, by the API server's own lists."""
        held = collections.defaultdict(lambda: [0, 0, 0])
        for pod in self.peer.call("GET", "/api/v1/pods")[1]["items"]:
            if pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName"):
                continue
            for c in pod["spec"]["containers"]:
                requests = c.get("resources", {}).get("requests", {})
                for i, (what, unit) in enumerate((("cpu", 1000), ("memory", 1), ("nvidia.com/gpu", 1))):
                    held[pod["spec"]["nodeName"]][i] += round(quantity(requests.get(what, "0")) * unit)
        nodes = self.peer.call("GET", "/api/v1/nodes")[1]["items"]
        return {n["metadata"]["name"]: (int(n["status"]["capacity"].get("nvidia.com/gpu", 0)),
                                        stepped(held[n["metadata"]["name"]][0], CPU_STEP),
                                        stepped(held[n["metadata"]["name"]][1], MEMORY_STEP), held[n["metadata"]["name"]][2])
                for n in nodes if n["metadata"]["name"].startswith("many-")}

    def known(self):
        found = {}
        for name, n in self.nodes().items():
            if not name.startswith("many-"):
                continue
            others = n["status"].get("others", {})
            found[name] = (sum(c["count"] for c in n["spec"].get("counted", [])), round(quantity(others.get("cpu", "0")) * 1000),
                           int(quantity(others.get("memory", "0"))), sum(c["count"] for c in others.get("classes", [])))
        return found

    # ---- parts ------------------------------------------------------------------------------------------

    def begin(self):
        self.peer = Kube(self.path("kube"))
        self.proxy = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        self.check("its rights are there", self.peer.kubectl("apply", "-f", os.path.join(TOP, "deploy", "kubernetes", "rbac.yaml")) is not None)
        token = wait_for("its token", lambda: base64.b64decode((self.peer.call(
            "GET", f"/api/v1/namespaces/hanse/secrets/hanse-token")[1] or {}).get("data", {}).get("token", "")).decode(), 60)
        self.start_members()
        with open(self.peer.ca, encoding="utf-8") as f:
            ca = f.read()
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east", "namespace": "hanse-system"},
                    "stringData": {"token": token, "ca.crt": ca}})
        self.apply(self.target())
        wait_for("east to be in reach", lambda: self.condition("Connected").get("status") == "True", 90)

    def recorded_nodes_are_read(self):
        """Each as tests/golden/kube_nodes.txt has it."""
        want = collections.defaultdict(list)
        with open(os.path.join(TOP, "tests", "golden", "kube_nodes.txt"), encoding="utf-8") as f:
            for line in f:
                name, _, rest = line.strip().partition(": ")
                if " away: " in rest:
                    want[name].append(rest)
        names = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(TOP, "tests", "golden", "kube_nodes", "*.json")))]
        for name in names:
            if not self.node("rec-" + name, recorded(name)):
                self.check(f"{name} could be made", False)
        wait_for("all of them", lambda: {"rec-" + name for name in names} <= set(self.nodes()), 60)
        found, wrong = self.nodes(), {}
        for name in names:
            told = [(c["count"], c.get("unhealthy", 0), c["model"], c.get("mig", ""), c.get("shares", 0))
                    for c in found["rec-" + name]["spec"].get("counted", [])]
            for count, unhealthy, model, mig, shares in told:
                text = f" {count}, {unhealthy} away: {model}{' mig ' + mig if mig else ''},"
                if not any(text in line and line.endswith(f"shares {shares}") for line in want[name]):
                    wrong[name] = text
            if len(told) != len(want[name]):
                wrong[name] = told
        self.check(f"{len(names)} nodes have the GPUs that their labels tell", not wrong, wrong)
        leaf = found["rec-eks-h100"]["spec"]["topology"].get("leaf")
        self.check("and stand where these say", leaf == "nn-d2e25ce93dad9593e", leaf)

    def others_are_counted(self):
        self.node("o1", **{"nvidia.com/gpu": "4"})
        self.told("o1", "to be ready", lambda n: n["status"].get("health") == "Ready")
        self.pod("o1", {"cpu": "250m", "memory": "100Mi", "nvidia.com/gpu": "1"})
        name = self.pod("o1", {"cpu": "100m", "memory": "10Mi"}, init=[
            {"resources": {"requests": {"cpu": "2"}}}, {"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}])
        n = self.told("o1", "2.3 CPUs in use", lambda n: n["status"].get("others", {}).get("cpu") == "2300m")
        self.check("memory in steps", quantity(n["status"]["others"]["memory"]) == 128 << 20, n["status"]["others"])
        self.check("and the GPU", n["status"]["others"]["classes"] == [{"class": "nvidia.com/gpu", "count": 1}], n["status"]["others"])
        self.peer.call("PATCH", f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"annotations": {"pod-complete.test/delay": "1s"}}},
                       kind=MERGE)
        self.told("o1", "what has ended to hold nothing", lambda n: n["status"].get("others", {}).get("cpu") == "300m")

    def cordons_taints_and_notices(self):
        self.node("c1")
        self.told("c1", "to be ready", lambda n: n["status"].get("health") == "Ready" and not n["spec"].get("unschedulable"))
        self.patch("c1", {"spec": {"unschedulable": True}})
        n = self.told("c1", "the cordon", lambda n: n["spec"].get("unschedulable"))
        self.check("it is told as that", n["status"].get("reason") == "it is cordoned", n["status"])
        self.patch("c1", {"spec": {"unschedulable": False, "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}})
        n = self.told("c1", "the taint", lambda n: n["spec"].get("unschedulable") and "team" in n["status"].get("reason", ""))
        self.check("which taint it is is told", n["status"]["reason"] == "tainted: team=a:NoSchedule", n["status"])
        self.apply(self.target(tolerations=[{"key": "team", "operator": "Exists"}]))
        self.told("c1", "that it is tolerated now", lambda n: not n["spec"].get("unschedulable"))
        self.patch("c1", {"spec": {"taints": [{"key": "aws-node-termination-handler/spot-itn", "value": "x", "effect": "NoSchedule"}]}})
        n = self.told("c1", "the notice", lambda n: n["status"].get("notice", {}).get("kind") == "spot")
        self.check("with its deadline", n["status"]["notice"].get("deadline"), n["status"]["notice"])
        self.patch("c1", {"spec": {"taints": None}})
        self.told("c1", "no notice any more", lambda n: not n["status"].get("notice"))

    def what_cannot_be_read_is_said(self):
        self.node("bad1", **{"nvidia.com/gpu.shared": "4"})
        said = wait_for("NodesRefused", lambda: (c := self.condition("NodesRefused")).get("status") == "True" and c["message"], 60)
        self.check("by its name, and why", "east.bad1" in said and "nvidia.com/gpu.replicas" in said, said)
        self.patch("bad1", {"metadata": {"labels": {"nvidia.com/gpu.replicas": "4"}}})
        n = self.told("bad1", "it to be read", lambda n: n["spec"].get("counted"))
        self.check("as the shares that they are", n["spec"]["counted"][0].get("shares") == 4, n["spec"]["counted"])
        wait_for("nothing to be refused", lambda: self.condition("NodesRefused").get("status") != "True", 60)
        self.peer.call("DELETE", "/api/v1/nodes/bad1")
        wait_for("it to go", lambda: "bad1" not in self.nodes(), 60)

    def only_nodes_with_its_labels(self):
        for name in ("l1", "l2"):
            self.node(name)
        self.patch("l1", {"metadata": {"labels": {"pool": "hanse"}}})
        wait_for("both", lambda: {"l1", "l2"} <= set(self.nodes()), 60)
        self.apply(self.target(nodeLabels={"pool": "hanse"}))
        wait_for("l1 alone", lambda: set(self.nodes()) == {"l1"}, 60)
        self.patch("l2", {"metadata": {"labels": {"pool": "hanse"}}})
        self.patch("l1", {"metadata": {"labels": {"pool": None}}})
        wait_for("l2 alone", lambda: set(self.nodes()) == {"l2"}, 60)
        self.apply(self.target())
        wait_for("all again", lambda: {"l1", "l2"} <= set(self.nodes()), 60)

    def all_is_the_same_in_the_end(self):
        dice, alive = random.Random(1), []
        for i in range(MANY):
            self.node(f"many-{i}", **({"nvidia.com/gpu": "8"} if i % 2 else {}))
        for step in range(4 * MANY):
            name = f"many-{dice.randrange(MANY)}"
            if dice.random() < 0.6:
                alive.append(self.pod(name, {"cpu": f"{dice.randrange(50, 400)}m", "memory": f"{dice.randrange(10, 200)}Mi",
                                             **({"nvidia.com/gpu": "1"} if dice.random() < 0.3 and int(name[5:]) % 2 else {})}))
            elif alive and dice.random() < 0.8:
                gone = alive.pop(dice.randrange(len(alive)))
                self.peer.call("DELETE", f"/api/v1/namespaces/default/pods/{gone}?gracePeriodSeconds=0")
            elif not self.peer.call("DELETE", f"/api/v1/nodes/{name}")[0] == 200:
                self.node(name, **({"nvidia.com/gpu": "8"} if int(name[5:]) % 2 else {}))
            if step % 40 == 20:
                self.proxy.cut("watch=1", dice.choice(("reset", "close", "end")))
            if step == 2 * MANY:
                self.proxy.rule(do="event", path="watch=1.*", status=410, times=2)
                self.proxy.cut("watch=1", "reset")
        self.agrees("after watches were cut and expired")
        self.peer.part("apiserver", "kill")
        self.peer.part("apiserver", "start")
        wait_for("the API server", lambda: self.peer.kubectl("get", "nodes", "-o", "name"), 120)
        for i in range(0, MANY, 3):
            self.peer.call("DELETE", f"/api/v1/nodes/many-{i}")
        self.agrees("after its server was killed")

    def agrees(self, when):
        def same():
            self.difference = {k: (self.counted.get(k), known.get(k)) for k in {*self.counted, *known} if self.counted.get(k) != known.get(k)}
            return not self.difference

        def look():
            nonlocal known
            self.counted, known = self.counted_anew(), self.known()
            return same()
        known, self.counted, self.difference = {}, {}, {}
        try:
            wait_for("the hub to know what there is", look, 150, 1)
        finally:
            self.check(f"{len(self.counted)} nodes are as they are counted anew, {when}", not self.difference and self.counted, self.difference)


if __name__ == "__main__":
    sys.exit(run(Inventory, "kube-inventory", [Inventory.recorded_nodes_are_read, Inventory.others_are_counted,
                                               Inventory.cordons_taints_and_notices, Inventory.what_cannot_be_read_is_said,
                                               Inventory.only_nodes_with_its_labels, Inventory.all_is_the_same_in_the_end]))

#!/usr/bin/env python3
"""Sick GPUs on real nodes. By DCGM: what stands for its exporter is a real pod, asked through the API server with the right that
deploy/kubernetes/dcgm.yaml gives, and without it not at all; it tells who holds GPUs and does nothing, too. By scheduled diagnostics:
one that fails keeps work off its node, by its own last words,
until a later one passes; of diagnostics.yaml each right is used, nothing else is asked for, and a Target that is deleted leaves nothing."""
import base64
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in (("tests", "peers", "lib"), ("deploy", "examples", "three-tier"), ("tests", "e2e", "lib")):
    sys.path.insert(0, os.path.join(TOP, *folder))
sys.dont_write_bytecode = True
import kube  # noqa: E402

kube.alone()
from fault_proxy import FaultProxy  # noqa: E402
from federation import wait_for  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402
from parts import run  # noqa: E402

API, NS, OWN, DEPLOY = "hanse.dev/v1alpha1", "hanse-runs", "hanse-diagnostics", os.path.join(TOP, "deploy", "kubernetes")
NODES = ("node-a", "node-b")
LABELS = 'gpu="{0}",UUID="GPU-a8394b51-{0}",device="nvidia{0}",modelName="NVIDIA H100 80GB HBM3",Hostname="node"'
SICK = "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\nDCGM_FI_DEV_XID_ERRORS{" + LABELS.format(0) + "} 79\n"
EXPORTER = """
import http.server, os
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = os.environ["TEXT"].encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("", 9400), Metrics).serve_forever()
"""


class Sick(KubeFederation):
    asked = 0  # of the proxy's log, ahead of diagnostics

    def target(self, **kubernetes):
        return {"apiVersion": API, "kind": "Target", "metadata": {"name": "east"}, "spec": {
            "type": "kubernetes", "tier": "spoke",
            "connection": {"server": self.proxy.url, "credentialsFrom": {"secret": "east"}, "namespace": NS},
            "kubernetes": {"runner": {"image": "localhost/hanse-run:1"}, "image": "localhost/box:1", **kubernetes}}}

    def diagnose(self, script):
        self.apply(self.target(diagnostics={"image": "localhost/box:1", "command": ["/bin/sh", "-c", script], "namespace": OWN,
                                            "every": "10s", "timeout": "2m", "atOnce": 2}))

    def node(self, name="node-a"):
        return self.object("nodes", "east." + name).get("status", {})

    def faults(self, name="node-a"):
        return [(f["reason"], f["source"], f.get("health")) for f in self.node(name).get("faults", [])]

    def own(self, path, part="metadata", field="name"):
        return [x[part].get(field) for x in self.peer.call("GET", path)[1]["items"]]

    def exporter(self, namespace, text=SICK, node="node-a"):
        return self.peer.call("POST", f"/api/v1/namespaces/{namespace}/pods", {
            "metadata": {"name": "nvidia-dcgm-exporter-x", "labels": {"app": "nvidia-dcgm-exporter"}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
                     "volumes": [{"name": name, "hostPath": {"path": "/" + name}} for name in ("usr", "lib", "lib64")],
                     "containers": [{"name": "exporter", "image": "localhost/host:1", "imagePullPolicy": "Never",
                                     "command": ["/usr/bin/python3", "-c", EXPORTER], "env": [{"name": "TEXT", "value": text}],
                                     "volumeMounts": [{"name": name, "mountPath": "/" + name} for name in ("usr", "lib", "lib64")]}]}})

    def phase(self, namespace):
        return (self.peer.call("GET", f"/api/v1/namespaces/{namespace}/pods/nvidia-dcgm-exporter-x")[1] or {}).get("status", {}).get("phase")

    def begin(self):
        self.peer = kube.Kube(tempfile.mkdtemp(prefix="hanse-kube-"), "kubelet")
        archive = self.path("runner.tar")
        subprocess.run([os.path.join(DEPLOY, "runner-image"), os.environ["HANSE_RUN"], archive, "localhost/hanse-run:1"], check=True)
        for node in NODES:
            self.peer.node(node, "ctr", "images", "import", archive)
        for name in ("gpu-operator", "somebody"):
            self.peer.kubectl("create", "namespace", name)
        for name in ("rbac.yaml", "diagnostics.yaml"):
            self.check(f"{name} is taken", self.peer.kubectl("apply", "-f", os.path.join(DEPLOY, name)) is not None)
        token = wait_for("its token", lambda: base64.b64decode((self.peer.call(
            "GET", "/api/v1/namespaces/hanse/secrets/hanse-token")[1] or {}).get("data", {}).get("token", "")).decode(), 60)
        self.proxy = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        self.start_members()
        with open(self.peer.ca, encoding="utf-8") as f:
            ca = f.read()
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east", "namespace": "hanse-system"},
                    "stringData": {"token": token, "ca.crt": ca}}, self.target())
        for node in NODES:
            wait_for(f"{node} to be ready", lambda n=node: self.node(n).get("health") == "Ready", 120)

    def anybodys_pod_says_nothing(self):
        self.exporter("somebody")
        wait_for("its pod to run", lambda: self.phase("somebody") == "Running", 120)

    def the_exporters_pod_is_asked(self):
        self.check("the right is given", self.peer.kubectl("apply", "-f", os.path.join(DEPLOY, "dcgm.yaml")) is not None)
        self.exporter("gpu-operator")
        wait_for("its pod to run", lambda: self.phase("gpu-operator") == "Running", 120)
        found = wait_for("a fault of node-a", self.faults, 150)
        self.check("it is what the exporter says", found == [("Xid79", "dcgmXid", "NotReady")], found)
        self.check("nothing new comes to the node", self.node().get("health") == "NotReady", self.node())
        self.peer.call("DELETE", "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x")
        wait_for("nothing to be said without it, though somebody's pod says it still", lambda: not self.faults(), 120)
        self.check("the node is ready again", self.node().get("health") == "Ready", self.node())

    def tells(self, pod, node, percent):
        """Another exporter in the place of the one that was there, which is asked as soon as it is."""
        path = "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x"
        self.peer.call("DELETE", path)
        wait_for("the last exporter to be gone", lambda: self.peer.call("GET", path)[0] == 404, 60)
        self.exporter("gpu-operator", "".join(
            f'{metric}{{{LABELS.format(gpu)},container="main",namespace="{NS}",pod="{pod}"}} {value}\n'
            for gpu in (0, 1) for metric, value in (("DCGM_FI_DEV_GPU_UTIL", percent), ("DCGM_FI_DEV_FB_USED", 4096))), node)

    def use(self):
        return self.object("workloads", "busy", "-n", "default").get("status", {})

    def metric(self, name):
        request = urllib.request.Request(self.login.servers[0] + "/metrics", headers=self.login.headers)
        with urllib.request.urlopen(request, context=self.login.context, timeout=20) as answer:
            text = answer.read().decode()
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + '{target="east"}')), None)

    def who_holds_gpus_and_does_nothing_is_told(self):
        self.apply({"apiVersion": API, "kind": "GpuClass", "metadata": {"name": "h100"}, "spec": {"memory": "80Gi", "aliases": ["nvidia.com/gpu"]}},
                   {"apiVersion": API, "kind": "Queue", "metadata": {"name": "vision"}, "spec": {"namespaces": ["default"], "idleAfter": "1s"}})
        self.apply({"apiVersion": API, "kind": "Workload", "metadata": {"name": "busy", "namespace": "default"}, "spec": {
            "resources": {"gpu": {"count": 2}, "cpu": "100m", "memory": "64Mi"}, "run": {"command": ["/bin/sleep", "3600"]}}})
        wait_for("it to run", lambda: self.use().get("phase") == "Running", 120)
        self.check("nobody measures it, and that is no 0%", self.use().get("gpuUtilisation") == "not measured", self.use())
        found = self.peer.call("GET", f"/api/v1/namespaces/{NS}/pods")[1]["items"][0]
        pod, node = found["metadata"]["name"], found["spec"]["nodeName"]
        self.tells(pod, node, 80)
        wait_for("it to be measured", lambda: self.use().get("gpuUtilisation") == "80%", 90)
        self.check("all that it holds, and its memory", (u := self.use()["gpuUse"])["measured"] == 2000 and u["memory"] == "8Gi", u)
        self.check("and is shown", " 80% " in (rows := self.cli("get", "workloads", "-n", "default", "-o", "wide").stdout), rows)
        self.tells(pod, node, 0)
        wait_for("it to rest", lambda: self.metric("hanse_target_gpu_utilisation_ratio") == 0, 90)
        self.tells(pod, node, 0)
        shown = wait_for("it to be idle", lambda: (u := self.use().get("gpuUtilisation", "")).startswith("0% for ") and u, 90)
        self.check("since it first did nothing", self.use()["gpuUse"]["idle"] == 2000 and self.use()["gpuUse"]["told"], shown)
        events = wait_for("the Event", lambda: "GPUIdle" in (e := self.cli("describe", "workload", "busy", "-n", "default").stdout) and e, 60)
        self.check("it is told once, with since when", "its GPUs have done nothing since 20" in events, events)
        self.check("and is a figure", self.metric("hanse_target_gpus_idle") == 2, self.metric("hanse_target_gpus_idle"))
        report = json.loads(self.cli("cost", "--by", "project", "-o", "json").stdout)
        row = next(r for r in report["rows"] if r["project"] == "default")
        self.check("the ledger has what was held and did nothing, and adds up", 0 < row["heldIdle"] < row["measured"] < row["gpuHours"] and
                   report["balance"]["exact"], report)
        self.tells(pod, node, 50)
        wait_for("it to be at work again", lambda: "idleSince" not in self.use().get("gpuUse", {}), 90)
        self.cli("delete", "workload", "busy", "-n", "default")
        self.peer.call("DELETE", "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x")
        wait_for("it to be gone", lambda: not self.object("workloads", "busy", "-n", "default"), 90)

    def one_that_fails_keeps_work_off(self):
        self.asked = len(self.proxy.log())
        self.diagnose("echo GPU 3 is off the bus; exit 7")
        for node in NODES:
            found = wait_for(f"a fault of {node}", lambda n=node: self.faults(n), 120)
            self.check("it is what the diagnostics say", found == [("DiagnosticsFailed", "diagnostics", "NotReady")], found)
        said = wait_for("its last words", lambda: (s := self.cli("describe", "node", "east.node-a").stdout) and "off the bus" in s and s, 60)
        self.check("with its exit code", "its diagnostics ended with exit code 7: GPU 3 is off the bus" in said, said)
        self.apply({"apiVersion": API, "kind": "Workload", "metadata": {"name": "wants", "namespace": "default"},
                    "spec": {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east"]}, "run": {"command": ["true"]}}})
        why = wait_for("a reason why it waits", lambda: (s := self.cli("explain", "wants", check=False).stdout) and "Diagnostics" in s and s, 60)
        self.check("explain names it", "DiagnosticsFailed, by diagnostics" in why, why)
        self.cli("delete", "workload", "wants", check=False)
        events = self.cli("get", "events", "-n", "hanse-system", check=False).stdout
        self.check("an Event tells it", "DiagnosticsFailed" in events, events)

    def a_later_one_that_passes_lifts_it(self):
        self.diagnose("exit 0")
        for node in NODES:
            wait_for(f"no fault of {node}", lambda n=node: not self.faults(n), 120)

    def a_target_that_is_deleted_takes_them_along(self):
        self.diagnose("trap 'exit 1' TERM; sleep 1000 & wait")
        wait_for("some under way", lambda: "Running" in self.own(f"/api/v1/namespaces/{OWN}/pods", "status", "phase"), 60)
        kept = self.object("targets", "east")["metadata"].get("finalizers", [])
        self.check("the hub says that something is kept there", "hanse.dev/target" in kept, kept)
        self.cli("delete", "target", "east", check=False)
        wait_for("its Jobs to go", lambda: not self.own(f"/apis/batch/v1/namespaces/{OWN}/jobs"), 60)
        wait_for("and then the Target", lambda: not self.object("targets", "east"), 60)
        wait_for("its pods to go", lambda: not self.own(f"/api/v1/namespaces/{OWN}/pods"), 60)

    def its_rights_are_enough_and_used(self):
        log = self.proxy.log()[self.asked:]
        refused = [(x["method"], x["target"]) for x in log if x["status"] in (401, 403)]
        self.check("no request was refused for want of a right", not refused, refused[:5])
        used = {(x["method"], x["target"].split("?")[0].split("/")[6]) for x in log if f"/namespaces/{OWN}/" in x["target"]}
        self.check("each right of diagnostics.yaml was used, and no other", used == {("POST", "jobs"), ("DELETE", "jobs")}, used)


if __name__ == "__main__":
    sys.exit(run(Sick, "kube-sick-gpus", [
        Sick.anybodys_pod_says_nothing, Sick.the_exporters_pod_is_asked, Sick.who_holds_gpus_and_does_nothing_is_told,
        Sick.one_that_fails_keeps_work_off, Sick.a_later_one_that_passes_lifts_it,
        Sick.a_target_that_is_deleted_takes_them_along, Sick.its_rights_are_enough_and_used]))

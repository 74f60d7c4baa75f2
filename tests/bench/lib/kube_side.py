"""Kubernetes' side of a bench: tests/peers/lib/kubernetes in a folder, asked over HTTPS with a token, as JSON."""
import http.client
import json
import os
import ssl
import subprocess
import threading

from side import PEERS, process_cpu, process_rss, skip

LIB = os.path.join(PEERS, "kubernetes")
PODS = "/api/v1/namespaces/default/pods"


class Kube:
    def __init__(self, folder):
        self.dir = folder
        up = subprocess.run([os.path.join(LIB, "up"), folder], stderr=subprocess.PIPE, text=True, check=False,
                            env={"HANSE_KUBE_BUILD": "0", **os.environ, "HANSE_KUBE_NODE_LEASE": "400", "HANSE_KUBE_NODE_GRACE": "600s"})
        if up.returncode == 77:
            skip(up.stderr.strip())
        if up.returncode != 0:
            raise RuntimeError(up.stderr.strip())
        with open(os.path.join(folder, "east", "port"), encoding="utf-8") as file:
            self.port = int(file.read())
        with open(os.path.join(folder, "east", "token"), encoding="utf-8") as file:
            self.headers = {"Authorization": "Bearer " + file.read().strip(), "Content-Type": "application/json"}
        self.context = ssl.create_default_context(cafile=os.path.join(folder, "east", "ca.crt"))
        self.local = threading.local()

    def connect(self, timeout=60):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.context)

    def call(self, method, path, body=None):
        for again in (False, True):  # a kept connection may have been closed meanwhile
            kept = getattr(self.local, "connection", None)
            if kept is None:
                self.local.connection = self.connect()
            try:
                self.local.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
                answer = self.local.connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text else None
            except (http.client.RemoteDisconnected, ConnectionError):
                self.local.connection = None
                if kept is None or again:
                    raise
        raise AssertionError

    def must(self, method, path, body=None, good=(200, 201)):
        status, answer = self.call(method, path, body)
        if status not in good:
            raise RuntimeError(f"{method} {path}: {status} {str(answer)[:300]}")
        return answer

    def add_node(self, i):
        have = {"cpu": "128", "memory": "1Ti", "pods": "256", "nvidia.com/gpu": "8"}
        name = f"gpu-{i:05}"
        self.must("POST", "/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                "type": "kwok", "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{i % 4}"}},
            "status": {"capacity": have, "allocatable": have}})

    def nodes_ready(self):
        items = self.must("GET", "/api/v1/nodes?resourceVersion=0")["items"]
        return sum(not n["spec"].get("taints") and any(c["type"] == "Ready" and c["status"] == "True"
                                                       for c in n["status"].get("conditions", [])) for n in items)

    def make(self, name, gpus, priority=None):
        self.must("POST", PODS, {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {**({"priorityClassName": priority} if priority else {}), "containers": [{
                "name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "4Gi"},
                                                            "limits": {"nvidia.com/gpu": str(gpus)}}}]}})

    def forget(self, name):
        self.must("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", good=(200, 202, 404))

    def empty(self):
        return not self.must("GET", PODS + "?limit=1")["items"]

    def processes(self):
        """{component: pid}, but kwok, which stands in for the machines."""
        with open(os.path.join(self.dir, "pids"), encoding="utf-8") as file:
            return {name.split("@")[0]: int(pid) for pid, _, name in (line.split() for line in file) if not name.startswith("kwok")}

    def cpu_seconds(self):
        return sum(process_cpu(p) for p in self.processes().values())

    def rss(self):
        return {name: process_rss(p) for name, p in self.processes().items()}

    def close(self):
        subprocess.run([os.path.join(LIB, "down"), self.dir, "--wipe"], check=False, stderr=subprocess.DEVNULL)

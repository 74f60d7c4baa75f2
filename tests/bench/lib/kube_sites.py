"""Several clusters of tests/peers/lib/kubernetes in one folder (one etcd; an API server, a controller manager, a scheduler and a kwok
each), and a hub with a Target for each of them: what benches of the Kubernetes connector share."""
import base64
import json
import os
import subprocess
import sys

from side import PEERS, TOP, Cpu, hanse_binary, process_cpu, until

sys.path[:0] = [PEERS, os.path.join(TOP, "deploy", "examples", "three-tier")]
from kube import Kube  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402

API, NS = "hanse.dev/v1alpha1", "hanse-runs"
KWOK = os.path.join(PEERS, "kubernetes", "kwok.yaml")


def ending_kwok(folder):
    """kwok's stages, but for that each pod ends by itself as soon as it has run; the path of the file."""
    with open(KWOK, encoding="utf-8") as file:
        head, tail = file.read().split("metadata: {name: pod-complete}")
    asked = "    - {key: '.metadata.annotations[\"pod-complete.test/delay\"]', operator: Exists}\n"
    if asked not in tail:
        raise RuntimeError("kwok.yaml is not what this bench takes it for")
    tail = tail.replace(asked, "", 1).replace("durationMilliseconds: 1000", "durationMilliseconds: 0", 1)
    path = os.path.join(folder, "kwok.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + "metadata: {name: pod-complete}" + tail)
    return path


class Sites:
    """peers: one kube.Kube a cluster; the first of them has started all."""

    def __init__(self, folder, names, nodes, **settings):
        self.names, self.dir = names, folder
        first = Kube(folder, cluster=names[0], HANSE_KUBE_CLUSTERS=" ".join(names), HANSE_KUBE_NODE_LEASE="400",
                     HANSE_KUBE_NODE_GRACE="600s", **settings)
        self.peers = {names[0]: first}
        for name in names[1:]:
            self.peers[name] = Beside(first, name)
        for peer in self.peers.values():
            if peer.kubectl("apply", "-f", os.path.join(TOP, "deploy", "kubernetes", "rbac.yaml")) is None:
                raise RuntimeError("rbac.yaml cannot be applied")
            for i in range(nodes):
                size = {"cpu": "128", "memory": "1Ti", "pods": "1000"}
                peer.call("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i + 1}", "labels": {"type": "kwok"}},
                                                    "status": {"capacity": size, "allocatable": size}})

    def close(self):
        self.peers[self.names[0]].close()

    def kubeconfigs(self):
        return [peer.kubeconfig for peer in self.peers.values()]

    def cpu_seconds(self):
        """{component: seconds}, of all clusters together."""
        found = {}
        with open(os.path.join(self.dir, "pids"), encoding="utf-8") as file:
            for pid, _, name in (line.split() for line in file):
                part = name.split("@")[0]
                found[part] = found.get(part, 0) + process_cpu(int(pid))
        return found

    def requests(self):
        """{(verb, resource): count} that the API servers have answered, watches aside."""
        found = {}
        for peer in self.peers.values():
            for line in metrics(peer).splitlines():
                if not line.startswith("apiserver_request_total{"):
                    continue
                words, count = line.split("{", 1)[1].rsplit("} ", 1)
                words = dict(w.split("=", 1) for w in words.replace('"', "").split(",") if "=" in w)
                if words["verb"] in ("WATCH", "CONNECT") or words.get("resource") in ("leases", ""):
                    continue
                key = (words["verb"], words["resource"] + ("/" + words["subresource"] if words.get("subresource") else ""))
                found[key] = found.get(key, 0) + float(count)
        return found

    def count(self, path):
        """Objects at that path in all clusters, by pages of one."""
        total = 0
        for peer in self.peers.values():
            listed = peer.call("GET", path + ("&" if "?" in path else "?") + "limit=1")[1]
            total += len(listed["items"]) + listed["metadata"].get("remainingItemCount", 0)
        return total

    def items(self, path):
        return [o for peer in self.peers.values() for o in peer.call("GET", path)[1]["items"]]


class Beside(Kube):
    """Another cluster of the same folder."""

    def __init__(self, first, cluster):  # pylint: disable=super-init-not-called
        self.take(first.dir, first.lib, cluster)

    def close(self, wipe=True):
        pass


def metrics(peer):
    connection = peer.connect()
    try:
        connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + peer.token})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Hub(KubeFederation):
    """One member of the release binary, with a Target for each of the clusters."""

    def __init__(self, folder, sites, in_flight=64):
        self.sites, self.in_flight, self.cpu = sites, in_flight, Cpu("hub")
        super().__init__(hanse_binary(), folder)

    def _spawn(self, name, argv, **env):
        with self.cpu:
            return super()._spawn(name, argv, **env)

    def begin(self):
        self.start_members()
        with open(self.path("m1.pid"), encoding="utf-8") as file:
            self.pid = int(file.read())
        for name, peer in self.sites.peers.items():
            self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "hanse-system"},
                        "stringData": {"kubeconfig": self.kubeconfig(peer)}})
            self.apply(document("Target", name, {
                "type": "kubernetes", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "60s"},
                "connection": {"credentialsFrom": {"secret": name}, "namespace": NS},
                "limits": {"inFlight": self.in_flight, "workloads": 100000},
                "kubernetes": {"runner": {"image": "hanse-run"}, "image": "box"}}))
        until("the targets to be in reach", lambda: self.connected() >= set(self.sites.names), 90, 0.5)

    @staticmethod
    def kubeconfig(peer):
        def token():
            found = peer.call("GET", "/api/v1/namespaces/hanse/secrets/hanse-token")[1] or {}
            return base64.b64decode(found.get("data", {}).get("token", "")).decode()

        def named(name, what, **fields):
            return [{"name": name, what: fields}]
        with open(peer.ca, "rb") as file:
            ca = base64.b64encode(file.read()).decode()
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                           "clusters": named("c", "cluster", server=peer.url, **{"certificate-authority-data": ca}),
                           "users": named("u", "user", token=until("a token", token, 60, 0.2)),
                           "contexts": named("x", "context", cluster="c", user="u")})

    def submit(self, documents):
        """One `hanse apply` of all of them, beside which the caller goes on; its process."""
        path = self.path("work.json")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines("---\n" + json.dumps(d) + "\n" for d in documents)
        return subprocess.Popen([self.hanse, "apply", "-f", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})

    def ask(self, path):
        connection = self.login.connect(self.login.servers[0], timeout=60)
        try:
            connection.request("GET", path, headers=self.login.headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def none_but(self, phase):
        """Has each workload that phase?"""
        return not self.ask(f"/apis/{API}/namespaces/default/workloads?limit=1&fieldSelector=status.phase!%3D{phase}")["items"]


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}

"""A real Kubernetes for a test in Python: lib/kubernetes, or lib/kubelet with real nodes, in a folder; asked over HTTPS with its token.

    kube.alone()                                  # first of all, for real nodes only: see lib/kubelet
    with kube.Kube(folder, "kubelet") as peer:    # or "kubernetes"; ends the test with 77 where it cannot be had
        status, answer = peer.call("GET", "/api/v1/nodes")
"""
import http.client
import json
import os
import ssl
import subprocess
import sys

LIB = os.path.dirname(os.path.abspath(__file__))


def alone():
    """Executes this script anew in a network namespace of its own."""
    if os.environ.get("HANSE_KUBELET_NET") != os.readlink("/proc/self/ns/net"):
        os.execv(os.path.join(LIB, "kubelet", "alone"), ["alone", sys.executable, *sys.argv])


class Kube:
    def __init__(self, folder, lib="kubernetes", cluster="east", **settings):
        """settings: of `up`, as HANSE_KUBE_FSYNC="1"."""
        self.dir, self.lib, self.cluster = folder, os.path.join(LIB, lib), cluster
        up = subprocess.run([os.path.join(self.lib, "up"), folder], stderr=subprocess.PIPE, text=True, check=False,
                            env={"HANSE_KUBE_FSYNC": "0", "HANSE_KUBE_CLUSTERS": cluster, **os.environ, **settings})
        if up.returncode != 0:
            print(up.stderr.strip())
            sys.exit(up.returncode)
        self.take(self.dir, self.lib, cluster)

    def take(self, folder, lib, cluster):
        """What is known of a cluster that is up in that folder."""
        self.dir, self.lib, self.cluster = folder, lib, cluster
        own = os.path.join(folder, cluster)
        self.ca, self.cert, self.key = (os.path.join(own, name) for name in ("ca.crt", "apiserver.crt", "apiserver.key"))
        self.kubeconfig = os.path.join(own, "admin.kubeconfig")
        with open(os.path.join(own, "port"), encoding="utf-8") as f:
            self.port = int(f.read())
        with open(os.path.join(own, "token"), encoding="utf-8") as f:
            self.token = f.read().strip()
        self.context = ssl.create_default_context(cafile=self.ca)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return "https://" + self.address

    def connect(self, port=None, timeout=60):
        """To the server, or to what stands before it at that port."""
        return http.client.HTTPSConnection("127.0.0.1", port or self.port, timeout=timeout, context=self.context)

    def call(self, method, path, body=None, port=None, kind="application/json"):
        """(status, answer), by a connection of its own."""
        connection = self.connect(port)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Authorization": "Bearer " + self.token, "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def kubectl(self, *words, data=None):
        """What it prints; None when it failed."""
        with open(os.path.join(self.dir, "settings"), encoding="utf-8") as f:
            binary = next(line.split("=", 1)[1].strip() for line in f if line.startswith("HANSE_KUBE_BINARY="))
        done = subprocess.run([binary, "kubectl", "--kubeconfig", self.kubeconfig, *words], input=data, capture_output=True, text=True,
                              check=False)
        return done.stdout if done.returncode == 0 else None

    def part(self, name, verb, *words):
        """Of the control plane: etcd, apiserver, kcm, scheduler, kwok; kill, stop, start, and of etcd backup and restore FOLDER."""
        subprocess.run([os.path.join(LIB, "kubernetes", "part"), self.dir, name, verb, *words], check=True)

    def node(self, name, verb, *words):
        """Of lib/kubelet: kill-kubelet, start-kubelet, power-off, boot, ctr."""
        subprocess.run([os.path.join(self.lib, "node"), self.dir, name, verb, *words], check=True)

    def image(self, name, base, *files):
        subprocess.run([os.path.join(self.lib, "image"), self.dir, name, base, *files], check=True)

    def close(self, wipe=True):
        subprocess.run([os.path.join(self.lib, "down"), self.dir] + ["--wipe"] * wipe, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

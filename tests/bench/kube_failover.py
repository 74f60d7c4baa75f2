#!/usr/bin/env python3
"""From the moment a node loses its power until what ran there runs on another node: a workload of Hanse (mode replace, a lease of 8 s) beside
Jobs of Kubernetes on the same node of the same cluster, real kubelets and pods, one loss for all of them. `default` is a Job as people write
it: its pod is evicted 300 s after its node was given up. `quick` tolerates a lost node for no time at all, which is as quick as Kubernetes can
be. Neither knows whether the first copy still runs: where a node is merely cut off, they run twice. Hanse begins the next one once the lease of
the first one's runner is over, and goes on from its checkpoint. Each program says by itself when it runs. Prints one JSON object."""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "peers")]
sys.dont_write_bytecode = True
from side import Rounds, hanse_binary, hanse_version, load1, report, say, until  # noqa: E402

os.environ["HANSE"] = hanse_binary()
os.environ.setdefault("HANSE_BUILD_DIR", os.path.dirname(os.environ["HANSE"]))
os.environ.setdefault("HANSE_RUN", os.path.join(os.environ["HANSE_BUILD_DIR"], "hanse-run"))
os.environ["HANSE_KUBE_NODE_GRACE"] = "50s"  # as Kubernetes has it
import kubernetes_pods  # noqa: E402  begins this program anew in a network namespace of its own
from moves import document, run, wait_for  # noqa: E402

LOOK_S = 0.1
PROGRAM = "echo $HOSTNAME >> {}; while :; do sleep 1; done"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", default="default,quick")
    return parser.parse_args()


class Failover(kubernetes_pods.Pods):
    words, times = None, {}

    def said(self, name):
        """How often it has begun."""
        try:
            with open(self.path("scratch", name), encoding="utf-8") as file:
                return len(file.readlines())
        except FileNotFoundError:
            return 0

    def job(self, name, quick):
        out = self.path("scratch", name)
        tolerations = [{"key": f"node.kubernetes.io/{k}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
                       for k in ("not-ready", "unreachable")] if quick else []
        pod = {"restartPolicy": "Never", "tolerations": tolerations,
               "containers": [{"name": "main", "image": "localhost/box:1", "command": ["sh", "-c", PROGRAM.format(out)],
                               "volumeMounts": [{"name": "out", "mountPath": self.dir}], "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}}}],
               "volumes": [{"name": "out", "hostPath": {"path": self.dir}}]}
        self.peer.call("POST", "/apis/batch/v1/namespaces/default/jobs", {
            "metadata": {"name": name}, "spec": {"backoffLimit": 6, "template": {"spec": pod}}})

    def round(self, i):
        peers = self.words.peers.split(",")
        names = {who: f"{who}{i}" for who in ["hanse", *peers]}
        node, other = kubernetes_pods.NODES
        self.kubectl("cordon", other)
        wait_for("Hanse to know that", lambda: self.cli("describe", "node", f"east.{other}", check=False).stdout.count("cordoned"), 60)
        self.apply(document("Workload", names["hanse"], {
            "targets": {"names": ["east"]}, "resources": {"cpu": "100m", "memory": "32Mi"}, "partition": {"mode": "replace", "replaceAfter": "0s"},
            "checkpoint": {"store": self.path("checkpoints"), "grace": "5s"},
            "run": {"command": ["/bin/sh", "-c", PROGRAM.format(self.path("scratch", names["hanse"]))], "retries": 1}}, namespace="default"))
        for who in peers:
            self.job(names[who], who == "quick")
        for name in names.values():
            wait_for(f"{name} to run", lambda n=name: self.said(n) == 1, 120)
        wait_for("Hanse to know it", lambda: self.status(names["hanse"]).get("phase") == "Running", 60)
        self.kubectl("uncordon", other)
        time.sleep(10)
        began = time.monotonic()
        self.peer.node(node, "power-off")
        left = set(names)
        while left:
            until("all of them to run again", lambda: any(self.said(names[who]) > 1 for who in left), 900, LOOK_S)
            for who in [w for w in left if self.said(names[w]) > 1]:
                left.remove(who)
                self.times.setdefault(who, []).append(time.monotonic() - began)
                say(f"round {i}: {who} after {self.times[who][-1]:.1f} s")
        self.cli("delete", "workload", names["hanse"])
        self.peer.node(node, "boot")
        for who in peers:
            self.peer.kubectl("-n", "default", "delete", "job", names[who], "--wait=false")
        self.kubectl("-n", "default", "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        wait_for("the node to be back", lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in
                                                    self.get(f"/api/v1/nodes/{node}")["status"]["conditions"]), 120)


def rounds(p):
    for i in range(p.words.rounds):
        p.round(i)


def main():
    Failover.words = arguments()
    stdout, sys.stdout = sys.stdout, sys.stderr
    status = run((rounds,), kind=Failover)
    sys.stdout = stdout
    if status or "hanse" not in Failover.times:
        return status or 1
    rows = []
    for who in Failover.words.peers.split(","):
        row = Rounds("power off until it runs elsewhere", "s", f"Kubernetes, {who}")
        row.ours, row.theirs = Failover.times["hanse"], Failover.times[who]
        rows.append(row.row())
    report("kube_failover", {"rounds": Failover.words.rounds, "lease_s": 8, "load": load1(), "version": hanse_version(hanse_binary())}, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

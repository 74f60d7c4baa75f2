#!/usr/bin/env python3
"""The Kubernetes driver under the contract of drivers (tests/support/contract) on a real API server and a real kubelet; and afterwards
names that are only taken have no pods, Secrets and Services."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
import kube  # noqa: E402

kube.alone()
TOP = os.path.dirname(os.path.dirname(HERE))
TEST = os.path.join(os.environ.get("HANSE_BUILD_DIR", os.path.join(TOP, "build", "asan")), "tests", "unit",
                    "unit_connectors_kubernetes_runs_contract_cluster")


def main():
    folder = tempfile.mkdtemp(prefix="hanse-kube-")
    with kube.Kube(folder, "kubelet") as peer:
        archive, seen = os.path.join(folder, "runner.tar"), os.path.join(folder, "seen")
        subprocess.run([os.path.join(TOP, "deploy", "kubernetes", "runner-image"), os.environ["HANSE_RUN"], archive, "localhost/hanse-run:1"],
                       check=True)
        for node in ("node-a", "node-b"):
            peer.node(node, "ctr", "images", "import", archive)
        peer.kubectl("create", "namespace", "work")
        os.mkdir(seen, 0o777)
        os.chmod(seen, 0o777)
        own = os.path.join(folder, peer.cluster)
        done = subprocess.run([TEST], check=False, env={
            **os.environ, "HANSE_KUBE_URL": peer.url, "HANSE_KUBE_TOKEN": os.path.join(own, "token"), "HANSE_KUBE_CA": peer.ca,
            "HANSE_KUBE_DIR": seen})
        print(peer.kubectl("-n", "work", "get", "jobs,pods,secrets"))
        return done.returncode or left_behind(peer)


def items(peer, group, kind):
    return peer.call("GET", f"/{group}/namespaces/work/{kind}")[1]["items"]


def left_behind(peer):
    """Of names that are only taken nothing is there but the Job. What is secret goes ahead of the end that is written to a Job; its pods
    go last, and the driver of a part of this test may go before that: the next sweep would go on from there."""
    jobs = items(peer, "apis/batch/v1", "jobs")

    def named(word):
        return {j["metadata"]["labels"]["hanse.dev/key"] for j in jobs if word in j["metadata"]["annotations"]}

    ends, taken = named("hanse.dev/end"), named("hanse.dev/tombstone")
    taken.update(ends)
    bare = taken - ends
    left = sorted(o["metadata"]["name"] for kind, keys in (("secrets", taken), ("services", taken), ("pods", bare))
                  for o in items(peer, "api/v1", kind) if o["metadata"].get("labels", {}).get("hanse.dev/key") in keys)
    print(f"{len(jobs)} Jobs, of which {len(taken)} are names that are taken; left behind of those: {left}")
    return 1 if left or not taken else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Hanse beside Kubernetes (kube-apiserver, etcd, kube-scheduler, kube-controller-manager), on one machine, in one run, in turns: how
many single-GPU workloads a second are placed on 1,000 nodes of 8 GPUs; what making room for 512 GPUs on the full fleet takes and
loses; what the control planes cost. Prints one JSON object; a ratio above 1 says that Hanse does better.

The same client (Python, JSON over TLS, as many connections), the same watcher. One member of Hanse, one etcd, both wait for the disk.
Nothing runs on either side: kwok plays Kubernetes' nodes, lib/standin.py an agent of Hanse; neither is counted. `placed` is when the
watcher sees that the decision is durable: spec.nodeName is set; the phase is no longer Queued. Kubernetes is as its scheduler comes
(default profile), but for clientConnection qps 10000. Its binary must have been built: tests/peers/lib/kubernetes/build."""
import argparse
import json
import os
import random
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from hanse_side import WORKLOADS, Hanse, folder_of  # noqa: E402
from kube_side import PODS, Kube  # noqa: E402
from moves import document  # noqa: E402
from side import (Rounds, by_threads, digits, hanse_binary, load1, output, percentile, process_cpu, process_rss, report, say,  # noqa: E402
                  until)
from standin import StandIn  # noqa: E402
from watcher import Watcher, hanse_words, pod_words  # noqa: E402

PEER = "kubernetes"


class HanseFleet:
    name = "hanse"

    def __init__(self, folder, o):
        self.o, self.pool = o, Hanse(folder, {"fleet": {}}, suspect="60s")
        self.pool.start_members()
        self.pool.apply(self.pool.target_document("fleet"), document("GpuClass", "h200", {"memory": "141Gi"}),
                        document("PriceSheet", "own", {"gpuHour": [{"class": "h200", "amortised": 2.0}]}))
        with open(self.pool.path("m1.pid"), encoding="utf-8") as file:
            self.pid = int(file.read())
        nodes = [{"metadata": {"name": f"fleet.gpu-{i:05}"}, "status": {"health": "Ready"}, "spec": {
            "target": "fleet", "hostname": f"gpu-{i:05}", "cpu": "128", "memory": "1Ti", "topology": {"zone": f"z{i % 4}"},
            "gpus": [{"index": k, "class": "h200", "memory": "141Gi"} for k in range(8)]}} for i in range(o.nodes)]
        host, port = self.pool.login.servers[0].removeprefix("https://").split(":")
        self.agent = StandIn((host, int(port)), self.pool.path("pki"), "fleet", nodes)
        until("the nodes", lambda: len(self.pool.call("GET", "/apis/hanse.dev/v1alpha1/nodes")[1]["items"]) >= o.nodes, 60, 0.2)

    def watch(self):
        version = self.pool.call("GET", WORKLOADS + "?limit=1")[1]["metadata"]["resourceVersion"]
        return Watcher(lambda timeout: self.pool.login.connect(self.pool.login.servers[0], timeout=timeout), self.pool.login.headers,
                       WORKLOADS, version, hanse_words)

    def make(self, name, gpus=1, workers=1, **spec):
        self.pool.make(name, {"type": "training", "resources": {"gpu": {"count": gpus}, "cpu": 1, "memory": "4Gi"},
                              "checkpoint": {"store": "/checkpoints", "grace": "5s"}, "run": {"command": ["true"]},
                              **({"gang": {"workers": workers}} if workers > 1 else {}), **spec})

    def forget(self, names):
        by_threads(len(names), self.o.connections, lambda i: self.pool.call("DELETE", f"{WORKLOADS}/{names[i]}"))
        until("all to be gone", lambda: not self.pool.call("GET", WORKLOADS + "?limit=1")[1]["items"], 300, 0.2)

    def cpu(self):
        return process_cpu(self.pid)

    def rss(self):
        return {"server": process_rss(self.pid)}

    def saved(self, ages):
        """Each tells of a checkpoint that old; back when the control plane knows the last one."""
        by_name = {order["workload"]: key for key, order in self.agent.orders.items()}
        for name, age in ages.items():
            self.agent.checkpoint(by_name[name], age)
        until("the checkpoints to be known", lambda: self.pool.of(list(ages)[-1])["status"].get("checkpoint"), 120, 0.1)
        return by_name

    def close(self):
        self.agent.close()
        self.pool.close()


class KubeFleet:
    name = PEER

    def __init__(self, folder, o):
        self.o, self.kube = o, Kube(folder)
        self.kube.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "production"}, "value": 1000})
        by_threads(o.nodes, o.connections, self.kube.add_node)
        until("the nodes", lambda: self.kube.nodes_ready() >= o.nodes, 300, 1)

    def watch(self):
        version = self.kube.must("GET", PODS + "?limit=1")["metadata"]["resourceVersion"]
        return Watcher(self.kube.connect, self.kube.headers, PODS, version, pod_words)

    def make(self, name, gpus=1):
        self.kube.make(name, gpus)

    def forget(self, names):
        by_threads(len(names), self.o.connections, lambda i: self.kube.forget(names[i]))
        until("all to be gone", self.kube.empty, 300, 0.5)

    def cpu(self):
        return self.kube.cpu_seconds()

    def rss(self):
        return self.kube.rss()

    def close(self):
        self.kube.close()


def place(fleet, o, prefix, count):
    """Makes so many single-GPU workloads: what it took, and their names."""
    names = [f"{prefix}-{i:05}" for i in range(count)]
    posted, watch, cpu = {}, fleet.watch(), fleet.cpu()

    def one(i):
        posted[names[i]] = time.monotonic()
        fleet.make(names[i])
    try:
        begin = time.monotonic()
        by_threads(count, o.connections, one)
        made = time.monotonic()
        placed = watch.wait("placed", names, 900)
        cpu_placed = fleet.cpu() - cpu
        running = watch.wait("running", names, 900)
        waits = [watch.at["placed"][n] - posted[n] for n in names]
    finally:
        watch.close()
    return {"made": count / (made - begin), "placed": count / (placed - begin), "running": count / (running - begin),
            "p50": percentile(waits, 0.5) * 1000, "p99": percentile(waits, 0.99) * 1000, "cpu_placed": cpu_placed,
            "cpu": fleet.cpu() - cpu, "rss": fleet.rss(), "lists": watch.lists}, names


def idle(fleet, seconds):
    cpu = fleet.cpu()
    time.sleep(seconds)
    return (fleet.cpu() - cpu) / seconds * 100, sum(fleet.rss().values())


# ---- room for 512 GPUs on a full fleet ----------------------------------------------------------------------------------

def lost(ages, ended):
    """GPU-seconds since the last checkpoints of those that were ended; ages are as of the moment of the submission."""
    return sum(ages[n] for n in ended if n in ages)


def preempt_hanse(fleet, o, names, ages):
    by_name = fleet.saved(ages)
    told = time.monotonic()
    watch, cpu = fleet.watch(), fleet.cpu()
    try:
        begin = time.monotonic()
        fleet.make("production", gpus=8, workers=o.gang, priorityClassName="production")
        running = watch.wait("running", ["production"], 300)
        watch.gather(1)
        chosen = watch.at["nominated"].get("production", running)
        ended = [n for n in names if by_name[n] in fleet.agent.ended]
    finally:
        watch.close()
    older = begin - told
    return {"chosen": chosen - begin, "bound": running - begin, "victims": len(ended), "lost": lost(ages, ended) + older * len(ended),
            "least": sum(sorted(ages.values())[:o.gang * 8]), "cpu": fleet.cpu() - cpu}


def preempt_kube(fleet, o, names, ages):
    watch, cpu = fleet.watch(), fleet.cpu()
    wanted = [f"production-{i:03}" for i in range(o.gang)]
    try:
        begin = time.monotonic()
        by_threads(o.gang, o.connections, lambda i: fleet.kube.make(wanted[i], 8, "production"))
        bound = watch.wait("running", wanted, 600)
        watch.gather(2)
        chosen = max(watch.at["nominated"].get(n, watch.at["placed"][n]) for n in wanted)
        ended = [n for n in names if n in watch.at["gone"]]
    finally:
        watch.close()
    return {"chosen": chosen - begin, "bound": bound - begin, "victims": len(ended), "lost": lost(ages, ended), "cpu": fleet.cpu() - cpu}


def preemption(ours, theirs, o):
    say("vs-kubernetes: filling both fleets")
    full, count = {}, o.nodes * 8
    ages = {f"full-{i:05}": random.Random(i).uniform(0, o.spread) for i in range(count)}
    for fleet in (ours, theirs):
        _, full[fleet.name] = place(fleet, o, "full", count)
    time.sleep(o.spread)  # no checkpoint is older than its run
    say("vs-kubernetes: room for a gang")
    a, b = preempt_hanse(ours, o, full["hanse"], ages), preempt_kube(theirs, o, full[PEER], ages)
    rows = []
    for key, what, unit in (("chosen", "victims of 512 GPUs chosen on a full fleet", "s"), ("bound", "512 GPUs running on a full fleet", "s"),
                            ("lost", "lost by victims of 512 GPUs", "GPU-s"), ("cpu", "CPU for it", "s")):
        r = Rounds(what.replace("512", str(o.gang * 8)), unit, PEER)
        r.ours, r.theirs = [a[key]], [b[key]]
        rows.append(r.row())
    rows[0].update(victims={"hanse": a["victims"], PEER: b["victims"]}, least_possible_loss_without_topology=digits(a["least"]),
                   checkpoint_ages_s=[0, o.spread], hanse_asks=f"one gang of {o.gang} x 8", peer_asks=f"{o.gang} pods of 8: it knows no gang")
    return rows


def placement(ours, theirs, o):
    figures = {"hanse": [], PEER: []}
    for r in range(o.rounds):
        for fleet in (ours, theirs):
            say(f"vs-kubernetes: round {r + 1}, {fleet.name}")
            found, names = place(fleet, o, f"p{r}", o.pods)
            figures[fleet.name].append(found)
            say(f"vs-kubernetes: {found['placed']:.0f}/s placed, {found['running']:.0f}/s running")
            fleet.forget(names)
    rows = []
    for key, what, unit, more in (("placed", "placed, from first POST to last decision", "1/s", True),
                                  ("running", "running, as its stand-in says", "1/s", True), ("made", "POST answered", "1/s", True),
                                  ("p50", "POST to decision, p50", "ms", False), ("p99", "POST to decision, p99", "ms", False),
                                  ("cpu_placed", "CPU of the control plane until the last decision", "s", False)):
        row = Rounds(f"{o.pods} single-GPU workloads on {o.nodes} nodes: {what}", unit, PEER, more)
        row.ours, row.theirs = [x[key] for x in figures["hanse"]], [x[key] for x in figures[PEER]]
        rows.append(row.row())
    rows[0].update(connections=o.connections, note="both wait for the disk; nothing is executed; stand-ins on both sides, not counted",
                   watcher_listed_again={k: [x["lists"] for x in v] for k, v in figures.items()})
    row = Rounds("memory of the control plane after it", "MiB", PEER)
    row.ours, row.theirs = [sum(x["rss"].values()) for x in figures["hanse"]], [sum(x["rss"].values()) for x in figures[PEER]]
    rows.append(row.row(parts={k: v[-1]["rss"] for k, v in figures.items()}))
    return rows


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--nodes", type=int, default=1000)
    a.add_argument("--pods", type=int, default=5000)
    a.add_argument("--connections", type=int, default=16)
    a.add_argument("--rounds", type=int, default=2)
    a.add_argument("--gang", type=int, default=64, help="workers of 8 GPUs")
    a.add_argument("--spread", type=float, default=30, help="ages of checkpoints, s")
    a.add_argument("--idle", type=float, default=10, help="seconds that idleness is measured")
    a.add_argument("--no-preempt", action="store_true")
    o = a.parse_args()
    load, rows = load1(), []
    with tempfile.TemporaryDirectory(prefix="hanse-vs-") as folder:
        theirs = KubeFleet(folder_of(folder, "k"), o)
        ours = None
        try:
            ours = HanseFleet(folder_of(folder, "h"), o)
            time.sleep(5)
            cpu, memory = Rounds(f"idle with {o.nodes} nodes: CPU", "% of a core", PEER), Rounds("idle: memory", "MiB", PEER)
            for fleet, figures in ((ours, (cpu.ours, memory.ours)), (theirs, (cpu.theirs, memory.theirs))):
                for figure, value in zip(figures, idle(fleet, o.idle)):
                    figure.append(value)
            rows += placement(ours, theirs, o) + [cpu.row(), memory.row()]
            if not o.no_preempt:
                rows += preemption(ours, theirs, o)
        finally:
            if ours:
                ours.close()
            theirs.close()
    version = output(os.path.join(HERE, "..", "peers", "lib", "kubernetes", "build"))
    versions = {"hanse": output(hanse_binary(), "version", "--client") or output(hanse_binary(), "version"),
                PEER: os.path.basename(version).removeprefix("kubeall-") + ", etcd 3.6.8, kwok 0.8.0"}
    report("vs-kubernetes", {**vars(o), "load1_begin": load, "load1_end": load1(), "versions": versions}, rows)


main()

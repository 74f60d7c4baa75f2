#!/usr/bin/env python3
"""Hanse beside a loop of client-go on the same API servers, in turns: so many Jobs over so many clusters, made and seen to end, nodes and
pods played by kwok. Prints one JSON object; a ratio above 1 says that Hanse does better.

Hanse makes more of a run than `kubectl create` does: each pod waits until it is admitted, nothing starts twice, and the final state stays
until the log has it. So there are two peers: `create` makes the same Jobs (as Hanse made them, without gates and finalizers) and does
nothing else; `same` makes the same writes as Hanse, in the same order, and looks for nothing that could go wrong. A side's time is from the
first request until the last Job is known to have ended; `clean`, until nothing but the Job is left of any. Requests are counted by the API
servers themselves, those of Kubernetes' own controllers with them."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from kube_sites import NS, Hub, Sites, document, ending_kwok  # noqa: E402
from side import PEERS, Rounds, digits, hanse_binary, hanse_version, load1, process_cpu, process_rss, report, say, skip, until  # noqa: E402

JOBS, PODS, SECRETS = f"/apis/batch/v1/namespaces/{NS}/jobs", f"/api/v1/namespaces/{NS}/pods", f"/api/v1/namespaces/{NS}/secrets"


class Side:
    """What one turn came to."""

    def __init__(self, sites, count):
        self.sites, self.count, self.load = sites, count, load1()
        self.before, self.cpu = sites.requests(), sites.cpu_seconds()
        self.begin = time.monotonic()

    def since(self):
        return time.monotonic() - self.begin

    def end(self, over, clean, own_cpu, **more):
        after, cpu = self.sites.requests(), self.sites.cpu_seconds()
        asked = {k: after[k] - self.before.get(k, 0) for k in after if after[k] - self.before.get(k, 0) > self.count / 20}
        self.result = {
            "rate": self.count / over, "clean_rate": self.count / clean, "over_s": digits(over), "clean_s": digits(clean), "load": self.load,
            "own_cpu_ms": digits(own_cpu / self.count * 1000),
            "kube_cpu_ms": digits(sum(cpu[c] - self.cpu[c] for c in cpu) / self.count * 1000),
            "kube_cpu_ms_by_part": {c: digits((cpu[c] - self.cpu[c]) / self.count * 1000) for c in cpu},
            "requests_a_job": digits(sum(asked.values()) / self.count),
            "requests": {f"{verb} {what}": digits(n / self.count) for (verb, what), n in sorted(asked.items())}, **more}
        return self.result


def hanse_turn(hub, sites, count, turn):
    names = [f"w{turn}-{i}" for i in range(count)]
    side, cpu = Side(sites, count), process_cpu(hub.pid)
    client = hub.submit(document("Workload", name, {
        "targets": {"names": sites.names}, "resources": {"cpu": "100m", "memory": "64Mi"}, "run": {"command": ["/bin/true"], "retries": 0}},
        namespace="default") for name in names)
    until("hanse apply", lambda: client.poll() is not None, 600, 0.02)
    if client.returncode:
        raise RuntimeError(f"hanse apply: {client.returncode}")
    applied = side.since()
    until("all to have succeeded", lambda: hub.none_but("Succeeded"), 1800, 0.1)
    over = side.since()
    until("all pods to be gone", lambda: not sites.count(PODS) and not sites.count(SECRETS), 1800, 0.1)
    clean = side.since()
    return side.end(over, clean, process_cpu(hub.pid) - cpu, applied_s=digits(applied), rss_mib=process_rss(hub.pid))


def judged(hub, sites, count):
    """Of each workload one Job that has admitted one pod, and no other."""
    jobs = [j for j in sites.items(JOBS) if "hanse.dev/key" in j["metadata"].get("labels", {})]
    uids = {w["metadata"]["uid"] for w in hub.workloads().values()}
    per = {}
    for job in jobs:
        admitted = job["metadata"]["annotations"].get("hanse.dev/admitted", "").split()
        uid = job["metadata"]["labels"]["hanse.dev/key"].split(".")[0]
        per[uid] = per.get(uid, 0) + len(admitted)
    return {"duplicates": sum(max(0, n - 1) for n in per.values()), "orphans": len(set(per) - uids),
            "never_ran": len(uids - set(per)), "jobs": len(jobs), "expected": count}


def plain(o, strip):
    """A Job that the API server has, as one would make it."""
    meta = {"name": "x", "namespace": NS}
    spec = {k: v for k, v in o["spec"].items() if k in ("completionMode", "completions", "parallelism", "backoffLimit", "podReplacementPolicy",
                                                        "template")}
    template = json.loads(json.dumps(spec["template"]))
    for label in list(template["metadata"].get("labels", {})):
        if "controller-uid" in label or "job-name" in label:
            del template["metadata"]["labels"][label]
    if strip:
        template["metadata"].pop("finalizers", None)
        template["spec"].pop("schedulingGates", None)
        template["metadata"]["labels"].pop("hanse.dev/key", None)
        template["metadata"].pop("annotations", None)
    else:
        meta["finalizers"] = ["hanse.dev/run"]
        meta["annotations"] = o["metadata"].get("annotations", {})
        for bad in ("hanse.dev/admitted", "hanse.dev/end", "hanse.dev/end-mark"):
            meta["annotations"].pop(bad, None)
        meta["annotations"]["hanse.dev/mark"] = template["metadata"]["annotations"]["hanse.dev/mark"] = "x" * 200
        meta["labels"] = {"app.kubernetes.io/managed-by": "loop"}
        template["metadata"]["labels"].pop("hanse.dev/key", None)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": template}}


def loop_turn(o, folder, sites, mode, prefix):
    with open(os.path.join(folder, mode + ".json"), encoding="utf-8") as file:
        side, before = Side(sites, o.workloads), os.times()
        argv = [o.loop, "--mode", mode, "--jobs", str(o.workloads), "--job", file.name, "--at-once", str(o.at_once), "--namespace", NS,
                "--prefix", prefix]
    if mode == "same":
        argv += ["--secret", os.path.join(folder, "secret.json")]
    done = subprocess.run([*argv, *sites.kubeconfigs()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"loop: {done.stderr[-1000:]}")
    told, after = json.loads(done.stdout), os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    result = side.end(told["over_s"], told["cleaned_s"], cpu, made_s=digits(told["made_s"]), own_requests=digits(told["requests"] / o.workloads),
                      again=told["again"])
    forget(sites, prefix)
    return result


def forget(sites, prefix):
    """The loop's Jobs, with their pods; what holds them lets go."""
    for peer in sites.peers.values():
        for job in peer.call("GET", JOBS)[1]["items"]:
            if job["metadata"]["name"].startswith(prefix + "-") and job["metadata"].get("finalizers"):
                peer.call("PATCH", f"{JOBS}/{job['metadata']['name']}", {"metadata": {"finalizers": None}}, kind="application/merge-patch+json")
        peer.call("DELETE", JOBS + "?propagationPolicy=Background&labelSelector=%21hanse.dev%2Fkey")
        peer.call("DELETE", PODS + "?gracePeriodSeconds=0")
    until("the loop's pods to be gone", lambda: not sites.count(PODS), 600, 0.5)


def templates(folder, sites):
    """What Hanse has made, for the loop to make the same."""
    job = next(j for j in sites.items(JOBS) if "hanse.dev/admitted" in j["metadata"].get("annotations", {}))
    for mode in ("create", "same"):
        with open(os.path.join(folder, mode + ".json"), "w", encoding="utf-8") as file:
            json.dump(plain(job, mode == "create"), file)
    data = {f"env-{i}": "d29ya2xvYWQtd29ya2xvYWQ=" for i in range(5)}
    with open(os.path.join(folder, "secret.json"), "w", encoding="utf-8") as file:
        json.dump({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "annotations": {"hanse.dev/mark": "x" * 200}}, "immutable": True,
                   "data": {**data, "token-0": "x" * 200}}, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=4, help="of each cluster")
    parser.add_argument("--at-once", type=int, default=64, help="requests under way at each cluster")
    parser.add_argument("--only", default="hanse,create,same")
    parser.add_argument("--wait", help="a command that is run before the first turn")
    o = parser.parse_args()
    o.loop = subprocess.run([os.path.join(PEERS, "kubernetes", "loop")], capture_output=True, text=True, check=False)
    if o.loop.returncode:
        skip(o.loop.stderr.strip())
    o.loop = o.loop.stdout.strip()
    turns, verdict = {"hanse": [], "create": [], "same": []}, {}
    with tempfile.TemporaryDirectory(prefix="hanse-dispatch-") as folder:
        sites = Sites(os.path.join(folder, "kube"), [f"c{i + 1}" for i in range(o.clusters)], o.nodes, HANSE_KUBE_BUILD="0",
                      HANSE_KUBE_FSYNC="0", HANSE_KUBE_KWOK=ending_kwok(folder))
        hub = None
        try:
            hub = Hub(os.path.join(folder, "hub"), sites, o.at_once)
            hub.begin()
            hanse_turn(hub, sites, 20, "warm")
            templates(folder, sites)
            if o.wait:
                subprocess.run(["sh", "-c", o.wait], env={**os.environ, "HUB": str(hub.pid), "FOLDER": folder}, check=False)
            for i in range(o.rounds):
                for who in o.only.split(","):
                    result = hanse_turn(hub, sites, o.workloads, i) if who == "hanse" else loop_turn(o, folder, sites, who, f"{who}{i}")
                    turns[who].append(result)
                    say(f"{who}: {json.dumps(result)}")
            verdict = judged(hub, sites, 20 + o.rounds * o.workloads * ("hanse" in o.only))
        finally:
            if hub:
                hub.stop()
                hub.cpu.close()
            sites.close()
    rows = []
    for peer in ("create", "same"):
        if turns["hanse"] and turns[peer]:
            for name, field in (("dispatched and ended", "rate"), ("until nothing is left but the Job", "clean_rate")):
                if field == "clean_rate" and peer == "create":
                    continue
                rounds = Rounds(name, "workloads/s", peer, more=True)
                rounds.ours, rounds.theirs = [t[field] for t in turns["hanse"]], [t[field] for t in turns[peer]]
                rows.append(rounds.row())
    rows.append({"name": "duplicates", "value": verdict["duplicates"], "unit": "runs"})
    rows.append({"name": "orphans", "value": verdict["orphans"], "unit": "runs"})
    report("kube_dispatch", {"workloads": o.workloads, "clusters": o.clusters, "at_once": o.at_once, "load": load1(),
                             "version": hanse_version(hanse_binary()), "judged": verdict, "turns": turns}, rows)
    return 1 if verdict["duplicates"] or verdict["orphans"] or verdict["never_ran"] or verdict["jobs"] < verdict["expected"] else 0


if __name__ == "__main__":
    sys.exit(main())

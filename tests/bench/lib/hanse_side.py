"""Hanse's side of a bench: a federation on this machine (tests/e2e/lib/moves.py), in a control group, asked over HTTPS as any
client would."""
import json
import os
import threading

from side import Cpu, hanse_binary  # noqa: I001  (it says where moves is)
from moves import Moves, document, wait_for

WORKLOADS = "/apis/hanse.dev/v1alpha1/namespaces/default/workloads"


class Hanse(Moves):
    """targets: {name: {node: GPUs}}; each node has `cpus`."""

    def __init__(self, folder, targets, cpus=16, members=1, suspect="5s"):
        self.cpus, self.cpu, self.suspect = cpus, Cpu("hanse"), suspect
        super().__init__(hanse_binary(), "/bin/false", folder, nodes=targets, members=members, targets=tuple(targets))
        self.local = threading.local()

    def write_inventory(self, target, nodes, health=None):
        listed = [{"name": n, "cpu": self.cpus, "memory": "64Gi",
                   "gpus": [{"index": i, "class": "h100", "memory": "80Gi"} for i in range(count)]} for n, count in nodes.items()]
        with open(self.inventory(target), "w", encoding="utf-8") as file:
            json.dump({"target": target, "gpus": "declared", "nodes": listed}, file)

    def target_document(self, name):
        return document("Target", name, {"type": "agent", "tier": "hub", "capacity": "owned", "jurisdiction": "DE", "priceSheet": "own",
                                         "partition": {"suspectAfter": self.suspect, "lease": "60s"}})

    def _spawn(self, name, argv, **env):
        with self.cpu:
            return super()._spawn(name, argv, **env)

    def cli_timed(self, *args):
        """A command as a user types it, counted as this side's."""
        with self.cpu:
            return self.cli(*args)

    def call(self, method, path, body=None):
        """One request on this thread's own connection, which is kept: (status, object)."""
        if getattr(self.local, "connection", None) is None:
            self.local.connection = self.login.connect(self.login.servers[0], timeout=60)
        self.local.connection.request(method, path, None if body is None else json.dumps(body),
                                      {**self.login.headers, "Content-Type": "application/json"})
        answer = self.local.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def reconnect(self):
        """This thread's connection is not what it was; the next call makes a new one."""
        self.local.connection = None

    def make(self, name, spec, **meta):
        status, answer = self.call("POST", WORKLOADS, document("Workload", name, spec, **meta))
        if status != 201:
            raise RuntimeError(f"{name}: {status} {answer}")

    def phase_left(self, phase):
        """Is there a workload that is not in that phase?"""
        return bool(self.call("GET", f"{WORKLOADS}?limit=1&fieldSelector=status.phase!%3D{phase}")[1]["items"])

    def of(self, name):
        return self.call("GET", f"{WORKLOADS}/{name}")[1]

    def forget(self, names):
        for name in names:
            self.call("DELETE", f"{WORKLOADS}/{name}")
        wait_for("all workloads to be gone", lambda: not self.call("GET", WORKLOADS + "?limit=1")[1]["items"], 120, 0.05)

    def close(self):
        self.stop()
        self.cpu.close()


def batch(command, cpu="1", memory="16Mi", **spec):
    return {"type": "batch", "resources": {"cpu": cpu, "memory": memory}, "run": {"command": command}, **spec}


def folder_of(parent, name):
    path = os.path.join(parent, name)
    os.makedirs(path, mode=0o755)
    return path

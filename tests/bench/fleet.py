#!/usr/bin/env python3
"""A fleet as large as one leader is asked to carry: by default 1,000 Targets with an agent each (stand-ins that run nothing), 1,000
queues, and 100,000 workloads of which 8,000 find room. Prints one JSON object: the member's peak memory, the longest time that a cycle
held the loop, the longest that a small read and a small write waited meanwhile, the time of a cycle and decisions a second."""
import argparse
import asyncio
import concurrent.futures
import json
import os
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from hanse_side import Hanse, folder_of  # noqa: E402
from moves import document  # noqa: E402
from side import load1, machine, percentile, say, until  # noqa: E402
from standin import (BEAT, FIND, FORGET, HELLO, INVENTORY, LIST, NEVER_STARTED, NODES, OBSERVED, RESULT, STAGE, SUBMIT,  # noqa: E402
                     StandIn)

GPUS = 8


class Agents(threading.Thread):
    """All stand-ins on one loop: they dial in, tell one node each, and say that they run what they are given."""

    def __init__(self, address, pki, names):
        super().__init__(daemon=True)
        self.address, self.pki, self.names, self.open = address, pki, names, 0
        self.start()

    def run(self):
        asyncio.run(self.all())

    async def all(self):
        gate = asyncio.Semaphore(16)
        await asyncio.gather(*(self.one(name, gate) for name in self.names))

    async def one(self, name, gate):
        while True:
            try:
                await self.session(name, gate)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(1)

    async def session(self, name, gate):
        context = ssl.create_default_context(cafile=f"{self.pki}/ca.crt")
        context.load_cert_chain(f"{self.pki}/agent-{name}.crt", f"{self.pki}/agent-{name}.key")
        context.set_alpn_protocols(["hanse-agent/1"])
        async with gate:
            reader, writer = await asyncio.open_connection(*self.address, ssl=context, server_hostname="127.0.0.1")

        def send(kind, number, body):
            data = json.dumps(body, separators=(",", ":")).encode()
            writer.write(struct.pack("<IBBHQ", len(data) + 12, kind, 0, 0, number) + data)

        node = {"metadata": {"name": f"{name}.n1"}, "status": {"health": "Ready"}, "spec": {
            "target": name, "hostname": "n1", "cpu": "128", "memory": "1Ti",
            "gpus": [{"index": k, "class": "h100", "memory": "80Gi"} for k in range(GPUS)]}}
        send(HELLO, 0, {"target": name, "version": "stand-in", "session": str(time.monotonic()), "bootId": "b", "stateId": name,
                        "at": StandIn.now(), "inventory": "1", "runs": []})
        beat = asyncio.create_task(self.beat(send))
        self.open += 1
        try:
            while True:
                size, kind, _, _, number = struct.unpack("<IBBHQ", await reader.readexactly(16))
                body = await reader.readexactly(size - 12)
                self.frame(send, kind, number, json.loads(body) if body else {}, node)
        finally:
            self.open -= 1
            beat.cancel()
            writer.close()

    @staticmethod
    async def beat(send):
        while True:
            await asyncio.sleep(1)
            send(BEAT, 0, {"at": StandIn.now()})

    @staticmethod
    def frame(send, kind, number, body, node):
        key = body.get("key", "")
        if kind == INVENTORY:
            send(NODES, number, {"nodes": [node]})
        elif kind == SUBMIT:
            send(RESULT, number, {"outcome": 0, "seen": StandIn.seen(key, "starting")})
            send(OBSERVED, 0, StandIn.seen(key, "running"))
        elif kind == LIST:
            send(RESULT, number, {"outcome": 0, "runs": []})
        elif kind in (STAGE, FORGET):
            send(RESULT, number, {"outcome": 0})
        elif kind == FIND:
            send(RESULT, number, {"outcome": 0, "seen": StandIn.seen(key, "absent", proof=NEVER_STARTED)})


class Probe(threading.Thread):
    """Asks again and again, and notes how long each answer took."""

    def __init__(self, ask, every, again):
        super().__init__(daemon=True)
        self.again = again
        self.ask, self.every, self.took, self.closing = ask, every, [], False
        self.start()

    def run(self):
        while not self.closing:
            begun = time.monotonic()
            try:
                self.ask()
                self.took.append((time.monotonic() - begun) * 1000)
            except Exception as error:  # pylint: disable=broad-except
                say(f"probe: {error}")
                self.again()
            time.sleep(self.every)


class Fleet:
    def __init__(self, folder, o):
        self.o, self.names = o, [f"t{i:04}" for i in range(o.targets)]
        self.pool = Hanse(folder, {self.names[0]: {}}, suspect="60s")
        self.pool.start_members()
        self.certify(self.names[1:])
        with open(self.pool.path("m1.pid"), encoding="utf-8") as file:
            self.pid = int(file.read())

    def certify(self, names):
        """`hanse dev` makes a few agents' certificates; these all have the first one's key."""
        pki = self.pool.path("pki")

        def one(name):
            subprocess.run(["openssl", "req", "-x509", "-new", "-CA", f"{pki}/ca.crt", "-CAkey", f"{pki}/ca.key", "-key",
                            f"{pki}/agent-{self.names[0]}.key", "-subj", f"/CN=agent:{name}", "-days", "2", "-addext",
                            "extendedKeyUsage=clientAuth", "-out", f"{pki}/agent-{name}.crt"], check=True, capture_output=True)
            os.link(f"{pki}/agent-{self.names[0]}.key", f"{pki}/agent-{name}.key")

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(one, names):
                pass
        say(f"{len(names) + 1} certificates are made")

    def apply(self, documents):
        text = "---\n".join(json.dumps(d) + "\n" for d in documents)
        done = subprocess.run([self.pool.hanse, "apply", "--timeout", "280s", "-f", "-"], input=text, capture_output=True, text=True, timeout=300, check=False,
                              env={**os.environ, "KUBECONFIG": self.pool.path("kubeconfig")})
        if done.returncode:
            raise RuntimeError(done.stderr[:500])

    def fill(self):
        o = self.o
        self.apply([document("GpuClass", "h100", {"memory": "80Gi"}), document("PriceSheet", "own", {
            "gpuHour": [{"class": "h100", "amortised": 2.0}]})] + [self.pool.target_document(n) for n in self.names])
        self.apply([document("Queue", f"q{i:04}", {"weight": 1 + i % 3, "lend": True, "gpus": [{"class": "h100", "guaranteed": 1}]})
                    for i in range(o.queues)])
        host, port = self.pool.login.servers[0].removeprefix("https://").split(":")
        self.agents = Agents((host, int(port)), self.pool.path("pki"), self.names)
        until("the nodes", lambda: self.figure("hanse_target_reachable") >= o.targets, 300, 1)
        say(f"{o.targets} targets are there")

    def metrics(self):
        connection = self.pool.login.connect(self.pool.login.servers[0], timeout=120)
        connection.request("GET", "/metrics", None, self.pool.login.headers)
        return connection.getresponse().read().decode()

    def figure(self, name):
        """The sum over all its labels."""
        return sum(float(x.rsplit(" ", 1)[1]) for x in self.metrics().splitlines() if x.startswith((name + " ", name + "{")))

    def submit(self):
        o, step = self.o, self.o.batch
        for at in range(0, o.pending, step):
            self.apply([document("Workload", f"w{i:06}", {
                "queue": f"q{i % o.queues:04}", "resources": {"gpu": {"count": 1}, "cpu": 1, "memory": "4Gi"},
                "run": {"command": ["train", str(i)]}}, namespace="default") for i in range(at, min(at + step, o.pending))])
        say(f"{o.pending} workloads are in")

    def memory(self):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            return {x.split(":")[0]: int(x.split()[1]) / 1024 for x in file if x.startswith(("VmHWM", "VmRSS"))}

    def small_write(self):
        self.pool.call("PUT", "/apis/hanse.dev/v1alpha1/priorityclasses/probe",
                       document("PriorityClass", "probe", {"value": int(time.monotonic() * 1000) % 1000}))


def holds(text):
    """How long each loop was held, and a slice of a cycle took: by the clock, and as the thread computed."""
    told = [x.rsplit(" ", 1) for x in text.splitlines() if not x.startswith("#")]
    figures = {name: float(value) for name, value in told}
    rows = []
    for what, name in (("turn of the core loop", 'hanse_loop_turn{}seconds{{loop="core"}}'),
                       ("turn of the outer loop", 'hanse_loop_turn{}seconds{{loop="outer"}}'),
                       ("slice of a cycle", "hanse_scheduler_slice{}seconds")):
        rows += [(f"longest {what}", figures[name.format("_max_")] * 1000, "ms"),
                 (f"longest {what}, computed", figures[name.format("_cpu_max_")] * 1000, "ms")]
    for loop in ("core", "outer"):
        count = figures[f'hanse_loop_turn_cpu_seconds_count{{loop="{loop}"}}']
        for limit in ("0.02", "0.1"):
            over = count - figures[f'hanse_loop_turn_cpu_seconds_bucket{{loop="{loop}",le="{limit}"}}']
            rows.append((f"turns of the {loop} loop that computed more than {int(float(limit) * 1000)} ms", over, ""))
    count = figures["hanse_scheduler_slice_cpu_seconds_count"]
    rows += [("slices of cycles", count, ""),
             ("slices that computed more than 20 ms", count - figures['hanse_scheduler_slice_cpu_seconds_bucket{le="0.02"}'], "")]
    return rows


def measure(fleet, o):
    begun = time.monotonic()
    fleet.fill()
    filled = time.monotonic()
    fleet.apply([document("PriorityClass", "probe", {"value": 0})])
    reads = Probe(fleet.metrics if o.plain else lambda: fleet.pool.call("GET", "/apis/hanse.dev/v1alpha1/gpuclasses/h100"), 0.02, fleet.pool.reconnect)
    fleet.submit()
    submitted = time.monotonic()
    room = min(o.pending, o.targets * GPUS)
    until("all room to be taken", lambda: fleet.figure("hanse_placements_total") >= room * 0.99, o.seconds, 1)
    placed = time.monotonic()
    writes = Probe(fleet.small_write, 0.2, fleet.pool.reconnect)
    before, from_ = fleet.figure("hanse_decisions_total"), time.monotonic()
    cycles, slowest = [], fleet.figure("hanse_scheduler_cycles_total")
    while time.monotonic() < from_ + o.steady:
        time.sleep(1)
        cycles.append(fleet.figure("hanse_scheduler_cycle_seconds"))
    decided = (fleet.figure("hanse_decisions_total") - before) / (time.monotonic() - from_)
    reads.closing = writes.closing = True
    memory = fleet.memory()
    rows = [("targets connected", filled - begun, "s"), ("workloads submitted", submitted - filled, "s"),
            ("all room taken after that", placed - submitted, "s"), ("peak memory of the leader", memory["VmHWM"], "MiB"),
            ("memory of the leader", memory["VmRSS"], "MiB"),
            *holds(fleet.metrics()),
            ("small read, p99", percentile(reads.took, 0.99), "ms"), ("small read, longest", max(reads.took), "ms"),
            ("small write, p99", percentile(writes.took, 0.99), "ms"), ("small write, longest", max(writes.took), "ms"),
            ("cycle, longest seen", max(cycles) * 1000, "ms"), ("decisions a second", decided, "1/s"),
            ("cycles meanwhile", fleet.figure("hanse_scheduler_cycles_total") - slowest, "")]
    return [{"name": n, "value": round(v, 1), "unit": u} for n, v, u in rows]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--targets", type=int, default=1000)
    p.add_argument("--pending", type=int, default=100000)
    p.add_argument("--queues", type=int, default=1000)
    p.add_argument("--batch", type=int, default=1000, help="workloads of one apply")
    p.add_argument("--seconds", type=int, default=1200, help="to wait for all room to be taken")
    p.add_argument("--steady", type=int, default=30, help="seconds that are looked at once it is full")
    p.add_argument("--dir", help="for the member's files; on the disk that is meant to be measured")
    p.set_defaults(plain=False)
    o = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="hanse-fleet-", dir=o.dir) as parent:
        fleet = Fleet(folder_of(parent, "hanse"), o)
        try:
            rows = measure(fleet, o)
        finally:
            fleet.pool.close()
    print(json.dumps({"bench": "fleet", "targets": o.targets, "pending": o.pending, "queues": o.queues, "load": load1(), **machine(),
                      "rows": rows}, indent=2))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A node changes its name, or vanishes, while something runs on it: its devices are not given out a second time before that has ended, and
are given out once it has. An agent's inventory is rewritten under it, and a leader dies in between."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, json, run, wait_for  # noqa: E402


class Renamed(Moves):
    def submit(self, name, gpus):
        log = self.path("scratch", name)
        self.apply(document("Workload", name, {
            "type": "batch", "resources": {"gpu": {"count": gpus, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
            "run": {"command": ["/bin/sh", "-c", f"while [ ! -e '{log}.end' ]; do sleep 0.1; done"], "retries": 0}}, namespace="default"))

    def phase(self, name, wanted, seconds=40):
        return wait_for(f"{name} to be {wanted}", lambda: (s := self.status(name)).get("phase") == wanted and s, seconds, 0.2)

    def end(self, name):
        with open(self.path("scratch", name + ".end"), "w", encoding="utf-8"):
            pass
        self.phase(name, "Succeeded")

    def nodes(self):
        return {n["metadata"]["name"]: n.get("status", {}) for n in json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"]}

    def now_has(self, nodes):
        self.write_inventory("left", nodes)
        os.kill(self.agents["left"].pid, signal.SIGHUP)

    def waits(self, name):
        """It is not placed for 4 s, while nothing else keeps it from that."""
        until, seen = time.monotonic() + 4, set()
        while time.monotonic() < until:
            seen.add(self.status(name).get("phase"))
            time.sleep(0.2)
        return seen == {"Queued"}


def is_renamed_under_a_run(p):
    p.submit("first", 2)
    p.phase("first", "Running")
    p.now_has({"left-n9": 4})
    wait_for("left-n9 to be listed", lambda: "left.left-n9" in p.nodes(), 20)
    p.submit("second", 4)
    p.check("its devices are not given out by its new name", p.waits("second"), p.status("second").get("placement", ""))
    nodes = p.nodes()
    p.check("both nodes say why", nodes.get("left.left-n1", {}).get("unlisted") is True and
            nodes.get("left.left-n9", {}).get("formerly") == "left.left-n1", nodes)
    p.kill_leader()
    wait_for("another leader", lambda: p.cli("status", check=False).returncode == 0, 20)
    p.check("nor by another leader", p.waits("second"))
    p.end("first")
    p.phase("second", "Running")
    p.check("they are once that has ended", True)
    wait_for("the old node to be gone", lambda: "left.left-n1" not in p.nodes(), 20)
    p.end("second")


def vanishes_under_a_run(p):
    p.now_has({"left-n9": 4})
    p.submit("third", 2)
    p.phase("third", "Running")
    p.now_has({"left-x": 1})
    wait_for("left-n9 to be listed no more", lambda: p.nodes().get("left.left-n9", {}).get("unlisted"), 20)
    p.now_has({"left-n9": 4})
    wait_for("left-n9 to be listed again", lambda: not p.nodes()["left.left-n9"].get("unlisted"), 20)
    p.submit("fourth", 4)
    p.check("back by its own name, it still has what runs there", p.waits("fourth"))
    p.end("third")
    p.phase("fourth", "Running")
    p.end("fourth")
    p.check("and gives it out after that", True)


if __name__ == "__main__":
    sys.exit(run((is_renamed_under_a_run, vanishes_under_a_run), kind=Renamed, targets=("left",), members=3, nodes={"left": {"left-n1": 4}}))

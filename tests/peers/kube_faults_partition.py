#!/usr/bin/env python3
"""Two API servers as two targets, one of them cut off. What waits goes to the other one. What runs there, by spec.partition.mode wait, is
Unknown, and nothing of it begins elsewhere; its end is told once its target is back. Modes that need proof of an end that nobody tells are not
placed where nothing stops itself, which is said (tests/peers/kubernetes_pods.py has runners with leases, and shows them replaced)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import Hub  # noqa: E402
from parts import run  # noqa: E402

LEASED = {"replaced": {"mode": "replace", "replaceAfter": "1s"}, "stopped": {"mode": "stop", "stopAfter": "5s"}}


class Partition(Hub):
    ends, names, nodes = False, ("east", "west"), 1

    def target(self, name="east", **more):
        return super().target(name, **{"partition": {"suspectAfter": "2s"}, **more})

    def begin(self):
        super().begin()
        self.work("warm", targets={"names": ["west"]})
        self.finish("warm")
        self.ended("warm")

    def at(self, cluster, name):
        return self.clusters[cluster].history.ran(self.uid(name))

    def one_is_cut_off(self):
        both = {"names": ["east", "west"]}
        self.cli("cordon", "west")
        self.work("waits", targets=both, partition={"mode": "wait"})
        self.work("default", targets=both)
        for name in ("waits", "default"):
            self.phase(name, "Running")
        for name, partition in LEASED.items():
            self.work(name, targets=both, partition=partition)
            s = self.looks(f"{name} to say why it waits", lambda n=name: "nothing on this target stops itself" in str(s := self.status(n)) and s)
            self.check(f"{name} is placed nowhere", s.get("phase") == "Queued", s)
            self.cli("delete", "workload", name, "-n", "default")
        self.cli("uncordon", "west")
        self.proxy.refuse()
        for name in ("waits", "default"):
            self.phase(name, "Unknown")
        self.work("later", targets=both)
        self.finish("later")
        self.ended("later")
        self.check("work that comes goes to the other one", len(self.at("west", "later")) == 1 and not self.at("east", "later"))
        for name in ("waits", "default"):
            s = self.status(name)
            self.check(f"{name} is Unknown in its first epoch, and has not begun elsewhere",
                       s.get("phase") == "Unknown" and s.get("epoch") == 1 and not self.at("west", name), s)

    def it_comes_back(self):
        self.finish("waits")  # while nobody of ours hears of it
        pod = self.at("east", "waits")[0]
        self.looks("its pod to end", lambda: pod.over)
        self.proxy.accept()
        self.ended("waits")
        self.phase("default", "Running")
        self.finish("default")
        self.ended("default")
        self.once("waits", "default", "later", "warm")
        self.clean()


if __name__ == "__main__":
    sys.exit(run(Partition, "kube-partition", [Partition.one_is_cut_off, Partition.it_comes_back]))

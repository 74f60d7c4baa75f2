#!/usr/bin/env python3
"""The API server of a target is killed and started again in the middle of 100 dispatches (--runs N: of N), twice: once as they are made,
once as they end. Each of them runs once and is told, and nothing is left behind."""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import Hub, wait_for  # noqa: E402
from parts import run  # noqa: E402


class Restart(Hub):
    nodes, runs = 4, 100

    def killed_amid_dispatches(self):
        names, began = [f"w{i:04}" for i in range(self.runs)], time.monotonic()
        self.work(*names)
        for part in (8, 2):
            wait_for(f"one of {part} to be there", lambda n=self.runs // part: len(self.history.all("jobs")) >= n, 120 + self.runs)
            self.peer.part("apiserver", "kill")
            self.looks("that to be noticed", lambda: self.proxy.log()[-1]["status"] == 0)
            self.peer.part("apiserver", "start")
        self.all_ended(names, 240 + self.runs)
        over = time.monotonic() - began
        self.uids = {n: w["metadata"]["uid"] for n, w in self.workloads().items()}
        self.once(*names)
        self.clean(300 + self.runs)
        epochs = [w["status"]["epoch"] for w in self.workloads().values()]
        print(f"    {self.runs} runs: over after {over:.0f} s, gone after {time.monotonic() - began:.0f} s, {sum(epochs)} epochs, "
              f"{self.proxy.stats()['requests']} requests")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--runs", type=int, default=Restart.runs)
    Restart.runs = words.parse_args().runs
    sys.exit(run(Restart, "kube-restart", [Restart.killed_amid_dispatches]))

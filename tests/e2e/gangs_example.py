#!/usr/bin/env python3
"""deploy/examples/gangs as it stands there: pool.yaml is applied, and each line of its README starts its job on the machines of two
agents. A stop reaches every rank and counts as saved, and both go on from that step. Lines whose framework is not installed are told as
left out. Prints ok or FAILED per check; exit 1 when any failed. HANSE_ONLY names parts."""
import json
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import TOP, Moves, run, wait_for  # noqa: E402

FOLDER = os.path.join(TOP, "deploy", "examples", "gangs")
PYTHON = os.environ.get("HANSE_PYTHON") or next((p for p in [os.path.join(os.environ.get("HANSE_CACHE", os.path.join(TOP, ".cache")), "frameworks/bin/python")]
                                                 if os.path.exists(p)), sys.executable)
PATIENCE = 180


class Yard(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=("yard.a", "yard.b"), nodes={name: {"n": 1} for name in ("yard.a", "yard.b")}, **pool)

    def here(self, text):
        """What is said of a machine there is true of this one here; nothing else is changed."""
        for there, here in (("/srv/hanse/checkpoints", self.path("checkpoints")), ("/srv/hanse/examples", FOLDER), ("10.0.0.1", "127.0.0.2"), ("10.0.0.2", "127.0.0.3")):
            text = text.replace(there, here)
        return text

    def begin(self):
        exports = f"export PYTHONPATH={shlex.quote(os.path.join(TOP, 'deploy', 'python'))} PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1"
        for name, words in (("python3", ""), ("torchrun", " -m torch.distributed.run")):
            path = self.path("bin", name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\n{exports}\nexec {shlex.quote(PYTHON)}{words} \"$@\"\n")
            os.chmod(path, 0o755)
        self.start_members()
        with open(os.path.join(FOLDER, "pool.yaml"), encoding="utf-8") as f:
            text = self.here(f.read())
        done = subprocess.run([self.hanse, "apply", "-f", "-"], input=text, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        self.check("pool.yaml is taken as it stands", done.returncode == 0, done.stderr.strip()[-300:])
        for name in ("yard.a", "yard.b"):
            self.start_agent(name)
        wait_for("both nodes to be ready", lambda: [n["status"]["health"] for n in json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"]] == ["Ready"] * 2, 60)

    def line(self, name):
        """The one line of the README that starts it."""
        with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as f:
            found = re.findall(rf"^(hanse submit --name {name} .*)$", f.read(), re.M)
        self.check(f"one line starts {name}", len(found) == 1)
        return shlex.split(self.here(found[0]))[1:]

    def said(self, name, word, rank):
        done = self.cli("logs", name, "--rank", str(rank), check=False)
        return re.findall(rf"^{word} (\S.*)$", done.stdout, re.M)

    def hold(self, name, held):
        w = json.loads(self.cli("get", "workload", name, "-o", "json").stdout)
        spec = {k: v for k, v in w["spec"].items() if k != "suspend"}
        self.apply({"apiVersion": w["apiVersion"], "kind": "Workload", "metadata": {"name": name, "namespace": "default"}, "spec": {**spec, "suspend": held}})


def both(p, name, word, least):
    """Waits until both ranks have said a number that is no smaller."""
    def there():
        if p.status(name).get("phase") in ("Failed", "Succeeded"):
            return True
        return all(any(int(s) >= least for s in p.said(name, word, rank)[-1:]) for rank in (0, 1))
    wait_for(f"both ranks of {name} to come to {word} {least}: {[p.cli('logs', name, '--rank', r, check=False).stdout[-300:] for r in '01']}", there, PATIENCE, every=0.3)


def example(p, name, code, module=None):
    if module and subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
        print(f"  ({module} is not installed: left out)", flush=True)
        return
    p.cli(*p.line(name), timeout=60)
    both(p, name, "step", 30)
    at = {x["node"] for x in p.status(name)["placement"]["assignments"]}
    p.check(f"{name} is on both machines", at == {"yard.a.n", "yard.b.n"}, at)
    heard = sorted(p.said(name, "rank", 0) + p.said(name, "rank", 1))
    p.check(f"{name}: each rank is one of two", [h.split(" on ")[0] for h in heard] == ["0 of 2", "1 of 2"], heard)
    p.hold(name, True)
    s = wait_for(f"{name} to stop", lambda: (s := p.status(name)).get("ends") and s, PATIENCE)
    end, saved = s["ends"][0], s.get("checkpoint") or {}
    p.check(f"{name}: a stop reached every rank, and it ended with {code}, saved", (end["reason"], end["exitCode"]) == ("SavedAndStopped", code), end)
    p.check(f"{name}: one checkpoint of both", saved.get("ranks") == 2 and saved.get("step", 0) >= 30, saved)
    p.hold(name, False)
    wait_for(f"{name} to run again", lambda: p.status(name).get("epoch") == 2 and p.status(name).get("phase") == "Running", PATIENCE)
    both(p, name, "from step", 0)
    for rank in (0, 1):
        p.check(f"{name}: rank {rank} goes on from that step", p.said(name, "from step", rank)[-1:] == [str(saved.get("step"))], p.said(name, "from step", rank))
    p.cli("delete", "workload", name)
    wait_for(f"{name} to be gone", lambda: p.cli("get", "workload", name, check=False).returncode != 0, 90)


def plain(p):
    example(p, "plain", 75)


def torchrun(p):
    """torchrun ends with 1 when it is stopped, also after its workers have saved."""
    example(p, "torch", 1, "torch")


def jax(p):
    example(p, "jax", 75, "jax, orbax.checkpoint")


if __name__ == "__main__":
    sys.exit(run((plain, torchrun, jax), kind=Yard, members=1))

"""A pool of targets on this machine, `left` and `right` unless told otherwise, with trainings that can be moved between them;
for the tests of moves. What ran, when and from which step is told by the trainings' own witness file; what they came to is compared with
a run of the same program that nobody disturbed. Hanse is asked only for what a user would ask it."""
import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
EXAMPLE = os.path.join(TOP, "deploy", "examples", "three-tier")
sys.path.insert(0, EXAMPLE)
sys.dont_write_bytecode = True
import witness  # noqa: E402
from federation import Failure, Federation, wait_for  # noqa: E402
from parts import walk  # noqa: E402

OVER = ("Succeeded", "Failed", "Cancelled")
API = "hanse.dev/v1alpha1"
JURISDICTION = {"left": "DE", "right": "FR"}


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def target(name, **spec):
    return document("Target", name, {"type": "agent", "tier": "hub", "capacity": "owned", "jurisdiction": JURISDICTION.get(name, "DE"),
                                     "priceSheet": "own", "partition": {"suspectAfter": "2s", "lease": "8s"}, **spec})


class Moves(Federation):
    def __init__(self, hanse, trainer, folder, nodes=None, members=1, targets=("left", "right")):
        super().__init__(hanse, trainer, folder, targets=targets, members=members)
        self.failed, self.steps, self.documents = 0, {}, {}
        for name in self.targets:
            self.write_inventory(name, (nodes or {}).get(name) or {f"{name}-n1": 4, f"{name}-n2": 4})

    # ---- the pool ---------------------------------------------------------------------------------------

    def inventory(self, target):
        return self.path("scratch", target + ".yaml")

    def write_inventory(self, target, nodes, health=None):
        """nodes: GPUs by name. health: that of a node, by name."""
        listed = [{"name": n, "cpu": 64, "memory": "64Gi", **({"health": health[n]} if n in (health or {}) else {}),
                   "gpus": [{"index": i, "class": "h100", "memory": "80Gi"} for i in range(count)]}
                  for n, count in nodes.items()]
        with open(self.inventory(target), "w", encoding="utf-8") as file:
            json.dump({"target": target, "gpus": "declared", "nodes": listed}, file)

    def target_document(self, name):
        return target(name)

    def policies(self):
        return (document("GpuClass", "h100", {"memory": "80Gi"}),
                document("PriceSheet", "own", {"gpuHour": [{"class": "h100", "amortised": 2.0}]}),
                document("PlacementPolicy", "left-first", {"order": [{"targets": {"names": [n]}} for n in self.targets]}))

    def begin(self):
        self.start_members()
        self.apply(*map(self.target_document, self.targets), *self.policies())
        for name in self.targets:
            self.start_agent(name)
        wait_for("all targets to be connected; see log/agent-*.log", lambda: self.connected() >= set(self.targets), 30)

    def apply(self, *documents):
        done = subprocess.run([self.hanse, "apply", "-f", "-"], input="---\n".join(json.dumps(d) + "\n" for d in documents),
                              capture_output=True, text=True, timeout=40, check=False,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        if done.returncode != 0:
            raise Failure(f"apply: {done.stderr.strip()[:500]}")

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)
        return good

    # ---- trainings --------------------------------------------------------------------------------------

    def train(self, name, steps, *words, every=40, pace=20, gpus=1, checkpoint=None, labels=None, env=None, **spec):
        """Submits a training of that many steps; it saves each `every` steps. labels: by which policies select it."""
        argv = ["three-tier-trainer", "--steps", str(steps), "--pace-ms", str(pace), "--seed", str(100 + len(self.steps))]
        argv += ["--checkpoint-every", str(every)] if every else []
        self.steps[name] = (steps, argv[argv.index("--seed") + 1])
        self.documents[name] = document("Workload", name, {
            "type": "training", "resources": {"gpu": {"count": gpus, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
            "checkpoint": {"store": self.path("checkpoints"), "grace": "5s", "keep": 4, **(checkpoint or {})},
            "run": {"command": argv + list(words), "retries": spec.pop("retries", 0), **({"env": env} if env else {})}, **spec}, namespace="default", labels=labels or {})
        self.apply(self.documents[name])

    def suspend(self, name, held):
        self.documents[name]["spec"]["suspend"] = held
        self.apply(self.documents[name])

    def lives(self, name):
        found = witness.read(self.witness) if os.path.exists(self.witness) else []
        return [life for life in found if life.name == name]

    def running(self, name, epoch=1, step=1, seconds=30):
        """Waits until it lives in that epoch (None: one that a state gave that came back) and came to that step, and Hanse says Running;
        its life."""
        life = wait_for(f"{name} to come to step {step} of epoch {epoch}", lambda: next(
            (x for x in self.lives(name) if (int(x.epoch) == epoch if epoch else int(x.epoch) > 1000000) and x.last_step >= step), None),
            seconds)
        wait_for(f"{name} to be Running", lambda: self.status(name).get("phase") == "Running", seconds)
        return life

    def saved(self, name, count=1, seconds=30):
        """Waits until that many checkpoints are in the catalogue."""
        return wait_for(f"{count} checkpoints of {name}", lambda: len(c := self.checkpoints(name)) >= count and c, seconds)

    def checkpoints(self, name):
        """The newest first."""
        listed = json.loads(self.cli("get", "checkpoints", "-o", "json").stdout)["items"]
        return sorted((c for c in listed if c["spec"]["workload"] == name),
                      key=lambda c: (-c["spec"]["epoch"], -c["spec"]["step"]))

    def moves_of(self, name):
        return [m for m in self.migrations() if m["spec"]["workload"] == name]

    def move_over(self, name, seconds=40):
        """The newest move of the workload, once it is over."""
        return wait_for(f"the move of {name} to be over", lambda: (m := self.moves_of(name)) and
                        m[-1].get("status", {}).get("phase") in OVER and m[-1], seconds)

    def ended(self, name, seconds=60):
        return wait_for(f"{name} to end", lambda: (s := self.status(name)).get("phase") in OVER and s, seconds)

    # ---- what must hold of every training ---------------------------------------------------------------

    def result(self, path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return {k: found[k] for k in ("step", "loss", "accuracy", "digest")}

    def holds(self, name, epochs, lost=0):
        """It succeeded, lived in just these epochs, never twice at once, lost at most so many steps a move, and came to
        what an undisturbed run comes to."""
        status, steps_seed = self.ended(name), self.steps[name]
        self.check(f"{name} succeeds", status["phase"] == "Succeeded", f"{status['phase']} {status.get('reason', '')}")
        found = self.lives(name)
        self.check(f"{name} lived in epochs {epochs}", [int(x.epoch) for x in found] == epochs,
                   str([f"{x.epoch}:{x.target}" for x in found]))
        bad = [str(x) for x in witness.overlaps(found)] + witness.faults(found) + witness.false_resumes(found)
        self.check(f"{name} never ran twice, and resumed only what was saved", not bad, "; ".join(bad))
        pairs = witness.moves(found)
        self.check(f"{name} lost at most {lost} steps a move", all(p.lost <= lost for p in pairs), "; ".join(map(str, pairs)))
        undisturbed = self.path("scratch", "undisturbed.json")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HANSE_") and k != "WITNESS_FILE"}
        subprocess.run([self.trainer, "--data", os.path.join(EXAMPLE, "data", "digits.csv"), "--steps", str(steps_seed[0]),
                        "--seed", steps_seed[1], "--result", undisturbed], check=True, env=clean, stdout=subprocess.DEVNULL)
        try:
            same = self.result(undisturbed) == self.result(self.path("results", name + ".0.json"))
        except (OSError, ValueError) as error:
            same = False
            print(f"    {error}")
        self.check(f"{name} comes to the same result, bit for bit", same)


def phases(migration):
    return [p["phase"] for p in migration["status"].get("phases", [])]


def run(parts, kind=Moves, **pool):
    """Runs the parts one after the other, on a pool of that kind; the exit status of the test."""
    hanse = os.environ.get("HANSE", "")
    trainer = os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "three-tier-trainer")
    if not os.access(hanse, os.X_OK) or not os.access(trainer, os.X_OK):
        print("there is no hanse or no three-tier-trainer: set HANSE and HANSE_BUILD_DIR")
        return 77
    folder, only = tempfile.mkdtemp(prefix="hanse-moves-"), os.environ.get("HANSE_ONLY", "")
    return walk(kind(hanse, trainer, folder, **pool), folder, [kind.begin, *[x for x in parts if only in x.__name__]])

#!/usr/bin/env python3
"""Gangs of two as people start them, one line each, through real agents, one or two: torchrun with torch.distributed.checkpoint, and
JAX with Orbax. Both save into one folder (checkpoint.layout: shared). A stop reaches every rank, and counts as saved; what was saved by two goes
on with one, or on another target, and comes to the result of a run that nobody disturbed. lib/packages.py gets the frameworks; exit 77
when they are not there. Prints ok or FAILED per check; exit 1 when any failed."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
import packages  # noqa: E402

os.environ["HANSE_PYTHON"] = packages.python()
from fleet import Fleet  # noqa: E402
from moves import document, run, wait_for  # noqa: E402
from package import PACKAGE, PROGRAMS, PYTHON, environment  # noqa: E402

PATIENCE = 180
ENVIRONMENT = ["/usr/bin/env", "PYTHONPATH=" + PACKAGE, "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1", PYTHON]


def program(name):
    return os.path.join(PROGRAMS, name)


def said(p, name, word, rank=0):
    """What stands behind a word at the beginning of a line of the newest start's log."""
    done = p.cli("logs", name, "--rank", str(rank), check=False)
    return re.findall(rf"^{word} (\S.*)$", done.stdout, re.M)


def came_to(p, name, step):
    def there():
        phase = p.status(name).get("phase")
        return phase in ("Failed", "Succeeded") or any(int(s) >= step for s in said(p, name, "step")[-1:])
    wait_for(f"{name} to come to step {step}: " + p.cli("logs", name, check=False).stdout[-500:], there, PATIENCE, every=0.3)


def undisturbed(name):
    done = subprocess.run([PYTHON, program(name)], capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment(), cwd="/tmp")
    return re.findall(r"^result (\S+)$", done.stdout, re.M)[0]


def saved_by_two(p, name, status, code):
    """Its first life ended as it should; the step that it saved."""
    end, saved = (status.get("ends") or [{}])[0], status.get("checkpoint") or {}
    p.check(f"{name}: every rank saved, and that is what its end says", (end.get("reason"), end.get("exitCode")) == ("SavedAndStopped", code), end)
    p.check(f"{name}: two ranks saved into one folder", saved.get("ranks") == 2 and len(p.checkpoints(name)) >= 1, saved)
    return saved.get("step")


def went_on(p, name, step, ranks, result):
    status = p.ended(name, PATIENCE)
    p.check(f"{name} succeeds", status["phase"] == "Succeeded", f"{status['phase']} {status.get('reason', '')} {status.get('message', '')}")
    for rank in range(ranks):
        p.check(f"{name}: rank {rank} goes on from step {step}", said(p, name, "from step", rank) == [str(step)], said(p, name, "from step", rank))
    p.check(f"{name} comes to the same result", said(p, name, "result")[-1:] == [result], f"{said(p, name, 'result')}, undisturbed {result}")


def a_torchrun_gang_goes_on_with_one_worker(p):
    """torchrun ends with 1 when it is stopped, also after its workers have saved."""
    torchrun = [*ENVIRONMENT, "-m", "torch.distributed.run", "--nproc-per-node", "1", program("torch_dcp.py")]
    p.documents["dcp"] = document("Workload", "dcp", {
        "type": "training", "gang": {"workers": 2}, "resources": {"cpu": 1, "memory": "2Gi"}, "run": {"command": torchrun},
        "checkpoint": {"store": p.path("checkpoints"), "grace": "60s", "layout": "shared", "reshard": True}}, namespace="default")
    p.suspend("dcp", False)
    came_to(p, "dcp", 40)
    p.suspend("dcp", True)
    status = wait_for("dcp to stop", lambda: (s := p.status("dcp")).get("ends") and s, PATIENCE)
    step = saved_by_two(p, "dcp", status, 1)
    p.documents["dcp"]["spec"]["gang"]["workers"] = 1
    p.suspend("dcp", False)
    went_on(p, "dcp", step, 1, undisturbed("torch_dcp.py"))


def a_jax_gang_moves(p):
    """One line starts it; two processes, each with one device, that share the arrays."""
    p.cli("submit", "--name", "tree", "--workers", "2", "--cpu", "1", "--memory", "2Gi", "--checkpoint-store", p.path("checkpoints"),
          "--checkpoint-layout", "shared", "--grace", "60s", "--", *ENVIRONMENT, program("orbax_tree.py"))
    came_to(p, "tree", 40)
    p.cli("migrate", "tree", "--to", "right")
    move = p.move_over("tree", PATIENCE)
    p.check("tree moves", move["status"]["phase"] == "Succeeded", move["status"].get("message", ""))
    step = saved_by_two(p, "tree", p.status("tree"), 75)
    went_on(p, "tree", step, 2, undisturbed("orbax_tree.py"))


# ---- on the machines of two agents of one Target -------------------------------------------------------------------------
SUMS = {
    "torchrun": """import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("sum", int(t.item()), "of", dist.get_world_size(), "at", os.environ["HANSE_TARGET"], flush=True)
dist.destroy_process_group()
""", "jax": """import os, jax
env = os.environ
jax.distributed.initialize(env["JAX_COORDINATOR_ADDRESS"], int(env["JAX_NUM_PROCESSES"]), int(env["JAX_PROCESS_ID"]))
import jax.numpy as jnp
from jax.experimental import multihost_utils
v = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1]))
print("sum", int(v.sum()), "of", jax.process_count(), "at", env["HANSE_TARGET"], flush=True)
"""}


def spans(p, name, *launcher):
    """One line starts it, and each rank sums up the ranks of both."""
    path = p.path("scratch", f"sum_by_{name}.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(SUMS[name])
    p.cli("submit", "--name", name, "--workers", "2", "--gpus", "1", "--class", "h100", "--cpu", "1", "--memory", "2Gi", "--", *ENVIRONMENT, *launcher, path)
    status = p.ended(name, PATIENCE)
    p.check(f"{name} over two agents succeeds", status["phase"] == "Succeeded", f"{status['phase']} {status.get('message', '')}")
    heard = [said(p, name, "sum", rank) for rank in range(2)]
    p.check(f"{name}: each of its ranks heard of the other, on the other machine", sorted(heard) == [["3 of 2 at yard.a"], ["3 of 2 at yard.b"]], heard)


def a_torchrun_gang_spans_two_agents(p):
    spans(p, "torchrun", "-m", "torch.distributed.run", "--nproc-per-node", "1")


def a_jax_gang_spans_two_agents(p):
    spans(p, "jax")


failed = run([a_torchrun_gang_goes_on_with_one_worker, a_jax_gang_moves])
sys.exit(failed or run([a_torchrun_gang_spans_two_agents, a_jax_gang_spans_two_agents], kind=Fleet))

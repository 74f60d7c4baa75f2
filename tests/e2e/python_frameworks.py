#!/usr/bin/env python3
"""Each helper of deploy/python/hanse with its real framework, under the real shim: stopped, resumed, the same result. lib/packages.py
gets the frameworks; exit 77 when any is not there, and the last line says which. Arguments: the programs to run."""
import functools
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
import packages  # noqa: E402

os.environ["HANSE_PYTHON"] = packages.python()
from package import PYTHON, Job, environment, fail, moved  # noqa: E402


def huggingface(work):
    job, said = moved("hf_trainer.py", work, (50,))
    kept = [n for n in os.listdir(os.path.join(job.base, f"e{job.epoch}/0")) if n.startswith("checkpoint-")]
    if kept != ["checkpoint-200"]:
        fail(f"save_total_limit=1 has left {kept}")
    return said


@functools.cache
def alone(work):
    return Job("torch_dcp.py", work).to_the_end()


def distributed(work, told=1, **layout):
    """Saved by two, of whom one was told to stop; gone on with by one, with the same result."""
    job = Job("torch_dcp.py", work, world=2, reshard=True, **layout)
    saved, job.world = job.stop_after(60, to=told), 1
    result = job.to_the_end()
    job.began_at(saved)
    if result != alone(work):
        fail(f"torch_dcp.py: result {result} with one rank from step {saved}, undisturbed {alone(work)}")
    return f"two ranks, then one from step {saved}: {result}"


TESTS = {
    "torch_save": ("torch", lambda work: moved("torch_save.py", work, (50,))[1]),
    "torch_dcp": ("torch", lambda work: distributed(work, shared=True)),
    "torch_dcp_apart": ("torch", lambda work: distributed(work, told=0)),  # each rank's shards in a folder of its own
    "hf_trainer": ("torch, transformers, accelerate", huggingface),
    "lightning_fit": ("torch, lightning", lambda work: moved("lightning_fit.py", work, (50,))[1]),
    "orbax_tree": ("jax, orbax.checkpoint", lambda work: moved("orbax_tree.py", work, (50,))[1]),
}


def missing(modules):
    done = subprocess.run([PYTHON, "-c", f"import {modules}"], capture_output=True, text=True, env=environment(), timeout=300, check=False)
    return done.returncode != 0 and (done.stderr.strip().splitlines() or ["?"])[-1]


def main(names):
    ran, skipped, absent = [], [], {}
    with tempfile.TemporaryDirectory(prefix="hanse-frameworks-") as work:
        for name in names:
            modules, test = TESTS[name]
            if modules not in absent:
                absent[modules] = missing(modules)
            if why := absent[modules]:
                print(f"SKIPPED: {name}: {why}")
                skipped.append(name)
            else:
                print(f"{name}:", test(work), flush=True)
                ran.append(name)
    if skipped:
        print(f"ran {', '.join(ran) or 'none'}; not run, as their packages are not there: {', '.join(skipped)}")
        sys.exit(77)


main(sys.argv[1:] or list(TESTS))

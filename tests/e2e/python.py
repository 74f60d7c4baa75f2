#!/usr/bin/env python3
"""deploy/python/hanse with the standard library alone: its unit tests; a program under the real shim that is stopped, killed and
resumed; its manifests beside those of `hanse checkpoint commit`; and what pip makes of the tree."""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from package import HANSE, PACKAGE, PYTHON, Job, environment, fail, moved  # noqa: E402


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **{"env": environment(), **more})
    if done.returncode != 0:
        fail(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def killed(work):
    """By an interval it has saved; it goes on from what was sealed, and its end is told as what it was."""
    calm = Job("plain.py", work).to_the_end()
    job = Job("plain.py", work, HANSE_TEST_EVERY_S="0.1")
    ranks = job.start()
    job.wait_for("sealed step", lambda: os.path.isdir(os.path.join(job.base, "sealed/e1")) and
                 any(n.startswith("cut-") for n in os.listdir(os.path.join(job.base, "sealed/e1"))))
    pid = next(int(p) for p in filter(str.isdigit, os.listdir("/proc")) if is_program(p, job))
    os.kill(pid, signal.SIGKILL)
    if (ends := job.wait(ranks)) != [137]:
        fail(f"killed: ends {ends}\n{job.log()}")
    saved = job.step_of(job.newest())
    if (result := job.to_the_end()) != calm:
        fail(f"killed: result {result}, undisturbed {calm}")
    job.began_at(saved)
    print(f"killed, and gone on from step {saved}: {result}")


def is_program(pid, job):
    try:
        with open(f"/proc/{pid}/environ", "rb") as env, open(f"/proc/{pid}/cmdline", "rb") as line:
            return f"HANSE_CHECKPOINT_DIR={job.base}/".encode() in env.read() and line.read().split(b"\0")[0] == PYTHON.encode()
    except OSError:
        return False


def same_manifest(work):
    """As `hanse checkpoint commit` writes it, of the same files."""
    folder = os.path.join(work, "both")
    os.makedirs(os.path.join(folder, "step-7/deep"))
    for name, data in (("step-7/a", b"1" * 3000000), ("step-7/deep/b", b""), ("step-7/half.tmp", b"x"), ("step-7/über", b"u"), ("log", b"12345")):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    said = []
    code = "import hanse; hanse.Saver().commit(7, 'step-7', ('log', 3))"
    for words in ((PYTHON, "-c", code), (HANSE, "checkpoint", "commit", "--step", "7", "step-7", "log:3")):
        run(*words, env=environment(HANSE_CHECKPOINT_DIR=folder))
        run(HANSE, "checkpoint", "verify", folder)
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
            m = json.load(f)
        said.append((m["step"], sorted((x["name"], x["bytes"], x["sha256"]) for x in m["files"])))
    if said[0] != said[1] or len(said[0][1]) != 4:
        fail(f"manifests differ: {said}")
    print("its manifest is the one that `hanse checkpoint commit` writes")


def installed(work):
    code = "import setuptools, pip; assert int(setuptools.__version__.split('.')[0]) > 70 or __import__('wheel')"
    if subprocess.run([PYTHON, "-c", code], capture_output=True, env=environment(), timeout=60, check=False).returncode != 0:
        print("SKIPPED: installing by pip: this python has no pip, or setuptools before 71 without wheel")
        return
    tree, into = os.path.join(work, "tree"), os.path.join(work, "into")
    run("cp", "-r", PACKAGE, tree)  # pip builds within the tree
    run(PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", into, tree)
    said = run(PYTHON, "-c", "import hanse, hanse.orbax; print(hanse.__file__, hanse.run().inside)", env=environment(PYTHONPATH=into), cwd=work)
    if not said.startswith(into) or "False" not in said or not os.path.isfile(os.path.join(into, "hanse/py.typed")):
        fail(f"installed: {said}")
    print("pip installs it from the tree")


def main():
    with tempfile.TemporaryDirectory(prefix="hanse-python-") as work:
        print(run(PYTHON, "-m", "unittest", "discover", "-s", os.path.join(PACKAGE, "tests")).strip().splitlines()[-3])
        same_manifest(work)
        installed(work)
        print("stdlib:", moved("plain.py", work, (40, 120))[1])
        killed(work)


main()

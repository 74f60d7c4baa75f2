#!/usr/bin/env python3
"""hanse-run in images that have none of our libraries: an empty one with a static program, one of musl, one of glibc. In each a program
starts, saves when it is stopped, exits as promised, is sealed and goes on from there; a torn checkpoint is refused; a lease that nobody
renews runs out; and the guard ends the tree of a shim that is killed. Exit 1 when any check failed."""
import glob
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
if not os.environ.get("HANSE_RUN"):
    print("SKIPPED: hanse-run was not built (HANSE_STATIC_RUNNER)")
    sys.exit(77)
import image as images  # noqa: E402

PATIENCE = 60
failed = 0


def check(good, what):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)


class Run:
    """hanse-run in an image, with its output in a file."""

    def __init__(self, image, *argv, **how):
        self.log = image.path("..", f"log.{time.monotonic_ns()}")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(image.command("/hanse-run", *argv, **how), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def number(self, word):
        """What stands behind that word in its output; waits for it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(rf"^{word} (\d+)$", self.said(), re.MULTILINE)
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"it never said \"{word}\": {self.said()!r}")

    def end(self, signo=None):
        if signo:
            self.process.send_signal(signo)
        return self.process.wait(PATIENCE)


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def saves_and_goes_on(name, image):
    first = Run(image, "--checkpoint-dir", "/store", "--epoch", "1", "--", "/program")
    began = first.number("at")
    code = first.end(signal.SIGTERM)
    saved = first.number("saved")
    check(began == 0 and code == 75, f"{name}: starts, saves on SIGTERM, exit {code} (75)")
    cut = image.path("store/sealed/e1/cut-1.json")
    whole = subprocess.run([os.environ["HANSE"], "checkpoint", "verify", cut], stdout=subprocess.PIPE, text=True, check=False)
    check(f"step {saved}," in whole.stdout, f"{name}: what it saved was sealed: {whole.stdout.strip()}")
    second = Run(image, "--checkpoint-dir", "/store", "--epoch", "2", "--resume", "/store/sealed/e1/cut-1.json", "--", "/program")
    went_on = second.number("at")
    code = second.end(signal.SIGTERM)
    check(went_on == saved and code == 75, f"{name}: goes on from {went_on} ({saved}), exit {code}")


def refuses_what_was_altered(name, image):
    state = glob.glob(image.path("store/sealed/e1/0/s*/state"))[0]
    os.chmod(state, 0o600)
    with open(state, "r+", encoding="ascii") as f:
        f.write("x")
    run = Run(image, "--checkpoint-dir", "/store", "--epoch", "3", "--resume", "/store/sealed/e1/cut-1.json", "--", "/program")
    code = run.end()
    check(code == 126 and "Checkpoint" in run.said() and "at " not in run.said(), f"{name}: an altered checkpoint starts nothing, {code}: {run.said().strip()[:90]}")


def ends_the_tree_of_a_killed_shim(name, image):
    run = Run(image, "--", "/program", "escape")
    program, escaped = run.number("program"), run.number("escaped")
    shim = parent(program)
    check(parent(shim) == run.process.pid, f"{name}: a guard is there")
    os.kill(shim, signal.SIGKILL)
    code = run.end()
    check(code == 137 and not alive(program) and not alive(escaped), f"{name}: shim killed: the guard ended the tree, exit {code}")


def lease_runs_out(name, image):
    run = Run(image, "--lease", "6000", "--grace", "3000", "--checkpoint-dir", "/store", "--epoch", "4", "--", "/program")
    run.number("at")
    code = run.end()
    check("LeaseLost" in run.said() and "saved" in run.said(), f"{name}: a lease that nobody renews: saved and stopped, exit {code}")


def says_what_is_missing(image):
    run = Run(image, "--", "/program", proc=False)
    code = run.end()
    check(code == 1 and "/proc is not mounted" in run.said(), f"without /proc: {run.said().strip()}")
    run = Run(image, "--checkpoint-dir", "s3://bucket/x", "--checkpoint-scratch", "/store/x", "--", "/program")
    code = run.end()
    check(code == 126 and "has no client for S3" in run.said(), f"a store in S3: {run.said().strip()}")
    run = Run(image, "--", "/no-such-program")
    check(run.end() == 127, f"a program that is not there: {run.said().strip()}")


def main():
    if platform.machine() != "x86_64":
        images.skip(f"the loaders of {platform.machine()} have other names")
    top = tempfile.mkdtemp(prefix="hanse-images-")
    kinds = {"static": ("cc", images.static), "musl": ("musl-gcc", images.musl), "glibc": ("cc", images.glibc)}
    tried = 0
    try:
        for name, (compiler, make) in kinds.items():
            if not shutil.which(compiler):
                print(f"SKIPPED image {name}: {compiler} is not installed (deploy/packages.sh tests)")
                continue
            image = make(os.path.join(top, name))
            saves_and_goes_on(name, image)
            refuses_what_was_altered(name, image)
            ends_the_tree_of_a_killed_shim(name, image)
            lease_runs_out(name, image)
            if name == "static":
                says_what_is_missing(image)
            tried += 1
    finally:
        shutil.rmtree(top, ignore_errors=True)
    if not tried:
        images.skip("no compiler here makes a program for an image")
    print(f"{tried} kinds of image, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

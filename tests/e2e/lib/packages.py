"""A Python with the frameworks that people train with: made once with pip, in .cache/frameworks (or $HANSE_CACHE/frameworks), 6 GB.
HANSE_PYTHON names another one, which is taken as it is; HANSE_FRAMEWORKS=0 does without. Where they cannot be had, a test ends with
77 and says why. Must never install anything elsewhere."""
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
CACHE = os.environ.get("HANSE_CACHE") or os.path.join(TOP, ".cache")
VENV = os.path.join(CACHE, "frameworks")
WANTED = ("torch==2.15.0", "transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6", "jax==0.10.2", "orbax-checkpoint==0.12.8",
          "safetensors==0.8.0")
ROOM = 10 << 30
PATIENCE = 1200


def skip(why):
    print(f"SKIPPED: the frameworks are not there: {why}")
    sys.exit(77)


def _whole():
    try:
        with open(os.path.join(VENV, "whole"), encoding="utf-8") as f:
            return f.read() == " ".join(WANTED)
    except OSError:
        return False


def _make(name):
    if importlib.util.find_spec("ensurepip") is None:
        skip("this Python cannot make environments (no ensurepip)")
    if shutil.disk_usage(CACHE).free < ROOM:
        skip(f"{CACHE} has less than {ROOM >> 30} GB left")
    print(f"installing {', '.join(WANTED)} in {VENV}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    for words in ([sys.executable, "-m", "venv", VENV], [name, "-m", "pip", "install", "--quiet", *WANTED]):
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            skip(error)
        if done.returncode != 0:
            skip(((done.stderr or done.stdout).strip().splitlines() or ["?"])[-1] + " (is there a network?)")
    with open(os.path.join(VENV, "whole"), "w", encoding="utf-8") as f:
        f.write(" ".join(WANTED))


def python():
    """Its path; one test makes it, and others wait."""
    if os.environ.get("HANSE_FRAMEWORKS") == "0":
        skip("HANSE_FRAMEWORKS=0")
    if os.environ.get("HANSE_PYTHON"):
        return os.environ["HANSE_PYTHON"]
    name = os.path.join(VENV, "bin", "python")
    os.makedirs(CACHE, exist_ok=True)
    with open(VENV + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _whole():
            _make(name)
    return name

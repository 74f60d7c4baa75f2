"""Runs the parts of a script, one after the other, and says how each went. A part that cannot be done to its end has failed, and the next
one goes on; without `begin` there is nothing to go on with. HANSE_ONLY: words, and only parts with one of them in their names are run."""
import os
import shutil
import subprocess
import tempfile
import time

from federation import Failure


def needed(static):
    """What it takes to run at all, or None: then it was said what is missing."""
    hanse, runner = os.environ.get("HANSE", ""), os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse-run")
    if not os.access(hanse, os.X_OK) or not shutil.which("flock"):
        print("there is no hanse, or no flock: set HANSE")
        return None
    if static and not os.access(runner, os.X_OK):
        print("there is no hanse-run: set HANSE_BUILD_DIR")
        return None
    return hanse, runner


def walk(c, folder, parts, began=None):
    """c has check, failed and stop. The first part is the beginning. Returns the exit status."""
    began = began or time.monotonic()
    try:
        for part in parts:
            print(f"{part.__name__.replace('_', ' ')} (at {time.monotonic() - began:.0f} s)", flush=True)
            try:
                part(c)
            except (Failure, subprocess.SubprocessError, OSError, LookupError, ValueError, StopIteration, AttributeError) as error:
                c.check(f"{part.__name__} could be done", False, f"{type(error).__name__}: {error}")
                if part is parts[0]:
                    break
    finally:
        c.stop()
    print(f"{c.failed} failed, {time.monotonic() - began:.0f} s")
    if c.failed or os.environ.get("HANSE_KEEP"):
        print(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if c.failed else 0


def run(kind, name, parts, static=False):
    """kind(HANSE, FOLDER) has begin, check, failed and stop; with static it is told where hanse-run is. Returns the exit status."""
    tools, only = needed(static), os.environ.get("HANSE_ONLY", "").split()
    if not tools:
        return 77
    folder, began = tempfile.mkdtemp(prefix=f"hanse-{name}-"), time.monotonic()
    c = kind(tools[0], folder)
    if static:
        c.static = tools[1]
    return walk(c, folder, [kind.begin, *[p for p in parts if not only or any(word in p.__name__ for word in only)]], began)

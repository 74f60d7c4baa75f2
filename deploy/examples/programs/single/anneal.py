#!/usr/bin/env python3
"""A search whose whole state is one file, written over in place as torch.save(state, "model.pt") does it.
The lines that join it to Hanse are marked; without HANSE_CHECKPOINT_DIR it saves in the working folder as ever.

Integers only, so that a result is the same on every machine."""
import argparse
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time

MASK = (1 << 64) - 1
STATE = os.path.join(os.environ.get("HANSE_CHECKPOINT_DIR", "."), "anneal.state")  # hanse


def save(state):
    with open(STATE, "wb") as f:  # in place: torn when it is killed here
        pickle.dump(state, f)
    if "HANSE_CHECKPOINT_DIR" in os.environ:  # hanse
        subprocess.run(["hanse", "checkpoint", "commit", "--step", str(state["step"]), "anneal.state"],
                       check=True, start_new_session=True)  # the signal goes to our whole process group


def step_once(s):
    s["random"] = (s["random"] * 6364136223846793005 + 1442695040888963407) & MASK
    i, j = (s["random"] >> 33) % len(s["tour"]), (s["random"] >> 17) % len(s["tour"])
    a, b = s["tour"][i], s["tour"][j]
    if (a * i + b * j > a * j + b * i) or s["random"] >> 60 == 0:
        s["tour"][i], s["tour"][j] = b, a


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--every", type=int, default=50)
    p.add_argument("--pause", type=float, default=0.0, help="seconds a step takes at least")
    args = p.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))  # hanse
    if "HANSE_RESUME_DIR" in os.environ:  # hanse: it is for reading only
        shutil.copy(os.path.join(os.environ["HANSE_RESUME_DIR"], "anneal.state"), STATE)
    state = {"step": 0, "random": 42, "tour": list(range(20000))}
    if os.path.exists(STATE):
        with open(STATE, "rb") as f:
            state = pickle.load(f)
    print(f"from step {state['step']}", flush=True)
    while state["step"] < args.steps:
        state["step"] += 1
        step_once(state)
        time.sleep(args.pause)
        if asked or state["step"] % args.every == 0:
            save(state)
        if asked:
            sys.exit(75)  # hanse
    print("result", hex(sum((i + 1) * x for i, x in enumerate(state["tour"])) & MASK), flush=True)


main()

#!/usr/bin/env python3
"""A trainer that saves as PyTorch trainers do: OUT/step-N/ with one file a shard and an index, the index last;
the two newest stay. --resume takes a folder with such an index. Knows nothing of Hanse: --on-save runs a command
after each save, as the callbacks of the usual frameworks do, with STEP in its environment.

Its "weights" are integers, so that a result is the same on every machine."""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

SHARDS, WIDTH, PRIME = 4, 2048, (1 << 61) - 1


def step_once(weights, step):
    for k, shard in enumerate(weights):
        i = (step * 2654435761 + k) % WIDTH
        shard[i] = (shard[i] * 6364136223846793005 + step + weights[k - 1][i - 1]) % PRIME


def save(args, weights, step):
    folder = os.path.join(args.out, f"step-{step}")
    os.makedirs(folder + ".tmp", exist_ok=True)
    for k, shard in enumerate(weights):
        with open(f"{folder}.tmp/shard-{k}-of-{SHARDS}.json", "w") as f:
            json.dump(shard, f)
    with open(f"{folder}.tmp/index.json", "w") as f:
        json.dump({"step": step, "shards": SHARDS}, f)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(folder + ".tmp", folder)
    if args.on_save:
        # A session of its own: the signal that asks us to stop goes to our whole process group.
        subprocess.run(args.on_save, shell=True, check=True, start_new_session=True,
                       env={**os.environ, "STEP": str(step)})
    old = sorted((d for d in os.listdir(args.out) if d.startswith("step-")), key=lambda d: int(d[5:].split(".")[0]))
    for d in old[:-2]:
        shutil.rmtree(os.path.join(args.out, d))


def load(folder):
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    weights = []
    for k in range(index["shards"]):
        with open(os.path.join(folder, f"shard-{k}-of-{SHARDS}.json")) as f:
            weights.append(json.load(f))
    return weights, index["step"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--every", type=int, default=50)
    p.add_argument("--pause", type=float, default=0.0, help="seconds a step takes at least")
    p.add_argument("--out", required=True)
    p.add_argument("--resume", help="a step-N folder")
    p.add_argument("--on-save", dest="on_save")
    args = p.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    weights, step = load(args.resume) if args.resume else ([[k + 1] * WIDTH for k in range(SHARDS)], 0)
    print(f"from step {step}", flush=True)
    while step < args.steps:
        step += 1
        step_once(weights, step)
        time.sleep(args.pause)
        if asked or step % args.every == 0:
            save(args, weights, step)
        if asked:
            sys.exit(75)
    print("result", hex(sum(sum((i + 1) * x for i, x in enumerate(s)) for s in weights) % PRIME), flush=True)


main()
